//! The blocking calls, with the names and the order of arguments of [`Communicator`]'s.
//!
//! They return when the call has ended on this device, at the deadline at the latest. What they
//! write lies in device memory; [`DeviceSlice::copy_to`] brings it to the host.
//!
//! [`Communicator`]: crate::collective::Communicator

use super::run::Prepared;
use super::{DeviceCommunicator, DeviceMessage};
use crate::buffer::Element;
use crate::device::error::DeviceError;
use crate::device::library;
use crate::device::memory::DeviceSlice;
use crate::error::CommError;
use crate::sync::Deadline;
use crate::types::{Collective, ReduceOp};

impl DeviceCommunicator {
    /// Reduces and, for an average, divides on the host: HCCL has sums only. The division costs a
    /// copy of the result to the host and back.
    #[track_caller]
    fn reduce_and_divide<T: Element>(
        &self,
        prepared: Prepared,
        op: ReduceOp,
        result: Option<&DeviceSlice<T>>,
    ) -> Result<(), CommError> {
        let call = prepared.call;
        self.block(prepared)?;
        let Some(result) = result.filter(|_| op == ReduceOp::Avg) else {
            return Ok(());
        };
        self.divide(result).map_err(|failed| {
            let deadline = Deadline::after(self.deadline());
            self.shared().error(call, failed.into(), 0, deadline, true)
        })
    }

    fn divide<T: Element>(&self, result: &DeviceSlice<T>) -> Result<(), DeviceError> {
        let mut values = result.to_vec()?;
        library::average(&mut values, self.size());
        result.copy_from(&values)
    }

    /// Returns when all ranks' devices have come to it.
    ///
    /// **Source**: `HcclBarrier`. The host's barrier, [`DeviceCommunicator::host`], costs less and
    /// says nothing about devices.
    ///
    /// # Errors
    /// The verdict on who did not come.
    #[track_caller]
    pub fn barrier(&self) -> Result<(), CommError> {
        self.block(self.prepare_barrier())
    }

    /// Reduces the buffers of all ranks element by element; every rank gets the result.
    ///
    /// **Shape**: `sendbuf` and `recvbuf`: count. **In place**:
    /// [`DeviceCommunicator::all_reduce_in_place`]. **Zero counts**: nothing happens.
    /// **Order and determinism**: the vendor's, see [`crate::device::DeviceOptions::deterministic`].
    /// `Avg` is a sum that the host divides. **Source**: `HcclAllReduce`.
    ///
    /// # Errors
    /// `InvalidArgument` for lengths that differ; `Unsupported` where the product does not reduce
    /// this type in this way, with what it does.
    #[track_caller]
    pub fn all_reduce<T: Element>(
        &self,
        sendbuf: &DeviceSlice<T>,
        recvbuf: &DeviceSlice<T>,
        op: ReduceOp,
    ) -> Result<(), CommError> {
        let prepared = self.prepare_all_reduce(sendbuf, recvbuf, op)?;
        self.reduce_and_divide(prepared, op, Some(recvbuf))
    }

    /// [`DeviceCommunicator::all_reduce`] with one buffer for input and result.
    ///
    /// # Errors
    /// As [`DeviceCommunicator::all_reduce`].
    #[track_caller]
    pub fn all_reduce_in_place<T: Element>(
        &self,
        buffer: &DeviceSlice<T>,
        op: ReduceOp,
    ) -> Result<(), CommError> {
        let prepared = self.prepare_in_place(Collective::AllReduce, buffer, Some(op), None)?;
        self.reduce_and_divide(prepared, op, Some(buffer))
    }

    /// [`DeviceCommunicator::all_reduce`] of which only `root` gets the result; elsewhere `recvbuf`
    /// is not looked at. **Source**: `HcclReduce`; on 310P an all_reduce.
    ///
    /// # Errors
    /// As [`DeviceCommunicator::all_reduce`], and for a root outside the group.
    #[track_caller]
    pub fn reduce<T: Element>(
        &self,
        sendbuf: &DeviceSlice<T>,
        recvbuf: &DeviceSlice<T>,
        op: ReduceOp,
        root: usize,
    ) -> Result<(), CommError> {
        let prepared = self.prepare_reduce(sendbuf, recvbuf, op, root)?;
        self.reduce_and_divide(prepared, op, (self.rank() == root).then_some(recvbuf))
    }

