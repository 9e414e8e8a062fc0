//! Who does not come, or goes: ranks and coordinators, in bring-up, after it, and in a round. The exact error, on
//! every rank.

use std::time::Duration;

use muster_comm::rendezvous::{
    CoordinatorEvent, CoordinatorOptions, DownReason, RendezvousError, SessionEvent,
};
use muster_comm::sync::{Clock, Deadline};
use muster_comm::types::Rank;

use crate::support::*;

#[test]
fn missing_ranks_are_named_to_all_present_ranks_at_the_deadline() {
    let deadline = Duration::from_millis(700);
    let coordinator = start(CoordinatorOptions {
        deadline,
        ..options(5)
    });
    let began = Clock::now();
    let endpoint = endpoint(&coordinator);
    let joining: Vec<Joining> = [0, 1, 3]
        .map(|rank| {
            let mut hello = hello(rank, 5);
            hello.card.host = format!("n{}", rank / 2);
            join(&endpoint, hello)
        })
        .into_iter()
        .collect();
    let expected = failed(&coordinator);
    for joining in joining {
        assert_eq!(failure(joining), expected);
    }
    let took = Clock::now().duration_since(began);
    assert!(took < deadline + AT_ONCE, "{took:?}");
    assert_eq!(expected.exit_code(), 10);
    let RendezvousError::Missing { absence } = &expected else {
        panic!("{expected}");
    };
    assert_eq!(absence.missing, [Rank(2), Rank(4)]);
    assert_eq!(absence.world_size, 5);
    let present: Vec<(Rank, &str, u32)> = absence
        .present
        .iter()
        .map(|presence| (presence.rank, presence.host.as_str(), presence.pid))
        .collect();
    let at = |rank, host| (Rank(rank), host, 1000 + rank);
    assert_eq!(present, [at(0, "n0"), at(1, "n0"), at(3, "n1")]);
    let text = expected.to_string();
    assert!(text.starts_with("ranks 2, 4 of 5 missing after "), "{text}");
    assert!(text.ends_with("hosts seen n0, n1"), "{text}");
}

#[test]
fn a_rank_that_gives_up_first_names_the_missing_and_the_others_learn_it_at_once() {
    let coordinator = start(options(3));
    let endpoint = endpoint(&coordinator);
    let patient = join(&endpoint, hello(0, 3));
    let hasty = join_within(&endpoint, secret(), hello(1, 3), Duration::from_millis(300));
    for error in [failure(hasty), failure(patient)] {
        assert_eq!(error.exit_code(), 10);
        let RendezvousError::Missing { absence } = &error else {
            panic!("{error}");
        };
        assert_eq!(absence.missing, [Rank(2)], "{error}");
    }
}

#[test]
fn a_rank_that_dies_during_bring_up_ends_it_at_once_with_its_name() {
    let coordinator = start(options(3));
    let endpoint = endpoint(&coordinator);
    let waiting = join(&endpoint, hello(0, 3));
    await_joined(&coordinator, 1);
    // Its process never got as far as joining.
    coordinator.rank_down(Rank(2), DownReason::Exited { code: 7 });
    let expected = RendezvousError::RankDown {
        rank: Rank(2),
        host: String::new(),
        pid: 0,
        reason: DownReason::Exited { code: 7 },
    };
    assert_eq!(failure(waiting), expected);
    assert_eq!(failed(&coordinator), expected);
    assert_eq!(
        expected.to_string(),
        "rank 2 (never joined) exited with code 7"
    );
    assert_eq!(expected.exit_code(), 20);
}

#[test]
fn a_coordinator_that_goes_during_bring_up_is_gone_on_every_rank() {
    let coordinator = start(options(3));
    let endpoint = endpoint(&coordinator);
    let joining = [0, 1].map(|rank| join(&endpoint, hello(rank, 3)));
    await_joined(&coordinator, 2);
    let began = Clock::now();
    drop(coordinator);
    for joining in joining {
        let error = failure(joining);
        assert!(
            matches!(error, RendezvousError::CoordinatorGone { .. }),
            "{error}"
        );
        assert_eq!(error.exit_code(), 20);
    }
    let took = Clock::now().duration_since(began);
    assert!(took < AT_ONCE, "{took:?}");
}

