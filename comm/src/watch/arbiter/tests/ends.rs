//! Which of several ranks that end is named, and who leaves in good order.

use super::*;
use crate::error::Field;

fn link_error(peer: Rank, what: &str) -> Cause {
    Cause::Failed {
        kind: ErrorKind::Transport {
            peer,
            what: what.to_owned(),
        },
        usable: false,
        culprit: None,
    }
}

#[test]
fn ranks_that_end_at_one_moment_are_named_together_and_one_that_ends_later_is_not() {
    // Rank 0 waits for rank 1.
    let found = |[first, second]: [u32; 2], gap_ms| {
        let mut play = Play::new(&[]);
        // Nothing was to be done for a while.
        play.now_ms += 1000;
        let first_ms = play.now_ms;
        play.down(Rank(first), &DownReason::Ended);
        // The coordinator looked at the other process once more before it told of that end.
        play.pass(50);
        let at_ms = first_ms + gap_ms;
        play.arbiter.down(Rank(second), &DownReason::Ended, at_ms);
        play.complain(Cause::InVain);
        play.pass(2 * ROUND_MS);
        play.found().map(|(_, blamed)| blamed.to_vec())
    };
    assert_eq!(found([1, 2], 0), Some(vec![1, 2]));
    assert_eq!(found([2, 1], 0), Some(vec![1, 2]));
    assert_eq!(found([1, 2], 10 * TOGETHER_MS), Some(vec![1]));
    // The one that came first may be why the other ended.
    assert_eq!(found([2, 1], 10 * TOGETHER_MS), Some(vec![1, 2]));
}

#[test]
fn signals_that_end_ranks_at_one_moment_are_named_in_whichever_order_they_are_seen() {
    // Rank 0 waits for rank 1.
    let found = |first: u32, [one, two]: [i32; 2], gap_ms| {
        let mut play = Play::new(&[]);
        play.down(Rank(first), &DownReason::Killed { signal: one });
        let second = Rank(3 - first);
        let at_ms = play.now_ms + gap_ms;
        let reason = DownReason::Killed { signal: two };
        play.arbiter.down(second, &reason, at_ms);
        play.complain(Cause::InVain);
        play.pass(2 * ROUND_MS);
        play.found().map(|(_, blamed)| blamed.to_vec())
    };
    for signals in [[15, 15], [9, 15], [15, 9]] {
        assert_eq!(found(1, signals, 3), Some(vec![1, 2]), "{signals:?}");
        assert_eq!(found(2, signals, 3), Some(vec![1, 2]), "{signals:?}");
    }
    // It may have followed, and a broken pipe did.
    assert_eq!(found(1, [9, 15], 10 * TOGETHER_MS), Some(vec![1]));
    assert_eq!(found(1, [9, 13], 3), Some(vec![1]));
}

#[test]
fn who_leaves_after_a_call_of_another_kind_is_not_said_to_have_left_before_it() {
    let found = |entered| {
        let mut play = Play::new(&[0]);
        let mut report = board(1, false);
        report.groups[0].entered = entered;
        report.calls = (entered == CALL.seq)
            .then(|| CallRecord {
                key: CALL.key,
                seq: CALL.seq,
                call: CallCode { word: 5, count: 8 },
                outcome: CallOutcome::Completed,
                ..CallRecord::default()
            })
            .into_iter()
            .collect();
        let leaves = encode(&FromRank::Leaves(Box::new(report)));
        let acts = play.arbiter.heard(Rank(1), &leaves, play.now_ms);
        play.act(acts);
        play.arbiter.left(Rank(1));
        play.complain(Cause::InVain);
        play.pass(2 * ROUND_MS + UNKNOWN_WAIT_MS);
        play.told.first().map(|verdict| verdict.class)
    };
    assert_eq!(found(CALL.seq - 1), Some(Class::NotJoined));
    assert_eq!(found(CALL.seq), Some(Class::Mismatch));
}

#[test]
fn of_ends_that_nobody_saw_only_the_first_is_certain() {
    let mut play = Play::new(&[]);
    play.down(Rank(2), &DownReason::Ended);
    play.down(Rank(1), &DownReason::Ended);
    play.complain(Cause::InVain);
    play.pass(2 * ROUND_MS);
    assert_eq!(play.told[0].confidence, Confidence::Likely);
    assert!(
        play.told[0]
            .to_string()
            .contains("a launcher may have ended the others")
    );
    let mut alone = Play::new(&[]);
    alone.down(Rank(1), &DownReason::Ended);
    alone.complain(Cause::InVain);
    alone.pass(2 * ROUND_MS);
    assert_eq!(alone.told[0].confidence, Confidence::Certain);
}

#[test]
fn who_ended_before_a_rank_whose_link_broke_is_named_beside_it() {
    let mut play = Play::new(&[0]);
    let killed = DownReason::Killed { signal: 9 };
    play.down(Rank(2), &killed);
    play.down(Rank(1), &killed);
    play.complain(link_error(Rank(1), "it closed"));
    play.pass(2 * ROUND_MS);
    assert_eq!(play.found(), Some((Class::PeerDead, [1, 2].as_slice())));
}

