//! The calls of the vendor as data, and the memory that each of them touches.

use crate::types::{DType, ReduceOp, index};

/// A handle or a device address of the vendor.
pub(crate) type Handle = usize;

/// Where the bytes of a copy come from and go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    DeviceToDevice,
    DeviceToHost,
    HostToDevice,
}

/// One call of the vendor. Counts are elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum VendorCall {
    AllGather {
        send: Handle,
        recv: Handle,
        count: u64,
        dtype: DType,
    },
    AllGatherV {
        send: Handle,
        count: u64,
        recv: Handle,
        counts: Vec<u64>,
        displs: Vec<u64>,
        dtype: DType,
    },
    AllReduce {
        send: Handle,
        recv: Handle,
        count: u64,
        dtype: DType,
        op: ReduceOp,
    },
    AllToAll {
        send: Handle,
        recv: Handle,
        count: u64,
        dtype: DType,
    },
    AllToAllV {
        send: Handle,
        send_counts: Vec<u64>,
        send_displs: Vec<u64>,
        recv: Handle,
        recv_counts: Vec<u64>,
        recv_displs: Vec<u64>,
        dtype: DType,
    },
    Barrier,
    Batch(Vec<Item>),
    Broadcast {
        buffer: Handle,
        count: u64,
        dtype: DType,
        root: u32,
    },
    /// A copy on the device.
    Copy {
        target: Handle,
        source: Handle,
        bytes: usize,
    },
    Recv(Item),
    Reduce {
        send: Handle,
        recv: Handle,
        count: u64,
        dtype: DType,
        op: ReduceOp,
        root: u32,
    },
    ReduceScatter {
        send: Handle,
        recv: Handle,
        count: u64,
        dtype: DType,
        op: ReduceOp,
    },
    ReduceScatterV {
        send: Handle,
        counts: Vec<u64>,
        displs: Vec<u64>,
        recv: Handle,
        count: u64,
        dtype: DType,
        op: ReduceOp,
    },
    Scatter {
        send: Handle,
        recv: Handle,
        count: u64,
        dtype: DType,
        root: u32,
    },
    Send(Item),
}

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) outgoing: bool,
    pub(crate) buffer: Handle,
    pub(crate) count: u64,
    pub(crate) dtype: DType,
    pub(crate) peer: u32,
}

impl VendorCall {
    /// The memory that a step of `n` ranks reads or writes: addresses and bytes.
    #[expect(clippy::too_many_lines, reason = "one arm a call")]
    pub(super) fn ranges(&self, n: usize) -> Vec<(Handle, usize)> {
        let bytes = |count: u64, dtype: &DType| index(count) * dtype.size();
        let extent = |counts: &[u64], displs: &[u64], dtype: &DType| {
            let end = |(count, displ): (&u64, &u64)| count + displ;
            bytes(counts.iter().zip(displs).map(end).max().unwrap_or(0), dtype)
        };
        let message = |item: &Item| (item.buffer, bytes(item.count, &item.dtype));
        match self {
            Self::AllGather {
                send,
                recv,
                count,
                dtype,
            } => {
                let one = bytes(*count, dtype);
                vec![(*send, one), (*recv, one * n)]
            }
            Self::AllGatherV {
                send,
                count,
                recv,
                counts,
                displs,
                dtype,
            } => {
                vec![
                    (*send, bytes(*count, dtype)),
                    (*recv, extent(counts, displs, dtype)),
                ]
            }
            Self::AllReduce {
                send,
                recv,
                count,
                dtype,
                ..
            }
            | Self::Reduce {
                send,
                recv,
                count,
                dtype,
                ..
            } => {
                let all = bytes(*count, dtype);
                vec![(*send, all), (*recv, all)]
            }
            Self::AllToAll {
                send,
                recv,
                count,
                dtype,
            } => {
                let all = bytes(*count, dtype) * n;
                vec![(*send, all), (*recv, all)]
            }
            Self::AllToAllV {
                send,
                send_counts,
                send_displs,
                recv,
                recv_counts,
                recv_displs,
                dtype,
            } => vec![
                (*send, extent(send_counts, send_displs, dtype)),
                (*recv, extent(recv_counts, recv_displs, dtype)),
            ],
            Self::Barrier => Vec::new(),
            Self::Batch(items) => items.iter().map(message).collect(),
            Self::Broadcast {
                buffer,
                count,
                dtype,
                ..
            } => vec![(*buffer, bytes(*count, dtype))],
            Self::Copy {
                target,
                source,
                bytes,
            } => vec![(*target, *bytes), (*source, *bytes)],
            Self::Recv(item) | Self::Send(item) => vec![message(item)],
            Self::ReduceScatter {
                send,
                recv,
                count,
                dtype,
                ..
            } => {
                let one = bytes(*count, dtype);
                vec![(*send, one * n), (*recv, one)]
            }
            Self::ReduceScatterV {
                send,
                counts,
                displs,
                recv,
                count,
                dtype,
                ..
            } => {
                vec![
                    (*send, extent(counts, displs, dtype)),
                    (*recv, bytes(*count, dtype)),
                ]
            }
            // Off the root nothing of the send buffer is looked at.
            Self::Scatter {
                recv, count, dtype, ..
            } => vec![(*recv, bytes(*count, dtype))],
        }
    }
}
