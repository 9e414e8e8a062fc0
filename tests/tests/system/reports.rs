//! Reports in files: every form from real runs, pages in a real browser, disks that are full.

mod browser;
mod doctor;
mod schema;

use std::fs;
use std::path::Path;

use muster_tests::{Ended, binary, find_program, muster, skipped, start};
use rustix::process::Signal;
use serde_json::Value;

/// All forms.
const ENDINGS: [&str; 6] = ["html", "xml", "md", "csv", "prom", "json"];

/// Runs a command that writes every form, and gives back the forms in the order of [`ENDINGS`].
fn forms(folder: &Path, words: &[&str], code: i32) -> [String; 6] {
    let paths = ENDINGS.map(|ending| format!("{}/out.{ending}", folder.display()));
    let mut all = words.to_vec();
    for path in &paths {
        all.extend(["--report", path]);
    }
    muster(&all).expect_code(code);
    let left = names(folder);
    assert_eq!(left.len(), ENDINGS.len(), "nothing else is left: {left:?}");
    let forms = paths.map(|path| fs::read_to_string(path).expect("it was written"));
    let again = later(folder, &format!("{}/out.json", folder.display()));
    for ((ending, now), later) in ENDINGS.iter().zip(&forms).zip(&again) {
        assert_eq!(now, later, "{ending} of `muster report`");
    }
    forms
}

/// Every form of a result that was kept as JSON, which is in this folder.
fn later(folder: &Path, result: &str) -> [String; 6] {
    let again = tempfile::tempdir_in(folder).expect("a folder");
    let paths = ENDINGS.map(|ending| format!("{}/out.{ending}", again.path().display()));
    let mut words = vec!["report", result];
    words.extend(paths.iter().map(String::as_str));
    muster(&words).expect_code(0);
    paths.map(|path| fs::read_to_string(path).expect("it was written"))
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    entries
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect()
}

/// What holds for every page: it loads nothing and says where it came from.
fn check_page(page: &str, command: &str) {
    assert!(page.starts_with("<!DOCTYPE html>"), "{command}");
    for absent in [
        "<script", "http://", "https://", "@import", "url(", "<link", "<img",
    ] {
        assert!(!page.contains(absent), "{command}: {absent}");
    }
    for there in [
        "Content-Security-Policy",
        "id=\"verdict\"",
        "Where and how",
        "muster 0.",
    ] {
        assert!(page.contains(there), "{command}: {there}");
    }
    browser::check(page, command);
}

/// The number in an attribute of the root of a JUnit file.
fn attribute(xml: &str, name: &str) -> u64 {
    let root = xml.split("<testsuites ").nth(1).expect("a root");
    let value = root
        .split(&format!("{name}=\""))
        .nth(1)
        .expect("the attribute");
    value
        .split('"')
        .next()
        .and_then(|text| text.parse().ok())
        .expect("a number")
}

/// The value of a sample of a Prometheus file.
fn sample(prom: &str, name: &str) -> f64 {
    let line = prom
        .lines()
        .find(|line| line.starts_with(name))
        .expect(name);
    line.rsplit(' ')
        .next()
        .and_then(|text| text.parse().ok())
        .expect("a number")
}

#[test]
fn verify_writes_every_form_and_they_agree() {
    let folder = tempfile::tempdir().expect("a folder");
    let [page, xml, text, csv, prom, json] = forms(
        folder.path(),
        &["verify", "tp2@2", "tp1@1", "--dtypes", "f32,bf16"],
        0,
    );
    let document: Value = serde_json::from_str(&json).expect("JSON");
    schema::check("verify", &document);
    assert_eq!(document["partial"], false);
    assert!(
        document["origin"]["started_at"].is_string(),
        "{}",
        document["origin"]
    );
    check_page(&page, "verify");
    for there in ["tp2@2", "embd", "reduce_scatter_v", ">passed<"] {
        assert!(page.contains(there), "{there}");
    }
    let cases = document["cases"].as_array().expect("cases");
    // One case for each matrix, kind of group and call.
    let mut kinds: Vec<(String, String, String)> = Vec::new();
    for case in cases {
        let call = case["collective"]
            .as_str()
            .or_else(|| case["check"].as_str());
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let key = (
            word(&case["matrix"]),
            word(&case["group"]),
            call.unwrap_or_default().to_owned(),
        );
        if !kinds.contains(&key) {
            kinds.push(key);
        }
    }
    assert_eq!(attribute(&xml, "tests"), kinds.len() as u64);
    assert_eq!(attribute(&xml, "failures") + attribute(&xml, "errors"), 0);
    assert_eq!(csv.lines().count(), cases.len() + 1);
    assert!(text.contains("### ✓ muster verify: passed"), "{text}");
    assert!((sample(&prom, "muster_passed{") - 1.0).abs() < 1e-9);
    let passed = sample(
        &prom,
        "muster_verify_cases{matrix=\"tp2@2\",result=\"passed\"}",
    );
    let of_tp2 = cases
        .iter()
        .filter(|case| case["matrix"] == "tp2@2")
        .count();
    assert!(
        (passed - of_tp2 as f64).abs() < 1e-9,
        "{passed} of {of_tp2}"
    );
}

