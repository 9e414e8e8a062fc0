//! What carries a call out: the host engine, and HCCL for device memory.
//!
//! `host` chooses the way of a call; `local` is the way of groups whose ranks all share memory
//! (entry exchange, small payloads in the entry); `direct` runs plans whose steps read peers'
//! memory; `reach` moves data straight between buffers that all ranks can reach; `message` runs plans of messages over streams.
//!
//! A backend sees addresses, counts and element types. It does not know the public interface: the
//! collective layer checks arguments before, and adds the context to errors after.

pub(crate) mod call_wait;
pub(crate) mod direct;
mod exchange;
pub(crate) mod hccl;
pub(crate) mod host;
pub(crate) mod links;
pub(crate) mod local;
pub(crate) mod matching;
pub mod message;
pub(crate) mod onset;
pub(crate) mod outlook;
mod problem;
mod reach;
mod segment;
pub(crate) mod verdict_wait;
pub(crate) mod vigil;

use smallvec::SmallVec;

use crate::error::ErrorKind;
use crate::sabotage::{self, Sabotage};
use crate::types::{Collective, DType, Rank, ReduceOp};

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
    /// The send buffer; dangling where this rank sends nothing.
    pub(crate) send: *const u8,
    /// The receive buffer; dangling where this rank receives nothing. In an in-place call it
    /// overlaps the send buffer exactly as the collective's in-place rule says, else not at all.
    pub(crate) recv: *mut u8,
}

/// How many elements go where, as the collective defines it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Counts<'a> {
    /// One count that all ranks share: of the whole vector, or of each block.
    Uniform(usize),
    /// The length of every rank's block; all ranks must name the same list.
    Blocks(&'a [usize]),
    /// What this rank sends to, and receives from, each rank.
    Splits {
        send: &'a [usize],
        recv: &'a [usize],
    },
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
    /// Elements that this rank's send buffer holds.
    pub(crate) fn send_count(&self, n: usize, me: usize) -> usize {
        let sum = |counts: &[usize]| counts.iter().sum();
        match (self.collective, self.counts) {
            (Collective::AllReduce | Collective::Reduce, Counts::Uniform(count)) => count,
            (Collective::Broadcast, Counts::Uniform(count)) if me == self.root => count,
            (Collective::AllGather | Collective::Gather, Counts::Uniform(count)) => count,
            (Collective::AllGatherV | Collective::GatherV, Counts::Blocks(counts)) => counts[me],
            (Collective::ReduceScatter | Collective::AllToAll, Counts::Uniform(count)) => n * count,
            (Collective::ReduceScatterV, Counts::Blocks(counts)) => sum(counts),
            (Collective::Scatter, Counts::Uniform(count)) if me == self.root => n * count,
            (Collective::ScatterV, Counts::Blocks(counts)) if me == self.root => sum(counts),
            (Collective::AllToAllV, Counts::Splits { send, .. }) => sum(send),
            _ => 0,
        }
    }

    /// Elements that this rank's receive buffer holds.
    pub(crate) fn recv_count(&self, n: usize, me: usize) -> usize {
        let sum = |counts: &[usize]| counts.iter().sum();
        match (self.collective, self.counts) {
            (Collective::AllReduce | Collective::Broadcast, Counts::Uniform(count)) => count,
            (Collective::Reduce, Counts::Uniform(count)) if me == self.root => count,
            (Collective::AllGather | Collective::AllToAll, Counts::Uniform(count)) => n * count,
            (Collective::AllGatherV, Counts::Blocks(counts)) => sum(counts),
            (Collective::Gather, Counts::Uniform(count)) if me == self.root => n * count,
            (Collective::GatherV, Counts::Blocks(counts)) if me == self.root => sum(counts),
            (Collective::ReduceScatter | Collective::Scatter, Counts::Uniform(count)) => count,
            (Collective::ReduceScatterV | Collective::ScatterV, Counts::Blocks(counts)) => {
                counts[me]
            }
            (Collective::AllToAllV, Counts::Splits { recv, .. }) => sum(recv),
            _ => 0,
        }
    }

    /// Whether the two buffers share memory: an in-place call.
    pub(crate) fn overlaps(&self, n: usize, me: usize) -> bool {
        let size = self.dtype.size();
        let (send, recv) = (self.send as usize, self.recv as usize);
        let send_end = send + self.send_count(n, me) * size;
        let recv_end = recv + self.recv_count(n, me) * size;
        send < recv_end && recv < send_end
    }

    /// The largest number of elements that any rank contributes, where all ranks can know it.
    pub(crate) fn largest_contribution(&self, n: usize) -> Option<usize> {
        match (self.collective, self.counts) {
            (Collective::AllGatherV | Collective::GatherV, Counts::Blocks(counts)) => {
                Some(counts.iter().copied().max().unwrap_or(0))
            }
            (_, Counts::Splits { .. }) => None,
            _ => Some(self.send_count(n, self.root)),
        }
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
        let is_untyped = self.collective == Collective::Barrier || sabotage::is(Sabotage::Field);
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

    /// What this rank says about the lengths of blocks, if they may differ: a list that peers read.
    pub(crate) fn row(&self) -> Row<'_> {
        match self.counts {
            Counts::Uniform(_) => Row { parts: [&[], &[]] },
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
