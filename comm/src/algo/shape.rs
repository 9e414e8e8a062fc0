//! Counts of elements: blocks in a row, matrices of who sends how much to whom, and what makes
//! either illegal.

use crate::types::{Collective, MAX_WORLD_SIZE};

/// Most elements one buffer may hold: products with element sizes and rank counts stay far inside
/// 64 bits, and no machine has the memory.
pub const MAX_ELEMENTS: usize = 1 << 48;

/// Consecutive blocks, one a rank.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Blocks {
    /// Where block `i` starts; one entry more than there are blocks, the last is the end.
    offsets: Vec<usize>,
}

impl Blocks {
    /// `count` elements in `n` blocks whose lengths differ by one at most, the longer ones first.
    ///
    /// # Panics
    /// If `n` is zero.
    #[must_use]
    pub fn even(count: usize, n: usize) -> Self {
        assert!(n > 0, "elements are split over at least one rank");
        let (short, longer) = (count / n, count % n);
        Self {
            offsets: (0..=n).map(|i| i * short + i.min(longer)).collect(),
        }
    }

    /// Blocks of the given lengths.
    ///
    /// # Errors
    /// [`ProblemError::TooManyElements`] where the sum exceeds [`MAX_ELEMENTS`].
    pub fn of(lengths: &[usize]) -> Result<Self, ProblemError> {
        let mut offsets = Vec::with_capacity(lengths.len() + 1);
        let mut end = 0_usize;
        offsets.push(0);
        for length in lengths {
            end = within_limit(end.checked_add(*length))?;
            offsets.push(end);
        }
        Ok(Self { offsets })
    }

    /// Number of blocks.
    #[must_use]
    pub fn count(&self) -> usize {
        self.offsets.len() - 1
    }

    /// First element of block `i`; `i` may be the number of blocks.
    ///
    /// # Panics
    /// If there is no such block.
    #[must_use]
    pub fn start(&self, i: usize) -> usize {
        self.offsets[i]
    }

    /// Length of block `i`.
    ///
    /// # Panics
    /// If there is no such block.
    #[must_use]
    pub fn len(&self, i: usize) -> usize {
        self.between(i, i + 1)
    }

    /// Number of elements in the blocks from `first` up to, not including, `end`.
    ///
    /// # Panics
    /// If there are no such blocks.
    #[must_use]
    pub fn between(&self, first: usize, end: usize) -> usize {
        self.offsets[end] - self.offsets[first]
    }

    /// Number of elements in all blocks.
    #[must_use]
    pub fn total(&self) -> usize {
        self.offsets[self.count()]
    }

    /// Length of the longest block.
    #[must_use]
    pub fn longest(&self) -> usize {
        (0..self.count()).map(|i| self.len(i)).max().unwrap_or(0)
    }

    /// Whether all blocks have no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.total() == 0
    }
}

/// Who sends how many elements to whom.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Matrix {
    cells: Cells,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Cells {
    /// Every cell, row by row; a row is a sender.
    Full { n: usize, counts: Vec<usize> },
    /// What one rank knows of a matrix: its own row and its own column.
    Local {
        rank: usize,
        row: Vec<usize>,
        column: Vec<usize>,
    },
    /// The same count everywhere.
    Uniform { n: usize, count: usize },
}

impl Matrix {
    /// The whole matrix of `n` ranks, row by row; row `s` says what rank `s` sends to each rank.
    ///
    /// # Errors
    /// Where there are not exactly `n * n` counts, or a row or column has too many elements.
    pub fn full(n: usize, counts: Vec<usize>) -> Result<Self, ProblemError> {
        let n = ranks(n)?;
        if Some(counts.len()) != n.checked_mul(n) {
            return Err(ProblemError::MatrixShape {
                n,
                got: counts.len(),
            });
        }
        let matrix = Self {
            cells: Cells::Full { n, counts },
        };
        for rank in 0..n {
            Blocks::of(&matrix.row(rank))?;
            Blocks::of(&matrix.column(rank))?;
        }
        Ok(matrix)
    }

    /// The matrix in which each of `n` ranks sends `count` elements to each.
    ///
    /// # Errors
    /// Where the number of ranks or of elements of a row is out of range.
    pub fn uniform(n: usize, count: usize) -> Result<Self, ProblemError> {
        let n = ranks(n)?;
        within_limit(n.checked_mul(count))?;
        Ok(Self {
            cells: Cells::Uniform { n, count },
        })
    }

    /// What `rank` knows: how many elements it sends to and receives from each rank. Only message
    /// algorithms can do with that, and only the plan of this rank can be made from it.
    ///
    /// # Errors
    /// Where the two lists differ in length, disagree on what the rank sends to itself, or have
    /// too many elements.
    pub fn local(
        rank: usize,
        send_counts: Vec<usize>,
        recv_counts: Vec<usize>,
    ) -> Result<Self, ProblemError> {
        let n = ranks(send_counts.len())?;
        if recv_counts.len() != n {
            return Err(ProblemError::CountsLength {
                sends: n,
                receives: recv_counts.len(),
            });
        }
        if rank >= n {
            return Err(ProblemError::RankRange { rank, n });
        }
        if send_counts[rank] != recv_counts[rank] {
            return Err(ProblemError::OwnBlock {
                sends: send_counts[rank],
                receives: recv_counts[rank],
            });
        }
        Blocks::of(&send_counts)?;
        Blocks::of(&recv_counts)?;
        Ok(Self {
            cells: Cells::Local {
                rank,
                row: send_counts,
                column: recv_counts,
            },
        })
    }

