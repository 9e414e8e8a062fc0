//! `muster compare` on files that `bench` and `verify` wrote.

use std::path::{Path, PathBuf};

use muster_tests::{Ended, binary, muster, start, until};
use rustix::process::Signal;
use serde_json::Value;

/// Writes a result file and gives back its path.
fn file(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("a file");
    path
}

fn compare(base: &Path, new: &Path, options: &[&str]) -> Ended {
    let files = [
        base.to_str().expect("a path"),
        new.to_str().expect("a path"),
    ];
    muster(&[&["compare"], &files[..], options].concat())
}

/// A file of `bench`: real, but with times that are written in here, so that nothing depends on how
/// fast this machine is just now.
fn measured(time: impl Fn(usize, usize) -> f64) -> Value {
    let ended = muster(&[
        "bench",
        "all_reduce",
        "-b",
        "8",
        "-e",
        "8K",
        "-f",
        "2",
        "-n",
        "2",
        "-w",
        "0",
        "--rounds",
        "2",
        "--format",
        "json",
    ]);
    ended.expect_code(0);
    let mut document = ended.json();
    document["machine_states"] = serde_json::json!([]);
    let records = document["records"].as_array_mut().expect("records");
    assert_eq!(records.len(), 11);
    for (row, record) in records.iter_mut().enumerate() {
        let rounds = (0..10).map(|round| vec![time(row, round)]);
        record["samples_us"] = rounds.collect::<Vec<_>>().into();
    }
    document
}

fn steady(row: usize, round: usize) -> f64 {
    10.0 + row as f64 + ((round * 7 + row) % 10) as f64 / 20.0
}

#[test]
fn a_slow_row_and_wrong_data_are_found_and_the_same_file_is_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let good = measured(steady);
    let base = file(folder.path(), "base.json", &good.to_string());
    let same = compare(&base, &base, &[]);
    same.expect_code(0);
    assert!(same.stdout.contains("no regression"), "{}", same.stdout);

    let mut slow = good.clone();
    for samples in slow["records"][4]["samples_us"]
        .as_array_mut()
        .expect("rounds")
    {
        let time = samples[0].as_f64().expect("a time");
        samples[0] = (time * 1.1).into();
    }
    let new = file(folder.path(), "slow.json", &slow.to_string());
    let ended = compare(&base, &new, &["--format", "json"]);
    ended.expect_code(50);
    let rows = ended.json()["rows"].clone();
    assert_eq!(rows[0]["fate"], "regressed");
    assert!(
        rows[0]["name"].as_str().expect("a name").contains("128 B"),
        "{}",
        rows[0]
    );
    assert_eq!(rows[1]["fate"], "same");
    let ended = compare(&base, &new, &["--markdown"]);
    ended.expect_code(50);
    assert!(
        ended.stdout.starts_with("### muster compare: slower"),
        "{}",
        ended.stdout
    );
    compare(&base, &new, &["--threshold", "25"]).expect_code(0);
    // The slow file as one of two runs of the base, and once more against itself.
    let more = new.to_str().expect("a path");
    compare(
        &base,
        &new,
        &["--more-base", more, "--more-new", more, "--threshold", "20"],
    )
    .expect_code(0);

    let mut wrong = slow;
    wrong["records"][7]["wrong"] = 3.into();
    let new = file(folder.path(), "wrong.json", &wrong.to_string());
    let ended = compare(&base, &new, &[]);
    ended.expect_code(40);
    assert!(ended.stdout.starts_with("wrong data: "), "{}", ended.stdout);

    let mut fewer = good.clone();
    fewer["records"].as_array_mut().expect("records").pop();
    let new = file(folder.path(), "fewer.json", &fewer.to_string());
    compare(&base, &new, &[]).expect_code(70);
    compare(&base, &new, &["--allow-missing"]).expect_code(0);
}

#[test]
fn a_row_of_which_nothing_is_shown_is_no_pass() {
    let folder = tempfile::tempdir().expect("a folder");
    // One row whose rounds differ by half of each other: nothing is shown of it, though both files are the same.
    let restless = |row: usize, round: usize| {
        let factor = if row == 5 {
            1.0 + (round % 3) as f64 / 4.0
        } else {
            1.0
        };
        steady(row, round) * factor
    };
    let new = file(
        folder.path(),
        "restless.json",
        &measured(restless).to_string(),
    );
    let ended = compare(&new, &new, &[]);
    ended.expect_code(70);
    for part in [
        "not proved: 11 rows, 10 the same, 1 undecided",
        "would decide",
    ] {
        assert!(ended.stdout.contains(part), "{part}: {}", ended.stdout);
    }
    compare(&new, &new, &["--margin", "60"]).expect_code(0);
}

