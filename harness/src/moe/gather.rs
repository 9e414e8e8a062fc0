//! The launcher's side: what all ranks told of a cell, merged into a record.
//!
//! The time of a step is that of the slowest rank. A wait is the time from when a rank came to a
//! phase to when the last member of its group did.

use muster_comm::layout::{FrameworkLayout, GroupKind};

use super::dispatch::{Dispatcher, Phase};
use super::measured::{Measured, Step};
use super::report::{Imbalance, Loads, PhaseTime, RankRow, Record, Timing, Volume};
use super::skew::Skew;
use super::sweep::{Cell, Source, Sweep};
use crate::bench::told::{
    Head, Tells, Told, kept, slowest, start_skew, unsupported, wrong, wrong_text,
};
use crate::report::machine::MachineState;
use crate::report::measured::Latency;
use crate::stats;

/// Most ranks of a world of which it is told who waits for whom.
const WAITS_RANKS_MAX: usize = 64;

/// Merges what the ranks of one world tell.
#[derive(Debug)]
pub struct Gather {
    plan: Sweep,
    layout: FrameworkLayout,
    seed: u64,
    /// Whether the clocks of all ranks may be compared.
    one_host: bool,
    told: Told<Measured>,
}

impl Tells for Measured {
    fn head(&self) -> &Head {
        &self.head
    }
}

impl Gather {
    /// For the cells of a plan.
    #[must_use]
    pub fn new(plan: &Sweep, layout: &FrameworkLayout, seed: u64, one_host: bool) -> Self {
        let all: Vec<u32> = (0..layout.dims().world).collect();
        Self {
            told: Told::new(vec![all; plan.cells().len()], plan.rounds),
            plan: plan.clone(),
            layout: layout.clone(),
            seed,
            one_host,
        }
    }

    /// Takes in what a rank tells; gives back the record of a cell that is complete with it.
    pub fn take(&mut self, rank: u32, measured: Measured) -> Option<Record> {
        let number = self.told.take(rank, measured)?;
        self.record(number)
    }

    /// Looks at the machine so far.
    #[must_use]
    pub fn machine_states(&self) -> &[MachineState] {
        &self.told.machine_states
    }

    /// The records of all cells that have a complete round.
    #[must_use]
    pub fn so_far(&self) -> Vec<Record> {
        let cells = 0..self.plan.cells().len();
        cells.filter_map(|number| self.record(number)).collect()
    }

    /// The records that were not complete and have at least one complete round, for a run that ended early.
    #[must_use]
    pub fn rest(&self) -> Vec<Record> {
        let rest = self.told.rest();
        rest.filter_map(|number| self.record(number)).collect()
    }

    /// The record of a cell, from its complete rounds.
    fn record(&self, number: usize) -> Option<Record> {
        let cells = self.plan.cells();
        let cell = cells.get(number)?;
        let rounds = self.told.rounds(number)?;
        let first = rounds.first()?;
        let volume = self.volume(cell, first);
        let back = volume_back(&volume, self.plan.hidden, cell);
        let both = Volume {
            busiest_bytes: volume.busiest_bytes + back.busiest_bytes,
            received_bytes_mean: volume.received_bytes_mean + back.received_bytes_mean,
            ..volume
        };
        let timing = |wanted: &dyn Fn(Phase) -> bool, volume: &Volume| {
            self.timing(&rounds, wanted, volume, cell)
        };
        let cold = |ranks: &Vec<&Measured>| {
            let slowest = ranks
                .iter()
                .map(|told| told.cold.time_ns(Phase::is_layer))
                .max();
            micros(slowest.unwrap_or(0))
        };
        Some(Record {
            tokens: cell.tokens as u64,
            routing: cell.source.name(),
            dispatcher: cell.dispatcher.to_string(),
            dtype: cell.payload.name().to_owned(),
            imbalance: self.imbalance(cell, first),
            volume,
            dispatch: timing(&Phase::is_dispatch, &volume),
            combine: timing(&Phase::is_combine, &back),
            round_trip: timing(&Phase::is_layer, &both),
            cold_us: rounds.iter().map(cold).collect(),
            start_skew_us: self.one_host.then(|| start_skew(&rounds, starts)).flatten(),
            phases_us: phases(&rounds),
            ranks: self.ranks(&rounds),
            wrong: wrong(&rounds),
            wrong_text: wrong_text(&rounds),
            unsupported: unsupported(&rounds),
        })
    }

