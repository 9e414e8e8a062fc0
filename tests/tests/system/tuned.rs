//! Selection tables: measured by `muster tune`, given to other commands, and seen at work. Nothing here looks at
//! how fast anything is.

use std::collections::BTreeSet;

use muster_tests::{Ended, Leftovers, muster};
use serde_json::Value;

/// Which ways the records of a result went.
fn taken(ended: &Ended) -> BTreeSet<String> {
    let document = ended.json();
    let records = document["records"].as_array().expect("records");
    let name = |record: &Value| record["taken"].as_str().expect("a way").to_owned();
    records.iter().map(name).collect()
}

/// Sums of 64 bytes, unless `more` says another size.
fn bench(more: &[&str]) -> Ended {
    let sizes: &[&str] = if more.contains(&"-b") {
        &[]
    } else {
        &["-b", "64", "-e", "64"]
    };
    let args = [
        &[
            "bench",
            "all_reduce",
            "-g",
            "2",
            "-n",
            "5",
            "--format",
            "json",
        ],
        sizes,
    ]
    .concat();
    let ended = muster(&[&args, more].concat());
    ended.expect_code(0);
    ended
}

#[test]
fn a_table_that_tune_writes_is_read_by_every_command_that_takes_one() {
    let before = Leftovers::now();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("here.rules");
    let name = path.to_str().expect("text");
    let ended = muster(&[
        "tune",
        "all_reduce",
        "barrier",
        "all_to_all_v",
        "-g",
        "2,3",
        "-b",
        "64",
        "-e",
        "64K",
        "-f",
        "32",
        "--time",
        "5ms",
        "--rounds",
        "2",
        "-o",
        name,
        "--format",
        "json",
    ]);
    ended.expect_code(0);
    assert!(ended.stderr.contains("MUSTER_ALGO=@"), "{}", ended.stderr);
    let report = ended.json();
    assert_eq!(
        (&report["command"], &report["schema_version"]),
        (&"tune".into(), &1.into())
    );
    // Three sizes of two calls and a barrier, on two numbers of ranks.
    assert_eq!(report["cells"], 2 * (3 + 3 + 1));
    let text = std::fs::read_to_string(&path).expect("it was written");
    assert_eq!(report["table"], text.as_str());
    assert!(
        text.starts_with("# Selection rules measured by muster"),
        "{text}"
    );
    let rules = text.lines().filter(|line| line.contains("->")).count();
    assert_eq!(report["rules"].as_array().map(Vec::len), Some(rules));
    let shown = muster(&["plan", "table", "--file", name]);
    shown.expect_code(0);
    assert!(
        shown.stdout.contains(&format!("{name}: {rules} rules")),
        "{}",
        shown.stdout
    );
    assert_eq!(bench(&["--table", name]).json()["rules"], name);
    muster(&["verify", "tp2", "--table", name, "--dtypes", "f32"]).expect_code(0);
    before.assert_nothing_new();
}

#[test]
fn rules_of_the_option_and_of_the_variable_decide_how_calls_go() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("mine");
    std::fs::write(&path, "all_reduce bytes<=1KiB -> ring\n").expect("written");
    let name = path.to_str().expect("text");
    let ways = |ended: &Ended| taken(ended).into_iter().collect::<Vec<_>>();
    assert_eq!(ways(&bench(&[])), ["entry"]);
    assert_eq!(ways(&bench(&["--table", name])), ["ring"]);
    assert_eq!(
        ways(&bench(&["--table", name, "-b", "2K", "-e", "2K"])),
        ["entry"]
    );
    let at_file = format!("@{name}");
    let variable = [("MUSTER_ALGO", at_file.as_str())];
    let args = [
        "bench",
        "all_reduce",
        "-g",
        "2",
        "-b",
        "64",
        "-e",
        "64",
        "-n",
        "5",
        "--format",
        "json",
    ];
    let ended = muster_tests::start(muster_tests::binary(), &args, &variable).wait();
    ended.expect_code(0);
    assert_eq!(ways(&ended), ["ring"]);
    assert_eq!(ended.json()["rules"], name);
    let explained =
        muster_tests::start(muster_tests::binary(), &["env", "--explain"], &variable).wait();
    explained.expect_code(0);
    assert!(
        explained
            .stdout
            .contains(&format!("{name}, 1 rule in front")),
        "{}",
        explained.stdout
    );
    // A program under `run` gets the same.
    let program = muster_tests::binary().to_str().expect("text");
    let ended = muster(&[
        "run",
        "-n",
        "2",
        "--table",
        name,
        "--",
        program,
        "env",
        "--explain",
    ]);
    ended.expect_code(0);
    assert!(ended.stdout.contains("1 rule in front"), "{}", ended.stdout);
}

