//! A world that comes up, works, and goes.

use crate::support::*;
use std::time::Duration;

use muster_comm::rendezvous::{
    CoordinatorEvent, CoordinatorOptions, DownReason, RendezvousError, SessionEvent,
};
use muster_comm::sync::{Deadline, Ordering};
use muster_comm::types::Rank;

#[test]
fn a_goodbye_that_was_not_read_yet_wins_over_a_process_that_has_ended() {
    let coordinator = start(CoordinatorOptions {
        arbiter: Some(|| Box::new(Onlooker)),
        ..options(2)
    });
    let members = world(&coordinator, 2);
    members[0]
        .session
        .watch(FIND_RANK_1_ENDED.to_vec())
        .unwrap();
    // Nobody answers: the coordinator is busy with the complaint.
    members[1].session.leave();
    HAS_SAID_GOODBYE.store(true, Ordering::SeqCst);
    assert_eq!(members[0].event(), SessionEvent::Left { rank: Rank(1) });
    event_until(&coordinator, |event| {
        *event == CoordinatorEvent::Left { rank: Rank(1) }
    });
    members[0].session.leave();
}

#[test]
fn every_rank_gets_the_card_of_every_rank_in_rank_order() {
    for world_size in [1, 2, 17, affordable(256)] {
        let coordinator = start(options(world_size));
        let members = world(&coordinator, world_size);
        for (rank, member) in members.iter().enumerate() {
            assert_eq!(member.session.rank(), Rank::from_index(rank));
            let roster = member.session.roster();
            assert_eq!(roster.len(), members.len());
            for (rank, card) in roster.iter().enumerate() {
                assert_eq!(*card, hello(i64::try_from(rank).unwrap(), 1).card);
            }
        }
        on_all(&members, |session| session.leave());
    }
}

#[test]
fn a_round_brings_every_rank_the_bytes_of_all_ranks_in_rank_order() {
    let coordinator = start(options(17));
    let members = world(&coordinator, 17);
    for length in [0usize, 1, 100_000] {
        let part = |rank: Rank| vec![u8::try_from(rank.0).unwrap(); length + rank.index()];
        let expected: Vec<Vec<u8>> = (0..17).map(|rank| part(Rank(rank))).collect();
        let outcomes = on_all(&members, |session| {
            session.gather("addresses", part(session.rank()), Deadline::after(PATIENCE))
        });
        for outcome in outcomes {
            assert_eq!(outcome.as_ref(), Ok(&expected));
        }
    }
    on_all(&members, |session| session.leave());
}

#[test]
fn rounds_of_different_names_may_overlap_in_any_order() {
    let coordinator = start(options(2));
    let members = world(&coordinator, 2);
    std::thread::scope(|scope| {
        let calls = [(0u8, "a"), (0, "b"), (1, "b"), (1, "a")].map(|(rank, round)| {
            let session = &members[usize::from(rank)].session;
            scope.spawn(move || session.gather(round, vec![rank], Deadline::after(PATIENCE)))
        });
        for call in calls {
            assert_eq!(call.join().unwrap(), Ok(vec![vec![0], vec![1]]));
        }
    });
    on_all(&members, |session| session.leave());
}

#[test]
fn reports_go_to_the_owner_and_broadcasts_to_every_rank() {
    let coordinator = start(options(3));
    let members = world(&coordinator, 3);
    members[2].session.report(b"done".to_vec()).unwrap();
    let event = event_until(&coordinator, |event| {
        matches!(event, CoordinatorEvent::Report { .. })
    });
    let (rank, bytes) = (Rank(2), b"done".to_vec());
    assert_eq!(event, CoordinatorEvent::Report { rank, bytes });
    coordinator.broadcast(b"next".to_vec()).unwrap();
    for member in &members {
        assert_eq!(member.event(), SessionEvent::Message(b"next".to_vec()));
    }
    on_all(&members, |session| session.leave());
}

#[test]
fn an_abort_reaches_all_others_and_the_owner_and_not_its_origin() {
    let coordinator = start(options(3));
    let members = world(&coordinator, 3);
    members[1].session.abort(b"verdict".to_vec()).unwrap();
    let (origin, bytes) = (Rank(1), b"verdict".to_vec());
    let expected = SessionEvent::Abort {
        origin,
        bytes: bytes.clone(),
    };
    assert_eq!(members[0].event(), expected);
    assert_eq!(members[2].event(), expected);
    assert!(members[1].is_quiet());
    event_until(&coordinator, |event| {
        *event
            == CoordinatorEvent::Abort {
                origin,
                bytes: bytes.clone(),
            }
    });
    on_all(&members, |session| session.leave());
}