    /// Number of ranks.
    #[must_use]
    pub fn n(&self) -> usize {
        match &self.cells {
            Cells::Full { n, .. } | Cells::Uniform { n, .. } => *n,
            Cells::Local { row, .. } => row.len(),
        }
    }

    /// Whether every cell is known, not only those of one rank.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.owner().is_none()
    }

    /// The one rank whose row and column these are; none where every cell is known.
    #[must_use]
    pub fn owner(&self) -> Option<usize> {
        match &self.cells {
            Cells::Local { rank, .. } => Some(*rank),
            Cells::Full { .. } | Cells::Uniform { .. } => None,
        }
    }

    /// What `rank` sends to each rank.
    ///
    /// # Panics
    /// If this is the local knowledge of another rank.
    #[must_use]
    pub fn row(&self, rank: usize) -> Vec<usize> {
        match &self.cells {
            Cells::Full { n, counts } => counts[rank * n..(rank + 1) * n].to_vec(),
            Cells::Local { rank: own, row, .. } => {
                assert_eq!(rank, *own, "a rank knows its own counts only");
                row.clone()
            }
            Cells::Uniform { n, count } => vec![*count; *n],
        }
    }

    /// What `rank` receives from each rank.
    ///
    /// # Panics
    /// If this is the local knowledge of another rank.
    #[must_use]
    pub fn column(&self, rank: usize) -> Vec<usize> {
        match &self.cells {
            Cells::Full { n, counts } => (0..*n).map(|from| counts[from * n + rank]).collect(),
            Cells::Local {
                rank: own, column, ..
            } => {
                assert_eq!(rank, *own, "a rank knows its own counts only");
                column.clone()
            }
            Cells::Uniform { n, count } => vec![*count; *n],
        }
    }

    /// Where in the send buffer of `from` the block for `to` starts.
    ///
    /// # Panics
    /// If this is the local knowledge of another rank.
    #[must_use]
    pub fn send_start(&self, from: usize, to: usize) -> usize {
        match &self.cells {
            Cells::Full { n, counts } => counts[from * n..from * n + to].iter().sum(),
            Cells::Local { rank: own, row, .. } => {
                assert_eq!(from, *own, "a rank knows its own counts only");
                row[..to].iter().sum()
            }
            Cells::Uniform { count, .. } => count * to,
        }
    }

    /// Whether `rank` receives from each rank as much as it sends there.
    pub(super) fn is_symmetric_on(&self, rank: usize) -> bool {
        self.row(rank) == self.column(rank)
    }
}

/// What makes a problem illegal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProblemError {
    /// There is not one count for each rank.
    #[error("{got} counts for {n} ranks; each rank has one block")]
    BlockCounts {
        /// Ranks.
        n: usize,
        /// Counts given.
        got: usize,
    },
    /// The two lists of an `all_to_all_v` call differ in length.
    #[error("{sends} send counts but {receives} receive counts; each list has one count a rank")]
    CountsLength {
        /// Length of the list of send counts.
        sends: usize,
        /// Length of the list of receive counts.
        receives: usize,
    },
    /// A matrix has the wrong number of cells.
    #[error("a matrix of {n} ranks has {} counts, not {got}", n * n)]
    MatrixShape {
        /// Ranks.
        n: usize,
        /// Counts given.
        got: usize,
    },
    /// A rank sends itself another number of elements than it receives from itself.
    #[error("the rank sends itself {sends} elements but receives {receives} from itself")]
    OwnBlock {
        /// Sent to itself.
        sends: usize,
        /// Received from itself.
        receives: usize,
    },
    /// A rank that is not in the group.
    #[error("rank {rank} is not in a group of {n}; ranks are 0 to {}", n - 1)]
    RankRange {
        /// The rank.
        rank: usize,
        /// Ranks of the group.
        n: usize,
    },
    /// No ranks, or absurdly many.
    #[error("a group of {n} ranks; 1 to {MAX_WORLD_SIZE} are allowed")]
    Ranks {
        /// The number given.
        n: usize,
    },
    /// A root that is not in the group.
    #[error("root {root} is not in a group of {n}; ranks are 0 to {}", n - 1)]
    RootRange {
        /// The root.
        root: usize,
        /// Ranks of the group.
        n: usize,
    },
    /// A buffer of more elements than any machine can hold.
    #[error("a buffer has more than {MAX_ELEMENTS} elements")]
    TooManyElements,
    /// A call that is not carried out by plans.
    #[error("{collective} is not carried out by plans")]
    Unplanned {
        /// The call.
        collective: Collective,
    },
}

pub(super) fn ranks(n: usize) -> Result<usize, ProblemError> {
    if n == 0 || n > MAX_WORLD_SIZE as usize {
        return Err(ProblemError::Ranks { n });
    }
    Ok(n)
}

pub(super) fn root_of(root: usize, n: usize) -> Result<usize, ProblemError> {
    if root >= n {
        return Err(ProblemError::RootRange { root, n });
    }
    Ok(root)
}

pub(super) fn within_limit(elements: Option<usize>) -> Result<usize, ProblemError> {
    elements
        .filter(|elements| *elements <= MAX_ELEMENTS)
        .ok_or(ProblemError::TooManyElements)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_blocks_cover_everything_and_differ_by_one_at_most() {
        for n in 1..20 {
            for count in 0..50 {
                let blocks = Blocks::even(count, n);
                assert_eq!((blocks.count(), blocks.total()), (n, count));
                for i in 0..n {
                    let len = blocks.len(i);
                    assert!(len == count / n || len == count.div_ceil(n), "{n} {count}");
                }
            }
        }
    }
}
