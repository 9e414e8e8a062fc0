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
        refused.stderr.contains("no dump of a rank (rank-N.json)"),
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
