//! `verify --backend hccl` over the emulator: what passes says emulated, and every fault of a device
//! is named, with the exit code of its class and nothing left behind.

use std::path::Path;

use muster_tests::{Ended, binary, start};
use serde_json::Value;

/// An emulated toolkit, laid out by the program itself.
struct Toolkit {
    folder: tempfile::TempDir,
}

impl Toolkit {
    fn install() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let target = folder.path().join("toolkit");
        let target = target.to_str().expect("text");
        start(binary(), &["emu", "install", target], &[])
            .wait()
            .expect_code(0);
        Self { folder }
    }

    fn home(&self) -> String {
        let latest = self.folder.path().join("toolkit/latest");
        assert!(Path::new(&latest).exists(), "a tree with a version");
        latest.to_str().expect("text").to_owned()
    }

    fn verify(&self, args: &[&str], variables: &[(&str, &str)]) -> Ended {
        let home = self.home();
        let mut all = vec![("ASCEND_HOME_PATH", home.as_str())];
        all.extend_from_slice(variables);
        let mut words = vec!["verify"];
        words.extend_from_slice(args);
        start(binary(), &words, &all).wait()
    }

    /// A run with a fault of rank 1 and a short deadline.
    fn faulty(&self, fault: &str) -> Ended {
        let args = [
            "tp2",
            "--backend",
            "hccl",
            "--deadline",
            "4s",
            "--format",
            "json",
        ];
        self.verify(&args, &[("MUSTER_EMU_FAULT", fault)])
    }
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

#[test]
fn a_matrix_passes_on_emulated_devices_and_everything_says_emulated() {
    let toolkit = Toolkit::install();
    let ended = toolkit.verify(&["tp2", "--backend", "hccl", "--format", "json"], &[]);
    let report = ended.expect_code(0).json();
    assert_eq!(text(&report, "/backend"), "hccl");
    assert_eq!(report["emulated"], true);
    assert_eq!(report["passed"], true);
    let cases = report["cases"].as_array().expect("cases");
    assert!(cases.len() > 700, "{} cases", cases.len());
    // What the device does not have is neither passed nor failed.
    let unsupported = |case: &&Value| case["collective"] == "all_reduce" && case["dtype"] == "u8";
    assert_eq!(cases.iter().filter(unsupported).count(), 0);
    let missing = report["not_applicable"].as_array().expect("rows");
    let row = missing
        .iter()
        .find(|row| row["collective"] == "all_reduce" && row["dtype"] == "u8")
        .expect("a row for what is missing");
    assert!(text(row, "/why").contains("sum takes i8"), "{row}");
    assert!(ended.stderr.contains("emulated"), "{}", ended.stderr);
}

#[test]
fn the_table_and_its_last_line_say_emulated() {
    let toolkit = Toolkit::install();
    let args = [
        "tp2",
        "--backend",
        "cpu:host,npu:hccl",
        "--dtypes",
        "f32",
        "--sizes",
        "100",
    ];
    let ended = toolkit.verify(&args, &[]);
    let out = &ended.expect_code(0).stdout;
    let last = out.trim_end().lines().last().unwrap_or_default();
    assert!(last.contains("backend hccl (emulated)"), "{out}");
    assert!(
        out.starts_with("emulated device: nothing below was measured on hardware"),
        "{out}"
    );
}

#[test]
fn auto_never_takes_an_emulated_device_and_says_so() {
    let toolkit = Toolkit::install();
    let ended = toolkit.verify(&["tp2", "--sizes", "1", "--format", "json"], &[]);
    let report = ended.expect_code(0).json();
    assert_eq!(text(&report, "/backend"), "host");
    assert_eq!(report["emulated"], false);
    assert!(
        ended
            .stderr
            .contains("the toolkit found is an emulated one"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_matrix_that_needs_more_devices_than_there_are_is_skipped_and_never_passed() {
    let toolkit = Toolkit::install();
    let two = [("MUSTER_EMU_DEVICES", "2")];
    let alone = toolkit.verify(&["tp4", "--backend", "hccl"], &two);
    assert!(
        alone
            .expect_code(60)
            .stderr
            .contains("more than the 2 devices"),
        "{}",
        alone.stderr
    );
    let args = [
        "tp4",
        "tp2",
        "--backend",
        "hccl",
        "--sizes",
        "1",
        "--format",
        "json",
    ];
    let both = toolkit.verify(&args, &two);
    let report = both.expect_code(0).json();
    let outcomes: Vec<(&str, &str)> = report["matrices"]
        .as_array()
        .expect("matrices")
        .iter()
        .map(|matrix| (text(matrix, "/matrix"), text(matrix, "/outcome")))
        .collect();
    assert_eq!(outcomes, [("tp4@4", "skipped"), ("tp2@2", "passed")]);
}

#[test]
fn a_device_that_hangs_is_named_and_objects_still_go_through() {
    let toolkit = Toolkit::install();
    let ended = toolkit.faulty("hang:op=all_gather,k=3,rank=1,comm=*");
    let report = ended.expect_code(22).json();
    assert_eq!(text(&report, "/verdict/class"), "NOT_JOINED");
    assert_eq!(report["verdict"]["blamed"], serde_json::json!([1]));
    assert_eq!(report["emulated"], true);
    assert_eq!(report["passed"], false);
    let verdict = text(&report, "/verdict/text");
    for part in [
        "the device of rank 1 never completed all_gather #",
        "enqueued",
        "reports no error, while rank 0 reports",
        "EI0002",
        "objects of all 2 ranks still went over the host",
    ] {
        assert!(verdict.contains(part), "{part} is missing from: {verdict}");
    }
}

#[test]
fn faults_of_devices_end_with_the_code_of_their_class_and_name_the_rank() {
    let toolkit = Toolkit::install();
    for (fault, code, class, part) in [
        (
            "async_error:op=all_reduce,k=2,rank=1,comm=*",
            23,
            "LINK",
            "EI0013",
        ),
        (
            "device_lost:op=broadcast,k=2,rank=1,comm=*",
            60,
            "RESOURCE",
            "507010",
        ),
        (
            "oom:bytes=8388608,rank=1,comm=*",
            60,
            "RESOURCE",
            "HCCL_E_OOM",
        ),
    ] {
        let ended = toolkit.faulty(fault);
        let report = ended.expect_code(code).json();
        assert_eq!(text(&report, "/verdict/class"), class, "{fault}");
        assert_eq!(
            report["verdict"]["blamed"],
            serde_json::json!([1]),
            "{fault}"
        );
        let verdict = text(&report, "/verdict/text");
        assert!(verdict.contains(part), "{fault}: {verdict}");
        assert!(verdict.contains("emulated"), "{fault}: {verdict}");
    }
}

#[test]
fn ranks_that_cannot_connect_end_at_the_deadline() {
    let toolkit = Toolkit::install();
    let ended = toolkit.faulty("init_timeout:rank=1,comm=*");
    let report = ended.expect_code(22).json();
    let verdict = text(&report, "/verdict/text");
    assert!(
        verdict.contains("HCCL did not connect the ranks"),
        "{verdict}"
    );
}

#[test]
fn faults_for_the_host_are_refused_on_devices() {
    let toolkit = Toolkit::install();
    let args = ["tp2", "--backend", "hccl", "--inject", "bitflip:rank=1"];
    let ended = toolkit.verify(&args, &[]);
    assert!(
        ended.expect_code(2).stderr.contains("MUSTER_EMU_FAULT"),
        "{}",
        ended.stderr
    );
}
