//! The arguments of a collective call but its buffers, on the host or on devices.
//!
//! `verify` and `bench` make all calls on numbers through it, so that a collective is written out once.

use muster_comm::buffer::Element;
use muster_comm::collective::{Communicator, PointToPoint};
use muster_comm::device::{DeviceBuffer, DeviceCommunicator, DeviceMessage};
use muster_comm::error::CommError;
use muster_comm::types::{Collective, ReduceOp};

/// What tells one call from another, beside its buffers.
#[derive(Clone, Copy, Debug)]
pub struct CallArgs<'a> {
    /// The call.
    pub collective: Collective,
    /// The reduction, where it reduces.
    pub op: ReduceOp,
    /// The root, where it has one.
    pub root: usize,
    /// Whether the receive buffer serves as both; the send buffer is not looked at then.
    pub in_place: bool,
    /// Elements of each rank's block, or what this rank sends to each, where blocks differ.
    pub send_counts: &'a [usize],
    /// What this rank receives from each, where each says both.
    pub recv_counts: &'a [usize],
}

/// The calls that host and devices have, and what else there is in arms of their own.
macro_rules! make_call {
    ($args:expr, $comm:expr, $send:expr, $recv:expr, $message:ident, { $($others:tt)* }) => {{
        let args = $args;
        let (op, root) = (args.op, args.root);
        let (sends, recvs) = (args.send_counts, args.recv_counts);
        match args.collective {
            Collective::AllGather if args.in_place => $comm.all_gather_in_place($recv),
            Collective::AllGather => $comm.all_gather($send, $recv),
            Collective::AllGatherV => $comm.all_gather_v($send, $recv, sends),
            Collective::AllReduce if args.in_place => $comm.all_reduce_in_place($recv, op),
            Collective::AllReduce => $comm.all_reduce($send, $recv, op),
            Collective::AllToAll if args.in_place => $comm.all_to_all_in_place($recv),
            Collective::AllToAll => $comm.all_to_all($send, $recv),
            Collective::AllToAllV => $comm.all_to_all_v($send, sends, $recv, recvs),
            Collective::Barrier => $comm.barrier(),
            Collective::Broadcast => $comm.broadcast($recv, root),
            Collective::Gather if args.in_place => $comm.gather_in_place($recv, root),
            Collective::Gather => $comm.gather($send, $recv, root),
            Collective::GatherV => $comm.gather_v($send, $recv, sends, root),
            Collective::Recv
            | Collective::RecvAny
            | Collective::Send
            | Collective::SendRecvBatch => {
                let (n, me) = ($comm.size(), $comm.rank());
                $comm.batch_send_recv(&[
                    $message::send($send, (me + 1) % n),
                    $message::recv($recv, (me + n - 1) % n),
                ])
            }
            Collective::Reduce if args.in_place => $comm.reduce_in_place($recv, op, root),
            Collective::Reduce => $comm.reduce($send, $recv, op, root),
            Collective::ReduceScatter if args.in_place => $comm.reduce_scatter_in_place($recv, op),
            Collective::ReduceScatter => $comm.reduce_scatter($send, $recv, op),
            Collective::ReduceScatterV => $comm.reduce_scatter_v($send, sends, $recv, op),
            Collective::Scatter if args.in_place => $comm.scatter_in_place($recv, root),
            Collective::Scatter => $comm.scatter($send, $recv, root),
            Collective::ScatterV => $comm.scatter_v($send, sends, $recv, root),
            $($others)*
        }
    }};
}

impl CallArgs<'_> {
    /// A call out of place: the sum, to or from the first rank, with one count for all.
    #[must_use]
    pub const fn new(collective: Collective) -> Self {
        Self {
            collective,
            op: ReduceOp::Sum,
            root: 0,
            in_place: false,
            send_counts: &[],
            recv_counts: &[],
        }
    }

    /// The same call with one buffer.
    #[must_use]
    pub const fn in_place(self) -> Self {
        Self {
            in_place: true,
            ..self
        }
    }

    /// Makes the call. Messages go to the next rank and come from the one before, in one batch. The buffers of
    /// `all_reduce_coalesced` are pieces of the one that is given, one of them empty.
    ///
    /// # Errors
    /// Those of the call.
    ///
    /// # Panics
    /// For objects, which have no such buffers.
    #[inline]
    pub fn on_host<T: Element>(
        &self,
        comm: &Communicator,
        send: &[T],
        recv: &mut [T],
    ) -> Result<(), CommError> {
        make_call!(self, comm, send, recv, PointToPoint, {
            Collective::AllReduceCoalesced => {
                let count = recv.len();
                let (first, rest) = recv.split_at_mut(count / 4);
                let (second, third) = rest.split_at_mut(count / 2);
                comm.all_reduce_coalesced(&mut [first, second, &mut [], third], self.op)
            }
            Collective::ExclusiveScan if self.in_place => comm.exclusive_scan_in_place(recv, self.op),
            Collective::ExclusiveScan => comm.exclusive_scan(send, recv, self.op),
            Collective::Scan if self.in_place => comm.scan_in_place(recv, self.op),
            Collective::Scan => comm.scan(send, recv, self.op),
            Collective::AllGatherObject
            | Collective::BroadcastObject
            | Collective::GatherObject
            | Collective::ScatterObject => unreachable!("{} carries no numbers", self.collective),
        })
    }

    /// As [`Self::on_host`], over device memory.
    ///
    /// # Errors
    /// Those of the call; what devices do not have is [lacking](DeviceCommunicator::lacking).
    pub fn on_device<T: Element>(
        &self,
        comm: &DeviceCommunicator,
        send: &DeviceBuffer<T>,
        recv: &DeviceBuffer<T>,
    ) -> Result<(), CommError> {
        make_call!(self, comm, send, recv, DeviceMessage, {
            Collective::AllGatherObject
            | Collective::AllReduceCoalesced
            | Collective::BroadcastObject
            | Collective::ExclusiveScan
            | Collective::GatherObject
            | Collective::Scan
            | Collective::ScatterObject => Err(comm.lacking(self.collective)),
        })
    }
}
