//! How a call is cut into segments: the shape of the whole, the smaller problem that each segment is,
//! and where a segment's elements lie in the call's buffers.

use smallvec::smallvec;

use super::exchange::Exchange;
use super::{Counts, PerRank, Request};
use crate::algo::{Matrix, Problem, ProblemError};
use crate::types::{Collective, index};

/// Blocks of a buffer of the whole call, seen from one segment.
#[derive(Debug)]
pub(super) struct Map {
    pub(super) base: *mut u8,
    /// First element of each block in the segment's buffer, then its end.
    segment: PerRank<usize>,
    /// First element of each block's part in the call's buffer.
    real: PerRank<usize>,
}

impl Map {
    /// Blocks of `lens` elements, of which the segment takes `size` from `from` on.
    pub(super) fn new(base: *mut u8, lens: &[usize], from: usize, size: usize) -> Self {
        let mut segment = PerRank::with_capacity(lens.len() + 1);
        segment.push(0);
        let mut real = PerRank::with_capacity(lens.len());
        let (mut at, mut start) = (0, 0);
        for len in lens {
            at += cut(*len, from, size);
            segment.push(at);
            real.push(start + from.min(*len));
            start += len;
        }
        Self {
            base,
            segment,
            real,
        }
    }

    /// The call's element that segment element `at` stands for, and how many follow without a gap.
    pub(super) fn locate(&self, at: usize) -> (usize, usize) {
        let block = self.segment.partition_point(|start| *start <= at) - 1;
        (
            self.real[block] + (at - self.segment[block]),
            self.segment[block + 1] - at,
        )
    }
}

/// Elements of a block of `len` that the segment of `size` from `from` on takes.
pub(super) fn cut(len: usize, from: usize, size: usize) -> usize {
    len.saturating_sub(from).min(size)
}

/// The lengths of all blocks of a call.
#[derive(Debug)]
pub(super) enum Shape {
    /// One vector.
    Whole(usize),
    /// One block a rank.
    Blocks(Vec<usize>),
    /// Row by row, what each rank sends to each.
    Matrix { n: usize, cells: Vec<usize> },
}

impl Shape {
    pub(super) fn of(request: &Request<'_>, n: usize, exchange: Option<&Exchange>) -> Self {
        match (request.collective, request.counts) {
            (
                Collective::AllReduce | Collective::Broadcast | Collective::Reduce,
                Counts::Uniform(count),
            ) => Self::Whole(count),
            (Collective::AllToAll, Counts::Uniform(count)) => Self::Matrix {
                n,
                cells: vec![count; n * n],
            },
            (_, Counts::Uniform(count)) => Self::Blocks(vec![count; n]),
            (_, Counts::Blocks(counts)) => Self::Blocks(counts.to_vec()),
            (_, Counts::Splits { .. }) => {
                let all =
                    exchange.unwrap_or_else(|| unreachable!("splits come with everybody's rows"));
                let sent = (0..n).flat_map(|member| all.sent_by(member));
                let cells = sent.map(|count| index(*count)).collect();
                Self::Matrix { n, cells }
            }
        }
    }

    pub(super) fn longest(&self) -> usize {
        match self {
            Self::Whole(count) => *count,
            Self::Blocks(lens) | Self::Matrix { cells: lens, .. } => {
                lens.iter().copied().max().unwrap_or(0)
            }
        }
    }

    /// Most blocks that one rank exposes at once.
    pub(super) fn blocks_exposed(&self, collective: Collective) -> usize {
        match (self, collective) {
            (Self::Whole(_), _)
            | (
                Self::Blocks(_),
                Collective::AllGather
                | Collective::AllGatherV
                | Collective::Gather
                | Collective::GatherV,
            ) => 1,
            (Self::Blocks(lens), _) => lens.len(),
            (Self::Matrix { n, .. }, _) => *n,
        }
    }

    /// The problem of the segment of `size` elements a block from element `from` on.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the shape leaves one collective each"
    )]
    pub(super) fn problem(
        &self,
        request: &Request<'_>,
        n: usize,
        from: usize,
        size: usize,
    ) -> Result<Problem, ProblemError> {
        let root = request.root;
        let cut_all = |lens: &[usize]| lens.iter().map(|len| cut(*len, from, size)).collect();
        match self {
            Self::Whole(count) => {
                let count = cut(*count, from, size);
                match request.collective {
                    Collective::Broadcast => Problem::broadcast(n, count, root),
                    Collective::Reduce => Problem::reduce(n, count, root),
                    _ => Problem::all_reduce(n, count),
                }
            }
            Self::Blocks(lens) => {
                let lens: Vec<usize> = cut_all(lens);
                match request.collective {
                    Collective::AllGather | Collective::AllGatherV => Problem::all_gather_v(&lens),
                    Collective::Gather | Collective::GatherV => Problem::gather_v(&lens, root),
                    Collective::Scatter | Collective::ScatterV => Problem::scatter_v(&lens, root),
                    _ => Problem::reduce_scatter_v(&lens),
                }
            }
            Self::Matrix { n, cells } => {
                Ok(Problem::all_to_all_v(Matrix::full(*n, cut_all(cells))?))
            }
        }
    }

    /// Lengths of the blocks of a rank's send buffer and receive buffer.
    pub(super) fn buffers(
        &self,
        request: &Request<'_>,
        me: usize,
    ) -> (PerRank<usize>, PerRank<usize>) {
        let rooted =
            |lens: &[usize]| PerRank::from_slice(if me == request.root { lens } else { &[] });
        match (self, request.collective) {
            (Self::Whole(count), Collective::Broadcast) => (PerRank::new(), smallvec![*count]),
            (Self::Whole(count), Collective::Reduce) => (smallvec![*count], rooted(&[*count])),
            (Self::Whole(count), _) => (smallvec![*count], smallvec![*count]),
            (Self::Blocks(lens), Collective::AllGather | Collective::AllGatherV) => {
                (smallvec![lens[me]], PerRank::from_slice(lens))
            }
            (Self::Blocks(lens), Collective::Gather | Collective::GatherV) => {
                (smallvec![lens[me]], rooted(lens))
            }
            (Self::Blocks(lens), Collective::Scatter | Collective::ScatterV) => {
                (rooted(lens), smallvec![lens[me]])
            }
            (Self::Blocks(lens), _) => (PerRank::from_slice(lens), smallvec![lens[me]]),
            (Self::Matrix { n, cells }, _) => {
                let row = PerRank::from_slice(&cells[me * n..][..*n]);
                let column = (0..*n).map(|from| cells[from * n + me]).collect();
                (row, column)
            }
        }
    }
}
