//! `muster validate`: stages, one answer, files.

use muster_tests::{Leftovers, binary, muster, start};
use rustix::process::Signal;

use crate::toolkit::Toolkit;

#[test]
fn a_host_that_passes_all_stages_is_accepted_and_the_saved_answer_makes_reports() {
    let before = Leftovers::now();
    let folder = tempfile::tempdir().expect("a folder");
    let [saved, report, page] = ["host.json", "host.md", "host.html"]
        .map(|name| folder.path().join(name).display().to_string());
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
    muster(&["report", &saved, &page]).expect_code(0);
    let text = std::fs::read_to_string(&page).expect("the page");
    let figures = text.find("What moe measured").map(|at| &text[at..]);
    assert!(
        figures.is_some_and(|text| text.contains("Inside the layer")),
        "{text}"
    );
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
        "doctor,bench,drill",
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
    assert_ne!(answer["stages"][0]["outcome"], "interrupted");
    assert_eq!(
        answer["stages"].as_array().map(Vec::len),
        Some(2),
        "{answer}"
    );
    assert_eq!(answer["stages"][1]["outcome"], "interrupted");
    drop(folder);
    before.assert_nothing_new();
}

#[test]
fn a_validation_that_is_killed_leaves_what_was_measured_and_nothing_that_runs() {
    let before = Leftovers::now();
    let folder = tempfile::tempdir().expect("a folder");
    let [saved, report] =
        ["host.json", "host.html"].map(|name| folder.path().join(name).display().to_string());
    let words = [
        "validate",
        "--quick",
        "--only",
        "doctor,bench",
        "--save",
        &saved,
    ];
    let running = start(binary(), &words, &[]);
    let read = || -> serde_json::Value {
        let text = std::fs::read_to_string(&saved).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    };
    muster_tests::until("a round of the second stage has ended", || {
        !read()["stages"][1].is_null()
    });
    running.signal(Signal::KILL);
    assert_eq!(running.wait_for_all().code, None);
    let answer = read();
    assert_eq!(answer["partial"], true, "{answer}");
    let stage = &answer["stages"][1];
    assert_eq!(
        (&stage["name"], &stage["outcome"]),
        (&"bench".into(), &"interrupted".into())
    );
    let records = stage["result"]["records"].as_array().expect("records");
    assert!(
        records.iter().all(|one| one["samples"].as_u64() > Some(0)),
        "{records:?}"
    );
    muster(&["report", &saved, &report]).expect_code(0);
    drop(folder);
    before.assert_nothing_new();
}

#[test]
fn ranks_of_torchrun_give_one_answer() {
    let all = |words: &[&str]| -> Vec<muster_tests::Ended> {
        let words = [&["validate", "--quick"], words].concat();
        let job = format!("validate-{}", std::process::id());
        let ranks = muster_tests::torchrun(binary(), &words, 3, &job, &[]);
        ranks.into_iter().map(muster_tests::Running::wait).collect()
    };
    let ended = all(&["--only", "verify,bench,moe", "--format", "json"]);
    for rank in &ended {
        rank.expect_code(0);
    }
    let answer = ended[0].json();
    assert_eq!(answer["outcome"], "accepted", "{answer}");
    assert_eq!(answer["stages"].as_array().map(Vec::len), Some(3));
    let record = &answer["stages"][1]["result"]["records"][0];
    assert_eq!(record["world_size"], 3, "{record}");
    assert!(ended[1].stdout.is_empty() && ended[2].stdout.is_empty());
    for rank in all(&["--soak", "1m"]) {
        rank.expect_code(2);
        assert!(
            rank.stderr.contains("--soak measures again"),
            "{}",
            rank.stderr
        );
    }
}

/// A baseline in which every limit is `factor` times what it was.
fn scaled(path: &str, factor: f64) {
    let text = std::fs::read_to_string(path).expect("the baseline");
    let mut baseline: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    for cell in baseline["cells"].as_array_mut().expect("cells") {
        cell["limit_us"] = (cell["limit_us"].as_f64().expect("a limit") * factor).into();
    }
    std::fs::write(path, baseline.to_string()).expect("written");
}

#[test]
fn a_host_is_held_against_what_was_learned_of_others() {
    let before = Leftovers::now();
    let folder = tempfile::tempdir().expect("a folder");
    let [saved, expected, other] = ["host.json", "expected.json", "verify.json"]
        .map(|name| folder.path().join(name).display().to_string());
    let quick = ["validate", "--quick", "--only", "bench"];
    let with = |more: &[&str]| muster(&[&quick[..], more].concat());
    with(&["--save", &saved]).expect_code(0);

    let learned = muster(&["baseline", &saved, &saved, "-o", &expected]);
    learned.expect_code(0);
    assert!(
        learned.stdout.contains("too few to name outliers"),
        "{}",
        learned.stdout
    );
    muster(&["verify", "tp1@1", "--save", &other]).expect_code(0);
    let refused = muster(&["baseline", &other]);
    refused.expect_code(2);
    assert!(
        refused.stderr.contains("verify.json was timed"),
        "{}",
        refused.stderr
    );

    scaled(&expected, 1000.0);
    let accepted = with(&["--against", &expected]);
    accepted.expect_code(0);
    assert!(
        accepted.stdout.contains("cells are as expected"),
        "{}",
        accepted.stdout
    );
    // Rounds that lie far apart allow much.
    scaled(&expected, 1e-30);
    let refused = with(&["--against", &expected]);
    refused.expect_code(50);
    for part in [
        "slow: 16 of 16 cells, twice",
        "measured again: ",
        "slow: 11 cells more",
    ] {
        assert!(refused.stdout.contains(part), "{part}\n{}", refused.stdout);
    }
    let elsewhere = muster(&["validate", "--only", "doctor", "--against", &expected]);
    elsewhere.expect_code(2);
    drop(folder);
    before.assert_nothing_new();
}

