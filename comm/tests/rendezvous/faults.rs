//! Every fault of bring-up and of the life after it: the exact error, on every rank.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use muster_comm::rendezvous::{
    Claimant, Coordinator, CoordinatorEvent, CoordinatorOptions, DownReason, Endpoint, Hello,
    RendezvousError, Secret, SessionEvent, WorldClaim,
};
use muster_comm::sync::{Clock, Deadline};
use muster_comm::types::Rank;

use crate::support::*;

fn claimant(rank: i64) -> Claimant {
    let hello = hello(rank, 1);
    Claimant {
        rank,
        host: hello.card.host,
        pid: hello.card.pid,
        source: hello.source,
    }
}

fn boxed(rank: i64) -> Box<Claimant> {
    Box::new(claimant(rank))
}

/// Waits until so many ranks have joined, so that arrival has an order.
fn await_joined(coordinator: &Coordinator, count: usize) {
    for _ in 0..count {
        event_until(coordinator, |event| {
            matches!(event, CoordinatorEvent::Joined { .. })
        });
    }
}

fn failed(coordinator: &Coordinator) -> RendezvousError {
    let is_failed = |event: &CoordinatorEvent| matches!(event, CoordinatorEvent::Failed(_));
    let CoordinatorEvent::Failed(error) = event_until(coordinator, is_failed) else {
        unreachable!("this is what was waited for");
    };
    error
}

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
fn a_rank_claimed_twice_ends_bring_up_with_both_claimants_named_to_everybody() {
    let coordinator = start(options(4));
    let endpoint = endpoint(&coordinator);
    let first = [0, 2].map(|rank| join(&endpoint, hello(rank, 4)));
    await_joined(&coordinator, 2);
    let mut second = hello(2, 4);
    second.card.pid = 77;
    second.card.host = "n2".to_owned();
    let began = Clock::now();
    let second = join(&endpoint, second);
    let expected = RendezvousError::Duplicate {
        first: boxed(2),
        second: Box::new(Claimant {
            pid: 77,
            host: "n2".to_owned(),
            ..claimant(2)
        }),
    };
    assert_eq!(failure(second), expected);
    for joining in first {
        assert_eq!(failure(joining), expected);
    }
    let took = Clock::now().duration_since(began);
    assert!(took < AT_ONCE, "{took:?}");
    // Whoever comes later is told the same at once.
    assert_eq!(failure(join(&endpoint, hello(3, 4))), expected);
    assert_eq!(failed(&coordinator), expected);
    assert_eq!(expected.exit_code(), 11);
    assert_eq!(
        expected.to_string(),
        "rank 2 is claimed by n1 pid 1002 (numbers from test contract) and by n2 pid 77 \
         (numbers from test contract)"
    );
}

/// One rank that joined, then one whose hello ends the bring-up for both.
fn conflict(change: impl FnOnce(&mut Hello)) -> RendezvousError {
    let coordinator = start(options(4));
    let endpoint = endpoint(&coordinator);
    let first = join(&endpoint, hello(0, 4));
    await_joined(&coordinator, 1);
    let mut hello = hello(1, 4);
    change(&mut hello);
    let second = failure(join(&endpoint, hello));
    assert_eq!(failure(first), second);
    assert_eq!(failed(&coordinator), second);
    assert_eq!(second.exit_code(), 11);
    assert!(!second.help().is_empty());
    second
}

#[test]
fn a_rank_outside_the_world_ends_bring_up_and_its_value_and_source_are_named() {
    for rank in [4, 7, -1, i64::MIN, i64::MAX] {
        let error = conflict(|hello| {
            hello.rank = rank;
            hello.source = "RANK".to_owned();
        });
        let expected = RendezvousError::RankRange {
            claimant: Box::new(Claimant {
                rank,
                source: "RANK".to_owned(),
                ..claimant(1)
            }),
            world_size: 4,
        };
        assert_eq!(error, expected);
        let text = error.to_string();
        assert!(
            text.starts_with(&format!("rank {rank} is outside 0..4: ")),
            "{text}"
        );
        assert!(text.contains("RANK"), "{text}");
    }
}

