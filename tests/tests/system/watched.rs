//! `muster run` over programs that misbehave: one verdict, the same from the launcher and from every
//! rank that is left, the right exit code, and nothing left behind.

use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use muster_comm::sync::Clock;
use muster_tests::{Ended, Leftovers, Running, binary, is_alive, send, skipped, start, until};
use rustix::process::Signal;

/// Far above what any of these faults takes to be found, far below the deadline of `SLOW`.
const PROMPT: Duration = Duration::from_secs(20);
/// Deadline of calls where the fault must be found long before it.
const SLOW: &str = "60";

const FAULTY: &str = env!("CARGO_BIN_EXE_faulty");

fn faulty(mode: &str, ranks: u32, transport: &str, deadline_s: &str) -> Running {
    let ranks = ranks.to_string();
    let args = ["run", "-n", &ranks, "--grace", "2", "--", FAULTY, mode];
    let variables = [
        ("MUSTER_TRANSPORT", transport),
        ("MUSTER_DEADLINE_S", deadline_s),
    ];
    start(binary(), &args, &variables)
}

/// Every way the ranks can talk, in worlds of some sizes.
fn everywhere(sizes: &[u32], check: impl Fn(u32, &str)) {
    let before = Leftovers::now();
    for ranks in sizes {
        for transport in ["shm", "tcp"] {
            check(*ranks, transport);
        }
    }
    before.assert_nothing_new();
}

/// The one line of the launcher, after it was found to be that of all ranks that print one.
fn line_of(ended: &Ended, survivors: usize) -> String {
    let lines: Vec<&str> = ended
        .stderr
        .lines()
        .filter(|line| line.starts_with("VERDICT "))
        .collect();
    let [line] = lines.as_slice() else {
        unreachable!(
            "{} verdicts of the launcher in\n{}\n{}",
            lines.len(),
            ended.stderr,
            ended.stdout
        );
    };
    let of_ranks: Vec<&str> = ended
        .stdout
        .lines()
        .filter_map(|printed| Some(printed.split_once("] ")?.1))
        .filter(|printed| printed.starts_with("VERDICT "))
        .collect();
    assert!(
        of_ranks.len() >= survivors,
        "{}\n{}",
        ended.stdout,
        ended.stderr
    );
    assert!(
        of_ranks.iter().all(|printed| printed == line),
        "{}\n{line}",
        ended.stdout
    );
    for field in [
        " who=",
        " what=",
        " where=",
        " since=",
        " confidence=",
        " evidence=",
        " others=",
        " next=",
    ] {
        assert!(line.contains(field), "{field} is missing in {line}");
    }
    (*line).to_owned()
}

fn expect(ended: &Ended, code: i32, survivors: u32, parts: &[&str]) {
    ended.expect_code(code);
    let line = line_of(ended, survivors as usize);
    for part in parts {
        assert!(line.contains(part), "{part} is missing in {line}");
    }
}

#[test]
fn a_program_that_works_is_left_alone() {
    everywhere(&[2, 8], |ranks, transport| {
        for mode in ["well", "late", "branches", "asynclate"] {
            let ended = faulty(mode, ranks, transport, SLOW).wait();
            ended.expect_code(0);
            assert!(!ended.stderr.contains("VERDICT"), "{}", ended.stderr);
        }
    });
}

#[test]
fn an_order_inversion_is_a_deadlock_with_both_sides() {
    everywhere(&[2, 4, 8], |ranks, transport| {
        // Waiting for an asynchronous call is waiting; having started one is not.
        for mode in ["inversion", "async"] {
            let ended = faulty(mode, ranks, transport, SLOW).wait();
            assert!(ended.elapsed < PROMPT, "{:?}", ended.elapsed);
            expect(
                &ended,
                24,
                ranks,
                &[
                    "VERDICT DEADLOCK",
                    "on g1 (",
                    "on g2 (",
                    "faulty.rs:",
                    "confidence=certain",
                ],
            );
        }
    });
}

