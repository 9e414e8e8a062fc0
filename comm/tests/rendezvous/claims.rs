//! Who claims to be whom: contradictions within a job end its bring-up for all, and strangers are
//! refused alone. The exact error, on every rank.

use muster_comm::rendezvous::{
    Claimant, Coordinator, CoordinatorEvent, CoordinatorOptions, Hello, RendezvousError, Secret,
    WorldClaim,
};
use muster_comm::sync::{Clock, Deadline};
use muster_comm::types::Rank;

use crate::support::*;

fn claimant(rank: i64) -> Claimant {
    let hello = hello(rank, 1);
    Claimant {
        rank,
        host: hello.card.host,
        pid: hello.card.process.pid,
        source: hello.source,
    }
}

fn boxed(rank: i64) -> Box<Claimant> {
    Box::new(claimant(rank))
}

#[test]
fn a_rank_claimed_twice_ends_bring_up_with_both_claimants_named_to_everybody() {
    let coordinator = start(options(4));
    let endpoint = endpoint(&coordinator);
    let first = [0, 2].map(|rank| join(&endpoint, hello(rank, 4)));
    await_joined(&coordinator, 2);
    let mut second = hello(2, 4);
    second.card.process.pid = 77;
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
