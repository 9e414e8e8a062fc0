//! Dumps that ranks write by themselves, and what they mean.

use std::path::Path;
use std::time::Duration;

use muster_comm::sync::Clock;
use muster_tests::{Ended, Running, binary, send, start, until};
use rustix::process::Signal;

const FAULTY: &str = env!("CARGO_BIN_EXE_faulty");
const RANKS: u32 = 4;

fn faulty(mode: &str, folder: &Path, deadline_s: &str) -> Running {
    let folder = folder.to_string_lossy().into_owned();
    let ranks = RANKS.to_string();
    start(
        binary(),
        &[
            "run", "-n", &ranks, "--grace", "2", "--dumps", &folder, "--", FAULTY, mode,
        ],
        &[("MUSTER_DEADLINE_S", deadline_s)],
    )
}

/// What `muster explain` says of the dumps in a folder.
fn explain(paths: &[&Path]) -> Ended {
    let paths = paths.iter().filter_map(|path| path.to_str());
    let args: Vec<&str> = std::iter::once("explain").chain(paths).collect();
    start(binary(), &args, &[]).wait()
}

/// Class and culprits of the one verdict in a text.
fn class_and_who(text: &str) -> (String, Vec<&str>) {
    let line = text
        .lines()
        .find(|line| line.starts_with("VERDICT "))
        .unwrap_or_else(|| unreachable!("no verdict in {text}"));
    let (class, rest) = line["VERDICT ".len()..].split_once(" who=").expect("a who");
    let (who, _) = rest.split_once(" what=").expect("a what");
    // Processes of other hosts have other names in dumps; the ranks are what counts.
    let ranks: Vec<&str> = who
        .split(" (")
        .filter(|part| part.contains("rank"))
        .collect();
    let ranks = ranks
        .iter()
        .filter_map(|part| part.rsplit(", ").next())
        .collect();
    (class.to_owned(), ranks)
}

#[test]
fn each_verdict_leaves_dumps_that_lead_to_it_again() {
    for (mode, deadline_s, culprit_dumps) in [
        ("never", "2", true),
        ("inversion", "60", true),
        ("skip", "60", true),
        ("stop", "60", true),
        ("early", "60", false),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let program = if mode == "stop" { "loop" } else { mode };
        let mut run = faulty(program, folder.path(), deadline_s);
        if mode == "stop" {
            let pid = run.await_rank(RANKS - 1);
            Clock::pause(Duration::from_millis(700));
            send(pid, Signal::STOP).expect("it runs");
        }
        let ended = run.wait();
        let there = if culprit_dumps { RANKS } else { RANKS - 1 };
        let explained = explain(&[folder.path()]);
        let (class, who) = class_and_who(&ended.stderr);
        let (class_again, who_again) = class_and_who(&explained.stdout);
        let both = format!("{mode}\n{}{}", ended.stderr, explained.stdout);
        assert_eq!(class_again, class, "{both}");
        // A rank that comes late to a circle, on a busy machine, is in the dumps and was not yet in the verdict.
        let is_there = |rank: &&str| who_again.contains(rank);
        assert_eq!(who.iter().find(|rank| !is_there(rank)), None, "{both}");
        assert!(class == "DEADLOCK" || who == who_again, "{both}");
        assert_eq!(explained.code, ended.code, "{mode}");
        let pytorch = folder.path().join("rank-0.pytorch.json");
        let text = std::fs::read_to_string(pytorch).expect("the other form");
        let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert!(value["entries"][0]["collective_seq_id"].is_u64(), "{mode}");
        let files = std::fs::read_dir(folder.path())
            .expect("the folder")
            .count();
        assert_eq!(
            files,
            2 * there as usize,
            "{mode}: nothing else is left there"
        );
    }
}

