//! `muster groups` as its users call it.

use clap::Parser;
use muster_comm::layout::GroupKind;
use serde_json::{Value, json};

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: GroupsArgs,
}

fn run_line(line: &str) -> Result<String, GroupsError> {
    let words = std::iter::once("groups").chain(line.split(' '));
    let line = Line::try_parse_from(words).expect("a command line");
    let mut out = Vec::new();
    run(&line.args, &mut out)?;
    Ok(String::from_utf8(out).unwrap())
}

fn json_of(line: &str) -> Value {
    let text = run_line(&format!("{line} --format json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn json_holds_every_kind_by_its_short_name_and_nothing_else() {
    let document = json_of("--world-size 8 --tp 2 --ep 4");
    let keys: Vec<_> = document.as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, ["schema_version", "tool", "world_size", "groups"]);
    assert_eq!(document["tool"], crate::TOOL);
    assert_eq!(document["world_size"], 8);
    let groups = document["groups"].as_object().unwrap();
    let names: Vec<_> = GroupKind::ALL.map(GroupKind::name).to_vec();
    assert_eq!(groups.keys().collect::<Vec<_>>(), names);
    assert_eq!(groups["tp"], json!([[0, 1], [2, 3], [4, 5], [6, 7]]));
    assert_eq!(groups["ep"], json!([[0, 2, 4, 6], [1, 3, 5, 7]]));
}

#[test]
fn the_order_and_an_explicit_etp_reach_the_layout() {
    let document = json_of("--world-size 8 --tp 2 --ep 4 --etp 1");
    assert_eq!(
        document["groups"]["ep"],
        json!([[0, 1, 2, 3], [4, 5, 6, 7]])
    );
    let document = json_of("--world-size 4 --tp 2 --order dp-tp-pp");
    assert_eq!(document["groups"]["tp"], json!([[0, 2], [1, 3]]));
}

#[test]
fn a_matrix_is_the_same_as_its_sizes() {
    assert_eq!(
        json_of("--matrix tp3ep4"),
        json_of("--world-size 12 --tp 3 --ep 4")
    );
}

#[test]
fn the_table_says_what_the_default_etp_means() {
    let text = run_line("--world-size 8 --tp 2 --ep 4").unwrap();
    assert!(
        text.contains("TP=2 EP=4 on 8: ETP=2, expert-DP=1"),
        "{text}"
    );
    let other = "with etp=1 expert-DP would be 2 and ep groups [0,1,2,3] [4,5,6,7]";
    assert!(text.contains(other), "{text}");
    assert!(text.contains("[0,2,4,6] [1,3,5,7]"), "{text}");
}

#[test]
fn long_lists_are_shortened_unless_all_is_asked_for() {
    let line = "--world-size 64 --tp 32";
    let text = run_line(line).unwrap();
    assert!(text.contains("[0..31] [32..63]"), "{text}");
    let all = run_line(&format!("{line} --all")).unwrap();
    assert!(all.contains("30,31]"), "{all}");
    assert!(!all.contains(".."), "{all}");
}

#[test]
fn one_rank_sees_its_place_in_every_group() {
    let text = run_line("--world-size 8 --tp 2 --pp 4 --rank 3").unwrap();
    assert!(text.contains("rank 3: tp 1 cp 0 dp 0 pp 1"), "{text}");
    assert!(
        text.contains("not a member of any"),
        "inner stages have no embd group: {text}"
    );
    let document = json_of("--world-size 8 --tp 2 --pp 4 --rank 3");
    assert_eq!(document["groups"]["pp"], json!([[1, 3, 5, 7]]));
    assert_eq!(document["groups"]["embd"], json!([]));
    let error = run_line("--world-size 8 --rank 8").unwrap_err();
    assert!(matches!(
        error,
        GroupsError::NoSuchRank {
            rank: 8,
            world_size: 8
        }
    ));
}

#[test]
fn vllm_and_verl_show_their_groups_and_the_sequence_in_which_they_are_made() {
    let document = json_of("--matrix vllm0.13:tp2pp2dp2");
    assert_eq!(
        document["groups"]["mc2"],
        json!([[0, 1, 2, 3], [4, 5, 6, 7]])
    );
    let text = run_line("--matrix vllm0.13:tp2pp2dp2").unwrap();
    assert!(text.contains("mc2 groups are not the ep groups"), "{text}");
    let calls = |line: &str| -> Vec<(Value, Value)> {
        let document = json_of(line);
        let calls = document["new_groups"].as_array().unwrap().iter();
        calls
            .map(|call| (call["name"].clone(), call["backend"].clone()))
            .collect()
    };
    let made = calls("--matrix vllm:tp2 --sequence");
    assert_eq!(made[0], (json!("world"), json!("default")));
    assert_eq!(made[1], (json!("world"), json!("gloo")));
    assert_eq!(made.len(), 24);
    // torch's meshes have no twins on gloo.
    assert_eq!(calls("--matrix verl:tp2@4 --sequence").len(), 5);

    for (line, message) in [
        (
            "--matrix vllm:tp2 --sequence 0.12",
            "the version of --sequence",
        ),
        (
            "--matrix vllm:tp2 --etp 1",
            "--etp is for layouts of Megatron",
        ),
        (
            "--matrix verl:tp2 --order tp-dp",
            "--order is for layouts of Megatron",
        ),
        (
            "--matrix vllm:tp2 --attention-heads 8",
            "--attention-heads is for layouts of Megatron",
        ),
        ("--matrix tp2 --sequence", "needs a version of Megatron"),
    ] {
        let error = run_line(line).unwrap_err().to_string();
        assert!(error.contains(message), "{line}: {error}");
    }
}

#[test]
fn an_unknown_preset_is_refused_with_the_closest_one() {
    let refused = Line::try_parse_from(["groups", "--preset", "twinkle-9"]).err();
    let text = refused.expect("an error").to_string();
    assert!(text.contains("unknown preset"), "{text}");
    assert!(text.contains("did you mean twinkle-8?"), "{text}");
}

#[test]
fn an_illegal_layout_is_a_usage_error_that_names_the_rule() {
    for (line, want) in [
        ("--world-size 8 --tp 3", "legal tp: 1, 2, 4, 8"),
        (
            "--world-size 8 --tp -1",
            "tp=-1: every size must be at least 1",
        ),
        ("--world-size 0", "world_size=0"),
        ("--world-size 8 --order tp-dp-xx", "unknown axis"),
        (
            "--world-size 8 --cp 2 --ulysses-degree 2",
            "ulysses_degree=2",
        ),
        ("--matrix tp2zz4", "character 4"),
    ] {
        let mut out = Vec::new();
        let words = std::iter::once("groups").chain(line.split(' '));
        let parsed = Line::try_parse_from(words).unwrap();
        let failure = Failure::from(run(&parsed.args, &mut out).expect_err(line));
        assert_eq!(failure.exit, Exit::Usage, "{line}");
        assert!(
            failure.message.contains(want),
            "{line}: {}",
            failure.message
        );
        assert!(out.is_empty(), "{line}: wrote {} bytes", out.len());
    }
}

#[test]
fn every_preset_prints_each_of_its_phases() {
    for preset in Preset::all() {
        let document = json_of(&format!("--preset {}", preset.name));
        let phases = document["phases"].as_array().unwrap();
        assert_eq!(phases.len(), preset.phases().unwrap().len());
        let text = run_line(&format!("--preset {}", preset.name)).unwrap();
        assert!(text.contains(preset.source), "{text}");
    }
}

#[test]
fn mindspeed_groups_appear_only_when_asked_for() {
    let document =
        json_of("--world-size 16 --cp 8 --ulysses-degree 2 --cp-window-size 2 --send-recv-overlap");
    let groups = &document["groups"];
    assert_eq!(groups["cp_ulysses"][0], json!([0, 1]));
    assert_eq!(groups["cp_ring"][0], json!([0, 2, 4, 6]));
    assert_eq!(groups["cp_ring_inter_dkv"][0], json!([0, 6]));
    let document = json_of("--world-size 8 --tp 4 --tp-x 2 --tp-y 2");
    assert_eq!(document["groups"]["nd1_dim2"][0], json!([0, 2]));
    let document = json_of("--world-size 8 --tp 2 --ep 4 --tp-extend-ep 128");
    assert_eq!(
        document["groups"]["tp-extend-ep"].as_array().unwrap().len(),
        1
    );
}

#[test]
fn the_sequence_lists_every_call_with_its_gloo_twins() {
    let document = json_of("--world-size 8 --tp 2 --ep 4 --sequence 0.12");
    assert_eq!(document["new_groups"].as_array().unwrap().len(), 78);
    assert_eq!(
        document["new_groups"][1]["name"],
        "DATA_PARALLEL_GROUP_GLOO"
    );
    let text = run_line("--world-size 2 --sequence 0.15").unwrap();
    assert!(text.contains("DATA_PARALLEL_GROUP_WITH_CP_GLOO"), "{text}");
}
