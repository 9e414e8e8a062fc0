//! The cases over which every registered algorithm is proved.
//!
//! Used by the test suite and by `muster plan check`. Nothing is random: the same cases every
//! time.

use super::check::{Defect, Proof, check};
use super::problem::Problem;
use super::registry::{Algorithm, PlanError};
use super::shape::ProblemError;
use crate::types::{Collective, Counting, Pattern};

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
    let planned = collective.pattern().filter(|_| collective.is_planned());
    let Some(pattern) = planned else {
        return Ok(problems);
    };
    for root in roots(collective, n) {
        let uneven = match collective.counting() {
            Counting::Blocks => blocks(n),
            Counting::Splits => matrices(n),
            Counting::Buffers | Counting::Messages | Counting::Objects | Counting::Uniform => {
                Vec::new()
            }
        };
        for counts in uneven {
            problems.push(Problem::uneven(collective, n, &counts, root)?);
        }
        let even = match (collective.has_lengths(), pattern.is_of_blocks()) {
            (true, _) => Vec::new(),
            (false, true) => vec![0, 1, 7],
            (false, false) if collective.is_empty() => vec![0],
            (false, false) => vec![0, 1, n.saturating_sub(1), n, n + 1, 5 * n + 3],
        };
        let mut last = None;
        for count in even {
            if last.replace(count) != Some(count) {
                problems.push(Problem::uniform(collective, n, count, root)?);
            }
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
    let pattern = collective.pattern();
    let is_of_blocks = pattern.is_some_and(Pattern::is_of_blocks);
    let count = if is_of_blocks {
        elements.div_ceil(n.max(1))
    } else {
        elements
    };
    if collective.has_lengths() && !collective.has_splits() {
        return Problem::uneven(collective, n, &vec![count; n], 0);
    }
    Problem::uniform(collective, n, count, 0)
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
    Defect(#[from] Defect),
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

/// Counts of unequal blocks.
fn blocks(n: usize) -> Vec<Vec<usize>> {
    let scattered = (0..n).map(|i| i * 7 % 5).collect();
    let one_only = (0..n).map(|i| if i == n / 2 { 9 } else { 0 }).collect();
    let growing = (0..n).collect();
    vec![scattered, one_only, growing]
}

/// Matrices with and without zeros, one of them symmetric, so that it can be in place.
fn matrices(n: usize) -> Vec<Vec<usize>> {
    let cells = |cell: fn(usize, usize, usize) -> usize| {
        (0..n * n)
            .map(|i| cell(n, i / n, i % n))
            .collect::<Vec<_>>()
    };
    vec![
        cells(|_, from, to| (from * 3 + to * 5) % 4),
        cells(|_, from, to| (from + to) % 3),
        cells(|n, from, to| if to == (from + 1) % n { 4 } else { 0 }),
    ]
}
