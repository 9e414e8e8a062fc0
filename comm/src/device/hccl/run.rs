//! The operators of HCCL: one vendor call a step.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "each function has the calls of one kind; any other is a bug, which is told as one"
)]

use std::ffi::c_void;

use hccl_sys::types::{HcclResult, HcclSendRecvItem, HcclSendRecvType};

use super::acl::pointer;
use super::calls::Calls;
use super::support::{data_type, reduce_op};
use crate::device::error::DeviceError;
use crate::device::vendor_call::{Handle, Item, VendorCall, Way};

impl Calls<'_> {
    /// Enqueues one step.
    ///
    /// # Safety
    /// - Communicator and stream are alive, of the device that is current in this thread, and no
    ///   other thread uses the communicator.
    /// - Every buffer that the step names holds the elements that it says, and stays valid until
    ///   the stream has gone past the step.
    pub(super) unsafe fn run(
        &self,
        step: &VendorCall,
        comm: Handle,
        stream: Handle,
    ) -> Result<(), DeviceError> {
        let (comm, queue) = (pointer(comm), pointer(stream));
        let (call, code) = match step {
            VendorCall::Copy {
                target,
                source,
                bytes,
            } => {
                // SAFETY: the caller's promise covers both buffers and the stream.
                return unsafe {
                    self.acl
                        .copy_async(*target, *source, *bytes, Way::DeviceToDevice, stream)
                };
            }
            VendorCall::AllGather { .. }
            | VendorCall::AllReduce { .. }
            | VendorCall::AllToAll { .. }
            | VendorCall::Barrier
            | VendorCall::Broadcast { .. } => {
                // SAFETY: the caller's promise is the same.
                unsafe { self.run_alike(step, comm, queue) }?
            }
            VendorCall::Reduce { .. }
            | VendorCall::ReduceScatter { .. }
            | VendorCall::Scatter { .. } => {
                // SAFETY: the caller's promise is the same.
                unsafe { self.run_part(step, comm, queue) }?
            }
            VendorCall::AllGatherV { .. }
            | VendorCall::AllToAllV { .. }
            | VendorCall::ReduceScatterV { .. } => {
                // SAFETY: the caller's promise is the same.
                unsafe { self.run_uneven(step, comm, queue) }?
            }
            VendorCall::Batch(_) | VendorCall::Recv(_) | VendorCall::Send(_) => {
                // SAFETY: the caller's promise is the same.
                unsafe { self.run_message(step, comm, queue) }?
            }
        };
        self.check(call, code)
    }

    /// Calls in which all ranks do the same.
    ///
    /// # Safety
    /// - As [`Calls::run`].
    unsafe fn run_alike(
        &self,
        step: &VendorCall,
        comm: *mut c_void,
        queue: *mut c_void,
    ) -> Result<(&'static str, HcclResult), DeviceError> {
        let hccl = self.api().hccl();
        Ok(match step {
            VendorCall::Barrier => {
                let function = hccl.HcclBarrier()?;
                // SAFETY: the caller's promise.
                ("HcclBarrier", unsafe { function(comm, queue) })
            }
            VendorCall::AllReduce {
                send,
                recv,
                count,
                dtype,
                op,
            } => {
                let function = hccl.HcclAllReduce()?;
                let (kind, op) = (data_type(*dtype), reduce_op(*op));
                let (send, recv) = (pointer(*send), pointer(*recv));
                // SAFETY: the caller's promise.
                let code = unsafe { function(send, recv, *count, kind, op, comm, queue) };
                ("HcclAllReduce", code)
            }
            VendorCall::Broadcast {
                buffer,
                count,
                dtype,
                root,
            } => {
                let function = hccl.HcclBroadcast()?;
                let (buffer, kind) = (pointer(*buffer), data_type(*dtype));
                // SAFETY: the caller's promise.
                let code = unsafe { function(buffer, *count, kind, *root, comm, queue) };
                ("HcclBroadcast", code)
            }
            VendorCall::AllGather {
                send,
                recv,
                count,
                dtype,
            } => {
                let function = hccl.HcclAllGather()?;
                let (send, recv) = (pointer(*send), pointer(*recv));
                let kind = data_type(*dtype);
                // SAFETY: the caller's promise.
                let code = unsafe { function(send, recv, *count, kind, comm, queue) };
                ("HcclAllGather", code)
            }
            VendorCall::AllToAll {
                send,
                recv,
                count,
                dtype,
            } => {
                let function = hccl.HcclAlltoAll()?;
                let (send, recv) = (pointer(*send), pointer(*recv));
                let kind = data_type(*dtype);
                // SAFETY: the caller's promise.
                let code = unsafe { function(send, *count, kind, recv, *count, kind, comm, queue) };
                ("HcclAlltoAll", code)
            }
            other => not_here(other),
        })
    }

    /// Calls after which ranks hold different things.
    ///
    /// # Safety
    /// - As [`Calls::run`].
    unsafe fn run_part(
        &self,
        step: &VendorCall,
        comm: *mut c_void,
        queue: *mut c_void,
    ) -> Result<(&'static str, HcclResult), DeviceError> {
        let hccl = self.api().hccl();
        match step {
            VendorCall::Reduce {
                send,
                recv,
                count,
                dtype,
                op,
                root,
            } => {
                let function = hccl.HcclReduce()?;
                let (kind, op) = (data_type(*dtype), reduce_op(*op));
                let (send, recv) = (pointer(*send), pointer(*recv));
                // SAFETY: the caller's promise.
                let code = unsafe { function(send, recv, *count, kind, op, *root, comm, queue) };
                Ok(("HcclReduce", code))
            }
            VendorCall::ReduceScatter {
                send,
                recv,
                count,
                dtype,
                op,
            } => {
                let function = hccl.HcclReduceScatter()?;
                let (kind, op) = (data_type(*dtype), reduce_op(*op));
                let (send, recv) = (pointer(*send), pointer(*recv));
                // SAFETY: the caller's promise.
                let code = unsafe { function(send, recv, *count, kind, op, comm, queue) };
                Ok(("HcclReduceScatter", code))
            }
            VendorCall::Scatter {
                send,
                recv,
                count,
                dtype,
                root,
            } => {
                let function = hccl.HcclScatter()?;
                let (send, recv) = (pointer(*send), pointer(*recv));
                let kind = data_type(*dtype);
                // SAFETY: the caller's promise.
                let code = unsafe { function(send, recv, *count, kind, *root, comm, queue) };
                Ok(("HcclScatter", code))
            }
            other => Ok(not_here(other)),
        }
    }

    /// Calls with a list of counts. The vendor reads the lists during the call.
    ///
    /// # Safety
    /// - As [`Calls::run`].
    unsafe fn run_uneven(
        &self,
        step: &VendorCall,
        comm: *mut c_void,
        queue: *mut c_void,
    ) -> Result<(&'static str, HcclResult), DeviceError> {
        let hccl = self.api().hccl();
        let list = |values: &Vec<u64>| values.as_ptr().cast::<c_void>();
        match step {
            VendorCall::AllGatherV {
                send,
                count,
                recv,
                counts,
                displs,
                dtype,
            } => {
                let function = hccl.HcclAllGatherV()?;
                let (send, recv) = (pointer(*send), pointer(*recv));
                let (counts, displs, kind) = (list(counts), list(displs), data_type(*dtype));
                // SAFETY: the caller's promise; the lists have one entry a rank.
                let code =
                    unsafe { function(send, *count, recv, counts, displs, kind, comm, queue) };
                Ok(("HcclAllGatherV", code))
            }
            VendorCall::ReduceScatterV {
                send,
                counts,
                displs,
                recv,
                count,
                dtype,
                op,
            } => {
                let function = hccl.HcclReduceScatterV()?;
                let (send, recv) = (pointer(*send), pointer(*recv));
                let (kind, op) = (data_type(*dtype), reduce_op(*op));
                let (counts, displs) = (list(counts), list(displs));
                // SAFETY: the caller's promise; the lists have one entry a rank.
                let code =
                    unsafe { function(send, counts, displs, recv, *count, kind, op, comm, queue) };
                Ok(("HcclReduceScatterV", code))
            }
            VendorCall::AllToAllV {
                send,
                send_counts,
                send_displs,
                recv,
                recv_counts,
                recv_displs,
                dtype,
            } => {
                let function = hccl.HcclAlltoAllV()?;
                let (send, recv, kind) = (pointer(*send), pointer(*recv), data_type(*dtype));
                let (sends, from) = (list(send_counts), list(send_displs));
                let (recvs, to) = (list(recv_counts), list(recv_displs));
                // SAFETY: the caller's promise; the lists have one entry a rank.
                let code = unsafe {
                    function(send, sends, from, kind, recv, recvs, to, kind, comm, queue)
                };
                Ok(("HcclAlltoAllV", code))
            }
            other => Ok(not_here(other)),
        }
    }

    /// Messages.
    ///
    /// # Safety
    /// - As [`Calls::run`].
    unsafe fn run_message(
        &self,
        step: &VendorCall,
        comm: *mut c_void,
        queue: *mut c_void,
    ) -> Result<(&'static str, HcclResult), DeviceError> {
        let hccl = self.api().hccl();
        match step {
            VendorCall::Send(item) => {
                let function = hccl.HcclSend()?;
                let (buffer, kind) = (pointer(item.buffer), data_type(item.dtype));
                // SAFETY: the caller's promise.
                let code = unsafe { function(buffer, item.count, kind, item.peer, comm, queue) };
                Ok(("HcclSend", code))
            }
            VendorCall::Recv(item) => {
                let function = hccl.HcclRecv()?;
                let (buffer, kind) = (pointer(item.buffer), data_type(item.dtype));
                // SAFETY: the caller's promise.
                let code = unsafe { function(buffer, item.count, kind, item.peer, comm, queue) };
                Ok(("HcclRecv", code))
            }
            VendorCall::Batch(items) => {
                let function = hccl.HcclBatchSendRecv()?;
                let mut list: Vec<HcclSendRecvItem> = items.iter().map(vendor_item).collect();
                let count = u32::try_from(list.len()).unwrap_or(u32::MAX);
                // SAFETY: the caller's promise; the list lives through the call.
                let code = unsafe { function(list.as_mut_ptr(), count, comm, queue) };
                Ok(("HcclBatchSendRecv", code))
            }
            other => Ok(not_here(other)),
        }
    }
}

fn vendor_item(item: &Item) -> HcclSendRecvItem {
    HcclSendRecvItem {
        send_recv_type: if item.outgoing {
            HcclSendRecvType::HCCL_SEND
        } else {
            HcclSendRecvType::HCCL_RECV
        },
        buf: pointer(item.buffer),
        count: item.count,
        data_type: data_type(item.dtype),
        remote_rank: item.peer,
    }
}

/// A step that came to the wrong function: a bug of ours, which must not look like success.
fn not_here(step: &VendorCall) -> (&'static str, HcclResult) {
    debug_assert!(false, "no call for {step:?}");
    ("a step without a call", HcclResult::HCCL_E_INTERNAL)
}
