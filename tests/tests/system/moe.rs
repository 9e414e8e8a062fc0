//! `muster moe` as a user and as another program sees it.

use muster_tests::{Ended, muster};
use serde_json::Value;

/// A short run of a small layer with a JSON document.
fn moe(args: &[&str]) -> Ended {
    let small = ["moe", "--hidden", "128", "--experts", "16", "--top-k", "4"];
    muster(&[&small, &["-n", "2", "-w", "0", "--format", "json"], args].concat())
}

fn records(ended: &Ended) -> Vec<Value> {
    let document = ended.json();
    document["records"].as_array().expect("records").clone()
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is no number"))
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
fn what_does_not_fit_gets_a_sentence_and_exit_2() {
    let cases: [(&[&str], &str); 6] = [
        (
            &["moe", "--preset", "qwen3-30"],
            "did you mean qwen3-30b-a3b?",
        ),
        (
            &["moe", "--preset", "mixtral-8x7b", "--ep", "16"],
            "allowed are ep 1, 2, 4, 8",
        ),
        (&["moe", "-r", "lognormal:x"], "numbers from 0 to 10"),
        (&["moe", "-r", "file:/nowhere.npy"], "/nowhere.npy"),
        (
            &["moe", "--preset", "gpt-oss-120b", "-d", "fp8"],
            "every 128 elements",
        ),
        (&["moe", "--sweep", "tokens=8..1"], "tokens=FIRST..LAST"),
    ];
    for (args, part) in cases {
        let ended = muster(args);
        assert_eq!(ended.code, Some(2), "{args:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(part), "{args:?}: {}", ended.stderr);
    }
}
