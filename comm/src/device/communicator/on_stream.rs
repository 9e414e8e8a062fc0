//! The asynchronous calls, on a stream of the program's.

use std::panic::Location;
use std::sync::Arc;

use super::run::Prepared;
use super::{DeviceCommunicator, DeviceMessage, DeviceWork};
use crate::buffer::Element;
use crate::device::memory::DeviceSlice;
use crate::device::stream::Stream;
use crate::error::{CommError, ErrorKind};
use crate::sync::Deadline;
use crate::types::{Collective, ReduceOp};

/// The calls of a communicator on one stream; made by [`DeviceCommunicator::on`].
///
/// Each returns when the vendor has taken the call. Shapes, in-place rules and errors are those of
/// the blocking call of the same name. `ReduceOp::Avg` is refused: HCCL has no average, and the
/// division needs the host.
#[derive(Clone, Copy, Debug)]
pub struct OnStream<'a> {
    comm: &'a DeviceCommunicator,
    stream: &'a Stream,
}

/// Declares the asynchronous form of a call.
macro_rules! forms {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $kind:ty),*) $(op $op:ident)? => $prepare:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        /// As the blocking call of this name; errors of the device come from the work.
        #[track_caller]
        pub fn $name<T: Element>(&self, $($argument: $kind),*) -> Result<DeviceWork, CommError> {
            $(self.refuse_average(Collective::AllReduce, $op)?;)?
            let prepare: fn(&DeviceCommunicator, $($kind),*) -> Result<Prepared, CommError> = $prepare;
            self.start(prepare(self.comm, $($argument),*)?)
        }
    )*};
}

impl<'a> OnStream<'a> {
    pub(super) fn new(comm: &'a DeviceCommunicator, stream: &'a Stream) -> Self {
        Self { comm, stream }
    }

    #[track_caller]
    fn start(&self, mut prepared: Prepared) -> Result<DeviceWork, CommError> {
        let inner = self.comm.shared();
        prepared.call.site = Location::caller();
        let call = prepared.call;
        let mut open = inner.enqueue(prepared, self.stream, true)?;
        let Some(event) = open.event.take() else {
            let kind = ErrorKind::Unsupported {
                what: "an asynchronous call".to_owned(),
                why: "the runtime made no event".to_owned(),
            };
            let deadline = Deadline::after(self.comm.deadline());
            return Err(inner.error(call, kind, open.seq, deadline, true));
        };
        open.event = Some(event.clone());
        let stream = self.stream.clone();
        Ok(DeviceWork::new(Arc::clone(inner), open, event, stream))
    }

    fn refuse_average(&self, collective: Collective, op: ReduceOp) -> Result<(), CommError> {
        if op != ReduceOp::Avg {
            return Ok(());
        }
        let kind = ErrorKind::Unsupported {
            what: format!("{collective} by avg on a stream"),
            why: "HCCL has no average: use sum and divide on the device, or the blocking call, which divides on the host".to_owned(),
        };
        let call = crate::collective::Call::bare(collective);
        let deadline = Deadline::after(self.comm.deadline());
        Err(self.comm.shared().error(call, kind, 0, deadline, true))
    }

    /// [`DeviceCommunicator::barrier`] without waiting.
    ///
    /// # Errors
    /// As the vendor says.
    #[track_caller]
    pub fn barrier(&self) -> Result<DeviceWork, CommError> {
        self.start(self.comm.prepare_barrier())
    }

    /// [`DeviceCommunicator::batch_send_recv`] without waiting.
    ///
    /// # Errors
    /// As the blocking call.
    #[track_caller]
    pub fn batch_send_recv(&self, messages: &[DeviceMessage]) -> Result<DeviceWork, CommError> {
        self.start(self.comm.prepare_batch(messages)?)
    }