#[test]
fn a_pattern_of_the_shell_may_bring_both_forms_and_one_without_ours_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let refused = explain(&[folder.path()]);
    refused.expect_code(2);
    assert!(
        refused.stderr.contains("no dump of a rank (rank-N.json, "),
        "{}",
        refused.stderr
    );
    faulty("never", folder.path(), "1").wait().expect_code(22);
    let named = |end: &str| folder.path().join(format!("rank-0{end}"));
    let (ours, theirs) = (named(".json"), named(".pytorch.json"));
    let alone = explain(&[&ours]);
    alone.expect_code(22);
    let both = explain(&[&ours, &theirs]);
    assert_eq!((both.stdout, both.code), (alone.stdout, alone.code));
    let refused = explain(&[&theirs]);
    refused.expect_code(2);
    assert!(
        refused
            .stderr
            .contains("the form of PyTorch's flight recorder"),
        "{}",
        refused.stderr
    );
}

#[test]
fn a_hang_becomes_a_page_and_what_other_tools_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let others = tempfile::tempdir().expect("a folder");
    let mut run = faulty("never", folder.path(), "6");
    let pids: Vec<i32> = (0..RANKS).map(|rank| run.await_rank(rank)).collect();
    let write = |pid: i32, format: &str, name: &str| {
        let file = others.path().join(name);
        let script = r#"exec "$0" dump "$1" --format "$2" > "$3""#;
        let (pid, file) = (pid.to_string(), file.to_string_lossy().into_owned());
        let program = binary().to_string_lossy().into_owned();
        let args = ["-c", script, &program, &pid, format, &file];
        start(Path::new("/bin/sh"), &args, &[]).wait()
    };
    // The ranks wait once they have been in the call for a while.
    Clock::pause(Duration::from_millis(2500));
    for (rank, pid) in pids.iter().enumerate() {
        write(*pid, "pytorch-pickle", &format!("trace_{rank}")).expect_code(0);
    }
    write(pids[0], "chrome", "calls.json").expect_code(0);
    let ended = run.wait();
    let (class, who) = class_and_who(&ended.stderr);
    let recorded = explain(&[others.path()]);
    assert_eq!(
        class_and_who(&recorded.stdout),
        (class, who),
        "{}",
        recorded.stdout
    );
    assert_eq!(recorded.code, ended.code);
    let trace = std::fs::read(others.path().join("calls.json")).expect("a trace");
    let trace: serde_json::Value = serde_json::from_slice(&trace).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    assert!(
        events
            .iter()
            .any(|event| event["ph"] == "X" && event["args"]["state"] == "under way")
    );

    let page = folder.path().join("hang.html");
    let (dumps, file) = (folder.path().to_string_lossy(), page.to_string_lossy());
    let explained = start(binary(), &["explain", &dumps, "--report", &file], &[]).wait();
    assert_eq!(explained.code, ended.code, "{}", explained.stderr);
    let page = std::fs::read_to_string(&page).expect("a page");
    for part in [
        "Who waits for whom",
        "to blame",
        "The last calls, side by side",
        "first difference",
        "NOT_JOINED",
    ] {
        assert!(page.contains(part), "{part} is missing");
    }
    assert!(!page.contains("<script"), "pages hold no script");
}

#[test]
fn a_rank_writes_its_dump_on_a_signal_and_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut run = faulty("loop", folder.path(), "60");
    let pid = run.await_rank(1);
    let file = folder.path().join("rank-1.json");
    // The rank listens from when it has joined.
    Clock::pause(Duration::from_millis(1500));
    until("the dump is there", || {
        send(pid, Signal::USR1).expect("it runs");
        Clock::pause(Duration::from_millis(100));
        file.exists()
    });
    let dump: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&file).expect("a dump")).expect("JSON");
    assert_eq!(dump["ranks"][0]["rank"], 1);
    assert!(dump["ranks"][0]["calls"][0]["seq"].is_u64());
    assert!(dump["verdict"].is_null());
    run.signal(Signal::INT);
    run.wait().expect_code(80);
}
