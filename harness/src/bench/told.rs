//! What ranks told of the cells of a plan, by cell, round and rank: the part of merging that does not
//! depend on what is measured.

use serde::{Deserialize, Serialize};

use crate::report::machine::{MachineState, Pulse};
use crate::report::measured::{SAMPLES_KEPT_MAX, Skew};
use crate::stats;

/// What every rank tells of a cell in a round, whatever is measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// Number of the cell in the plan.
    pub cell: u32,
    /// Number of the round.
    pub round: u32,
    /// Wrong elements in all checks.
    pub wrong: u64,
    /// What was wrong first, in words.
    pub wrong_text: Option<String>,
    /// Why it was not measured, where the call said that it cannot be carried out.
    pub unsupported: Option<String>,
    /// What the machine could do just before, where this rank looked.
    pub machine: Option<Pulse>,
}

/// What a rank tells of one cell in one round.
pub trait Tells {
    /// What all of them tell.
    fn head(&self) -> &Head;
}

/// What the ranks of one world told.
#[derive(Debug)]
pub struct Told<M> {
    /// The ranks that tell of each cell, ascending.
    members: Vec<Vec<u32>>,
    rounds: usize,
    /// By cell, round and member.
    told: Vec<Vec<Vec<Option<M>>>>,
    /// Cells that were complete.
    given: Vec<bool>,
    /// Looks at the machine so far.
    pub machine_states: Vec<MachineState>,
}

/// The complete rounds of a cell, each with what its members told.
pub type Rounds<'a, M> = Vec<Vec<&'a M>>;

impl<M: Tells> Told<M> {
    /// For cells of which these ranks tell.
    #[must_use]
    pub fn new(mut members: Vec<Vec<u32>>, rounds: u32) -> Self {
        members.iter_mut().for_each(|ranks| ranks.sort_unstable());
        let of_round = |ranks: &Vec<u32>| ranks.iter().map(|_| None).collect();
        let of_cell = |ranks| (0..rounds).map(|_| of_round(ranks)).collect();
        Self {
            told: members.iter().map(of_cell).collect(),
            given: vec![false; members.len()],
            rounds: rounds as usize,
            members,
            machine_states: Vec::new(),
        }
    }

    /// Takes in what a rank tells; gives back the number of the cell that is complete with it. What nobody of ours
    /// sends is left out.
    pub fn take(&mut self, rank: u32, told: M) -> Option<usize> {
        let head = told.head();
        let (cell, round, number) = (head.cell as usize, head.round, head.round as usize);
        let state = head.machine.map(|pulse| MachineState { round, pulse });
        self.machine_states.extend(state);
        let place = self.members.get(cell)?.binary_search(&rank).ok()?;
        let ranks = self.told.get_mut(cell)?.get_mut(number)?;
        ranks[place] = Some(told);
        let is_complete = number + 1 == self.rounds && ranks.iter().all(Option::is_some);
        self.given[cell] |= is_complete;
        is_complete.then_some(cell)
    }

    /// The complete rounds of a cell; none where it has none.
    #[must_use]
    pub fn rounds(&self, cell: usize) -> Option<Rounds<'_, M>> {
        let complete = self.told.get(cell)?.iter().filter_map(|ranks| {
            let told: Option<Vec<&M>> = ranks.iter().map(Option::as_ref).collect();
            told
        });
        let rounds: Rounds<'_, M> = complete.collect();
        (!rounds.is_empty()).then_some(rounds)
    }

    /// Cells that were not complete, for a run that ended early.
    pub fn rest(&self) -> impl Iterator<Item = usize> {
        (0..self.given.len()).filter(|cell| !self.given[*cell])
    }

    /// All that a rank told of a cell.
    pub fn of_rank(&self, cell: usize, rank: u32) -> impl Iterator<Item = &M> {
        let place = self.members[cell].binary_search(&rank).ok();
        let rounds = self.told[cell].iter();
        rounds.filter_map(move |ranks| ranks.get(place?)?.as_ref())
    }
}

/// Wrong elements of all rounds.
#[must_use]
pub fn wrong<M: Tells>(rounds: &Rounds<'_, M>) -> u64 {
    rounds.iter().flatten().map(|told| told.head().wrong).sum()
}

/// What was wrong first.
#[must_use]
pub fn wrong_text<M: Tells>(rounds: &Rounds<'_, M>) -> Option<String> {
    let mut all = rounds.iter().flatten();
    all.find_map(|told| told.head().wrong_text.clone())
}

/// Why a cell was not measured.
#[must_use]
pub fn unsupported<M: Tells>(rounds: &Rounds<'_, M>) -> Option<String> {
    let all = rounds.iter().flatten();
    let reasons = all.filter_map(|told| told.head().unsupported.clone());
    reasons.max_by_key(String::len)
}

/// The greatest of the ranks' times of each sample, for samples that all ranks have. `samples` are those of a
/// rank, in nanoseconds; the result is in microseconds.
pub fn slowest<M>(ranks: &[&M], samples: impl Fn(&M) -> Vec<f64>) -> Vec<f64> {
    let all: Vec<Vec<f64>> = ranks.iter().map(|told| samples(told)).collect();
    let count = all.iter().map(Vec::len).min().unwrap_or(0);
    let longest = |sample| {
        all.iter()
            .map(|of_rank| of_rank[sample])
            .fold(0.0, f64::max)
    };
    (0..count).map(|sample| longest(sample) / 1e3).collect()
}

/// How far apart the ranks began each sample. `starts` are those of a rank, in nanoseconds.
pub fn start_skew<M>(rounds: &Rounds<'_, M>, starts: impl Fn(&M) -> Vec<u64>) -> Option<Skew> {
    let mut skews: Vec<f64> = Vec::new();
    for ranks in rounds {
        let all: Vec<Vec<u64>> = ranks.iter().map(|told| starts(told)).collect();
        let count = all.iter().map(Vec::len).min().unwrap_or(0);
        for sample in 0..count {
            let begun = || all.iter().map(|of_rank| of_rank[sample]);
            skews.push((begun().max()? - begun().min()?) as f64 / 1e3);
        }
    }
    stats::sort(&mut skews);
    (!skews.is_empty()).then(|| Skew {
        median: stats::median(&skews),
        p99: stats::quantile(&skews, 0.99),
        max: stats::quantile(&skews, 1.0),
    })
}

/// The samples of all rounds that a record keeps.
#[must_use]
pub fn kept(rounds: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let keep = (SAMPLES_KEPT_MAX / rounds.len().max(1)).max(1);
    let thinned = rounds.iter().map(|samples| stats::thinned(samples, keep));
    thinned.collect()
}