#[test]
fn receives_in_a_ring_are_a_deadlock() {
    everywhere(&[2, 4], |ranks, transport| {
        let ended = faulty("ring", ranks, transport, SLOW).wait();
        assert!(ended.elapsed < PROMPT, "{:?}", ended.elapsed);
        expect(&ended, 24, ranks, &["VERDICT DEADLOCK", "recv #"]);
    });
}

#[test]
fn a_message_that_nobody_receives_is_a_mismatch_where_the_program_ends() {
    for mode in ["unreceived", "halfbatch"] {
        everywhere(&[2, 4], |ranks, transport| {
            let ended = faulty(mode, ranks, transport, SLOW).wait();
            let (sender, odd) = match mode {
                // In a ring of two both neighbours are the one rank.
                "halfbatch" if ranks == 4 => (0, 3),
                _ => (ranks - 2, ranks - 1),
            };
            // The receiver says which message. Where it leaves before the message comes, the sender tells of it.
            let by_sender =
                format!("rank {sender} has sent rank {odd} messages that still lie unread");
            let sent = format!("rank {sender} has sent rank {odd} message ");
            let who = format!("who=rank {odd} ");
            let what = if ended.stderr.contains(&by_sender) {
                [by_sender.as_str(), "ended the group without receiving them"]
            } else {
                [sent.as_str(), "i32[8]"]
            };
            let parts = [
                "VERDICT MISMATCH",
                what[0],
                what[1],
                &who,
                "confidence=likely",
            ];
            expect(&ended, 30, 1, &parts);
        });
    }
}

#[test]
fn a_message_over_tcp_to_a_rank_that_has_destroyed_the_group_is_told() {
    let before = Leftovers::now();
    for ranks in [2, 4] {
        let odd = format!("who=rank {} ", ranks - 1);
        // The message left before anybody could know, so it is told at the end.
        let ended = faulty("sentlate", ranks, "tcp", SLOW).wait();
        let lost = "ended the group without receiving them";
        expect(&ended, 30, 1, &["VERDICT MISMATCH", lost, &odd]);
        // Without a connection from before, the call itself finds nobody.
        let ended = faulty("sentunmet", ranks, "tcp", SLOW).wait();
        expect(&ended, 22, 1, &["VERDICT NOT_JOINED", &odd]);
    }
    before.assert_nothing_new();
}

#[test]
fn ranks_of_another_user_are_told_who_may_read_the_secret() {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    if !is_root
        || std::process::Command::new("setpriv")
            .arg("-V")
            .output()
            .is_err()
    {
        skipped("only root becomes another user, by setpriv");
        return;
    }
    let change = [
        "setpriv",
        "--reuid=65534",
        "--clear-groups",
        "--",
        "/bin/sh",
        "-c",
    ];
    let args = [
        &["run", "-n", "2", "--"],
        &change[..],
        &["exec \"$0\" well", FAULTY],
    ]
    .concat();
    let ended = start(binary(), &args, &[]).wait();
    let said = "OtherUser { owner: 0, me: 65534 }";
    assert!(
        ended.stdout.contains(said),
        "{}\n{}",
        ended.stdout,
        ended.stderr
    );
}

#[test]
fn a_limit_on_file_size_is_named_and_kills_nobody() {
    let limited = |kib: &str, script: &str| {
        let script = format!("ulimit -f {kib}; exec {FAULTY} {script}");
        let args = ["run", "-n", "2", "--", "sh", "-c", &script];
        start(binary(), &args, &[("MUSTER_DEADLINE_S", SLOW)]).wait()
    };
    // Too small for a board and for shared memory of any use.
    let ended = limited("512", "well");
    let parts = [
        "VERDICT RESOURCE",
        "who=rank 0 (",
        "(RLIMIT_FSIZE, ulimit -f) is ",
    ];
    expect(&ended, 60, 2, &parts);
    // Enough for a small heap.
    limited("200000", "well").expect_code(0);
}

