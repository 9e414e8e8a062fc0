//! Ranks that died, froze, left, or are out of reach.

use muster_comm::error::verdict::{CallId, Class, Confidence};
use muster_comm::watch::judge::{Finding, Question, Starvation, judge};
use muster_comm::watch::process::{ProcessFacts, Sight};
use muster_comm::watch::report::Destroyed;

use crate::plant::{Plant, RECV, SEND, verdict};

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
fn ranks_that_signals_ended_before_anything_was_told_are_named_together() {
    let mut plant = Plant::new(4);
    plant.group(1, "world", &[0, 1, 2, 3], 9);
    plant.waits(0, 1, &[2, 3]);
    plant.fate(2, "was killed by signal 9", false, 1);
    plant.fate(3, "was killed by signal 11", false, 0);
    let verdict = plant.overdue(0, 1);
    assert_eq!(
        (verdict.class, verdict.blamed.as_slice()),
        (Class::PeerDead, [2, 3].as_slice())
    );
    assert!(
        verdict.place.starts_with("was killed by signal 11") && verdict.place.contains("signal 9"),
        "{verdict}"
    );
}

#[test]
fn a_rank_that_ended_before_another_was_found_stopped_is_named_beside_it() {
    let mut plant = stopped('T', Some(1000));
    plant.fate(1, "ended, and nobody saw how", false, 0);
    let alone = verdict(judge(&plant.scene, Question::Waiting));
    assert_eq!(alone.blamed, [2]);
    plant.scene.members[2].ended_before = vec![1];
    let both = verdict(judge(&plant.scene, Question::Waiting));
    assert_eq!(
        (both.class, both.blamed.as_slice()),
        (Class::PeerFrozen, [1, 2].as_slice())
    );
    assert!(
        both.place.contains("state T") && both.place.contains("rank 1 ended, and nobody saw how"),
        "{both}"
    );
}

/// Rank 2 of three is waited for and was found in this state for so long.
fn stopped(state: char, stopped_ms: Option<u64>) -> Plant {
    let mut plant = Plant::new(3);
    plant.group(1, "world", &[0, 1, 2], 9);
    plant.waits(0, 1, &[2]);
    plant.waits(1, 1, &[2]);
    let member = &mut plant.scene.members[2];
    member.silent_ms = 60_000;
    member.stopped_ms = stopped_ms;
    member.process = Some(Sight::Seen(ProcessFacts {
        state,
        ..ProcessFacts::default()
    }));
    plant
}

#[test]
fn a_process_that_was_found_stopped_for_a_second_is_frozen_and_a_stall_is_nothing() {
    let plant = stopped('T', Some(800));
    assert_eq!(judge(&plant.scene, Question::Waiting), Finding::Nothing);
    let plant = stopped('T', Some(1000));
    let found = verdict(judge(&plant.scene, Question::Waiting));
    assert_eq!(
        (found.class, found.blamed.as_slice()),
        (Class::PeerFrozen, [2].as_slice())
    );
    assert!(found.place.contains("state T"), "{found}");
    assert_eq!(found.confidence, Confidence::Certain);
    // One that runs and does not answer is no frozen one, however long it is silent.
    let plant = stopped('R', None);
    assert_eq!(judge(&plant.scene, Question::Waiting), Finding::Nothing);
}

#[test]
fn a_rank_at_whose_process_nobody_can_look_is_named_at_the_end_of_the_time_only() {
    let mut plant = Plant::new(3);
    plant.group(1, "world", &[0, 1, 2], 9);
    plant.waits(0, 1, &[2]);
    plant.waits(1, 1, &[2]);
    plant.scene.members[2].silent_ms = 600_000;
    assert_eq!(judge(&plant.scene, Question::Waiting), Finding::Nothing);
    let found = plant.overdue(0, 1);
    assert_eq!(
        (found.class, found.blamed.as_slice(), found.confidence),
        (Class::NotJoined, [2].as_slice(), Confidence::Likely)
    );
}