#[test]
fn world_sizes_that_disagree_end_bring_up_and_every_claim_has_its_source() {
    for world_size in [3, 5, 0, -2] {
        let error = conflict(|hello| {
            hello.world_size = world_size;
            hello.source = "SLURM_NTASKS".to_owned();
        });
        let claim = |world_size, ranks: &[u32], source: &str| WorldClaim {
            world_size,
            ranks: ranks.iter().map(|rank| Rank(*rank)).collect(),
            source: source.to_owned(),
        };
        let claims = vec![
            claim(4, &[], ""),
            claim(4, &[0], "test contract"),
            claim(world_size, &[1], "SLURM_NTASKS"),
        ];
        assert_eq!(error, RendezvousError::WorldSize { claims });
    }
}

#[test]
fn another_build_ends_bring_up_with_both_builds_named() {
    let error = conflict(|hello| hello.build = "0.0.1+old".to_owned());
    let text = error.to_string();
    assert!(matches!(error, RendezvousError::Build { .. }), "{text}");
    assert!(text.contains("0.0.1+old"), "{text}");
    assert!(
        text.contains(&muster_comm::rendezvous::build_id()),
        "{text}"
    );
}

#[test]
fn a_local_rank_claimed_twice_on_one_host_ends_bring_up() {
    let coordinator = start(options(3));
    let endpoint = endpoint(&coordinator);
    let local = |rank, identity: &str| {
        let mut hello = hello(rank, 3);
        hello.card.local_rank = Some(1);
        hello.card.host_identity = identity.to_owned();
        hello
    };
    let first = join(&endpoint, local(0, "boot-1"));
    // The same number on another host is no conflict.
    let elsewhere = join(&endpoint, local(1, "boot-2"));
    await_joined(&coordinator, 2);
    let expected = RendezvousError::LocalRank {
        local_rank: 1,
        host: "n1".to_owned(),
        first: boxed(0),
        second: boxed(2),
    };
    assert_eq!(failure(join(&endpoint, local(2, "boot-1"))), expected);
    assert_eq!(failure(first), expected);
    assert_eq!(failure(elsewhere), expected);
}

#[test]
fn ranks_of_another_job_attempt_or_secret_are_refused_by_name_and_the_job_completes() {
    let coordinator = start(CoordinatorOptions {
        attempt: 3,
        ..options(2)
    });
    let endpoint = endpoint(&coordinator);
    let ours = |rank| Hello {
        attempt: 3,
        ..hello(rank, 2)
    };
    let first = join(&endpoint, ours(0));
    await_joined(&coordinator, 1);

    let foreign = |secret| {
        let hello = Hello {
            job_id: "job-b".to_owned(),
            ..ours(1)
        };
        failure(join_within(&endpoint, secret, hello, PATIENCE))
    };
    let began = Clock::now();
    let expected = RendezvousError::ForeignJob {
        given: "job-b".to_owned(),
        wanted: JOB.to_owned(),
    };
    assert_eq!(foreign(secret()), expected);
    assert_eq!(foreign(Secret::from_bytes([1; 32])), expected);

    let leftover = failure(join(&endpoint, hello(1, 2)));
    let expected = RendezvousError::Attempt {
        job_id: JOB.to_owned(),
        given: 0,
        wanted: 3,
    };
    assert_eq!(leftover, expected);

    let wrong = Secret::from_bytes([1; 32]);
    let wrong = failure(join_within(&endpoint, wrong, ours(1), PATIENCE));
    let expected = RendezvousError::WrongSecret {
        endpoint: endpoint.clone(),
        job_id: JOB.to_owned(),
    };
    assert_eq!(wrong, expected);
    let took = Clock::now().duration_since(began);
    assert!(took < AT_ONCE, "{took:?}");

    let members = [first, join(&endpoint, ours(1))].map(member);
    let refusals = coordinator.refusals();
    assert_eq!(refusals.other_job, 2);
    assert_eq!(refusals.other_attempt, 1);
    assert_eq!(refusals.wrong_secret, 1);
    let event = event_until(&coordinator, |event| {
        matches!(event, CoordinatorEvent::Refused { .. })
    });
    assert!(
        matches!(event, CoordinatorEvent::Refused { count: 1, .. }),
        "{event:?}"
    );
    on_all(&members, |session| session.leave());
}

#[test]
fn who_comes_to_a_complete_world_is_refused_with_the_holder_named_and_nobody_else_notices() {
    let coordinator = start(options(2));
    let members = world(&coordinator, 2);
    let endpoint = endpoint(&coordinator);
    for rank in [0, 1, 9] {
        let error = failure(join(&endpoint, hello(rank, 2)));
        let RendezvousError::Complete {
            holder,
            late,
            world_size,
            ..
        } = &error
        else {
            panic!("{error}");
        };
        assert_eq!(*world_size, 2);
        assert_eq!(**late, claimant(rank));
        assert_eq!(*holder, (rank < 2).then(|| boxed(rank)));
        assert_eq!(error.exit_code(), 11);
    }
    assert!(members.iter().all(Member::is_quiet));
    on_all(&members, |session| session.leave());
}