    fn imbalance(&self, cell: &Cell<'_>, ranks: &[&Measured]) -> Imbalance {
        let shape = self.plan.shape(&self.layout);
        let mut by_expert = vec![0_u64; shape.experts];
        for told in ranks {
            for (sum, count) in by_expert.iter_mut().zip(&told.by_expert) {
                *sum += count;
            }
        }
        let by_rank: Vec<u64> = by_expert
            .chunks(shape.local())
            .map(|experts| experts.iter().sum())
            .collect();
        let tokens: Vec<u64> = ranks.iter().map(|told| told.tokens).collect();
        let selections: u64 = by_expert.iter().sum();
        let dropped: u64 = ranks.iter().map(|told| told.dropped).sum();
        Imbalance {
            asked: match cell.source {
                Source::File(_) => None,
                Source::Made(workload) => {
                    let (experts, ranks) = workload.asked(shape, self.seed, 0);
                    Some(Loads { experts, ranks })
                }
            },
            achieved: Loads {
                experts: Skew::of_counts(&by_expert),
                ranks: Skew::of_counts(&by_rank),
            },
            sources: Skew::of_counts(&tokens),
            dropped: dropped as f64 / selections.max(1) as f64,
        }
    }

    fn volume(&self, cell: &Cell<'_>, ranks: &[&Measured]) -> Volume {
        let row = cell.payload.dispatch_bytes(self.plan.hidden) as u64;
        let rows: u64 = ranks.iter().map(|told| told.rows.0).sum();
        let own: u64 = ranks.iter().map(|told| told.rows.2).sum();
        let received: u64 = ranks.iter().map(|told| told.rows.1).sum();
        let busiest = ranks.iter().map(|told| told.rows.0.max(told.rows.1)).max();
        let hidden = self.plan.hidden;
        let others = match cell.dispatcher {
            Dispatcher::AllGather => 0,
            Dispatcher::AllToAll | Dispatcher::Capacity(_) | Dispatcher::Deduplicated => {
                u64::from(self.layout.dims().etp) - 1
            }
        };
        let between_parts = received * others;
        Volume {
            rows,
            row_bytes: row,
            logical_bytes: rows * row,
            off_rank_bytes: rows.saturating_sub(own) * row,
            busiest_bytes: busiest.unwrap_or(0) * row,
            received_bytes_mean: (received * row) as f64 / ranks.len().max(1) as f64,
            padding_bytes: self.slots(cell).saturating_sub(rows) * row,
            beside_bytes: rows * self.beside(cell),
            etp_gather_bytes: between_parts * (cell.payload.combine_bytes(hidden) as u64 + 4),
            etp_reduce_bytes: between_parts * 4 * hidden as u64,
        }
    }

    /// Rows that all ranks send where each expert has a fixed number from each source.
    fn slots(&self, cell: &Cell<'_>) -> u64 {
        let shape = self.plan.shape(&self.layout);
        let capacity = cell.dispatcher.capacity(shape, cell.tokens).unwrap_or(0);
        u64::from(self.layout.dims().world) * (shape.experts * capacity) as u64
    }

    /// Bytes that go beside a row: its weights, in f32, and what says whose they are.
    fn beside(&self, cell: &Cell<'_>) -> u64 {
        let bytes = match cell.dispatcher {
            Dispatcher::AllToAll | Dispatcher::Capacity(_) => 4,
            Dispatcher::Deduplicated => (4 + 4) * self.plan.top_k,
            Dispatcher::AllGather => (1 + 4) * self.plan.experts,
        };
        bytes as u64
    }

