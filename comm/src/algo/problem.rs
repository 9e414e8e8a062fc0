//! What is asked of an algorithm: a collective, how many ranks, how many elements.
//!
//! A [`Problem`] that exists is a legal one. It knows nothing of element types, addresses or links.
//! Blocks always lie in rank order and without gaps.
//!
//! | collective | `In` on rank r | `Out` on rank r | in place |
//! |---|---|---|---|
//! | `all_reduce` | count | count | `In` = `Out` |
//! | `reduce` | count | count on the root, else nothing | root: `In` = `Out` |
//! | `broadcast` | nothing | count; on the root it holds the data at the start | always |
//! | `all_gather`, `_v` | block r | all blocks | `In` is block r of `Out` |
//! | `reduce_scatter`, `_v` | all blocks | block r | `Out` is block r of `In`, the rest of `In` stays as it was |
//! | `gather`, `_v` | block r | all blocks on the root, else nothing | root: `In` is block root of `Out` |
//! | `scatter`, `_v` | all blocks on the root, else nothing | block r | root: `Out` is block root of `In` |
//! | `all_to_all` | n blocks, block s for rank s | n blocks, block s from rank s | `In` = `Out` |
//! | `all_to_all_v` | row r of the matrix | column r of the matrix | `In` = `Out`; row r = column r on every rank |
//! | `barrier` | nothing | nothing | always |
//!
//! A broadcast has ONE buffer, called `Out`; a caller with a separate send buffer on the root
//! copies it over first. A barrier has no elements; its message plans send single elements of
//! scratch whose value does not matter.

use std::sync::Arc;

use super::shape::{Blocks, Matrix, ProblemError, ranks, root_of, within_limit};
use crate::types::{Collective, Extent, Pattern};

/// How the buffers of one rank lie in an in-place call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InPlace {
    /// This rank has one buffer at most, so nothing changes.
    Apart,
    /// `In` starts at this element of `Out`.
    InWithinOut(usize),
    /// `Out` starts at this element of `In`.
    OutWithinIn(usize),
}

/// One collective over one group: the input of every algorithm. See the module for the buffers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Problem {
    collective: Collective,
    n: usize,
    root: usize,
    shape: Shape,
    /// The host of each rank, where that is known.
    hosts: Option<Arc<[u32]>>,
}

/// Ranks that are taken to share a host where nothing is known of that.
const HOST_RANKS: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Shape {
    Blocks(Blocks),
    Matrix(Matrix),
    Whole(usize),
}

impl Problem {
    /// A collective over `n` ranks with one count: of the vector, or of each block. `root` is looked at where the
    /// collective has one.
    ///
    /// # Errors
    /// Where the number of ranks or of elements is out of range, where `root` is no rank, and for calls that are not
    /// carried out by plans; so for all constructors.
    pub fn uniform(
        collective: Collective,
        n: usize,
        count: usize,
        root: usize,
    ) -> Result<Self, ProblemError> {
        let pattern = planned(collective)?;
        let total = within_limit(ranks(n)?.checked_mul(count));
        let shape = match (pattern.send(true), pattern.recv(true)) {
            (Extent::Nothing, _) | (_, Extent::Nothing) => Shape::Whole(0),
            (Extent::Vector, _) | (_, Extent::Vector) => Shape::Whole(within_limit(Some(count))?),
            (Extent::AllBlocks, Extent::AllBlocks) => Shape::Matrix(Matrix::uniform(n, count)?),
            (Extent::OwnBlock | Extent::AllBlocks, Extent::OwnBlock | Extent::AllBlocks) => {
                Shape::Blocks(Blocks::even(total?, n))
            }
        };
        Self::new(collective, n, root, shape)
    }

    /// A collective over `n` ranks with a count for each rank's block; for `all_to_all_v` with a count for each pair,
    /// row by row, where a row says what a rank sends to each.
    ///
    /// # Errors
    /// As [`Self::uniform`], and where there are more counts or fewer.
    pub fn uneven(
        collective: Collective,
        n: usize,
        counts: &[usize],
        root: usize,
    ) -> Result<Self, ProblemError> {
        planned(collective)?;
        if collective.has_splits() {
            return Matrix::full(n, counts.to_vec()).map(Self::all_to_all_v);
        }
        let n = ranks(n)?;
        if counts.len() != n {
            let got = counts.len();
            return Err(ProblemError::BlockCounts { n, got });
        }
        Self::new(collective, n, root, Shape::Blocks(Blocks::of(counts)?))
    }

