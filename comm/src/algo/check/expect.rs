//! What the receive buffers must hold in the end: the meaning of each collective.

use super::super::problem::Problem;
use super::memory::{Buffer, Run, side_by_side};
use super::run::Symbols;
use super::{Fault, FaultKind};
use crate::types::Collective;

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
pub(super) fn check_results(problem: &Problem, symbols: &Symbols<'_>) -> Result<(), Fault> {
    let mut first_sums = FirstSums::default();
    for rank in 0..problem.n() {
        if problem.collective() == Collective::Barrier
            && let Some(other) = symbols.unheard(rank)
        {
            return Err(after_the_end(rank, None, FaultKind::Unheard { other }));
        }
        for want in wanted(problem, rank) {
            let found = symbols
                .result(rank, want.start, want.len)
                .map_err(|element| after_the_end(rank, None, FaultKind::Unwritten { element }))?;
            for run in found {
                check_run(symbols, rank, want, run)?;
                if want.from.is_none() {
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
    let whole = |from, base| Want {
        start: 0,
        len,
        from,
        base,
    };
    let wants = match problem.collective() {
        Collective::AllReduce | Collective::Reduce => vec![whole(None, 0)],
        Collective::ReduceScatter | Collective::ReduceScatterV => {
            vec![whole(None, problem.the_blocks().start(rank))]
        }
        Collective::Broadcast => vec![whole(problem.root(), 0)],
        Collective::Scatter | Collective::ScatterV => {
            vec![whole(problem.root(), problem.the_blocks().start(rank))]
        }
        Collective::AllGather
        | Collective::AllGatherV
        | Collective::Gather
        | Collective::GatherV => {
            let blocks = problem.the_blocks();
            let block = |from| Want {
                start: blocks.start(from),
                len: blocks.len(from),
                from: Some(from),
                base: 0,
            };
            (0..n).filter(|_| len > 0).map(block).collect()
        }
        Collective::AllToAll | Collective::AllToAllV => {
            let matrix = problem.the_matrix();
            let mut start = 0;
            let mut block = |(from, len)| {
                let want = Want {
                    start,
                    len,
                    from: Some(from),
                    base: matrix.send_start(from, rank),
                };
                start += len;
                want
            };
            matrix
                .column(rank)
                .into_iter()
                .enumerate()
                .map(&mut block)
                .collect()
        }
        Collective::AllGatherObject
        | Collective::Barrier
        | Collective::BroadcastObject
        | Collective::GatherObject
        | Collective::Recv
        | Collective::ScatterObject
        | Collective::Send
        | Collective::SendRecvBatch => Vec::new(),
    };
    wants.into_iter().filter(|want| want.len > 0).collect()
}

fn check_run(symbols: &Symbols<'_>, rank: usize, want: Want, run: Run) -> Result<(), Fault> {
    let element = want.start + run.start;
    let fault = |kind| Err(after_the_end(rank, run.written, kind));
    let wanted_base = want.base + run.start;
    let right_tree = match want.from {
        Some(from) => run.tree == symbols.forest.leaf(from),
        None => match symbols.forest.lacks(run.tree) {
            None => true,
            Some(contributor) if run.base == wanted_base => {
                return fault(FaultKind::Lacks {
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
        None => format!("element {wanted_base} of all ranks"),
    };
    fault(FaultKind::Wrong {
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
    fn compare(&mut self, rank: usize, want: Want, run: Run) -> Result<(), Fault> {
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
                let kind = FaultKind::Association {
                    element: want.start + run.start + pair.start,
                    other: self.rank.unwrap_or(rank),
                };
                Err(after_the_end(rank, run.written, kind))
            }
        }
    }
}

/// A fault of the result: it shows after the end, and is put where the element was last written.
fn after_the_end(rank: usize, written: Option<(usize, usize)>, kind: FaultKind) -> Fault {
    Fault {
        rank,
        round: written.map(|(round, _)| round),
        step: written.map(|(_, step)| step),
        in_place: false,
        kind,
    }
}
