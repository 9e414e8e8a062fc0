//! Arguments checked, memory named, steps lowered: everything before the device hears of a call.

use std::sync::Arc;

use super::DeviceCommunicator;
use super::run::Prepared;
use crate::backend::Counts;
use crate::buffer::Element;
use crate::collective::{Call, Sides};
use crate::device::library::lower::DeviceCall;
use crate::device::library::support;
use crate::device::memory::DeviceSlice;
use crate::device::vendor_call::VendorCall;
use crate::error::{CommError, ErrorKind};
use crate::sync::Deadline;
use crate::types::{Collective, Pattern, ReduceOp};
use crate::watch::judge::device::Ask;

/// The memory of a call.
pub(super) enum Memory<'a, T> {
    Apart {
        send: &'a DeviceSlice<T>,
        recv: &'a DeviceSlice<T>,
    },
    /// One buffer for both, the send part from element `send_at` on and the receive part from
    /// `recv_at` on.
    InPlace {
        buffer: &'a DeviceSlice<T>,
        send_at: usize,
        recv_at: usize,
    },
}

impl DeviceCommunicator {
    /// A call whose lengths were checked.
    pub(super) fn prepare<T: Element>(
        &self,
        call: Call,
        op: Option<ReduceOp>,
        root: Option<usize>,
        counts: Counts<'_>,
        memory: &Memory<'_, T>,
    ) -> Result<Prepared, CommError> {
        let inner = &*self.inner;
        let error = |kind: ErrorKind| {
            let deadline = Deadline::after(inner.desk.deadline());
            inner.error(call, kind, 0, deadline, true)
        };
        support::check(inner.device.soc(), call.collective, call.dtype, op).map_err(error)?;
        let size = T::DTYPE.size();
        let (send, recv, mut storages, in_place) = match memory {
            Memory::Apart { send, recv } => {
                self.check_device(send).map_err(error)?;
                self.check_device(recv).map_err(error)?;
                if send.overlaps(recv) {
                    return Err(error(ErrorKind::InvalidArgument {
                        what: "recvbuf".to_owned(),
                        got: "memory that overlaps sendbuf".to_owned(),
                        want: "memory apart from it, or the call's in-place form".to_owned(),
                    }));
                }
                let storages = vec![send.storage(), recv.storage()];
                (send.address(), recv.address(), storages, false)
            }
            Memory::InPlace {
                buffer,
                send_at,
                recv_at,
            } => {
                self.check_device(buffer).map_err(error)?;
                let base = buffer.address();
                let storages = vec![buffer.storage()];
                (base + send_at * size, base + recv_at * size, storages, true)
            }
        };
        let device_call = DeviceCall {
            collective: call.collective,
            dtype: T::DTYPE,
            op: op.unwrap_or(ReduceOp::Sum),
            root: root.unwrap_or(0),
            counts,
            send,
            recv,
            in_place,
            me: self.rank(),
            n: self.size(),
            product: inner.device.soc().product,
            one_host: inner.one_host,
        };
        let scratch = inner
            .engine
            .scratch(device_call.scratch_bytes())
            .map_err(|failed| error(failed.into()))?;
        let steps = device_call.lower(scratch.address());
        storages.push(scratch);
        Ok(Prepared {
            call,
            ask: Ask {
                collective: call.collective,
                dtype: call.dtype,
                count: call.count.unwrap_or(0) as u64,
                op,
                root: root.and_then(|root| u32::try_from(root).ok()),
            },
            steps,
            storages,
            messages: Vec::new(),
        })
    }

    pub(super) fn check_device<T: Element>(&self, slice: &DeviceSlice<T>) -> Result<(), ErrorKind> {
        let (mine, its) = (self.inner.device.logical_id(), slice.device().logical_id());
        if mine == its {
            return Ok(());
        }
        Err(ErrorKind::InvalidArgument {
            what: "a buffer".to_owned(),
            got: format!("memory of device {its}"),
            want: format!("memory of device {mine}, which this communicator drives"),
        })
    }

    /// A barrier has no memory, but its scratch is named for form's sake.
    pub(super) fn prepare_barrier(&self) -> Prepared {
        let call = Call::bare(Collective::Barrier);
        Prepared {
            call,
            ask: Ask {
                collective: Collective::Barrier,
                dtype: None,
                count: 0,
                op: None,
                root: None,
            },
            steps: vec![VendorCall::Barrier],
            storages: Vec::new(),
            messages: Vec::new(),
        }
    }

