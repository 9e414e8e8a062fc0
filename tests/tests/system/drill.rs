//! `muster drill`: what it prints, and that what it promises is so for a handful of drills.

use std::collections::BTreeSet;

use muster_tests::{Leftovers, muster};

#[test]
fn a_handful_of_drills_passes_over_shared_memory_and_over_tcp() {
    let before = Leftovers::now();
    let ended = muster(&[
        "drill", "--only", "killed", "stalled", "A4", "quiet", "--seed", "7", "--format", "json",
    ]);
    let report = ended.json();
    ended.expect_code(0);
    assert_eq!(report["passed"], true);
    assert_eq!(report["seed"], 7);
    let runs = report["drills"].as_array().expect("runs");
    let places: BTreeSet<(&str, &str)> = runs
        .iter()
        .filter_map(|run| Some((run["name"].as_str()?, run["transport"].as_str()?)))
        .collect();
    assert_eq!(places.len(), 8, "{places:?}");
    for run in runs {
        assert_eq!(run["passed"], true, "{run}");
        assert_eq!(run["survivors_returned"], true, "{run}");
        assert_eq!(run["assertions"].as_array().map(Vec::len), Some(5));
        if run["control"] == false {
            assert_eq!(run["verdict"]["class"], run["expected"]["class"]);
            let text = run["verdict"]["line"].as_str().expect("a line");
            assert!(text.starts_with("VERDICT "), "{text}");
            assert!(run["detected_ms"].as_f64() <= run["bound_ms"].as_f64());
        }
    }
    before.assert_nothing_new();
}

#[test]
fn the_table_says_what_was_found_and_how_many_passed() {
    let ended = muster(&[
        "drill",
        "--only",
        "A1",
        "--transport",
        "shm",
        "--world",
        "2,3",
    ]);
    ended.expect_code(0);
    let rows: Vec<&str> = ended
        .stdout
        .lines()
        .filter(|line| line.starts_with("A1 "))
        .collect();
    assert_eq!(rows.len(), 2, "{}", ended.stdout);
    for row in rows {
        assert!(row.contains("PEER_DEAD rank "), "{row}");
        assert!(row.ends_with("ok"), "{row}");
    }
    assert!(
        ended.stdout.contains("1/1 drills of the first wave"),
        "{}",
        ended.stdout
    );
}

#[test]
fn memory_order_runs_between_two_ranks_and_says_how_much_it_looked_at() {
    let ended = muster(&["drill", "--only", "memory-order", "--json"]);
    ended.expect_code(0);
    let report = ended.json();
    let run = &report["drills"][0];
    assert_eq!(run["transport"], "shm");
    assert_eq!(run["world_size"], 2);
    let note = run["notes"][0].as_str().expect("a note");
    assert!(note.starts_with("in order: "), "{note}");
}

#[test]
fn the_list_names_every_drill_once() {
    let ended = muster(&["drill", "--list", "--json"]);
    ended.expect_code(0);
    let list = ended.json();
    let drills = list["drills"].as_array().expect("drills");
    let names: BTreeSet<&str> = drills
        .iter()
        .filter_map(|drill| drill["name"].as_str())
        .collect();
    assert_eq!(names.len(), drills.len());
    let text = muster(&["drill", "--list"]).stdout;
    for name in names {
        assert!(text.contains(name), "{name} is missing from\n{text}");
    }
}

#[test]
fn what_does_not_exist_is_refused() {
    let ended = muster(&["drill", "--only", "kiled"]);
    ended.expect_code(2);
    for part in ["no drill is called \"kiled\"", "did you mean killed?"] {
        assert!(ended.stderr.contains(part), "{}", ended.stderr);
    }
    muster(&["drill", "--world", "1"]).expect_code(2);
    muster(&["drill", "--only", "C4-none"]).expect_code(2);
}

/// A handful of random drills; how many were exact is in the document.
fn random(words: &[&str]) -> serde_json::Value {
    let ended = muster(&[["drill", "--json"].as_slice(), words].concat());
    let report = ended.json();
    let is_exact = report["runs"] == report["exact"];
    ended.expect_code(if is_exact { 0 } else { 1 });
    report
}

#[test]
fn random_programs_with_nothing_wrong_are_left_alone_under_every_launcher() {
    let before = Leftovers::now();
    for launcher in ["run", "env"] {
        let report = random(&[
            "--random",
            "6",
            "--faults",
            "none,stalled",
            "--world",
            "2,3,5",
            "--seed",
            "1",
            "--transport",
            "shm,tcp",
            "--launcher",
            launcher,
        ]);
        assert_eq!(report["runs"], 6);
        assert_eq!(report["exact"], 6, "{report:#}");
    }
    before.assert_nothing_new();
}

#[test]
fn random_faults_are_told_and_each_kind_has_its_row() {
    let before = Leftovers::now();
    let report = random(&[
        "--random",
        "12",
        "--faults",
        "killed,stopped,sleeps,other-count",
        "--world",
        "3,4",
        "--seed",
        "7",
        "--transport",
        "shm",
        "--launcher",
        "run",
        "--jobs",
        "2",
    ]);
    assert_eq!(report["runs"], 12);
    assert_eq!(report["exact"], 12, "{report:#}");
    let rows = report["faults"].as_object().expect("rows");
    assert_eq!(rows.len(), 4);
    for (fault, row) in rows {
        assert_eq!(row["runs"], row["detected"], "{fault}");
    }
    before.assert_nothing_new();
}

#[test]
fn random_drills_that_are_interrupted_print_what_they_have_and_leave_nothing() {
    use rustix::process::Signal;
    let before = Leftovers::now();
    let words = [
        "drill",
        "--random",
        "100000",
        "--faults",
        "none",
        "--world",
        "2",
        "--launcher",
        "run",
        "--load",
        "1",
    ];
    let run = muster_tests::start(muster_tests::binary(), &words, &[]);
    muster_tests::until("the busy loop runs", || !run.processes().is_empty());
    run.signal(Signal::INT);
    let ended = run.wait();
    ended.expect_code(80);
    assert!(
        ended.stdout.contains("stopped before the end"),
        "{}",
        ended.stdout
    );
    before.assert_nothing_new();
}

#[test]
fn programs_that_once_got_a_wrong_verdict_get_the_right_one() {
    let before = Leftovers::now();
    let unknown = muster(&["drill", "--case", "no-such-case"]);
    unknown.expect_code(2);
    let names = unknown
        .stderr
        .rsplit("there are: ")
        .next()
        .unwrap_or_default();
    // The largest worlds take a minute; they are for people to run.
    let is_small = |name: &&str| !name.ends_with("-128") && !name.ends_with("-256");
    let names: Vec<&str> = names.trim().split(", ").filter(is_small).collect();
    assert!(names.len() > 12, "{}", unknown.stderr);
    let report = random(&["--case", &names.join(","), "--jobs", "4"]);
    assert_eq!(report["runs"].as_u64(), Some(names.len() as u64));
    let misses = report["misses"].as_array().expect("misses");
    assert!(misses.is_empty(), "{misses:#?}");
    before.assert_nothing_new();
}
