//! What a call, or a segment of one, asks of algorithms.

use super::Counts;
use crate::algo::{Matrix, Problem, ProblemError};
use crate::types::{Collective, Pattern};

/// The problem of a collective over `n` ranks; of an exchange of splits, what rank `me` knows of it.
pub(super) fn problem(
    collective: Collective,
    counts: Counts<'_>,
    root: usize,
    n: usize,
    me: usize,
) -> Result<Problem, ProblemError> {
    let pattern = collective.pattern();
    let pattern = pattern.unwrap_or_else(|| unreachable!("{collective} is made of messages"));
    match (pattern, counts) {
        (Pattern::AllReduce, _) => Problem::all_reduce(n, counts.sent().vector()),
        (Pattern::Reduce, _) => Problem::reduce(n, counts.sent().vector(), root),
        (Pattern::Broadcast, _) => Problem::broadcast(n, counts.sent().vector(), root),
        (Pattern::Barrier, _) => Problem::barrier(n),
        (Pattern::AllGather, Counts::Uniform(count)) => Problem::all_gather(n, count),
        (Pattern::AllGather, Counts::Blocks(counts)) => Problem::all_gather_v(counts),
        (Pattern::ReduceScatter, Counts::Uniform(count)) => Problem::reduce_scatter(n, count),
        (Pattern::ReduceScatter, Counts::Blocks(counts)) => Problem::reduce_scatter_v(counts),
        (Pattern::Gather, Counts::Uniform(count)) => Problem::gather(n, count, root),
        (Pattern::Gather, Counts::Blocks(counts)) => Problem::gather_v(counts, root),
        (Pattern::Scatter, Counts::Uniform(count)) => Problem::scatter(n, count, root),
        (Pattern::Scatter, Counts::Blocks(counts)) => Problem::scatter_v(counts, root),
        (Pattern::AllToAll, Counts::Uniform(count)) => Problem::all_to_all(n, count),
        (Pattern::AllToAll, Counts::Splits { send, recv }) => Ok(Problem::all_to_all_v(
            Matrix::local(me, send.to_vec(), recv.to_vec())?,
        )),
        (Pattern::AllToAll, Counts::Blocks(_))
        | (
            Pattern::AllGather | Pattern::ReduceScatter | Pattern::Gather | Pattern::Scatter,
            Counts::Splits { .. },
        ) => unreachable!("{collective} does not have {counts:?}"),
    }
}
