//! Many groups: at once, one after the other, made again, destroyed in any order.

use muster_comm::collective::{Communicator, PointToPoint};
use muster_comm::error::CommError;
use muster_comm::types::{Rank, ReduceOp};
use muster_comm::world::World;

use crate::support::{Random, Setup, group, ranks, seed};

/// Small and large sums, over and over.
fn sums(comm: &Communicator, rounds: usize, weight: u32) -> Result<(), CommError> {
    let n = u32::try_from(comm.size()).unwrap();
    for round in 0..rounds {
        let count = [1, 3000, 20_000][round % 3];
        let mut numbers = vec![weight; count];
        comm.all_reduce_in_place(&mut numbers, ReduceOp::Sum)?;
        let right = numbers.iter().all(|number| *number == n * weight);
        assert!(right, "{} round {round}", comm.name());
    }
    Ok(())
}

#[test]
fn groups_of_two_kinds_are_in_flight_at_once_from_two_threads_of_each_rank() {
    for setup in [Setup::shm(), Setup::tcp()] {
        let rounds = if setup.transport == muster_comm::world::Transport::Tcp {
            60
        } else {
            300
        };
        let results = ranks(8, &setup, move |world| {
            let me = world.rank().index();
            let (tp, dp) = (me / 2 * 2, me % 2);
            let tp = group(&world, "tp", &[tp, tp + 1]);
            let dp = group(&world, "dp", &[dp, dp + 2, dp + 4, dp + 6]);
            std::thread::scope(|scope| {
                let other = scope.spawn(|| sums(&tp, rounds, 3));
                sums(&dp, rounds, 5)?;
                other.join().unwrap()
            })
        });
        results.into_iter().for_each(|result| result.unwrap());
    }
}

#[test]
fn many_threads_of_one_rank_make_and_use_groups_at_once() {
    let results = ranks(3, &Setup::shm(), |world| {
        std::thread::scope(|scope| {
            let worker = |thread: usize| {
                let world = &world;
                move || -> Result<(), CommError> {
                    for round in 0..60 {
                        let name = format!("t{thread}-{round}");
                        sums(&group(world, &name, &[2, 0, 1]), 3, 7)?;
                    }
                    Ok(())
                }
            };
            let threads: Vec<_> = (0..4).map(|thread| scope.spawn(worker(thread))).collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().unwrap())
        })
    });
    results.into_iter().for_each(|result| result.unwrap());
}

/// Messages around the ring of ranks, behind a barrier.
fn use_links(comm: &Communicator) -> Result<(), CommError> {
    comm.barrier()?;
    let (n, me) = (comm.size(), comm.rank());
    let (to, from) = ((me + 1) % n, (me + n - 1) % n);
    let mut got = [0_u8; 2];
    comm.batch_send_recv(&[
        PointToPoint::send(&[1_u8, 2], to),
        PointToPoint::recv(&mut got, from),
    ])?;
    assert_eq!(got, [1, 2]);
    Ok(())
}

#[test]
fn a_region_holds_any_number_of_groups_one_after_the_other() {
    // Room for some groups at once: memory and directory would be full long before the end if
    // anything stayed.
    let setup = Setup {
        region_bytes: 64 << 20,
        ..Setup::shm()
    };
    let results = ranks(3, &setup, |world| -> Result<(), CommError> {
        for round in 0..3000 {
            // Names that come again and names that do not.
            let name = if round % 2 == 0 {
                "again".to_owned()
            } else {
                format!("g{round}")
            };
            let comm = group(&world, &name, &[0, 1, 2]);
            if round % 3 == 0 {
                sums(&comm, 3, 1)?;
            }
            use_links(&comm)?;
        }
        Ok(())
    });
    results.into_iter().for_each(|result| result.unwrap());
}

#[test]
fn a_thousand_groups_live_at_once_and_are_destroyed_in_any_order() {
    // Just enough for their entries: the second thousand fits where the first one was.
    let setup = Setup {
        region_bytes: 40 << 20,
        ..Setup::shm()
    };
    let results = ranks(2, &setup, |world| -> Result<(), CommError> {
        let mut random = Random::new(seed() + world.rank().index() as u64);
        for _ in 0..3 {
            let mut groups: Vec<Communicator> = Vec::new();
            for number in 0..1000 {
                groups.push(group(&world, &format!("g{number}"), &[0, 1]));
            }
            for comm in &groups {
                sums(comm, 1, 2)?;
            }
            // Each rank in an order of its own.
            random.shuffle(&mut groups);
            drop(groups);
            world.group("sync", &[Rank(1), Rank(0)])?.barrier()?;
        }
        Ok(())
    });
    results.into_iter().for_each(|result| result.unwrap());
}

#[test]
fn groups_of_any_members_overlap_without_disturbing_each_other() {
    let results = ranks(6, &Setup::shm(), |world: World| -> Result<(), CommError> {
        // The same groups on all ranks; each makes those that it belongs to.
        let mut random = Random::new(seed() ^ 30);
        let me = world.rank().index();
        for round in 0..150_u32 {
            let mut members: Vec<usize> = (0..6).collect();
            random.shuffle(&mut members);
            members.truncate(1 + random.below(6));
            let name = format!("round {round}");
            let large = random.below(2);
            if members.contains(&me) {
                let comm = group(&world, &name, &members);
                assert_eq!(members[comm.rank()], me);
                sums(&comm, 1 + large, round)?;
            }
        }
        Ok(())
    });
    results.into_iter().for_each(|result| result.unwrap());
}