    /// [`DeviceCommunicator::reduce`] with one buffer; elsewhere than on `root` it stays as it was.
    ///
    /// # Errors
    /// As [`DeviceCommunicator::reduce`].
    #[track_caller]
    pub fn reduce_in_place<T: Element>(
        &self,
        buffer: &DeviceSlice<T>,
        op: ReduceOp,
        root: usize,
    ) -> Result<(), CommError> {
        let prepared = self.prepare_in_place(Collective::Reduce, buffer, Some(op), Some(root))?;
        self.reduce_and_divide(prepared, op, (self.rank() == root).then_some(buffer))
    }

    /// Reduces the buffers of all ranks; rank `i` gets block `i` of the result.
    ///
    /// **Shape**: `sendbuf`: count × group size; `recvbuf`: count. **Source**: `HcclReduceScatter`.
    ///
    /// # Errors
    /// As [`DeviceCommunicator::all_reduce`].
    #[track_caller]
    pub fn reduce_scatter<T: Element>(
        &self,
        sendbuf: &DeviceSlice<T>,
        recvbuf: &DeviceSlice<T>,
        op: ReduceOp,
    ) -> Result<(), CommError> {
        let prepared = self.prepare_reduce_scatter(sendbuf, recvbuf, op)?;
        self.reduce_and_divide(prepared, op, Some(recvbuf))
    }

    /// [`DeviceCommunicator::reduce_scatter`] in one buffer of all blocks: the result replaces this
    /// rank's block. Goes through scratch memory of one block.
    ///
    /// # Errors
    /// As [`DeviceCommunicator::reduce_scatter`].
    #[track_caller]
    pub fn reduce_scatter_in_place<T: Element>(
        &self,
        buffer: &DeviceSlice<T>,
        op: ReduceOp,
    ) -> Result<(), CommError> {
        let prepared = self.prepare_in_place(Collective::ReduceScatter, buffer, Some(op), None)?;
        let count = buffer.len() / self.size();
        let own = buffer.slice(self.rank() * count..(self.rank() + 1) * count);
        self.reduce_and_divide(prepared, op, Some(&own))
    }

    /// [`DeviceCommunicator::reduce_scatter`] with blocks of different lengths, which all ranks
    /// name alike. **Source**: `HcclReduceScatterV`; composed of an all_reduce and a copy where the
    /// product lacks it for this type, or a block is empty.
    ///
    /// # Errors
    /// As [`DeviceCommunicator::reduce_scatter`].
    #[track_caller]
    pub fn reduce_scatter_v<T: Element>(
        &self,
        sendbuf: &DeviceSlice<T>,
        recv_counts: &[usize],
        recvbuf: &DeviceSlice<T>,
        op: ReduceOp,
    ) -> Result<(), CommError> {
        let prepared = self.prepare_reduce_scatter_v(sendbuf, recv_counts, recvbuf, op)?;
        self.reduce_and_divide(prepared, op, Some(recvbuf))
    }

    /// Gives every rank the blocks of all ranks, in rank order.
    ///
    /// **Shape**: `sendbuf`: count; `recvbuf`: count × group size. **Source**: `HcclAllGather`.
    ///
    /// # Errors
    /// `InvalidArgument` for lengths that do not fit.
    #[track_caller]
    pub fn all_gather<T: Element>(
        &self,
        sendbuf: &DeviceSlice<T>,
        recvbuf: &DeviceSlice<T>,
    ) -> Result<(), CommError> {
        self.block(self.prepare_all_gather(sendbuf, recvbuf)?)
    }

    /// [`DeviceCommunicator::all_gather`] in one buffer of all blocks, in which this rank's own
    /// block is given.
    ///
    /// # Errors
    /// As [`DeviceCommunicator::all_gather`].
    #[track_caller]
    pub fn all_gather_in_place<T: Element>(
        &self,
        buffer: &DeviceSlice<T>,
    ) -> Result<(), CommError> {
        self.block(self.prepare_in_place(Collective::AllGather, buffer, None, None)?)
    }