    fn new(
        collective: Collective,
        n: usize,
        root: usize,
        shape: Shape,
    ) -> Result<Self, ProblemError> {
        let root = if collective.is_rooted() { root } else { 0 };
        Ok(Self {
            collective,
            n,
            root: root_of(root, n)?,
            shape,
            hosts: None,
        })
    }

    /// `all_reduce` of `count` elements over `n` ranks.
    ///
    /// # Errors
    /// As [`Self::uniform`].
    pub fn all_reduce(n: usize, count: usize) -> Result<Self, ProblemError> {
        Self::uniform(Collective::AllReduce, n, count, 0)
    }

    /// `reduce` of `count` elements to `root`.
    ///
    /// # Errors
    /// As [`Self::uniform`].
    pub fn reduce(n: usize, count: usize, root: usize) -> Result<Self, ProblemError> {
        Self::uniform(Collective::Reduce, n, count, root)
    }

    /// `broadcast` of `count` elements from `root`.
    ///
    /// # Errors
    /// As [`Self::uniform`].
    pub fn broadcast(n: usize, count: usize, root: usize) -> Result<Self, ProblemError> {
        Self::uniform(Collective::Broadcast, n, count, root)
    }

    /// `barrier` of `n` ranks.
    ///
    /// # Errors
    /// As [`Self::uniform`].
    pub fn barrier(n: usize) -> Result<Self, ProblemError> {
        Self::uniform(Collective::Barrier, n, 0, 0)
    }

    /// `all_gather` of one block of `count` elements from each rank.
    ///
    /// # Errors
    /// As [`Self::uniform`].
    pub fn all_gather(n: usize, count: usize) -> Result<Self, ProblemError> {
        Self::uniform(Collective::AllGather, n, count, 0)
    }

    /// `all_gather_v`: rank `i` gives `counts[i]` elements.
    ///
    /// # Errors
    /// As [`Self::uniform`].
    pub fn all_gather_v(counts: &[usize]) -> Result<Self, ProblemError> {
        Self::uneven(Collective::AllGatherV, counts.len(), counts, 0)
    }

    /// `reduce_scatter` of `n` blocks of `count` elements.
    ///
    /// # Errors
    /// As [`Self::uniform`].
    pub fn reduce_scatter(n: usize, count: usize) -> Result<Self, ProblemError> {
        Self::uniform(Collective::ReduceScatter, n, count, 0)
    }

    /// `reduce_scatter_v`: rank `i` gets `counts[i]` elements.
    ///
    /// # Errors
    /// As [`Self::uniform`].
    pub fn reduce_scatter_v(counts: &[usize]) -> Result<Self, ProblemError> {
        Self::uneven(Collective::ReduceScatterV, counts.len(), counts, 0)
    }

    /// `gather` of one block of `count` elements from each rank to `root`.
    ///
    /// # Errors
    /// As [`Self::uniform`].
    pub fn gather(n: usize, count: usize, root: usize) -> Result<Self, ProblemError> {
        Self::uniform(Collective::Gather, n, count, root)
    }

    /// `gather_v`: rank `i` gives `counts[i]` elements to `root`.
    ///
    /// # Errors
    /// As [`Self::uniform`].
    pub fn gather_v(counts: &[usize], root: usize) -> Result<Self, ProblemError> {
        Self::uneven(Collective::GatherV, counts.len(), counts, root)
    }

    /// `scatter` of one block of `count` elements to each rank from `root`.
    ///
    /// # Errors
    /// As [`Self::uniform`].
    pub fn scatter(n: usize, count: usize, root: usize) -> Result<Self, ProblemError> {
        Self::uniform(Collective::Scatter, n, count, root)
    }

    /// `scatter_v`: rank `i` gets `counts[i]` elements from `root`.
    ///
    /// # Errors
    /// As [`Self::uniform`].
    pub fn scatter_v(counts: &[usize], root: usize) -> Result<Self, ProblemError> {
        Self::uneven(Collective::ScatterV, counts.len(), counts, root)
    }

    /// `all_to_all` of blocks of `count` elements.
    ///
    /// # Errors
    /// As [`Self::uniform`].
    pub fn all_to_all(n: usize, count: usize) -> Result<Self, ProblemError> {
        Self::uniform(Collective::AllToAll, n, count, 0)
    }