#[test]
fn files_that_do_not_fit_are_refused_in_a_sentence() {
    let folder = tempfile::tempdir().expect("a folder");
    let good = measured(steady);
    let text = good.to_string();
    let base = file(folder.path(), "base.json", &text);
    let mut other = good.clone();
    other["machine"]["cpu"] = "another one".into();
    let mut newer = good;
    newer["schema_version"] = 2.into();
    let verify = muster(&[
        "verify", "tp1", "--dtypes", "f32", "--sizes", "8", "--format", "json",
    ]);
    verify.expect_code(0);
    for (name, text, part) in [
        ("cut", &text[..text.len() - 9], "is cut off"),
        ("other", &other.to_string(), "another one"),
        ("newer", &newer.to_string(), "schema_version 2"),
        (
            "verify",
            &verify.stdout,
            "cannot be compared with one of verify",
        ),
        ("nothing", "", "is empty"),
    ] {
        let path = file(folder.path(), name, text);
        let ended = compare(&base, &path, &[]);
        ended.expect_code(2);
        assert!(ended.stderr.contains(part), "{name}: {}", ended.stderr);
        assert!(ended.stdout.is_empty(), "{name}: {}", ended.stdout);
    }
    let other = folder.path().join("other");
    compare(&base, &other, &["--any-machine"]).expect_code(0);
    compare(&base, &folder.path().join("absent"), &[]).expect_code(2);
}

/// A file of `moe` with times that are written in here, a round trip of each of the lines slower by
/// `factor(line)`.
fn dispatched(seed: &str, factor: impl Fn(usize) -> f64) -> Value {
    let words = [
        "moe",
        "--hidden",
        "64",
        "--experts",
        "8",
        "--top-k",
        "2",
        "--ep",
        "2",
        "--sweep",
        "tokens=1..4",
        "-r",
        "balanced",
        "-r",
        "zipf:1",
        "--dispatcher",
        "all-to-all,deduplicated",
        "-n",
        "1",
        "-w",
        "0",
        "--seed",
        seed,
        "--format",
        "json",
    ];
    let ended = muster(&words);
    ended.expect_code(0);
    let mut document = ended.json();
    document["machine_states"] = serde_json::json!([]);
    let records = document["records"].as_array_mut().expect("records");
    assert_eq!(records.len(), 12);
    for (row, record) in records.iter_mut().enumerate() {
        for part in ["dispatch", "combine", "round_trip"] {
            let factor = if part == "round_trip" {
                factor(row)
            } else {
                1.0
            };
            let rounds = (0..10).map(|round| vec![steady(row, round) * factor]);
            record[part]["samples_us"] = rounds.collect::<Vec<_>>().into();
        }
    }
    document
}

#[test]
fn rows_of_a_dispatch_are_matched_by_what_was_chosen() {
    let folder = tempfile::tempdir().expect("a folder");
    let good = dispatched("1", |_| 1.0);
    let base = file(folder.path(), "base.json", &good.to_string());
    let same = compare(&base, &base, &["--format", "json"]);
    same.expect_code(0);
    assert_eq!(same.json()["rows"].as_array().map(Vec::len), Some(36));

    // The lines in another order, one of them slower.
    let mut slow = dispatched("1", |row| if row == 5 { 1.1 } else { 1.0 });
    slow["records"].as_array_mut().expect("records").reverse();
    let new = file(folder.path(), "slow.json", &slow.to_string());
    let ended = compare(&base, &new, &["--format", "json"]);
    ended.expect_code(50);
    let rows = ended.json()["rows"].clone();
    assert_eq!(
        (&rows[0]["fate"], &rows[1]["fate"]),
        (&"regressed".into(), &"same".into())
    );
    let name = rows[0]["name"].as_str().expect("a name");
    for part in [
        "round trip",
        "ep2",
        "4 tokens",
        "balanced",
        "deduplicated",
        "bf16",
    ] {
        assert!(name.contains(part), "{part} is not in {name}");
    }

    let mut wrong = good.clone();
    wrong["records"][3]["wrong"] = 2.into();
    wrong["records"][3]["wrong_text"] = "row 0 is not token 1 of rank 0".into();
    let new = file(folder.path(), "wrong.json", &wrong.to_string());
    let ended = compare(&base, &new, &[]);
    ended.expect_code(40);
    assert!(
        ended.stdout.starts_with("wrong data: round trip"),
        "{}",
        ended.stdout
    );

    let mut other = good.clone();
    other["records"][0]["tokens"] = 77.into();
    let new = file(folder.path(), "other.json", &other.to_string());
    let ended = compare(&base, &new, &["--markdown"]);
    ended.expect_code(70);
    for part in ["| missing | dispatch", "| new | dispatch", "77 tokens"] {
        assert!(ended.stdout.contains(part), "{part}: {}", ended.stdout);
    }
}

