//! Boards of a job of three ranks, made up, and what is said of them.

use super::board::Mark;
use super::snapshot::{Call, Group, Process};
use super::{DeviceError, End, Jobs, Watched};
use crate::error::verdict::{Class, Confidence, Verdict};
use crate::rendezvous::DownReason;
use crate::types::{Collective, DType, ReduceOp};
use crate::watch::process::{ProcessFacts, Sight};
use crate::watch::report::CallCode;

const WORLD: u64 = 0x11;
const OTHER: u64 = 0x22;
const STREAM: u64 = 0x77;
const LIMIT_MS: u64 = 3000;

fn all_reduce(count: u64) -> CallCode {
    let word =
        Collective::AllReduce as u64 | (DType::F32 as u64) << 8 | (ReduceOp::Sum as u64) << 16;
    CallCode { word, count }
}

/// A job whose ranks have two communicators of all.
struct Job {
    ranks: Vec<Watched>,
    jobs: Jobs,
    now_ns: u64,
}

fn group(key: u64, name: &str, rank: u32) -> Group {
    Group {
        key,
        name: name.to_owned(),
        size: 3,
        rank,
        ..Group::default()
    }
}

fn runs() -> Sight {
    Sight::Seen(ProcessFacts {
        state: 'S',
        ..ProcessFacts::default()
    })
}

impl Job {
    fn new() -> Self {
        let rank = |rank: u32| Watched {
            process: Process {
                pid: 100 + rank,
                world_rank: Some(rank),
                world_size: Some(3),
                groups: vec![group(WORLD, "world", rank), group(OTHER, "other", rank)],
                ..Process::default()
            },
            sight: runs(),
            has_exited: false,
            end: None,
        };
        Self {
            ranks: (0..3).map(rank).collect(),
            jobs: Jobs::on("n1"),
            now_ns: 1_000_000_000,
        }
    }

    /// A rank makes a call of which nothing more is known than that the vendor's library took it.
    fn call(&mut self, rank: usize, key: u64, code: CallCode) -> &mut Call {
        let groups = &mut self.ranks[rank].process.groups;
        let order = groups
            .iter()
            .map(|group| group.calls.len() as u64)
            .sum::<u64>()
            + 1;
        let group = groups
            .iter_mut()
            .find(|group| group.key == key)
            .expect("a group");
        group.entered += 1;
        group.calls.push(Call {
            order,
            seq: group.entered,
            code,
            stream: STREAM,
            entered_ns: self.now_ns,
            returned_ns: Some(self.now_ns + 1000),
            ..Call::default()
        });
        group.calls.last_mut().expect("the call")
    }

    fn all_call(&mut self, key: u64) {
        for rank in 0..3 {
            self.call(rank, key, all_reduce(8));
        }
    }

    fn look(&mut self) -> Option<Verdict> {
        self.now_ns += 200_000_000;
        self.jobs
            .judge(&self.ranks, self.now_ns, 1_000_000, LIMIT_MS)
    }

    /// What is said within twice the limit, and after how many milliseconds.
    fn verdict(&mut self) -> Option<(Verdict, u64)> {
        let start = self.now_ns;
        (0..30).find_map(|_| Some((self.look()?, (self.now_ns - start) / 1_000_000)))
    }

    /// A process ends; its board stays unless it exits.
    fn end(&mut self, rank: usize, how: DownReason, seen_ms: u64) {
        let one = &mut self.ranks[rank];
        one.sight = Sight::Ended;
        one.has_exited = matches!(how, DownReason::Exited { .. });
        let seen_ns = self.now_ns + seen_ms * 1_000_000;
        one.end = Some(End { how, seen_ns });
    }

    /// A launcher ends ranks 0 and 2 because rank 1 has ended; it looks so long after that.
    fn is_ended_by_launcher(&mut self, after_ms: u64) {
        self.end(0, killed(15), after_ms);
        self.end(2, killed(15), after_ms + 1);
    }

    /// What is said when the job is over.
    fn over(&mut self) -> Option<Verdict> {
        self.jobs.ended(&self.ranks, self.now_ns, 1_000_000)
    }

