//! The calls that ranks of a drill make, and what must come out of them.

use muster_comm::buffer::Element;
use muster_comm::collective::Communicator;
use muster_comm::error::CommError;
use muster_comm::types::ReduceOp;

use crate::drill::script::{CallKind, CallSpec, Kind, Place};

/// What a rank contributes: its number in the group, counted from 1.
fn share<T: From<u16>>(rank: usize) -> T {
    T::from(u16::try_from(rank + 1).unwrap_or(u16::MAX))
}

/// Makes a call; says whether the result is right.
pub(super) fn make(group: &Communicator, call: &CallSpec, place: Place) -> Result<bool, CommError> {
    match call.dtype {
        Kind::F32 => make_of::<f32>(group, call, place),
        Kind::I32 => make_of::<i32>(group, call, place),
    }
}

fn make_of<T: Element + From<u16> + PartialEq>(
    group: &Communicator,
    call: &CallSpec,
    place: Place,
) -> Result<bool, CommError> {
    let (me, n) = (group.rank(), group.size());
    let op = if call.takes_max {
        ReduceOp::Max
    } else {
        ReduceOp::Sum
    };
    let reduced: T = if call.takes_max {
        share(n - 1)
    } else {
        T::from(u16::try_from(n * (n + 1) / 2).unwrap_or(u16::MAX))
    };
    let mine = vec![share::<T>(me); call.count];
    let all = |got: &[T], want: T| got.iter().all(|one| *one == want);
    Ok(match call.kind {
        CallKind::AllReduce => {
            let mut buffer = mine;
            all_reduce(group, &mut buffer, op, place)?;
            all(&buffer, reduced)
        }
        CallKind::AllReduceAsync => all(&group.all_reduce_async(mine, op).wait()?, reduced),
        CallKind::AllGather => {
            let mut got = vec![T::from(0); call.count * n];
            group.all_gather(&mine, &mut got)?;
            let mut parts = got.chunks(call.count.max(1)).enumerate();
            parts.all(|(rank, part)| all(part, share(rank)))
        }
        CallKind::ReduceScatter => {
            let mut got = vec![T::from(0); call.count];
            group.reduce_scatter(&vec![share::<T>(me); call.count * n], &mut got, op)?;
            all(&got, reduced)
        }
        CallKind::Broadcast => {
            let mut buffer = mine;
            group.broadcast(&mut buffer, call.peer)?;
            all(&buffer, share(call.peer))
        }
        CallKind::AllToAllV => {
            let send = vec![share::<T>(me); call.send_counts.iter().sum()];
            let mut got = vec![T::from(0); call.recv_counts.iter().sum()];
            group.all_to_all_v(&send, &call.send_counts, &mut got, &call.recv_counts)?;
            let mut at = 0;
            call.recv_counts.iter().enumerate().all(|(rank, count)| {
                let part = &got[at..at + count];
                at += count;
                all(part, share(rank))
            })
        }
        CallKind::Barrier => {
            group.barrier()?;
            true
        }
        CallKind::Send => {
            group.send(&mine, call.peer)?;
            true
        }
        CallKind::Recv => {
            let mut got = vec![T::from(0); call.count];
            group.recv(&mut got, call.peer)?;
            all(&got, share(call.peer))
        }
    })
}

/// The same call from several places of the program.
fn all_reduce<T: Element>(
    group: &Communicator,
    buffer: &mut [T],
    op: ReduceOp,
    place: Place,
) -> Result<(), CommError> {
    match place {
        Place::First => group.all_reduce_in_place(buffer, op),
        Place::Second => group.all_reduce_in_place(buffer, op),
        Place::Third => group.all_reduce_in_place(buffer, op),
    }
}
