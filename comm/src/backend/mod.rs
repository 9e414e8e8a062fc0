//! What carries a call on host memory out.
//!
//! `host` chooses the way of a call; `shm_exchange` is the way of groups whose ranks all share memory
//! (entry exchange, small payloads in the entry); `direct` runs plans whose steps read peers'
//! memory; `zero_copy` moves data straight between buffers that all ranks can reach; `message` runs plans of messages over
//! streams.
//!
//! A backend sees addresses, counts and element types. It does not know the public interface: the
//! collective layer checks arguments before, and adds the context to errors after.

pub(crate) mod call_start;
pub(crate) mod call_wait;
pub(crate) mod direct;
mod exchange;
pub mod foresee;
pub(crate) mod host;
pub(crate) mod links;
pub mod litmus;
pub(crate) mod matching;
pub mod message;
pub(crate) mod peer_status;
mod problem;
mod retire;
mod segment;
pub(crate) mod shm_exchange;
pub(crate) mod verdict_wait;
pub(crate) mod wait_context;
mod zero_copy;

use smallvec::SmallVec;

use crate::error::ErrorKind;
use crate::sabotage::{self, Sabotage};
use crate::types::{Collective, DType, Extent, Pattern, Rank, ReduceOp};

/// A list with an element for each rank of a group, and one more: without allocation up to eight ranks.
type PerRank<T> = SmallVec<[T; 9]>;

/// A checked call, with types erased.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) collective: Collective,
    /// What the program called, where that is made of several collectives: the ranks compare this.
    pub(crate) called: Collective,
    pub(crate) dtype: DType,
    /// `Sum` where the collective does not reduce.
    pub(crate) op: ReduceOp,
    /// Index of the root in the group; 0 where there is none.
    pub(crate) root: usize,
    pub(crate) counts: Counts<'a>,
    /// Of several buffers that are packed into one: their number and their lengths, which the ranks compare. Else empty.
    pub(crate) packed: &'a [usize],
    /// The send buffer; dangling where this rank sends nothing.
    pub(crate) send: *const u8,
    /// The receive buffer; dangling where this rank receives nothing. In an in-place call it
    /// overlaps the send buffer exactly as the collective's in-place rule says, else not at all.
    pub(crate) recv: *mut u8,
}

/// How many elements go where, as the collective defines it.
#[derive(Clone, Copy, Debug)]
pub enum Counts<'a> {
    /// One count that all ranks share: of the whole vector, or of each block.
    Uniform(usize),
    /// The length of every rank's block; all ranks must name the same list.
    Blocks(&'a [usize]),
    /// What this rank sends to, and receives from, each rank.
    Splits {
        /// To each.
        send: &'a [usize],
        /// From each.
        recv: &'a [usize],
    },
}

impl<'a> Counts<'a> {
    /// The lengths of what a rank sends.
    pub(crate) fn sent(self) -> Lengths<'a> {
        match self {
            Self::Uniform(count) => Lengths::Even(count),
            Self::Blocks(counts) => Lengths::Listed(counts),
            Self::Splits { send, .. } => Lengths::Listed(send),
        }
    }

    /// The lengths of what a rank receives.
    pub(crate) fn received(self) -> Lengths<'a> {
        match self {
            Self::Uniform(count) => Lengths::Even(count),
            Self::Blocks(counts) => Lengths::Listed(counts),
            Self::Splits { recv, .. } => Lengths::Listed(recv),
        }
    }
}

/// The lengths of the blocks of a buffer, one for each rank; or of the one vector that it is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lengths<'a> {
    Even(usize),
    Listed(&'a [usize]),
}

impl Lengths<'_> {
    /// Elements that a buffer of this extent holds on a rank.
    pub(crate) fn elements(self, extent: Extent, n: usize, rank: usize) -> usize {
        match extent {
            Extent::Nothing => 0,
            Extent::OwnBlock => self.of(rank),
            Extent::AllBlocks => self.start(n),
            Extent::Vector => self.vector(),
        }
    }

    /// Length of the block of a rank.
    pub(crate) fn of(self, rank: usize) -> usize {
        match self {
            Self::Even(count) => count,
            Self::Listed(counts) => counts[rank],
        }
    }

    /// Elements of the blocks before that of a rank: where it begins in a buffer of all blocks.
    pub(crate) fn start(self, rank: usize) -> usize {
        match self {
            Self::Even(count) => rank * count,
            Self::Listed(counts) => counts[..rank].iter().sum(),
        }
    }

    /// Length of the one vector.
    pub(crate) fn vector(self) -> usize {
        match self {
            Self::Even(count) => count,
            Self::Listed(counts) => unreachable!("a vector has one length, not {counts:?}"),
        }
    }
}

