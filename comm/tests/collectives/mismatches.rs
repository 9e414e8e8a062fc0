//! One rank makes another call than the rest: everybody gets the same error, which names both
//! sides, and no payload is used.

use std::sync::Arc;

use muster_comm::collective::Communicator;
use muster_comm::error::verdict::Class;
use muster_comm::error::{CommError, ErrorKind, Field};
use muster_comm::types::{Rank, ReduceOp};
use muster_comm::world::World;

use crate::support::{AT_ONCE, DEADLINE, Setup, group, ranks};
use muster_comm::sync::Clock;

type Call = Arc<dyn Fn(&Communicator) -> Result<(), CommError> + Send + Sync>;

fn call(make: impl Fn(&Communicator) -> Result<(), CommError> + Send + Sync + 'static) -> Call {
    Arc::new(make)
}

fn sum(count: usize) -> Call {
    call(move |comm| comm.all_reduce_in_place(&mut vec![1_f32; count], ReduceOp::Sum))
}

fn broadcast(root: usize) -> Call {
    call(move |comm| comm.broadcast(&mut vec![0_u8; 70_000], root))
}

fn gather_v(counts: [usize; 4]) -> Call {
    call(move |comm| {
        let mine = vec![0_u16; counts[comm.rank()]];
        comm.all_gather_v(&mine, &mut vec![0; counts.iter().sum()], &counts)
    })
}

fn coalesced(lengths: &'static [usize]) -> Call {
    call(move |comm| {
        let mut buffers: Vec<_> = lengths.iter().map(|length| vec![1_f32; *length]).collect();
        let mut each: Vec<&mut [f32]> = buffers.iter_mut().map(Vec::as_mut_slice).collect();
        comm.all_reduce_coalesced(&mut each, ReduceOp::Sum)
    })
}

/// What all ranks but one call, what that one calls, the field that differs, and words that the
/// two sides must hold.
#[expect(clippy::too_many_lines, reason = "a table")]
fn pairs() -> Vec<(Call, Call, Field, &'static str, &'static str)> {
    let gather = |count: usize| {
        call(move |comm: &Communicator| {
            comm.all_gather(&vec![0_f32; count], &mut vec![0.0; count * comm.size()])
        })
    };
    vec![
        (
            sum(5),
            call(Communicator::barrier),
            Field::Collective,
            "all_reduce",
            "barrier",
        ),
        (
            sum(5),
            gather(5),
            Field::Collective,
            "all_reduce",
            "all_gather",
        ),
        (
            sum(90_000),
            gather(90_000),
            Field::Collective,
            "all_reduce",
            "all_gather",
        ),
        (
            sum(90_000),
            call(Communicator::barrier),
            Field::Collective,
            "all_reduce",
            "barrier",
        ),
        (
            sum(5),
            call(|comm| comm.all_reduce_in_place(&mut [1_i32; 5], ReduceOp::Sum)),
            Field::Dtype,
            "f32",
            "i32",
        ),
        (
            sum(50_000),
            call(|comm| comm.all_reduce_in_place(&mut vec![1_f32; 50_000], ReduceOp::Max)),
            Field::Op,
            "sum",
            "max",
        ),
        (sum(5), sum(6), Field::Count, "[5]", "[6]"),
        (sum(5), sum(60_000), Field::Count, "[5]", "[60000]"),
        (
            sum(500_000),
            sum(500_001),
            Field::Count,
            "[500000]",
            "[500001]",
        ),
        (broadcast(0), broadcast(3), Field::Root, "root 0", "root 3"),
        (
            gather_v([1, 2, 3, 4]),
            gather_v([1, 2, 4, 3]),
            Field::Splits,
            "[1, 2, 3, 4]",
            "[1, 2, 4, 3]",
        ),
        (
            gather_v([9, 2, 30_000, 1]),
            gather_v([9, 2, 30_000, 2]),
            Field::Splits,
            "[9, 2, 30000, 1]",
            "[9, 2, 30000, 2]",
        ),
        (
            coalesced(&[5, 0, 7]),
            coalesced(&[5, 7]),
            Field::Splits,
            "buffers of [5, 0, 7] elements",
            "buffers of [5, 7] elements",
        ),
        (
            coalesced(&[5, 40_000]),
            coalesced(&[40_000, 5]),
            Field::Splits,
            "[5, 40000]",
            "[40000, 5]",
        ),
        (
            coalesced(&[5, 7]),
            coalesced(&[5, 8]),
            Field::Count,
            "all_reduce_coalesced(f32[12], sum)",
            "all_reduce_coalesced(f32[13], sum)",
        ),
        (
            sum(12),
            coalesced(&[5, 7]),
            Field::Collective,
            "all_reduce(",
            "all_reduce_coalesced(",
        ),
        (
            call(|comm| comm.scan_in_place(&mut [1_f32; 5], ReduceOp::Sum)),
            call(|comm| comm.exclusive_scan_in_place(&mut [1_f32; 5], ReduceOp::Sum)),
            Field::Collective,
            "scan(",
            "exclusive_scan(",
        ),
        (
            call(|comm| comm.all_gather(&[1_u64], &mut [0; 4])),
            call(|comm| comm.all_gather_object(&1_u8).map(drop)),
            Field::Collective,
            "all_gather(",
            "all_gather_object",
        ),
        (
            call(|comm| comm.gather_object(&1_u8, 0).map(drop)),
            call(|comm| comm.all_gather_object(&1_u8).map(drop)),
            Field::Collective,
            "gather_object",
            "all_gather_object",
        ),
        (
            call(|comm| comm.gather_object(&1_u8, 2).map(drop)),
            call(|comm| comm.gather_object(&1_u8, 1).map(drop)),
            Field::Root,
            "root 2",
            "root 1",
        ),
    ]
}

