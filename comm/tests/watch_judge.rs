//! The judge on planted scenes: who is blamed, and that nobody is who merely waits.

use muster_comm::watch::judge::{Fate, Finding, Member, Question, Scene, judge};
use muster_comm::watch::process::ProcessFacts;
use muster_comm::watch::report::{CallCode, GroupState, InFlight, Report, Wait};
use muster_comm::watch::verdict::{CallId, Class, Verdict};
use proptest::prelude::*;

const ALL_REDUCE: u64 = 4;
const RECV: u64 = 13;
const SEND: u64 = 20;

/// A world of ranks that run code of their own, with groups as they are added.
struct Plant {
    scene: Scene,
}

impl Plant {
    fn new(ranks: u32) -> Self {
        let member = |rank| Member {
            host: "n1".to_owned(),
            pid: 1000 + rank,
            report: Some(Report {
                rank,
                world_size: ranks,
                threads: 1,
                wall_ms: 100_000,
                ..Report::default()
            }),
            ..Member::default()
        };
        Self {
            scene: Scene {
                members: (0..ranks).map(member).collect(),
            },
        }
    }

    fn report(&mut self, rank: u32) -> &mut Report {
        let member = &mut self.scene.members[rank as usize];
        member.report.as_mut().expect("planted")
    }

    /// All members have the group and have entered this many calls.
    fn group(&mut self, key: u64, name: &str, members: &[u32], entered: u64) {
        for rank in members {
            self.report(*rank).groups.push(GroupState {
                key,
                name: name.to_owned(),
                members: members.to_vec(),
                size: u32::try_from(members.len()).expect("small"),
                entered,
                thread: 1,
                version: 2,
                ..GroupState::default()
            });
        }
    }

    fn call(&mut self, rank: u32, key: u64, collective: u64, missing: &[u32]) {
        let groups = &mut self.report(rank).groups;
        let group = groups
            .iter_mut()
            .find(|group| group.key == key)
            .expect("planted");
        let is_collective = collective == ALL_REDUCE;
        let seq = group.entered + 1;
        if is_collective {
            group.entered = seq;
        }
        group.version += 2;
        group.call = Some(InFlight {
            seq,
            call: CallCode {
                word: collective,
                count: 8,
            },
            site: format!("train.rs:{key}"),
            age_ms: 2000,
            wait: Some(Wait {
                missing: missing.to_vec(),
                checks: 5,
                age_ms: 1990,
            }),
        });
    }

    fn waits(&mut self, rank: u32, key: u64, missing: &[u32]) {
        self.call(rank, key, ALL_REDUCE, missing);
    }

    /// The scene before this one showed the same, with threads that looked less often.
    fn confirm(&mut self) {
        for member in &mut self.scene.members {
            let mut before = member.report.clone();
            for group in before.iter_mut().flat_map(|report| &mut report.groups) {
                if let Some(wait) = group.call.as_mut().and_then(|call| call.wait.as_mut()) {
                    wait.checks -= 1;
                }
            }
            member.before = before;
        }
    }

    fn fate(&mut self, rank: u32, how: &str, orderly: bool, order: u64) {
        self.scene.members[rank as usize].fate = Some(Fate {
            how: how.to_owned(),
            orderly,
            order,
            hint: "read its output".to_owned(),
        });
    }

    fn overdue(&self, rank: u32, key: u64) -> Verdict {
        let report = self.scene.members[rank as usize]
            .report
            .as_ref()
            .expect("planted");
        let call = report
            .group(key)
            .and_then(|group| group.call.as_ref())
            .expect("it waits");
        let call = CallId { key, seq: call.seq };
        verdict(judge(&self.scene, Question::Overdue { rank, call }))
    }
}

#[track_caller]
fn verdict(finding: Finding) -> Verdict {
    let Finding::Verdict(verdict) = finding else {
        unreachable!("no verdict: {finding:?}");
    };
    *verdict
}

