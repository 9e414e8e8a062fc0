//! `muster run --record` and `muster replay`: what ranks did, made again.

use std::collections::BTreeMap;
use std::path::Path;

use muster_tests::{Ended, binary, muster, send, start, until};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::toolkit::Toolkit;

const FAULTY: &str = env!("CARGO_BIN_EXE_faulty");

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

fn lines(folder: &Path, rank: u32) -> Vec<Value> {
    let path = folder.join(format!("rank-{rank}.calls.jsonl"));
    let all = std::fs::read_to_string(path).expect("a recording");
    all.lines()
        .map(|line| serde_json::from_str(line).expect("a line"))
        .collect()
}

/// The calls of a rank on each of its groups, without what depends on time.
fn sequence(folder: &Path, rank: u32) -> BTreeMap<String, Vec<Value>> {
    let mut names: Vec<String> = Vec::new();
    let mut made: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for mut line in lines(folder, rank) {
        match line["is"].as_str() {
            Some("group") => {
                let name = line["name"].as_str().expect("a name");
                let lives = names
                    .iter()
                    .filter(|known| known.starts_with(&format!("{name}#")));
                names.push(format!("{name}#{}", lives.count()));
            }
            Some("call") => {
                let group = usize::try_from(line["group"].as_u64().expect("a group"));
                let group = names[group.expect("small")].clone();
                let fields = line.as_object_mut().expect("an object");
                for field in ["pause_us", "thread", "is_async", "called", "group"] {
                    fields.remove(field);
                }
                made.entry(group).or_default().push(line);
            }
            _ => {}
        }
    }
    made
}

fn replay(folder: &Path, again: &Path) -> Ended {
    let words = [
        "replay",
        text(folder),
        "--pauses",
        "none",
        "--format",
        "json",
    ];
    start(binary(), &words, &[("MUSTER_RECORD_DIR", text(again))]).wait()
}

#[test]
fn what_was_recorded_is_made_again_call_by_call_and_right() {
    let folder = tempfile::tempdir().expect("a folder");
    let moe = [
        "moe",
        "--matrix",
        "tp2ep2",
        "--tokens",
        "16",
        "--experts",
        "8",
        "--top-k",
        "2",
        "--hidden",
        "64",
        "-n",
        "2",
        "-w",
        "0",
    ];
    let programs: [(&str, u32, Vec<&str>); 4] = [
        (
            "verify",
            2,
            vec!["verify", "tp2", "--dtypes", "f32,i8", "--sizes", "5,1000"],
        ),
        ("moe", 4, moe.to_vec()),
        ("turns", 2, vec!["run", "-n", "2", "--", FAULTY, "turns"]),
        ("run", 3, vec!["run", "-n", "3", "--", FAULTY, "asynclate"]),
    ];
    for (name, ranks, words) in programs {
        let (first, again) = (
            folder.path().join(name),
            folder.path().join(format!("{name}-again")),
        );
        let recorded = start(binary(), &words, &[("MUSTER_RECORD_DIR", text(&first))]);
        recorded.wait().expect_code(0);
        let ended = replay(&first, &again);
        let told = ended.expect_code(0).json();
        assert_eq!(told["outcome"]["wrong"], 0, "{told}");
        assert_eq!(told["outcome"]["calls"], told["calls"], "{told}");
        assert_eq!(told["outcome"]["checked"], told["calls"], "{told}");
        for rank in 0..ranks {
            assert_eq!(
                sequence(&first, rank),
                sequence(&again, rank),
                "{name} rank {rank}"
            );
        }
    }
}

#[test]
fn what_was_recorded_on_the_host_is_made_again_on_emulated_devices() {
    let toolkit = Toolkit::install();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("recording");
    let words = ["verify", "tp2", "--dtypes", "f32,u16", "--sizes", "0,33"];
    let recorded = start(binary(), &words, &[("MUSTER_RECORD_DIR", text(&path))]);
    recorded.wait().expect_code(0);
    let words = ["replay", text(&path), "--pauses", "none"];
    let devices = [&words[..], &["--backend", "hccl"]].concat();
    let json = [&devices[..], &["--format", "json"]].concat();
    let told = toolkit.run(&json, &[]).expect_code(0).json();
    assert_eq!(
        (&told["backend"], &told["emulated"]),
        (&json!("hccl"), &json!(true))
    );
    let outcome = &told["outcome"];
    assert_eq!(outcome["wrong"], 0, "{told}");
    assert_eq!(outcome["checked"], outcome["calls"], "{told}");
    let number = |value: &Value| value.as_u64().expect("a number");
    // Scans and sums of u16 are on the host only.
    assert!(number(&outcome["lacking"]) > 0, "{told}");
    assert_eq!(
        number(&outcome["calls"]) + number(&outcome["lacking"]),
        number(&told["calls"]),
        "{told}"
    );
    let ended = toolkit.run(&devices, &[]);
    let last = ended.expect_code(0).stdout.trim_end().lines().last();
    assert!(
        last.is_some_and(|last| last.starts_with("replayed on emulated devices: ")),
        "{last:?}"
    );
    let few = toolkit.run(&devices, &[("MUSTER_EMU_DEVICES", "1")]);
    few.expect_code(60);
}

