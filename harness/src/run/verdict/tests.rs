//! Runs that went wrong in one way each, and whom the verdict blames.

use muster_comm::error::verdict::CallId;
use muster_comm::rendezvous::DownReason;
use muster_comm::types::Rank;
use muster_comm::watch::judge::{Observation, observed};

use super::*;
use crate::check::collect::tests::collector;
use crate::check::message::RankMessage;

fn tell(collector: &mut Collector, rank: u32, kind: ErrorKind) {
    let failed = Failed {
        case: Some(0),
        text: kind.to_string(),
        kind: Some(kind),
        exit: 70,
        help: Some("do this".to_owned()),
    };
    let bytes = RankMessage::Failed(failed).encode().expect("encodes");
    collector.take(rank, &bytes);
}

fn death(rank: u32) -> Death {
    Death {
        rank,
        how: "was killed by signal 9 (SIGKILL)".to_owned(),
        exit: None,
        said: None,
        fate: Fate::from(&DownReason::Killed { signal: 9 }),
    }
}

fn all_done(collector: &mut Collector) {
    for rank in 0..4 {
        collector.take(rank, &RankMessage::Done.encode().expect("encodes"));
    }
}

fn closed(peer: u32) -> ErrorKind {
    ErrorKind::PeerClosed {
        peer: Rank(peer),
        how: "was killed by signal 9".to_owned(),
        orderly: false,
    }
}

fn stalled(waiting_for: &[u32]) -> ErrorKind {
    ErrorKind::Stalled {
        waiting_for: waiting_for.iter().copied().map(Rank).collect(),
        waited_ms: 30_000,
    }
}

#[test]
fn ranks_that_all_did_their_work_leave_no_verdict() {
    let mut collector = collector();
    all_done(&mut collector);
    assert_eq!(judge(&Facts::default(), &collector), None);
}

#[test]
fn the_dead_rank_is_blamed_and_its_peers_are_witnesses() {
    let mut collector = collector();
    tell(&mut collector, 1, closed(0));
    let facts = Facts {
        deaths: vec![death(3), death(2)],
        ..Facts::default()
    };
    let verdict = judge(&facts, &collector).expect("a verdict");
    assert_eq!(
        (verdict.class, verdict.blamed.as_slice()),
        (Exit::PeerDead, [3].as_slice())
    );
    assert!(
        verdict
            .text
            .contains("rank 3 was killed by signal 9 (SIGKILL)"),
        "{verdict:?}"
    );
    assert!(
        verdict
            .evidence
            .iter()
            .any(|line| line.starts_with("rank 1: ")),
        "{verdict:?}"
    );
}

#[test]
fn a_panic_is_told_with_its_words() {
    let facts = Facts {
        deaths: vec![Death {
            said: Some("panicked at x.rs:3 it broke".to_owned()),
            ..death(1)
        }],
        ..Facts::default()
    };
    let verdict = judge(&facts, &collector()).expect("a verdict");
    assert!(
        verdict
            .text
            .starts_with("rank 1 panicked at x.rs:3 it broke"),
        "{verdict:?}"
    );
}

#[test]
fn an_echo_never_hides_the_first_cause() {
    let mut collector = collector();
    tell(
        &mut collector,
        0,
        ErrorKind::PeerAborted {
            origin: Rank(2),
            reason: "x".to_owned(),
            cause: Box::new(stalled(&[3])),
        },
    );
    tell(&mut collector, 2, stalled(&[3]));
    let verdict = judge(&Facts::default(), &collector).expect("a verdict");
    assert_eq!(
        (verdict.class, verdict.blamed.as_slice()),
        (Exit::NotJoined, [3].as_slice())
    );
    assert_eq!(verdict.next.as_deref(), Some("do this"));
    let facts = Facts {
        frozen: vec![(3, 'T')],
        ..Facts::default()
    };
    let verdict = judge(&facts, &collector).expect("a verdict");
    assert_eq!(
        (verdict.class, verdict.blamed.as_slice()),
        (Exit::PeerFrozen, [3].as_slice())
    );
}

#[test]
fn only_echoes_still_lead_to_the_origin() {
    let mut collector = collector();
    tell(
        &mut collector,
        0,
        ErrorKind::PeerAborted {
            origin: Rank(2),
            reason: "x".to_owned(),
            cause: Box::new(closed(3)),
        },
    );
    let verdict = judge(&Facts::default(), &collector).expect("a verdict");
    assert_eq!(
        (verdict.class, verdict.blamed.as_slice()),
        (Exit::PeerDead, [3].as_slice())
    );
}

#[test]
fn silence_and_nonsense_are_never_a_pass() {
    let mut collector = collector();
    let verdict = judge(&Facts::default(), &collector).expect("a verdict");
    assert_eq!(verdict.class, Exit::Internal);
    assert_eq!(verdict.text, "rank 0-3 ended without a result");
    all_done(&mut collector);
    collector.take(1, &[0xff; 9]);
    let verdict = judge(&Facts::default(), &collector).expect("a verdict");
    assert_eq!(verdict.blamed, [1]);
}