#[test]
fn limits_by_hand_refuse_what_is_beyond_them_and_what_was_not_measured() {
    let quick = ["validate", "--quick", "--only", "bench"];
    let with = |more: &[&str]| muster(&[&quick[..], more].concat());
    // No machine does that.
    let slow = with(&["--min-busbw", "all_reduce@2M=1000000"]);
    slow.expect_code(50);
    assert!(
        slow.stdout.contains("at least 1000000 are asked for"),
        "{}",
        slow.stdout
    );
    let absent = with(&["--max-latency", "all_reduce@24=1s"]);
    absent.expect_code(2);
    assert!(
        absent
            .stdout
            .contains("all_reduce of 24 B was not measured"),
        "{}",
        absent.stdout
    );
    let wrong = with(&["--max-latency", "allreduce@8=1s"]);
    wrong.expect_code(2);
    assert!(
        wrong.stderr.contains("an example is all_reduce@8=30us"),
        "{}",
        wrong.stderr
    );
}

/// A defect: the stage that finds it, what is set, the exit code, and a part of what is said.
type Defect = (
    &'static str,
    &'static [(&'static str, &'static str)],
    i32,
    &'static str,
);

/// Defects of an environment, and faults of emulated devices.
const DEFECTS: [Defect; 12] = [
    (
        "doctor",
        &[("MUSTER_TRANSPORT", "rdma")],
        60,
        "MUSTER_TRANSPORT",
    ),
    (
        "doctor",
        &[("HCCL_CONNECT_TIMEOUT", "soon")],
        60,
        "HCCL_CONNECT_TIMEOUT",
    ),
    (
        "doctor",
        &[("RANK_TABLE_FILE", "/nowhere/hccl.json")],
        60,
        "/nowhere/hccl.json",
    ),
    (
        "doctor",
        &[("LD_PRELOAD", "/proc/self/status")],
        60,
        "is no library",
    ),
    (
        "doctor",
        &[("ASCEND_RT_VISIBLE_DEVICES", "0;1")],
        60,
        "ASCEND_RT_VISIBLE_DEVICES",
    ),
    (
        "doctor",
        &[("HCCL_SOCKET_IFNAME", "=nowhere0")],
        60,
        "nowhere0",
    ),
    ("doctor", &[("MASTER_ADDR", "300.0.0.1")], 60, "300.0.0.1"),
    (
        "verify",
        &[("MUSTER_EMU_FAULT", "bitflip:rank=1,comm=*")],
        40,
        "DATA",
    ),
    (
        "verify",
        &[("MUSTER_EMU_FAULT", "device_lost:rank=1")],
        60,
        "507010",
    ),
    (
        "verify",
        &[("MUSTER_EMU_FAULT", "link_down:rank=0,peer=1")],
        23,
        "LINK",
    ),
    (
        "verify",
        &[("MUSTER_EMU_FAULT", "stale:rank=1,comm=*")],
        40,
        "DATA",
    ),
    (
        "moe",
        &[("MUSTER_DEADLINE_S", "soon")],
        2,
        "MUSTER_DEADLINE_S",
    ),
];

#[test]
fn each_defect_refuses_the_host_and_is_named() {
    let toolkit = Toolkit::install();
    let mut wrong = Vec::new();
    for (stage, variables, code, part) in DEFECTS {
        let words = ["validate", "--quick", "--only", stage, "--backend", "hccl"];
        let ended = toolkit.run(&words, variables);
        let is_refused = ended.code == Some(code) && ended.stdout.contains("\nrefused: ");
        if !is_refused || !ended.stdout.contains(part) {
            wrong.push(format!(
                "{variables:?}: {:?}\n{}{}",
                ended.code, ended.stdout, ended.stderr
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn a_soak_repeats_what_can_be_repeated_until_its_time_is_over() {
    const SOAK_US: u64 = 4_000_000;
    let words = [
        "validate",
        "--quick",
        "--only",
        "doctor,moe",
        "--soak",
        "4s",
        "--format",
        "json",
    ];
    let answer = muster(&words).json();
    assert_eq!(answer["partial"], false, "{answer}");
    let stages = answer["stages"].as_array().expect("stages");
    let name = |one: &serde_json::Value| (one["name"].clone(), one["pass"].clone());
    let first: Vec<_> = stages.iter().take(2).map(name).collect();
    assert_eq!(
        first,
        [("doctor".into(), 1.into()), ("moe".into(), 1.into())]
    );
    for (stage, pass) in stages.iter().skip(2).zip(2..) {
        assert_eq!(name(stage), ("moe".into(), pass.into()));
        let drift = stage["drift"]["middle"].as_f64();
        assert!(drift.is_some_and(|one| one > 0.0), "{stage}");
        assert!(stage["result"].is_null(), "{stage}");
    }
    let us = |stage: &serde_json::Value| stage["elapsed_us"].as_u64().unwrap_or(0);
    let (last, before) = stages.split_last().expect("stages");
    let before: u64 = before.iter().map(us).sum();
    assert!(us(&answer) >= SOAK_US, "{answer}");
    assert!(
        stages.len() == 2 || before < SOAK_US,
        "pass {} began after the time was over",
        last["pass"]
    );
}

#[test]
fn a_soak_of_nothing_that_can_be_repeated_is_refused() {
    let ended = muster(&["validate", "--only", "doctor", "--soak", "1h"]);
    ended.expect_code(2);
    assert!(
        ended.stderr.contains("--only names none of them"),
        "{}",
        ended.stderr
    );
}