    fn expect(&mut self, class: Class, blamed: &[u32]) -> (Verdict, u64) {
        let (verdict, after_ms) = self.verdict().expect("a verdict");
        assert_eq!(
            (verdict.class, verdict.blamed.as_slice()),
            (class, blamed),
            "{}",
            verdict.line()
        );
        (verdict, after_ms)
    }
}

#[test]
fn nothing_is_said_where_all_have_made_the_same_calls_whether_their_end_is_known_or_not() {
    let mut job = Job::new();
    assert_eq!(job.verdict(), None);
    job.all_call(WORLD);
    job.all_call(OTHER);
    assert_eq!(job.verdict(), None, "no end is known");
    job.ranks[1].process.groups[0].calls[0].is_complete = true;
    assert_eq!(job.verdict(), None, "one end is known");
}

#[test]
fn calls_that_differ_are_told_at_once() {
    let mut job = Job::new();
    job.all_call(WORLD);
    for (rank, count) in [(0, 8), (1, 8), (2, 9)] {
        job.call(rank, WORLD, all_reduce(count));
    }
    let (verdict, after_ms) = job.expect(Class::Mismatch, &[2]);
    assert!(after_ms <= 200 && verdict.confidence == Confidence::Certain);
    assert!(
        verdict.place.contains("count differs"),
        "{}",
        verdict.line()
    );
}

#[test]
fn a_rank_that_has_not_made_a_call_is_named_at_the_limit() {
    let mut job = Job::new();
    job.all_call(WORLD);
    job.call(0, WORLD, all_reduce(8));
    job.call(2, WORLD, all_reduce(8));
    let (verdict, after_ms) = job.expect(Class::NotJoined, &[1]);
    assert!(after_ms >= LIMIT_MS);
    assert!(
        verdict.place.contains("last made all_reduce #1 on world"),
        "{}",
        verdict.line()
    );
}

#[test]
fn a_captured_call_keeps_nobody_waiting() {
    let mut job = Job::new();
    job.call(0, WORLD, all_reduce(8)).is_captured = true;
    assert_eq!(job.verdict(), None);
}

#[test]
fn ranks_that_use_two_communicators_in_other_orders_on_a_stream_are_a_circle() {
    let mut job = Job::new();
    for (rank, keys) in [
        (0, [WORLD, OTHER]),
        (1, [OTHER, WORLD]),
        (2, [WORLD, OTHER]),
    ] {
        for key in keys {
            job.call(rank, key, all_reduce(8));
        }
        // The event behind the first call has not come.
        let groups = &mut job.ranks[rank].process.groups;
        let first = groups
            .iter_mut()
            .flat_map(|group| &mut group.calls)
            .min_by_key(|call| call.order);
        first.expect("a call").mark = Mark::Begun;
    }
    let (verdict, _) = job.expect(Class::Deadlock, &[0, 1, 2]);
    assert_eq!(
        verdict.confidence,
        Confidence::Certain,
        "{}",
        verdict.line()
    );
}

#[test]
fn a_circle_that_rests_on_what_programs_do_on_their_hosts_is_likely_only() {
    let mut job = Job::new();
    job.call(0, WORLD, all_reduce(8));
    job.call(2, WORLD, all_reduce(8));
    job.call(1, OTHER, all_reduce(8)).stream = STREAM + 1;
    let (verdict, _) = job.expect(Class::Deadlock, &[0, 1, 2]);
    assert_eq!(verdict.confidence, Confidence::Likely, "{}", verdict.line());
}

#[test]
fn a_process_that_has_ended_or_is_stopped_is_told_without_the_limit() {
    let mut job = Job::new();
    job.call(0, WORLD, all_reduce(8));
    job.call(1, WORLD, all_reduce(8));
    job.ranks[2].sight = Sight::Ended;
    let (verdict, after_ms) = job.expect(Class::PeerDead, &[2]);
    assert!(after_ms < LIMIT_MS, "{}", verdict.line());
    let mut job = Job::new();
    job.call(0, WORLD, all_reduce(8));
    job.call(1, WORLD, all_reduce(8));
    job.ranks[2].sight = Sight::Seen(ProcessFacts {
        state: 'T',
        ..ProcessFacts::default()
    });
    let (verdict, after_ms) = job.expect(Class::PeerFrozen, &[2]);
    assert!(after_ms < LIMIT_MS, "{}", verdict.line());
}

