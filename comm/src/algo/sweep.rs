//! The cases over which every registered algorithm is proved.
//!
//! Used by the test suite and by `muster plan check`. Nothing is random: the same cases every
//! time.

use super::check::{Fault, Proof, check};
use super::problem::Problem;
use super::registry::{Algorithm, PlanError};
use super::shape::{Matrix, ProblemError};
use crate::types::Collective;

/// The numbers of ranks that the test suite goes through: all small ones, and one that is large.
pub fn rank_counts() -> impl Iterator<Item = usize> {
    (1..=33).chain([64])
}

/// The problems of one collective over `n` ranks: no elements, fewer than ranks, as many, more,
/// and uneven ones; for rooted collectives with the first, a middle and the last rank as root.
///
/// # Errors
/// [`ProblemError`] where `n` is no legal number of ranks.
pub fn problems(collective: Collective, n: usize) -> Result<Vec<Problem>, ProblemError> {
    let mut problems = Vec::new();
    for root in roots(collective, n) {
        match collective {
            Collective::AllReduce => each(&mut problems, n, |c| Problem::all_reduce(n, c))?,
            Collective::Reduce => each(&mut problems, n, |c| Problem::reduce(n, c, root))?,
            Collective::Broadcast => each(&mut problems, n, |c| Problem::broadcast(n, c, root))?,
            Collective::Barrier => problems.push(Problem::barrier(n)?),
            Collective::AllGather => block(&mut problems, |c| Problem::all_gather(n, c))?,
            Collective::ReduceScatter => block(&mut problems, |c| Problem::reduce_scatter(n, c))?,
            Collective::Gather => block(&mut problems, |c| Problem::gather(n, c, root))?,
            Collective::Scatter => block(&mut problems, |c| Problem::scatter(n, c, root))?,
            Collective::AllToAll => block(&mut problems, |c| Problem::all_to_all(n, c))?,
            Collective::AllGatherV => uneven(&mut problems, n, Problem::all_gather_v)?,
            Collective::ReduceScatterV => uneven(&mut problems, n, Problem::reduce_scatter_v)?,
            Collective::GatherV => uneven(&mut problems, n, |c| Problem::gather_v(c, root))?,
            Collective::ScatterV => uneven(&mut problems, n, |c| Problem::scatter_v(c, root))?,
            Collective::AllToAllV => matrices(&mut problems, n)?,
            Collective::AllGatherObject
            | Collective::BroadcastObject
            | Collective::GatherObject
            | Collective::Recv
            | Collective::ScatterObject
            | Collective::Send
            | Collective::SendRecvBatch => {}
        }
    }
    Ok(problems)
}

/// The problem of one collective over `n` ranks whose largest buffer has about `elements`
/// elements, in even blocks (rounded up), with rank 0 as root: for tables of costs.
///
/// # Errors
/// [`ProblemError`] where `n` or `elements` is out of range.
pub fn sized(collective: Collective, n: usize, elements: usize) -> Result<Problem, ProblemError> {
    let block = elements.div_ceil(n.max(1));
    let counts = vec![block; n];
    match collective {
        Collective::AllReduce => Problem::all_reduce(n, elements),
        Collective::Reduce => Problem::reduce(n, elements, 0),
        Collective::Broadcast => Problem::broadcast(n, elements, 0),
        Collective::AllGather => Problem::all_gather(n, block),
        Collective::ReduceScatter => Problem::reduce_scatter(n, block),
        Collective::Gather => Problem::gather(n, block, 0),
        Collective::Scatter => Problem::scatter(n, block, 0),
        Collective::AllToAll => Problem::all_to_all(n, block),
        Collective::AllGatherV => Problem::all_gather_v(&counts),
        Collective::ReduceScatterV => Problem::reduce_scatter_v(&counts),
        Collective::GatherV => Problem::gather_v(&counts, 0),
        Collective::ScatterV => Problem::scatter_v(&counts, 0),
        Collective::AllToAllV => Matrix::uniform(n, block).map(Problem::all_to_all_v),
        Collective::AllGatherObject
        | Collective::Barrier
        | Collective::BroadcastObject
        | Collective::GatherObject
        | Collective::Recv
        | Collective::ScatterObject
        | Collective::Send
        | Collective::SendRecvBatch => Problem::barrier(n),
    }
}

/// Proves an algorithm for one problem: its plans for separate buffers and, where the problem has
/// an in-place form, those for in-place calls (which must be right for separate buffers too).
///
/// # Errors
/// [`SweepError`], with the fault or the reason why there are no plans.
pub fn prove(algorithm: &Algorithm, problem: &Problem) -> Result<Proof, SweepError> {
    let plans = algorithm.plans(problem, false)?;
    let proof = check(problem, &plans)?;
    let has_in_place = (0..problem.n()).all(|rank| problem.in_place(rank).is_some());
    if proof.in_place || !has_in_place {
        return Ok(proof);
    }
    Ok(check(problem, &algorithm.plans(problem, true)?)?)
}

/// Why a case is not proved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SweepError {
    /// The plans are wrong.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// There are no plans.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

fn roots(collective: Collective, n: usize) -> Vec<usize> {
    let mut roots = vec![0];
    if collective.is_rooted() {
        roots.extend([n / 2, n.saturating_sub(1)]);
        roots.dedup();
    }
    roots
}

/// Counts of whole vectors.
fn each(
    problems: &mut Vec<Problem>,
    n: usize,
    make: impl Fn(usize) -> Result<Problem, ProblemError>,
) -> Result<(), ProblemError> {
    let mut counts = vec![0, 1, n.saturating_sub(1), n, n + 1, 5 * n + 3];
    counts.dedup();
    for count in counts {
        problems.push(make(count)?);
    }
    Ok(())
}

/// Counts of equal blocks.
fn block(
    problems: &mut Vec<Problem>,
    make: impl Fn(usize) -> Result<Problem, ProblemError>,
) -> Result<(), ProblemError> {
    for count in [0, 1, 7] {
        problems.push(make(count)?);
    }
    Ok(())
}

/// Counts of unequal blocks.
fn uneven(
    problems: &mut Vec<Problem>,
    n: usize,
    make: impl Fn(&[usize]) -> Result<Problem, ProblemError>,
) -> Result<(), ProblemError> {
    let scattered: Vec<usize> = (0..n).map(|i| i * 7 % 5).collect();
    let one_only: Vec<usize> = (0..n).map(|i| if i == n / 2 { 9 } else { 0 }).collect();
    let growing: Vec<usize> = (0..n).collect();
    for counts in [scattered, one_only, growing] {
        problems.push(make(&counts)?);
    }
    Ok(())
}

/// Matrices with and without zeros, one of them symmetric, so that it can be in place.
fn matrices(problems: &mut Vec<Problem>, n: usize) -> Result<(), ProblemError> {
    let cells = |cell: fn(usize, usize, usize) -> usize| {
        (0..n * n)
            .map(|i| cell(n, i / n, i % n))
            .collect::<Vec<_>>()
    };
    for counts in [
        cells(|_, from, to| (from * 3 + to * 5) % 4),
        cells(|_, from, to| (from + to) % 3),
        cells(|n, from, to| if to == (from + 1) % n { 4 } else { 0 }),
    ] {
        problems.push(Problem::all_to_all_v(Matrix::full(n, counts)?));
    }
    Ok(())
}
