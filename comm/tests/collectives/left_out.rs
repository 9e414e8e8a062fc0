//! A rank leaves a call out whose successor looks just like it: only the places in the program tell.

use muster_comm::collective::Communicator;
use muster_comm::error::{CommError, ErrorKind, Field};
use muster_comm::types::ReduceOp;

use crate::support::{Setup, ranks};

/// A step of a program: three sums of one shape, of which `skips` leaves the second out.
fn step(comm: &Communicator, count: usize, skips: bool) -> Result<(), CommError> {
    comm.all_reduce_in_place(&mut vec![1_f32; count], ReduceOp::Sum)?;
    if !skips {
        comm.all_reduce_in_place(&mut vec![2_f32; count], ReduceOp::Sum)?;
    }
    comm.all_reduce_in_place(&mut vec![3_f32; count], ReduceOp::Sum)
}

/// Calls of a step that leaves nothing out.
const CALLS: u64 = 3;
/// Steps before the one in which a call is left out.
const STEPS: u64 = 6;

#[test]
fn a_call_left_out_is_found_in_the_same_call_though_its_successor_looks_alike() {
    for (setup, is_shm) in [(Setup::shm(), true), (Setup::tcp(), false)] {
        for (n, count) in [(2, 1), (4, 1), (4, 50_000)] {
            let errors = ranks(n, &setup, move |world| {
                let comm = world.everyone().unwrap();
                let odd = n - 1 == comm.rank();
                (0..STEPS + 9)
                    .find_map(|at| step(&comm, count, odd && at == STEPS).err())
                    .unwrap()
            });
            let mut told = 0;
            for error in &errors {
                let ErrorKind::Mismatch {
                    field,
                    peer,
                    theirs,
                    ..
                } = crate::support::cause(error)
                else {
                    assert!(!is_shm, "{error}");
                    continue;
                };
                told += 1;
                assert_eq!(*field, Field::Sequence, "{error}");
                assert_eq!(peer.index(), n - 1, "{error}");
                assert!(theirs.contains("skipped it"), "{error}");
                if is_shm {
                    // The second call of that step, and nothing was reduced into the wrong result.
                    assert_eq!(error.at().seq, STEPS * CALLS + 2, "{error}");
                    assert!(error.is_recoverable(), "{error}");
                    assert_eq!(error.kind(), errors[0].kind());
                }
            }
            assert!(told > 0, "{errors:?}");
        }
    }
}

#[test]
fn a_call_left_out_before_one_of_another_shape_is_told_as_left_out() {
    let errors = ranks(4, &Setup::shm(), |world| {
        let comm = world.everyone().unwrap();
        let odd = comm.rank() == 2;
        let step = |skips: bool| {
            if !skips {
                comm.all_reduce_in_place(&mut [1_f32; 7], ReduceOp::Sum)?;
            }
            comm.all_reduce_in_place(&mut [1_f32; 8], ReduceOp::Sum)
        };
        (0..4).find_map(|at| step(odd && at == 3).err()).unwrap()
    });
    for error in &errors {
        let ErrorKind::Mismatch {
            field,
            peer,
            mine,
            theirs,
            ..
        } = error.kind()
        else {
            panic!("{error}");
        };
        assert_eq!((*field, peer.index()), (Field::Sequence, 2), "{error}");
        assert!(
            mine.contains("[7]") && theirs.contains("skipped it") && theirs.contains("[8]"),
            "{error}"
        );
    }
}

#[test]
#[expect(
    clippy::if_same_then_else,
    reason = "the place in the program is what differs"
)]
fn ranks_that_call_from_different_places_by_right_are_left_alone() {
    for setup in [Setup::shm(), Setup::tcp()] {
        ranks(3, &setup, |world| {
            let comm = world.everyone().unwrap();
            for at in 0..60_u32 {
                let (mut sum, mut other) = ([1_i32], [at]);
                // What differs by rank, what differs by time and rank, and what all do now and then.
                if comm.rank() == 0 {
                    comm.all_reduce_in_place(&mut sum, ReduceOp::Sum).unwrap();
                } else {
                    comm.all_reduce_in_place(&mut sum, ReduceOp::Sum).unwrap();
                }
                if (u32::try_from(comm.rank()).unwrap() + at).is_multiple_of(3) {
                    comm.all_reduce_in_place(&mut other, ReduceOp::Max).unwrap();
                } else {
                    comm.all_reduce_in_place(&mut other, ReduceOp::Max).unwrap();
                }
                if at.is_multiple_of(10) {
                    comm.all_reduce_in_place(&mut other, ReduceOp::Max).unwrap();
                }
                assert_eq!((sum, other), ([3], [at]));
            }
        });
    }
}
