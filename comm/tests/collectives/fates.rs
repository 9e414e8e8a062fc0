//! Ranks that do not come, panic, leave early, or leave while others still read what they gave.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use muster_comm::collective::Communicator;
use muster_comm::error::verdict::Class;
use muster_comm::error::{CommError, ErrorKind};
use muster_comm::sync::Clock;
use muster_comm::types::{Collective, DType, Rank, ReduceOp};
use muster_comm::world::{ThreadOptions, Transport, World};

use crate::support::{AT_ONCE, DEADLINE, Setup, Shared, bounded, cause, group, ranks};

/// What a rank does with a group.
type Call = fn(&Communicator) -> Result<(), CommError>;

/// Calls that need all ranks, on every way a call can take.
const CALLS: [Call; 6] = [
    Communicator::barrier,
    |comm| comm.all_reduce_in_place(&mut [1_f32; 8], ReduceOp::Sum),
    |comm| comm.all_reduce_in_place(&mut vec![1_f32; 700_000], ReduceOp::Sum),
    |comm| {
        let mut buffer = comm.alloc::<f32>(300_000).unwrap();
        comm.all_reduce_in_place(&mut buffer, ReduceOp::Sum)
    },
    |comm| {
        let n = comm.size();
        comm.all_to_all_v(&vec![1_u8; n], &vec![1; n], &mut vec![0; n], &vec![1; n])
    },
    |comm| comm.all_gather_object(&"object".to_owned()).map(drop),
];

fn ring() -> Setup {
    Setup {
        table: "all_reduce -> ring\nbarrier -> dissemination".to_owned(),
        ..Setup::shm()
    }
}

#[test]
fn ranks_that_never_come_are_named_exactly_and_the_first_cause_stays() {
    for (at, call) in CALLS.into_iter().enumerate() {
        for used_before in [false, true] {
            let sizes: &[(usize, &[usize])] = if used_before {
                &[(4, &[3]), (50, &[32])]
            } else {
                // The last two are trees; see `transport::shm::tree`.
                &[
                    (4, &[3]),
                    (5, &[1, 3]),
                    (2, &[0]),
                    (50, &[0]),
                    (50, &[33, 41]),
                ]
            };
            for (n, absent) in sizes.iter().copied() {
                let results = ranks(n, &Setup::shm().deadline_ms(300), move |world| {
                    let everyone = world.everyone().unwrap();
                    let comm = world.everyone().unwrap();
                    everyone.set_deadline(DEADLINE);
                    if used_before {
                        comm.set_deadline(DEADLINE);
                        call(&comm).unwrap();
                        comm.set_deadline(Duration::from_millis(300));
                    }
                    // All set out together, so that nobody is late but those who do not come.
                    everyone.barrier().unwrap();
                    let missing = absent.contains(&comm.rank());
                    let mut found = None;
                    if !missing {
                        let error = call(&comm).unwrap_err();
                        assert!(!error.is_recoverable(), "{error}");
                        // Calls that waited anew would have waited for another time than this one.
                        for later in CALLS {
                            let again = later(&comm).unwrap_err();
                            assert_eq!(again.kind(), error.kind());
                        }
                        found = Some(error);
                    }
                    // Another group is as good as before.
                    everyone.barrier().unwrap();
                    found
                });
                let absent: Vec<Rank> = absent.iter().copied().map(Rank::from_index).collect();
                for error in results.iter().flatten() {
                    let ErrorKind::Stalled {
                        waiting_for,
                        waited_ms,
                    } = cause(error)
                    else {
                        panic!("call {at}: {error}");
                    };
                    assert_eq!(
                        *waiting_for, absent,
                        "call {at}, used {used_before}: {error}"
                    );
                    assert!(*waited_ms >= 300, "{error}");
                }
                assert_eq!(results.iter().flatten().count(), n - absent.len());
            }
        }
    }
}