#[test]
fn who_never_came_is_named_and_the_others_wait() {
    let mut plant = Plant::new(4);
    plant.group(7, "tp0", &[0, 1, 2, 3], 183);
    for rank in [0, 1, 3] {
        plant.waits(rank, 7, &[2]);
    }
    assert_eq!(judge(&plant.scene, Question::Waiting), Finding::Nothing);
    let verdict = plant.overdue(1, 7);
    assert_eq!(
        (verdict.class, verdict.blamed.as_slice()),
        (Class::NotJoined, [2].as_slice())
    );
    let line = verdict.line();
    for part in [
        "who=rank 2 (n1, pid 1002; tp0)",
        "what=all_reduce #184 on tp0",
        "where=running user code",
        "others=3 waiting: ranks 0,1,3 in all_reduce #184 on tp0",
    ] {
        assert!(line.contains(part), "{line}");
    }
    assert_eq!(verdict.ends, [CallId { key: 7, seq: 184 }]);
}

#[test]
fn blame_goes_through_groups_to_the_rank_that_waits_for_nobody() {
    let mut plant = Plant::new(5);
    plant.group(1, "a", &[0, 1], 0);
    plant.group(2, "b", &[1, 2], 0);
    plant.group(3, "c", &[3, 4], 0);
    plant.waits(0, 1, &[1]);
    plant.waits(1, 2, &[2]);
    plant.waits(3, 3, &[4]);
    let verdict = plant.overdue(0, 1);
    assert_eq!(
        (verdict.class, verdict.blamed.as_slice()),
        (Class::NotJoined, [2].as_slice())
    );
    // The call that misses the culprit ends. Rank 1 may come to the other one after all.
    assert_eq!(verdict.ends, [CallId { key: 2, seq: 1 }]);
    assert!(
        verdict.others.contains("rank 0 in all_reduce #1 on a"),
        "{verdict}"
    );
}

#[test]
fn order_inversion_on_two_groups_is_a_cycle_with_both_call_sites() {
    let mut plant = Plant::new(5);
    plant.group(1, "g1", &[0, 1, 2, 3], 0);
    plant.group(2, "g2", &[0, 1, 2, 3], 0);
    plant.group(3, "outer", &[0, 4], 0);
    for rank in [0, 1, 3] {
        plant.waits(rank, 1, &[2]);
    }
    plant.waits(2, 2, &[0, 1, 3]);
    plant.waits(4, 3, &[0]);
    // Seen once, the waits may never have been there at one time.
    assert_eq!(judge(&plant.scene, Question::Waiting), Finding::Again(0));
    plant.confirm();
    let verdict = verdict(judge(&plant.scene, Question::Waiting));
    assert_eq!(
        (verdict.class, verdict.blamed.as_slice()),
        (Class::Deadlock, [0, 1, 2, 3].as_slice())
    );
    assert!(
        verdict
            .place
            .contains("ranks 0,1,3 wait for rank 2 in all_reduce #1 on g1 (train.rs:1)"),
        "{verdict}"
    );
    assert!(
        verdict
            .place
            .contains("rank 2 waits for ranks 0,1,3 in all_reduce #1 on g2 (train.rs:2)"),
        "{verdict}"
    );
    // Rank 4 only waits for one of them: not to blame, but told.
    assert_eq!(verdict.ends.len(), 2);
    assert!(
        verdict.others.contains("rank 4 in all_reduce #1 on outer"),
        "{verdict}"
    );
}

#[test]
fn a_young_circle_gets_time_to_end_by_its_deadlines() {
    let mut plant = Plant::new(2);
    plant.group(1, "g1", &[0, 1], 0);
    plant.group(2, "g2", &[0, 1], 0);
    plant.waits(0, 1, &[1]);
    plant.waits(1, 2, &[0]);
    for group in &mut plant.report(0).groups {
        if let Some(call) = &mut group.call {
            call.age_ms = 100;
        }
    }
    plant.confirm();
    assert_eq!(judge(&plant.scene, Question::Waiting), Finding::Again(400));
    let found = plant.overdue(0, 1);
    assert_eq!(
        (found.class, found.blamed.as_slice()),
        (Class::NotJoined, [1].as_slice())
    );
    // The other call is not ended by this one's short time.
    assert_eq!(found.ends, [CallId { key: 1, seq: 1 }]);
}

