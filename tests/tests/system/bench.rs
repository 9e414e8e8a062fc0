//! `muster bench` as a user and as another program sees it. Nothing here looks at how fast anything
//! is.

use std::path::{Path, PathBuf};

use muster_harness::compare::margin::detects;
use muster_harness::stats;
use muster_tests::{Ended, Leftovers, Running, binary, muster, send, start, until};
use rustix::process::Signal;
use serde_json::Value;

/// The fields of a record that other programs rely on, in their order.
const FIELDS: [&str; 28] = [
    "collective",
    "algo",
    "ranks",
    "bytes",
    "count",
    "dtype",
    "op",
    "root",
    "in_place",
    "memory",
    "split",
    "group",
    "groups",
    "world_size",
    "latency_us",
    "algbw_gbytes_per_s",
    "busbw_gbytes_per_s",
    "wrong",
    "wrong_text",
    "unsupported",
    "cold_us",
    "start_skew_us",
    "rank_median_us",
    "calls_per_sample",
    "samples",
    "samples_us",
    "taken",
    "segment",
];

/// A short run with a JSON document.
fn bench(args: &[&str]) -> Ended {
    muster(&[&["bench", "-n", "20", "--format", "json"], args].concat())
}

fn records(ended: &Ended) -> Vec<Value> {
    let document = ended.json();
    document["records"].as_array().expect("records").clone()
}

#[test]
fn the_document_has_the_promised_fields_and_figures_that_fit_each_other() {
    let ended = bench(&[
        "all_reduce",
        "-g",
        "2,4",
        "-b",
        "8",
        "-e",
        "64K",
        "-f",
        "64",
    ]);
    ended.expect_code(0);
    let document = ended.json();
    assert_eq!(document["command"], "bench");
    assert_eq!(document["passed"], true);
    assert_eq!(document["schema_version"], 1);
    let records = records(&ended);
    assert_eq!(records.len(), 6);
    for record in &records {
        let names: Vec<&str> = record
            .as_object()
            .expect("an object")
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(names, FIELDS);
        let time = |name: &str| record["latency_us"][name].as_f64().expect("a time");
        let order = ["min", "median", "p90", "p99", "p99_9", "max"].map(time);
        assert!(order.is_sorted() && order[0] > 0.0, "{record}");
        let ranks = record["ranks"].as_f64().expect("ranks");
        let bytes = record["bytes"].as_f64().expect("bytes");
        let algbw = record["algbw_gbytes_per_s"].as_f64().expect("a rate");
        let busbw = record["busbw_gbytes_per_s"].as_f64().expect("a rate");
        assert!(
            (algbw - bytes / time("median") / 1e3).abs() <= 1e-9 * algbw,
            "{record}"
        );
        assert!(
            (busbw / algbw - 2.0 * (ranks - 1.0) / ranks).abs() < 1e-9,
            "{record}"
        );
        assert_eq!(record["wrong"], 0);
        let (count, bytes) = (record["count"].as_u64(), record["bytes"].as_u64());
        assert_eq!(count.map(|count| count * 4), bytes);
        assert!(record["start_skew_us"]["max"].as_f64().expect("a skew") >= 0.0);
        let medians = record["rank_median_us"].as_array().expect("a list");
        assert_eq!(Some(medians.len() as u64), record["world_size"].as_u64());
    }
}

#[test]
fn everything_that_can_be_measured_is_measured_and_right() {
    for (args, ranks) in [
        (
            vec![
                "all",
                "--place",
                "both",
                "-d",
                "f32,bf16,i8",
                "-o",
                "sum,prod,max",
                "--memory",
                "private,region",
            ],
            "3",
        ),
        (vec!["all", "-r", "1", "--transport", "tcp"], "3"),
        (
            vec![
                "all_reduce",
                "all_to_all",
                "broadcast",
                "barrier",
                "--algo",
                "auto,all",
            ],
            "4",
        ),
        (
            vec![
                "all_gather_object",
                "gather_object",
                "scatter_object",
                "broadcast_object",
            ],
            "3",
        ),
        (vec!["group_create", "bring_up"], "2"),
    ] {
        let args = [
            &args[..],
            &[
                "-b", "8", "-e", "40K", "-f", "5000", "-g", ranks, "--time", "2ms",
            ],
        ]
        .concat();
        let ended = bench(&args);
        ended.expect_code(0);
        let records = records(&ended);
        assert!(!records.is_empty(), "{args:?}");
        for record in records {
            let moved = record["dtype"].is_string();
            assert!(!moved || record["wrong"] == 0, "{record}");
            assert!(
                record["samples"].as_u64().expect("a number") > 0,
                "{record}"
            );
            assert_eq!(record["unsupported"], Value::Null, "{record}");
        }
    }
}

