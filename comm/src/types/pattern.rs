//! The ways in which data moves in collectives: a row for each.

use super::ReduceOp;

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
    /// The reduction of the vectors of ranks 0 to `i - 1` to rank `i`.
    ExclusiveScan,
    /// All blocks to the root.
    Gather,
    /// The reduction of all vectors to the root.
    Reduce,
    /// Block `i` of the reduction to rank `i`.
    ReduceScatter,
    /// The reduction of the vectors of ranks 0 to `i` to rank `i`.
    Scan,
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

/// Whose elements a rank ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Each rank's: what it has for this one.
    Each,
    /// Nobody's.
    Nobody,
    /// The reduction of what the [contributors](Pattern::contributors) have.
    Reduction(Over),
    /// The root's.
    Root,
}

/// Whose elements a reduction combines for a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Those of all ranks.
    All,
    /// Those of the ranks before it.
    Before,
    /// Those of the ranks up to it, and its own.
    UpTo,
}

/// Which buffer only the root has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Root {
    /// There is no root.
    None,
    /// That of what it gets.
    Gets,
    /// That of what it gives.
    Gives,
}

/// The factor of nccl-tests that makes bus bandwidth of algorithm bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bus {
    /// Nothing is moved.
    Nothing,
    /// (n - 1) / n: all blocks but the own one.
    Others,
    /// 2 (n - 1) / n: those there and back.
    TwiceOthers,
    /// 1: the whole vector.
    Whole,
}

/// The row of a [`Pattern`].
struct Row {
    send: Extent,
    recv: Extent,
    root: Root,
    source: Source,
    bus: Bus,
}

impl Row {
    const fn new(send: Extent, recv: Extent, root: Root, source: Source, bus: Bus) -> Self {
        Self {
            send,
            recv,
            root,
            source,
            bus,
        }
    }
}

impl Pattern {
    /// Send buffer, receive buffer, whose of them is the root's only, what the result is made of, bus bandwidth.
    const fn row(self) -> Row {
        use Bus::{Others, TwiceOthers, Whole};
        use Extent::{AllBlocks, Nothing, OwnBlock, Vector};
        use Root::{Gets, Gives, None};
        use Source::{Each, Nobody};
        const ALL: Source = Source::Reduction(Over::All);
        match self {
            Self::AllGather => Row::new(OwnBlock, AllBlocks, None, Each, Others),
            Self::AllReduce => Row::new(Vector, Vector, None, ALL, TwiceOthers),
            Self::AllToAll => Row::new(AllBlocks, AllBlocks, None, Each, Others),
            Self::Barrier => Row::new(Nothing, Nothing, None, Nobody, Bus::Nothing),
            Self::Broadcast => Row::new(Vector, Vector, Gives, Source::Root, Whole),
            Self::ExclusiveScan => {
                Row::new(Vector, Vector, None, Source::Reduction(Over::Before), Whole)
            }
            Self::Gather => Row::new(OwnBlock, AllBlocks, Gets, Each, Others),
            Self::Reduce => Row::new(Vector, Vector, Gets, ALL, Whole),
            Self::ReduceScatter => Row::new(AllBlocks, OwnBlock, None, ALL, Others),
            Self::Scan => Row::new(Vector, Vector, None, Source::Reduction(Over::UpTo), Whole),
            Self::Scatter => Row::new(AllBlocks, OwnBlock, Gives, Source::Root, Others),
        }
    }

    /// What the send buffer of the root holds, or of another rank. Where there is no root all ranks have the same.
    #[must_use]
    pub const fn send(self, is_root: bool) -> Extent {
        let row = self.row();
        match row.root {
            Root::Gives if !is_root => Extent::Nothing,
            Root::Gives | Root::Gets | Root::None => row.send,
        }
    }

    /// What the receive buffer of the root holds, or of another rank.
    #[must_use]
    pub const fn recv(self, is_root: bool) -> Extent {
        let row = self.row();
        match row.root {
            Root::Gets if !is_root => Extent::Nothing,
            Root::Gets | Root::Gives | Root::None => row.recv,
        }
    }

