//! The collectives: a row for each call.
//!
//! With the rows of [`Pattern`] for the ways in which data moves they say what a buffer holds, who has a part of its own and what
//! is combined, so that a new collective is a row here and not a case in every file.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Pattern, ReduceOp, UnknownName, by_name};

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
    /// Rank `i` gets the reduction of the buffers of ranks 0 to `i`.
    Scan = 22,
    /// Rank `i` gets the reduction of the buffers of the ranks before it.
    ExclusiveScan = 23,
    /// Every rank gets the reduction of all buffers; each rank has several, of the same lengths.
    AllReduceCoalesced = 24,
    /// A message from whichever peer sends one first.
    RecvAny = 25,
}

impl Collective {
    /// Every kind of call, in the order in which reports list them.
    pub const ALL: [Self; 25] = [
        Self::AllReduce,
        Self::AllReduceCoalesced,
        Self::ReduceScatter,
        Self::ReduceScatterV,
        Self::AllGather,
        Self::AllGatherV,
        Self::AllToAll,
        Self::AllToAllV,
        Self::Broadcast,
        Self::Reduce,
        Self::Scan,
        Self::ExclusiveScan,
        Self::Gather,
        Self::GatherV,
        Self::Scatter,
        Self::ScatterV,
        Self::Barrier,
        Self::Send,
        Self::Recv,
        Self::RecvAny,
        Self::SendRecvBatch,
        Self::AllGatherObject,
        Self::GatherObject,
        Self::BroadcastObject,
        Self::ScatterObject,
    ];

    /// Everything that tells it from the others: its name, how its data moves, and how its counts are given.
    const fn row(self) -> (&'static str, Option<Pattern>, Counting) {
        use Counting::{Blocks, Buffers, Messages, Objects, Splits, Uniform};
        use Pattern as P;
        match self {
            Self::AllGather => ("all_gather", Some(P::AllGather), Uniform),
            Self::AllGatherObject => ("all_gather_object", Some(P::AllGather), Objects),
            Self::AllGatherV => ("all_gather_v", Some(P::AllGather), Blocks),
            Self::AllReduce => ("all_reduce", Some(P::AllReduce), Uniform),
            Self::AllReduceCoalesced => ("all_reduce_coalesced", Some(P::AllReduce), Buffers),
            Self::AllToAll => ("all_to_all", Some(P::AllToAll), Uniform),
            Self::AllToAllV => ("all_to_all_v", Some(P::AllToAll), Splits),
            Self::Barrier => ("barrier", Some(P::Barrier), Uniform),
            Self::Broadcast => ("broadcast", Some(P::Broadcast), Uniform),
            Self::BroadcastObject => ("broadcast_object", Some(P::Broadcast), Objects),
            Self::ExclusiveScan => ("exclusive_scan", Some(P::ExclusiveScan), Uniform),
            Self::Gather => ("gather", Some(P::Gather), Uniform),
            Self::GatherObject => ("gather_object", Some(P::Gather), Objects),
            Self::GatherV => ("gather_v", Some(P::Gather), Blocks),
            Self::Recv => ("recv", None, Messages),
            Self::RecvAny => ("recv_any", None, Messages),
            Self::Reduce => ("reduce", Some(P::Reduce), Uniform),
            Self::ReduceScatter => ("reduce_scatter", Some(P::ReduceScatter), Uniform),
            Self::ReduceScatterV => ("reduce_scatter_v", Some(P::ReduceScatter), Blocks),
            Self::Scan => ("scan", Some(P::Scan), Uniform),
            Self::Scatter => ("scatter", Some(P::Scatter), Uniform),
            Self::ScatterObject => ("scatter_object", Some(P::Scatter), Objects),
            Self::ScatterV => ("scatter_v", Some(P::Scatter), Blocks),
            Self::Send => ("send", None, Messages),
            Self::SendRecvBatch => ("batch_send_recv", None, Messages),
        }
    }

