//! `muster validate`: stages, one answer, files.

use muster_tests::{Leftovers, binary, muster, start};
use rustix::process::Signal;

#[test]
fn a_host_that_passes_all_stages_is_accepted_and_the_saved_answer_makes_reports() {
    let before = Leftovers::now();
    let folder = tempfile::tempdir().expect("a folder");
    let [saved, report] =
        ["host.json", "host.md"].map(|name| folder.path().join(name).display().to_string());
    let ended = muster(&[
        "validate",
        "--quick",
        "--only",
        "verify,moe,drill",
        "--format",
        "json",
        "--save",
        &saved,
    ]);
    ended.expect_code(0);
    let answer = ended.json();
    assert_eq!(answer["passed"], true, "{answer}");
    assert_eq!(answer["outcome"], "accepted");
    assert_eq!(answer["partial"], false);
    let stages = answer["stages"].as_array().expect("stages");
    let names: Vec<&str> = stages
        .iter()
        .filter_map(|one| one["name"].as_str())
        .collect();
    assert_eq!(names, ["verify", "moe", "drill"]);
    assert!(stages.iter().all(|one| one["exit_code"] == 0), "{answer}");
    assert!(
        stages[0]["finding"]
            .as_str()
            .is_some_and(|text| text.starts_with("passed: ")),
        "{answer}"
    );
    muster(&["report", &saved, &report]).expect_code(0);
    let text = std::fs::read_to_string(&report).expect("the report");
    assert!(text.contains("| drill | accepted |"), "{text}");
    drop(folder);
    before.assert_nothing_new();
}

#[test]
fn a_host_that_one_stage_refuses_is_refused_with_what_that_stage_said() {
    let words = ["validate", "--quick", "--only", "moe,doctor"];
    let wrong = [("MUSTER_DEADLINE_S", "soon")];
    let ended = start(binary(), &words, &wrong).wait();
    ended.expect_code(60);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    let of = |name: &str| lines.iter().find(|line| line.starts_with(name));
    assert!(
        of("moe ").is_some_and(|line| line.contains("refused")),
        "{}",
        ended.stdout
    );
    assert!(
        of("doctor ").is_some(),
        "the stages after it run\n{}",
        ended.stdout
    );
    assert!(
        ended.stdout.contains("MUSTER_DEADLINE_S"),
        "{}",
        ended.stdout
    );
    assert!(
        ended.stdout.contains("\nrefused: 2 stages"),
        "{}",
        ended.stdout
    );
}

#[test]
fn a_request_to_stop_ends_the_stage_and_leaves_what_was_found() {
    let before = Leftovers::now();
    let folder = tempfile::tempdir().expect("a folder");
    let saved = folder.path().join("host.json").display().to_string();
    let words = [
        "validate",
        "--only",
        "moe,bench,drill",
        "--format",
        "json",
        "--save",
        &saved,
    ];
    let running = start(binary(), &words, &[]);
    muster_tests::until("the first stage has ended", || {
        std::fs::exists(&saved).unwrap_or(false)
    });
    running.signal(Signal::TERM);
    let ended = running.wait();
    ended.expect_code(80);
    let text = std::fs::read_to_string(&saved).expect("the file");
    let answer: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(
        (&answer["partial"], &answer["passed"]),
        (&true.into(), &false.into())
    );
    assert_eq!(answer["stages"][0]["outcome"], "accepted");
    assert_eq!(
        answer["stages"].as_array().map(Vec::len),
        Some(2),
        "{answer}"
    );
    assert_eq!(answer["stages"][1]["outcome"], "interrupted");
    drop(folder);
    before.assert_nothing_new();
}
