//! The collectives: their names, and how each moves data.
//!
//! [`Pattern`] has one row for each way in which data moves. What a buffer holds, who has a part of its own and what is combined
//! are asked of it, so that a new collective is a row here and not a case in every file.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{UnknownName, by_name};

/// The kind of a call. The discriminants travel on the wire: never renumber them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Collective {
    /// Every rank gets every rank's block.
    AllGather = 1,
    /// Every rank gets every rank's object.
    AllGatherObject = 2,
    /// Every rank gets every rank's block; blocks differ in length.
    AllGatherV = 3,
    /// Every rank gets the reduction of all buffers.
    AllReduce = 4,
    /// Rank `i` gets block `i` of every rank.
    AllToAll = 5,
    /// Rank `i` gets block `i` of every rank; blocks differ in length.
    AllToAllV = 6,
    /// Nobody leaves before everybody came.
    Barrier = 7,
    /// Every rank gets the root's buffer.
    Broadcast = 8,
    /// Every rank gets the root's object.
    BroadcastObject = 9,
    /// The root gets every rank's block.
    Gather = 10,
    /// The root gets every rank's object.
    GatherObject = 11,
    /// The root gets every rank's block; blocks differ in length.
    GatherV = 12,
    /// A message from one peer.
    Recv = 13,
    /// The root gets the reduction of all buffers.
    Reduce = 14,
    /// Rank `i` gets block `i` of the reduction.
    ReduceScatter = 15,
    /// Rank `i` gets block `i` of the reduction; blocks differ in length.
    ReduceScatterV = 16,
    /// Rank `i` gets block `i` of the root's buffer.
    Scatter = 17,
    /// Rank `i` gets object `i` of the root.
    ScatterObject = 18,
    /// Rank `i` gets block `i` of the root's buffer; blocks differ in length.
    ScatterV = 19,
    /// A message to one peer.
    Send = 20,
    /// Several messages to and from peers, posted together.
    SendRecvBatch = 21,
}

impl Collective {
    /// Every kind of call, in the order in which reports list them.
    pub const ALL: [Self; 21] = [
        Self::AllReduce,
        Self::ReduceScatter,
        Self::ReduceScatterV,
        Self::AllGather,
        Self::AllGatherV,
        Self::AllToAll,
        Self::AllToAllV,
        Self::Broadcast,
        Self::Reduce,
        Self::Gather,
        Self::GatherV,
        Self::Scatter,
        Self::ScatterV,
        Self::Barrier,
        Self::Send,
        Self::Recv,
        Self::SendRecvBatch,
        Self::AllGatherObject,
        Self::GatherObject,
        Self::BroadcastObject,
        Self::ScatterObject,
    ];

    /// The name used in options, reports and messages: `all_reduce`, `all_to_all_v`, …
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllGather => "all_gather",
            Self::AllGatherObject => "all_gather_object",
            Self::AllGatherV => "all_gather_v",
            Self::AllReduce => "all_reduce",
            Self::AllToAll => "all_to_all",
            Self::AllToAllV => "all_to_all_v",
            Self::Barrier => "barrier",
            Self::Broadcast => "broadcast",
            Self::BroadcastObject => "broadcast_object",
            Self::Gather => "gather",
            Self::GatherObject => "gather_object",
            Self::GatherV => "gather_v",
            Self::Recv => "recv",
            Self::Reduce => "reduce",
            Self::ReduceScatter => "reduce_scatter",
            Self::ReduceScatterV => "reduce_scatter_v",
            Self::Scatter => "scatter",
            Self::ScatterObject => "scatter_object",
            Self::ScatterV => "scatter_v",
            Self::Send => "send",
            Self::SendRecvBatch => "batch_send_recv",
        }
    }

    /// How its data moves; `None` for messages.
    #[must_use]
    pub const fn pattern(self) -> Option<Pattern> {
        Some(match self {
            Self::AllGather | Self::AllGatherV | Self::AllGatherObject => Pattern::AllGather,
            Self::AllReduce => Pattern::AllReduce,
            Self::AllToAll | Self::AllToAllV => Pattern::AllToAll,
            Self::Barrier => Pattern::Barrier,
            Self::Broadcast | Self::BroadcastObject => Pattern::Broadcast,
            Self::Gather | Self::GatherV | Self::GatherObject => Pattern::Gather,
            Self::Reduce => Pattern::Reduce,
            Self::ReduceScatter | Self::ReduceScatterV => Pattern::ReduceScatter,
            Self::Scatter | Self::ScatterV | Self::ScatterObject => Pattern::Scatter,
            Self::Recv | Self::Send | Self::SendRecvBatch => return None,
        })
    }

    /// Whether the lengths of its blocks may differ.
    #[must_use]
    pub const fn has_lengths(self) -> bool {
        matches!(
            self,
            Self::AllGatherV
                | Self::AllToAllV
                | Self::GatherV
                | Self::ReduceScatterV
                | Self::ScatterV
        )
    }

    /// Whether it moves objects.
    #[must_use]
    pub const fn is_of_objects(self) -> bool {
        matches!(
            self,
            Self::AllGatherObject
                | Self::BroadcastObject
                | Self::GatherObject
                | Self::ScatterObject
        )
    }

    /// Whether the call combines elements of several ranks with a [`ReduceOp`](super::ReduceOp).
    #[must_use]
    pub const fn reduces(self) -> bool {
        matches!(
            self.pattern(),
            Some(Pattern::AllReduce | Pattern::Reduce | Pattern::ReduceScatter)
        )
    }

    /// Whether the call names a root.
    #[must_use]
    pub const fn is_rooted(self) -> bool {
        matches!(
            self.pattern(),
            Some(Pattern::Broadcast | Pattern::Gather | Pattern::Reduce | Pattern::Scatter)
        )
    }

    /// The kind with this wire number.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|collective| *collective as u8 == code)
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Collective {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        by_name("collective", name, &Self::ALL, |collective| {
            collective.name()
        })
    }
}

