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
use crate::types::Collective;

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
    /// `all_reduce` of `count` elements over `n` ranks.
    ///
    /// # Errors
    /// Where the number of ranks or of elements is out of range; so for all constructors.
    pub fn all_reduce(n: usize, count: usize) -> Result<Self, ProblemError> {
        Self::whole(Collective::AllReduce, n, count, 0)
    }

    /// `reduce` of `count` elements to `root`.
    ///
    /// # Errors
    /// As [`Self::all_reduce`], and where `root` is no rank; so for all rooted collectives.
    pub fn reduce(n: usize, count: usize, root: usize) -> Result<Self, ProblemError> {
        Self::whole(Collective::Reduce, n, count, root)
    }

    /// `broadcast` of `count` elements from `root`.
    ///
    /// # Errors
    /// As [`Self::reduce`].
    pub fn broadcast(n: usize, count: usize, root: usize) -> Result<Self, ProblemError> {
        Self::whole(Collective::Broadcast, n, count, root)
    }

    /// `barrier` of `n` ranks.
    ///
    /// # Errors
    /// As [`Self::all_reduce`].
    pub fn barrier(n: usize) -> Result<Self, ProblemError> {
        Self::whole(Collective::Barrier, n, 0, 0)
    }

    /// `all_gather` of one block of `count` elements from each rank.
    ///
    /// # Errors
    /// As [`Self::all_reduce`].
    pub fn all_gather(n: usize, count: usize) -> Result<Self, ProblemError> {
        Self::uniform(Collective::AllGather, n, count, 0)
    }

    /// `all_gather_v`: rank `i` gives `counts[i]` elements.
    ///
    /// # Errors
    /// As [`Self::all_reduce`].
    pub fn all_gather_v(counts: &[usize]) -> Result<Self, ProblemError> {
        Self::blocks_of(Collective::AllGatherV, counts, 0)
    }

    /// `reduce_scatter` of `n` blocks of `count` elements.
    ///
    /// # Errors
    /// As [`Self::all_reduce`].
    pub fn reduce_scatter(n: usize, count: usize) -> Result<Self, ProblemError> {
        Self::uniform(Collective::ReduceScatter, n, count, 0)
    }

    /// `reduce_scatter_v`: rank `i` gets `counts[i]` elements.
    ///
    /// # Errors
    /// As [`Self::all_reduce`].
    pub fn reduce_scatter_v(counts: &[usize]) -> Result<Self, ProblemError> {
        Self::blocks_of(Collective::ReduceScatterV, counts, 0)
    }

    /// `gather` of one block of `count` elements from each rank to `root`.
    ///
    /// # Errors
    /// As [`Self::reduce`].
    pub fn gather(n: usize, count: usize, root: usize) -> Result<Self, ProblemError> {
        Self::uniform(Collective::Gather, n, count, root)
    }

    /// `gather_v`: rank `i` gives `counts[i]` elements to `root`.
    ///
    /// # Errors
    /// As [`Self::reduce`].
    pub fn gather_v(counts: &[usize], root: usize) -> Result<Self, ProblemError> {
        Self::blocks_of(Collective::GatherV, counts, root)
    }

    /// `scatter` of one block of `count` elements to each rank from `root`.
    ///
    /// # Errors
    /// As [`Self::reduce`].
    pub fn scatter(n: usize, count: usize, root: usize) -> Result<Self, ProblemError> {
        Self::uniform(Collective::Scatter, n, count, root)
    }

    /// `scatter_v`: rank `i` gets `counts[i]` elements from `root`.
    ///
    /// # Errors
    /// As [`Self::reduce`].
    pub fn scatter_v(counts: &[usize], root: usize) -> Result<Self, ProblemError> {
        Self::blocks_of(Collective::ScatterV, counts, root)
    }

    /// `all_to_all` of blocks of `count` elements.
    ///
    /// # Errors
    /// As [`Self::all_reduce`].
    pub fn all_to_all(n: usize, count: usize) -> Result<Self, ProblemError> {
        Ok(Self {
            collective: Collective::AllToAll,
            n,
            root: 0,
            shape: Shape::Matrix(Matrix::uniform(n, count)?),
            hosts: None,
        })
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

    /// Elements of the send buffer of `rank`.
    ///
    /// # Panics
    /// If the matrix is the local knowledge of another rank.
    #[must_use]
    pub fn in_len(&self, rank: usize) -> usize {
        match &self.shape {
            Shape::Whole(_) if self.collective == Collective::Broadcast => 0,
            Shape::Whole(count) => *count,
            Shape::Blocks(blocks) if self.gathers() => blocks.len(rank),
            Shape::Blocks(blocks) if self.holds_all(rank) => blocks.total(),
            Shape::Blocks(_) => 0,
            Shape::Matrix(matrix) => matrix.row(rank).iter().sum(),
        }
    }

    /// Elements of the receive buffer of `rank`.
    ///
    /// # Panics
    /// As [`Self::in_len`].
    #[must_use]
    pub fn out_len(&self, rank: usize) -> usize {
        match &self.shape {
            Shape::Whole(_) if self.is_reduce() && rank != self.root => 0,
            Shape::Whole(count) => *count,
            Shape::Blocks(blocks) if !self.gathers() => blocks.len(rank),
            Shape::Blocks(blocks) if self.holds_all(rank) => blocks.total(),
            Shape::Blocks(_) => 0,
            Shape::Matrix(matrix) => matrix.column(rank).iter().sum(),
        }
    }

    /// The size by which an algorithm is selected: the elements of the largest buffer of any rank,
    /// the same on every rank. None for `all_to_all_v`, where a rank knows its own counts only.
    #[must_use]
    pub fn elements(&self) -> Option<usize> {
        match &self.shape {
            Shape::Whole(count) => Some(*count),
            Shape::Blocks(blocks) => Some(blocks.total()),
            Shape::Matrix(_) if self.collective == Collective::AllToAllV => None,
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
        let within = match &self.shape {
            Shape::Whole(_) if self.collective == Collective::AllReduce => InPlace::InWithinOut(0),
            Shape::Whole(_) if self.is_reduce() && rank == self.root => InPlace::InWithinOut(0),
            Shape::Whole(_) => InPlace::Apart,
            Shape::Blocks(_) if !self.holds_all(rank) => InPlace::Apart,
            Shape::Blocks(blocks) if self.gathers() => InPlace::InWithinOut(blocks.start(rank)),
            Shape::Blocks(blocks) => InPlace::OutWithinIn(blocks.start(rank)),
            Shape::Matrix(matrix) if matrix.is_symmetric_on(rank) => InPlace::InWithinOut(0),
            Shape::Matrix(_) => return None,
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

    fn is_reduce(&self) -> bool {
        self.collective == Collective::Reduce
    }

    /// Whether blocks come together in `Out` (rather than being handed out from `In`).
    fn gathers(&self) -> bool {
        matches!(
            self.collective,
            Collective::AllGather
                | Collective::AllGatherV
                | Collective::Gather
                | Collective::GatherV
        )
    }

    /// Whether `rank` has the buffer that holds all blocks.
    fn holds_all(&self, rank: usize) -> bool {
        !self.collective.is_rooted() || rank == self.root
    }

    fn whole(
        collective: Collective,
        n: usize,
        count: usize,
        root: usize,
    ) -> Result<Self, ProblemError> {
        let n = ranks(n)?;
        Ok(Self {
            collective,
            n,
            root: root_of(root, n)?,
            shape: Shape::Whole(within_limit(Some(count))?),
            hosts: None,
        })
    }

    fn uniform(
        collective: Collective,
        n: usize,
        count: usize,
        root: usize,
    ) -> Result<Self, ProblemError> {
        let n = ranks(n)?;
        let total = within_limit(n.checked_mul(count))?;
        Ok(Self {
            collective,
            n,
            root: root_of(root, n)?,
            shape: Shape::Blocks(Blocks::even(total, n)),
            hosts: None,
        })
    }

    fn blocks_of(
        collective: Collective,
        counts: &[usize],
        root: usize,
    ) -> Result<Self, ProblemError> {
        let n = ranks(counts.len())?;
        Ok(Self {
            collective,
            n,
            root: root_of(root, n)?,
            shape: Shape::Blocks(Blocks::of(counts)?),
            hosts: None,
        })
    }
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
