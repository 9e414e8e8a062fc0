//! Who has not come, and who only waits.

use muster_comm::error::verdict::{CallId, Class};
use muster_comm::watch::judge::{Finding, Question, Starvation, judge};
use muster_comm::watch::process::{Freezer, ProcessFacts, Sight};
use muster_comm::watch::report::GroupState;

use crate::plant::{Plant, verdict};

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
fn a_young_call_that_does_not_say_that_it_waits_is_why_its_rank_has_not_come() {
    let mut plant = Plant::new(2);
    plant.group(1, "world", &[0, 1], 0);
    plant.group(2, "world on npu", &[0, 1], 0);
    plant.waits(1, 1, &[0]);
    plant.waits(0, 2, &[1]);
    let on_device = plant.report(0).groups[1].call.as_mut().expect("planted");
    (on_device.wait, on_device.age_ms) = (None, 300);
    assert_eq!(judge(&plant.scene, Question::Waiting), Finding::Nothing);
    let verdict = plant.overdue(1, 1);
    assert_eq!(
        (verdict.class, verdict.blamed.as_slice()),
        (Class::NotJoined, [0].as_slice())
    );
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
fn a_third_list_of_members_ends_its_own_group_and_no_other() {
    let mut plant = Plant::new(4);
    plant.group(1, "world", &[0, 1, 2, 3], 2);
    plant.group(2, "odd", &[0, 1, 2], 1);
    plant.group(3, "odd", &[0, 3], 0);
    // Only rank 3 made the last one; the others have given up theirs, and wait for it in the world.
    plant.report(0).groups.retain(|group| group.key != 3);
    for rank in 0..3 {
        plant.waits(rank, 1, &[3]);
    }
    plant.waits(3, 3, &[0]);
    for group in plant.report(3).groups.iter_mut() {
        if let Some(call) = &mut group.call {
            call.age_ms = 100;
        }
    }
    plant.confirm();
    let verdict = verdict(judge(&plant.scene, Question::Waiting));
    assert_eq!(
        (verdict.class, verdict.blamed.as_slice()),
        (Class::Mismatch, [3].as_slice()),
        "{verdict}"
    );
    assert!(
        verdict
            .place
            .contains("odd = [0, 1, 2] on ranks 0-2, [0, 3] on rank 3"),
        "{verdict}"
    );
    assert_eq!(
        verdict.evidence,
        ["rank 3 waits in its group, which rank 0 has not made"]
    );
    assert_eq!(verdict.ends, [CallId { key: 3, seq: 1 }]);
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
    // On a crowded host there is a reason that is more likely.
    let mut seen = Starvation::default();
    (seen.load.runnable, seen.load.processors) = (9, 2);
    plant.scene.members[1].starvation = Some(seen);
    let verdict = plant.overdue(0, 1);
    assert_eq!((verdict.class, verdict.blamed), (Class::Resource, vec![]));
}

#[test]
fn a_rank_beyond_the_64th_that_never_came_is_named() {
    for size in [65, 128, 256] {
        let mut plant = Plant::new(size);
        let members: Vec<u32> = (0..size).collect();
        plant.group(7, "world", &members, 3);
        let absent = if size > 70 { 70 } else { 64 };
        for rank in members.into_iter().filter(|rank| *rank != absent) {
            plant.waits(rank, 7, &[absent]);
        }
        let verdict = plant.overdue(1, 7);
        assert_eq!(
            (verdict.class, verdict.blamed.as_slice()),
            (Class::NotJoined, [absent].as_slice())
        );
    }
}

#[test]
fn where_not_all_missing_ranks_are_known_nobody_is_blamed_for_what_was_not_seen() {
    let more = |plant: &mut Plant, rank: u32, count: u32| {
        let call = plant.report(rank).groups[0].call.as_mut();
        let wait = call.and_then(|call| call.wait.as_mut());
        wait.expect("planted").missing_more = count;
    };
    let mut plant = Plant::new(4);
    plant.group(7, "world", &[0, 1, 2, 3], 3);
    for (rank, missing) in [(0, vec![]), (1, vec![0]), (2, vec![]), (3, vec![])] {
        plant.waits(rank, 7, &missing);
    }
    more(&mut plant, 0, 1);
    for rank in [0, 1] {
        let verdict = plant.overdue(rank, 7);
        assert_eq!(
            (verdict.class, verdict.blamed.as_slice()),
            (Class::Internal, [].as_slice())
        );
        assert!(
            verdict.line().contains("since=00:01:38.000Z (+2.0 s)"),
            "{verdict}"
        );
        assert!(verdict.line().contains("1 that it does not"), "{verdict}");
    }
    // Who waits for nobody that it could name is not to blame either.
    let verdict = plant.overdue(2, 7);
    assert_eq!(
        (verdict.class, verdict.blamed.as_slice()),
        (Class::Internal, [].as_slice())
    );
    // Who is seen not to have come is named all the same.
    plant.report(3).groups[0].call = None;
    plant.report(3).groups[0].entered = 3;
    plant.report(0).groups[0].entered = 3;
    plant.waits(0, 7, &[3]);
    more(&mut plant, 0, 1);
    let verdict = plant.overdue(0, 7);
    assert_eq!(
        (verdict.class, verdict.blamed.as_slice()),
        (Class::NotJoined, [3].as_slice())
    );
}

#[test]
fn all_groups_of_a_culprit_are_named_or_counted() {
    let who = |groups: u64| {
        let mut plant = Plant::new(2);
        plant.group(1, "world", &[0, 1], 0);
        for key in 2..=groups {
            plant.group(key, &format!("tensor-parallel-{key}"), &[1], 0);
        }
        plant.waits(0, 1, &[1]);
        plant.overdue(0, 1).who
    };
    assert_eq!(who(1), "rank 1 (n1, pid 1001; world)");
    assert_eq!(
        who(5),
        "rank 1 (n1, pid 1001; world tensor-parallel-2 tensor-parallel-3 tensor-parallel-4 tensor-parallel-5)"
    );
    let many = who(60);
    assert!(
        many.ends_with("tensor-parallel-7 and 53 more groups)"),
        "{many}"
    );
}

#[test]
fn a_frozen_control_group_is_named_with_the_way_to_thaw_it() {
    let mut plant = Plant::new(2);
    plant.group(7, "g", &[0, 1], 0);
    plant.waits(0, 7, &[1]);
    let path = "/sys/fs/cgroup/job".to_owned();
    let thaw = "echo 0 > /sys/fs/cgroup/job/cgroup.freeze".to_owned();
    let member = &mut plant.scene.members[1];
    member.silent_ms = 1500;
    member.stopped_ms = Some(1500);
    member.process = Some(Sight::Seen(ProcessFacts {
        state: 'S',
        freezer: Some(Freezer { path, thaw }),
        ..ProcessFacts::default()
    }));
    let verdict = verdict(judge(&plant.scene, Question::Waiting));
    assert_eq!(
        (verdict.class, verdict.blamed.as_slice()),
        (Class::PeerFrozen, [1].as_slice())
    );
    let line = verdict.line();
    for part in [
        "where=frozen by its control group /sys/fs/cgroup/job",
        "next=thaw the control group: `echo 0 > /sys/fs/cgroup/job/cgroup.freeze`",
        "confidence=certain",
    ] {
        assert!(line.contains(part), "{line}");
    }
}