    /// [`DeviceCommunicator::all_gather`] with blocks of different lengths. **Source**:
    /// `HcclAllGatherV`; composed of `HcclAlltoAllV` where the product lacks it or a block is empty.
    ///
    /// # Errors
    /// As [`DeviceCommunicator::all_gather`].
    #[track_caller]
    pub fn all_gather_v<T: Element>(
        &self,
        sendbuf: &DeviceSlice<T>,
        recvbuf: &DeviceSlice<T>,
        recv_counts: &[usize],
    ) -> Result<(), CommError> {
        self.block(self.prepare_all_gather_v(sendbuf, recvbuf, recv_counts)?)
    }

    /// Gives rank `i` block `i` of every rank's send buffer, in rank order.
    ///
    /// **Shape**: `sendbuf` and `recvbuf`: count × group size. **Source**: `HcclAlltoAll`;
    /// `HcclAlltoAllV` on 910, where the former was seen to move nothing.
    ///
    /// # Errors
    /// `InvalidArgument` for lengths that do not fit.
    #[track_caller]
    pub fn all_to_all<T: Element>(
        &self,
        sendbuf: &DeviceSlice<T>,
        recvbuf: &DeviceSlice<T>,
    ) -> Result<(), CommError> {
        self.block(self.prepare_all_to_all(sendbuf, recvbuf)?)
    }

    /// [`DeviceCommunicator::all_to_all`] in one buffer. Goes through scratch memory of its length,
    /// since HCCL refuses equal buffers.
    ///
    /// # Errors
    /// As [`DeviceCommunicator::all_to_all`].
    #[track_caller]
    pub fn all_to_all_in_place<T: Element>(
        &self,
        buffer: &DeviceSlice<T>,
    ) -> Result<(), CommError> {
        self.block(self.prepare_in_place(Collective::AllToAll, buffer, None, None)?)
    }

    /// [`DeviceCommunicator::all_to_all`] with blocks of different lengths. **Source**:
    /// `HcclAlltoAllV`. Lengths that two ranks disagree about are not noticed by the vendor.
    ///
    /// # Errors
    /// `InvalidArgument` for lengths that do not fit the counts.
    #[track_caller]
    pub fn all_to_all_v<T: Element>(
        &self,
        sendbuf: &DeviceSlice<T>,
        send_counts: &[usize],
        recvbuf: &DeviceSlice<T>,
        recv_counts: &[usize],
    ) -> Result<(), CommError> {
        self.block(self.prepare_all_to_all_v(sendbuf, send_counts, recvbuf, recv_counts)?)
    }

    /// Gives every rank the root's buffer. **Source**: `HcclBroadcast`; `HcclAlltoAllV` on 310P.
    ///
    /// # Errors
    /// `InvalidArgument` for a root outside the group.
    #[track_caller]
    pub fn broadcast<T: Element>(
        &self,
        buffer: &DeviceSlice<T>,
        root: usize,
    ) -> Result<(), CommError> {
        self.block(self.prepare_in_place(Collective::Broadcast, buffer, None, Some(root))?)
    }

    /// Gives the root the blocks of all ranks, in rank order; elsewhere `recvbuf` is not looked at.
    ///
    /// **Shape**: `sendbuf`: count; `recvbuf` at the root: count × group size. **Source**: none;
    /// HCCL has no gather, so it is composed of `HcclAlltoAllV`.
    ///
    /// # Errors
    /// `InvalidArgument` for lengths that do not fit or a root outside the group.
    #[track_caller]
    pub fn gather<T: Element>(
        &self,
        sendbuf: &DeviceSlice<T>,
        recvbuf: &DeviceSlice<T>,
        root: usize,
    ) -> Result<(), CommError> {
        self.block(self.prepare_gather(sendbuf, recvbuf, None, root)?)
    }

    /// [`DeviceCommunicator::gather`] with one buffer: at the root that of all blocks, in which its
    /// own is given, elsewhere the block that is given.
    ///
    /// # Errors
    /// As [`DeviceCommunicator::gather`].
    #[track_caller]
    pub fn gather_in_place<T: Element>(
        &self,
        buffer: &DeviceSlice<T>,
        root: usize,
    ) -> Result<(), CommError> {
        self.block(self.prepare_in_place(Collective::Gather, buffer, None, Some(root))?)
    }

