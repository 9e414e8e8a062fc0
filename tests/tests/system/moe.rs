//! `muster moe` as a user and as another program sees it.

use muster_tests::{Ended, muster};
use serde_json::Value;

/// A short run of a small layer with a JSON document.
fn moe(args: &[&str]) -> Ended {
    let small = ["moe", "--hidden", "128", "--experts", "16", "--top-k", "4"];
    muster(
        &[
            &small[..],
            &["-n", "2", "-w", "0", "--format", "json"],
            args,
        ]
        .concat(),
    )
}

fn records(ended: &Ended) -> Vec<Value> {
    let document = ended.json();
    document["records"].as_array().expect("records").clone()
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

#[test]
fn every_dispatcher_and_payload_brings_every_row_home() {
    let ended = moe(&[
        "--ep",
        "2",
        "--tp",
        "2",
        "-t",
        "24",
        "-r",
        "lognormal:1",
        "-r",
        "uneven:1",
        "-d",
        "bf16,f32,fp8",
        "--dispatcher",
        "all-to-all,deduplicated,capacity:0.8",
    ]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let document = ended.json();
    assert_eq!(document["passed"], true);
    assert_eq!(document["layout"]["etp"], 2);
    let records = records(&ended);
    assert_eq!(records.len(), 2 * 3 * 3);
    for record in &records {
        assert_eq!(record["wrong"], 0, "{record}");
        assert_eq!(record["ranks"].as_array().map(Vec::len), Some(4));
        let (dispatch, both) = (&record["dispatch"], &record["round_trip"]);
        assert!(number(&dispatch["latency_us"]["min"]) > 0.0);
        assert!(number(&dispatch["latency_us"]["min"]) <= number(&both["latency_us"]["max"]));
    }
}

#[test]
fn volumes_follow_from_the_routing() {
    let ended = moe(&["--ep", "4", "-t", "32", "-r", "balanced"]);
    let record = &records(&ended)[0];
    // 4 ranks, 32 tokens, 4 experts each; dealt evenly, so a quarter stays on its rank.
    let volume = &record["volume"];
    assert_eq!(volume["rows"], 4 * 32 * 4);
    assert_eq!(volume["row_bytes"], 256);
    assert_eq!(volume["off_rank_bytes"], 3 * 32 * 4 * 256);
    assert_eq!(volume["busiest_bytes"], 32 * 4 * 256);
    let achieved = &record["imbalance"]["achieved"];
    assert!((number(&achieved["ranks"]["max_over_mean"]) - 1.0).abs() < 1e-9);
    for rank in record["ranks"].as_array().expect("ranks") {
        assert_eq!(
            (&rank["rows_sent"], &rank["rows_received"]),
            (&128.into(), &128.into())
        );
    }
}

#[test]
fn who_waits_for_whom_is_told_rank_by_rank() {
    let ended = moe(&["--ep", "4", "-t", "32", "-r", "zipf:1"]);
    let records = records(&ended);
    let ranks = records[0]["ranks"].as_array().expect("ranks");
    let mut whole = 0.0;
    for (me, rank) in ranks.iter().enumerate() {
        let waits = rank["waits_for_us"].as_array().expect("waits");
        assert_eq!(waits.len(), 4, "{rank}");
        assert!(number(&waits[me]).abs() < 1e-9, "not for itself: {rank}");
        whole += waits.iter().map(number).sum::<f64>();
    }
    assert!(whole > 0.0, "{ranks:?}");
}

#[test]
fn a_recording_is_replayed_and_a_wrong_line_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("trace.jsonl");
    let line = |rank: usize, ids: &str| format!("{{\"rank\": {rank}, \"topk_ids\": [{ids}]}}\n");
    // All of rank 0's tokens go to rank 1, and rank 1 has none.
    let text = line(0, "8, 9, 10, 11") + &line(0, "12, 13, 14, -1");
    std::fs::write(&path, &text).expect("written");
    let routing = format!("file:{}", path.display());
    let ended = moe(&["--ep", "2", "-r", &routing]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let record = &records(&ended)[0];
    assert_eq!(record["volume"]["rows"], 7);
    assert_eq!(record["tokens"], 1, "the mean of the recording");
    assert_eq!(record["ranks"][1]["rows_received"], 7);
    assert_eq!(record["imbalance"]["sources"]["empty"], 1);

    std::fs::write(&path, text + &line(1, "1, 2, 3, 16")).expect("written");
    let refused = moe(&["--ep", "2", "-r", &routing]);
    assert_eq!(refused.code, Some(2));
    assert!(
        refused
            .stderr
            .contains("line 3: expert 16, allowed are 0 to 15"),
        "{}",
        refused.stderr
    );
}

#[test]
fn a_malformed_routing_file_is_named_by_its_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let good = "{\"rank\": 0, \"topk_ids\": [1, 2, 3, 4]}\n";
    for (line, part) in [
        (
            "{\"rank\": 0, \"topk_ids\": [1, 2, 3, 4}",
            "line 3: expected",
        ),
        (
            "{\"rank\": 0, \"topk_ids\": [1, 2, 3]}",
            "line 3: 3 experts, the model chooses 4",
        ),
        (
            "{\"rank\": 0, \"topk_ids\": [1, 2, 3, 16]}",
            "line 3: expert 16, allowed are 0 to 15",
        ),
        (
            "{\"rank\": 0, \"topk_ids\": [1, 2, 2, 3]}",
            "line 3: expert 2 twice in one token",
        ),
        (
            "{\"topk_ids\": [1, 2, 3, 4]}",
            "line 3: missing field `rank`",
        ),
        ("hello", "line 3: expected"),
    ] {
        let path = folder.path().join("trace.jsonl");
        std::fs::write(&path, format!("{good}\n{line}\n")).expect("written");
        let ended = moe(&["--ep", "2", "-r", &format!("file:{}", path.display())]);
        assert_eq!(ended.code, Some(2), "{line}: {}", ended.stderr);
        let sentence = ended.stderr.lines().next().unwrap_or_default();
        assert!(sentence.contains(part), "{line}: {}", ended.stderr);
        assert!(ended.stdout.is_empty(), "{line}: {}", ended.stdout);
    }
    // An array has no lines: the token is named.
    let mut array = b"\x93NUMPY\x01\x00\x46\x00".to_vec();
    let header = "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 1, 4), }";
    array.extend(format!("{header:<69}\n").bytes());
    array.extend(
        [1, 2, 3, 4, 5, 6, 7, 99_i32]
            .iter()
            .flat_map(|id| id.to_le_bytes()),
    );
    let path = folder.path().join("trace.npy");
    std::fs::write(&path, array).expect("written");
    let ended = moe(&["--ep", "2", "-r", &format!("file:{}", path.display())]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    let part = "step 0 rank 1 token 0: expert 99, allowed are 0 to 15";
    assert!(ended.stderr.contains(part), "{}", ended.stderr);
}

#[test]
fn pinned_ranks_are_measured_and_the_document_says_so() {
    let ended = moe(&["--ep", "2", "-t", "8", "--pin"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(ended.json()["pinned"], true);
    let bench = [
        "bench", "-g", "2", "-e", "8", "-n", "3", "--pin", "--format", "json",
    ];
    let ended = muster(&bench);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(ended.json()["pinned"], true);
}

#[test]
fn tokens_go_to_the_experts_of_a_deployment_of_vllm() {
    let ended = moe(&["--matrix", "vllm0.18:tp2dp2", "-t", "24"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let limit = "takes MC2 from EP=16 on, and all-gather with EP=4";
    assert!(ended.stderr.contains(limit), "{}", ended.stderr);
    let document = ended.json();
    assert_eq!(document["passed"], true);
    let layout = &document["layout"];
    let sizes = ["world_size", "tp", "ep", "etp"].map(|size| layout[size].as_u64());
    assert_eq!(sizes, [4, 2, 4, 1].map(Some));
}

#[test]
fn what_does_not_fit_gets_a_sentence_and_exit_2() {
    let cases: [(&[&str], &str); 10] = [
        (
            &["moe", "--preset", "qwen3-30"],
            "did you mean qwen3-30b-a3b?",
        ),
        (
            &["moe", "--preset", "mixtral-8x7b", "--ep", "16"],
            "8 experts cannot be dealt evenly to ep 16; allowed are ep 1, 2, 4, 8",
        ),
        (
            &["moe", "--preset", "qwen3-30b-a3b", "--ep", "3"],
            "128 experts cannot be dealt evenly to ep 3; allowed are ep 1, 2, 4, 8, 16, 32, 64, 128",
        ),
        (
            &[
                "moe",
                "--hidden",
                "512",
                "--top-k",
                "4",
                "--experts",
                "3000000000",
            ],
            "3000000000 experts, allowed are 1 to 65536",
        ),
        (&["moe", "-r", "lognormal:x"], "numbers from 0 to 10"),
        (&["moe", "-r", "lognorml:1"], "did you mean lognormal?"),
        (&["moe", "-r", "file:/nowhere.npy"], "/nowhere.npy"),
        (
            &["moe", "--preset", "gpt-oss-120b", "-d", "fp8"],
            "every 128 elements",
        ),
        (&["moe", "--sweep", "tokens=8..1"], "tokens=FIRST..LAST"),
        (
            &[
                "moe",
                "-r",
                "balanced",
                "-r",
                "uniform",
                "--write-routing",
                "x",
            ],
            "give one --routing",
        ),
    ];
    for (args, part) in cases {
        let ended = muster(args);
        assert_eq!(ended.code, Some(2), "{args:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(part), "{args:?}: {}", ended.stderr);
        assert!(ended.stdout.is_empty(), "{args:?}: {}", ended.stdout);
    }
}

#[test]
fn a_layer_is_predicted_for_machines_that_are_not_here_and_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("page.html");
    let page = page.to_str().expect("text");
    let args = [
        "moe",
        "--predict",
        "--topology",
        "atlas-a3-superpod",
        "--preset",
        "kimi-k2",
        "--dispatcher",
        "all-to-all,deduplicated",
        "--report",
        page,
    ];
    let ended = muster(&[&args[..], &["--format", "json"]].concat());
    ended.expect_code(0);
    let document = ended.json();
    assert_eq!(
        (&document["predicted"], &document["command"]),
        (&true.into(), &"moe_predict".into())
    );
    let rows = document["rows"].as_array().expect("rows");
    let sizes: Vec<u64> = rows.iter().filter_map(|row| row["ep"].as_u64()).collect();
    assert_eq!(sizes, [16, 16, 32, 32, 64, 64, 128, 128, 384, 384]);
    assert_eq!(rows.iter().filter(|row| row["wins"] == true).count(), 5);
    let html = std::fs::read_to_string(page).expect("it was written");
    assert!(html.contains("not measured"));
    let shown = muster(&args[..args.len() - 2]);
    shown.expect_code(0);
    for part in [
        "Predicted, not measured",
        "latency of hccs",
        "muster plan topology NAME",
    ] {
        assert!(shown.stdout.contains(part), "{part}: {}", shown.stdout);
    }
    for (more, part) in [
        (&["--predict"][..], "--topology"),
        (&["--topology", "atlas-a3-superpod"], "add --predict"),
        (&["--ep", "2,4"], "--predict"),
        (
            &["--predict", "--topology", "atlas-a4"],
            "presets are atlas-800t-a2",
        ),
        (
            &[
                "--predict",
                "--topology",
                "atlas-a3-superpod",
                "-r",
                "zipf:1",
            ],
            "balanced",
        ),
        (
            &["--predict", "--topology", "atlas-a3-superpod", "--ep", "7"],
            "evenly to ep 7",
        ),
    ] {
        let ended = muster(&[&["moe"], more].concat());
        ended.expect_code(2);
        assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr);
    }
}
