//! The launcher's side: what all ranks told, merged into records.
//!
//! A sample of a record is that of the slowest rank: the greatest of the times that the ranks took
//! for the same sample, divided by the calls in it.

use muster_comm::layout::Layout;

use crate::bench::measured::Measured;
use crate::bench::model::Record;
use crate::bench::plan::{Cell, Plan, What, carries_objects};
use crate::check::cases::KindGroups;
use crate::report::machine::MachineState;
use crate::report::measured::{Latency, SAMPLES_KEPT_MAX, Skew};
use crate::stats;

/// What ranks told of one cell: a slot for each round and rank.
type Told = Vec<Vec<Option<Measured>>>;

/// Merges what ranks of one world tell.
#[derive(Debug)]
pub struct Gather {
    plan: Plan,
    kinds: Vec<KindGroups>,
    cells: Vec<Cell>,
    world_size: usize,
    told: Vec<Told>,
    machine_states: Vec<MachineState>,
    /// Whether the clocks of all ranks may be compared.
    one_host: bool,
}

impl Gather {
    /// For the cells of a plan. `one_host` says that all ranks share a host, and with it a clock.
    #[must_use]
    pub fn new(plan: &Plan, layout: &Layout, one_host: bool) -> Self {
        let cells = plan.cells(layout);
        Self {
            kinds: plan.kinds(layout),
            told: vec![Vec::new(); cells.len()],
            cells,
            world_size: layout.dims().world as usize,
            plan: plan.clone(),
            machine_states: Vec::new(),
            one_host,
        }
    }

    /// Takes in what a rank tells; gives back the record of a cell that is complete with it.
    pub fn take(&mut self, rank: u32, mut measured: Measured) -> Option<Record> {
        let number = measured.cell as usize;
        let (round, rounds) = (measured.round as usize, self.plan.rounds as usize);
        if let Some(pulse) = measured.machine.take() {
            self.machine_states.push(MachineState {
                round: measured.round,
                pulse,
            });
        }
        if round >= rounds || !self.members(number)?.contains(&rank) {
            // Nobody of ours sends this.
            return None;
        }
        let told = self.told.get_mut(number)?;
        told.resize_with(rounds, Vec::new);
        let slots = &mut told[round];
        slots.resize(self.world_size, None);
        slots[rank as usize] = Some(measured);
        let is_last = round + 1 == rounds;
        (is_last && self.is_complete(number, round)).then(|| self.record(number))?
    }

    /// Looks at the machine so far.
    #[must_use]
    pub fn machine_states(&self) -> &[MachineState] {
        &self.machine_states
    }

    /// Number of cells.
    #[must_use]
    pub fn cells(&self) -> usize {
        self.cells.len()
    }

    /// The records of all cells that have at least one complete round, for a run that ended early.
    #[must_use]
    pub fn so_far(&self) -> Vec<Record> {
        (0..self.cells.len())
            .filter_map(|number| self.record(number))
            .collect()
    }

    fn members(&self, number: usize) -> Option<Vec<u32>> {
        let kind = self.kinds.get(self.cells.get(number)?.kind)?;
        Some(kind.groups.iter().flatten().copied().collect())
    }

    fn is_complete(&self, number: usize, round: usize) -> bool {
        let Some(slots) = self.told.get(number).and_then(|told| told.get(round)) else {
            return false;
        };
        let has = |rank: &u32| slots.get(*rank as usize).is_some_and(Option::is_some);
        self.members(number)
            .is_some_and(|members| members.iter().all(has))
    }

    fn record(&self, number: usize) -> Option<Record> {
        let cell = self.cells.get(number)?;
        let rounds: Vec<Vec<&Measured>> = (0..self.plan.rounds as usize)
            .filter(|round| self.is_complete(number, *round))
            .map(|round| self.told[number][round].iter().flatten().collect())
            .collect();
        let last = rounds.last()?.first()?;
        let slowest: Vec<Vec<f64>> = rounds.iter().map(|ranks| slowest(ranks)).collect();
        let mut all: Vec<f64> = slowest.iter().flatten().copied().collect();
        stats::sort(&mut all);
        let latency = latency(&all);
        let bytes = cell.shape.bytes();
        let bandwidth = |bytes: f64| {
            let is_known = bytes > 0.0 && latency.median > 0.0;
            is_known.then(|| bytes / (latency.median * 1e-6) / 1e9)
        };
        let unsupported = rounds
            .iter()
            .flatten()
            .filter_map(|measured| measured.unsupported.clone())
            .max_by_key(String::len);
        let keep = SAMPLES_KEPT_MAX / rounds.len().max(1);
        let is_checked = self.plan.checks > 0 && matches!(cell.what, What::Collective(_));
        Some(Record {
            taken: last.taken.clone(),
            latency_us: latency,
            algbw_gbytes_per_s: bandwidth(bytes as f64),
            busbw_gbytes_per_s: bandwidth(cell.shape.bus_bytes()),
            wrong: (is_checked && unsupported.is_none())
                .then(|| rounds.iter().flatten().map(|measured| measured.wrong).sum()),
            wrong_text: rounds.iter().flatten().find_map(|m| m.wrong_text.clone()),
            unsupported,
            cold_us: rounds
                .iter()
                .map(|ranks| micros(ranks.iter().map(|m| m.cold_ns).max().unwrap_or(0) as f64))
                .collect(),
            start_skew_us: self.one_host.then(|| skew(&rounds)).flatten(),
            rank_median_us: self.by_rank(number),
            calls_per_sample: last.calls,
            samples: all.len() as u64,
            samples_us: slowest
                .iter()
                .map(|samples| stats::thinned(samples, keep.max(1)))
                .collect(),
            ..self.variables(cell)
        })
    }