    /// [`DeviceCommunicator::gather`] with blocks of different lengths.
    ///
    /// # Errors
    /// As [`DeviceCommunicator::gather`].
    #[track_caller]
    pub fn gather_v<T: Element>(
        &self,
        sendbuf: &DeviceSlice<T>,
        recvbuf: &DeviceSlice<T>,
        recv_counts: &[usize],
        root: usize,
    ) -> Result<(), CommError> {
        self.block(self.prepare_gather(sendbuf, recvbuf, Some(recv_counts), root)?)
    }

    /// Gives rank `i` block `i` of the root's buffer; elsewhere `sendbuf` is not looked at.
    ///
    /// **Shape**: `sendbuf` at the root: count × group size; `recvbuf`: count. **Source**:
    /// `HcclScatter`; `HcclAlltoAllV` on 310P.
    ///
    /// # Errors
    /// `InvalidArgument` for lengths that do not fit or a root outside the group.
    #[track_caller]
    pub fn scatter<T: Element>(
        &self,
        sendbuf: &DeviceSlice<T>,
        recvbuf: &DeviceSlice<T>,
        root: usize,
    ) -> Result<(), CommError> {
        self.block(self.prepare_scatter(sendbuf, None, recvbuf, root)?)
    }

    /// [`DeviceCommunicator::scatter`] with one buffer: at the root that of all blocks, which stays
    /// as it is, elsewhere the block that comes.
    ///
    /// # Errors
    /// As [`DeviceCommunicator::scatter`].
    #[track_caller]
    pub fn scatter_in_place<T: Element>(
        &self,
        buffer: &DeviceSlice<T>,
        root: usize,
    ) -> Result<(), CommError> {
        self.block(self.prepare_in_place(Collective::Scatter, buffer, None, Some(root))?)
    }

    /// [`DeviceCommunicator::scatter`] with blocks of different lengths: composed of
    /// `HcclAlltoAllV`.
    ///
    /// # Errors
    /// As [`DeviceCommunicator::scatter`].
    #[track_caller]
    pub fn scatter_v<T: Element>(
        &self,
        sendbuf: &DeviceSlice<T>,
        send_counts: &[usize],
        recvbuf: &DeviceSlice<T>,
        root: usize,
    ) -> Result<(), CommError> {
        self.block(self.prepare_scatter(sendbuf, Some(send_counts), recvbuf, root)?)
    }

    /// Sends a message to the member with index `peer`, which must receive it with the same type
    /// and count. Returns when the peer's device has taken it. **Source**: `HcclSend`.
    ///
    /// # Errors
    /// `InvalidArgument` for a peer outside the group or this rank itself; `Unsupported` on 310P.
    #[track_caller]
    pub fn send<T: Element>(&self, sendbuf: &DeviceSlice<T>, peer: usize) -> Result<(), CommError> {
        self.block(self.prepare_message(&DeviceMessage::send(sendbuf, peer))?)
    }

    /// Receives a message from the member with index `peer`. **Source**: `HcclRecv`.
    ///
    /// # Errors
    /// As [`DeviceCommunicator::send`].
    #[track_caller]
    pub fn recv<T: Element>(&self, recvbuf: &DeviceSlice<T>, peer: usize) -> Result<(), CommError> {
        self.block(self.prepare_message(&DeviceMessage::recv(recvbuf, peer))?)
    }

    /// Sends and receives several messages at once, in any order between two ranks that agree on
    /// it. Messages to this rank itself are copies. **Source**: `HcclBatchSendRecv`.
    ///
    /// # Errors
    /// `InvalidArgument` for a peer outside the group, more than [`crate::collective::BATCH_MAX`]
    /// messages, or messages to itself without a receive that fits; `Unsupported` on 310P.
    #[track_caller]
    pub fn batch_send_recv(&self, messages: &[DeviceMessage]) -> Result<(), CommError> {
        self.block(self.prepare_batch(messages)?)
    }
}
