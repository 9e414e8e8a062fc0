//! What the receive buffers must hold in the end: the meaning of each collective.

use super::super::problem::Problem;
use super::memory::{Buffer, Run, side_by_side};
use super::run::Symbols;
use super::{Defect, DefectKind};
use crate::types::{Extent, Source};

/// What a part of a receive buffer must hold.
#[derive(Clone, Copy, Debug)]
struct Want {
    start: usize,
    len: usize,
    /// The one rank whose elements these are; none for a reduction of all.
    from: Option<usize>,
    /// Which element of the send buffers the first element is.
    base: usize,
}

/// CHECK-1, CHECK-2 and CHECK-5.
pub(super) fn check_results(problem: &Problem, symbols: &Symbols<'_>) -> Result<(), Defect> {
    let mut first_sums = FirstSums::default();
    for rank in 0..problem.n() {
        if problem.collective().is_empty()
            && let Some(other) = symbols.unheard(rank)
        {
            return Err(after_the_end(rank, None, DefectKind::Unheard { other }));
        }
        for want in wanted(problem, rank) {
            let found = symbols
                .result(rank, want.start, want.len)
                .map_err(|element| after_the_end(rank, None, DefectKind::Unwritten { element }))?;
            for run in found {
                check_run(problem, symbols, rank, want, run)?;
                // The prefixes of different ranks are different sums.
                if want.from.is_none() && !problem.pattern().is_prefix() {
                    first_sums.compare(rank, want, run)?;
                }
            }
        }
    }
    Ok(())
}

/// What the receive buffer of `rank` must hold.
fn wanted(problem: &Problem, rank: usize) -> Vec<Want> {
    let (len, n) = (problem.out_len(rank), problem.n());
    let pattern = problem.pattern();
    // Where in a send buffer the part for this rank begins.
    let base = |from: usize| match (problem.blocks(), problem.matrix()) {
        (Some(blocks), _) if pattern.send(true) == Extent::AllBlocks => blocks.start(rank),
        (_, Some(matrix)) => matrix.send_start(from, rank),
        (Some(_) | None, None) => 0,
    };
    let whole = |from: Option<usize>| Want {
        start: 0,
        len,
        from,
        base: base(from.unwrap_or(0)),
    };
    let wants = match pattern.source() {
        Source::Nobody => Vec::new(),
        // Where nobody contributes the result is no matter of plans.
        Source::Reduction(_) if pattern.contributors(n, rank).is_empty() => Vec::new(),
        Source::Reduction(_) => vec![whole(None)],
        Source::Root => vec![whole(problem.root())],
        Source::Each if len == 0 => Vec::new(),
        Source::Each => {
            let column = problem.matrix().map(|matrix| matrix.column(rank));
            let len_from = |from: usize| match &column {
                Some(column) => column[from],
                None => problem.the_blocks().len(from),
            };
            let mut start = 0;
            let block = |from| {
                let want = Want {
                    start,
                    len: len_from(from),
                    from: Some(from),
                    base: base(from),
                };
                start += want.len;
                want
            };
            (0..n).map(block).collect()
        }
    };
    wants.into_iter().filter(|want| want.len > 0).collect()
}

fn check_run(
    problem: &Problem,
    symbols: &Symbols<'_>,
    rank: usize,
    want: Want,
    run: Run,
) -> Result<(), Defect> {
    let pattern = problem.pattern();
    let ranks = pattern.contributors(problem.n(), rank);
    let element = want.start + run.start;
    let defect = |kind| Err(after_the_end(rank, run.written, kind));
    let wanted_base = want.base + run.start;
    let right_tree = match want.from {
        Some(from) => run.tree == symbols.forest.leaf(from),
        None => match symbols.forest.lacks(run.tree, ranks.clone()) {
            None => !pattern.is_prefix() || symbols.forest.is_in_order(run.tree, ranks.clone()),
            Some(contributor) if run.base == wanted_base => {
                return defect(DefectKind::Lacks {
                    element,
                    contributor,
                });
            }
            Some(_) => false,
        },
    };
    if right_tree && run.base == wanted_base {
        return Ok(());
    }
    let whose = match want.from {
        Some(from) => format!("element {wanted_base} of rank {from}"),
        None if pattern.is_prefix() => {
            let last = ranks.end - 1;
            format!("element {wanted_base} of ranks 0 to {last} in rank order")
        }
        None => format!("element {wanted_base} of all ranks"),
    };
    defect(DefectKind::Wrong {
        element,
        want: whose,
        got: format!(
            "element {} of {}",
            run.base,
            symbols.forest.describe(run.tree)
        ),
    })
}

/// The sums that were found first, by element of the send buffers, to compare later ones with.
#[derive(Debug, Default)]
struct FirstSums {
    sums: Buffer,
    /// The rank that they were found on.
    rank: Option<usize>,
}

impl FirstSums {
    fn compare(&mut self, rank: usize, want: Want, run: Run) -> Result<(), Defect> {
        let value = Run { start: 0, ..run };
        let Ok(first) = self.sums.read(run.base, run.len) else {
            self.rank.get_or_insert(rank);
            self.sums.write(run.base, run.len, &[value]);
            return Ok(());
        };
        let differs = side_by_side(&first, &[value])
            .into_iter()
            .find(|pair| pair.left.tree != pair.right.tree);
        match differs {
            None => Ok(()),
            Some(pair) => {
                let kind = DefectKind::Association {
                    element: want.start + run.start + pair.start,
                    other: self.rank.unwrap_or(rank),
                };
                Err(after_the_end(rank, run.written, kind))
            }
        }
    }
}

/// A defect of the result: it shows after the end, and is put where the element was last written.
fn after_the_end(rank: usize, written: Option<(usize, usize)>, kind: DefectKind) -> Defect {
    Defect {
        rank,
        round: written.map(|(round, _)| round),
        step: written.map(|(_, step)| step),
        in_place: false,
        kind,
    }
}