#[test]
fn a_rank_that_leaves_is_reported_left_and_never_down() {
    let coordinator = start(options(3));
    let members = world(&coordinator, 3);
    assert!(members[1].session.leave());
    assert!(members[1].session.leave());
    for other in [0, 2] {
        assert_eq!(members[other].event(), SessionEvent::Left { rank: Rank(1) });
    }
    coordinator.rank_down(Rank(1), DownReason::Exited { code: 0 });
    assert!(members[0].is_quiet());
    assert!(members[2].is_quiet());
    assert!(members[1].is_quiet());
    event_until(&coordinator, |event| {
        *event == CoordinatorEvent::Left { rank: Rank(1) }
    });
    let closed = members[1].session.report(Vec::new());
    assert_eq!(closed, Err(RendezvousError::SessionClosed));
    let round = members[0]
        .session
        .gather("late", Vec::new(), Deadline::after(PATIENCE));
    assert_eq!(round, Err(RendezvousError::RankLeft { rank: Rank(1) }));
    for rank in [0, 2] {
        members[rank].session.leave();
        let rank = Rank::from_index(rank);
        event_until(&coordinator, |event| {
            *event == CoordinatorEvent::Left { rank }
        });
    }
}

#[test]
fn a_coordinator_that_finishes_stays_until_the_last_rank_has_left() {
    let coordinator = start(options(3));
    let members = world(&coordinator, 3);
    members[0].session.leave();
    std::thread::scope(|scope| {
        scope.spawn(|| coordinator.finish(Deadline::after(PATIENCE)));
        let left = |rank| SessionEvent::Left { rank: Rank(rank) };
        assert_eq!(members[1].event(), left(0));
        assert!(members[1].is_quiet());
        members[1].session.leave();
        assert_eq!([members[2].event(), members[2].event()], [left(0), left(1)]);
        assert!(members[2].is_quiet(), "the coordinator is still there");
        members[2].session.leave();
    });
}

#[test]
fn a_coordinator_finishes_at_its_deadline_whoever_stays() {
    let coordinator = start(options(1));
    let members = world(&coordinator, 1);
    coordinator.finish(Deadline::after(Duration::from_millis(50)));
    let event = members[0].event();
    assert!(
        matches!(event, SessionEvent::CoordinatorLost { .. }),
        "{event:?}"
    );
}

#[test]
fn the_first_rank_may_say_how_large_the_world_is_and_others_must_agree() {
    let coordinator = start(options(0));
    let members = world(&coordinator, 3);
    let parts = on_all(&members, |session| {
        let rank = u8::try_from(session.rank().0).unwrap();
        session.gather("ranks", vec![rank], Deadline::after(PATIENCE))
    });
    for part in parts {
        assert_eq!(part, Ok(vec![vec![0], vec![1], vec![2]]));
    }
    on_all(&members, |session| session.leave());

    let coordinator = start(options(0));
    let first = join(&endpoint(&coordinator), hello(0, 3));
    event_until(&coordinator, |event| {
        matches!(event, CoordinatorEvent::Joined { rank: Rank(0) })
    });
    let second = join(&endpoint(&coordinator), hello(1, 2));
    for joining in [first, second] {
        let error = failure(joining);
        assert!(
            matches!(error, RendezvousError::WorldSize { .. }),
            "{error}"
        );
    }
}

#[test]
fn a_world_that_nobody_came_to_ends_by_its_deadline_and_names_no_rank() {
    let coordinator = start(CoordinatorOptions {
        deadline: Duration::from_millis(50),
        ..options(0)
    });
    let event = event_until(&coordinator, |event| {
        matches!(event, CoordinatorEvent::Failed(_))
    });
    let CoordinatorEvent::Failed(RendezvousError::Missing { absence }) = event else {
        panic!("nobody came: {event:?}");
    };
    assert_eq!(absence.world_size, 0);
}

#[test]
fn a_door_that_closes_leaves_its_port_free_and_the_world_works_on() {
    let coordinator = start(CoordinatorOptions {
        closes_door: true,
        ..options(2)
    });
    let address = coordinator.address();
    let members = world(&coordinator, 2);
    let next = start(CoordinatorOptions {
        bind: address,
        ..options(1)
    });
    assert_eq!(next.address(), address);
    let parts = on_all(&members, |session| {
        session.gather("after", vec![7], Deadline::after(PATIENCE))
    });
    for part in parts {
        assert_eq!(part, Ok(vec![vec![7], vec![7]]));
    }
    on_all(&members, |session| session.leave());
}