#[test]
fn a_wait_that_moved_between_two_scenes_closes_no_circle() {
    let mut plant = Plant::new(2);
    plant.group(1, "g1", &[0, 1], 0);
    plant.group(2, "g2", &[0, 1], 0);
    plant.waits(0, 1, &[1]);
    plant.waits(1, 2, &[0]);
    plant.confirm();
    let before = plant.scene.members[1].before.as_mut().expect("planted");
    before.groups[1].version -= 2;
    assert_eq!(judge(&plant.scene, Question::Waiting), Finding::Again(0));
}

#[test]
fn another_thread_of_the_rank_may_still_come() {
    let mut plant = Plant::new(2);
    plant.group(1, "g1", &[0, 1], 5);
    plant.group(2, "g2", &[0, 1], 5);
    plant.waits(0, 1, &[1]);
    plant.waits(1, 2, &[0]);
    // On rank 1 the first group belongs to another thread, which is free.
    plant.report(1).groups[0].thread = 2;
    plant.report(1).threads = 2;
    plant.confirm();
    assert_eq!(judge(&plant.scene, Question::Waiting), Finding::Nothing);
}

#[test]
fn receives_in_a_ring_are_a_cycle_and_a_send_that_meets_its_receive_is_none() {
    let mut plant = Plant::new(3);
    plant.group(1, "world", &[0, 1, 2], 0);
    for rank in 0..3 {
        plant.call(rank, 1, RECV, &[(rank + 2) % 3]);
    }
    plant.confirm();
    let found = verdict(judge(&plant.scene, Question::Waiting));
    assert_eq!(
        (found.class, found.blamed.as_slice()),
        (Class::Deadlock, [0, 1, 2].as_slice())
    );
    let mut plant = Plant::new(2);
    plant.group(1, "world", &[0, 1], 0);
    plant.call(0, 1, RECV, &[1]);
    plant.call(1, 1, SEND, &[0]);
    plant.confirm();
    assert_eq!(judge(&plant.scene, Question::Waiting), Finding::Nothing);
}

#[test]
fn a_thread_that_has_not_looked_since_may_have_its_message_already() {
    let mut plant = Plant::new(2);
    plant.group(1, "world", &[0, 1], 0);
    plant.call(0, 1, RECV, &[1]);
    plant.call(1, 1, RECV, &[0]);
    for member in &mut plant.scene.members {
        member.before = member.report.clone();
    }
    assert_eq!(judge(&plant.scene, Question::Waiting), Finding::Again(0));
}

#[test]
fn the_first_death_is_the_cause_and_later_ones_are_its_cascade() {
    let mut plant = Plant::new(4);
    plant.group(1, "world", &[0, 1, 2, 3], 9);
    plant.waits(0, 1, &[2, 3]);
    plant.waits(1, 1, &[2, 3]);
    plant.fate(2, "was killed by signal 9", false, 0);
    plant.fate(3, "exited with code 20", false, 1);
    let verdict = plant.overdue(0, 1);
    assert_eq!(
        (verdict.class, verdict.blamed.as_slice()),
        (Class::PeerDead, [2].as_slice())
    );
    assert!(
        verdict.place.starts_with("was killed by signal 9"),
        "{verdict}"
    );
    assert!(!verdict.line().contains("code 20"), "{verdict}");
    assert_eq!(verdict.cascades, ["rank 3 exited with code 20 after it"]);
}

