//! The operators of HCCL by name: for messages, faults and the vendor's own names.

/// An operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Operator {
    AllGather,
    AllGatherV,
    AllReduce,
    AllToAll,
    AllToAllV,
    AllToAllVC,
    Barrier,
    BatchSendRecv,
    Broadcast,
    Recv,
    Reduce,
    ReduceScatter,
    ReduceScatterV,
    Scatter,
    Send,
}

impl Operator {
    /// The name that faults and texts use.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::AllGather => "all_gather",
            Self::AllGatherV => "all_gather_v",
            Self::AllReduce => "all_reduce",
            Self::AllToAll => "all_to_all",
            Self::AllToAllV => "all_to_all_v",
            Self::AllToAllVC => "all_to_all_vc",
            Self::Barrier => "barrier",
            Self::BatchSendRecv => "batch_send_recv",
            Self::Broadcast => "broadcast",
            Self::Recv => "recv",
            Self::Reduce => "reduce",
            Self::ReduceScatter => "reduce_scatter",
            Self::ReduceScatterV => "reduce_scatter_v",
            Self::Scatter => "scatter",
            Self::Send => "send",
        }
    }

    /// The vendor's function.
    pub(crate) const fn function(self) -> &'static str {
        match self {
            Self::AllGather => "HcclAllGather",
            Self::AllGatherV => "HcclAllGatherV",
            Self::AllReduce => "HcclAllReduce",
            Self::AllToAll => "HcclAlltoAll",
            Self::AllToAllV => "HcclAlltoAllV",
            Self::AllToAllVC => "HcclAlltoAllVC",
            Self::Barrier => "HcclBarrier",
            Self::BatchSendRecv => "HcclBatchSendRecv",
            Self::Broadcast => "HcclBroadcast",
            Self::Recv => "HcclRecv",
            Self::Reduce => "HcclReduce",
            Self::ReduceScatter => "HcclReduceScatter",
            Self::ReduceScatterV => "HcclReduceScatterV",
            Self::Scatter => "HcclScatter",
            Self::Send => "HcclSend",
        }
    }

    /// Whether it is between two ranks, and so may be grouped with others of its kind into one.
    pub(crate) const fn is_point_to_point(self) -> bool {
        matches!(self, Self::Recv | Self::Send)
    }
}