    pub(super) fn prepare_all_reduce<T: Element>(
        &self,
        send: &DeviceSlice<T>,
        recv: &DeviceSlice<T>,
        op: ReduceOp,
    ) -> Result<Prepared, CommError> {
        let call = Call::new::<T>(Collective::AllReduce, send.len());
        self.host_checks()
            .check_len(call, "recvbuf", recv.len(), send.len())?;
        let counts = Counts::Uniform(send.len());
        self.prepare(call, Some(op), None, counts, &Memory::Apart { send, recv })
    }

    pub(super) fn prepare_reduce<T: Element>(
        &self,
        send: &DeviceSlice<T>,
        recv: &DeviceSlice<T>,
        op: ReduceOp,
        root: usize,
    ) -> Result<Prepared, CommError> {
        let call = Call::new::<T>(Collective::Reduce, send.len());
        self.host_checks().check_index(call, "root", root)?;
        if self.rank() == root {
            self.host_checks()
                .check_len(call, "recvbuf", recv.len(), send.len())?;
        }
        let counts = Counts::Uniform(send.len());
        self.prepare(
            call,
            Some(op),
            Some(root),
            counts,
            &Memory::Apart { send, recv },
        )
    }

    pub(super) fn prepare_reduce_scatter<T: Element>(
        &self,
        send: &DeviceSlice<T>,
        recv: &DeviceSlice<T>,
        op: ReduceOp,
    ) -> Result<Prepared, CommError> {
        let call = Call::new::<T>(Collective::ReduceScatter, recv.len());
        let want = self.host_checks().blocks_len(call, recv.len())?;
        self.host_checks()
            .check_len(call, "sendbuf", send.len(), want)?;
        let counts = Counts::Uniform(recv.len());
        self.prepare(call, Some(op), None, counts, &Memory::Apart { send, recv })
    }

    pub(super) fn prepare_reduce_scatter_v<T: Element>(
        &self,
        send: &DeviceSlice<T>,
        recv_counts: &[usize],
        recv: &DeviceSlice<T>,
        op: ReduceOp,
    ) -> Result<Prepared, CommError> {
        let call = Call::new::<T>(Collective::ReduceScatterV, recv.len());
        let checks = self.host_checks();
        let total = checks.check_counts(call, "recv_counts", recv_counts)?;
        checks.check_len(call, "sendbuf", send.len(), total)?;
        checks.check_len(call, "recvbuf", recv.len(), recv_counts[self.rank()])?;
        let counts = Counts::Blocks(recv_counts);
        self.prepare(call, Some(op), None, counts, &Memory::Apart { send, recv })
    }

    pub(super) fn prepare_all_gather<T: Element>(
        &self,
        send: &DeviceSlice<T>,
        recv: &DeviceSlice<T>,
    ) -> Result<Prepared, CommError> {
        let call = Call::new::<T>(Collective::AllGather, send.len());
        let want = self.host_checks().blocks_len(call, send.len())?;
        self.host_checks()
            .check_len(call, "recvbuf", recv.len(), want)?;
        let counts = Counts::Uniform(send.len());
        self.prepare(call, None, None, counts, &Memory::Apart { send, recv })
    }

    pub(super) fn prepare_all_gather_v<T: Element>(
        &self,
        send: &DeviceSlice<T>,
        recv: &DeviceSlice<T>,
        recv_counts: &[usize],
    ) -> Result<Prepared, CommError> {
        let call = Call::new::<T>(Collective::AllGatherV, send.len());
        let checks = self.host_checks();
        let total = checks.check_counts(call, "recv_counts", recv_counts)?;
        checks.check_len(call, "sendbuf", send.len(), recv_counts[self.rank()])?;
        checks.check_len(call, "recvbuf", recv.len(), total)?;
        let counts = Counts::Blocks(recv_counts);
        self.prepare(call, None, None, counts, &Memory::Apart { send, recv })
    }

    pub(super) fn prepare_all_to_all<T: Element>(
        &self,
        send: &DeviceSlice<T>,
        recv: &DeviceSlice<T>,
    ) -> Result<Prepared, CommError> {
        let call = Call::new::<T>(Collective::AllToAll, send.len() / self.size());
        let count = self
            .host_checks()
            .check_blocks(call, "sendbuf", send.len())?;
        self.host_checks()
            .check_len(call, "recvbuf", recv.len(), send.len())?;
        let counts = Counts::Uniform(count);
        self.prepare(call, None, None, counts, &Memory::Apart { send, recv })
    }