#[test]
fn all_groups_of_a_kind_work_at_once() {
    let ended = bench(&[
        "all_to_all_v",
        "--group",
        "ep,tp",
        "--tp",
        "2",
        "--ep",
        "2",
        "-b",
        "1K",
        "-e",
        "1K",
        "--rounds",
        "3",
    ]);
    ended.expect_code(0);
    for (record, kind) in records(&ended).iter().zip(["ep", "tp"]) {
        assert_eq!(record["group"], kind);
        assert_eq!(
            (&record["ranks"], &record["groups"]),
            (&2.into(), &2.into())
        );
        assert_eq!(record["world_size"], 4);
        assert_eq!(record["samples_us"].as_array().expect("rounds").len(), 3);
        assert_eq!(record["cold_us"].as_array().expect("rounds").len(), 3);
    }
}

#[test]
fn wrong_data_is_counted_and_ends_with_its_code() {
    for what in ["all_reduce", "all_gather", "all_to_all_v"] {
        let fault = format!("bitflip:rank=1,collective={what}");
        let ended = bench(&[what, "barrier", "-b", "4K", "-e", "4K", "--inject", &fault]);
        ended.expect_code(40);
        let records = records(&ended);
        assert_eq!(ended.json()["passed"], false);
        assert!(
            records[0]["wrong"].as_u64().expect("a number") > 0,
            "{}",
            records[0]
        );
        assert!(records[0]["wrong_text"].is_string());
    }
}

/// A run of very many lines whose table goes to a file, once it has shown some of them.
fn with_lines(folder: &Path, options: &str) -> (Running, PathBuf) {
    let table = folder.join("table");
    let script = format!(
        "exec {} bench all_reduce -g 3 -n 10 -b 8 -e 150000 -i 8 {options} > {}",
        binary().display(),
        table.display()
    );
    let run = start(Path::new("/bin/sh"), &["-c", &script], &[]);
    let shown = || std::fs::read_to_string(&table).unwrap_or_default();
    until("three lines are in the table", || {
        shown().lines().count() > 6
    });
    (run, table)
}

#[test]
fn a_rank_that_dies_is_named_and_what_was_measured_is_kept() {
    let before = Leftovers::now();
    let folder = tempfile::tempdir().expect("a folder");
    let (mut run, table) = with_lines(folder.path(), "");
    send(run.await_rank(2), Signal::KILL).expect("it lives");
    run.wait().expect_code(20);
    let table = std::fs::read_to_string(table).expect("a table");
    assert!(
        table.contains("VERDICT PEER_DEAD rank 2 ") && table.contains("was killed by signal 9"),
        "{table}"
    );
    before.assert_nothing_new();
}

#[test]
fn an_interrupted_run_prints_and_saves_what_it_has() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("result.json");
    std::fs::write(&file, "old").expect("a file");
    let options = format!("--save {}", file.display());
    let (run, table) = with_lines(folder.path(), &options);
    assert_eq!(std::fs::read_to_string(&file).expect("the old file"), "old");
    run.signal(Signal::INT);
    run.wait().expect_code(80);
    let table = std::fs::read_to_string(table).expect("a table");
    assert!(table.contains("VERDICT INTERRUPTED"), "{table}");
    let saved = std::fs::read_to_string(&file).expect("a file");
    let document: Value = serde_json::from_str(&saved).expect("JSON");
    assert!(document["records"].as_array().expect("records").len() >= 3);
    let left: Vec<_> = std::fs::read_dir(folder.path())
        .expect("a folder")
        .collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn comma_separated_values_have_a_line_for_each_record() {
    let ended = muster(&[
        "bench", "-b", "8", "-e", "64", "-f", "8", "-n", "10", "--format", "csv",
    ]);
    ended.expect_code(0);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!(lines.len(), 3, "{}", ended.stdout);
    let columns = lines[0].split(',').count();
    assert!(
        lines.iter().all(|line| line.split(',').count() == columns),
        "{}",
        ended.stdout
    );
}

