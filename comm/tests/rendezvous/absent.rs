//! Who does not come, or goes: ranks and coordinators, in bring-up, after it, and in a round. The exact error, on
//! every rank.

use std::time::Duration;

use muster_comm::rendezvous::{
    Absent, CoordinatorEvent, CoordinatorOptions, DownReason, RendezvousError, Session,
    SessionEvent,
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
fn a_process_that_is_seen_stopped_before_its_rank_joined_ends_bring_up_and_one_that_runs_is_told_of()
 {
    let coordinator = start(options(3));
    let endpoint = endpoint(&coordinator);
    let waiting = join(&endpoint, hello(0, 3));
    await_joined(&coordinator, 1);
    let seen = |pid, is_stopped| Absent {
        host: "n1".to_owned(),
        pid,
        state: if is_stopped { "state T" } else { "it runs" }.to_owned(),
        is_stopped,
    };
    let begun = Clock::now();
    let error = loop {
        coordinator.rank_absent(Rank(1), seen(8, false));
        coordinator.rank_absent(Rank(2), seen(9, true));
        match coordinator
            .events()
            .next(Deadline::after(Duration::from_millis(50)))
        {
            Some(CoordinatorEvent::Failed(error)) => break error,
            _ => assert!(Clock::now().duration_since(begun) < PATIENCE),
        }
    };
    assert!(Clock::now().duration_since(begun) >= Duration::from_millis(900));
    assert_eq!(error.exit_code(), 21);
    let text = "rank 2 (n1 pid 9) does not run: state T, before it joined";
    assert_eq!(error.to_string(), text);
    assert_eq!(failure(waiting), error);
    // Who comes later hears the same.
    assert_eq!(failure(join(&endpoint, hello(1, 3))), error);

    let coordinator = start(options(2));
    let endpoint = coordinator.address().into();
    let waiting = join_within(&endpoint, secret(), hello(0, 2), Duration::from_secs(1));
    await_joined(&coordinator, 1);
    coordinator.rank_absent(Rank(1), seen(8, false));
    let error = failure(waiting);
    assert_eq!(error.exit_code(), 10);
    assert!(
        error.to_string().ends_with("; rank 1: pid 8, it runs"),
        "{error}"
    );
}

#[test]
fn a_rank_that_stands_still_or_dies_before_the_first_round_ends_it_for_all_with_one_text_and_time()
{
    for is_dead in [false, true] {
        let coordinator = start(CoordinatorOptions {
            arbiter: Some(|| Box::new(Onlooker)),
            ..options(3)
        });
        let members = world(&coordinator, 3);
        if is_dead {
            coordinator.rank_down(Rank(2), DownReason::Killed { signal: 9 });
        }
        let (first, late) = (&members[0].session, &members[1].session);
        let gather = |session: &Session| {
            let all = session.gather("ready", Vec::new(), Deadline::after(PATIENCE));
            let error = all.expect_err("rank 2 does not come");
            (error, session.failed_unix_ms())
        };
        let outcomes = std::thread::scope(|scope| {
            let first = scope.spawn(|| gather(first));
            // It was busy elsewhere when the others were told, and notices there.
            let late = scope.spawn(|| {
                while !late.is_over() {
                    Clock::pause(Duration::from_millis(1));
                }
                Clock::pause(Duration::from_millis(30));
                gather(late)
            });
            [first, late].map(|one| one.join().unwrap())
        });
        assert_eq!(outcomes[0], outcomes[1]);
        assert!(outcomes[0].1.is_some());
        let code = if is_dead { 20 } else { 21 };
        assert_eq!(outcomes[0].0.exit_code(), code, "{}", outcomes[0].0);
        assert_eq!(failed(&coordinator), outcomes[0].0);
    }
}

#[test]
fn ranks_that_come_after_bring_up_has_failed_are_waited_for_and_told() {
    let coordinator = start(options(3));
    let endpoint = endpoint(&coordinator);
    let waiting = join(&endpoint, hello(0, 3));
    await_joined(&coordinator, 1);
    coordinator.rank_down(Rank(2), DownReason::Killed { signal: 9 });
    let error = failure(waiting);
    let late = std::thread::spawn(move || {
        Clock::pause(Duration::from_millis(300));
        failure(join(&endpoint, hello(1, 3)))
    });
    // As the rank does that serves it.
    let begun = Clock::now();
    coordinator.finish(Deadline::after(PATIENCE));
    assert!(Clock::now().duration_since(begun) < PATIENCE);
    assert_eq!(late.join().unwrap(), error);
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
        assert!(!member.session.leave(), "nobody answers the goodbye");
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

#[test]
fn a_rank_that_stands_still_after_it_came_to_a_round_is_named_and_not_who_waits_for_it() {
    let coordinator = start(CoordinatorOptions {
        arbiter: Some(|| Box::new(Onlooker)),
        ..options(3)
    });
    let members = world(&coordinator, 3);
    std::thread::scope(|scope| {
        // Rank 1 waits for rank 2 elsewhere, and so never comes.
        for rank in [0, 2] {
            let session = &members[rank].session;
            scope.spawn(move || {
                let all = session.gather("ready", Vec::new(), Deadline::after(PATIENCE));
                let text = all.expect_err("rank 1 does not come").to_string();
                assert!(
                    text.contains("rank 2") && text.contains("state T"),
                    "{text}"
                );
            });
        }
    });
}