#[test]
fn wrong_data_is_at_the_top_of_every_form() {
    let folder = tempfile::tempdir().expect("a folder");
    let fault = "bitflip:rank=1,collective=all_reduce";
    let words = ["verify", "tp2@2", "--dtypes", "f32", "--inject", fault];
    let [page, xml, text, csv, prom, json] = forms(folder.path(), &words, 40);
    schema::check("verify", &serde_json::from_str(&json).expect("JSON"));
    check_page(&page, "verify");
    for there in [
        "wrong data",
        "exit code 40",
        "to blame",
        "td class=\"f\"",
        "✗",
    ] {
        assert!(page.contains(there), "{there}");
    }
    assert!(attribute(&xml, "failures") > 0);
    assert!(text.contains("### ✗ muster verify: wrong data"), "{text}");
    assert!(csv.contains(",false,"), "{csv}");
    assert!((sample(&prom, "muster_exit_code") - 40.0).abs() < 1e-9);
}

#[test]
fn bench_and_compare_write_every_form() {
    let folder = tempfile::tempdir().expect("a folder");
    let words = [
        "bench",
        "all_reduce",
        "barrier",
        "-b",
        "8",
        "-e",
        "4K",
        "-n",
        "20",
        "--rounds",
        "2",
    ];
    let [page, xml, _, csv, prom, json] = forms(folder.path(), &words, 0);
    let document: Value = serde_json::from_str(&json).expect("JSON");
    schema::check("bench", &document);
    check_page(&page, "bench");
    for there in [
        "<svg class=\"chart\"",
        "Bus bandwidth",
        "4 KiB",
        "Rank by rank",
    ] {
        assert!(page.contains(there), "{there}");
    }
    let records = document["records"].as_array().expect("records").len();
    assert_eq!(attribute(&xml, "tests"), records as u64);
    assert_eq!(csv.lines().count(), records + 1);
    assert!(sample(&prom, "muster_bench_latency_seconds{") > 0.0);

    let base = folder.path().join("out.json");
    let base = base.to_str().expect("a path");
    let compared = tempfile::tempdir().expect("a folder");
    // Two rounds decide nothing, which is no pass.
    let [page, xml, text, csv, _, json] = forms(compared.path(), &["compare", base, base], 70);
    schema::check("compare", &serde_json::from_str(&json).expect("JSON"));
    check_page(&page, "compare");
    assert!(page.contains("undecided"), "{page}");
    assert_eq!(
        attribute(&xml, "errors"),
        1,
        "what is not proved is no pass"
    );
    assert_eq!(csv.lines().count(), records + 1);
    assert!(text.contains("### ! muster compare: not proved"), "{text}");
}

#[test]
fn moe_writes_every_form() {
    let folder = tempfile::tempdir().expect("a folder");
    let words = [
        "moe",
        "--hidden",
        "64",
        "--experts",
        "8",
        "--top-k",
        "2",
        "--ep",
        "2",
        "-t",
        "4,8",
        "-n",
        "3",
        "-r",
        "balanced",
        "-r",
        "hot-rank:1.5",
    ];
    let [page, xml, _, csv, prom, json] = forms(folder.path(), &words, 0);
    schema::check("moe", &serde_json::from_str(&json).expect("JSON"));
    check_page(&page, "moe");
    for there in [
        "Wait matrix",
        "<svg class=\"chart\"",
        "unpermute",
        "hot-rank",
    ] {
        assert!(page.contains(there), "{there}");
    }
    assert_eq!(attribute(&xml, "tests"), 4);
    assert_eq!(csv.lines().count(), 5);
    assert!(sample(&prom, "muster_moe_latency_seconds{") > 0.0);
}

