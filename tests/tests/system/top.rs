//! `muster top`: what it sees of real jobs.

use std::path::Path;

use muster_tests::{Running, binary, muster, start, until};
use serde_json::{Value, json};

const FAULTY: &str = env!("CARGO_BIN_EXE_faulty");

fn faulty(mode: &str) -> Running {
    let words = ["run", "-n", "4", "--grace", "1", "--", FAULTY, mode];
    start(binary(), &words, &[("MUSTER_DEADLINE_S", "60")])
}

/// Starts ranks, and waits until `top` sees one.
fn begun(mode: &str) -> (Running, i32) {
    let mut job = faulty(mode);
    let pid = job.await_rank(0);
    let words = ["top", &pid.to_string(), "--once", "--every", "50ms"];
    until("a board", || muster(&words).code == Some(0));
    (job, pid)
}

/// What `top` sees of the job of a process.
fn top(pid: i32, more: &[&str]) -> Value {
    let pid = pid.to_string();
    let words = [&["top", &pid, "--format", "json"], more].concat();
    let seen = muster(&words).expect_code(0).json();
    assert_eq!(seen["jobs"].as_array().map(Vec::len), Some(1), "{seen}");
    seen["jobs"][0].clone()
}

#[test]
fn a_hang_is_seen_by_who_waits_for_whom_and_the_job_goes_on() {
    let (job, pid) = begun("never");
    let folder = tempfile::tempdir().expect("a folder");
    let figures = folder.path().join("muster.prom");
    let waits = |seen: &Value| {
        let ranks = seen["ranks"].as_array().into_iter().flatten();
        ranks.filter(|rank| rank["state"] == "waiting").count()
    };
    let file = figures.to_string_lossy();
    let look = || top(pid, &["--every", "200ms", "--prometheus", &file]);
    let mut seen = look();
    while waits(&seen) < 3 {
        seen = look();
    }
    assert_eq!(seen["world_size"], 4);
    assert_eq!(seen["ranks"][0]["waits_for"], json!([3]));
    assert_eq!(seen["ranks"][3]["state"], "outside");
    assert_eq!(seen["ranks"][3]["behind"], 1);
    let text = std::fs::read_to_string(&figures).expect("figures");
    assert!(text.contains("muster_comm_waiting_ranks"), "{text}");
    // It has lasted for the half second from which it is told in words.
    let table = muster(&["top", &pid.to_string(), "--once", "--every", "700ms"]);
    table.expect_code(0);
    let wait = "ranks 0-2 wait for 3 in all_reduce #4 of world";
    assert!(table.stdout.contains(wait), "{}", table.stdout);
    job.signal(rustix::process::Signal::INT);
    job.wait().expect_code(80);
}

#[test]
fn a_rank_that_is_late_in_call_after_call_is_named() {
    let (job, pid) = begun("slow");
    let late = || top(pid, &["--every", "5s"])["late"].clone();
    // On a busy machine some looks come late too.
    let named = (0..4).map(|_| late()).find(|late| late != &json!([]));
    let named = named.unwrap_or_else(|| unreachable!("nobody was late"));
    assert_eq!(named[0]["rank"], 3, "{named}");
    assert_eq!(named.as_array().map(Vec::len), Some(1), "{named}");
    job.signal(rustix::process::Signal::INT);
    job.wait().expect_code(80);
}

#[test]
fn figures_are_written_at_every_look_where_there_is_no_terminal() {
    let (job, pid) = begun("never");
    let folder = tempfile::tempdir().expect("a folder");
    let figures = folder.path().join("muster.prom");
    let file = figures.to_str().expect("text");
    let pid = pid.to_string();
    let words = ["top", &pid, "--every", "100ms", "--prometheus", file];
    let viewer = start(binary(), &words, &[]);
    let has =
        |wanted: &str| std::fs::read_to_string(&figures).is_ok_and(|text| text.contains(wanted));
    until("figures of the hang", || has("state=\"waiting\""));
    job.signal(rustix::process::Signal::INT);
    job.wait().expect_code(80);
    until("figures without the job", || {
        !has("state=\"waiting\"") && figures.exists()
    });
    viewer.signal(rustix::process::Signal::TERM);
    viewer.wait().expect_code(80);
}

#[test]
fn what_cannot_be_shown_is_refused() {
    let none = muster(&["top", "no-such-job", "--once", "--every", "100ms"]);
    none.expect_code(2);
    assert!(
        none.stderr.contains("no job no-such-job"),
        "{}",
        none.stderr
    );
    let pipe = muster(&["top"]);
    pipe.expect_code(2);
    assert!(pipe.stderr.contains("--once"), "{}", pipe.stderr);
    let folder = Path::new("/proc/no-such-folder/muster.prom");
    let file = folder.to_string_lossy();
    muster(&["top", "--once", "--prometheus", &file]).expect_code(2);
}