#[test]
fn a_stopped_process_is_frozen_after_a_second_and_a_stall_is_nothing() {
    let mut plant = Plant::new(3);
    plant.group(1, "world", &[0, 1, 2], 9);
    plant.waits(0, 1, &[2]);
    plant.waits(1, 1, &[2]);
    let member = &mut plant.scene.members[2];
    member.silent_ms = 800;
    member.process = Some(ProcessFacts {
        state: 'T',
        ..ProcessFacts::default()
    });
    assert_eq!(judge(&plant.scene, Question::Waiting), Finding::Nothing);
    plant.scene.members[2].silent_ms = 1100;
    let found = verdict(judge(&plant.scene, Question::Waiting));
    assert_eq!(
        (found.class, found.blamed.as_slice()),
        (Class::PeerFrozen, [2].as_slice())
    );
    assert!(found.place.contains("state T"), "{found}");
    // One that runs and does not answer is no frozen one.
    plant.scene.members[2].process = Some(ProcessFacts {
        state: 'R',
        ..ProcessFacts::default()
    });
    assert_eq!(judge(&plant.scene, Question::Waiting), Finding::Nothing);
}

#[test]
fn nobody_is_frozen_where_nobody_who_answers_waits_for_it() {
    let mut plant = Plant::new(3);
    plant.group(1, "world", &[0, 1, 2], 9);
    for rank in 0..3 {
        plant.waits(rank, 1, &[(rank + 1) % 3]);
        let member = &mut plant.scene.members[rank as usize];
        member.silent_ms = 5000;
        member.process = Some(ProcessFacts {
            state: 'T',
            ..ProcessFacts::default()
        });
    }
    assert_eq!(judge(&plant.scene, Question::Waiting), Finding::Nothing);
}

#[test]
fn ranks_that_left_before_the_call_are_named_as_such() {
    let mut plant = Plant::new(3);
    plant.group(1, "world", &[0, 1, 2], 100);
    plant.waits(2, 1, &[0, 1]);
    plant.fate(0, "left the world", true, 0);
    plant.fate(1, "left the world", true, 1);
    assert_eq!(judge(&plant.scene, Question::Waiting), Finding::Nothing);
    let verdict = plant.overdue(2, 1);
    assert_eq!(
        (verdict.class, verdict.blamed.as_slice()),
        (Class::NotJoined, [0, 1].as_slice())
    );
    assert!(verdict.place.starts_with("left the world"), "{verdict}");
}

#[test]
fn groups_of_one_name_with_other_members_are_a_mismatch_of_the_odd_rank() {
    let mut plant = Plant::new(8);
    let (usual, odd) = ([1, 3, 5, 7], [1, 5, 3, 7]);
    plant.group(1, "ep1", &usual, 0);
    plant.report(3).groups.clear();
    plant.report(3).groups.push(GroupState {
        key: 2,
        name: "ep1".to_owned(),
        members: odd.to_vec(),
        size: 4,
        thread: 1,
        version: 2,
        ..GroupState::default()
    });
    for rank in [1, 5, 7] {
        plant.waits(rank, 1, &[3]);
    }
    plant.waits(3, 2, &[1, 5, 7]);
    plant.confirm();
    let verdict = verdict(judge(&plant.scene, Question::Waiting));
    assert_eq!(
        (verdict.class, verdict.blamed.as_slice()),
        (Class::Mismatch, [3].as_slice())
    );
    assert!(
        verdict
            .place
            .contains("[1, 3, 5, 7] on ranks 1,5,7, [1, 5, 3, 7] on rank 3"),
        "{verdict}"
    );
}

#[test]
fn a_group_that_was_never_made_is_said_so() {
    let mut plant = Plant::new(2);
    plant.group(1, "ep1", &[0, 1], 0);
    plant.report(1).groups.clear();
    plant.waits(0, 1, &[1]);
    let verdict = plant.overdue(0, 1);
    assert_eq!(
        (verdict.class, verdict.blamed.as_slice()),
        (Class::NotJoined, [1].as_slice())
    );
    assert!(
        verdict.place.contains("has not made group ep1"),
        "{verdict}"
    );
}

#[test]
fn ranks_that_are_all_in_the_call_point_at_the_link() {
    let mut plant = Plant::new(2);
    plant.group(1, "world", &[0, 1], 4);
    plant.waits(0, 1, &[1]);
    plant.waits(1, 1, &[0]);
    plant.confirm();
    assert_eq!(judge(&plant.scene, Question::Waiting), Finding::Nothing);
    let verdict = plant.overdue(0, 1);
    assert_eq!(
        (verdict.class, verdict.blamed.as_slice()),
        (Class::Link, [0, 1].as_slice())
    );
}