#[test]
fn a_taken_port_names_its_owner() {
    for bind in ["127.0.0.1:0", "[::1]:0"] {
        let Ok(squatter) = TcpListener::bind(bind) else {
            eprintln!("skipped {bind}: this host has no such address");
            continue;
        };
        let address = squatter.local_addr().unwrap();
        let error = Coordinator::start(CoordinatorOptions {
            bind: address,
            ..options(2)
        })
        .expect_err("the port is taken");
        let RendezvousError::PortTaken {
            owner: Some(owner),
            address: named,
        } = &error
        else {
            panic!("{error}");
        };
        assert_eq!(*named, address);
        let pid = format!("pid {} ", std::process::id());
        assert!(owner.starts_with(&pid), "{owner}");
        assert_eq!(error.exit_code(), 12);
    }
}

#[test]
fn an_address_of_another_host_cannot_be_bound_and_is_named() {
    let bind: SocketAddr = "192.0.2.1:0".parse().unwrap();
    let error = Coordinator::start(CoordinatorOptions { bind, ..options(2) }).unwrap_err();
    assert!(
        matches!(error, RendezvousError::Bind { address, .. } if address == bind),
        "{error}"
    );
}

#[test]
fn a_port_is_free_again_as_soon_as_its_coordinator_is_shut_down() {
    let coordinator = start(options(1));
    let bind = coordinator.address();
    let members = world(&coordinator, 1);
    members[0].session.leave();
    coordinator.shutdown();
    start(CoordinatorOptions { bind, ..options(1) }).shutdown();
}

#[test]
fn worlds_and_names_outside_their_limits_are_refused_before_anything_opens() {
    // 0 is no limit that is broken: the first rank says how many there are.
    for world_size in [16_385, u32::MAX] {
        let error = Coordinator::start(options(world_size)).unwrap_err();
        let max = 16_384;
        assert_eq!(
            error,
            RendezvousError::WorldRange {
                given: world_size,
                max
            }
        );
    }
    let too_long = CoordinatorOptions {
        job_id: "j".repeat(129),
        ..options(1)
    };
    let error = Coordinator::start(too_long).unwrap_err();
    assert_eq!(
        error.to_string(),
        "job id of 129 bytes exceeds the limit of 128 bytes"
    );

    let coordinator = start(options(1));
    let endpoint = endpoint(&coordinator);
    let mut heavy = hello(0, 1);
    heavy.card.payload = vec![0; 8 * 1024 + 1];
    let error = failure(join(&endpoint, heavy));
    assert_eq!(
        error.to_string(),
        "card payload of 8193 bytes exceeds the limit of 8192 bytes"
    );
    let members = world(&coordinator, 1);
    let session = &members[0].session;
    let over = vec![0; 1024 * 1024 + 1];
    let errors = [
        session.report(over.clone()).unwrap_err(),
        session.abort(over.clone()).unwrap_err(),
        session
            .gather("big", over.clone(), Deadline::after(PATIENCE))
            .unwrap_err(),
        coordinator.broadcast(over).unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, RendezvousError::TooLarge { .. }), "{error}");
        assert_eq!(error.exit_code(), 60);
    }
    // The session stays usable.
    let whole = vec![7; 1024 * 1024];
    let round = session.gather("big", whole.clone(), Deadline::after(PATIENCE));
    assert_eq!(round, Ok(vec![whole]));
}

#[test]
fn an_endpoint_where_nobody_listens_is_unreachable_at_the_deadline_and_not_before() {
    // Bound and never listened on: connecting is refused, and nobody else gets the port.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    socket.bind(&any.into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let endpoint = Endpoint::from(address);
    let budget = Duration::from_millis(300);
    let began = Clock::now();
    let error = failure(join_within(&endpoint, secret(), hello(0, 2), budget));
    let took = Clock::now().duration_since(began);
    assert!(took >= budget, "{took:?}");
    assert!(took < budget + AT_ONCE, "{took:?}");
    let RendezvousError::Unreachable {
        tries,
        endpoint: named,
        ..
    } = &error
    else {
        panic!("{error}");
    };
    assert!(*tries > 2, "{error}");
    assert_eq!(*named, endpoint);
    assert_eq!(error.exit_code(), 12);
}