#[test]
fn files_of_other_dispatches_are_refused_in_a_sentence() {
    let folder = tempfile::tempdir().expect("a folder");
    let good = dispatched("1", |_| 1.0);
    let base = file(folder.path(), "base.json", &good.to_string());
    let mut seeded = good.clone();
    seeded["seed"] = 2.into();
    let text = good.to_string();
    let mut newer = good;
    newer["schema_version"] = 2.into();
    for (name, text, part) in [
        (
            "seeded",
            &seeded.to_string()[..],
            "say nothing about the program: seed ",
        ),
        ("cut", &text[..text.len() / 2], "is cut off"),
        (
            "newer",
            &newer.to_string(),
            "schema_version 2, this program reads 1",
        ),
    ] {
        let path = file(folder.path(), name, text);
        for (base, new) in [(&base, &path), (&path, &base)] {
            let ended = compare(base, new, &[]);
            ended.expect_code(2);
            let sentence = ended.stderr.lines().next().unwrap_or_default();
            assert!(sentence.contains(part), "{name}: {}", ended.stderr);
            assert!(ended.stdout.is_empty(), "{name}: {}", ended.stdout);
        }
    }
}

#[test]
fn a_check_of_verify_that_fails_now_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let verify = |inject: &[&str], code: i32| {
        let words = [
            "verify", "tp2", "--dtypes", "f32", "--sizes", "64", "--format", "json",
        ];
        let ended = muster(&[&words[..], inject].concat());
        ended.expect_code(code);
        ended.stdout
    };
    let base = file(folder.path(), "base.json", &verify(&[], 0));
    let fault = ["--inject", "bitflip:rank=1,collective=all_reduce"];
    let new = file(folder.path(), "new.json", &verify(&fault, 40));
    compare(&base, &base, &[]).expect_code(0);
    let ended = compare(&base, &new, &[]);
    ended.expect_code(40);
    assert!(ended.stdout.starts_with("wrong data: "), "{}", ended.stdout);
    assert!(ended.stdout.contains("all_reduce f32"), "{}", ended.stdout);
    let back = compare(&new, &base, &[]);
    back.expect_code(0);
    assert!(back.stdout.contains("repaired"), "{}", back.stdout);
}

#[test]
fn two_builds_measure_in_turns() {
    let program = binary().to_str().expect("a path");
    let small = [
        "--",
        "bench",
        "all_reduce",
        "-b",
        "1K",
        "-e",
        "1K",
        "-n",
        "2",
        "--time",
        "5ms",
    ];
    let compare = |programs: &[&str], options: &[&str]| {
        let runs = programs.iter().flat_map(|program| ["--run", program]);
        let words: Vec<&str> = ["compare"].into_iter().chain(runs).collect();
        muster(&[&words[..], options, &small].concat())
    };
    let ended = compare(&[program, program], &["--turns", "2", "--format", "json"]);
    // A busy machine decides what is found, and which rounds are left out: at least five of each side stay.
    let rows = ended.json()["rows"].clone();
    assert_eq!(rows.as_array().map(Vec::len), Some(1));
    let rounds = rows[0]["rounds"].as_array().expect("of both sides");
    assert!(
        rounds
            .iter()
            .all(|rounds| (5..=10).contains(&rounds.as_u64().unwrap_or(0))),
        "{rows}"
    );
    for turn in ["turn 1 of 2: ", "turn 2 of 2: "] {
        assert_eq!(ended.stderr.matches(turn).count(), 1, "{}", ended.stderr);
    }

    let ended = muster(&["compare", "base.json", "new.json", "--turns", "2"]);
    ended.expect_code(2);
    assert!(
        ended.stderr.contains("cannot be used with"),
        "{}",
        ended.stderr
    );
    for (programs, sentence) in [
        (vec![program], "--run is given 1 times"),
        (
            vec!["/nowhere/muster", program],
            "/nowhere/muster cannot be run",
        ),
        (vec!["/bin/true", program], "the output of /bin/true bench"),
    ] {
        let ended = compare(&programs, &[]);
        ended.expect_code(2);
        assert!(ended.stderr.contains(sentence), "{}", ended.stderr);
    }
}

#[test]
fn a_build_that_measures_ends_with_the_comparison_however_that_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("slow");
    let program = program.to_str().expect("a path");
    // Another process writes it: a child that another test forks meanwhile would hold it open, and it could not be run.
    let script = "printf '#!/bin/sh\\nexec sleep 600\\n' > \"$0\" && chmod +x \"$0\"";
    let mut shell = std::process::Command::new("sh");
    let status = shell.args(["-c", script, program]).status();
    assert!(status.expect("a shell").success());
    let words = ["compare", "--run", program, "--run", program];
    let running = start(binary(), &words, &[]);
    until("the first build measures", || {
        !running.processes().is_empty()
    });
    running.signal(Signal::KILL);
    assert_eq!(running.wait_for_all().code, None);
}