#[test]
fn an_end_that_may_follow_from_another_is_named_beside_it_only_where_it_came_first() {
    let killed = |signal| DownReason::Killed { signal };
    let first = |first: (u32, DownReason), second: (u32, DownReason)| {
        let mut play = Play::new(&[]);
        play.down(Rank(first.0), &first.1);
        play.pass(2 * TOGETHER_MS);
        play.down(Rank(second.0), &second.1);
        play.complain(Cause::InVain);
        play.pass(2 * ROUND_MS);
        play.told.swap_remove(0).blamed
    };
    let failed = || DownReason::Exited { code: 3 };
    assert_eq!(first((1, killed(15)), (2, killed(9))), [1, 2]);
    assert_eq!(first((2, killed(15)), (1, killed(9))), [1, 2]);
    assert_eq!(first((2, failed()), (1, killed(9))), [1, 2]);
    // These may have ended because of the first one: a launcher asks the others to end.
    assert_eq!(first((1, killed(9)), (2, killed(15))), [1]);
    assert_eq!(first((1, killed(9)), (2, failed())), [1]);
}

#[test]
fn the_first_death_is_told_when_the_processes_that_were_ending_then_have_ended() {
    let play = || {
        let mut play = Play::new(&[]);
        let process = |pid| ProcessId {
            pid,
            ..ProcessId::default()
        };
        play.arbiter.processes = (0..3).map(process).collect();
        play.arbiter.is_ending = Some(|process| process.pid == 2);
        play.down(Rank(1), &DownReason::Killed { signal: 11 });
        play.complain(Cause::InVain);
        play.pass(5 * ROUND_MS);
        assert_eq!(play.found(), None);
        play
    };
    let mut ended = play();
    ended.down(Rank(2), &DownReason::Killed { signal: 9 });
    ended.pass(2 * ROUND_MS);
    assert_eq!(ended.found(), Some((Class::PeerDead, [1, 2].as_slice())));
    // One that does not end is not waited for without end.
    let mut stuck = play();
    stuck.pass(ENDING_WAIT_MS);
    assert_eq!(stuck.found(), Some((Class::PeerDead, [1].as_slice())));
}

#[test]
fn a_link_to_a_rank_that_ends_by_a_mismatch_it_was_told_breaks_because_of_that() {
    let mut play = Play::new(&[0, 1, 2]);
    let kind = ErrorKind::Mismatch {
        field: Field::Dtype,
        rank: Rank(1),
        mine: "f32".to_owned(),
        peer: Rank(2),
        theirs: "i32".to_owned(),
    };
    let complaint = FromRank::Complaint {
        call: CallId { key: 4, seq: 1 },
        cause: Cause::Failed {
            kind,
            usable: true,
            culprit: None,
        },
        report: None,
    };
    let acts = play
        .arbiter
        .heard(Rank(1), &encode(&complaint), play.now_ms);
    play.act(acts);
    play.pass(500);
    assert_eq!(play.found().map(|found| found.0), Some(Class::Mismatch));
    // Its port is closed, and its process is about to end.
    let peer = Rank(play.told[0].blamed[0]);
    play.complain(link_error(peer, "connection refused"));
    play.pass(300);
    play.down(peer, &DownReason::Exited { code: 7 });
    play.pass(300);
    let classes: Vec<Class> = play.told.iter().map(|told| told.class).collect();
    assert!(
        classes.iter().all(|class| *class == Class::Mismatch),
        "{:?}",
        play.told
    );
    assert!(play.told.iter().any(|told| told.ends.contains(&CALL)));
}

#[test]
fn a_link_to_a_rank_that_ends_after_its_answer_is_not_what_is_broken() {
    let mut play = Play::new(&[1, 2]);
    play.complain(Cause::Waits);
    // Rank 1 has answered in the round that is under way, and is killed: its port is closed first.
    play.pass(20);
    play.answer = vec![2];
    play.sight = Some(Sight::Ended);
    play.complain(link_error(Rank(1), "connection refused"));
    play.pass(2 * ROUND_MS);
    assert_eq!(play.found(), None);
    play.down(Rank(1), &DownReason::Killed { signal: 9 });
    play.pass(2 * ROUND_MS);
    assert_eq!(play.found(), Some((Class::PeerDead, [1].as_slice())));
}

#[test]
fn a_link_to_a_process_that_is_ending_waits_for_that_end() {
    let play = || {
        let mut play = Play::new(&[0, 2]);
        let process = |pid| ProcessId {
            pid,
            ..ProcessId::default()
        };
        play.arbiter.processes = (0..3).map(process).collect();
        play.arbiter.is_ending = Some(|process| process.pid == 1);
        play.sight = super::process('R', 5, 100);
        play.complain(link_error(Rank(1), "connection refused"));
        play.pass(EXIT_WAIT_MS / 2);
        assert_eq!(play.found(), None);
        play
    };
    let mut ended = play();
    ended.down(Rank(1), &DownReason::Exited { code: 0 });
    ended.pass(2 * ROUND_MS);
    assert_eq!(ended.found(), Some((Class::PeerDead, [1].as_slice())));
    // One that does not end is not waited for without end.
    let mut stuck = play();
    stuck.pass(EXIT_WAIT_MS);
    assert_eq!(stuck.found().map(|found| found.0), Some(Class::Link));
}

#[test]
fn a_link_that_a_rank_drops_as_it_gives_up_is_not_what_is_broken() {
    let mut play = Play::new(&[0, 1, 2]);
    // Rank 0 gives up its wait for rank 1; rank 2 came to the group when that was so.
    let dropped = FromRank::Complaint {
        call: CALL,
        cause: link_error(Rank(0), "the peer closed the link"),
        report: None,
    };
    let acts = play.arbiter.heard(Rank(2), &encode(&dropped), play.now_ms);
    play.act(acts);
    play.complain(Cause::InVain);
    play.pass(10 * ROUND_MS);
    assert_eq!(play.found(), Some((Class::NotJoined, [1].as_slice())));
    assert_eq!(play.told.len(), 1, "{:?}", play.told);
}