#[test]
fn an_object_of_another_type_is_a_mismatch_of_its_rank() {
    for mode in ["object", "gatherobject"] {
        everywhere(&[2, 4], |ranks, transport| {
            let ended = faulty(mode, ranks, transport, SLOW).wait();
            let who = format!("who=rank {} ", ranks - 1);
            expect(
                &ended,
                30,
                ranks,
                &["VERDICT MISMATCH", &who, "dtype differs"],
            );
        });
    }
}

#[test]
fn ranks_that_each_reduce_to_the_other_are_a_mismatch_of_roots() {
    everywhere(&[2], |ranks, transport| {
        let ended = faulty("crossed", ranks, transport, SLOW).wait();
        let parts = ["VERDICT MISMATCH", "root differs", "root 0", "root 1"];
        expect(&ended, 30, 1, &parts);
    });
}

#[test]
fn who_destroyed_a_group_is_named_and_not_the_circle_that_comes_of_it() {
    everywhere(&[2, 4], |ranks, transport| {
        let ended = faulty("destroyed", ranks, transport, SLOW).wait();
        assert!(ended.elapsed < PROMPT, "{:?}", ended.elapsed);
        let who = format!("who=rank {} (", ranks - 1);
        expect(
            &ended,
            22,
            ranks - 1,
            &[
                "VERDICT NOT_JOINED",
                &who,
                "where=destroyed group g1 after its call #1, in all_reduce #4 on world at ",
                "confidence=certain",
            ],
        );
    });
}

#[test]
fn who_never_enters_is_named_at_the_deadline() {
    everywhere(&[2, 4], |ranks, transport| {
        let ended = faulty("never", ranks, transport, "2").wait();
        let who = format!("who=rank {} (", ranks - 1);
        expect(
            &ended,
            22,
            ranks,
            &[
                "VERDICT NOT_JOINED",
                &who,
                "running user code, last finished all_reduce #3 on world at",
            ],
        );
        // The launcher says it, and no rank does.
        let is_suspect =
            |line: &&str| line.contains("SUSPECT ") && line.contains(" in all_reduce #4 on world ");
        let suspects = ended.stderr.lines().filter(is_suspect);
        assert_eq!(suspects.count(), 1, "{}", ended.stderr);
    });
}

/// The names of functions come in time where the machine is not too busy: one of a few runs must have them.
#[test]
fn who_never_enters_tells_where_it_is() {
    let told = |_: u32| {
        let ended = faulty("never", 2, "auto", "3").wait();
        let line = line_of(&ended, 2);
        line.contains("rank 1 is in ") && line.contains("main (faulty.rs:")
    };
    assert!((0..5).any(told), "no stack in five verdicts");
}

#[test]
fn a_killed_rank_and_one_that_returns_early_are_dead() {
    everywhere(&[2, 4], |ranks, transport| {
        let who = format!("who=rank {} (", ranks - 1);
        let mut run = faulty("loop", ranks, transport, SLOW);
        let pid = run.await_rank(ranks - 1);
        Clock::pause(Duration::from_millis(700));
        send(pid, Signal::KILL).expect("it runs");
        let ended = run.wait();
        assert!(ended.elapsed < PROMPT, "{:?}", ended.elapsed);
        expect(&ended, 20, 0, &["VERDICT PEER_DEAD", &who]);
        let ended = faulty("early", ranks, transport, SLOW).wait();
        assert!(ended.elapsed < PROMPT, "{:?}", ended.elapsed);
        expect(
            &ended,
            20,
            ranks - 1,
            &[
                "VERDICT PEER_DEAD",
                &who,
                "exited with code 0 before its work was done",
            ],
        );
    });
}

#[test]
fn a_rank_that_runs_another_program_now_has_not_ended() {
    everywhere(&[2, 4], |ranks, transport| {
        let ended = faulty("execs", ranks, transport, SLOW).wait();
        assert!(ended.elapsed < PROMPT, "{:?}", ended.elapsed);
        let who = format!("who=rank {} (", ranks - 1);
        let parts = [
            "VERDICT NOT_JOINED",
            &who,
            "its process goes on (it runs sleep)",
        ];
        expect(&ended, 22, ranks - 1, &parts);
    });
}

