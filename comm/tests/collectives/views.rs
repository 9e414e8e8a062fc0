//! Calls on erased views, and calls that are cancelled from outside.

use crate::support::*;
use std::sync::mpsc::channel;
use std::time::Duration;

use muster_comm::buffer::{ReadView, WriteView};
use muster_comm::collective::{Communicator, PointToPoint, ViewCall, ViewCounts};
use muster_comm::error::{Blame, CommError, ErrorKind};
use muster_comm::types::{Collective, DType, Rank, ReduceOp};

fn call<'a>(
    collective: Collective,
    counts: ViewCounts<'a>,
    send: Option<ReadView<'a>>,
    recv: Option<WriteView<'a>>,
) -> ViewCall<'a> {
    ViewCall {
        collective,
        dtype: DType::I32,
        op: ReduceOp::Sum,
        root: 0,
        counts,
        send,
        recv,
    }
}

/// What each rank contributes: `rank * 100 + position`.
fn values(rank: usize, count: usize) -> Vec<i32> {
    let value = |position: usize| i32::try_from(rank * 100 + position).unwrap();
    (0..count).map(value).collect()
}

fn all_kinds(comm: &Communicator) -> Result<(), CommError> {
    use Collective as C;
    let (n, me) = (comm.size(), comm.rank());
    let count = 3000;
    let mine = values(me, count);
    let sum: Vec<i32> = (0..count)
        .map(|at| (0..n).map(|rank| values(rank, count)[at]).sum())
        .collect();
    let whole = ViewCounts::Uniform(count);

    let mut out = vec![0; count];
    let (send, recv) = (ReadView::new(&mine), WriteView::new(&mut out));
    comm.run_views(call(C::AllReduce, whole, Some(send), Some(recv)))?;
    assert_eq!(out, sum);

    let mut buffer = mine.clone();
    let mut view = WriteView::new(&mut buffer);
    let start = view.as_mut_ptr();
    // SAFETY: both views are of the whole of `buffer`, handed to one call that is in place.
    let send = unsafe { ReadView::from_raw(start, count, DType::I32) };
    comm.run_views(call(C::AllReduce, whole, Some(send), Some(view)))?;
    assert_eq!(buffer, sum);

    let upto: Vec<i32> = (0..count)
        .map(|at| (0..=me).map(|rank| values(rank, count)[at]).sum())
        .collect();
    let (send, recv) = (ReadView::new(&mine), WriteView::new(&mut out));
    comm.run_views(call(C::Scan, whole, Some(send), Some(recv)))?;
    assert_eq!(out, upto);
    let mut buffer = mine.clone();
    let mut view = WriteView::new(&mut buffer);
    let start = view.as_mut_ptr();
    // SAFETY: as above.
    let send = unsafe { ReadView::from_raw(start, count, DType::I32) };
    comm.run_views(call(C::ExclusiveScan, whole, Some(send), Some(view)))?;
    let before: Vec<i32> = upto.iter().zip(&mine).map(|(sum, own)| sum - own).collect();
    assert_eq!(buffer, before);

    let mut all = vec![0; n * count];
    let (send, recv) = (ReadView::new(&mine), WriteView::new(&mut all));
    comm.run_views(call(C::AllGather, whole, Some(send), Some(recv)))?;
    let expected: Vec<i32> = (0..n).flat_map(|rank| values(rank, count)).collect();
    assert_eq!(all, expected);

    let mut buffer = if me == 0 {
        mine.clone()
    } else {
        vec![0; count]
    };
    let recv = WriteView::new(&mut buffer);
    comm.run_views(call(C::Broadcast, whole, None, Some(recv)))?;
    assert_eq!(buffer, values(0, count));

    let send_counts: Vec<usize> = (0..n).map(|peer| me + peer).collect();
    let total: usize = send_counts.iter().sum();
    let (send, mut received) = (values(me, total), vec![0; total]);
    let splits = ViewCounts::Splits {
        send: &send_counts,
        recv: &send_counts,
    };
    let recv = WriteView::new(&mut received);
    comm.run_views(call(
        C::AllToAllV,
        splits,
        Some(ReadView::new(&send)),
        Some(recv),
    ))?;
    // Rank 0 sends as many elements to each rank as its number is, one block after the other.
    let start: usize = (0..me).sum();
    assert_eq!(received[..me], values(0, start + me)[start..]);
    comm.run_views(call(C::Barrier, ViewCounts::Uniform(0), None, None))?;

    let (next, before) = ((me + 1) % n, (me + n - 1) % n);
    let mut came = vec![0; count];
    let messages = [
        PointToPoint::send_view(ReadView::new(&mine), next),
        PointToPoint::recv_view(WriteView::new(&mut came), before),
    ];
    comm.batch_send_recv(&messages)?;
    assert_eq!(came, values(before, count));
    Ok(())
}

