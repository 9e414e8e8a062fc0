//! The operators of HCCL: one vendor call a step.

use std::ffi::c_void;

use hccl_sys::types::{HcclDataType, HcclSendRecvItem, HcclSendRecvType};

use super::acl::pointer;
use super::calls::Calls;
use super::support::{data_type, reduce_op};
use crate::device::error::DeviceError;
use crate::device::vendor_call::{Even, Handle, Item, Side, VendorCall, Way};

impl Calls<'_> {
    /// Enqueues one step. The vendor reads lists of counts during the call.
    ///
    /// # Safety
    /// - Communicator and stream are alive, of the device that is current in this thread, and no
    ///   other thread uses the communicator.
    /// - Every buffer that the step names holds the elements that it says, and stays valid until
    ///   the stream has gone past the step.
    #[expect(clippy::too_many_lines, reason = "one arm a call")]
    pub(super) unsafe fn run(
        &self,
        step: &VendorCall,
        comm: Handle,
        stream: Handle,
    ) -> Result<(), DeviceError> {
        let hccl = self.api().hccl();
        let (comm, queue) = (pointer(comm), pointer(stream));
        let (call, code) = match step {
            VendorCall::AllGather(even) => {
                let function = hccl.HcclAllGather()?;
                let (send, recv, count, kind) = arguments(even);
                // SAFETY: the caller's promise.
                let code = unsafe { function(send, recv, count, kind, comm, queue) };
                ("HcclAllGather", code)
            }
            VendorCall::AllGatherV {
                send,
                count,
                recv,
                dtype,
            } => {
                let function = hccl.HcclAllGatherV()?;
                let (to, counts, displs) = recv.arguments();
                let (send, kind) = (pointer(*send), data_type(*dtype));
                // SAFETY: the caller's promise; the lists have one entry a rank.
                let code = unsafe { function(send, *count, to, counts, displs, kind, comm, queue) };
                ("HcclAllGatherV", code)
            }
            VendorCall::AllReduce(even, op) => {
                let function = hccl.HcclAllReduce()?;
                let (send, recv, count, kind) = arguments(even);
                // SAFETY: the caller's promise.
                let code =
                    unsafe { function(send, recv, count, kind, reduce_op(*op), comm, queue) };
                ("HcclAllReduce", code)
            }
            VendorCall::AllToAll(even) => {
                let function = hccl.HcclAlltoAll()?;
                let (send, recv, count, kind) = arguments(even);
                // SAFETY: the caller's promise.
                let code = unsafe { function(send, count, kind, recv, count, kind, comm, queue) };
                ("HcclAlltoAll", code)
            }
            VendorCall::AllToAllV { send, recv, dtype } => {
                let function = hccl.HcclAlltoAllV()?;
                let kind = data_type(*dtype);
                let (from, sends, sent_at) = send.arguments();
                let (to, recvs, recv_at) = recv.arguments();
                // SAFETY: the caller's promise; the lists have one entry a rank.
                let code = unsafe {
                    function(
                        from, sends, sent_at, kind, to, recvs, recv_at, kind, comm, queue,
                    )
                };
                ("HcclAlltoAllV", code)
            }
            VendorCall::Barrier => {
                let function = hccl.HcclBarrier()?;
                // SAFETY: the caller's promise.
                ("HcclBarrier", unsafe { function(comm, queue) })
            }
            VendorCall::Batch(items) => {
                let function = hccl.HcclBatchSendRecv()?;
                let mut list: Vec<HcclSendRecvItem> = items.iter().map(vendor_item).collect();
                let count = u32::try_from(list.len()).unwrap_or(u32::MAX);
                // SAFETY: the caller's promise; the list lives through the call.
                let code = unsafe { function(list.as_mut_ptr(), count, comm, queue) };
                ("HcclBatchSendRecv", code)
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
            VendorCall::Copy {
                target,
                source,
                bytes,
            } => {
                let (acl, way) = (self.acl, Way::DeviceToDevice);
                // SAFETY: the caller's promise covers both buffers and the stream.
                return unsafe { acl.copy_async(*target, *source, *bytes, way, stream) };
            }
            VendorCall::Recv(item) => {
                let function = hccl.HcclRecv()?;
                let (buffer, kind) = (pointer(item.buffer), data_type(item.dtype));
                // SAFETY: the caller's promise.
                let code = unsafe { function(buffer, item.count, kind, item.peer, comm, queue) };
                ("HcclRecv", code)
            }
            VendorCall::Reduce(even, op, root) => {
                let function = hccl.HcclReduce()?;
                let (send, recv, count, kind) = arguments(even);
                let op = reduce_op(*op);
                // SAFETY: the caller's promise.
                let code = unsafe { function(send, recv, count, kind, op, *root, comm, queue) };
                ("HcclReduce", code)
            }
            VendorCall::ReduceScatter(even, op) => {
                let function = hccl.HcclReduceScatter()?;
                let (send, recv, count, kind) = arguments(even);
                // SAFETY: the caller's promise.
                let code =
                    unsafe { function(send, recv, count, kind, reduce_op(*op), comm, queue) };
                ("HcclReduceScatter", code)
            }
            VendorCall::ReduceScatterV {
                send,
                recv,
                count,
                dtype,
                op,
            } => {
                let function = hccl.HcclReduceScatterV()?;
                let (from, counts, displs) = send.arguments();
                let (recv, kind, op) = (pointer(*recv), data_type(*dtype), reduce_op(*op));
                // SAFETY: the caller's promise; the lists have one entry a rank.
                let code =
                    unsafe { function(from, counts, displs, recv, *count, kind, op, comm, queue) };
                ("HcclReduceScatterV", code)
            }
            VendorCall::Scatter(even, root) => {
                let function = hccl.HcclScatter()?;
                let (send, recv, count, kind) = arguments(even);
                // SAFETY: the caller's promise.
                let code = unsafe { function(send, recv, count, kind, *root, comm, queue) };
                ("HcclScatter", code)
            }
            VendorCall::Send(item) => {
                let function = hccl.HcclSend()?;
                let (buffer, kind) = (pointer(item.buffer), data_type(item.dtype));
                // SAFETY: the caller's promise.
                let code = unsafe { function(buffer, item.count, kind, item.peer, comm, queue) };
                ("HcclSend", code)
            }
        };
        self.check(call, code)
    }
}

fn arguments(even: &Even) -> (*mut c_void, *mut c_void, u64, HcclDataType) {
    let (send, recv) = (pointer(even.send), pointer(even.recv));
    (send, recv, even.count, data_type(even.dtype))
}

impl Side {
    /// The buffer, and the lists of counts and places.
    fn arguments(&self) -> (*mut c_void, *const c_void, *const c_void) {
        let list = |values: &[u64]| values.as_ptr().cast::<c_void>();
        (pointer(self.base), list(&self.counts), list(&self.displs))
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
