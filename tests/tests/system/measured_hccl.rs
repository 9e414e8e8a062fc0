//! `moe` and `bench` with `--backend hccl` over the emulator: everything is carried out and right, the
//! traffic is that of the host backend, and nothing looks like a figure of hardware.

use muster_tests::{Ended, muster};
use serde_json::{Value, json};

use crate::toolkit::Toolkit;

/// A short run of a small layer on 4 ranks.
const SMALL: [&str; 15] = [
    "moe",
    "--hidden",
    "256",
    "--experts",
    "16",
    "--top-k",
    "4",
    "-t",
    "12",
    "-n",
    "1",
    "-w",
    "0",
    "--format",
    "json",
];

const WORKLOADS: [&str; 10] = [
    "balanced",
    "uniform",
    "lognormal:1",
    "zipf:1",
    "zipf:1,by-id",
    "hot-experts:2,0.4",
    "hot-rank:1.5",
    "rotating:1.5",
    "uneven:1",
    "file",
];

/// Options for every workload; one of them replays `trace`.
fn workloads(trace: &str) -> Vec<String> {
    let of = |name: &&str| match *name {
        "file" => format!("file:{trace}"),
        name => name.to_owned(),
    };
    let words = WORKLOADS.iter().map(of);
    words.flat_map(|word| ["-r".to_owned(), word]).collect()
}

fn records(ended: &Ended) -> Vec<Value> {
    let document = ended.expect_code(0).json();
    document["records"].as_array().expect("records").clone()
}

/// What of a record does not depend on time.
fn traffic(record: &Value) -> Value {
    let ranks = record["ranks"].as_array().expect("ranks").iter();
    let rows = ranks.map(|rank| (&rank["tokens"], &rank["rows_sent"], &rank["rows_received"]));
    json!([
        record["routing"],
        record["dispatcher"],
        record["dtype"],
        record["imbalance"],
        record["volume"],
        record["wrong"],
        rows.collect::<Vec<_>>(),
    ])
}

#[test]
fn every_workload_and_dispatcher_moves_the_same_rows_on_emulated_devices_as_on_the_host() {
    let toolkit = Toolkit::install();
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("trace.jsonl");
    let text = "{\"rank\": 0, \"topk_ids\": [8, 9, 10, 11]}\n{\"rank\": 2, \"topk_ids\": [0, 13, 14, -1]}\n";
    std::fs::write(&trace, text).expect("written");
    let workloads = workloads(trace.to_str().expect("text"));
    let workloads: Vec<&str> = workloads.iter().map(String::as_str).collect();
    let all = "all-to-all,deduplicated,capacity:1.2";
    for (layout, dispatchers, dtypes, lines) in [
        (&["--ep", "2", "--tp", "2"][..], all, "bf16,f32,fp8", 90),
        (&["--ep", "4"], all, "bf16,fp8", 60),
        (&["--ep", "2", "--tp", "2"], "all-gather", "bf16,f32", 20),
    ] {
        let choice = ["--dispatcher", dispatchers, "--dtype", dtypes];
        let words = [&SMALL[..], layout, &choice, &workloads].concat();
        let device = toolkit.run(&[&words[..], &["--backend", "hccl"]].concat(), &[]);
        let document = device.expect_code(0).json();
        assert_eq!(document["backend"], "hccl");
        assert_eq!(document["emulated"], true);
        assert_eq!(document["passed"], true);
        let (on_device, on_host) = (records(&device), records(&muster(&words)));
        assert_eq!((on_device.len(), on_host.len()), (lines, lines));
        for (device, host) in on_device.iter().zip(&on_host) {
            assert_eq!(traffic(device), traffic(host));
            // Copies are told apart, and there are none on the host.
            let staged = |record: &Value| record["phases_us"].to_string().contains("staging");
            assert!(staged(device) && !staged(host), "{}", device["phases_us"]);
        }
    }
}

#[test]
fn tables_say_emulated_before_and_after_the_figures() {
    let toolkit = Toolkit::install();
    let hccl = ["--backend", "hccl"];
    let moe = [&SMALL[..13], &["--ep", "2"], &hccl].concat();
    let ended = toolkit.run(&moe, &[]);
    let out = &ended.expect_code(0).stdout;
    let first = out.lines().next().unwrap_or_default();
    let last = out.trim_end().lines().last().unwrap_or_default();
    assert!(
        first.contains("EMULATED") && last.contains("EMULATED"),
        "{out}"
    );
    assert!(out.contains("staging"), "{out}");

    let bench = ["bench", "all_reduce", "-g", "2", "-e", "8", "-n", "5"];
    let ended = toolkit.run(&[&bench[..], &hccl].concat(), &[]);
    let out = &ended.expect_code(0).stdout;
    assert!(out.starts_with("emulated device: nothing below"), "{out}");
    assert!(out.contains("backend hccl (emulated)"), "{out}");
    let csv = [&bench[..], &hccl, &["--format", "csv"]].concat();
    let ended = toolkit.run(&csv, &[]);
    let out = &ended.expect_code(0).stdout;
    let mut lines = out.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let (header, line) = (
        lines.next().unwrap_or_default(),
        lines.next().unwrap_or_default(),
    );
    for (column, value) in [("backend", "hccl"), ("emulated", "true")] {
        let at = header.iter().position(|name| *name == column);
        assert_eq!(at.and_then(|at| line.get(at)), Some(&value), "{out}");
    }
}