    forms! {
        /// [`DeviceCommunicator::all_reduce`] without waiting.
        all_reduce(sendbuf: &DeviceSlice<T>, recvbuf: &DeviceSlice<T>, op: ReduceOp) op op
            => |comm, send, recv, op| comm.prepare_all_reduce(send, recv, op);
        /// [`DeviceCommunicator::all_reduce_in_place`] without waiting.
        all_reduce_in_place(buffer: &DeviceSlice<T>, op: ReduceOp) op op
            => |comm, buffer, op| comm.prepare_in_place(Collective::AllReduce, buffer, Some(op), None);
        /// [`DeviceCommunicator::reduce`] without waiting.
        reduce(sendbuf: &DeviceSlice<T>, recvbuf: &DeviceSlice<T>, op: ReduceOp, root: usize) op op
            => |comm, send, recv, op, root| comm.prepare_reduce(send, recv, op, root);
        /// [`DeviceCommunicator::reduce_in_place`] without waiting.
        reduce_in_place(buffer: &DeviceSlice<T>, op: ReduceOp, root: usize) op op
            => |comm, buffer, op, root| comm.prepare_in_place(Collective::Reduce, buffer, Some(op), Some(root));
        /// [`DeviceCommunicator::reduce_scatter`] without waiting.
        reduce_scatter(sendbuf: &DeviceSlice<T>, recvbuf: &DeviceSlice<T>, op: ReduceOp) op op
            => |comm, send, recv, op| comm.prepare_reduce_scatter(send, recv, op);
        /// [`DeviceCommunicator::reduce_scatter_in_place`] without waiting.
        reduce_scatter_in_place(buffer: &DeviceSlice<T>, op: ReduceOp) op op
            => |comm, buffer, op| comm.prepare_in_place(Collective::ReduceScatter, buffer, Some(op), None);
        /// [`DeviceCommunicator::reduce_scatter_v`] without waiting.
        reduce_scatter_v(sendbuf: &DeviceSlice<T>, recv_counts: &[usize], recvbuf: &DeviceSlice<T>, op: ReduceOp) op op
            => |comm, send, counts, recv, op| comm.prepare_reduce_scatter_v(send, counts, recv, op);
        /// [`DeviceCommunicator::all_gather`] without waiting.
        all_gather(sendbuf: &DeviceSlice<T>, recvbuf: &DeviceSlice<T>)
            => |comm, send, recv| comm.prepare_all_gather(send, recv);
        /// [`DeviceCommunicator::all_gather_in_place`] without waiting.
        all_gather_in_place(buffer: &DeviceSlice<T>)
            => |comm, buffer| comm.prepare_in_place(Collective::AllGather, buffer, None, None);
        /// [`DeviceCommunicator::all_gather_v`] without waiting.
        all_gather_v(sendbuf: &DeviceSlice<T>, recvbuf: &DeviceSlice<T>, recv_counts: &[usize])
            => |comm, send, recv, counts| comm.prepare_all_gather_v(send, recv, counts);
        /// [`DeviceCommunicator::all_to_all`] without waiting.
        all_to_all(sendbuf: &DeviceSlice<T>, recvbuf: &DeviceSlice<T>)
            => |comm, send, recv| comm.prepare_all_to_all(send, recv);
        /// [`DeviceCommunicator::all_to_all_in_place`] without waiting.
        all_to_all_in_place(buffer: &DeviceSlice<T>)
            => |comm, buffer| comm.prepare_in_place(Collective::AllToAll, buffer, None, None);
        /// [`DeviceCommunicator::all_to_all_v`] without waiting.
        all_to_all_v(sendbuf: &DeviceSlice<T>, send_counts: &[usize], recvbuf: &DeviceSlice<T>, recv_counts: &[usize])
            => |comm, send, sends, recv, recvs| comm.prepare_all_to_all_v(send, sends, recv, recvs);
        /// [`DeviceCommunicator::broadcast`] without waiting.
        broadcast(buffer: &DeviceSlice<T>, root: usize)
            => |comm, buffer, root| comm.prepare_in_place(Collective::Broadcast, buffer, None, Some(root));
        /// [`DeviceCommunicator::gather`] without waiting.
        gather(sendbuf: &DeviceSlice<T>, recvbuf: &DeviceSlice<T>, root: usize)
            => |comm, send, recv, root| comm.prepare_gather(send, recv, None, root);
        /// [`DeviceCommunicator::gather_v`] without waiting.
        gather_v(sendbuf: &DeviceSlice<T>, recvbuf: &DeviceSlice<T>, recv_counts: &[usize], root: usize)
            => |comm, send, recv, counts, root| comm.prepare_gather(send, recv, Some(counts), root);
        /// [`DeviceCommunicator::gather_in_place`] without waiting.
        gather_in_place(buffer: &DeviceSlice<T>, root: usize)
            => |comm, buffer, root| comm.prepare_in_place(Collective::Gather, buffer, None, Some(root));
        /// [`DeviceCommunicator::scatter`] without waiting.
        scatter(sendbuf: &DeviceSlice<T>, recvbuf: &DeviceSlice<T>, root: usize)
            => |comm, send, recv, root| comm.prepare_scatter(send, None, recv, root);
        /// [`DeviceCommunicator::scatter_v`] without waiting.
        scatter_v(sendbuf: &DeviceSlice<T>, send_counts: &[usize], recvbuf: &DeviceSlice<T>, root: usize)
            => |comm, send, counts, recv, root| comm.prepare_scatter(send, Some(counts), recv, root);
        /// [`DeviceCommunicator::scatter_in_place`] without waiting.
        scatter_in_place(buffer: &DeviceSlice<T>, root: usize)
            => |comm, buffer, root| comm.prepare_in_place(Collective::Scatter, buffer, None, Some(root));
        /// [`DeviceCommunicator::send`] without waiting.
        send(sendbuf: &DeviceSlice<T>, peer: usize)
            => |comm, buffer, peer| comm.prepare_message(&DeviceMessage::send(buffer, peer));
        /// [`DeviceCommunicator::recv`] without waiting.
        recv(recvbuf: &DeviceSlice<T>, peer: usize)
            => |comm, buffer, peer| comm.prepare_message(&DeviceMessage::recv(buffer, peer));
    }
}