#[test]
fn a_malformed_table_is_refused_with_its_line_before_a_rank_is_started() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("wrong");
    std::fs::write(&path, "# mine\n\nall_reduce -> rign\n").expect("written");
    let name = path.to_str().expect("text");
    for args in [
        &["verify", "tp2", "--table", name][..],
        &["bench", "--table", name],
        &["run", "-n", "2", "--table", name, "--", "true"],
        &["plan", "table", "--file", name],
    ] {
        let ended = muster(args);
        ended.expect_code(2);
        for word in ["wrong: selection table line 3", "did you mean ring?"] {
            assert!(ended.stderr.contains(word), "{args:?}: {}", ended.stderr);
        }
    }
    let ended = muster(&["bench", "--table", "/nowhere/at/all"]);
    ended.expect_code(2);
    assert!(
        ended.stderr.contains("/nowhere/at/all cannot be read"),
        "{}",
        ended.stderr
    );
}

#[test]
fn all_algorithms_side_by_side_are_each_named_and_each_taken() {
    let ended = bench(&["--algo", "all", "-b", "64", "-e", "1M", "-f", "128"]);
    for record in ended.json()["records"].as_array().expect("records") {
        assert_eq!(record["algo"], record["taken"], "{record}");
        assert_eq!(record["wrong"], 0);
    }
    let ways = taken(&ended);
    for way in [
        "direct",
        "direct_small",
        "entry",
        "ring",
        "recursive_doubling",
        "hierarchical",
    ] {
        assert!(ways.contains(way), "{way} is missing from {ways:?}");
    }
    let of_two = bench(&["all_gather", "--algo", "ring"]);
    for record in of_two.json()["records"].as_array().expect("records") {
        assert_eq!(record["taken"], "ring", "{record}");
    }
    let segments = bench(&[
        "--algo",
        "direct",
        "--segment",
        "16K,64K",
        "-b",
        "1M",
        "-e",
        "1M",
    ]);
    let sizes: Vec<Value> = segments.json()["records"]
        .as_array()
        .expect("records")
        .iter()
        .map(|record| record["segment"].clone())
        .collect();
    assert_eq!(sizes, [16 << 10, 64 << 10].map(Value::from));
    let straight = bench(&["--memory", "region", "-b", "1M", "-e", "1M"]);
    assert_eq!(
        taken(&straight).into_iter().collect::<Vec<_>>(),
        ["straight"]
    );
}