#[test]
fn every_collective_is_measured_on_emulated_devices_and_right() {
    let toolkit = Toolkit::install();
    let words = [
        "bench",
        "all",
        "group_create",
        "-g",
        "3",
        "-b",
        "8",
        "-e",
        "8K",
        "-f",
        "32",
        "-n",
        "3",
        "-d",
        "f32,bf16",
        "--place",
        "both",
        "--backend",
        "hccl",
        "--format",
        "json",
    ];
    let ended = toolkit.run(&words, &[]);
    let document = ended.expect_code(0).json();
    assert_eq!(
        (&document["backend"], &document["emulated"]),
        (&json!("hccl"), &json!(true))
    );
    let records = records(&ended);
    assert!(records.len() > 60, "{}", records.len());
    for record in &records {
        // HCCL has no prefix reductions.
        let collective = record["collective"].as_str().expect("a name");
        if ["scan", "exclusive_scan"].contains(&collective) {
            let why = record["unsupported"].as_str().unwrap_or_default();
            assert!(why.contains("HCCL has no such call"), "{record}");
            continue;
        }
        assert_eq!(record["unsupported"], Value::Null, "{record}");
        assert!(record["latency_us"]["min"].as_f64() > Some(0.0), "{record}");
        if collective != "barrier" && collective != "group_create" {
            assert_eq!(
                (&record["wrong"], &record["memory"]),
                (&json!(0), &json!("device"))
            );
        }
    }
}

#[test]
fn what_a_product_lacks_is_said_in_the_line_and_nothing_measured_is_no_pass() {
    let toolkit = Toolkit::install();
    let words = [
        "bench",
        "all_reduce",
        "all_gather",
        "-g",
        "2",
        "-e",
        "8",
        "-n",
        "3",
        "-d",
        "u8",
        "--backend",
        "hccl",
        "--format",
        "json",
    ];
    let records = records(&toolkit.run(&words, &[]));
    let why = records[0]["unsupported"].as_str().unwrap_or_default();
    assert!(
        why.contains("u8 by sum on Ascend910B2") && why.contains("i8, i16"),
        "{why}"
    );
    assert_eq!(
        (&records[1]["unsupported"], &records[1]["wrong"]),
        (&Value::Null, &json!(0))
    );
    let alone: Vec<&str> = words
        .iter()
        .copied()
        .filter(|word| *word != "all_gather")
        .collect();
    let ended = toolkit.run(&alone, &[]);
    let document = ended.expect_code(60).json();
    assert_eq!(document["passed"], false);
}

#[test]
fn options_and_numbers_of_ranks_that_devices_cannot_have_are_refused() {
    let toolkit = Toolkit::install();
    let bench = ["bench", "-g", "2", "-e", "8", "--backend", "hccl"];
    for (more, part) in [
        (&["--algo", "ring"][..], "HCCL chooses its own"),
        (&["--memory", "region"], "buffers lie on the devices"),
        (&["--inject", "bitflip:rank=1"], "MUSTER_EMU_FAULT"),
        (
            &["all_gather_object"],
            "goes over the host whatever the backend",
        ),
    ] {
        let ended = toolkit.run(&[&bench[..], more].concat(), &[]);
        ended.expect_code(2);
        assert!(ended.stderr.contains(part), "{more:?}: {}", ended.stderr);
    }
    let moe = [&SMALL[..], &["--ep", "4", "--backend", "hccl"]].concat();
    for words in [&moe[..], &["bench", "-g", "4", "--backend", "hccl"]] {
        let ended = toolkit.run(words, &[("MUSTER_EMU_DEVICES", "2")]);
        ended.expect_code(60);
        let part = "4 ranks need a device each, and this host has 2";
        assert!(ended.stderr.contains(part), "{}", ended.stderr);
    }
}

#[test]
fn a_device_that_hangs_in_a_dispatch_is_named() {
    let toolkit = Toolkit::install();
    let words = [
        &SMALL[..],
        &["--ep", "2", "--backend", "hccl", "--deadline", "4s"],
    ]
    .concat();
    let fault = ("MUSTER_EMU_FAULT", "hang:op=all_to_all_v,k=2,rank=1,comm=*");
    let ended = toolkit.run(&words, &[fault]);
    let report = ended.expect_code(22).json();
    assert_eq!(report["verdict"]["blamed"], json!([1]));
    let text = report["verdict"]["text"].as_str().unwrap_or_default();
    assert!(
        text.contains("the device of rank 1 never completed"),
        "{text}"
    );
}

#[test]
fn a_device_that_answers_zeros_is_wrong_data_with_every_dispatcher() {
    let toolkit = Toolkit::install();
    let small = [&SMALL[..], &["--ep", "2", "--backend", "hccl"]].concat();
    let fault = ("MUSTER_EMU_FAULT", "zero:rank=1,comm=*");
    for dispatcher in ["all-to-all", "all-gather", "deduplicated", "capacity:2"] {
        let words = [&small[..], &["--dispatcher", dispatcher]].concat();
        let report = toolkit.run(&words, &[fault]).expect_code(40).json();
        let wrong = &report["records"][0];
        assert!(wrong["wrong"].as_u64() > Some(0), "{dispatcher}: {wrong}");
        let text = wrong["wrong_text"].as_str().unwrap_or_default();
        assert!(text.contains("rank"), "{dispatcher}: {text}");
    }
}
