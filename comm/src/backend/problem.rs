//! What a call, or a segment of one, asks of algorithms.

use super::Counts;
use crate::algo::{Matrix, Problem, ProblemError};
use crate::types::Collective;

/// The problem of a collective over `n` ranks; of an exchange of splits, what rank `me` knows of it.
pub(super) fn problem(
    collective: Collective,
    counts: Counts<'_>,
    root: usize,
    n: usize,
    me: usize,
) -> Result<Problem, ProblemError> {
    match counts {
        Counts::Uniform(count) => Problem::uniform(collective, n, count, root),
        Counts::Blocks(counts) => Problem::uneven(collective, n, counts, root),
        Counts::Splits { send, recv } => Ok(Problem::all_to_all_v(Matrix::local(
            me,
            send.to_vec(),
            recv.to_vec(),
        )?)),
    }
}
