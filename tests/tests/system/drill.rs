//! `muster drill`: what it prints, and that what it promises is so for a handful of drills.

use std::collections::BTreeSet;

use muster_tests::{Leftovers, muster};

#[test]
fn a_handful_of_drills_passes_over_shared_memory_and_over_tcp() {
    let before = Leftovers::now();
    let ended = muster(&[
        "drill", "--only", "killed", "stalled", "A4", "quiet", "--seed", "7", "--json",
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