#[test]
fn nonsense_is_answered_with_what_is_allowed() {
    for (args, parts) in [
        (vec!["allreduce"], vec!["did you mean all_reduce?"]),
        (vec!["-b", "1.5M"], vec!["-b", "KiB"]),
        (vec!["-b", "1M", "-e", "1K"], vec!["above the largest"]),
        (vec!["-f", "1"], vec!["--factor"]),
        (vec!["-i", "0"], vec!["step of 0"]),
        (vec!["-d", "f31"], vec!["did you mean f32?"]),
        (vec!["-o", "summ"], vec!["did you mean sum?"]),
        (vec!["--algo", "rign"], vec!["did you mean ring?"]),
        (
            vec!["--algo", "direct", "--transport", "tcp"],
            vec!["nothing is left to measure"],
        ),
        (vec!["--group", "epp"], vec!["did you mean ep?"]),
        (vec!["--tp", "3", "-g", "4"], vec!["tp=3"]),
        (vec!["broadcast", "-r", "2", "-g", "2"], vec!["0 to 1"]),
        (vec!["-g", "0"], vec!["--ranks"]),
        (vec!["--memory", "swap"], vec!["private"]),
        (
            vec!["--inject", "bitflip:rank=7", "-g", "2"],
            vec!["none of the 2 ranks"],
        ),
        (
            vec!["--save", "/nonexistent/folder/file"],
            vec!["cannot be written"],
        ),
        (vec!["--time", "0s"], vec!["1ms to 24 hours"]),
        (vec!["--confidence", "99"], vec!["0 to 50"]),
    ] {
        let words = [&["bench"], &args[..]].concat();
        let ended = muster(&words);
        ended.expect_code(2);
        for part in parts {
            assert!(
                ended.stderr.contains(part),
                "{args:?}: {part} is missing from\n{}",
                ended.stderr
            );
        }
    }
}

#[test]
fn a_map_has_every_pair_once_and_shows_it_as_a_table_of_ranks() {
    let map = ["bench", "--map=8", "-g", "4", "-n", "20"];
    let ended = muster(&map);
    // Whether a pair is slow on a busy machine is no question here.
    assert!(
        [Some(0), Some(50)].contains(&ended.code),
        "{}{}",
        ended.stdout,
        ended.stderr
    );
    let head = "median us of each pair, 8 B each way\n       0      1      2      3\n";
    assert!(ended.stdout.contains(head), "{}", ended.stdout);
    assert!(ended.stdout.contains("\n0      -"), "{}", ended.stdout);
    let records = records(&bench(&["--map=8", "-g", "3"]));
    let groups: Vec<&str> = records
        .iter()
        .filter_map(|one| one["group"].as_str())
        .collect();
    assert_eq!(groups, ["pair 0-1", "pair 0-2", "pair 1-2"]);
    assert!(records.iter().all(|one| {
        one["samples_us"]
            .as_array()
            .is_some_and(|all| all.len() == 3)
    }));
    let alone = muster(&["bench", "--map", "-g", "1"]);
    alone.expect_code(2);
    assert!(
        alone.stderr.contains("--map needs two ranks"),
        "{}",
        alone.stderr
    );
    muster(&["bench", "all_reduce", "--map"]).expect_code(2);
}

#[test]
fn rounds_end_once_they_could_tell_the_change_that_is_asked_for() {
    let detect = |percent: &str, most: &str| {
        let words = ["barrier", "-g", "2", "--detect", percent, "--rounds", most];
        let ended = bench(&words);
        ended.expect_code(0);
        let document = ended.json();
        let rounds = document["rounds"].as_u64().expect("rounds");
        assert_eq!(document["partial"], false, "{document}");
        let samples = document["records"][0]["samples_us"]
            .as_array()
            .expect("samples");
        let of_round = |samples: &Value| {
            let samples = samples.as_array().expect("samples").iter();
            stats::middle(&samples.filter_map(Value::as_f64).collect::<Vec<_>>())
        };
        let medians: Vec<f64> = samples.iter().map(of_round).collect();
        assert_eq!(medians.len() as u64, rounds);
        (medians, ended.stderr)
    };
    // How much rounds differ is the machine's: that the first that could tell it was the last is the program's.
    let (medians, said) = detect("1000", "14");
    let could_tell = |rounds: usize| detects(&medians[..rounds], 1, 10.0);
    let rounds = (10..=medians.len()).find(|rounds| could_tell(*rounds));
    assert_eq!(rounds.unwrap_or(14), medians.len(), "{medians:?}");
    assert_eq!(rounds.is_none(), said.contains("vary too much"), "{said}");
    let (medians, said) = detect("0.1", "11");
    assert_eq!(medians.len(), 11);
    assert!(
        said.contains("1 rows vary too much to tell a change of 0.1 % after 11 rounds"),
        "{said}"
    );
}