    fn timing(
        &self,
        rounds: &[Vec<&Measured>],
        wanted: &dyn Fn(Phase) -> bool,
        volume: &Volume,
        cell: &Cell<'_>,
    ) -> Timing {
        let by_round: Vec<Vec<f64>> = rounds
            .iter()
            .map(|ranks| slowest(ranks, |told| steps(told, wanted)))
            .collect();
        let mut all: Vec<f64> = by_round.concat();
        stats::sort(&mut all);
        let latency_us = Latency::of(&all);
        let rate = |bytes: f64| {
            let is_known = bytes > 0.0 && latency_us.median > 0.0;
            is_known.then(|| bytes / latency_us.median / 1e3)
        };
        let ranks = f64::from(self.sharers(cell));
        Timing {
            latency_us,
            algbw_gbytes_per_s: rate(volume.busiest_bytes as f64),
            busbw_gbytes_per_s: rate(volume.busiest_bytes as f64 * (ranks - 1.0) / ranks),
            deepep_gbytes_per_s: match cell.dispatcher {
                Dispatcher::Deduplicated => rate(volume.received_bytes_mean),
                Dispatcher::AllGather | Dispatcher::AllToAll | Dispatcher::Capacity(_) => None,
            },
            samples_us: kept(&by_round),
        }
    }

    /// Ranks among which rows go, one of which is the own one.
    fn sharers(&self, cell: &Cell<'_>) -> u32 {
        let dims = self.layout.dims();
        match cell.dispatcher {
            Dispatcher::AllGather => dims.ep * dims.etp,
            Dispatcher::AllToAll | Dispatcher::Capacity(_) | Dispatcher::Deduplicated => dims.ep,
        }
    }

    fn ranks(&self, rounds: &[Vec<&Measured>]) -> Vec<RankRow> {
        let world = self.layout.dims().world;
        (0..world).map(|rank| self.rank(rank, rounds)).collect()
    }

    fn rank(&self, rank: u32, rounds: &[Vec<&Measured>]) -> RankRow {
        let place = rank as usize;
        let times = |wanted: &dyn Fn(Phase) -> bool| {
            let steps = rounds.iter().filter_map(|ranks| ranks.get(place));
            let steps = steps.flat_map(|told| &told.steps);
            median(steps.map(|step| micros(step.time_ns(wanted))).collect())
        };
        let told = rounds.first().and_then(|ranks| ranks.get(place));
        let rows = told.map_or((0, 0, 0), |told| told.rows);
        let collective = Phase::ALL.into_iter().filter(|phase| phase.is_collective());
        let waits: Vec<(Phase, Vec<Wait>)> = collective
            .filter(|_| self.one_host)
            .map(|phase| (phase, self.waits(rank, phase, rounds)))
            .filter(|(_, waits)| !waits.is_empty())
            .collect();
        let wait_us = |(phase, waits): &(Phase, Vec<Wait>)| PhaseTime {
            phase: *phase,
            median: median(waits.iter().map(|wait| wait.us).collect()),
        };
        RankRow {
            rank,
            tokens: told.map_or(0, |told| told.tokens),
            rows_sent: rows.0,
            rows_received: rows.1,
            dispatch_us: times(&Phase::is_dispatch),
            combine_us: times(&Phase::is_combine),
            wait_us: waits.iter().map(wait_us).collect(),
            waits_for_us: self.waits_for(&waits, rounds),
        }
    }

    /// How long a rank waits for each other one in a step, all phases together.
    fn waits_for(&self, waits: &[(Phase, Vec<Wait>)], rounds: &[Vec<&Measured>]) -> Vec<f64> {
        let world = self.layout.dims().world as usize;
        if waits.is_empty() || world > WAITS_RANKS_MAX {
            return Vec::new();
        }
        let steps: usize = rounds.iter().map(|ranks| steps_of(ranks)).sum();
        let mut sums = vec![0.0; world];
        for wait in waits.iter().flat_map(|(_, waits)| waits) {
            sums[wait.last] += wait.us / steps.max(1) as f64;
        }
        sums
    }

