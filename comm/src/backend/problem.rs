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
    match (collective, counts) {
        (Collective::AllReduce, Counts::Uniform(count)) => Problem::all_reduce(n, count),
        (Collective::Reduce, Counts::Uniform(count)) => Problem::reduce(n, count, root),
        (Collective::Broadcast, Counts::Uniform(count)) => Problem::broadcast(n, count, root),
        (Collective::AllGather, Counts::Uniform(count)) => Problem::all_gather(n, count),
        (Collective::ReduceScatter, Counts::Uniform(count)) => Problem::reduce_scatter(n, count),
        (Collective::AllToAll, Counts::Uniform(count)) => Problem::all_to_all(n, count),
        (Collective::Gather, Counts::Uniform(count)) => Problem::gather(n, count, root),
        (Collective::Scatter, Counts::Uniform(count)) => Problem::scatter(n, count, root),
        (Collective::AllGatherV, Counts::Blocks(counts)) => Problem::all_gather_v(counts),
        (Collective::ReduceScatterV, Counts::Blocks(counts)) => Problem::reduce_scatter_v(counts),
        (Collective::GatherV, Counts::Blocks(counts)) => Problem::gather_v(counts, root),
        (Collective::ScatterV, Counts::Blocks(counts)) => Problem::scatter_v(counts, root),
        (Collective::AllToAllV, Counts::Splits { send, recv }) => Ok(Problem::all_to_all_v(
            Matrix::local(me, send.to_vec(), recv.to_vec())?,
        )),
        _ => Problem::barrier(n),
    }
}
