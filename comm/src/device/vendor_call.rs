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

/// Blocks of one length: where what is sent and what is received begins, and the elements of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Even {
    pub(crate) send: Handle,
    pub(crate) recv: Handle,
    pub(crate) count: u64,
    pub(crate) dtype: DType,
}

/// One side of a call that has a block of its own length for each rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Side {
    pub(crate) base: Handle,
    pub(crate) counts: Vec<u64>,
    pub(crate) displs: Vec<u64>,
}

/// One call of the vendor. Counts are elements; a number behind a reduction or alone is the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum VendorCall {
    AllGather(Even),
    AllGatherV {
        send: Handle,
        count: u64,
        recv: Side,
        dtype: DType,
    },
    AllReduce(Even, ReduceOp),
    AllToAll(Even),
    AllToAllV {
        send: Side,
        recv: Side,
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
    Reduce(Even, ReduceOp, u32),
    ReduceScatter(Even, ReduceOp),
    ReduceScatterV {
        send: Side,
        recv: Handle,
        count: u64,
        dtype: DType,
        op: ReduceOp,
    },
    Scatter(Even, u32),
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
    pub(super) fn ranges(&self, n: usize) -> Vec<(Handle, usize)> {
        let bytes = |count: u64, dtype: DType| index(count) * dtype.size();
        let side = |side: &Side, dtype: DType| {
            let ends = side.counts.iter().zip(&side.displs);
            let end = ends.map(|(count, displ)| count + displ).max();
            (side.base, bytes(end.unwrap_or(0), dtype))
        };
        let even = |even: &Even, sent: usize, received: usize| {
            let one = bytes(even.count, even.dtype);
            vec![(even.send, one * sent), (even.recv, one * received)]
        };
        let message = |item: &Item| (item.buffer, bytes(item.count, item.dtype));
        match self {
            Self::AllGather(blocks) => even(blocks, 1, n),
            Self::AllGatherV {
                send,
                count,
                recv,
                dtype,
            } => vec![(*send, bytes(*count, *dtype)), side(recv, *dtype)],
            Self::AllReduce(blocks, _) | Self::Reduce(blocks, ..) => even(blocks, 1, 1),
            Self::AllToAll(blocks) => even(blocks, n, n),
            Self::AllToAllV { send, recv, dtype } => vec![side(send, *dtype), side(recv, *dtype)],
            Self::Barrier => Vec::new(),
            Self::Batch(items) => items.iter().map(message).collect(),
            Self::Broadcast {
                buffer,
                count,
                dtype,
                ..
            } => vec![(*buffer, bytes(*count, *dtype))],
            Self::Copy {
                target,
                source,
                bytes,
            } => vec![(*target, *bytes), (*source, *bytes)],
            Self::Recv(item) | Self::Send(item) => vec![message(item)],
            Self::ReduceScatter(blocks, _) => even(blocks, n, 1),
            Self::ReduceScatterV {
                send,
                recv,
                count,
                dtype,
                ..
            } => vec![side(send, *dtype), (*recv, bytes(*count, *dtype))],
            // Off the root nothing of the send buffer is looked at.
            Self::Scatter(blocks, _) => vec![(blocks.recv, bytes(blocks.count, blocks.dtype))],
        }
    }
}