#[test]
fn an_error_says_where_it_happened() {
    let results = ranks(3, &Setup::shm().deadline_ms(200), |world| {
        let sync = world.everyone().unwrap();
        sync.set_deadline(DEADLINE);
        if world.rank() == Rank(0) {
            sync.barrier().unwrap();
            return None;
        }
        let comm = group(&world, "tp-3", &[2, 1]);
        comm.barrier().unwrap();
        let result = if world.rank() == Rank(1) {
            comm.all_reduce_in_place(&mut [0_u16; 9], ReduceOp::Sum)
        } else {
            Ok(())
        };
        sync.barrier().unwrap();
        result.err()
    });
    let error = results.into_iter().flatten().next().unwrap();
    let at = error.at();
    assert_eq!(
        (&*at.group, at.rank, at.seq),
        ("tp-3", Rank(1), 2),
        "{error}"
    );
    assert_eq!(at.collective, Collective::AllReduce, "{error}");
    assert_eq!((at.dtype, at.count), (Some(DType::U16), Some(9)), "{error}");
    assert_eq!(at.deadline, Duration::from_millis(200), "{error}");
    assert!(at.elapsed >= at.deadline, "{error}");
    assert!(at.elapsed < AT_ONCE, "{error}");
}

#[test]
fn a_rank_that_comes_too_late_learns_that_the_group_was_given_up() {
    let results = ranks(3, &Setup::shm().deadline_ms(200), |world| {
        let everyone = world.everyone().unwrap();
        everyone.set_deadline(DEADLINE);
        let comm = world.everyone().unwrap();
        let call = |count: usize| {
            let mut ones = vec![1_u8; count];
            let result = comm.all_reduce_in_place(&mut ones, ReduceOp::Sum);
            // Late or not: a result that is called one is right.
            assert!(result.is_err() || ones.iter().all(|one| *one == 3));
            result
        };
        if comm.rank() != 1 {
            call(3).unwrap_err();
            everyone.barrier().unwrap();
            return None;
        }
        everyone.barrier().unwrap();
        comm.set_deadline(DEADLINE);
        let started = Clock::now();
        let error = call(3).unwrap_err();
        assert!(started.elapsed() < AT_ONCE, "{error}");
        Some(error)
    });
    let error = results.into_iter().flatten().next().unwrap();
    let ErrorKind::PeerAborted { origin, cause, .. } = error.kind() else {
        panic!("{error}");
    };
    assert_ne!(*origin, Rank(1), "{error}");
    let expected = matches!(&**cause, ErrorKind::Stalled { waiting_for, .. }
        if *waiting_for == [Rank(1)]);
    assert!(expected, "{error}");
}

/// Whether the error, or its cause on another rank, is that `rank` is gone.
fn is_gone(error: &CommError, rank: u32, words: &str) -> bool {
    matches!(cause(error), ErrorKind::PeerClosed { peer, how, .. }
        if *peer == Rank(rank) && how.contains(words))
}

#[test]
fn a_rank_that_panics_is_named_long_before_the_deadline() {
    for setup in [Setup::shm(), ring()] {
        for call in CALLS {
            for calls_before in [0, 1] {
                let errors: Shared<Vec<CommError>> = Arc::default();
                let (ours, setup) = (Arc::clone(&errors), setup.clone());
                bounded(move || {
                    let options = ThreadOptions {
                        deadline: DEADLINE,
                        algo_table: (!setup.table.is_empty()).then(|| {
                            muster_comm::algo::Table::with_overrides(&setup.table).unwrap()
                        }),
                        ..ThreadOptions::default()
                    };
                    let body = |world: World| {
                        let comm = world.everyone().unwrap();
                        for _ in 0..calls_before {
                            call(&comm).unwrap();
                        }
                        if comm.rank() == 2 {
                            std::panic::resume_unwind(Box::new("on purpose"));
                        }
                        let started = Clock::now();
                        let error = call(&comm).unwrap_err();
                        assert!(started.elapsed() < AT_ONCE, "{error}");
                        ours.lock().unwrap().push(error);
                    };
                    let run = || World::threads_with(4, &options, body).map(drop);
                    let panic = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
                    assert_eq!(panic.downcast_ref(), Some(&"on purpose"));
                });
                let errors = errors.lock().unwrap();
                assert_eq!(errors.len(), 3);
                for error in errors.iter() {
                    assert!(is_gone(error, 2, "panicked"), "{error}");
                }
            }
        }
    }
}