#[test]
fn drill_writes_every_form() {
    let folder = tempfile::tempdir().expect("a folder");
    let words = [
        "drill",
        "--only",
        "all-suspended",
        "--world",
        "2",
        "--transport",
        "shm",
    ];
    let [page, xml, _, csv, prom, json] = forms(folder.path(), &words, 0);
    schema::check("drill", &serde_json::from_str(&json).expect("JSON"));
    check_page(&page, "drill");
    assert!(
        page.contains("all-suspended") && page.contains("all is well"),
        "{page}"
    );
    assert_eq!(attribute(&xml, "tests"), 1);
    assert_eq!(csv.lines().count(), 2);
    assert!((sample(&prom, "muster_drill_passed{") - 1.0).abs() < 1e-9);
}

#[test]
fn text_of_strangers_stays_text_in_every_form() {
    let folder = tempfile::tempdir().expect("a folder");
    let hostile = "</style><script>document.title='owned'</script>\"'&\u{1b}[2J\u{202e}|`<b>";
    let ended = muster(&["verify", "tp1@1", "--dtypes", "f32", "--format", "json"]);
    let mut document = ended.json();
    for place in ["matrix", "group", "collective", "dtype"] {
        document["cases"][0][place] = hostile.into();
    }
    document["matrices"][0]["matrix"] = hostile.into();
    document["matrices"][0]["reason"] = hostile.into();
    document["origin"]["host"] = hostile.into();
    document["origin"]["command_line"] = serde_json::json!([hostile]);
    document["origin"]["environment"] = serde_json::json!({ hostile: hostile });
    let source = folder.path().join("hostile.json");
    fs::write(&source, document.to_string()).expect("written");
    let out = |ending: &str| format!("{}/out.{ending}", folder.path().display());
    let words = [
        "report",
        source.to_str().expect("a path"),
        &out("html"),
        &out("xml"),
        &out("prom"),
        &out("md"),
    ];
    muster(&words).expect_code(0);
    let read = |ending: &str| fs::read_to_string(out(ending)).expect("written");
    let page = read("html");
    check_page(&page, "verify");
    assert!(page.contains("&lt;script&gt;"), "it is shown");
    for ending in ["html", "xml", "prom", "md"] {
        let text = read(ending);
        assert!(
            !text.contains('\u{1b}') && !text.contains('\u{202e}'),
            "{ending}"
        );
    }
    assert!(!read("xml").contains("<script>") && !read("md").contains("<script>"));
    // A quote or a line break in a label would end it.
    assert!(read("prom").contains("\\\"'&"), "{}", read("prom"));
}

#[test]
fn what_was_measured_before_an_interruption_is_kept_and_called_partial() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = |ending: &str| format!("{}/out.{ending}", folder.path().display());
    let (page, json, xml) = (out("html"), out("json"), out("xml"));
    let words = [
        "bench",
        "all_reduce",
        "-b",
        "8",
        "-e",
        "1M",
        "-f",
        "2",
        "-n",
        "300",
        "--rounds",
        "1000",
        "--report",
        &page,
        "--report",
        &json,
        "--report",
        &xml,
    ];
    let mut running = start(binary(), &words, &[]);
    let rank = running.await_rank(0);
    // The second world begins when the first round of all lines is over.
    muster_tests::until("the second round", || {
        running.rank(0).is_some_and(|now| now != rank)
    });
    running.signal(Signal::INT);
    running.wait().expect_code(80);
    let document: Value =
        serde_json::from_str(&fs::read_to_string(&json).expect("written")).expect("JSON");
    schema::check("bench", &document);
    assert_eq!(document["partial"], true);
    assert_eq!(document["verdict"]["class"], "INTERRUPTED");
    assert_eq!(document["records"].as_array().expect("records").len(), 18);
    let page = fs::read_to_string(&page).expect("written");
    check_page(&page, "bench");
    assert!(
        page.contains("partial") && page.contains("interrupted"),
        "{page}"
    );
    let xml = fs::read_to_string(&xml).expect("written");
    assert_eq!(
        attribute(&xml, "errors"),
        1,
        "an interrupted run is no pass"
    );
}

/// Runs muster where no file may grow above some KiB.
fn with_small_files(kib: u32, args: &[&str]) -> Ended {
    let script = format!("ulimit -f {kib}; exec \"$0\" \"$@\"");
    let muster = binary().to_str().expect("a path");
    let words = [&["-c", &script, muster], args].concat();
    start(Path::new("/bin/bash"), &words, &[]).wait()
}