    /// For each step the time that a rank waited in a phase for the last of its group.
    fn waits(&self, rank: u32, phase: Phase, rounds: &[Vec<&Measured>]) -> Vec<Wait> {
        let kind = match phase {
            Phase::EtpGather | Phase::EtpReduce => GroupKind::Etp,
            Phase::Back
            | Phase::Counts
            | Phase::Experts
            | Phase::Permute
            | Phase::Probs
            | Phase::Staging
            | Phase::Tokens
            | Phase::Unpermute => GroupKind::EtpEp,
        };
        let group = self
            .layout
            .expert_group_of(kind, muster_comm::types::Rank(rank));
        let members: Vec<usize> = group.iter().map(|rank| rank.index()).collect();
        let mut waits = Vec::new();
        for ranks in rounds {
            for number in 0..steps_of(ranks) {
                let came = |rank: usize| began(ranks.get(rank)?.steps.get(number)?, phase);
                let all = members.iter().filter_map(|one| Some((came(*one)?, *one)));
                if let (Some((came_last, last)), Some(mine)) = (all.max(), came(rank as usize)) {
                    waits.push(Wait {
                        us: micros(came_last.saturating_sub(mine)),
                        last,
                    });
                }
            }
        }
        waits
    }
}

/// A wait of a rank in a phase of a step.
struct Wait {
    us: f64,
    /// The rank that came last.
    last: usize,
}

/// Steps that all of these ranks told of.
fn steps_of(ranks: &[&Measured]) -> usize {
    ranks.iter().map(|told| told.steps.len()).min().unwrap_or(0)
}

/// When a step first came to a phase, on the clock of the host.
fn began(step: &Step, phase: Phase) -> Option<u64> {
    let spell = step
        .spells
        .iter()
        .find(|spell| Phase::ALL.get(usize::from(spell.phase)) == Some(&phase))?;
    Some(step.begun_ns + spell.start_ns)
}

/// The way back has the rows of the way there, in the payload's type for it.
fn volume_back(there: &Volume, hidden: usize, cell: &Cell<'_>) -> Volume {
    let row = cell.payload.combine_bytes(hidden) as u64;
    let factor = row as f64 / there.row_bytes.max(1) as f64;
    Volume {
        row_bytes: row,
        logical_bytes: there.rows * row,
        off_rank_bytes: there.off_rank_bytes / there.row_bytes.max(1) * row,
        busiest_bytes: there.busiest_bytes / there.row_bytes.max(1) * row,
        padding_bytes: there.padding_bytes / there.row_bytes.max(1) * row,
        received_bytes_mean: there.received_bytes_mean * factor,
        ..*there
    }
}

/// A rank's time of each step, in nanoseconds.
fn steps(told: &Measured, wanted: impl Fn(Phase) -> bool) -> Vec<f64> {
    let steps = told.steps.iter();
    steps.map(|step| step.time_ns(&wanted) as f64).collect()
}

/// When each step of a rank began.
fn starts(told: &Measured) -> Vec<u64> {
    told.steps.iter().map(|step| step.begun_ns).collect()
}

fn phases(rounds: &[Vec<&Measured>]) -> Vec<PhaseTime> {
    Phase::ALL
        .into_iter()
        .filter_map(|phase| {
            let times: Vec<f64> = rounds
                .iter()
                .flat_map(|ranks| slowest(ranks, |told| steps(told, |other| other == phase)))
                .collect();
            let happened = times.iter().any(|time| *time > 0.0);
            happened.then(|| PhaseTime {
                phase,
                median: median(times),
            })
        })
        .collect()
}

fn median(mut times: Vec<f64>) -> f64 {
    stats::sort(&mut times);
    stats::median(&times)
}

fn micros(ns: u64) -> f64 {
    ns as f64 / 1e3
}