/// The group computes right sums, small and large.
fn is_sound(comm: &Communicator) {
    for count in [3, 40_000] {
        let mut numbers = vec![1_u32; count];
        comm.all_reduce_in_place(&mut numbers, ReduceOp::Sum)
            .unwrap();
        let n = u32::try_from(comm.size()).unwrap();
        assert!(numbers.iter().all(|number| *number == n), "{count}");
    }
}

/// Runs `body` on four ranks, and checks that all got the same error.
fn same_error(
    setup: &Setup,
    body: impl Fn(&World, &Communicator) -> Result<(), CommError> + Send + Sync + 'static,
) -> ErrorKind {
    same_error_of(4, setup, body)
}

/// As [`same_error`], on `n` ranks.
fn same_error_of(
    n: usize,
    setup: &Setup,
    body: impl Fn(&World, &Communicator) -> Result<(), CommError> + Send + Sync + 'static,
) -> ErrorKind {
    let results = ranks(n, setup, move |world| {
        let comm = world.everyone().unwrap();
        let error = body(&world, &comm).unwrap_err();
        assert!(error.is_recoverable(), "{error}");
        is_sound(&comm);
        error.kind().clone()
    });
    for kind in &results {
        assert_eq!(kind, &results[0]);
    }
    results[0].clone()
}

#[test]
fn a_rank_that_makes_another_call_is_named_by_all_and_the_group_goes_on() {
    let ring = Setup {
        table: "all_reduce -> ring".to_owned(),
        ..Setup::shm()
    };
    for setup in [Setup::shm(), ring] {
        for (at, pair) in pairs().into_iter().enumerate() {
            // The odd one out is another rank each time.
            let odd = at % 4;
            let (usual, other, field, word, other_word) = pair;
            let kind = same_error(&setup, move |_, comm| {
                // Before and after sound calls, so that both halves of everything are met.
                for _ in 0..at % 3 {
                    is_sound(comm);
                }
                if comm.rank() == odd {
                    other(comm)
                } else {
                    usual(comm)
                }
            });
            let ErrorKind::Mismatch {
                field: found,
                rank,
                mine,
                peer,
                theirs,
            } = &kind
            else {
                panic!("pair {at}: {kind}");
            };
            assert_eq!(*found, field, "pair {at}: {kind}");
            assert_eq!(peer.index(), odd, "pair {at}: {kind}");
            assert_ne!(rank.index(), odd, "pair {at}: {kind}");
            let both = mine.contains(word) && theirs.contains(other_word);
            assert!(both, "pair {at}: {kind}");
        }
    }
}