#[test]
fn a_rank_that_got_no_processor_is_not_to_blame() {
    let starved = |ran_ms, delayed_ms| {
        let mut plant = Plant::new(3);
        plant.group(1, "world", &[0, 1, 2], 9);
        plant.waits(0, 1, &[2]);
        plant.waits(1, 1, &[2]);
        plant.scene.members[2].starvation = Some(Starvation {
            window_ms: 10_000,
            ran_ms,
            delayed_ms,
            ..Starvation::default()
        });
        plant.overdue(0, 1)
    };
    let found = starved(40, 9900);
    assert_eq!(
        (found.class, found.blamed.as_slice()),
        (Class::Resource, [].as_slice())
    );
    assert!(
        found.place.contains("rank 2 ran 40 ms of the last 10.0 s"),
        "{found}"
    );
    // The line names the call that was to end, and since when somebody waits in it.
    assert!(found.what.contains("#10 on world"), "{found}");
    assert!(found.since_unix_ms > 0 && found.elapsed_ms > 0, "{found}");
    // It got most of what it needed, or hardly needed any.
    for (ran_ms, delayed_ms) in [(6000, 4000), (10, 900), (0, 0)] {
        let found = starved(ran_ms, delayed_ms);
        assert_eq!(
            (found.class, found.blamed.as_slice()),
            (Class::NotJoined, [2].as_slice())
        );
    }
}

#[test]
fn a_rank_whose_process_is_hidden_is_named_at_the_end_of_the_time_only_and_with_the_reason() {
    let mut plant = Plant::new(3);
    plant.group(1, "world", &[0, 1, 2], 9);
    plant.waits(0, 1, &[2]);
    plant.waits(1, 1, &[2]);
    let member = &mut plant.scene.members[2];
    member.silent_ms = 60_000;
    member.process = Some(Sight::Hidden("it runs in another PID namespace".to_owned()));
    assert_eq!(judge(&plant.scene, Question::Waiting), Finding::Nothing);
    let call = CallId { key: 1, seq: 10 };
    let found = verdict(judge(&plant.scene, Question::Overdue { rank: 0, call }));
    assert_eq!(found.blamed, [2]);
    assert_eq!(found.confidence, Confidence::Likely);
    let evidence = found.evidence.join("; ");
    assert!(
        evidence.contains("cannot be looked at from here"),
        "{evidence}"
    );
    assert!(evidence.contains("another PID namespace"), "{evidence}");
}

