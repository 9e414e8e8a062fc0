//! How a call is cut into segments: the shape of the whole, the smaller problem that each segment is,
//! and where a segment's elements lie in the call's buffers.

use smallvec::smallvec;

use super::exchange::Exchange;
use super::problem::problem;
use super::{Counts, PerRank, Request};
use crate::algo::{Matrix, Problem, ProblemError};
use crate::types::{Collective, Extent, Pattern, index};

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
    /// One vector, or blocks of one length.
    Even { n: usize, count: usize },
    /// One block a rank.
    Blocks(Vec<usize>),
    /// Row by row, what each rank sends to each.
    Matrix { n: usize, cells: Vec<usize> },
}

impl Shape {
    pub(super) fn of(request: &Request<'_>, n: usize, exchange: Option<&Exchange>) -> Self {
        match request.counts {
            Counts::Uniform(count) => Self::Even { n, count },
            Counts::Blocks(counts) => Self::Blocks(counts.to_vec()),
            Counts::Splits { .. } => {
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
            Self::Even { count, .. } => *count,
            Self::Blocks(lens) | Self::Matrix { cells: lens, .. } => {
                lens.iter().copied().max().unwrap_or(0)
            }
        }
    }

    /// Most blocks that one rank exposes at once: of a call without a root every rank exposes what the root does.
    pub(super) fn blocks_exposed(&self, pattern: Pattern) -> usize {
        match (pattern.send(true), self) {
            (Extent::Nothing | Extent::Vector | Extent::OwnBlock, _) => 1,
            (Extent::AllBlocks, Self::Blocks(lens)) => lens.len(),
            (Extent::AllBlocks, Self::Even { n, .. } | Self::Matrix { n, .. }) => *n,
        }
    }

    /// The segment of `size` elements a block from element `from` on.
    pub(super) fn part(
        &self,
        request: &Request<'_>,
        me: usize,
        from: usize,
        size: usize,
    ) -> Result<Part, ProblemError> {
        let root = request.root;
        let cut_all = |lens: &[usize]| lens.iter().map(|len| cut(*len, from, size)).collect();
        Ok(match self {
            Self::Even { count, .. } => Part::Even {
                collective: request.collective,
                root,
                count: cut(*count, from, size),
            },
            Self::Blocks(lens) => {
                let lens: Vec<usize> = cut_all(lens);
                let counts = Counts::Blocks(&lens);
                Part::Uneven(problem(request.collective, counts, root, lens.len(), me)?)
            }
            Self::Matrix { n, cells } => {
                Part::Uneven(Problem::all_to_all_v(Matrix::full(*n, cut_all(cells))?))
            }
        })
    }

    /// Lengths of the blocks of a rank's send buffer and receive buffer.
    pub(super) fn buffers(
        &self,
        request: &Request<'_>,
        me: usize,
    ) -> (PerRank<usize>, PerRank<usize>) {
        let (pattern, is_root) = (request.pattern(), me == request.root);
        match self {
            Self::Even { n, count } => {
                let blocks =
                    |total: usize| smallvec![*count; total.checked_div(*count).unwrap_or(0)];
                (
                    blocks(request.send_count(*n, me)),
                    blocks(request.recv_count(*n, me)),
                )
            }
            Self::Blocks(lens) => {
                let blocks = |extent| match extent {
                    Extent::Nothing => PerRank::new(),
                    Extent::OwnBlock => smallvec![lens[me]],
                    Extent::AllBlocks => PerRank::from_slice(lens),
                    Extent::Vector => unreachable!("a vector has no blocks"),
                };
                (blocks(pattern.send(is_root)), blocks(pattern.recv(is_root)))
            }
            Self::Matrix { n, cells } => {
                let row = PerRank::from_slice(&cells[me * n..][..*n]);
                let column = (0..*n).map(|from| cells[from * n + me]).collect();
                (row, column)
            }
        }
    }
}

/// A segment of a call: what its plan depends on. Few numbers where all blocks are of one length, so that a plan
/// that is known is found without making the problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// One vector, or blocks of one length.
    Even {
        collective: Collective,
        root: usize,
        count: usize,
    },
    Uneven(Problem),
}

impl Part {
    /// The problem that the segment is, on `n` ranks, to rank `me`.
    pub(super) fn problem(&self, n: usize, me: usize) -> Result<Problem, ProblemError> {
        match self {
            Self::Even {
                collective,
                root,
                count,
            } => problem(*collective, Counts::Uniform(*count), *root, n, me),
            Self::Uneven(problem) => Ok(problem.clone()),
        }
    }
}