/// Entries of a large group are compared along a tree (`transport::shm::tree`): whoever differs, all hear of it before data moves.
#[test]
fn in_a_large_group_all_ranks_name_the_one_that_differs() {
    // The root, a leaf below it, a member of the second level, a leaf below that one, and the last rank.
    for (at, odd) in [0, 1, 32, 40, 69].into_iter().enumerate() {
        let (usual, other, word, other_word) = match at % 3 {
            0 => (sum(5), sum(6), "[5]", "[6]"),
            1 => (
                sum(9000),
                call(Communicator::barrier),
                "all_reduce",
                "barrier",
            ),
            _ => (broadcast(1), broadcast(2), "root 1", "root 2"),
        };
        let kind = same_error_of(70, &Setup::shm(), move |_, comm| {
            if comm.rank() == odd {
                other(comm)
            } else {
                usual(comm)
            }
        });
        let ErrorKind::Mismatch {
            rank,
            mine,
            peer,
            theirs,
            ..
        } = &kind
        else {
            panic!("{odd}: {kind}");
        };
        assert_eq!(peer.index(), odd, "{kind}");
        assert_ne!(rank.index(), odd, "{kind}");
        assert!(mine.contains(word) && theirs.contains(other_word), "{kind}");
    }
}

#[test]
fn splits_that_do_not_fit_name_the_pair() {
    for (count, wrong) in [(2, 3), (30_000, 29_999)] {
        let kind = same_error(&Setup::shm(), move |_, comm| {
            let send = [count; 4];
            let mut recv = [count; 4];
            if comm.rank() == 1 {
                recv[3] = wrong;
            }
            let total: usize = recv.iter().sum();
            comm.all_to_all_v(&vec![0_u8; 4 * count], &send, &mut vec![0; total], &recv)
        });
        let ErrorKind::Mismatch {
            field,
            rank,
            mine,
            peer,
            theirs,
        } = &kind
        else {
            panic!("{kind}");
        };
        assert_eq!(
            (*field, *rank, *peer),
            (Field::Splits, Rank(1), Rank(3)),
            "of two that disagree with one each, the sender is the odd one: {kind}"
        );
        let both = mine.contains(&wrong.to_string()) && theirs.contains(&count.to_string());
        assert!(both, "{kind}");
    }
}

#[test]
fn splits_that_do_not_fit_are_named_over_messages_too() {
    let results = ranks(3, &Setup::tcp(), |world| {
        let comm = world.everyone().unwrap();
        let mut recv = [50; 3];
        if comm.rank() == 2 {
            recv[0] = 49;
        }
        let total = recv.iter().sum();
        let started = Clock::now();
        let result = comm.all_to_all_v(&[0_u8; 150], &[50; 3], &mut vec![0; total], &recv);
        let error = result.and_then(|()| comm.barrier()).unwrap_err();
        assert!(started.elapsed() < AT_ONCE, "{error}");
        error
    });
    let named = |error: &CommError| {
        matches!(crate::support::cause(error), ErrorKind::Mismatch { field, rank, peer, .. }
            if (*field, *rank, *peer) == (Field::Splits, Rank(2), Rank(0)))
    };
    assert!(results.iter().all(named), "{results:?}");
}

#[test]
fn a_mismatch_in_every_call_of_a_long_row_is_found_each_time() {
    let results = ranks(3, &Setup::shm(), |world| {
        let comm = world.everyone().unwrap();
        for round in 0..200_usize {
            // Small and large, right and wrong in turn.
            let count = [4, 9000, 300_000][round % 3];
            let odd = (round / 3) % 4;
            let mine = count + usize::from(comm.rank() == odd);
            let mut numbers = vec![1_u64; mine];
            let result = comm.all_reduce_in_place(&mut numbers, ReduceOp::Sum);
            if odd == 3 {
                result.unwrap();
                assert!(numbers.iter().all(|number| *number == 3), "round {round}");
            } else {
                let error = result.unwrap_err();
                let found = matches!(error.kind(), ErrorKind::Mismatch { peer, .. }
                    if peer.index() == odd);
                assert!(found, "round {round}: {error}");
                assert!(numbers.iter().all(|number| *number == 1), "round {round}");
            }
        }
    });
    assert_eq!(results.len(), 3);
}

#[test]
fn a_call_that_differed_is_not_why_a_later_one_fails() {
    let results = ranks(4, &Setup::shm(), |world| {
        let everyone = world.everyone().unwrap();
        let comm = group(&world, "old", &[0, 1, 2, 3]);
        let error = sum(5 + usize::from(comm.rank() == 1))(&comm).unwrap_err();
        let caught = error.verdict().unwrap();
        assert_eq!(
            (caught.class, &caught.blamed[..]),
            (Class::Mismatch, &[1][..])
        );
        is_sound(&comm);
        let later = if comm.rank() == 2 {
            drop(comm);
            None
        } else {
            Some(sum(5)(&comm).unwrap_err())
        };
        is_sound(&everyone);
        later
    });
    for error in results.into_iter().flatten() {
        let verdict = error.verdict().unwrap();
        let named = (verdict.class, &verdict.blamed[..]);
        assert_eq!(named, (Class::NotJoined, &[2][..]), "{verdict}");
    }
}