#[test]
fn nobody_is_frozen_where_nobody_who_answers_waits_for_it() {
    let mut plant = Plant::new(3);
    plant.group(1, "world", &[0, 1, 2], 9);
    for rank in 0..3 {
        plant.waits(rank, 1, &[(rank + 1) % 3]);
        let member = &mut plant.scene.members[rank as usize];
        member.silent_ms = 5000;
        member.stopped_ms = Some(5000);
        member.process = Some(Sight::Seen(ProcessFacts {
            state: 'T',
            ..ProcessFacts::default()
        }));
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

/// A group that a rank destroyed this long ago after so many collectives and no message.
fn past(key: u64, name: &str, entered: u64, age_ms: u64) -> Destroyed {
    Destroyed {
        key,
        name: name.to_owned(),
        entered,
        calls: entered,
        age_ms,
    }
}

/// Rank 1 destroyed this group, of which it had entered so many calls, and waits for rank 0 elsewhere.
fn destroyed(entered: u64, age_ms: u64) -> Plant {
    let mut plant = Plant::new(3);
    plant.group(1, "world", &[0, 1, 2], 9);
    plant.group(7, "tp0", &[0, 1], 4);
    plant.waits(0, 7, &[1]);
    plant.report(1).groups.retain(|group| group.key != 7);
    plant
        .report(1)
        .destroyed
        .push(past(7, "tp0", entered, age_ms));
    plant.waits(1, 1, &[0]);
    plant.confirm();
    plant
}

#[test]
fn who_destroyed_a_group_is_to_blame_for_the_circle_that_comes_of_it() {
    let plant = destroyed(4, 600);
    let found = verdict(judge(&plant.scene, Question::Waiting));
    assert_eq!(
        (found.class, found.blamed.as_slice()),
        (Class::NotJoined, [1].as_slice())
    );
    assert!(
        found
            .place
            .starts_with("destroyed group tp0 after its call #4"),
        "{found}"
    );
    assert_eq!(found.ends, [CallId { key: 7, seq: 5 }]);
    // The rank that waits on behalf of the one that waits there is no better off.
    assert_eq!(plant.overdue(1, 1).blamed, [1]);
}

#[test]
fn a_rank_that_has_just_destroyed_a_group_may_be_about_to_end() {
    let plant = destroyed(4, 100);
    assert_eq!(judge(&plant.scene, Question::Waiting), Finding::Again(400));
    assert_eq!(plant.overdue(0, 7).blamed, [1]);
}

#[test]
fn a_message_may_outlive_the_group_of_its_sender() {
    let mut plant = destroyed(4, 600);
    let group = plant
        .report(0)
        .groups
        .iter_mut()
        .find(|group| group.key == 7);
    group.expect("planted").call = None;
    plant.call(0, 7, RECV, &[1]);
    plant.confirm();
    plant.report(1).groups[0].call = None;
    assert_eq!(judge(&plant.scene, Question::Waiting), Finding::Nothing);
    let found = plant.overdue(0, 7);
    assert!(found.place.starts_with("destroyed group tp0"), "{found}");
    // Where its sender waits for the receiver nothing more can come.
    plant.report(1).groups[0].entered -= 1;
    plant.waits(1, 1, &[0]);
    plant.confirm();
    let found = verdict(judge(&plant.scene, Question::Waiting));
    assert_eq!(
        (found.class, found.blamed.as_slice()),
        (Class::NotJoined, [1].as_slice())
    );
    assert!(found.place.starts_with("destroyed group tp0"), "{found}");
}

/// These ranks of three have destroyed `tp0`, of which they made no call, and have made it again; the others wait in it.
fn remade(by: &[u32]) -> Plant {
    let mut plant = Plant::new(3);
    plant.group(1, "tp0", &[0, 1, 2], 0);
    plant.group(2, "tp0", &[0, 1, 2], 0);
    plant.group(3, "world", &[0, 1, 2], 4);
    for rank in 0..3 {
        if by.contains(&rank) {
            plant.report(rank).groups.retain(|group| group.key != 1);
            plant.report(rank).destroyed.push(past(1, "tp0", 0, 600));
        } else {
            plant.report(rank).groups.retain(|group| group.key != 2);
            plant.waits(rank, 1, by);
        }
    }
    plant
}

#[test]
fn who_made_a_group_once_more_than_others_is_odd_and_has_not_destroyed_it() {
    // They wait in what they made again, or elsewhere.
    for elsewhere in [2, 3] {
        let mut plant = remade(&[1, 2]);
        plant.waits(1, elsewhere, &[0]);
        plant.waits(2, elsewhere, &[0]);
        plant.confirm();
        let found = verdict(judge(&plant.scene, Question::Waiting));
        assert_eq!(
            (found.class, found.blamed.as_slice()),
            (Class::Mismatch, [0].as_slice()),
            "{found}"
        );
        assert!(
            found
                .place
                .starts_with("group tp0 was made more often on one side"),
            "{found}"
        );
        assert!(found.next.contains("equally often"), "{found}");
    }
}

#[test]
fn who_alone_made_a_group_again_has_destroyed_it_without_the_call_of_the_others() {
    // It waits for them in what it made again, or elsewhere, or runs.
    for waits in [Some(2), Some(3), None] {
        let mut plant = remade(&[1]);
        if let Some(key) = waits {
            plant.waits(1, key, &[0, 2]);
        }
        plant.confirm();
        for found in [
            verdict(judge(&plant.scene, Question::Waiting)),
            plant.overdue(0, 1),
        ] {
            assert_eq!(
                (found.class, found.blamed.as_slice()),
                (Class::NotJoined, [1].as_slice()),
                "{found}"
            );
            let place = "destroyed group tp0 before its first call";
            assert!(found.place.starts_with(place), "{found}");
        }
    }
}

#[test]
fn who_destroyed_a_group_too_early_is_odd_and_not_who_still_waits_in_it() {
    let mut plant = Plant::new(4);
    plant.group(1, "dp0", &[0, 1, 2, 3], 2);
    plant.group(2, "dp0", &[0, 1, 2, 3], 0);
    plant.group(3, "world", &[0, 1, 2, 3], 4);
    for rank in [0, 1, 2] {
        // Rank 1 has destroyed it before it received the message of rank 3, and has not made it again.
        let keeps = move |key| key == 3 || key == 2 && rank != 1;
        plant.report(rank).groups.retain(|group| keeps(group.key));
        plant.report(rank).destroyed.push(past(1, "dp0", 2, 600));
    }
    plant.report(3).groups.retain(|group| group.key != 2);
    plant.waits(0, 2, &[1, 3]);
    plant.waits(2, 2, &[1, 3]);
    plant.waits(1, 3, &[3]);
    plant.call(3, 1, SEND, &[1]);
    plant.confirm();
    let found = verdict(judge(&plant.scene, Question::Waiting));
    assert_eq!(
        (found.class, found.blamed.as_slice()),
        (Class::NotJoined, [1].as_slice()),
        "{found}"
    );
}

#[test]
fn of_those_who_made_a_group_again_only_who_never_used_the_first_one_is_odd() {
    let mut plant = Plant::new(4);
    plant.group(1, "tp0", &[0, 1, 2, 3], 0);
    plant.group(2, "tp0", &[0, 1, 2, 3], 0);
    for rank in 0..4 {
        // Ranks 0 and 3 have a second group; rank 3 left the only call of the first one out.
        let is_again = rank == 0 || rank == 3;
        let key = 1 + u64::from(is_again);
        plant.report(rank).groups.retain(|group| group.key == key);
        if is_again {
            plant
                .report(rank)
                .destroyed
                .push(past(1, "tp0", u64::from(rank == 0), 600));
        }
    }
    plant.waits(0, 2, &[1, 2]);
    plant.waits(3, 2, &[1, 2]);
    plant.waits(1, 1, &[3]);
    plant.waits(2, 1, &[3]);
    plant.confirm();
    let found = verdict(judge(&plant.scene, Question::Waiting));
    assert_eq!(
        (found.class, found.blamed.as_slice()),
        (Class::NotJoined, [3].as_slice()),
        "{found}"
    );
}

/// Ranks 1 to 3 sent and received a message each, destroyed the group and made it again; rank 3 left out to receive that of rank 0.
#[test]
fn a_group_that_only_messages_went_over_was_used() {
    let mut plant = Plant::new(4);
    plant.group(1, "dp0", &[0, 1, 2, 3], 0);
    plant.group(2, "dp0", &[0, 1, 2, 3], 0);
    plant.group(3, "world", &[0, 1, 2, 3], 4);
    plant.report(0).groups.retain(|group| group.key != 2);
    for rank in [1, 2, 3] {
        plant.report(rank).groups.retain(|group| group.key != 1);
        plant.report(rank).destroyed.push(Destroyed {
            calls: 1,
            ..past(1, "dp0", 0, 600)
        });
        plant.waits(rank, 3, &[0]);
    }
    plant.call(0, 1, SEND, &[3]);
    plant.confirm();
    let found = verdict(judge(&plant.scene, Question::Waiting));
    assert_eq!(
        (found.class, found.blamed.as_slice()),
        (Class::NotJoined, [3].as_slice()),
        "{found}"
    );
    let place = "destroyed group dp0 after a message";
    assert!(found.place.starts_with(place), "{found}");
}

#[test]
fn who_destroyed_a_group_after_the_call_did_its_part() {
    let plant = destroyed(5, 600);
    assert_eq!(judge(&plant.scene, Question::Waiting), Finding::Nothing);
    assert_eq!(plant.overdue(0, 7).class, Class::Link);
}

#[test]
fn a_rank_that_still_has_an_earlier_group_of_the_name_is_only_behind() {
    let mut plant = Plant::new(2);
    plant.group(1, "tp0", &[0, 1], 5);
    plant.group(2, "tp0", &[0, 1], 0);
    plant.report(0).groups.retain(|group| group.key == 2);
    plant.report(0).destroyed.push(past(1, "tp0", 5, 600));
    plant.report(1).groups.retain(|group| group.key == 1);
    plant.waits(0, 2, &[1]);
    let found = plant.overdue(0, 2);
    assert_eq!(
        (found.class, found.blamed.as_slice()),
        (Class::NotJoined, [1].as_slice()),
        "{found}"
    );
    assert!(found.place.contains("has not made group tp0"), "{found}");
    // One that the waiter never had was made in its place.
    plant.report(0).destroyed.clear();
    let found = plant.overdue(0, 2);
    assert_eq!(found.class, Class::Mismatch, "{found}");
}