    /// `all_to_all_v` of the blocks of `matrix`.
    #[must_use]
    pub fn all_to_all_v(matrix: Matrix) -> Self {
        Self {
            collective: Collective::AllToAllV,
            n: matrix.n(),
            root: 0,
            shape: Shape::Matrix(matrix),
            hosts: None,
        }
    }

    /// The same on ranks that are spread over hosts: equal numbers for ranks that share one. A list of another
    /// length than the group changes nothing.
    #[must_use]
    pub fn with_hosts(self, hosts: Arc<[u32]>) -> Self {
        let fits = hosts.len() == self.n;
        Self {
            hosts: fits.then_some(hosts),
            ..self
        }
    }

    /// A number that ranks of one host have in common. Where nothing is known of hosts, each eight neighbours
    /// share one.
    #[must_use]
    pub fn host_of(&self, rank: usize) -> u32 {
        let usual = u32::try_from(rank / HOST_RANKS).unwrap_or(u32::MAX);
        self.hosts.as_ref().map_or(usual, |hosts| hosts[rank])
    }

    /// The collective.
    #[must_use]
    pub fn collective(&self) -> Collective {
        self.collective
    }

    /// Number of ranks, at least one.
    #[must_use]
    pub fn n(&self) -> usize {
        self.n
    }

    /// The root, if the collective has one.
    #[must_use]
    pub fn root(&self) -> Option<usize> {
        self.collective.is_rooted().then_some(self.root)
    }

    /// How its data moves.
    #[must_use]
    pub fn pattern(&self) -> Pattern {
        let pattern = self.collective.pattern();
        pattern.unwrap_or_else(|| unreachable!("{} is made of messages", self.collective))
    }

    /// Elements of the send buffer of `rank`.
    ///
    /// # Panics
    /// If the matrix is the local knowledge of another rank.
    #[must_use]
    pub fn in_len(&self, rank: usize) -> usize {
        if self.collective.has_one_buffer() {
            return 0;
        }
        self.elements_of(self.pattern().send(rank == self.root), rank, Matrix::row)
    }

    /// Elements of the receive buffer of `rank`.
    ///
    /// # Panics
    /// As [`Self::in_len`].
    #[must_use]
    pub fn out_len(&self, rank: usize) -> usize {
        self.elements_of(self.pattern().recv(rank == self.root), rank, Matrix::column)
    }

    /// Elements of a buffer of this extent on `rank`; of an exchange `counts` gives its cells of the matrix.
    fn elements_of(
        &self,
        extent: Extent,
        rank: usize,
        counts: fn(&Matrix, usize) -> Vec<usize>,
    ) -> usize {
        match (&self.shape, extent) {
            (_, Extent::Nothing) => 0,
            (Shape::Whole(count), _) => *count,
            (Shape::Blocks(blocks), Extent::OwnBlock) => blocks.len(rank),
            (Shape::Blocks(blocks), Extent::AllBlocks | Extent::Vector) => blocks.total(),
            (Shape::Matrix(matrix), _) => counts(matrix, rank).iter().sum(),
        }
    }

    /// The size by which an algorithm is selected: the elements of the largest buffer of any rank,
    /// the same on every rank. None for `all_to_all_v`, where a rank knows its own counts only.
    #[must_use]
    pub fn elements(&self) -> Option<usize> {
        match &self.shape {
            Shape::Whole(count) => Some(*count),
            Shape::Blocks(blocks) => Some(blocks.total()),
            Shape::Matrix(_) if self.collective.has_splits() => None,
            Shape::Matrix(matrix) => Some(matrix.row(0).iter().sum()),
        }
    }

    /// The blocks, for collectives that have one block a rank.
    #[must_use]
    pub fn blocks(&self) -> Option<&Blocks> {
        match &self.shape {
            Shape::Blocks(blocks) => Some(blocks),
            Shape::Matrix(_) | Shape::Whole(_) => None,
        }
    }

    /// Who sends how much to whom, for `all_to_all` and `all_to_all_v`.
    #[must_use]
    pub fn matrix(&self) -> Option<&Matrix> {
        match &self.shape {
            Shape::Matrix(matrix) => Some(matrix),
            Shape::Blocks(_) | Shape::Whole(_) => None,
        }
    }