/// How data moves in a collective, with blocks of one length or of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// All blocks to all ranks.
    AllGather,
    /// The reduction of all vectors to all ranks.
    AllReduce,
    /// Block `i` of every rank to rank `i`.
    AllToAll,
    /// No data.
    Barrier,
    /// The root's vector to all ranks.
    Broadcast,
    /// All blocks to the root.
    Gather,
    /// The reduction of all vectors to the root.
    Reduce,
    /// Block `i` of the reduction to rank `i`.
    ReduceScatter,
    /// Block `i` of the root to rank `i`.
    Scatter,
}

/// What a buffer of one rank holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// No element.
    Nothing,
    /// One vector, of the same length on all ranks.
    Vector,
    /// The block of this rank.
    OwnBlock,
    /// A block for each rank, or from each, in rank order.
    AllBlocks,
}

impl Pattern {
    /// What the send buffer of the root holds, or of another rank. Where there is no root all ranks have the same.
    #[must_use]
    pub const fn send(self, is_root: bool) -> Extent {
        match self {
            Self::AllReduce | Self::Reduce => Extent::Vector,
            Self::AllGather | Self::Gather => Extent::OwnBlock,
            Self::AllToAll | Self::ReduceScatter => Extent::AllBlocks,
            Self::Broadcast if is_root => Extent::Vector,
            Self::Scatter if is_root => Extent::AllBlocks,
            Self::Broadcast | Self::Scatter | Self::Barrier => Extent::Nothing,
        }
    }

    /// What the receive buffer of the root holds, or of another rank.
    #[must_use]
    pub const fn recv(self, is_root: bool) -> Extent {
        match self {
            Self::AllReduce | Self::Broadcast => Extent::Vector,
            Self::AllGather | Self::AllToAll => Extent::AllBlocks,
            Self::ReduceScatter | Self::Scatter => Extent::OwnBlock,
            Self::Reduce if is_root => Extent::Vector,
            Self::Gather if is_root => Extent::AllBlocks,
            Self::Reduce | Self::Gather | Self::Barrier => Extent::Nothing,
        }
    }

    /// The factor of nccl-tests that makes bus bandwidth of algorithm bandwidth, on `n` ranks.
    #[must_use]
    pub fn bus_factor(self, n: usize) -> f64 {
        let others = (n as f64 - 1.0) / n as f64;
        match self {
            Self::AllReduce => 2.0 * others,
            Self::AllGather
            | Self::AllToAll
            | Self::Gather
            | Self::ReduceScatter
            | Self::Scatter => others,
            Self::Broadcast | Self::Reduce => 1.0,
            Self::Barrier => 0.0,
        }
    }

    /// Whether buffers are vectors, which are not cut into blocks.
    #[must_use]
    pub const fn is_of_vectors(self) -> bool {
        matches!(self.send(true), Extent::Vector)
    }
}