#[test]
fn a_rank_that_returns_early_is_named_long_before_the_deadline() {
    for setup in [Setup::shm(), ring(), Setup::tcp()] {
        for call in CALLS {
            let results = ranks(4, &setup, move |world| {
                let comm = world.everyone().unwrap();
                let first = call(&comm);
                if comm.rank() == 1 {
                    first.unwrap();
                    return None;
                }
                // Who is still in the first call while another makes the second one is told by that one.
                if let Err(error) = first {
                    return Some(error);
                }
                let started = Clock::now();
                let error = call(&comm).unwrap_err();
                assert!(started.elapsed() < AT_ONCE, "{error}");
                Some(error)
            });
            for error in results.iter().flatten() {
                // On a crowded host it stays a moment for its unread messages, and the verdict finds it there.
                let is_named =
                    is_gone(error, 1, "left the world") || is_gone(error, 1, "destroyed the group");
                assert!(is_named, "{error}");
            }
            assert_eq!(results.iter().flatten().count(), 3);
        }
    }
}

/// Calls whose data one rank gives and others may still read when that rank is through.
const FAREWELLS: [Call; 5] = [
    |comm| {
        let mut data = vec![u64::from(comm.rank() == 0) * 7; 130_000];
        comm.broadcast(&mut data, 0)?;
        assert!(data.iter().all(|number| *number == 7));
        Ok(())
    },
    |comm| {
        let mine = vec![1 + comm.rank() as u32; 60_000];
        let mut all = vec![0; mine.len() * comm.size()];
        comm.all_gather(&mine, &mut all)?;
        for (rank, block) in all.chunks(mine.len()).enumerate() {
            assert!(
                block.iter().all(|number| *number == 1 + rank as u32),
                "block {rank}"
            );
        }
        Ok(())
    },
    |comm| {
        let mut sum = [1_u16; 12];
        comm.all_reduce_in_place(&mut sum, ReduceOp::Sum)?;
        assert_eq!(usize::from(sum[11]), comm.size());
        Ok(())
    },
    |comm| {
        let mut sum = vec![1_u32; 250_000];
        comm.all_reduce_in_place(&mut sum, ReduceOp::Sum)?;
        assert!(sum.iter().all(|number| *number == comm.size() as u32));
        Ok(())
    },
    |comm| {
        let mut mine = comm.alloc::<u32>(20_000).unwrap();
        mine.fill(1 + comm.rank() as u32);
        let mut all = comm.alloc(mine.len() * comm.size()).unwrap();
        let given = vec![7_u32; all.len()];
        comm.all_to_all(&given, &mut all)?;
        comm.all_gather(&mine, &mut all)?;
        // What is freed here may be the next buffer of this rank, or its next slot.
        drop(mine);
        for (rank, block) in all.chunks(20_000).enumerate() {
            let whole = block.iter().all(|number| *number == 1 + rank as u32);
            assert!(whole, "block {rank}");
        }
        Ok(())
    },
];

#[test]
fn a_rank_that_leaves_after_its_last_call_takes_nothing_from_those_who_still_read() {
    for setup in [Setup::shm(), ring(), Setup::tcp()] {
        for farewell in FAREWELLS {
            for n in [2, 5, 8] {
                for _ in 0..6 {
                    let results = ranks(n, &setup, move |world| {
                        let comm = world.everyone()?;
                        farewell(&comm)
                    });
                    for (rank, result) in results.into_iter().enumerate() {
                        result.unwrap_or_else(|error| panic!("{n} ranks, {rank}: {error}"));
                    }
                }
            }
        }
    }
}

#[test]
fn a_group_destroyed_after_its_last_call_takes_nothing_from_those_who_still_read() {
    for farewell in FAREWELLS {
        for (n, rounds) in [(2, 20), (5, 20), (50, 5)] {
            let results = ranks(n, &Setup::shm(), move |world| {
                let members: Vec<usize> = (0..n).collect();
                for round in 0..rounds {
                    // The memory of one group is the next one's as soon as nobody reads it.
                    farewell(&group(&world, "short-lived", &members))?;
                    farewell(&group(&world, &format!("g{}", round % 3), &members))?;
                }
                Ok::<_, CommError>(())
            });
            results.into_iter().for_each(|result| result.unwrap());
        }
    }
}