    pub(super) fn prepare_all_to_all_v<T: Element>(
        &self,
        send: &DeviceSlice<T>,
        send_counts: &[usize],
        recv: &DeviceSlice<T>,
        recv_counts: &[usize],
    ) -> Result<Prepared, CommError> {
        let call = Call::new::<T>(Collective::AllToAllV, send.len());
        let checks = self.host_checks();
        let sends = checks.check_counts(call, "send_counts", send_counts)?;
        let recvs = checks.check_counts(call, "recv_counts", recv_counts)?;
        checks.check_len(call, "sendbuf", send.len(), sends)?;
        checks.check_len(call, "recvbuf", recv.len(), recvs)?;
        let me = self.rank();
        if send_counts[me] != recv_counts[me] {
            let want = format!("send_counts[{me}], which is {}", send_counts[me]);
            let what = format!("recv_counts[{me}], this rank's block for itself,");
            return Err(checks.refuse(call, &what, recv_counts[me].to_string(), want));
        }
        let counts = Counts::Splits {
            send: send_counts,
            recv: recv_counts,
        };
        self.prepare(call, None, None, counts, &Memory::Apart { send, recv })
    }

    pub(super) fn prepare_gather<T: Element>(
        &self,
        send: &DeviceSlice<T>,
        recv: &DeviceSlice<T>,
        recv_counts: Option<&[usize]>,
        root: usize,
    ) -> Result<Prepared, CommError> {
        let collective = match recv_counts {
            Some(_) => Collective::GatherV,
            None => Collective::Gather,
        };
        let sides = Sides {
            block: ("sendbuf", send.len()),
            whole: ("recvbuf", recv.len()),
            counts: recv_counts.map(|counts| ("recv_counts", counts)),
        };
        self.prepare_rooted(collective, &sides, root, &Memory::Apart { send, recv })
    }

    pub(super) fn prepare_scatter<T: Element>(
        &self,
        send: &DeviceSlice<T>,
        send_counts: Option<&[usize]>,
        recv: &DeviceSlice<T>,
        root: usize,
    ) -> Result<Prepared, CommError> {
        let collective = match send_counts {
            Some(_) => Collective::ScatterV,
            None => Collective::Scatter,
        };
        let sides = Sides {
            block: ("recvbuf", recv.len()),
            whole: ("sendbuf", send.len()),
            counts: send_counts.map(|counts| ("send_counts", counts)),
        };
        self.prepare_rooted(collective, &sides, root, &Memory::Apart { send, recv })
    }

    /// A gather or a scatter: every rank has a block, the root alone has all of them.
    fn prepare_rooted<T: Element>(
        &self,
        collective: Collective,
        sides: &Sides<'_>,
        root: usize,
        memory: &Memory<'_, T>,
    ) -> Result<Prepared, CommError> {
        let call = Call::new::<T>(collective, sides.block.1);
        let counts = self.host_checks().check_sides(call, root, sides)?;
        self.prepare(call, None, Some(root), counts, memory)
    }

    /// One buffer for what is given and what is got, where in it each begins, and the count.
    pub(super) fn prepare_in_place<T: Element>(
        &self,
        collective: Collective,
        buffer: &DeviceSlice<T>,
        op: Option<ReduceOp>,
        root: Option<usize>,
    ) -> Result<Prepared, CommError> {
        let checks = self.host_checks();
        let bare = Call::new::<T>(collective, buffer.len());
        if let Some(root) = root {
            checks.check_index(bare, "root", root)?;
        }
        let (me, is_root) = (self.rank(), root == Some(self.rank()));
        let starts = collective
            .pattern()
            .and_then(|pattern| pattern.in_place(!collective.is_rooted() || is_root, me));
        let has_blocks = collective.pattern().is_some_and(Pattern::is_of_blocks);
        let (call, count, (sends, gets)) = match starts {
            Some(starts) if has_blocks => {
                let blocks = Call::new::<T>(collective, buffer.len() / self.size());
                let count = checks.check_blocks(blocks, "buffer", buffer.len())?;
                (blocks, count, starts)
            }
            // A vector, or the one block that a rank has which is not the root.
            Some(_) | None => (bare, buffer.len(), (0, 0)),
        };
        let (send_at, recv_at) = (sends * count, gets * count);
        let memory = Memory::InPlace {
            buffer,
            send_at,
            recv_at,
        };
        self.prepare(call, op, root, Counts::Uniform(count), &memory)
    }

    /// The group whose checks of arguments are used; its name stands in the messages.
    pub(super) fn host_checks(&self) -> &crate::collective::Communicator {
        &self.inner.desk
    }

    /// Shared handle to the inside.
    pub(super) fn shared(&self) -> &Arc<super::Inner> {
        &self.inner
    }
}