#[test]
fn a_group_of_one_name_with_other_members_is_named_by_the_deadline_and_harms_nobody_else() {
    let results = ranks(4, &Setup::shm().deadline_ms(400), |world| {
        let everyone = world.everyone().unwrap();
        everyone.set_deadline(DEADLINE);
        is_sound(&everyone);
        let members: &[usize] = match everyone.rank() {
            0 | 1 => &[0, 1, 2],
            2 => &[2, 0, 1],
            _ => &[0, 3],
        };
        let started = Clock::now();
        let comm = group(&world, "odd", members);
        let mine = format!("{members:?}");
        let error = comm.barrier().unwrap_err();
        assert!(started.elapsed() < AT_ONCE, "{error}");
        // Such a group never comes together, and says so at once from now on.
        assert!(!error.is_recoverable(), "{error}");
        assert_eq!(comm.barrier().unwrap_err().kind(), error.kind());
        is_sound(&everyone);
        // The name is free again: with the same members everywhere it works.
        drop(comm);
        let again = group(&world, "odd", &[0, 1, 2, 3]);
        again.set_deadline(DEADLINE);
        is_sound(&again);
        (error.kind().clone(), mine)
    });
    for (rank, (kind, members)) in results.iter().enumerate() {
        let ErrorKind::Mismatch {
            field,
            mine,
            peer,
            theirs,
            ..
        } = kind
        else {
            panic!("rank {rank}: {kind}");
        };
        assert_eq!(*field, Field::Membership, "{kind}");
        assert_ne!(mine, theirs, "{kind}");
        // All get the verdict on the sides that were found first; rank 3, on a third side, may meet its
        // own mismatch with rank 0 before.
        let own = mine == members || theirs == members;
        assert!(own || rank == 3, "rank {rank}: {kind}");
        assert!(rank < 3 || !own || peer.index() == 0, "{kind}");
    }
}

#[test]
fn who_made_a_group_less_often_than_the_others_is_named_and_its_other_groups_go_on() {
    for setup in [Setup::shm(), Setup::tcp()] {
        let results = ranks(4, &setup, |world| {
            let everyone = world.everyone().unwrap();
            is_sound(&everyone);
            let mut comm = group(&world, "made", &[0, 1, 2, 3]);
            if everyone.rank() != 2 {
                drop(comm);
                comm = group(&world, "made", &[0, 1, 2, 3]);
            }
            let started = Clock::now();
            let error = comm.barrier().unwrap_err();
            assert!(started.elapsed() < AT_ONCE, "{error}");
            is_sound(&everyone);
            error
        });
        for error in results {
            let verdict = error.verdict().unwrap();
            assert_eq!(
                (verdict.class, verdict.blamed.as_slice()),
                (Class::Mismatch, [2].as_slice()),
                "{verdict}"
            );
            let place = "group made was made more often on one side: ";
            assert!(verdict.place.starts_with(place), "{verdict}");
        }
    }
}

#[test]
fn a_mismatch_over_messages_names_both_sides_on_who_notices_and_ends_all_soon() {
    for (at, (usual, other, field, ..)) in pairs().into_iter().enumerate() {
        let results = ranks(4, &Setup::tcp(), move |world| {
            let comm = world.everyone().unwrap();
            let started = Clock::now();
            let result = if comm.rank() == at % 4 {
                other(&comm)
            } else {
                usual(&comm)
            };
            // Who has its result before the disagreement shows meets it in the next call.
            let error = result.and_then(|()| comm.barrier()).unwrap_err();
            assert!(started.elapsed() < AT_ONCE, "{error}");
            error
        });
        // Over messages a root may be through before it hears from anybody, and be found a call later.
        let exact = matches!(field, Field::Count | Field::Dtype | Field::Op);
        let mut told = 0;
        for error in &results {
            match crate::support::cause(error) {
                ErrorKind::Mismatch { field: found, .. } if !exact || *found == field => told += 1,
                ErrorKind::Mismatch { .. } | ErrorKind::PeerClosed { .. } => {}
                other => panic!("pair {at}: {other}"),
            }
        }
        assert!(told > 0, "pair {at}: {results:?}");
    }
}