#[test]
fn a_process_that_ended_after_it_had_destroyed_its_communicators_is_no_culprit() {
    let mut job = Job::new();
    job.all_call(WORLD);
    job.ranks[2]
        .process
        .groups
        .iter_mut()
        .for_each(|group| group.is_gone = true);
    job.ranks[2].sight = Sight::Ended;
    assert_eq!(job.verdict(), None);
}

#[test]
fn a_rank_that_exits_after_its_last_call_is_no_culprit_while_the_device_of_another_is_busy() {
    let mut job = Job::new();
    job.all_call(WORLD);
    job.ranks[0].process.groups[0].calls[0].mark = Mark::Begun;
    for rank in [1, 2] {
        job.ranks[rank].sight = Sight::Ended;
        job.ranks[rank].has_exited = true;
    }
    let found = job.verdict().map(|(verdict, _)| verdict);
    assert!(found.is_none_or(|verdict| verdict.blamed.is_empty()));
}

#[test]
fn a_call_that_all_made_and_no_device_completes_is_the_fault_of_no_rank() {
    let mut job = Job::new();
    for rank in 0..3 {
        job.call(rank, WORLD, all_reduce(8)).mark = Mark::Begun;
    }
    let (verdict, after_ms) = job.verdict().expect("a verdict");
    assert_eq!(verdict.class, Class::Link, "{}", verdict.line());
    assert!(after_ms >= LIMIT_MS);
}

#[test]
fn who_does_not_come_to_the_creation_of_a_communicator_is_named() {
    let mut job = Job::new();
    for rank in 0..2 {
        job.ranks[rank as usize].process.groups = vec![Group {
            is_creating: true,
            ..group(WORLD, "", rank)
        }];
    }
    job.ranks.truncate(2);
    let (verdict, _) = job.expect(Class::NotJoined, &[2]);
    assert!(
        verdict
            .what
            .contains("the creation of a communicator of 3 ranks"),
        "{}",
        verdict.line()
    );
    assert!(
        verdict.place.contains("has created no communicator"),
        "{}",
        verdict.line()
    );
}

fn killed(signal: i32) -> DownReason {
    DownReason::Killed { signal }
}

fn exited(code: i32) -> DownReason {
    DownReason::Exited { code }
}

#[test]
fn who_ended_first_is_named_once_a_launcher_has_ended_the_others() {
    for (how, text, confidence) in [
        (killed(9), "was killed by signal 9", Confidence::Certain),
        (killed(11), "was killed by signal 11", Confidence::Certain),
        (exited(3), "exited with code 3", Confidence::Likely),
    ] {
        // A launcher may look at this very moment.
        let mut job = Job::new();
        job.all_call(WORLD);
        job.call(0, WORLD, all_reduce(8));
        job.call(2, WORLD, all_reduce(8));
        job.end(1, how, 0);
        job.is_ended_by_launcher(20);
        let verdict = job.over().expect("a verdict");
        assert_eq!(
            (verdict.class, &verdict.blamed[..]),
            (Class::PeerDead, &[1][..])
        );
        assert_eq!(verdict.confidence, confidence);
        let line = verdict.line();
        assert!(
            line.contains(text) && line.contains("what=all_reduce #2 on world"),
            "{line}"
        );
    }
}

#[test]
fn a_process_that_crashes_after_it_has_destroyed_its_communicators_ended_badly() {
    let mut job = Job::new();
    job.ranks[1]
        .process
        .groups
        .iter_mut()
        .for_each(|group| group.is_gone = true);
    job.end(1, killed(6), 0);
    job.is_ended_by_launcher(150);
    let verdict = job.over().expect("a verdict");
    assert_eq!(
        (verdict.class, &verdict.blamed[..]),
        (Class::PeerDead, &[1][..])
    );
    assert_eq!(verdict.confidence, Confidence::Likely, "its own decision");
}

#[test]
fn who_ended_first_is_named_also_where_nobody_waited_for_it() {
    let mut job = Job::new();
    job.all_call(WORLD);
    job.end(1, killed(9), 0);
    job.is_ended_by_launcher(150);
    let verdict = job.over().expect("a verdict");
    assert_eq!(
        (verdict.class, &verdict.blamed[..]),
        (Class::PeerDead, &[1][..])
    );
    assert!(
        verdict.line().contains("what=no call that is known of"),
        "{}",
        verdict.line()
    );
}

