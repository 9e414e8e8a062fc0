//! Ranks whose processes stand still, or end, where no call of theirs shows it: before the world is complete, in its first
//! round, after the last call, in a container, or while the launcher is stopped itself.

use std::process::Command;
use std::time::Duration;

use muster_comm::sync::Clock;
use muster_tests::{Ended, Running, binary, send, skipped, start, until};
use rustix::process::Signal;

const FAULTY: &str = env!("CARGO_BIN_EXE_faulty");

/// Four ranks of a shell script, in which `$FAULTY` is a program that uses the library.
fn scripted(script: &str, deadline_s: &str) -> Running {
    let args = ["run", "-n", "4", "--grace", "1", "--", "sh", "-c", script];
    let variables = [("FAULTY", FAULTY), ("MUSTER_DEADLINE_S", deadline_s)];
    start(binary(), &args, &variables)
}

/// The launcher's verdict, after it was found to be that of every rank that prints one.
fn verdict(ended: &Ended) -> String {
    let is_verdict = |line: &&str| line.starts_with("VERDICT ");
    let own: Vec<&str> = ended.stderr.lines().filter(is_verdict).collect();
    assert_eq!(own.len(), 1, "{}\n{}", ended.stderr, ended.stdout);
    let printed = ended.stdout.lines();
    let of_ranks = printed.filter_map(|line| Some(line.split_once("] ")?.1));
    for line in of_ranks.filter(is_verdict) {
        assert_eq!(line, own[0]);
    }
    own[0].to_owned()
}

#[test]
fn a_rank_that_is_stopped_before_it_joined_is_named_and_no_other() {
    let script = "if [ $MUSTER_RANK = 2 ]; then kill -STOP $$; fi; exec $FAULTY well";
    let ended = scripted(script, "60").wait();
    let line = verdict(ended.expect_code(21));
    for part in ["PEER_FROZEN who=rank 2 (", "state T", "before it joined"] {
        assert!(line.contains(part), "{part} is missing in {line}");
    }
}

#[test]
fn a_rank_that_is_stopped_after_it_joined_is_named_once_all_are_there() {
    // The leader of the island, from which the others fetch their memory, and another one.
    for victim in [0, 1] {
        let script = format!(
            "if [ $MUSTER_RANK = {victim} ]; then (sleep 1; kill -STOP $$) & fi; \
             if [ $MUSTER_RANK = 3 ]; then sleep 2; fi; exec $FAULTY well"
        );
        let ended = scripted(&script, "60").wait();
        let line = verdict(ended.expect_code(21));
        let who = format!("PEER_FROZEN who=rank {victim} (");
        assert!(line.contains(&who) && line.contains("state T"), "{line}");
    }
}

#[test]
fn a_rank_that_is_killed_after_it_joined_ends_bring_up_for_all_with_one_line() {
    let script = "if [ $MUSTER_RANK = 2 ]; then (sleep 1; kill -KILL $$) & fi; \
                  if [ $MUSTER_RANK = 3 ]; then sleep 1.5; fi; exec $FAULTY well";
    let ended = scripted(script, "60").wait();
    let line = verdict(ended.expect_code(20));
    for part in ["PEER_DEAD who=rank 2 (", "was killed by signal 9"] {
        assert!(line.contains(part), "{part} is missing in {line}");
    }
}

#[test]
fn ranks_that_do_not_find_each_other_leave_dumps_and_a_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let dumps = folder.path().to_str().expect("text");
    let script = "[ $MUSTER_RANK = 2 ] && exit 0; exec $FAULTY well";
    let args = ["run", "-n", "4", "--dumps", dumps, "--", "sh", "-c", script];
    let ended = start(binary(), &args, &[("FAULTY", FAULTY)]).wait();
    let line = verdict(ended.expect_code(20));
    assert!(line.contains("evidence=its process ended "), "{line}");
    let page = folder.path().join("page.html");
    let page = page.to_str().expect("text");
    let explained = start(binary(), &["explain", dumps, "--report", page], &[]).wait();
    explained.expect_code(20);
    assert_eq!(explained.stdout.lines().next(), Some(line.as_str()));
    let page = std::fs::read_to_string(page).expect("a page");
    for (part, is_there) in [
        ("never joined", true),
        ("bring-up of the world", true),
        ("Processes", true),
        ("ranks that wait", false),
    ] {
        assert_eq!(page.contains(part), is_there, "{part}");
    }
}