#[test]
fn a_coordinator_that_goes_later_is_lost_to_every_session_and_ends_its_rounds() {
    let coordinator = start(options(3));
    let members = world(&coordinator, 3);
    let round = std::thread::scope(|scope| {
        let session = &members[0].session;
        let round =
            scope.spawn(move || session.gather("never", Vec::new(), Deadline::after(PATIENCE)));
        Clock::pause(Duration::from_millis(50));
        drop(coordinator);
        round.join().unwrap()
    });
    assert!(matches!(
        round,
        Err(RendezvousError::CoordinatorGone { .. })
    ));
    for member in &members {
        let event = member.event();
        assert!(
            matches!(event, SessionEvent::CoordinatorLost { .. }),
            "{event:?}"
        );
        assert!(
            member.events.recv_timeout(PATIENCE).is_err(),
            "it is the last event"
        );
        let error = member.session.report(Vec::new());
        assert!(error.is_err());
    }
}

#[test]
fn a_rank_that_ends_without_goodbye_is_down_once_on_all_others() {
    let coordinator = start(options(4));
    let mut members = world(&coordinator, 4);
    let began = Clock::now();
    drop(members.remove(2));
    for member in &members {
        let (rank, reason) = (Rank(2), DownReason::HungUp);
        assert_eq!(member.event(), SessionEvent::Down { rank, reason });
    }
    let took = Clock::now().duration_since(began);
    assert!(took < AT_ONCE, "{took:?}");
    coordinator.rank_down(Rank(2), DownReason::Killed { signal: 9 });
    assert!(members.iter().all(Member::is_quiet), "it is reported once");
    event_until(&coordinator, |event| {
        *event
            == CoordinatorEvent::Lost {
                rank: Rank(2),
                reason: DownReason::HungUp,
            }
    });
    on_all(&members, |session| session.leave());
}

#[test]
fn an_owner_that_knows_exits_gives_the_reason_whether_it_speaks_first_or_second() {
    for owner_first in [true, false] {
        let coordinator = start(CoordinatorOptions {
            owner_knows_exits: true,
            ..options(3)
        });
        let mut members = world(&coordinator, 3);
        let reason = DownReason::Killed { signal: 9 };
        let victim = members.remove(1);
        if owner_first {
            coordinator.rank_down(Rank(1), reason.clone());
            assert_eq!(
                members[0].event(),
                SessionEvent::Down {
                    rank: Rank(1),
                    reason: reason.clone()
                }
            );
            drop(victim);
        } else {
            drop(victim);
            event_until(&coordinator, |event| {
                matches!(event, CoordinatorEvent::Lost { .. })
            });
            coordinator.rank_down(Rank(1), reason.clone());
            assert_eq!(
                members[0].event(),
                SessionEvent::Down {
                    rank: Rank(1),
                    reason: reason.clone()
                }
            );
        }
        assert_eq!(
            members[1].event(),
            SessionEvent::Down {
                rank: Rank(1),
                reason
            }
        );
        assert!(members.iter().all(Member::is_quiet));
        on_all(&members, |session| session.leave());
    }
}

#[test]
fn what_a_rank_said_before_it_died_is_heard_even_if_the_owner_knows_of_its_death_first() {
    let coordinator = start(options(2));
    let members = world(&coordinator, 2);
    for round in 0..3 {
        let report = vec![round; 1024 * 1024];
        members[1].session.report(report).unwrap();
    }
    let reason = DownReason::Killed { signal: 9 };
    coordinator.rank_down(Rank(1), reason.clone());
    let rank = Rank(1);
    assert_eq!(members[0].event(), SessionEvent::Down { rank, reason });
    let mut reports = Vec::new();
    while let Some(event) = coordinator.events().try_next() {
        if let CoordinatorEvent::Report { rank, bytes } = event {
            reports.push((rank, bytes.len(), bytes[0]));
        }
    }
    let expected: Vec<_> = (0..3).map(|round| (rank, 1024 * 1024, round)).collect();
    assert_eq!(reports, expected);
    members[0].session.leave();
}