#[test]
fn a_group_that_failed_leaves_the_others_as_they_were() {
    for setup in [Setup::shm(), ring(), Setup::tcp()] {
        let by_socket = setup.transport == Transport::Tcp;
        let results = ranks(4, &setup, move |world| {
            let everyone = world.everyone().unwrap();
            let me = everyone.rank();
            let pair = group(&world, "pair", if me < 2 { &[0, 1] } else { &[2, 3] });
            CALLS[2](&pair).unwrap();
            CALLS[2](&everyone).unwrap();
            if me < 2 {
                pair.set_deadline(Duration::from_millis(150));
            }
            // Rank 1 does not come to its pair's call.
            let result = if me == 1 { Ok(()) } else { CALLS[2](&pair) };
            assert_eq!(result.is_err(), me == 0, "{result:?}");
            for call in CALLS {
                call(&everyone).unwrap();
            }
            if me < 2 {
                // A socket may hold all that rank 0 sent before it gave up.
                let fails = CALLS[2](&pair).is_err();
                assert!(fails || (me == 1 && by_socket), "rank {me}");
                let again = group(&world, "pair", &[1, 0]);
                CALLS[2](&again).unwrap();
            }
        });
        assert_eq!(results.len(), 4);
    }
}

#[test]
fn a_peer_that_destroyed_the_group_is_an_error_and_never_data_of_another_group() {
    let results = ranks(2, &Setup::shm().deadline_ms(2000), |world| {
        let sync = world.everyone().unwrap();
        let mut found = Vec::new();
        for round in 0..6_u64 {
            let comm = group(&world, "old", &[0, 1]);
            let mut sum = [round];
            comm.all_reduce_in_place(&mut sum, ReduceOp::Sum).unwrap();
            sync.barrier().unwrap();
            if comm.rank() == 0 {
                drop(comm);
                // Takes the memory of the old group's slot, and makes two calls like the old one's.
                let new = group(&world, "new", &[0, 1]);
                let work = new.start(|new| {
                    let mut sum = [1000_u64];
                    new.all_reduce_in_place(&mut sum, ReduceOp::Sum)?;
                    new.all_reduce_in_place(&mut sum, ReduceOp::Sum)
                });
                sync.barrier().unwrap();
                sync.barrier().unwrap();
                work.wait().unwrap();
            } else {
                let new = group(&world, "new", &[0, 1]);
                sync.barrier().unwrap();
                let mut sum = [1000_u64];
                // One call of the new group, so that its second entry lies there.
                new.all_reduce_in_place(&mut sum, ReduceOp::Sum).unwrap();
                Clock::pause(Duration::from_millis(20));
                let mut sum = [round];
                let started = Clock::now();
                let error = comm
                    .all_reduce_in_place(&mut sum, ReduceOp::Sum)
                    .unwrap_err();
                found.push((error, started.elapsed()));
                assert_eq!(sum, [round]);
                new.all_reduce_in_place(&mut [0_u64], ReduceOp::Sum)
                    .unwrap();
                sync.barrier().unwrap();
            }
        }
        found
    });
    for (error, _) in results.into_iter().flatten() {
        let named = match error.kind() {
            ErrorKind::PeerClosed { peer, .. } => *peer == Rank(0),
            ErrorKind::Stalled { waiting_for, .. } => *waiting_for == [Rank(0)],
            _ => false,
        };
        assert!(named, "{error}");
    }
}

#[test]
fn a_rank_that_destroyed_the_group_is_named_and_its_other_groups_go_on() {
    let setups = [Setup::shm(), ring(), Setup::tcp()];
    for (setup, call) in setups
        .iter()
        .flat_map(|setup| CALLS.map(|call| (setup, call)))
    {
        let results = ranks(3, setup, move |world| {
            let everyone = world.everyone().unwrap();
            let comm = group(&world, "old", &[0, 1, 2]);
            call(&comm).unwrap();
            let error = if comm.rank() == 1 {
                drop(comm);
                None
            } else {
                let started = Clock::now();
                let error = call(&comm).unwrap_err();
                Some((error, started.elapsed()))
            };
            // Rank 1 waits here for those that wait for it, and no circle is made of that.
            call(&everyone).unwrap();
            error
        });
        for (error, elapsed) in results.into_iter().flatten() {
            assert!(elapsed < AT_ONCE, "{error}");
            let ErrorKind::PeerClosed { peer, how, .. } = error.kind() else {
                unreachable!("{error}");
            };
            assert_eq!((*peer, how.as_str()), (Rank(1), "destroyed the group"));
            let verdict = error.verdict().unwrap();
            assert_eq!(
                (verdict.class, verdict.blamed.as_slice()),
                (Class::NotJoined, [1].as_slice()),
                "{verdict}"
            );
            let place = "destroyed group old after its call #";
            assert!(verdict.place.starts_with(place), "{verdict}");
        }
    }
}