/// Why a call failed, before the collective layer adds the context.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) kind: ErrorKind,
    /// Round and number of rounds, where a plan was under way.
    pub(crate) round: Option<(u32, u32)>,
    /// Whether all ranks are still in step, so that the group can be used further.
    pub(crate) usable: bool,
    /// The rank whose doing it is, where all ranks of the group have found the same.
    pub(crate) culprit: Option<Rank>,
}

impl From<ErrorKind> for Failure {
    fn from(kind: ErrorKind) -> Self {
        // What is refused before the entry leaves the group as it was; see `is_recoverable`.
        let usable = kind.is_recoverable();
        Self {
            kind,
            round: None,
            usable,
            culprit: None,
        }
    }
}

impl Request<'_> {
    /// How the data of this call moves.
    pub(crate) fn pattern(&self) -> Pattern {
        let pattern = self.collective.pattern();
        pattern.unwrap_or_else(|| unreachable!("{} is made of messages", self.collective))
    }

    /// Elements that the send buffer of a rank holds.
    pub(crate) fn send_count(&self, n: usize, rank: usize) -> usize {
        let extent = self.pattern().send(rank == self.root);
        self.counts.sent().elements(extent, n, rank)
    }

    /// Elements that the receive buffer of a rank holds.
    pub(crate) fn recv_count(&self, n: usize, rank: usize) -> usize {
        let extent = self.pattern().recv(rank == self.root);
        self.counts.received().elements(extent, n, rank)
    }

    /// Whether the two buffers share memory: an in-place call.
    pub(crate) fn overlaps(&self, n: usize, me: usize) -> bool {
        let size = self.dtype.size();
        let (send, recv) = (self.send as usize, self.recv as usize);
        let send_end = send + self.send_count(n, me) * size;
        let recv_end = recv + self.recv_count(n, me) * size;
        send < recv_end && recv < send_end
    }

    /// The largest number of elements that any rank contributes; where a rank cannot know it, what this one does.
    pub(crate) fn contribution(&self, n: usize, me: usize) -> usize {
        match (self.pattern().send(true), self.counts) {
            (_, Counts::Splits { .. }) => self.send_count(n, me),
            (Extent::OwnBlock, Counts::Blocks(counts)) => counts.iter().copied().max().unwrap_or(0),
            (
                Extent::Nothing | Extent::Vector | Extent::OwnBlock | Extent::AllBlocks,
                Counts::Uniform(_) | Counts::Blocks(_),
            ) => self.send_count(n, self.root),
        }
    }

    /// Bytes of the largest buffer, by which tables choose; 0 where no rank knows all of them.
    pub(crate) fn largest_bytes(&self, n: usize) -> u64 {
        let largest = match self.counts {
            Counts::Uniform(count) if self.pattern().is_of_vectors() => count,
            Counts::Uniform(count) => count.saturating_mul(n),
            Counts::Blocks(counts) => counts.iter().sum(),
            Counts::Splits { .. } => 0,
        };
        (largest as u64).saturating_mul(self.dtype.size() as u64)
    }

    /// What the ranks compare before they touch data: the call in one word.
    pub(crate) fn call_word(&self) -> u64 {
        let root = if self.called.is_rooted() {
            self.root as u64 + 1
        } else {
            0
        };
        let op = if self.collective.reduces() {
            u64::from(self.op as u8)
        } else {
            0
        };
        let is_untyped = self.collective.is_empty() || sabotage::is(Sabotage::Field);
        let dtype = if is_untyped { 0 } else { self.dtype as u8 };
        u64::from(self.called as u8) | u64::from(dtype) << 8 | op << 16 | root << 32
    }

    /// The count that must be the same on all ranks.
    pub(crate) fn common_count(&self) -> u64 {
        match self.counts {
            Counts::Uniform(count) => count as u64,
            Counts::Blocks(_) | Counts::Splits { .. } => 0,
        }
    }

    /// What this rank says about the lengths of blocks, if they may differ, or of packed buffers: a list that peers read.
    pub(crate) fn row(&self) -> Row<'_> {
        match self.counts {
            Counts::Uniform(_) => Row {
                parts: [self.packed, &[]],
            },
            Counts::Blocks(counts) => Row {
                parts: [counts, &[]],
            },
            Counts::Splits { send, recv } => Row {
                parts: [send, recv],
            },
        }
    }
}

/// A list of counts in up to two parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    parts: [&'a [usize]; 2],
}

impl Row<'_> {
    pub(crate) fn len(&self) -> usize {
        self.parts[0].len() + self.parts[1].len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> {
        self.parts[0].iter().chain(self.parts[1]).copied()
    }
}