#[test]
fn an_interruption_is_one_whatever_else_broke() {
    let facts = Facts {
        interrupted: true,
        deaths: vec![death(0)],
        ..Facts::default()
    };
    let verdict = judge(&facts, &collector()).expect("a verdict");
    assert_eq!(
        (verdict.class, verdict.blamed.len()),
        (Exit::Interrupted, 0)
    );
}

#[test]
fn a_failure_on_devices_is_told_in_the_words_of_the_rank_that_met_it_with_the_verdict_of_all() {
    let mut collector = collector();
    let kind = ErrorKind::DeviceStalled {
        blamed: vec![Rank(2)],
        what: "rank 2 never enqueued all_reduce #2".to_owned(),
    };
    tell(&mut collector, 0, kind.clone());
    let line = "VERDICT NOT_JOINED who=rank 2 (n1, pid 7) what=all_reduce #2 on world on npu \
                where=running user code since=12:03:04.512Z (+5.0 s) confidence=certain \
                evidence=a others=b next=c";
    let mut found = watch::Verdict::parse(line, 43_400_000).expect("a verdict");
    let facts = |found: &watch::Verdict| Facts {
        found: Some(Box::new(found.clone())),
        ..Facts::default()
    };
    // What the arbiter sees of calls on the host is evidence beside what the ranks say of their devices.
    let verdict = judge(&facts(&found), &collector).expect("a verdict");
    assert!(verdict.text.contains("never enqueued all_reduce #2"));
    assert_eq!((verdict.found, &*verdict.evidence[0]), (None, line));
    found.kind = kind;
    let verdict = judge(&facts(&found), &collector).expect("a verdict");
    assert!(verdict.text.starts_with("rank 0: rank 2 never enqueued"));
    assert_eq!(
        (verdict.class, &*verdict.blamed),
        (Exit::NotJoined, &[2][..])
    );
    assert_eq!(verdict.found.as_deref(), Some(&found));
}

fn found(class: watch::Class, ends: &[CallId]) -> watch::Verdict {
    let seen = Observation::StoppedInCall {
        state: "state T".to_owned(),
    };
    watch::Verdict {
        class,
        ends: ends.to_vec(),
        ..observed(2, 7, seen, 1)
    }
}

/// What is made of a program's failure where the first rank ended in this way, if one did.
fn programs(facts: &Facts, first: Option<Ended>) -> Option<watch::Class> {
    let told = |_: &Death| found(watch::Class::PeerDead, &[]);
    judge_programs(facts, first, told).map(|verdict| verdict.class)
}

#[test]
fn of_programs_the_arbiter_knows_best_then_a_rank_that_holds_up_the_end_then_the_first_death() {
    let call = CallId { key: 1, seq: 2 };
    let mut facts = Facts::default();
    assert_eq!(programs(&facts, None), None);
    facts.deaths = vec![death(3)];
    let killed = Some(Ended::Signaled(9));
    assert_eq!(programs(&facts, killed), Some(watch::Class::PeerDead));
    facts.last = Some(found(watch::Class::PeerFrozen, &[]));
    assert_eq!(programs(&facts, killed), Some(watch::Class::PeerFrozen));
    facts.found = Some(Box::new(found(watch::Class::Deadlock, &[call])));
    assert_eq!(programs(&facts, killed), Some(watch::Class::Deadlock));
    facts.interrupted = true;
    assert_eq!(programs(&facts, killed), None);
}

#[test]
fn of_programs_a_mismatch_is_the_cause_only_where_a_rank_ended_after_it() {
    let mut facts = Facts {
        found: Some(Box::new(found(watch::Class::Mismatch, &[]))),
        ..Facts::default()
    };
    assert_eq!(programs(&facts, None), None);
    facts.deaths = vec![death(3)];
    let gave_up = Some(Ended::Exited(1));
    assert_eq!(programs(&facts, gave_up), Some(watch::Class::Mismatch));
}

#[test]
fn of_programs_a_verdict_without_evidence_gives_way_to_what_was_seen_of_a_process() {
    let call = CallId { key: 1, seq: 2 };
    let mut facts = Facts {
        found: Some(Box::new(found(watch::Class::Internal, &[call]))),
        deaths: vec![death(3)],
        ..Facts::default()
    };
    let gave_up = Some(Ended::Exited(1));
    assert_eq!(programs(&facts, gave_up), Some(watch::Class::Internal));
    let killed = Some(Ended::Signaled(9));
    assert_eq!(programs(&facts, killed), Some(watch::Class::PeerDead));
    facts.stopped = Some(found(watch::Class::PeerFrozen, &[]));
    assert_eq!(programs(&facts, gave_up), Some(watch::Class::PeerDead));
}