#[test]
fn a_stopped_rank_is_frozen_and_one_that_goes_on_is_nothing() {
    everywhere(&[2, 4], |ranks, transport| {
        let mut run = faulty("loop", ranks, transport, SLOW);
        let pid = run.await_rank(ranks - 1);
        Clock::pause(Duration::from_millis(700));
        send(pid, Signal::STOP).expect("it runs");
        let ended = run.wait();
        assert!(ended.elapsed < PROMPT, "{:?}", ended.elapsed);
        let who = format!("who=rank {} (", ranks - 1);
        expect(
            &ended,
            21,
            ranks - 1,
            &["VERDICT PEER_FROZEN", &who, "state T"],
        );

        let mut run = faulty("late", ranks, transport, SLOW);
        let pids: Vec<i32> = (0..ranks).map(|rank| run.await_rank(rank)).collect();
        Clock::pause(Duration::from_millis(300));
        for pid in &pids {
            // All of them: the whole machine was suspended. One may have ended by now.
            let _ = send(*pid, Signal::STOP);
        }
        Clock::pause(Duration::from_secs(3));
        for pid in &pids {
            let _ = send(*pid, Signal::CONT);
        }
        run.wait().expect_code(0);
    });
}

#[test]
fn calls_and_groups_that_differ_are_a_mismatch() {
    everywhere(&[2, 4], |ranks, transport| {
        let ended = faulty("members", ranks, transport, SLOW).wait();
        assert!(ended.elapsed < PROMPT, "{:?}", ended.elapsed);
        expect(
            &ended,
            30,
            ranks,
            &["VERDICT MISMATCH", "group layout: ep1 = "],
        );
    });
    everywhere(&[4], |ranks, transport| {
        // Both sides with all their ranks, over messages too, where each rank sees only some of them.
        let table: [(&str, &[&str]); 3] = [
            (
                "skip",
                &[
                    "collective differs: ranks 0-2 have all_reduce(i32[5], sum) at ",
                    "rank 3 has broadcast(i32[7], root 0) at ",
                    "see whether rank 3 left out the call at ",
                ],
            ),
            (
                "splits",
                &[
                    "rank 3 has 6 elements for rank 0",
                    "rank 0 has 4 expected from rank 3",
                ],
            ),
            (
                "leftout",
                &["sequence differs: ", "rank 3 has skipped it", "rank 3 at "],
            ),
        ];
        for (mode, words) in table {
            let ended = faulty(mode, ranks, transport, SLOW).wait();
            assert!(ended.elapsed < PROMPT, "{:?}", ended.elapsed);
            let mut parts = vec!["VERDICT MISMATCH", "who=rank 3 ("];
            parts.extend(words);
            expect(&ended, 30, ranks, &parts);
        }
    });
}

#[test]
fn nothing_outlives_a_launcher_that_is_killed() {
    let before = Leftovers::now();
    let mut run = faulty("loop", 4, "auto", SLOW);
    let ranks: Vec<i32> = (0..4).map(|rank| run.await_rank(rank)).collect();
    run.signal(Signal::KILL);
    until("all ranks are gone", || {
        ranks.iter().all(|pid| !is_alive(*pid))
    });
    assert_eq!(run.wait().code, None);
    before.assert_nothing_new();
}

#[test]
fn what_ranks_have_started_does_not_outlive_a_launcher_that_is_killed() {
    let before = Leftovers::now();
    // One child in the rank's process group, and one that has left it.
    let script = format!("sleep 600 & setsid sleep 600 & exec {FAULTY} loop");
    let args = ["run", "-n", "3", "--", "/bin/sh", "-c", &script];
    let run = start(binary(), &args, &[]);
    until("ranks and their children are there", || {
        run.processes().len() >= 9
    });
    run.signal(Signal::KILL);
    until("all are gone", || run.processes().is_empty());
    assert_eq!(run.wait().code, None);
    before.assert_nothing_new();
}