#[test]
fn a_coordinator_that_starts_after_its_ranks_is_found() {
    let first = start(options(1));
    let bind = first.address();
    first.shutdown();
    let joining = [0, 1].map(|rank| join(&bind.into(), hello(rank, 2)));
    Clock::pause(Duration::from_millis(150));
    let coordinator = start(CoordinatorOptions { bind, ..options(2) });
    let members = joining.map(member);
    on_all(&members, |session| session.leave());
    drop(coordinator);
}

#[test]
fn a_name_that_does_not_resolve_is_named_with_time_and_tries() {
    let endpoint: Endpoint = "no-such-host.invalid:7".parse().unwrap();
    let budget = Duration::from_millis(400);
    let began = Clock::now();
    let error = failure(join_within(&endpoint, secret(), hello(0, 2), budget));
    let took = Clock::now().duration_since(began);
    assert!(took < budget + AT_ONCE, "{took:?}");
    let RendezvousError::NameUnresolved { host, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(host, "no-such-host.invalid");
    assert_eq!(error.exit_code(), 12);
}

#[test]
fn names_and_both_address_families_lead_to_the_coordinator() {
    let coordinator = start(options(1));
    let port = coordinator.address().port();
    let by_name: Endpoint = format!("tcp://localhost:{port}").parse().unwrap();
    member(join(&by_name, hello(0, 1))).session.leave();

    let bind: SocketAddr = "[::1]:0".parse().unwrap();
    if TcpListener::bind(bind).is_err() {
        eprintln!("skipped: this host has no IPv6 loopback");
        return;
    }
    let coordinator = start(CoordinatorOptions { bind, ..options(1) });
    let endpoint: Endpoint = endpoint(&coordinator).to_string().parse().unwrap();
    member(join(&endpoint, hello(0, 1))).session.leave();
}

#[test]
fn a_coordinator_that_accepts_and_says_nothing_is_called_silent_after_three_seconds() {
    // The kernel accepts for a listener whose process is stopped, just as here.
    let frozen = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = Endpoint::from(frozen.local_addr().unwrap());
    let began = Clock::now();
    let error = failure(join(&endpoint, hello(0, 2)));
    let took = Clock::now().duration_since(began);
    assert!(matches!(error, RendezvousError::Silent { .. }), "{error}");
    assert!(took < Duration::from_secs(3) + AT_ONCE, "{took:?}");
    assert_eq!(error.exit_code(), 12);
}

#[test]
fn another_service_on_the_port_is_called_no_coordinator_and_quoted() {
    let service = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = Endpoint::from(service.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = service.accept().unwrap();
        let _ = stream.read(&mut [0; 64]).unwrap();
        stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .unwrap();
    });
    let error = failure(join(&endpoint, hello(0, 2)));
    server.join().unwrap();
    let RendezvousError::NotACoordinator { said, .. } = &error else {
        panic!("{error}");
    };
    assert!(said.starts_with("HTTP/1.1 400"), "{said}");
    assert_eq!(error.exit_code(), 12);
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
fn an_impostor_that_does_not_know_the_secret_is_recognised_by_the_joiner() {
    // An impostor that relays nothing: it answers the handshake with a secret of its own.
    let coordinator = start(CoordinatorOptions {
        secret: Secret::from_bytes([9; 32]),
        ..options(1)
    });
    let address = coordinator.address();
    let liar = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = Endpoint::from(liar.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut client, _) = liar.accept().unwrap();
        let mut real = TcpStream::connect(address).unwrap();
        // The opening and the challenge pass; then it claims that all is well.
        let mut bytes = [0; 512];
        let count = client.read(&mut bytes).unwrap();
        real.write_all(&bytes[..count]).unwrap();
        let count = real.read(&mut bytes).unwrap();
        client.write_all(&bytes[..count]).unwrap();
        let _ = client.read(&mut bytes).unwrap();
        let mut welcome = vec![33, 0, 0, 0, 1];
        welcome.extend([7; 32]);
        client.write_all(&welcome).unwrap();
    });
    let error = failure(join(&endpoint, hello(0, 1)));
    server.join().unwrap();
    assert_eq!(error, RendezvousError::Impostor { endpoint });
    assert_eq!(error.exit_code(), 11);
}
