//! Waits that close a circle, and those that only look as if.

use muster_comm::error::verdict::{CallId, Class};
use muster_comm::watch::judge::{Finding, Question, judge};

use crate::plant::{Plant, RECV, RECV_ANY, SEND, verdict};

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
fn what_a_worker_does_holds_up_only_who_waits_for_it() {
    let plant = |awaited_by: u32| {
        let mut plant = Plant::new(2);
        plant.group(1, "g1", &[0, 1], 0);
        plant.group(2, "g2", &[0, 1], 0);
        plant.waits(0, 1, &[1]);
        plant.waits(1, 2, &[0]);
        let group = &mut plant.report(1).groups[1];
        group.awaited_by = awaited_by;
        group.call.as_mut().expect("planted").is_async = true;
        plant.confirm();
        plant
    };
    let cycle = verdict(judge(&plant(1).scene, Question::Waiting));
    assert_eq!(
        (cycle.class, cycle.blamed.as_slice()),
        (Class::Deadlock, [0, 1].as_slice())
    );
    // Rank 1 started the call and went on: it may still come to the other one.
    let free = plant(0);
    assert_eq!(judge(&free.scene, Question::Waiting), Finding::Nothing);
    let late = free.overdue(0, 1);
    assert_eq!(
        (late.class, late.blamed.as_slice()),
        (Class::NotJoined, [1].as_slice())
    );
    assert!(late.place.contains("running user code"), "{late}");
}

#[test]
fn a_rank_comes_to_the_calls_that_it_has_started_whatever_its_own_thread_waits_for() {
    let plant = |pending: u32| {
        let mut plant = Plant::new(2);
        plant.group(1, "g1", &[0, 1], 0);
        plant.group(2, "g2", &[0, 1], 0);
        plant.waits(0, 1, &[1]);
        plant.waits(1, 2, &[0]);
        plant.report(1).groups[0].pending = pending;
        plant.confirm();
        plant
    };
    assert_eq!(
        verdict(judge(&plant(0).scene, Question::Waiting)).class,
        Class::Deadlock
    );
    // The worker of rank 1 has a call of g1 to make, and has not got a processor so far.
    let started = plant(1);
    assert_eq!(judge(&started.scene, Question::Waiting), Finding::Nothing);
    // It is in an earlier call of g1, in which it waits for rank 0.
    let mut behind = plant(1);
    behind.report(0).groups[0].entered = 2;
    if let Some(call) = &mut behind.report(0).groups[0].call {
        call.seq = 2;
    }
    behind.waits(1, 1, &[0]);
    behind.confirm();
    assert_eq!(judge(&behind.scene, Question::Waiting), Finding::Nothing);
}

#[test]
fn a_rank_whose_time_is_up_waits_for_its_asynchronous_calls_until_it_knows_why() {
    let mut plant = Plant::new(3);
    plant.group(1, "g1", &[0, 1], 0);
    plant.group(2, "g2", &[1, 2], 0);
    plant.waits(0, 1, &[1]);
    plant.waits(1, 2, &[2]);
    let group = &mut plant.report(1).groups[1];
    (group.awaited_by, group.pending) = (1, 1);
    group.call.as_mut().expect("planted").is_async = true;
    plant.confirm();
    let verdict = plant.overdue(0, 1);
    assert_eq!(
        (verdict.class, verdict.blamed.as_slice()),
        (Class::NotJoined, [2].as_slice())
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
fn a_rank_that_waits_for_any_of_several_is_in_a_circle_only_with_all_of_them() {
    let plant = |second: u32| {
        let mut plant = Plant::new(3);
        plant.group(1, "world", &[0, 1, 2], 0);
        // Only the rank that waits has made it.
        plant.group(2, "any->0", &[0], 0);
        plant.call(0, 2, RECV_ANY, &[1, 2]);
        plant.call(1, 1, RECV, &[0]);
        plant.call(2, 1, RECV, &[second]);
        plant.confirm();
        plant
    };
    // Rank 2 waits for rank 1, which waits for rank 0.
    for second in [0, 1] {
        let found = verdict(judge(&plant(second).scene, Question::Waiting));
        assert_eq!(
            (found.class, found.blamed.as_slice()),
            (Class::Deadlock, [0, 1, 2].as_slice())
        );
    }
    let mut plant = plant(0);
    plant.scene.members[2].report = Plant::new(3).scene.members[2].report.clone();
    assert_eq!(judge(&plant.scene, Question::Waiting), Finding::Nothing);
    let found = plant.overdue(0, 2);
    assert_eq!(
        (found.class, found.blamed.as_slice()),
        (Class::NotJoined, [2].as_slice())
    );
}

#[test]
fn a_thread_that_has_not_looked_since_may_have_its_message_already() {
    let plant = |checks: u64| {
        let mut plant = Plant::new(2);
        plant.group(1, "world", &[0, 1], 0);
        plant.call(0, 1, RECV, &[1]);
        plant.call(1, 1, RECV, &[0]);
        for member in &mut plant.scene.members {
            let groups = member.report.iter_mut().flat_map(|one| &mut one.groups);
            let waits = groups.filter_map(|group| group.call.as_mut()?.wait.as_mut());
            waits.for_each(|wait| wait.checks = checks);
            member.before = member.report.clone();
        }
        plant
    };
    // It has looked once, at the beginning of its wait.
    assert_eq!(judge(&plant(1).scene, Question::Waiting), Finding::Again(0));
    // Five looks take a second, so the last one was long after the other began to wait.
    let found = verdict(judge(&plant(5).scene, Question::Waiting));
    assert_eq!(found.class, Class::Deadlock);
}

#[test]
fn who_has_made_a_group_is_on_its_side_also_before_it_waits() {
    let mut plant = Plant::new(4);
    plant.group(1, "ep", &[0, 1, 2, 3], 0);
    plant.group(2, "ep", &[1, 0, 2, 3], 0);
    // Rank 1 has made the second one, all others the first one.
    for (rank, key) in [(0, 2), (1, 1), (2, 2), (3, 2)] {
        plant.report(rank).groups.retain(|group| group.key != key);
    }
    plant.waits(0, 1, &[1]);
    plant.waits(1, 2, &[0]);
    plant.confirm();
    let found = verdict(judge(&plant.scene, Question::Waiting));
    assert_eq!(
        (found.class, found.blamed.as_slice()),
        (Class::Mismatch, [1].as_slice())
    );
    let sides = "[0, 1, 2, 3] on ranks 0,2,3, [1, 0, 2, 3] on rank 1";
    assert!(found.place.contains(sides), "{found}");
}

#[test]
fn nobody_is_the_odd_one_before_all_have_made_their_group() {
    let mut plant = Plant::new(3);
    plant.group(1, "ep", &[0, 1, 2], 0);
    plant.group(2, "ep", &[1, 0, 2], 0);
    for (rank, key) in [(0, 2), (1, 1), (2, 1), (2, 2)] {
        plant.report(rank).groups.retain(|group| group.key != key);
    }
    plant.waits(0, 1, &[1]);
    plant.waits(1, 2, &[0]);
    for rank in [0, 1] {
        for group in &mut plant.report(rank).groups {
            if let Some(call) = &mut group.call {
                call.age_ms = 40;
            }
        }
    }
    plant.confirm();
    assert_eq!(judge(&plant.scene, Question::Waiting), Finding::Again(460));
}
