//! Deaths, stops and interruptions while `verify` runs: named, bounded, and nothing left behind.

use std::time::Duration;

use muster_comm::sync::Clock;
use muster_tests::{Leftovers, Random, Running, binary, is_alive, send, start, until};
use rustix::process::Signal;

/// Far above what ending takes, far below any deadline of a call: ends that need this long were not
/// prompt. Loaded machines need the room.
const PROMPT: Duration = Duration::from_secs(8);

fn verify(args: &[&str]) -> Running {
    let words: Vec<&str> = ["verify"].iter().chain(args).copied().collect();
    start(binary(), &words, &[])
}

#[test]
fn a_rank_killed_at_any_time_ends_the_run_at_once_and_is_named() {
    const TIMES: u32 = 8;
    let mut random = Random::new();
    let before = Leftovers::now();
    let mut named = 0;
    for _ in 0..TIMES {
        let rank = random.below(8);
        let mut run = verify(&["tp8", "--format", "json"]);
        let pid = run.await_rank(rank);
        Clock::pause(Duration::from_millis(u64::from(random.below(600))));
        let was_alive = send(pid, Signal::KILL).is_ok();
        let killed = Clock::now();
        let ended = run.wait();
        let elapsed = Clock::now().duration_since(killed);
        if ended.code == Some(0) {
            // It had done its work when the signal came.
            continue;
        }
        assert!(was_alive, "{}", ended.stderr);
        ended.expect_code(20);
        assert!(elapsed < PROMPT, "it took {elapsed:?}");
        let verdict = ended.json()["verdict"].clone();
        assert_eq!(verdict["class"], "PEER_DEAD");
        assert_eq!(verdict["blamed"], serde_json::json!([rank]), "{verdict}");
        let text = verdict["text"].as_str().expect("text");
        assert!(text.contains("killed by signal 9"), "{text}");
        named += 1;
    }
    assert!(
        named >= TIMES / 2,
        "only {named} of {TIMES} kills hit a rank at work"
    );
    before.assert_nothing_new();
}

#[test]
fn a_killed_launcher_takes_its_ranks_with_it() {
    let before = Leftovers::now();
    let mut run = verify(&["tp8"]);
    let ranks: Vec<i32> = (0..8).map(|rank| run.await_rank(rank)).collect();
    run.signal(Signal::KILL);
    let killed = Clock::now();
    until("all ranks are gone", || {
        ranks.iter().all(|pid| !is_alive(*pid))
    });
    assert!(Clock::now().duration_since(killed) < PROMPT);
    let ended = run.wait();
    assert_eq!(ended.code, None, "killed by a signal");
    before.assert_nothing_new();
}

#[test]
fn an_interrupted_run_ends_its_ranks_and_reports_what_it_has() {
    for signal in [Signal::INT, Signal::TERM] {
        let mut run = verify(&["tp8", "tp2", "--format", "json"]);
        for rank in 0..8 {
            let _ = run.await_rank(rank);
        }
        run.signal(signal);
        let sent = Clock::now();
        let ended = run.wait();
        assert!(Clock::now().duration_since(sent) < PROMPT);
        ended.expect_code(80);
        let report = ended.json();
        assert_eq!(report["verdict"]["class"], "INTERRUPTED");
        assert_eq!(report["passed"], false);
        assert_eq!(report["matrices"][0]["outcome"], "aborted");
        assert_eq!(report["matrices"][1]["outcome"], "skipped");
    }
}

#[test]
fn a_stopped_rank_is_called_frozen_once_the_deadline_has_passed() {
    let mut run = verify(&["tp2ep2@4", "--deadline", "1s", "--format", "json"]);
    let pid = run.await_rank(2);
    // Late enough to be in the middle of the calls, or the bring-up: either must name it.
    Clock::pause(Duration::from_millis(150));
    send(pid, Signal::STOP).expect("the rank runs");
    let ended = run.wait();
    let verdict = ended.json()["verdict"].clone();
    assert_eq!(verdict["blamed"], serde_json::json!([2]), "{verdict}");
    ended.expect_code(21);
}

#[test]
fn a_rank_stopped_for_a_moment_changes_nothing() {
    let mut run = verify(&["tp2ep2@4"]);
    let pid = run.await_rank(1);
    Clock::pause(Duration::from_millis(100));
    if send(pid, Signal::STOP).is_ok() {
        Clock::pause(Duration::from_millis(800));
        let _ = send(pid, Signal::CONT);
    }
    run.wait().expect_code(0);
}