#[test]
fn a_call_on_views_does_what_the_typed_call_does() {
    for setup in [Setup::shm(), Setup::tcp()] {
        for n in [1, 2, 3] {
            for result in ranks(n, &setup, |world| all_kinds(&world.everyone().unwrap())) {
                result.unwrap();
            }
        }
    }
}

#[test]
fn views_that_do_not_fit_the_call_are_refused_and_the_group_stays_usable() {
    let results = ranks(2, &Setup::shm(), |world| {
        let comm = world.everyone().unwrap();
        let refused = |call: ViewCall<'_>| {
            let error = comm.run_views(call).unwrap_err();
            assert!(
                matches!(error.kind(), ErrorKind::InvalidArgument { .. }),
                "{error}"
            );
        };
        let (send, mut out) = (vec![1; 8], vec![0; 8]);
        let four = ViewCounts::Uniform(4);
        let read = || Some(ReadView::new(&send));
        // A length that the count does not say.
        let recv = Some(WriteView::new(&mut out));
        refused(call(Collective::AllReduce, four, read(), recv));
        // A reduction without an identity.
        let recv = Some(WriteView::new(&mut out[..4]));
        let average = ViewCall {
            op: ReduceOp::Avg,
            ..call(
                Collective::ExclusiveScan,
                four,
                Some(ReadView::new(&send[..4])),
                recv,
            )
        };
        refused(average);
        // Another element type.
        let floats = [0.0_f32; 8];
        let eight = ViewCounts::Uniform(8);
        let recv = Some(WriteView::new(&mut out));
        let other = Some(ReadView::new(&floats));
        refused(call(Collective::AllReduce, eight, other, recv));
        // Overlapping, and not in place.
        let start = out.as_mut_ptr().cast::<u8>();
        // SAFETY: four elements from the second on lie inside `out`, which has eight; the call is
        // refused, so that nothing is read or written.
        let shifted = unsafe { ReadView::from_raw(start.wrapping_add(4), 4, DType::I32) };
        // SAFETY: as above, from the first element on.
        let recv = unsafe { WriteView::from_raw(start, 4, DType::I32) };
        refused(call(Collective::AllReduce, four, Some(shifted), Some(recv)));
        // Counts of another kind, and a collective that has no buffers.
        refused(call(Collective::AllToAllV, eight, None, None));
        refused(call(Collective::BroadcastObject, eight, None, None));
        // A product that does not fit.
        let vast = ViewCounts::Uniform(usize::MAX / 4);
        refused(call(Collective::AllGather, vast, None, None));
        comm.barrier()
    });
    for result in results {
        result.unwrap();
    }
}

#[test]
fn a_cancelled_call_ends_here_and_the_peers_wait_on() {
    let setup = Setup::shm().deadline_ms(60_000);
    let results = ranks(2, &setup, |world| {
        let comm = world.everyone().unwrap();
        comm.barrier()?;
        if world.rank() == Rank(0) {
            let (entered, inside) = channel();
            let calls = comm.clone();
            let waiting = std::thread::spawn(move || {
                entered.send(()).unwrap();
                // A message that never comes.
                calls.recv(&mut [0_u8; 4], 1)
            });
            inside.recv().unwrap();
            comm.cancel("a test wants it");
            let error = waiting.join().unwrap().unwrap_err();
            assert_eq!(error.blame(), Blame::SharedFate { origin: Rank(0) });
            assert!(error.to_string().contains("a test wants it"), "{error}");
            assert!(!error.is_recoverable());
            assert!(comm.barrier().is_err(), "the group is over on this rank");
            world.group("after", &rank_list(&[0, 1]))?.barrier()
        } else {
            comm.set_deadline(Duration::from_millis(300));
            let error = comm.barrier().unwrap_err();
            let ErrorKind::Stalled { waiting_for, .. } = error.kind() else {
                panic!("the peer was told: {error}");
            };
            assert_eq!(waiting_for, &[Rank(0)]);
            let line = error.verdict().unwrap().line();
            assert!(
                line.contains("cancelled its calls on world: a test wants it"),
                "{line}"
            );
            world.group("after", &rank_list(&[0, 1]))?.barrier()
        }
    });
    for result in results {
        result.unwrap();
    }
}