/// A control group with this much memory, where this process may make one; it goes when this does.
struct Cage(std::path::PathBuf);

impl Cage {
    fn make(bytes: u64) -> Option<Self> {
        let text = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let (folder, limit) = text.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            let path = path.trim_start_matches('/');
            match controllers {
                "memory" => Some((
                    format!("/sys/fs/cgroup/memory/{path}"),
                    "memory.limit_in_bytes",
                )),
                "" if std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists() => {
                    Some((format!("/sys/fs/cgroup/{path}"), "memory.max"))
                }
                _ => None,
            }
        })?;
        let own = std::path::Path::new(&folder).join(format!("muster-test-{}", std::process::id()));
        std::fs::create_dir(&own).ok()?;
        let cage = Self(own);
        std::fs::write(cage.0.join(limit), bytes.to_string()).ok()?;
        Some(cage)
    }
}

impl Drop for Cage {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn a_rank_that_the_kernel_kills_for_memory_is_told_as_that() {
    let Some(cage) = Cage::make(64 << 20) else {
        skipped("no memory control group can be made here");
        return;
    };
    let procs = cage.0.join("cgroup.procs");
    let script = format!(
        "test $MUSTER_RANK = 1 && echo $$ > {}; exec {FAULTY} hog",
        procs.display()
    );
    let args = [
        "run", "-n", "2", "--grace", "1", "--", "/bin/sh", "-c", &script,
    ];
    let ended = start(binary(), &args, &[]).wait();
    expect(
        &ended,
        20,
        1,
        &[
            "VERDICT PEER_DEAD",
            "who=rank 1 (",
            "killed by the kernel for want of memory (",
        ],
    );
}

#[test]
fn a_request_to_stop_ends_the_ranks_and_says_so() {
    let mut run = faulty("loop", 2, "auto", SLOW);
    let _ = run.await_rank(1);
    Clock::pause(Duration::from_millis(300));
    run.signal(Signal::INT);
    let ended = run.wait();
    ended.expect_code(80);
    assert!(ended.stderr.contains("INTERRUPTED"), "{}", ended.stderr);
}

#[test]
fn programs_without_the_library_are_watched_too() {
    let script = "echo rank $RANK of $WORLD_SIZE at $MASTER_ADDR; sleep 60 & test $RANK = 0 && sleep 30; exit 7";
    let run = start(
        binary(),
        &[
            "run", "-n", "2", "--grace", "1", "--", "/bin/sh", "-c", script,
        ],
        &[],
    );
    let ended = run.wait();
    expect(
        &ended,
        20,
        0,
        &["VERDICT PEER_DEAD", "who=rank 1 ", "exited with code 7"],
    );
    assert!(
        ended.stdout.contains("[rank 1] rank 1 of 2 at 127.0.0.1"),
        "{}",
        ended.stdout
    );
}

#[test]
fn dumps_of_a_stuck_world_lead_to_its_verdict() {
    let mut run = faulty("never", 2, "auto", SLOW);
    let pids: Vec<i32> = (0..2).map(|rank| run.await_rank(rank)).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let mut verdict = String::new();
    until("rank 0 is seen to wait", || {
        let mut files = Vec::new();
        for pid in &pids {
            let dump = start(binary(), &["dump", &pid.to_string()], &[]).wait();
            let file = folder.path().join(format!("{pid}.json"));
            std::fs::write(&file, dump.stdout).expect("a file");
            files.push(file.to_string_lossy().into_owned());
        }
        let args: Vec<&str> = std::iter::once("explain")
            .chain(files.iter().map(String::as_str))
            .collect();
        let ended = start(binary(), &args, &[]).wait();
        verdict = ended.stdout;
        ended.code == Some(22)
    });
    assert!(
        verdict.starts_with("VERDICT NOT_JOINED who=rank 1 ("),
        "{verdict}"
    );
    run.signal(Signal::INT);
    run.wait().expect_code(80);
}
