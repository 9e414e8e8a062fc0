//! `muster verify` that finds nothing wrong: what it prints, and for whom.

use muster_tests::{Leftovers, muster};

#[test]
fn a_matrix_passes_and_the_table_says_so_in_the_words_of_its_users() {
    let before = Leftovers::now();
    let ended = muster(&["verify", "tp2ep2@4", "tp1"]);
    ended.expect_code(0);
    for word in [
        "World size",
        "TP",
        "EP",
        "DP",
        "CP",
        "PP",
        "tp2ep2@4",
        "tp1@1",
        "passed",
        "dp-cp",
    ] {
        assert!(
            ended.stdout.contains(word),
            "{word:?} is missing from\n{}",
            ended.stdout
        );
    }
    assert!(
        !ended.stdout.contains('\u{1b}'),
        "colours in a pipe:\n{}",
        ended.stdout
    );
    assert!(
        ended.stderr.contains("using the host backend"),
        "{}",
        ended.stderr
    );
    assert_eq!(ended.notices().len(), 1, "{}", ended.stderr);
    before.assert_nothing_new();
}

#[test]
fn the_json_document_keeps_its_contract() {
    let ended = muster(&["verify", "tp2@4", "--format", "json", "--seed", "11"]);
    ended.expect_code(0);
    let report = ended.json();
    assert_eq!(report["schema_version"], 1);
    assert!(
        report["tool"]
            .as_str()
            .is_some_and(|tool| tool.starts_with("muster "))
    );
    assert_eq!(report["backend"], "host");
    assert_eq!(report["emulated"], false);
    assert_eq!(report["passed"], true);
    assert_eq!(report["seed"], 11);
    assert!(report["verdict"].is_null());
    let matrix = &report["matrices"][0];
    for (key, value) in [
        ("world_size", 4),
        ("tp", 2),
        ("dp", 2),
        ("ep", 1),
        ("cp", 1),
        ("pp", 1),
        ("etp", 2),
    ] {
        assert_eq!(matrix[key], value, "{key}");
    }
    assert_eq!(matrix["outcome"], "passed");
    let cases = report["cases"].as_array().expect("a list");
    assert_eq!(matrix["cases"].as_u64(), Some(cases.len() as u64));
    assert_eq!(matrix["cases_passed"].as_u64(), Some(cases.len() as u64));
    for case in cases {
        assert_eq!(case["matrix"], "tp2@4");
        assert_eq!(case["world_size"], 4);
        assert_eq!(case["passed"], true, "{case}");
        assert!(case["detail"].is_null(), "{case}");
        assert!(case["elapsed_us"].is_u64(), "{case}");
        let ranks = case["ranks"].as_array().expect("a list");
        assert!(
            !ranks.is_empty()
                && ranks
                    .iter()
                    .all(|rank| rank.as_u64().is_some_and(|rank| rank < 4))
        );
    }
}

#[test]
fn every_kind_of_group_every_collective_and_every_element_type_is_covered() {
    let report = muster(&["verify", "tp2@4", "--format", "json"]).json();
    let cases = report["cases"].as_array().expect("a list");
    let some = |key: &str, value: &str| cases.iter().any(|case| case[key] == value);
    for kind in [
        "dp",
        "dp-cp",
        "cp",
        "mp",
        "tp",
        "pp",
        "embd",
        "pos_embd",
        "tp-dp-cp",
        "tp-dp",
        "tp-cp",
        "ep",
        "etp",
        "etp-ep",
        "etp-ep-pp",
        "edp",
        "world",
    ] {
        assert!(some("group", kind), "no case on {kind}");
    }
    for collective in muster_comm::types::Collective::ALL {
        // A receive is the other half of a send.
        if collective != muster_comm::types::Collective::Recv {
            assert!(
                some("collective", collective.name()),
                "no case for {collective}"
            );
        }
    }
    for dtype in muster_comm::types::DType::ALL {
        assert!(some("dtype", dtype.name()), "no case with {dtype}");
    }
    for check in [
        "membership",
        "collective",
        "object",
        "in_flight",
        "lifecycle",
    ] {
        assert!(some("check", check), "no case of {check}");
    }
}

#[test]
fn tcp_between_ranks_of_one_host_gives_the_same_results() {
    let ended = muster(&[
        "verify",
        "tp2ep2@4",
        "--transport",
        "tcp",
        "--dtypes",
        "f32,i8",
        "--sizes",
        "0,1,1001",
    ]);
    ended.expect_code(0);
}

#[test]
fn a_preset_runs_its_phases() {
    let ended = muster(&[
        "verify", "--preset", "relax-4", "--dtypes", "f32", "--sizes", "5", "--format", "json",
    ]);
    ended.expect_code(0);
    let report = ended.json();
    let names: Vec<&str> = report["matrices"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|matrix| matrix["matrix"].as_str())
        .collect();
    assert!(
        !names.is_empty() && names.iter().all(|name| name.starts_with("relax-4/")),
        "{names:?}"
    );
}

#[test]
fn the_groups_of_vllm_and_verl_are_proved_by_their_own_names() {
    let ended = muster(&[
        "verify",
        "vllm0.13:tp2pp2dp2",
        "verl:fsdp2sp2tp2@4",
        "--dtypes",
        "f32",
        "--sizes",
        "5",
        "--format",
        "json",
    ]);
    ended.expect_code(0);
    let report = ended.json();
    let kinds = |matrix: &serde_json::Value| -> Vec<(String, u64)> {
        let groups = matrix["groups"].as_array().expect("a list").iter();
        groups
            .map(|group| {
                let kind = group["kind"].as_str().expect("a name").to_owned();
                (kind, group["count"].as_u64().expect("a number"))
            })
            .collect()
    };
    let names = |list: &[(&str, u64)]| -> Vec<(String, u64)> {
        let owned = list
            .iter()
            .map(|(kind, count)| ((*kind).to_owned(), *count));
        owned.collect()
    };
    let [vllm, verl] = [&report["matrices"][0], &report["matrices"][1]];
    assert_eq!(vllm["matrix"], "vllm0.13:tp2pp2dp2@8");
    let vllms = [
        ("tp", 4),
        ("dcp", 8),
        ("pcp", 8),
        ("pp", 4),
        ("dp", 4),
        ("ep", 2),
        ("mc2", 2),
    ];
    assert_eq!(kinds(vllm), names(&vllms));
    let verls = [
        ("ddp", 2),
        ("fsdp", 2),
        ("ulysses_dp", 2),
        ("sp", 2),
        ("rollout_dp", 2),
        ("infer_tp", 2),
    ];
    assert_eq!(kinds(verl), names(&verls));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    use std::process::{Command, Stdio};
    let mut child = Command::new(muster_tests::binary())
        .args(["verify", "tp1", "--dtypes", "f32", "--sizes", "1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    // Nobody will ever read the result.
    drop(child.stdout.take());
    let mut stderr = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().expect("piped"), &mut stderr)
        .expect("reads");
    let status = child.wait().expect("ends");
    assert_eq!(status.code(), Some(0), "{stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
}