#[test]
fn calls_of_hccl_are_recorded_by_the_tap_and_made_again_on_the_host_and_on_devices() {
    let toolkit = Toolkit::install();
    let folder = tempfile::tempdir().expect("a folder");
    let (first, again) = (folder.path().join("first"), folder.path().join("again"));
    let program = binary().to_str().expect("text");
    let words = [
        "tap",
        "run",
        "--record",
        text(&first),
        "--",
        program,
        "verify",
        "tp2ep2",
        "--backend",
        "hccl",
        "--dtypes",
        "f16",
        "--sizes",
        "0,33",
    ];
    let recorded = toolkit.run(&words, &[]);
    recorded.expect_code(0);
    let line = format!(
        "recorded 4 ranks in {}; make their calls again with `muster replay`\n",
        first.display()
    );
    assert!(recorded.stderr.ends_with(&line), "{}", recorded.stderr);
    let told = replay(&first, &again).expect_code(0).json();
    let number = |value: &Value| value.as_u64().expect("a number");
    let outcome = &told["outcome"];
    assert!(number(&told["calls"]) > 1000, "{told}");
    assert_eq!((&told["lost"], &told["left_out"]), (&json!(0), &json!(0)));
    assert_eq!(
        (&outcome["wrong"], &outcome["checked"]),
        (&json!(0), &told["calls"])
    );
    // The host counts messages among the calls of a communicator.
    let numberless = |folder: &Path, rank: u32| {
        let mut all = sequence(folder, rank);
        all.retain(|_, calls| !calls.is_empty());
        for call in all.values_mut().flatten() {
            call.as_object_mut().expect("an object").remove("seq");
        }
        all
    };
    for rank in 0..4 {
        assert_eq!(
            numberless(&first, rank),
            numberless(&again, rank),
            "rank {rank}"
        );
    }
    let words = [
        "replay",
        text(&first),
        "--pauses",
        "none",
        "--backend",
        "hccl",
        "--format",
        "json",
    ];
    let told = toolkit.run(&words, &[]).expect_code(0).json();
    assert_eq!(told["outcome"]["checked"], told["calls"], "{told}");
}

#[test]
fn ranks_that_were_killed_are_replayed_up_to_the_last_common_call() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("recording");
    let words = [
        "run",
        "-n",
        "3",
        "--record",
        text(&path),
        "--",
        FAULTY,
        "loop",
    ];
    let mut job = start(binary(), &words, &[]);
    let victim = job.await_rank(1);
    until("recorded calls", || {
        std::fs::metadata(path.join("rank-1.calls.jsonl")).is_ok_and(|about| about.len() > 10_000)
    });
    send(victim, Signal::KILL).expect("it lives");
    job.wait().expect_code(20);
    let dry = muster(&["replay", text(&path), "--dry-run", "--format", "json"]);
    let told = dry.expect_code(0).json();
    assert_eq!(
        told["cut"].as_array().map(Vec::is_empty),
        Some(false),
        "{told}"
    );
    let again = folder.path().join("again");
    let told = replay(&path, &again).expect_code(0).json();
    assert_eq!(told["outcome"]["wrong"], json!(0));
    assert!(told["outcome"]["calls"].as_u64() > Some(0), "{told}");
}

#[test]
fn a_recording_that_cannot_be_used_is_refused_with_its_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let none = muster(&["replay", text(folder.path())]);
    none.expect_code(2);
    assert!(
        none.stderr.contains("rank-0.calls.jsonl"),
        "{}",
        none.stderr
    );
    let words = [
        "run",
        "-n",
        "2",
        "--record",
        text(folder.path()),
        "--",
        FAULTY,
        "well",
    ];
    start(binary(), &words, &[]).wait().expect_code(0);
    let path = folder.path().join("rank-1.calls.jsonl");
    let all = std::fs::read_to_string(&path).expect("a recording");
    std::fs::write(&path, all.replacen("\"count\":64", "\"count\":65", 1)).expect("written");
    let changed = muster(&["replay", text(folder.path())]);
    changed.expect_code(2);
    let part = "the checksum is not that of the lines before: the file was changed";
    assert!(changed.stderr.contains(part), "{}", changed.stderr);
}
