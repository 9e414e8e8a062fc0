//! `verify` must be able to fail: planted faults are found, and put on the rank that has them.

use muster_tests::muster;

/// Runs a fault, and checks that the report names everything that there is to name.
fn found(fault: &str, rank: u64, collective: &str) {
    let ended = muster(&[
        "verify", "tp2ep2@4", "--inject", fault, "--dtypes", "f32,bf16", "--sizes", "100",
        "--format", "json",
    ]);
    ended.expect_code(40);
    let report = ended.json();
    assert_eq!(report["passed"], false);
    let verdict = &report["verdict"];
    assert_eq!(verdict["class"], "DATA", "{verdict}");
    assert_eq!(
        verdict["blamed"],
        serde_json::json!([rank]),
        "{fault}: {verdict}"
    );
    let text = verdict["text"].as_str().expect("text");
    for part in [
        "tp2ep2@4",
        "group ",
        collective,
        "element ",
        "expected ",
        "got ",
    ] {
        assert!(
            text.contains(part),
            "{fault}: {part:?} is missing from {text}"
        );
    }
    let failed: Vec<&serde_json::Value> = report["cases"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|case| case["passed"] == false)
        .collect();
    assert!(!failed.is_empty());
    for case in failed {
        assert_eq!(case["collective"], collective, "{fault}: {case}");
        assert_eq!(
            case["detail"]["blamed"],
            serde_json::json!([rank]),
            "{fault}: {case}"
        );
        assert!(case["detail"]["first_wrong"].is_u64(), "{fault}: {case}");
        assert!(
            case["detail"]["expected"].is_string() && case["detail"]["got"].is_string(),
            "{case}"
        );
        assert!(
            case["ranks"]
                .as_array()
                .is_some_and(|ranks| ranks.contains(&rank.into())),
            "{case}"
        );
    }
}

#[test]
fn a_flipped_bit_is_put_on_the_rank_that_has_it() {
    found("bitflip:rank=2,collective=all_gather", 2, "all_gather");
    found("bitflip:rank=3,collective=all_reduce", 3, "all_reduce");
}

#[test]
fn swapped_blocks_are_put_on_the_rank_that_swapped_them() {
    found("swap-blocks:rank=1,collective=all_to_all", 1, "all_to_all");
    found(
        "swap-blocks:rank=0,collective=reduce_scatter",
        0,
        "reduce_scatter",
    );
}

#[test]
fn a_dropped_contribution_is_put_on_the_rank_that_kept_it() {
    found("drop-contribution:rank=3,collective=reduce", 3, "reduce");
    found(
        "drop-contribution:rank=1,collective=broadcast",
        1,
        "broadcast",
    );
}

#[test]
fn a_fault_in_every_call_is_put_on_one_rank_and_shown_below_the_table() {
    let ended = muster(&[
        "verify",
        "tp2ep2@4",
        "--inject",
        "bitflip:rank=2",
        "--dtypes",
        "i32",
        "--sizes",
        "64",
    ]);
    ended.expect_code(40);
    for part in [
        "VERDICT DATA rank 2",
        "first wrong element",
        "expected",
        "got",
        "seen by rank",
    ] {
        assert!(
            ended.stdout.contains(part),
            "{part:?} is missing from\n{}",
            ended.stdout
        );
    }
}

#[test]
fn a_fault_for_another_matrix_changes_nothing_here() {
    let ended = muster(&[
        "verify",
        "tp2",
        "tp2@4",
        "--inject",
        "bitflip:rank=1,matrix=tp2@4",
        "--dtypes",
        "f32",
        "--sizes",
        "9",
        "--format",
        "json",
    ]);
    ended.expect_code(40);
    let report = ended.json();
    assert_eq!(report["matrices"][0]["outcome"], "passed");
    assert_eq!(report["matrices"][1]["outcome"], "failed");
}
