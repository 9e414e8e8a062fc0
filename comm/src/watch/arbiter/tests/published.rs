//! What is told after a verdict: as a consequence of it, or by itself.

use super::super::published::ECHO_MS;
use super::super::{ROUND_MS, UNKNOWN_WAIT_MS};
use super::{CALL, Play, board};
use crate::error::verdict::tests::example;
use crate::error::verdict::{CallId, Class, Verdict};
use crate::rendezvous::{Arbiter as _, DownReason};
use crate::types::Rank;
use crate::watch::report::CallOutcome;
use crate::watch::wire::{Cause, FromRank, encode};

#[test]
fn a_call_that_ranks_were_told_of_and_went_on_from_is_not_why_a_later_one_fails() {
    let last = |play: &Play| {
        let verdict = play.told.last();
        verdict.map(|verdict| (verdict.class, verdict.blamed.clone()))
    };
    let mut play = Play::new(&[0, 1, 2]);
    play.catch(CALL.seq - 1);
    play.pass(10_000);
    play.complain(Cause::InVain);
    play.pass(500);
    assert_eq!(last(&play), Some((Class::NotJoined, vec![1])));

    // Who ends soon has not gone on, unless others have made another call with it since.
    for (seq, is_told_now, count, class) in [
        (CALL.seq - 1, false, 8, Class::Mismatch),
        (CALL.seq - 2, false, 8, Class::PeerDead),
        // The call was asynchronous, and its program made that other one before it waited for it.
        (CALL.seq - 2, true, 8, Class::Mismatch),
        // The other call had no elements, so rank 0 ended it alone.
        (CALL.seq - 2, false, 0, Class::Mismatch),
    ] {
        let mut play = Play::new(&[0, 2]);
        play.catch(seq);
        play.make(CALL.seq - 1, false, CallOutcome::Completed);
        let made = play.made.iter_mut().rev().take(2);
        made.for_each(|(_, made)| made.call.count = count);
        if is_told_now {
            play.is_told(Rank(1), seq);
        }
        play.down(Rank(1), &DownReason::Killed { signal: 9 });
        play.complain(Cause::InVain);
        play.pass(1500);
        assert_eq!(last(&play), Some((class, vec![1])), "{:?}", play.told);
    }
}

#[test]
fn who_went_on_after_a_verdict_answers_for_what_it_does_later() {
    let told_later = |outcome, is_told_now, made_since: &[u64]| {
        let mut play = Play::new(&[0, 1, 2]);
        play.complain(Cause::InVain);
        play.pass(2 * ECHO_MS);
        assert_eq!(play.found(), Some((Class::NotJoined, [1].as_slice())));
        // Ranks 0 and 1 have made, or tried, a call of another group since.
        play.key = 77;
        play.answer = vec![0, 2];
        play.make(CALL.seq - 1, false, outcome);
        if is_told_now {
            // The board of rank 0 is known, which is in the next call.
            play.complain(Cause::Waits);
            play.pass(100);
            play.is_told(Rank(1), CALL.seq);
        }
        for seq in made_since {
            play.make(*seq, false, outcome);
        }
        play.complain(Cause::InVain);
        play.pass(UNKNOWN_WAIT_MS + 1000);
        let last = play.told.last().expect("a verdict");
        [CALL.key, play.key].map(|key| last.ends.contains(&CallId { key, ..CALL }))
    };
    let [failed, completed] = [CallOutcome::Failed, CallOutcome::Completed];
    assert_eq!(told_later(failed, false, &[]), [true, true]);
    assert_eq!(told_later(completed, false, &[]), [false, true]);
    // It did not know of the verdict while it made that call, but while it made the next one.
    assert_eq!(told_later(completed, true, &[]), [true, true]);
    assert_eq!(told_later(completed, true, &[CALL.seq]), [false, true]);
}

#[test]
fn what_ranks_found_of_a_call_on_devices_is_told_once_and_only_where_it_does_not_follow_from_something()
 {
    let call = CallId { key: 5, seq: 2 };
    let judge = |play: &mut Play, rank: u32, evidence: &str| {
        let verdict = Verdict {
            evidence: vec![evidence.to_owned()],
            ends: vec![call],
            about: Some(call),
            ..example()
        };
        let judged = encode(&FromRank::Judged(Box::new(verdict)));
        let acts = play.arbiter.heard(Rank(rank), &judged, play.now_ms);
        play.act(acts);
    };
    let mut play = Play::new(&[0, 1, 2]);
    judge(&mut play, 0, "what one rank heard");
    judge(&mut play, 1, "what another one heard");
    assert_eq!(play.told.len(), 1, "{:?}", play.told);
    assert_eq!(play.told[0].evidence, ["what one rank heard"]);

    let mut play = Play::new(&[0, 2]);
    let how = DownReason::Killed { signal: 9 };
    play.down(Rank(1), &how);
    play.complain(Cause::InVain);
    play.pass(20);
    assert_eq!(play.found(), Some((Class::PeerDead, [1].as_slice())));
    judge(&mut play, 0, "its device waited for that rank");
    assert_eq!(play.told.len(), 1, "{:?}", play.told);
}

#[test]
fn what_fails_soon_after_a_verdict_is_told_as_that_verdict() {
    let mut play = Play::new(&[0, 1, 2]);
    play.complain(Cause::InVain);
    play.pass(20);
    let first = play.told[0].line();
    let call = CallId { key: 77, seq: 1 };
    let complaint = FromRank::Complaint {
        call,
        cause: Cause::InVain,
        report: None,
    };
    let acts = play
        .arbiter
        .heard(Rank(2), &encode(&complaint), play.now_ms);
    play.act(acts);
    play.pass(5000);
    assert!(
        play.told.iter().all(|verdict| verdict.line() == first),
        "{:?}",
        play.told
    );
    assert!(
        play.told
            .last()
            .is_some_and(|verdict| verdict.ends.contains(&call))
    );
}

#[test]
fn an_end_with_the_exit_code_of_a_verdict_follows_from_it_however_late_it_is() {
    let told_again = |code| {
        let mut play = Play::new(&[]);
        play.down(Rank(1), &DownReason::Exited { code: 3 });
        play.complain(Cause::InVain);
        play.pass(2 * ROUND_MS);
        assert_eq!(play.found(), Some((Class::PeerDead, [1].as_slice())));
        play.pass(2 * ECHO_MS);
        play.down(Rank(2), &DownReason::Exited { code });
        let mut report = board(0, true);
        let group = &mut report.groups[0];
        group.key = 77;
        group.members = vec![0, 2];
        let wait = group.call.as_mut().and_then(|call| call.wait.as_mut());
        wait.expect("it waits").missing = vec![2];
        let complaint = FromRank::Complaint {
            call: CallId { key: 77, ..CALL },
            cause: Cause::InVain,
            report: Some(Box::new(report)),
        };
        let acts = play
            .arbiter
            .heard(Rank(0), &encode(&complaint), play.now_ms);
        play.act(acts);
        play.pass(2 * ROUND_MS);
        play.told.pop().map(|verdict| verdict.blamed)
    };
    assert_eq!(told_again(Class::PeerDead.code().into()), Some(vec![1]));
    // Both ended, and either may be why the other did.
    assert_eq!(told_again(3), Some(vec![1, 2]));
}