#[test]
fn a_file_that_cannot_be_written_whole_leaves_the_old_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = folder.path().join("result.json");
    let ended = muster(&["verify", "tp2@2", "--dtypes", "f32", "--format", "json"]);
    fs::write(&source, ended.stdout).expect("written");
    let source = source.to_str().expect("a path");
    let page = format!("{}/out.html", folder.path().display());
    let text = format!("{}/out.md", folder.path().display());
    fs::write(&page, "the old page").expect("written");
    let ended = with_small_files(4, &["report", source, &page, &text]);
    ended.expect_code(60);
    assert!(
        ended.stderr.contains("out.html cannot be written"),
        "{}",
        ended.stderr
    );
    assert_eq!(fs::read_to_string(&page).expect("there"), "the old page");
    assert!(
        fs::read_to_string(&text)
            .expect("small enough")
            .contains("muster verify")
    );
    let mut left = names(folder.path());
    left.sort();
    assert_eq!(left, ["out.html", "out.md", "result.json"]);
}

#[test]
fn a_run_whose_report_cannot_be_written_still_prints_its_table() {
    let ended = muster(&["verify", "tp1@1", "--dtypes", "f32", "--save", "/dev/full"]);
    ended.expect_code(60);
    assert!(ended.stdout.contains("passed: "), "{}", ended.stdout);
    assert!(
        ended.stderr.contains("/dev/full cannot be written"),
        "{}",
        ended.stderr
    );
}

#[test]
fn names_that_say_no_form_and_files_that_are_no_results_are_refused() {
    for (words, part) in [
        (
            &["verify", "--report", "out.pdf"][..],
            ".html, .xml (JUnit)",
        ),
        (&["bench", "--report", "out"], ".html, .xml (JUnit)"),
        (
            &["verify", "--report", "/nowhere/out.html"],
            "/nowhere/out.html cannot be written",
        ),
        (
            &["verify", "--report", "a.md", "--report", "a.md"],
            "named twice",
        ),
        (&["report", "/dev/null", "out.html"], "is empty"),
        (
            &["report", "/nowhere.json", "out.html"],
            "/nowhere.json cannot be read",
        ),
    ] {
        let ended = muster(words);
        ended.expect_code(2);
        assert!(ended.stderr.contains(part), "{words:?}: {}", ended.stderr);
    }
    assert!(!Path::new("a.md").exists());
}

/// Four lines of a second each: long enough calls that time ends a line, not the number of samples.
const SECONDS: [&str; 12] = [
    "bench",
    "all_reduce",
    "-g",
    "2",
    "-b",
    "4M",
    "-e",
    "32M",
    "--time",
    "1s",
    "--confidence",
    "0",
];

/// What a terminal is shown; nothing where no terminal can be made.
fn on_a_terminal(variables: &[(&str, &str)]) -> Option<String> {
    let Some(script) = find_program("script") else {
        skipped("no script is installed (util-linux): nothing is shown on a terminal");
        return None;
    };
    let muster = binary().to_str().expect("a path");
    let command = format!("'{muster}' {} -f 2", SECONDS.join(" "));
    let variables = [&[("TERM", "xterm")], variables].concat();
    let ended = start(&script, &["-qec", &command, "/dev/null"], &variables).wait();
    ended.expect_code(0);
    Some(ended.stdout)
}

/// Whether a text has an escape sequence that sets a colour or a style.
fn has_colours(text: &str) -> bool {
    text.split("\u{1b}[").skip(1).any(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != ';');
        end.is_some_and(|end| rest[end..].starts_with('m'))
    })
}

#[test]
fn a_terminal_is_told_how_much_time_is_left_and_a_pipe_is_not() {
    let quiet = muster(&[&SECONDS[..], &["-f", "2"]].concat());
    quiet.expect_code(0);
    assert!(
        !quiet.stderr.contains('\r') && !quiet.stderr.contains(" left"),
        "{}",
        quiet.stderr
    );
    assert!(!has_colours(&quiet.stdout) && !has_colours(&quiet.stderr));
    let Some(shown) = on_a_terminal(&[]) else {
        return;
    };
    for part in ["2 ranks", "%", ", about ", " left"] {
        assert!(shown.contains(part), "{part}: {shown:?}");
    }
    assert!(has_colours(&shown), "{shown:?}");
    let plain = on_a_terminal(&[("NO_COLOR", "1")]).expect("as before");
    assert!(plain.contains(" left") && !has_colours(&plain), "{plain:?}");
}