#[test]
fn an_owner_that_says_nothing_delays_the_news_by_its_fifty_milliseconds_only() {
    let coordinator = start(CoordinatorOptions {
        owner_knows_exits: true,
        ..options(2)
    });
    let mut members = world(&coordinator, 2);
    let began = Clock::now();
    drop(members.remove(1));
    let (rank, reason) = (Rank(1), DownReason::HungUp);
    assert_eq!(members[0].event(), SessionEvent::Down { rank, reason });
    let took = Clock::now().duration_since(began);
    assert!(took < AT_ONCE, "{took:?}");
    members[0].session.leave();
}

#[test]
fn a_round_that_one_rank_does_not_enter_names_it_to_all_who_did() {
    let coordinator = start(options(3));
    let members = world(&coordinator, 3);
    let budget = Duration::from_millis(200);
    let began = Clock::now();
    let outcomes = on_all(&members[..2], |session| {
        session.gather("boards", Vec::new(), Deadline::after(budget))
    });
    let took = Clock::now().duration_since(began);
    assert!(took < budget + AT_ONCE, "{took:?}");
    for outcome in &outcomes {
        let Err(RendezvousError::RoundMissing {
            missing,
            world_size,
            ..
        }) = outcome
        else {
            panic!("{outcome:?}");
        };
        assert_eq!(*missing, [Rank(2)]);
        assert_eq!(*world_size, 3);
    }
    // Who comes later learns the same at once instead of waiting for its own deadline.
    let late = members[2]
        .session
        .gather("boards", Vec::new(), Deadline::after(PATIENCE));
    assert!(
        matches!(late, Err(RendezvousError::RoundMissing { .. })),
        "{late:?}"
    );
    // Other rounds are as usable as before.
    let after = on_all(&members, |session| {
        session.gather("after", Vec::new(), Deadline::after(PATIENCE))
    });
    assert!(after.iter().all(Result::is_ok), "{after:?}");
    on_all(&members, |session| session.leave());
}

#[test]
fn a_round_ends_at_once_for_all_when_a_rank_dies_in_it() {
    let coordinator = start(options(3));
    let mut members = world(&coordinator, 3);
    let victim = members.remove(2);
    let outcomes = std::thread::scope(|scope| {
        scope.spawn(move || {
            Clock::pause(Duration::from_millis(50));
            drop(victim);
        });
        on_all(&members, |session| {
            session.gather("boards", Vec::new(), Deadline::after(PATIENCE))
        })
    });
    for outcome in outcomes {
        let Err(RendezvousError::RankDown {
            rank, pid, reason, ..
        }) = outcome
        else {
            panic!("{outcome:?}");
        };
        assert_eq!((rank, pid, reason), (Rank(2), 1002, DownReason::HungUp));
    }
    on_all(&members, |session| session.leave());
}

#[test]
fn one_rank_cannot_enter_a_round_twice() {
    let coordinator = start(options(2));
    let members = world(&coordinator, 2);
    let session = &members[0].session;
    std::thread::scope(|scope| {
        let first = scope.spawn(|| session.gather("r", Vec::new(), Deadline::after(PATIENCE)));
        Clock::pause(Duration::from_millis(50));
        let second = session.gather("r", Vec::new(), Deadline::after(PATIENCE));
        assert!(
            matches!(second, Err(RendezvousError::RoundMisused { .. })),
            "{second:?}"
        );
        members[1]
            .session
            .gather("r", Vec::new(), Deadline::after(PATIENCE))
            .unwrap();
        first.join().unwrap().unwrap();
    });
    on_all(&members, |session| session.leave());
}