#[test]
fn verify_proves_every_path_that_is_forced_and_says_which_it_was() {
    let args = [
        "verify", "tp2@2", "tp3@3", "--format", "json", "--dtypes", "f32,bf16", "--sizes",
        "33,9000",
    ];
    let forced = [
        "--memory",
        "both",
        "--algo",
        "auto,direct,ring,entry",
        "--isa",
        "scalar",
    ];
    let ended = muster(&[&args[..], &forced].concat());
    ended.expect_code(0);
    let report = ended.json();
    assert_eq!(report["passed"], true);
    let names: Vec<&str> = report["matrices"]
        .as_array()
        .expect("matrices")
        .iter()
        .filter_map(|matrix| matrix["matrix"].as_str())
        .collect();
    assert_eq!(names.len(), 2 * 2 * 4, "{names:?}");
    assert!(names.contains(&"tp3@3+region+ring+scalar"), "{names:?}");
    let ways = |matrix: &str| {
        let cases = report["cases"].as_array().expect("cases");
        let of = cases.iter().filter(|case| case["matrix"] == matrix);
        let reduces = of.filter(|case| {
            case["collective"] == "all_reduce" && case["ranks"] != serde_json::json!([0])
        });
        let names = reduces.filter(|case| {
            case["ranks"]
                .as_array()
                .is_some_and(|ranks| ranks.len() > 1)
        });
        names
            .filter_map(|case| case["algo"].as_str().map(str::to_owned))
            .collect::<BTreeSet<_>>()
    };
    let set = |names: &[&str]| {
        names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(ways("tp2@2+scalar"), set(&["direct", "entry"]));
    assert_eq!(ways("tp2@2+region+scalar"), set(&["straight", "entry"]));
    assert_eq!(ways("tp2@2+ring+scalar"), set(&["ring"]));
    assert_eq!(ways("tp2@2+region+direct+scalar"), set(&["straight"]));
}

#[test]
fn paths_that_cannot_be_forced_are_refused() {
    for (args, word) in [
        (&["--algo", "rign"][..], "did you mean ring?"),
        (&["--isa", "mmx"], "mmx"),
        (
            &["--memory", "region", "--transport", "tcp"],
            "--memory region",
        ),
        (&["--algo", "direct", "--transport", "tcp"], "direct"),
    ] {
        let ended = muster(&[&["verify", "tp2"], args].concat());
        ended.expect_code(2);
        assert!(ended.stderr.contains(word), "{args:?}: {}", ended.stderr);
    }
}

#[test]
fn costs_that_tune_measures_predict_lines_of_bench_and_the_way_that_each_call_goes() {
    let before = Leftovers::now();
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
    let (model, bench) = (path("here.json"), path("bench.json"));
    let tuned = [
        "tune", "--model", &model, "-g", "2,3", "-b", "64", "-e", "256K", "--time", "2ms",
        "--rounds", "2",
    ];
    let ended = muster(&tuned);
    ended.expect_code(0);
    assert!(
        ended.stderr.contains("muster plan cost --model"),
        "{}",
        ended.stderr
    );
    let text = std::fs::read_to_string(&model).expect("it was written");
    let file: Value = serde_json::from_str(&text).expect("JSON");
    // Two numbers of ranks, each over shared memory and over TCP.
    assert_eq!(file["calls"]["worlds"].as_array().map(Vec::len), Some(4));
    let measured = [
        "bench",
        "all",
        "-g",
        "2,3",
        "-b",
        "100",
        "-e",
        "300K",
        "-f",
        "30",
        "-n",
        "3",
        "--algo",
        "auto,ring",
        "--save",
        &bench,
    ];
    muster(&measured).expect_code(0);
    beside_measured(&model, &bench);
    std::fs::write(&model, text.replacen("\"call\"", "\"cal\"", 1)).expect("written");
    let refused = muster(&["plan", "cost", "all_reduce", "-n", "3", "--model", &model]);
    refused.expect_code(2);
    assert!(
        refused.stderr.contains("calls.worlds[0].costs"),
        "{}",
        refused.stderr
    );
    before.assert_nothing_new();
}

/// What a model predicts of a result of bench, and of calls alone.
fn beside_measured(model: &str, bench: &str) {
    let beside = ["plan", "cost", "--model", model, "--against", bench];
    let ended = muster(&[&beside[..], &["--format", "json"]].concat());
    ended.expect_code(0);
    let document = ended.json();
    assert_eq!(document["predicted"], true);
    let rows = document["rows"].as_array().expect("rows");
    assert_eq!(document["lines"], rows.len(), "every line is predicted");
    for row in rows.iter().filter(|row| row["taken"].is_string()) {
        // Objects are made of several calls, of which the last one is told.
        let is_object = row["name"]
            .as_str()
            .is_some_and(|name| name.contains("object"));
        assert!(is_object || row["taken"] == row["predicted_route"], "{row}");
        assert!(
            row["error"].is_number() && row["predicted_us"].is_number(),
            "{row}"
        );
    }
    let shown = muster(&beside);
    shown.expect_code(0);
    assert!(shown.stdout.contains("beside measured"), "{}", shown.stdout);
    let shown = muster(&["plan", "cost", "all_reduce", "-n", "3", "--model", model]);
    shown.expect_code(0);
    assert!(shown.stdout.contains("predicted times"), "{}", shown.stdout);
    // Its figures of links serve where a topology is asked for.
    muster(&[
        "plan",
        "cost",
        "all_reduce",
        "-n",
        "16",
        "--topology",
        model,
    ])
    .expect_code(0);
}