#[test]
fn a_rank_that_is_stopped_after_its_last_call_is_named_and_one_that_runs_on_is_not() {
    let script =
        "if [ $MUSTER_RANK = 2 ]; then $FAULTY well; kill -STOP $$; else exec $FAULTY well; fi";
    let ended = scripted(script, "60").wait();
    let line = verdict(ended.expect_code(21));
    for part in ["PEER_FROZEN who=rank 2 (", "state T", "the end of the job"] {
        assert!(line.contains(part), "{part} is missing in {line}");
    }
    let script = script.replace("kill -STOP $$", "sleep 3");
    let ended = scripted(&script, "60").wait();
    assert!(
        !ended.expect_code(0).stderr.contains("VERDICT"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_program_without_the_library_may_be_stopped_for_a_while() {
    let script =
        "if [ $MUSTER_RANK = 2 ]; then (sleep 3; kill -CONT $$) & kill -STOP $$; fi; echo hi";
    let ended = scripted(script, "60").wait();
    assert!(
        !ended.expect_code(0).stderr.contains("VERDICT"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_launcher_that_was_stopped_itself_names_what_happened_meanwhile() {
    for (signal, code, parts) in [
        // The ranks have judged by then, and they cannot know how it ended.
        (
            Signal::KILL,
            20,
            ["PEER_DEAD who=rank 2 (", "its process ended"],
        ),
        (Signal::STOP, 21, ["PEER_FROZEN who=rank 2 (", "state T"]),
    ] {
        // The others give up while nobody listens to them.
        let mut running = scripted("exec $FAULTY loop", "2");
        let victim = running.await_rank(2);
        Clock::pause(Duration::from_millis(1500));
        running.signal(Signal::STOP);
        send(victim, signal).expect("it runs");
        until("the other ranks have given up", || {
            running.rank(0).is_none() && running.rank(1).is_none() && running.rank(3).is_none()
        });
        running.signal(Signal::CONT);
        let ended = running.wait();
        let line = verdict(ended.expect_code(code));
        for part in parts {
            assert!(line.contains(part), "{part} is missing in {line}");
        }
    }
}

#[test]
fn a_rank_in_a_pid_namespace_of_its_own_is_seen_stopped_and_named_by_its_number_outside() {
    let apart = ["--pid", "--fork", "--kill-child", "--mount-proc"];
    let allowed = Command::new("unshare").args(apart).arg("true").output();
    if !allowed.is_ok_and(|output| output.status.success()) {
        return skipped("PID namespaces may not be made here");
    }
    let args = ["run", "-n", "3", "--grace", "1", "--", "unshare"];
    let args: Vec<&str> = args
        .into_iter()
        .chain(apart)
        .chain([FAULTY, "loop"])
        .collect();
    let running = start(binary(), &args, &[("MUSTER_DEADLINE_S", "60")]);
    // Of the processes with the rank's mark the program itself, which is number 1 there.
    let numbers = |pid: i32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        line.unwrap_or_default().split_whitespace().count()
    };
    let mut victim = None;
    until("rank 1 is there", || {
        let carries = |pid: &i32| muster_harness::world::look::carries(*pid, "MUSTER_RANK=1");
        let mut all = running.processes().into_iter();
        victim = all.find(|pid| carries(pid) && numbers(*pid) > 1);
        victim.is_some()
    });
    let victim = victim.expect("found above");
    Clock::pause(Duration::from_millis(1500));
    send(victim, Signal::STOP).expect("it runs");
    let ended = running.wait();
    let line = verdict(ended.expect_code(21));
    let who = format!("pid {victim} = 1 in ");
    for part in [
        "PEER_FROZEN who=rank 1 (",
        "state T",
        "confidence=certain",
        &who,
    ] {
        assert!(line.contains(part), "{part} is missing in {line}");
    }
}