    /// The name used in options, reports and messages: `all_reduce`, `all_to_all_v`, …
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row().0
    }

    /// How its data moves; `None` for messages.
    #[must_use]
    pub const fn pattern(self) -> Option<Pattern> {
        self.row().1
    }

    /// How its counts are given.
    #[must_use]
    pub const fn counting(self) -> Counting {
        self.row().2
    }

    /// Whether the lengths of its blocks may differ.
    #[must_use]
    pub const fn has_lengths(self) -> bool {
        matches!(self.counting(), Counting::Blocks | Counting::Splits)
    }

    /// Whether each rank says what it sends to, and receives from, each other.
    #[must_use]
    pub const fn has_splits(self) -> bool {
        matches!(self.counting(), Counting::Splits)
    }

    /// Whether it moves objects.
    #[must_use]
    pub const fn is_of_objects(self) -> bool {
        matches!(self.counting(), Counting::Objects)
    }

    /// Whether it has several buffers, which are packed into one for another collective.
    #[must_use]
    pub const fn is_coalesced(self) -> bool {
        matches!(self.counting(), Counting::Buffers)
    }

    /// Whether plans carry it out: messages do without, and what is composed of other collectives has theirs.
    #[must_use]
    pub const fn is_planned(self) -> bool {
        matches!(
            self.counting(),
            Counting::Blocks | Counting::Splits | Counting::Uniform
        )
    }

    /// Whether it is made of messages between two ranks.
    #[must_use]
    pub const fn is_of_messages(self) -> bool {
        matches!(self.counting(), Counting::Messages)
    }

    /// Whether it has no elements: a barrier.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        matches!(self.pattern(), Some(Pattern::Barrier))
    }

    /// Whether all ranks give one count, of the vector or of each block.
    #[must_use]
    pub const fn has_one_count(self) -> bool {
        matches!(self.counting(), Counting::Uniform) && !self.is_empty()
    }

    /// Whether it has one buffer, which is read on the root and written elsewhere.
    #[must_use]
    pub const fn has_one_buffer(self) -> bool {
        match self.pattern() {
            Some(pattern) => pattern.has_one_buffer() && !self.is_of_objects(),
            None => false,
        }
    }

    /// Whether the call combines elements of several ranks with a [`ReduceOp`].
    #[must_use]
    pub const fn reduces(self) -> bool {
        matches!(self.pattern(), Some(pattern) if pattern.reduces())
    }

    /// The reductions that it takes: none where it does not reduce.
    #[must_use]
    pub const fn ops(self) -> &'static [ReduceOp] {
        match self.pattern() {
            Some(pattern) => pattern.ops(),
            None => &[],
        }
    }

    /// Whether the call names a root.
    #[must_use]
    pub const fn is_rooted(self) -> bool {
        matches!(self.pattern(), Some(pattern) if pattern.is_rooted())
    }

    /// Whether no rank ends the call without the part of every other one.
    #[must_use]
    pub fn needs_everybody(self) -> bool {
        self.pattern().is_some_and(Pattern::needs_everybody)
    }

    /// The same of a call with this count. Without elements a call may need nobody; so may one whose parts differ in length, which
    /// one count does not show.
    #[must_use]
    pub fn needs_everybody_with(self, count: u64) -> bool {
        let has_parts_of_all = match self.counting() {
            Counting::Buffers | Counting::Uniform => count > 0 || self.is_empty(),
            Counting::Objects => true,
            Counting::Blocks | Counting::Messages | Counting::Splits => false,
        };
        has_parts_of_all && self.needs_everybody()
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

/// How the counts of a call are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// The length of every rank's block, the same list on all ranks.
    Blocks,
    /// The length of each of several buffers, the same list on all ranks.
    Buffers,
    /// Each message has a count of its own.
    Messages,
    /// The call finds the lengths out itself.
    Objects,
    /// What each rank sends to, and receives from, each other.
    Splits,
    /// One count that all ranks share, of the vector or of each block.
    Uniform,
}
