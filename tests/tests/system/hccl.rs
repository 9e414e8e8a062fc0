//! `verify --backend hccl` over the emulator: what passes says emulated, and every fault of a device
//! is named, with the exit code of its class and nothing left behind.

use muster_tests::{Ended, Leftovers, binary, start, until};
use serde_json::Value;

use crate::toolkit::Toolkit;

impl Toolkit {
    fn verify(&self, args: &[&str], variables: &[(&str, &str)]) -> Ended {
        self.run(&[&["verify"], args].concat(), variables)
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
    assert_eq!(text(&report, "/verdict/found/class"), "NOT_JOINED");
    assert_eq!(report["verdict"]["found"]["blamed"], serde_json::json!([1]));
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
fn a_call_that_a_device_does_not_end_stands_on_the_board() {
    let toolkit = Toolkit::install();
    let fault = ("MUSTER_EMU_FAULT", "hang:op=all_gather,k=3,rank=1,comm=*");
    let args = ["verify", "tp2", "--backend", "hccl", "--deadline", "60s"];
    let mut run = toolkit.begin(&args, &[fault]);
    let pid = run.await_rank(1).to_string();
    let mut call = Value::Null;
    until("the call is on the board", || {
        let dump = start(binary(), &["dump", &pid], &[]).wait();
        let dump: Value = serde_json::from_str(&dump.stdout).unwrap_or_default();
        let groups = dump["ranks"][0]["groups"].as_array().cloned();
        let under_way = |group: &Value| {
            text(group, "/name").ends_with(" on npu")
                && group["call"]["age_ms"].as_u64() > Some(2000)
        };
        let found = groups.into_iter().flatten().find(under_way);
        call = found.map_or(Value::Null, |group| group["call"].clone());
        !call.is_null()
    });
    // The collective is the lowest byte of the code.
    let code = call["call"]["word"].as_u64().expect("a code") & 0xff;
    assert_eq!(
        code,
        muster_comm::types::Collective::AllGather as u64,
        "{call}"
    );
    // The line of the program that makes the call, here the tool's, and not one inside the library.
    let site = text(&call, "/site");
    assert!(site.contains("check/call_args.rs:"), "{site}");
    run.signal(rustix::process::Signal::INT);
    let _ = run.wait();
}

#[test]
fn a_fault_without_a_communicator_strikes_and_one_that_never_does_is_told() {
    let toolkit = Toolkit::install();
    let ended = toolkit.faulty("hang:op=all_gather,k=3,rank=0");
    let report = ended.expect_code(22).json();
    assert_eq!(report["verdict"]["blamed"], serde_json::json!([0]));

    let ended = toolkit.faulty("hang:op=all_gather,k=100000,rank=0");
    let said = &ended.expect_code(0).stderr;
    let missed = "the fault hang:rank=0,op=all_gather,k=100000 never struck: communicator ";
    assert!(said.contains(missed), "{said}");
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
        assert_eq!(text(&report, "/verdict/found/class"), class, "{fault}");
        let verdict = text(&report, "/verdict/text");
        assert!(verdict.contains(part), "{fault}: {verdict}");
        assert!(verdict.contains("emulated"), "{fault}: {verdict}");
    }
}

#[test]
fn ranks_that_are_processes_name_what_differs_and_objects_go_on() {
    const PROGRAM: &str = env!("CARGO_BIN_EXE_device_faulty");
    const RANKS: usize = 3;
    let toolkit = Toolkit::install();
    let before = Leftovers::now();
    for (mode, parts) in [
        ("well", &["call: ok"][..]),
        (
            "collective",
            &["rank 0 has all_reduce (f32[24]), rank 1 has all_gather (f32[24])"],
        ),
        ("count", &["count differs: rank 0 has 24, rank 1 has 12"]),
        ("op", &["op differs: rank 0 has max, rank 1 has min"]),
        ("root", &["root differs: rank 0 has 0, rank 1 has 1"]),
        ("absent", &["rank 1 never enqueued all_reduce #2 (f32[24])"]),
    ] {
        let home = toolkit.home();
        let variables = [("ASCEND_HOME_PATH", home.as_str())];
        let args = ["run", "-n", "3", "--", PROGRAM, mode];
        let ended = start(binary(), &args, &variables).wait();
        ended.expect_code(0);
        let lines = |what: &str| -> Vec<&str> {
            let said = ended.stdout.lines();
            said.filter_map(|line| line.split_once(what).map(|(_, rest)| rest))
                .collect()
        };
        let odd_one_left = mode == "absent";
        // Every rank prints the one verdict, once, also the one that has made no call.
        let verdicts = lines("] VERDICT ");
        let told = if mode == "well" { 0 } else { RANKS };
        assert_eq!(verdicts.len(), told, "{mode}: {}", ended.stdout);
        for verdict in &verdicts {
            assert_eq!(verdict, &verdicts[0], "{mode}: one line on all ranks");
            let class = if odd_one_left {
                "NOT_JOINED"
            } else {
                "MISMATCH"
            };
            let culprit = format!("{class} who=rank 1 (");
            assert!(verdict.starts_with(&culprit), "{mode}: {verdict}");
            assert!(
                verdict.contains(" #2 on world on npu f32["),
                "{mode}: {verdict}"
            );
        }
        let calls = lines("] call: ");
        assert_eq!(calls.len(), RANKS, "{mode}: {}", ended.stdout);
        let failed = calls.iter().filter(|call| **call != "ok");
        let expected = match mode {
            "well" => 0,
            _ => RANKS - usize::from(odd_one_left),
        };
        assert_eq!(failed.clone().count(), expected, "{mode}: {calls:?}");
        for call in failed {
            for part in parts {
                assert!(
                    call.contains(part),
                    "{mode}: {part} is missing from: {call}"
                );
            }
        }
        assert_eq!(lines("] objects: "), ["[0, 1, 2]"; RANKS], "{mode}");
    }
    before.assert_nothing_new();
}

#[test]
fn a_rank_that_does_not_come_to_a_call_on_devices_is_named_once_by_all_others_whatever_follows() {
    let toolkit = Toolkit::install();
    let home = toolkit.home();
    let variables = [("ASCEND_HOME_PATH", home.as_str())];
    for (mode, code, class, error) in [
        ("dead", 20, "PEER_DEAD", "rank 1 was killed by signal 6"),
        // Its peers end because of it, while it waits for them.
        (
            "ends",
            22,
            "NOT_JOINED",
            "rank 1 never enqueued all_reduce #2",
        ),
        (
            "stopped",
            21,
            "PEER_FROZEN",
            "rank 1 of group \"world/npu\" does not answer",
        ),
    ] {
        let program = env!("CARGO_BIN_EXE_device_faulty");
        let args = ["run", "-n", "3", "--", program, mode];
        let ended = start(binary(), &args, &variables).wait();
        let out = &ended.expect_code(code).stdout;
        for rank in ["[rank 0] ", "[rank 2] "] {
            let own: Vec<&str> = out
                .lines()
                .filter_map(|line| line.strip_prefix(rank))
                .collect();
            let verdicts: Vec<_> = own
                .iter()
                .filter(|line| line.starts_with("VERDICT "))
                .collect();
            assert_eq!(verdicts.len(), 1, "{out}");
            let culprit = format!("VERDICT {class} who=rank 1 (");
            assert!(verdicts[0].starts_with(&culprit), "{out}");
            assert!(verdicts[0].contains(" #2 on world on npu "), "{out}");
            let call = own.iter().find(|line| line.starts_with("call: "));
            assert!(call.is_some_and(|call| call.contains(error)), "{out}");
        }
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
fn a_spoiled_result_is_found_whatever_is_wrong_with_it() {
    let toolkit = Toolkit::install();
    for (kind, rank, collective, rest) in [
        ("bitflip", 0, "all_reduce", "k=3"),
        ("bitflip", 1, "broadcast", "k=2,element=1,bit=0"),
        ("stale", 1, "all_gather", "k=2"),
        ("zero", 0, "all_to_all_v", "k=4"),
        ("zero", 1, "reduce_scatter", "k=5,element=0"),
    ] {
        let fault = format!("{kind}:rank={rank},op={collective},{rest}");
        let report = toolkit.faulty(&fault).expect_code(40).json();
        let cases = report["cases"].as_array().expect("cases").iter();
        let failed: Vec<&Value> = cases.filter(|case| case["passed"] == false).collect();
        assert_eq!(failed.len(), 1, "{fault}: {failed:?}");
        assert_eq!(failed[0]["collective"], collective, "{fault}");
        assert_eq!(failed[0]["detail"]["seen_by"], rank, "{fault}");
    }
    let fault = "bitflip:rank=0,op=all_reduce,k=1,element=99999999";
    let said = toolkit.faulty(fault).expect_code(0).stderr.clone();
    let harmless = "the fault bitflip changed nothing at HcclAllReduce (number 1 of its kind)";
    assert!(said.contains(harmless), "{said}");
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