/// A chain of waits over groups of two that ends in one culprit, among ranks that wait for each other
/// in nothing or for ranks of the chain.
fn chains() -> impl Strategy<Value = (u32, Vec<u32>, Vec<(u32, usize)>)> {
    (3..10_u32).prop_flat_map(|ranks| {
        let order = Just((0..ranks).collect::<Vec<u32>>()).prop_shuffle();
        (Just(ranks), order).prop_flat_map(move |(ranks, order)| {
            let length = 2..=order.len();
            let hangers = proptest::collection::vec((0..ranks, 0..order.len()), 0..4);
            (Just(ranks), Just(order), length, hangers).prop_map(
                |(ranks, order, length, hangers)| (ranks, order[..length].to_vec(), hangers),
            )
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// JUDGE-1, for every kind of culprit.
    #[test]
    fn only_the_end_of_a_chain_is_blamed((ranks, chain, hangers) in chains(), kind in 0..3_u8) {
        let mut plant = Plant::new(ranks);
        let culprit = chain[chain.len() - 1];
        for (key, pair) in (1..).zip(chain.windows(2)) {
            plant.group(key, &format!("g{key}"), pair, 3);
            plant.waits(pair[0], key, &[pair[1]]);
        }
        for (key, (rank, at)) in (100..).zip(&hangers) {
            let target = chain[at % chain.len()];
            let is_free = plant.report(*rank).groups.iter().all(|group| group.call.is_none());
            if !chain.contains(rank) && is_free {
                plant.group(key, &format!("g{key}"), &[*rank, target], 3);
                plant.waits(*rank, key, &[target]);
            }
        }
        plant.confirm();
        let class = match kind {
            0 => Class::NotJoined,
            1 => {
                plant.fate(culprit, "was killed by signal 9", false, 0);
                Class::PeerDead
            }
            _ => {
                let member = &mut plant.scene.members[culprit as usize];
                member.silent_ms = 2000;
                member.process = Some(ProcessFacts { state: 'T', ..ProcessFacts::default() });
                Class::PeerFrozen
            }
        };
        let waiting = judge(&plant.scene, Question::Waiting);
        prop_assert_eq!(matches!(waiting, Finding::Verdict(_)), class == Class::PeerFrozen);
        let verdict = plant.overdue(chain[0], 1);
        prop_assert_eq!(verdict.class, class);
        prop_assert_eq!(&verdict.blamed, &vec![culprit]);
        // The call that misses the culprit ends, and everybody in the chain is counted.
        let last = CallId { key: chain.len() as u64 - 1, seq: 4 };
        prop_assert!(verdict.ends.contains(&last));
        prop_assert!(verdict.others.starts_with(|digit: char| digit.is_ascii_digit()));
    }

    /// A closed chain blames its members and nobody who hangs on to it.
    #[test]
    fn only_the_members_of_a_circle_are_blamed((ranks, chain, hangers) in chains()) {
        let mut plant = Plant::new(ranks);
        let closed = chain.iter().copied().chain([chain[0]]).collect::<Vec<u32>>();
        for (key, pair) in (1..).zip(closed.windows(2)) {
            plant.group(key, &format!("g{key}"), pair, 3);
            plant.waits(pair[0], key, &[pair[1]]);
        }
        for (key, (rank, at)) in (100..).zip(&hangers) {
            let target = chain[at % chain.len()];
            let is_free = plant.report(*rank).groups.iter().all(|group| group.call.is_none());
            if !chain.contains(rank) && is_free {
                plant.group(key, &format!("g{key}"), &[*rank, target], 3);
                plant.waits(*rank, key, &[target]);
            }
        }
        prop_assert_eq!(judge(&plant.scene, Question::Waiting), Finding::Again(0));
        plant.confirm();
        let found = verdict(judge(&plant.scene, Question::Waiting));
        let mut members = chain.clone();
        members.sort_unstable();
        prop_assert_eq!((found.class, found.blamed), (Class::Deadlock, members));
    }
}