    /// Whose elements a rank ends with that has a receive buffer.
    #[must_use]
    pub const fn source(self) -> Source {
        self.row().source
    }

    /// The ranks whose elements a reduction combines for `rank`, one of `n`. Where there are none the result is the
    /// [identity](ReduceOp::identity) of the reduction.
    #[must_use]
    pub const fn contributors(self, n: usize, rank: usize) -> std::ops::Range<usize> {
        match self.source() {
            Source::Reduction(Over::Before) => 0..rank,
            Source::Reduction(Over::UpTo) => 0..rank + 1,
            Source::Reduction(Over::All) | Source::Each | Source::Nobody | Source::Root => 0..n,
        }
    }

    /// Whether each rank gets the reduction of the ranks in front of it, in the order of the ranks.
    #[must_use]
    pub const fn is_prefix(self) -> bool {
        matches!(self.source(), Source::Reduction(Over::Before | Over::UpTo))
    }

    /// The reductions that it takes: none where it does not reduce, and where a rank may have no contributors only those
    /// that have an identity.
    #[must_use]
    pub const fn ops(self) -> &'static [ReduceOp] {
        match self.source() {
            Source::Reduction(Over::Before) => &ReduceOp::WITH_IDENTITY,
            Source::Reduction(Over::All | Over::UpTo) => &ReduceOp::ALL,
            Source::Each | Source::Nobody | Source::Root => &[],
        }
    }

    /// Whether elements of several ranks are combined.
    #[must_use]
    pub const fn reduces(self) -> bool {
        matches!(self.source(), Source::Reduction(_))
    }

    /// Whether no rank ends the call without the part of every other one.
    #[must_use]
    pub const fn needs_everybody(self) -> bool {
        match self {
            Self::AllGather
            | Self::AllReduce
            | Self::AllToAll
            | Self::Barrier
            | Self::ReduceScatter => true,
            Self::Broadcast
            | Self::ExclusiveScan
            | Self::Gather
            | Self::Reduce
            | Self::Scan
            | Self::Scatter => false,
        }
    }

    /// Whether one rank has a role of its own.
    #[must_use]
    pub const fn is_rooted(self) -> bool {
        !matches!(self.row().root, Root::None)
    }

    /// Whether the one buffer is read on the root and written elsewhere.
    #[must_use]
    pub const fn has_one_buffer(self) -> bool {
        matches!(self.source(), Source::Root) && self.is_of_vectors()
    }

    /// The factor of nccl-tests that makes bus bandwidth of algorithm bandwidth, on `n` ranks.
    #[must_use]
    pub fn bus_factor(self, n: usize) -> f64 {
        let others = (n as f64 - 1.0) / n as f64;
        match self.row().bus {
            Bus::Nothing => 0.0,
            Bus::Others => others,
            Bus::TwiceOthers => 2.0 * others,
            Bus::Whole => 1.0,
        }
    }

    /// Whether buffers are vectors, which are not cut into blocks.
    #[must_use]
    pub const fn is_of_vectors(self) -> bool {
        matches!(self.row().send, Extent::Vector)
    }

    /// Whether the call counts the elements of one block of several.
    #[must_use]
    pub const fn is_of_blocks(self) -> bool {
        matches!(self.row().send, Extent::OwnBlock | Extent::AllBlocks)
    }

    /// Where in one buffer a rank's part for sending and its part for receiving begin in an in-place call, in blocks.
    /// `None` where a rank has one of the buffers only.
    #[must_use]
    pub const fn in_place(self, is_root: bool, rank: usize) -> Option<(usize, usize)> {
        match (self.send(is_root), self.recv(is_root)) {
            (Extent::Nothing, _) | (_, Extent::Nothing) => None,
            (Extent::OwnBlock, Extent::AllBlocks) => Some((rank, 0)),
            (Extent::AllBlocks, Extent::OwnBlock) => Some((0, rank)),
            (
                Extent::Vector | Extent::OwnBlock | Extent::AllBlocks,
                Extent::Vector | Extent::OwnBlock | Extent::AllBlocks,
            ) => Some((0, 0)),
        }
    }
}