#[test]
fn of_processes_that_ended_together_all_or_none_are_named() {
    let mut job = Job::new();
    job.end(0, killed(9), 0);
    job.end(1, killed(11), 50);
    job.end(2, killed(15), 300);
    let verdict = job.over().expect("a verdict");
    assert_eq!(verdict.blamed, [0, 1]);
    assert_eq!(verdict.confidence, Confidence::Likely);
    // Somebody killed all of them.
    job.end(2, killed(9), 60);
    assert_eq!(job.over(), None);
}

#[test]
fn nobody_is_named_where_somebody_ended_the_job_or_the_end_was_not_seen() {
    for ends in [
        [(killed(2), 0), (exited(1), 1), (exited(1), 2)],
        [(exited(1), 0), (killed(2), 8), (killed(2), 9)],
        [(killed(15), 0), (killed(9), 1), (killed(15), 1)],
        [(DownReason::Ended, 0), (exited(1), 1), (killed(15), 200)],
        [(exited(1), 0), (exited(1), 200), (exited(1), 400)],
        [(exited(0), 0), (exited(0), 200), (exited(0), 400)],
    ] {
        let mut job = Job::new();
        job.all_call(WORLD);
        let said = format!("{ends:?}");
        for (rank, (how, seen_ms)) in ends.into_iter().enumerate() {
            job.end(rank, how, seen_ms);
        }
        assert_eq!(job.over(), None, "{said}");
    }
}

#[test]
fn a_call_that_its_device_has_not_begun_waits_for_what_is_ahead_of_it() {
    let mut job = Job::new();
    for rank in 0..2 {
        job.call(rank, WORLD, all_reduce(8)).mark = Mark::Begun;
    }
    job.call(2, WORLD, all_reduce(8)).mark = Mark::Behind;
    let (verdict, _) = job.expect(Class::NotJoined, &[2]);
    assert!(
        verdict.place.contains("its device has not begun the call"),
        "{}",
        verdict.line()
    );
    assert_eq!(verdict.confidence, Confidence::Likely);
}

#[test]
fn an_error_of_a_device_is_told_whether_its_process_goes_on_or_gives_up() {
    for (code, class) in [(507_010, Class::Resource), (507_057, Class::Link)] {
        let mut job = Job::new();
        job.all_call(WORLD);
        let error = DeviceError {
            code,
            key: None,
            seen_ns: job.now_ns,
        };
        job.ranks[1].process.error = Some(error);
        let (verdict, after_ms) = job.expect(class, &[1]);
        assert!(after_ms < LIMIT_MS, "{}", verdict.line());
        let told = format!("failed with {code} (ACL_ERROR_RT_");
        assert!(verdict.line().contains(&told), "{}", verdict.line());
        // What follows is no cause.
        job.jobs = Jobs::on("n1");
        job.end(1, killed(6), 300);
        job.end(0, killed(15), 500);
        job.end(2, killed(15), 501);
        let verdict = job.over().expect("a verdict");
        assert_eq!((verdict.class, &verdict.blamed[..]), (class, &[1][..]));
    }
}

#[test]
fn an_error_of_a_device_that_may_follow_from_an_end_is_not_told_nor_is_a_timeout() {
    let mut job = Job::new();
    job.all_call(WORLD);
    job.end(0, killed(9), 0);
    let error = |code, seen_ns| DeviceError {
        code,
        key: Some(WORLD),
        seen_ns,
    };
    job.ranks[1].process.error = Some(error(507_057, job.now_ns + 50_000_000));
    job.end(1, killed(6), 300);
    job.end(2, killed(15), 500);
    let verdict = job.over().expect("a verdict");
    assert_eq!(verdict.class, Class::PeerDead);
    assert_eq!(verdict.blamed, [0]);
    let mut job = Job::new();
    job.all_call(WORLD);
    // HCCL_E_TIMEOUT: somebody else is the cause.
    job.ranks[1].process.error = Some(error(9, job.now_ns));
    assert_eq!(job.verdict(), None);
}
