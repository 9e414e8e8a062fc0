//! Layers against closed forms, and every form of their predictions.

use super::*;
use crate::report::document::Document;
use crate::report::format::Format;

fn machine(text: &str) -> Machine {
    Machine::parse(text).expect("a legal file")
}

/// One level, without latency: 1 GB/s of a rank, and memory that costs nothing.
const FLAT: &str = r#"{"schema_version":1,"name":"flat","levels":[{"name":"links","ranks":1,"latency_us":0.001,"gbytes_per_s":1000},
    {"name":"net","latency_us":1e-9,"gbytes_per_s":1}],"barrier_us":1,"memory_gbytes_per_s":1e9}"#;

fn layouts(sizes: &[u32]) -> Vec<FrameworkLayout> {
    let of = |ep: &u32| {
        let matrix: muster_comm::layout::Matrix =
            format!("tp1ep{ep}@{ep}").parse().expect("a matrix");
        matrix.layout().expect("legal")
    };
    sizes.iter().map(of).collect()
}

fn model() -> Model {
    super::super::model::ModelPreset::find("deepseek-v3")
        .expect("a preset")
        .model()
}

fn predicted(machine: &Machine, sizes: &[u32], dispatcher: Dispatcher) -> Prediction {
    let asked = Asked {
        machine,
        model: &model(),
        layouts: &layouts(sizes),
        tokens: &[128],
        dispatchers: &[dispatcher],
        payloads: &[Payload::Bf16],
    };
    asked.predict().expect("legal")
}

#[test]
fn where_only_bytes_count_a_layer_takes_what_leaves_a_rank_over_its_bandwidth() {
    let machine = machine(FLAT);
    for ep in [2_u32, 16, 64, 256] {
        let found = predicted(&machine, &[ep], Dispatcher::AllToAll);
        let row = &found.rows[0];
        // 128 tokens for 8 experts each, of 7168 elements of two bytes; the own share stays.
        let bytes = 128.0 * 8.0 * 7168.0 * 2.0;
        let leaves = bytes * (f64::from(ep) - 1.0) / f64::from(ep);
        let tokens = row
            .combine
            .phases
            .iter()
            .find(|phase| phase.phase == "tokens");
        let us = tokens.expect("a phase").predicted_us;
        assert!(
            (us / (leaves * 1e-3) - 1.0).abs() < 0.01,
            "ep {ep}: {us} us"
        );
        assert_eq!(row.combine.bound, "net", "ep {ep}");
        assert!((row.dispatch.bytes - bytes).abs() < 1.0);
    }
}

#[test]
fn a_few_tokens_are_bound_by_latency_and_by_fewer_rounds() {
    let text = FLAT.replace("1e-9", "100");
    let asked = Asked {
        machine: &machine(&text),
        model: &model(),
        layouts: &layouts(&[64]),
        tokens: &[1],
        dispatchers: &[Dispatcher::AllToAll],
        payloads: &[Payload::Fp8],
    };
    let row = &asked.predict().expect("legal").rows[0];
    assert_eq!(row.dispatch.bound, "latency");
    assert_eq!(row.dispatch.algorithm, "bruck");
}

#[test]
fn deduplicated_tokens_go_once_to_each_rank_and_capacity_pads() {
    let machine = machine(FLAT);
    let bytes = |dispatcher| predicted(&machine, &[2], dispatcher).rows[0].dispatch.bytes;
    let row = 7168.0 * 2.0;
    assert!((bytes(Dispatcher::Deduplicated) - 128.0 * 2.0 * row).abs() < 1.0);
    assert!((bytes(Dispatcher::Capacity(2.0)) - 256.0 * 8.0 * row).abs() < 1.0);
    assert!((bytes(Dispatcher::AllGather) - 128.0 * row).abs() < 1.0);
}

#[test]
fn what_a_group_does_not_need_is_not_said_to_be_unknown() {
    let machine = Machine::named("atlas-a3-superpod").expect("a preset");
    let unknown = |ep| predicted(&machine, &[ep], Dispatcher::AllToAll).unknown;
    let has = |all: &[String], what: &str| all.iter().any(|one| one == what);
    let (small, large) = (unknown(16), unknown(256));
    assert!(
        has(&small, "latency of hccs") && !has(&small, "latency of hccs-l2"),
        "{small:?}"
    );
    assert!(
        has(&large, "latency of hccs-l2") && !has(&large, "latency of nic"),
        "{large:?}"
    );
}

#[test]
fn every_form_says_that_it_was_predicted_and_what_is_unknown() {
    let machine = Machine::named("atlas-a3-superpod").expect("a preset");
    let found = predicted(&machine, &[16], Dispatcher::AllToAll);
    for ending in ["html", "xml", "md", "csv", "prom", "json"] {
        let format = Format::of(format!("x.{ending}").as_ref()).expect("a form");
        let text = format.render(&found).expect("a text").to_lowercase();
        assert!(text.contains("predicted"), "{format:?}: {text}");
    }
    assert!(found.text().contains("latency of hccs"), "{}", found.text());
    assert!(found.comparable().is_none());
    let again: Prediction = serde_json::from_str(&found.json().expect("JSON")).expect("its own");
    assert_eq!(again, found);
}

#[test]
fn tens_of_thousands_of_ranks_are_predicted() {
    let machine = machine(FLAT);
    let mut model = model();
    model.experts = 65_536;
    let asked = Asked {
        machine: &machine,
        model: &model,
        layouts: &layouts(&[65_536]),
        tokens: &[128],
        dispatchers: &[Dispatcher::AllToAll],
        payloads: &[Payload::Bf16],
    };
    let row = &asked.predict().expect("legal").rows[0];
    assert!(row.predicted_us.is_finite() && row.predicted_us > 0.0);
}