    /// What a record is about, without any figure.
    fn variables(&self, cell: &Cell) -> Record {
        let kind = &self.kinds[cell.kind];
        let shape = &cell.shape;
        let collective = cell.collective();
        let has_numbers = cell.what.has_numbers();
        let text = |here: bool, name: &str| here.then(|| name.to_owned());
        Record {
            collective: cell.what.name().to_owned(),
            algo: cell.algo.unwrap_or("auto").to_owned(),
            taken: None,
            segment: (cell.segment > 0).then_some(cell.segment),
            ranks: u32::try_from(shape.n).unwrap_or(u32::MAX),
            bytes: shape.bytes(),
            count: shape.shown_count() as u64,
            dtype: text(has_numbers, cell.dtype.name()),
            op: text(
                collective.is_some_and(muster_comm::types::Collective::reduces),
                cell.op.name(),
            ),
            root: collective
                .is_some_and(muster_comm::types::Collective::is_rooted)
                .then(|| u32::try_from(shape.root).unwrap_or(u32::MAX)),
            in_place: cell.in_place,
            memory: cell.memory.name().to_owned(),
            split: text(
                collective
                    .is_some_and(|call| call.name().ends_with("_v") && !carries_objects(call)),
                shape.split.name(),
            ),
            group: kind.kind.clone(),
            groups: u32::try_from(kind.groups.len()).unwrap_or(u32::MAX),
            world_size: u32::try_from(self.world_size).unwrap_or(u32::MAX),
            ..Record::default()
        }
    }

    fn by_rank(&self, number: usize) -> Vec<Option<f64>> {
        let of = |rank: usize| {
            let mut times: Vec<f64> = self.told[number]
                .iter()
                .filter_map(|slots| slots.get(rank)?.as_ref())
                .flat_map(|measured| {
                    let calls = f64::from(measured.calls.max(1));
                    measured
                        .samples_ns
                        .iter()
                        .map(move |ns| micros(*ns as f64 / calls))
                })
                .collect();
            stats::sort(&mut times);
            (!times.is_empty()).then(|| stats::median(&times))
        };
        (0..self.world_size).map(of).collect()
    }
}

/// The time of a call on the slowest rank, for each sample of a round, in microseconds.
fn slowest(ranks: &[&Measured]) -> Vec<f64> {
    let samples = ranks.iter().map(|m| m.samples_ns.len()).min().unwrap_or(0);
    (0..samples)
        .map(|sample| {
            let time = |m: &&Measured| m.samples_ns[sample] as f64 / f64::from(m.calls.max(1));
            micros(ranks.iter().map(time).fold(0.0, f64::max))
        })
        .collect()
}

/// How far apart the ranks began each sample.
fn skew(rounds: &[Vec<&Measured>]) -> Option<Skew> {
    let mut skews: Vec<f64> = Vec::new();
    for ranks in rounds {
        let samples = ranks.iter().map(|m| m.starts_ns.len()).min().unwrap_or(0);
        let mut starts: Vec<u64> = vec![0; ranks.len()];
        for sample in 0..samples {
            for (start, rank) in starts.iter_mut().zip(ranks) {
                *start = start.wrapping_add(rank.starts_ns[sample]);
            }
            let (first, last) = (starts.iter().min()?, starts.iter().max()?);
            skews.push(micros((last - first) as f64));
        }
    }
    stats::sort(&mut skews);
    (!skews.is_empty()).then(|| Skew {
        median: stats::median(&skews),
        p99: stats::quantile(&skews, 0.99),
        max: stats::quantile(&skews, 1.0),
    })
}

/// Quantiles of ascending samples.
#[must_use]
pub fn latency(ascending: &[f64]) -> Latency {
    let sum: f64 = ascending.iter().sum();
    Latency {
        min: stats::quantile(ascending, 0.0),
        median: stats::median(ascending),
        p90: stats::quantile(ascending, 0.9),
        p99: stats::quantile(ascending, 0.99),
        p99_9: stats::quantile(ascending, 0.999),
        max: stats::quantile(ascending, 1.0),
        mean: sum / ascending.len().max(1) as f64,
    }
}

/// Nanoseconds as microseconds.
fn micros(nanos: f64) -> f64 {
    nanos / 1e3
}
