//! Recordings that are whole, cut off, changed, or contradict themselves.

use muster_comm::types::{Collective, DType, ReduceOp};
use proptest::prelude::*;

use super::price::{WhatIf, price};
use super::program::{Action, Counts, Problem, Program};
use super::read::parse;

/// The file of a rank of two, ended by its last line.
fn file(rank: u32, lines: &[&str]) -> Vec<u8> {
    let header = format!(
        r#"{{"is":"recording","version":1,"rank":{rank},"world_size":2,"job":"7","started_ms":1}}"#
    );
    let mut text = header + "\n";
    for line in lines {
        text += line;
        text.push('\n');
    }
    let crc32 = crc32fast::hash(text.as_bytes());
    let calls = lines
        .iter()
        .filter(|line| line.contains(r#""is":"call""#))
        .count();
    let end = format!(r#"{{"is":"end","calls":{calls},"lost":0,"crc32":{crc32}}}"#);
    text += &end;
    text.push('\n');
    text.into_bytes()
}

const GROUP: &str = r#"{"is":"group","group":0,"key":"9","name":"tp","members":[0,1]}"#;
const REDUCE: &str = r#"{"is":"call","group":0,"seq":1,"thread":1,"pause_us":3,"call":"all_reduce","dtype":"f32","op":"sum","count":4}"#;
const BARRIER: &str =
    r#"{"is":"call","group":0,"seq":2,"thread":1,"pause_us":3,"call":"barrier","count":0}"#;

fn split(send: &str, recv: &str) -> String {
    format!(
        r#"{{"is":"call","group":0,"seq":3,"thread":1,"pause_us":3,"call":"all_to_all_v","dtype":"u8","send":{send},"recv":{recv}}}"#
    )
}

fn message(sends: bool, peer: u32, count: u32) -> String {
    let call = if sends { "send" } else { "recv" };
    format!(
        r#"{{"is":"call","group":0,"seq":4,"thread":1,"pause_us":0,"call":"{call}","messages":[{{"sends":{sends},"peer":{peer},"dtype":"f32","count":{count}}}]}}"#
    )
}

/// Both files of a world in which all fits.
fn whole() -> [Vec<u8>; 2] {
    let (one, two) = (split("[1,2]", "[1,3]"), split("[3,4]", "[2,4]"));
    let (sent, received) = (message(true, 1, 5), message(false, 0, 5));
    [
        file(0, &[GROUP, REDUCE, BARRIER, &one, &sent]),
        file(1, &[GROUP, REDUCE, BARRIER, &two, &received]),
    ]
}

fn program(files: &[Vec<u8>]) -> Result<Program, Problem> {
    let read = (0..)
        .zip(files)
        .map(|(rank, bytes)| parse(format!("r{rank}"), rank, bytes));
    Program::of(read.collect::<Result<_, _>>()?)
}

#[test]
fn a_whole_recording_is_what_the_ranks_did() {
    let program = program(&whole()).expect("a program");
    assert_eq!((program.calls(), program.left_out, program.lost), (8, 0, 0));
    assert!(program.cut.is_empty());
    let steps = &program.ranks[1].threads[0];
    let expected = Action::Collective {
        collective: Collective::AllReduce,
        dtype: DType::F32,
        op: ReduceOp::Sum,
        root: 0,
        counts: Counts::Uniform(4),
    };
    assert_eq!((&steps[0].action, steps[0].pause_us), (&expected, 3));
    let Action::Collective { counts, .. } = &steps[2].action else {
        unreachable!("a collective");
    };
    assert_eq!(counts, &Counts::Splits(vec![vec![1, 2], vec![3, 4]]));
}

#[test]
fn contradictions_name_both_lines() {
    let refused = |files: &[Vec<u8>]| program(files).expect_err("a contradiction").to_string();
    let [one, two] = whole();
    let other = REDUCE.replace("\"count\":4", "\"count\":5");
    let found = refused(&[one.clone(), file(1, &[GROUP, &other])]);
    let expected = "r1 line 3: all_reduce is not what rank 0 recorded; r0 line 3 has the same call";
    assert_eq!(found, expected);
    let found = refused(&[
        file(0, &[GROUP, &split("[1,2]", "[1,9]")]),
        file(1, &[GROUP, &split("[3,4]", "[2,4]")]),
    ]);
    assert!(
        found.starts_with("r0 line 3: receives 9 elements from member 1"),
        "{found}"
    );
    let found = refused(&[
        file(0, &[GROUP, &message(true, 1, 5)]),
        file(1, &[GROUP, &message(false, 0, 6)]),
    ]);
    assert_eq!(
        found,
        "r0 line 3: sends f32[5], and r1 line 3 receives f32[6]"
    );
    let found = refused(&[one.clone(), file(1, &[&GROUP.replace("[0,1]", "[1,0]")])]);
    assert!(found.contains("under the same key"), "{found}");
    let found = refused(&[file(0, &[GROUP, REDUCE, REDUCE]), two.clone()]);
    assert!(found.contains("is in line 3 too"), "{found}");
    let found = refused(&[two.clone(), two]);
    assert_eq!(found, "r0 line 1: a recording of rank 1");
    let text = String::from_utf8(one.clone()).expect("text");
    let newer = text.replace("\"version\":1", "\"version\":2").into_bytes();
    assert!(refused(&[newer]).contains("this program reads version 1"));
    let longer = [one, b"{}\n".to_vec()].concat();
    assert_eq!(refused(&[longer]), "r0 line 8: a line behind the last one");
}

#[test]
fn fields_that_cannot_be_are_refused_with_their_line() {
    for (from, to, part) in [
        (
            "\"group\":0,\"seq\":1",
            "\"group\":7,\"seq\":1",
            "line 3: group 7; known are 1 groups",
        ),
        ("\"op\":\"sum\"", "\"op\":\"add\"", "unknown"),
        ("\"dtype\":\"f32\"", "\"dtype\":\"f31\"", "unknown"),
        (",\"count\":4", "", "all_reduce without a count"),
        ("\"count\":4", "\"count\":4000000000000000", "more than"),
        ("\"op\":\"sum\",", "", "all_reduce without a reduction"),
        ("[0,1]", "[0,0]", "line 2: a rank is twice"),
        ("[0,1]", "[0,2]", "member 2; the world has ranks 0 to 1"),
        ("[0,1]", "[1]", "rank 0 is not among the members"),
        (
            "\"group\":0,\"key\"",
            "\"group\":1,\"key\"",
            "group 1; the next one is 0",
        ),
        ("\"key\":\"9\"", "\"key\":\"x\"", "no hexadecimal number"),
        ("pause_us", "pause", "unknown field"),
    ] {
        let lines = [GROUP, REDUCE].map(|line| line.replace(from, to));
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let files = [file(0, &lines), file(1, &[GROUP, REDUCE])];
        let found = program(&files).expect_err(from).to_string();
        assert!(found.contains(part), "{from} to {to}: {found}");
    }
}

#[test]
fn a_file_that_is_cut_off_anywhere_is_read_up_to_there() {
    let [one, two] = whole();
    let header = one.iter().position(|byte| *byte == b'\n').expect("lines");
    for end in header + 1..one.len() {
        let program = program(&[one[..end].to_vec(), two.clone()]).expect("a program");
        assert_eq!(program.cut, [0]);
        let whole = one[..end].iter().rposition(|byte| *byte == b'\n');
        let lines = one[..whole.expect("the first line")].split(|byte| *byte == b'\n');
        let calls = lines
            .filter(|line| line.starts_with(br#"{"is":"call""#))
            .count();
        for rank in &program.ranks {
            assert_eq!(rank.threads.first().map_or(0, Vec::len), calls, "{end}");
        }
    }
    for end in 0..=header {
        let found = program(&[one[..end].to_vec(), two.clone()]).expect_err("no line");
        assert_eq!(found.to_string(), "r0 line 1: no whole line");
    }
}

#[test]
fn calls_that_were_lost_are_left_out_on_all_ranks() {
    let lost = r#"{"is":"lost","calls":1}"#;
    let text = String::from_utf8(file(0, &[GROUP, lost, BARRIER])).expect("text");
    let one = text
        .replace("\"lost\":0,\"crc32\"", "\"lost\":1,\"crc32\"")
        .into_bytes();
    let two = file(1, &[GROUP, REDUCE, BARRIER]);
    let program = program(&[one, two]).expect("a program");
    assert_eq!((program.calls(), program.left_out, program.lost), (2, 1, 1));
}

#[test]
fn a_recording_has_a_price_by_what_is_assumed() {
    let program = program(&whole()).expect("a program");
    let of = |text: &str| {
        let what = WhatIf::parse(text).expect("assumptions");
        price(&program, &what).expect("a price")
    };
    let near = of("ranks-per-host=2");
    let names: Vec<&str> = near
        .rows
        .iter()
        .map(|row| row.collective.as_str())
        .collect();
    assert!(
        names.contains(&"all_reduce") && names.contains(&"all_to_all_v"),
        "{names:?}"
    );
    assert!(near.rows.iter().all(|row| row.calls == 1 && row.ranks == 2));
    let far = of("ranks-per-host=1,between-us=500");
    assert!(far.busiest_s >= near.busiest_s + 500e-6, "{near:?} {far:?}");
    let ring = of("algo=ring,ranks-per-host=1");
    let reduce = ring.rows.iter().find(|row| row.collective == "all_reduce");
    let algorithms = reduce.map(|row| row.algorithms.keys().cloned().collect::<Vec<_>>());
    assert_eq!(algorithms, Some(vec!["ring".to_owned()]));
    for wrong in [
        "",
        "algo",
        "algo=none",
        "between-us=0",
        "between-gbs=x",
        "ranks-per-host=0",
        "hosts=2",
    ] {
        assert!(WhatIf::parse(wrong).is_err(), "{wrong}");
    }
    let parsed = |text| WhatIf::parse(text).expect("assumptions");
    let (before, after) = (
        "ranks-per-host=2,topology=atlas-800t-a2",
        "topology=atlas-800t-a2,ranks-per-host=2",
    );
    assert_eq!(parsed(before), parsed(after), "in any order");
    assert_ne!(parsed(before), parsed("topology=atlas-800t-a2"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    /// With the last line its checksum finds every change; a program that is made all the same is the recorded one.
    #[test]
    fn a_changed_recording_is_an_error_and_never_a_panic(
        rank in 0_usize..2,
        places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0_u8..3), 1..4),
    ) {
        let mut files = whole();
        for (place, byte, how) in places {
            let text = &mut files[rank];
            if text.is_empty() {
                continue;
            }
            let place = place.index(text.len());
            match how {
                0 => text[place] = byte,
                1 => text.insert(place, byte),
                _ => {
                    text.remove(place);
                }
            }
        }
        // Without its last line, whole or not, a file is one that was cut off.
        let is_ended = files[rank].ends_with(b"\n");
        match program(&files) {
            Ok(found) => {
                let is_same = found == program(&whole()).expect("a program");
                let text = String::from_utf8_lossy(&files[rank]);
                prop_assert!(is_same || !found.cut.is_empty() || !is_ended, "{text}");
            }
            Err(problem) => prop_assert!(problem.place.starts_with('r'), "{problem}"),
        }
    }
}
