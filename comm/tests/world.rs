//! Bring-up over the real control plane: ranks join by rendezvous, share memory or talk by TCP.

#![expect(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "a test: what fails shall fail, and its numbers are small"
)]

use std::time::Duration;

use muster_comm::collective::LitmusError;
use muster_comm::error::{CommError, ErrorKind};
use muster_comm::rendezvous::{Coordinator, CoordinatorOptions, Secret};
use muster_comm::types::{Rank, ReduceOp};
use muster_comm::world::{BringUpError, JoinOptions, ServedBy, Transport, World};

/// Runs `body` on `n` ranks that each joined on their own, as processes do.
fn joined<T: Send>(
    n: u32,
    transport: Transport,
    body: impl Fn(World) -> T + Sync,
) -> Vec<Result<T, BringUpError>> {
    let secret = Secret::random().unwrap();
    let coordinator =
        Coordinator::start(CoordinatorOptions::new(secret.clone(), "test", n)).unwrap();
    let endpoint: muster_comm::rendezvous::Endpoint = coordinator.address().into();
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..n)
            .map(|rank| {
                let mut options = JoinOptions::new(
                    endpoint.clone(),
                    secret.clone(),
                    i64::from(rank),
                    i64::from(n),
                );
                options.job_id = "test".to_owned();
                options.transport = transport;
                options.deadline = Duration::from_secs(20);
                let body = &body;
                scope.spawn(move || {
                    let world = World::join(options)?;
                    let value = body(world.clone());
                    world.leave();
                    Ok(value)
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn exercise(world: &World) -> Result<(), CommError> {
    let everyone = world.everyone()?;
    let n = everyone.size();
    for count in [0, 1, 7, 1000, 300_000] {
        let mine: Vec<u64> = (0..count).map(|i| i + world.rank().0 as u64).collect();
        let mut sum = vec![0; mine.len()];
        everyone.all_reduce(&mine, &mut sum, ReduceOp::Sum)?;
        let ranks: u64 = (0..n as u64).sum();
        assert!(
            (0..count).all(|i| sum[i as usize] == i * n as u64 + ranks),
            "{count} elements"
        );
    }
    let objects =
        everyone.all_gather_object(&(world.rank().0, "x".repeat(world.rank().index())))?;
    for (rank, (number, text)) in objects.iter().enumerate() {
        assert_eq!((*number as usize, text.len()), (rank, rank));
    }
    if n > 1 {
        let odd_even: Vec<Rank> = (0..n as u32)
            .map(Rank)
            .filter(|rank| rank.0 % 2 == world.rank().0 % 2)
            .collect();
        let half = world.group("parity", &odd_even)?;
        let mut all = vec![0_i32; half.size()];
        half.all_gather(&[world.rank().0 as i32], &mut all)?;
        assert_eq!(
            all,
            odd_even
                .iter()
                .map(|rank| rank.0 as i32)
                .collect::<Vec<_>>()
        );
    }
    everyone.barrier()
}

#[test]
fn ranks_that_join_share_memory_and_compute_the_right_sums() {
    for n in [1, 2, 5, 8] {
        for result in joined(n, Transport::Auto, |world| exercise(&world)) {
            result.unwrap().unwrap();
        }
    }
}

#[test]
fn ranks_that_are_told_to_use_tcp_compute_the_right_sums() {
    for n in [1, 2, 5, 8] {
        for result in joined(n, Transport::Tcp, |world| exercise(&world)) {
            result.unwrap().unwrap();
        }
    }
}

#[test]
fn a_rank_that_leaves_early_is_named_by_those_who_wait_for_it() {
    for transport in [Transport::Auto, Transport::Tcp] {
        let results = joined(3, transport, |world| {
            let everyone = world.everyone()?;
            everyone.barrier()?;
            if world.rank() == Rank(1) {
                Ok(())
            } else {
                everyone.barrier()
            }
        });
        for (rank, result) in results.into_iter().enumerate() {
            let result = result.unwrap();
            if rank == 1 {
                assert!(result.is_ok());
                continue;
            }
            let error = result.expect_err("rank 1 never comes");
            let named = match error.kind() {
                ErrorKind::PeerClosed { peer, .. } => *peer == Rank(1),
                ErrorKind::PeerAborted { cause, .. } => {
                    matches!(**cause, ErrorKind::PeerClosed { peer, .. } if peer == Rank(1))
                }
                _ => false,
            };
            assert!(named, "{transport:?}: {error}");
        }
    }
}

#[test]
fn a_name_may_serve_groups_of_other_members_one_after_the_other() {
    let results = joined(4, Transport::Auto, |world| {
        let rank = world.rank();
        // As two matrices of one world do: first some ranks have a group of this name, then all.
        if rank.0 < 2 {
            world.group("mp-0", &[Rank(0), Rank(1)])?.barrier()?;
        } else {
            world.group("mp-1", &[Rank(2), Rank(3)])?.barrier()?;
        }
        let all = world.group("mp-0", &[Rank(0), Rank(1), Rank(2), Rank(3)])?;
        all.all_gather_object(&rank.0)
    });
    for result in results {
        assert_eq!(result.unwrap().unwrap(), [0, 1, 2, 3]);
    }
}

#[test]
fn losing_the_rank_that_serves_the_rendezvous_ends_the_calls_of_groups_without_it() {
    let secret = Secret::random().unwrap();
    let coordinator =
        Coordinator::start(CoordinatorOptions::new(secret.clone(), "test", 3)).unwrap();
    let endpoint: muster_comm::rendezvous::Endpoint = coordinator.address().into();
    let (all_there, over) = (std::sync::Barrier::new(4), std::sync::Barrier::new(3));
    std::thread::scope(|scope| {
        let rank = |rank: i64| {
            let mut options = JoinOptions::new(endpoint.clone(), secret.clone(), rank, 3);
            options.job_id = "test".to_owned();
            options.served_by = ServedBy::Rank(Rank(0));
            options.deadline = Duration::from_secs(60);
            let (all_there, over) = (&all_there, &over);
            scope.spawn(move || {
                let world = World::join(options).unwrap();
                all_there.wait();
                // Rank 2 lives and never comes, and with the rendezvous gone nobody can say so.
                let error = (world.rank() == Rank(1)).then(|| {
                    let pair = world.group("pair", &[Rank(1), Rank(2)]).unwrap();
                    pair.barrier().expect_err("rank 2 never comes")
                });
                over.wait();
                error
            })
        };
        let ranks = [rank(0), rank(1), rank(2)];
        all_there.wait();
        coordinator.shutdown();
        let errors: Vec<CommError> = ranks
            .into_iter()
            .filter_map(|rank| rank.join().unwrap())
            .collect();
        let [error] = errors.as_slice() else {
            panic!("one rank waits, {} errors", errors.len())
        };
        assert!(
            matches!(error.kind(), ErrorKind::PeerClosed { peer: Rank(0), .. }),
            "{error}"
        );
        assert!(error.at().elapsed < Duration::from_secs(30), "{error}");
    });
}

#[test]
fn a_peer_that_is_busy_in_a_group_of_the_same_name_is_waited_for() {
    let results = joined(3, Transport::Auto, |world| {
        let first = [Rank(0), Rank(1)];
        let second = [Rank(0), Rank(2)];
        if world.rank() == Rank(2) {
            return world.group("pair", &second)?.barrier();
        }
        let pair = world.group("pair", &first)?;
        pair.barrier()?;
        if world.rank() == Rank(1) {
            return Ok(());
        }
        // Rank 2 has been waiting, and sees this rank hold a group of that name with another.
        muster_comm::sync::Clock::pause(Duration::from_millis(300));
        world.group("pair", &second)?.barrier()
    });
    for result in results {
        result.unwrap().unwrap();
    }
}

#[test]
fn a_litmus_test_of_two_ranks_that_share_memory_finds_it_in_order() {
    let litmus = |world: World| {
        let group = world.everyone().unwrap();
        group.litmus(Duration::from_millis(100))
    };
    for counts in joined(2, Transport::Shm, litmus) {
        let counts = counts.unwrap().unwrap();
        // How often depends on the machine.
        assert!(counts.entries > 0 && counts.buffers > 0, "{counts:?}");
        assert!(counts.wakes > 0 && counts.ring_bytes > 0, "{counts:?}");
    }
    let unfit = joined(3, Transport::Shm, litmus);
    let is_unfit = |counts: &Result<_, LitmusError>| *counts == Err(LitmusError::Unfit);
    assert!(unfit.iter().flatten().all(is_unfit));
    let apart = joined(2, Transport::Tcp, litmus);
    assert!(apart.iter().flatten().all(is_unfit));
}