    /// How the buffers of `rank` lie in an in-place call; None where the shape allows no such
    /// call (an `all_to_all_v` in which this rank does not send and receive the same counts).
    ///
    /// # Panics
    /// As [`Self::in_len`].
    #[must_use]
    pub fn in_place(&self, rank: usize) -> Option<InPlace> {
        let starts = self.pattern().in_place(rank == self.root, rank);
        let (Some((sends, gets)), false) = (starts, self.collective.has_one_buffer()) else {
            return Some(InPlace::Apart);
        };
        let start = |block: usize| self.blocks().map_or(0, |blocks| blocks.start(block));
        let within = match &self.shape {
            Shape::Matrix(matrix) if !matrix.is_symmetric_on(rank) => return None,
            Shape::Blocks(_) if self.pattern().send(true) == Extent::AllBlocks => {
                InPlace::OutWithinIn(start(gets))
            }
            Shape::Blocks(_) | Shape::Matrix(_) | Shape::Whole(_) => {
                InPlace::InWithinOut(start(sends))
            }
        };
        Some(within)
    }

    /// Elements of the vector of a collective without blocks.
    pub(super) fn whole_count(&self) -> usize {
        match &self.shape {
            Shape::Whole(count) => *count,
            Shape::Blocks(_) | Shape::Matrix(_) => unreachable!("{} has blocks", self.collective),
        }
    }

    /// The root of a rooted collective.
    pub(super) fn the_root(&self) -> usize {
        debug_assert!(
            self.collective.is_rooted(),
            "{} has no root",
            self.collective
        );
        self.root
    }

    /// The blocks of a collective that is known to have some.
    pub(super) fn the_blocks(&self) -> &Blocks {
        self.blocks()
            .expect("the collective has a block for each rank")
    }

    /// The matrix of a collective that is known to have one.
    pub(super) fn the_matrix(&self) -> &Matrix {
        self.matrix()
            .expect("the collective has a matrix of counts")
    }
}

/// How the data of a collective moves that plans carry out.
fn planned(collective: Collective) -> Result<Pattern, ProblemError> {
    collective
        .pattern()
        .filter(|_| collective.is_planned())
        .ok_or(ProblemError::Unplanned { collective })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_have_the_lengths_of_the_table() {
        let problem = Problem::gather_v(&[3, 0, 2], 2).expect("legal");
        assert_eq!([0, 1, 2].map(|rank| problem.in_len(rank)), [3, 0, 2]);
        assert_eq!([0, 1, 2].map(|rank| problem.out_len(rank)), [0, 0, 5]);
        let problem = Problem::reduce_scatter_v(&[3, 0, 2]).expect("legal");
        assert_eq!([0, 1, 2].map(|rank| problem.in_len(rank)), [5, 5, 5]);
        assert_eq!([0, 1, 2].map(|rank| problem.out_len(rank)), [3, 0, 2]);
        let matrix = Matrix::full(2, vec![1, 2, 3, 4]).expect("legal");
        let problem = Problem::all_to_all_v(matrix);
        assert_eq!([0, 1].map(|rank| problem.in_len(rank)), [3, 7]);
        assert_eq!([0, 1].map(|rank| problem.out_len(rank)), [4, 6]);
        assert_eq!(problem.in_place(0), None);
    }

    #[test]
    fn illegal_problems_are_refused_with_what_is_allowed() {
        assert_eq!(Problem::barrier(0), Err(ProblemError::Ranks { n: 0 }));
        let error = Problem::reduce(4, 1, 4).expect_err("no such root");
        assert_eq!(error, ProblemError::RootRange { root: 4, n: 4 });
        assert!(error.to_string().contains("0 to 3"), "{error}");
        assert_eq!(
            Problem::all_gather(3, usize::MAX / 2),
            Err(ProblemError::TooManyElements)
        );
        assert_eq!(
            Blocks::of(&[usize::MAX, 2]),
            Err(ProblemError::TooManyElements)
        );
        assert_eq!(
            Matrix::full(2, vec![0; 3]),
            Err(ProblemError::MatrixShape { n: 2, got: 3 })
        );
        assert_eq!(
            Matrix::local(0, vec![1, 2], vec![3, 4]),
            Err(ProblemError::OwnBlock {
                sends: 1,
                receives: 3
            })
        );
    }
}
