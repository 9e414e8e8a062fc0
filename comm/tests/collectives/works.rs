//! Asynchronous calls.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::channel;
use std::time::Duration;

use muster_comm::error::{CommError, ErrorKind};
use muster_comm::sync::Clock;
use muster_comm::types::ReduceOp;

use crate::support::{AT_ONCE, Setup, group, ranks};

const SUM: ReduceOp = ReduceOp::Sum;

#[test]
fn asynchronous_and_blocking_calls_run_in_the_order_of_the_program() {
    for setup in [Setup::shm(), Setup::tcp()] {
        let results = ranks(3, &setup, |world| -> Result<(), CommError> {
            let comm = world.everyone()?;
            for round in 0..30_u32 {
                // Each call is of another kind, so a change of order would be a mismatch.
                let sum = comm.all_reduce_async(vec![round; 5000], SUM);
                let all = comm.all_gather_async(vec![comm.rank() as u64]);
                let root = round as usize % 3;
                let told = comm.broadcast_async(vec![comm.rank() as u16; 3], root);
                let block = comm.reduce_scatter_async(vec![1_i32; 9], SUM);
                let swapped = comm.all_to_all_async(vec![comm.rank() as u8; 3]);
                let some = vec![vec![round; 3], Vec::new(), vec![1; 500]];
                let some = comm.all_reduce_coalesced_async(some, SUM);
                let upto = comm.scan_async(vec![round; 300], SUM);
                let before = comm.exclusive_scan_async(vec![round + 1; 4], ReduceOp::Min);
                let met = comm.barrier_async();
                let mut last = [1_i8];
                comm.all_reduce_in_place(&mut last, SUM)?;
                // The blocking call came after all of them.
                assert!(sum.is_done());
                assert!(met.is_done());
                assert_eq!(last, [3]);
                assert_eq!(sum.wait()?, vec![3 * round; 5000]);
                assert_eq!(all.wait()?, [0, 1, 2]);
                assert_eq!(told.wait()?, vec![root as u16; 3]);
                assert_eq!(block.wait()?, [3; 3]);
                assert_eq!(swapped.wait()?, [0, 1, 2]);
                let me = comm.rank() as u32;
                assert_eq!(some.wait()?, [vec![3 * round; 3], Vec::new(), vec![3; 500]]);
                assert_eq!(upto.wait()?, vec![round * (me + 1); 300]);
                let least = if me == 0 { u32::MAX } else { round + 1 };
                assert_eq!(before.wait()?, [least; 4]);
                met.wait()?;
            }
            Ok(())
        });
        results.into_iter().for_each(|result| result.unwrap());
    }
}

#[test]
fn a_wait_that_is_not_over_gives_the_work_back() {
    let results = ranks(2, &Setup::shm(), |world| -> Result<(), CommError> {
        let comm = world.everyone()?;
        let other = world.everyone()?;
        if comm.rank() == 1 {
            other.barrier()?;
            comm.barrier()?;
            return Ok(());
        }
        let work = comm.barrier_async();
        assert!(!work.is_done());
        let Err(work) = work.wait_timeout(Duration::from_millis(30)) else {
            panic!("rank 1 has not come");
        };
        other.barrier()?;
        let Ok(result) = work.wait_timeout(AT_ONCE) else {
            panic!("rank 1 has come");
        };
        result
    });
    results.into_iter().for_each(|result| result.unwrap());
}

#[test]
fn a_panic_in_a_closure_reaches_who_waits_and_the_communicator_goes_on() {
    let results = ranks(2, &Setup::shm(), |world| {
        let comm = world.everyone().unwrap();
        let work = comm.start(|comm| -> Result<(), CommError> {
            comm.barrier()?;
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        let after = comm.barrier_async();
        let panic = catch_unwind(AssertUnwindSafe(|| work.wait())).unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&"on purpose"));
        after.wait().unwrap();
        let dropped = comm.start(|_| -> Result<(), CommError> {
            std::panic::resume_unwind(Box::new("unheard"));
        });
        drop(dropped);
        comm.barrier().unwrap();
    });
    assert_eq!(results.len(), 2);
}

#[test]
fn the_error_of_a_call_comes_with_its_work_and_later_ones_fail_at_once() {
    let results = ranks(2, &Setup::shm().deadline_ms(150), |world| {
        let comm = world.everyone().unwrap();
        if comm.rank() == 1 {
            // Stays in the world until the other has its error.
            Clock::pause(Duration::from_millis(600));
            return;
        }
        let first = comm.barrier_async();
        let second = comm.all_reduce_async(vec![0_u8], SUM);
        let kind = first.wait().unwrap_err();
        assert!(matches!(kind.kind(), ErrorKind::Stalled { .. }), "{kind}");
        let again = second.wait().unwrap_err();
        assert_eq!(again.kind(), kind.kind());
        assert_eq!(comm.barrier().unwrap_err().kind(), kind.kind());
    });
    assert_eq!(results.len(), 2);
}

#[test]
fn a_group_destroyed_with_calls_under_way_ends_them_well() {
    let results = ranks(3, &Setup::shm(), |world| -> Result<(), CommError> {
        for round in 0..20 {
            let comm = group(&world, "short", &[0, 1, 2]);
            let works: Vec<_> = (0..4)
                .map(|i| comm.all_reduce_async(vec![1_u32; 1 + i * 9000], SUM))
                .collect();
            let unheard = comm.barrier_async();
            drop(comm);
            if round % 2 == 0 {
                drop(unheard);
            }
            for (i, work) in works.into_iter().enumerate() {
                assert_eq!(work.wait()?, vec![3; 1 + i * 9000]);
            }
        }
        world.everyone()?.barrier()
    });
    results.into_iter().for_each(|result| result.unwrap());
}

#[test]
fn a_blocking_call_waits_for_earlier_work_no_longer_than_its_deadline() {
    let results = ranks(1, &Setup::shm().deadline_ms(100), |world| {
        let comm = world.everyone().unwrap();
        let (go, gate) = channel::<()>();
        let work = comm.start(move |_| {
            gate.recv_timeout(AT_ONCE).unwrap();
            Ok(7)
        });
        let error = comm.barrier().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Stalled { .. }), "{error}");
        assert!(error.to_string().contains("earlier calls"), "{error}");
        assert!(error.is_recoverable(), "{error}");
        go.send(()).unwrap();
        assert_eq!(work.wait().unwrap(), 7);
        comm.barrier().unwrap();
    });
    assert_eq!(results.len(), 1);
}
