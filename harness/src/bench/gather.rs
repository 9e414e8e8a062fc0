//! The launcher's side: what all ranks told, merged into records.
//!
//! A sample of a record is that of the slowest rank: the greatest of the times that the ranks took
//! for the same sample, divided by the calls in it.

use muster_comm::layout::FrameworkLayout;
use muster_comm::types::Collective;

use crate::bench::measured::Measured;
use crate::bench::model::Record;
use crate::bench::sweep::{Cell, Memory, Sweep, What};
use crate::bench::told::{
    Head, Tells, Told, kept, slowest, start_skew, unsupported, wrong, wrong_text,
};
use crate::check::cases::{KindGroups, WORLD_KIND};
use crate::report::machine::MachineState;
use crate::report::measured::Latency;
use crate::stats;

/// Merges what ranks of one world tell.
#[derive(Debug)]
pub struct Gather {
    plan: Sweep,
    kinds: Vec<KindGroups>,
    cells: Vec<Cell>,
    world_size: u32,
    told: Told<Measured>,
    /// Times of the bring-ups that count, in microseconds.
    bring_ups_us: Vec<f64>,
    /// Whether the clocks of all ranks may be compared.
    one_host: bool,
    /// The name of each rank's host, as far as they have told.
    hosts: Vec<String>,
}

impl Tells for Measured {
    fn head(&self) -> &Head {
        &self.head
    }
}

impl Gather {
    /// For the cells of a plan. `one_host` says that all ranks share a host, and with it a clock.
    #[must_use]
    pub fn new(plan: &Sweep, layout: &FrameworkLayout, one_host: bool) -> Self {
        let (cells, kinds) = (plan.cells(layout), plan.kinds(layout));
        let members = |cell: &Cell| kinds[cell.kind].groups.concat();
        Self {
            told: Told::new(cells.iter().map(members).collect(), plan.rounds),
            kinds,
            cells,
            world_size: layout.dims().world,
            plan: plan.clone(),
            bring_ups_us: Vec::new(),
            one_host,
            hosts: vec![String::new(); layout.dims().world as usize],
        }
    }

    /// Takes in what a rank tells; gives back the record of a cell that is complete with it.
    pub fn take(&mut self, rank: u32, mut measured: Measured) -> Option<Record> {
        if let (Some(name), Some(place)) = (measured.host.take(), self.hosts.get_mut(rank as usize))
        {
            *place = name;
        }
        let number = self.told.take(rank, measured)?;
        self.record(number)
    }

    /// Takes in how long the `world`th world was brought up; gives back the record that is complete with it.
    pub fn brought_up(&mut self, world: usize, took_us: Option<u64>) -> Option<Record> {
        let (bring_ups, warm_ups) = (self.plan.bring_ups(), self.plan.warm_ups.min(2));
        let counts = (warm_ups as usize..bring_ups as usize).contains(&world);
        let took = took_us.filter(|_| counts);
        self.bring_ups_us.extend(took.map(|us| us as f64));
        (world + 1 == bring_ups as usize).then(|| self.bring_up())?
    }

    /// Looks at the machine so far.
    #[must_use]
    pub fn machine_states(&self) -> &[MachineState] {
        &self.told.machine_states
    }

    /// The name of each rank's host; none where all are on one, or some are not known.
    #[must_use]
    pub fn hosts(&self) -> &[String] {
        let is_known = self.hosts.iter().all(|name| !name.is_empty());
        let differ = self.hosts.windows(2).any(|two| two[0] != two[1]);
        if is_known && differ { &self.hosts } else { &[] }
    }

    /// The records of all cells that have a complete round.
    #[must_use]
    pub fn so_far(&self) -> Vec<Record> {
        let cells = 0..self.cells.len();
        cells.filter_map(|number| self.record(number)).collect()
    }

    /// The records that were not complete and have at least one complete round, for a run that ended early.
    #[must_use]
    pub fn rest(&mut self) -> Vec<Record> {
        let bring_up = self.bring_up();
        let rest = self.told.rest().filter_map(|number| self.record(number));
        bring_up.into_iter().chain(rest).collect()
    }

    /// The record of the bring-ups, once.
    fn bring_up(&mut self) -> Option<Record> {
        let times = std::mem::take(&mut self.bring_ups_us);
        let mut ascending = times.clone();
        stats::sort(&mut ascending);
        (!times.is_empty()).then(|| Record {
            collective: What::BringUp.name().to_owned(),
            algo: "auto".to_owned(),
            ranks: self.world_size,
            memory: Memory::Private.name().to_owned(),
            group: WORLD_KIND.to_owned(),
            groups: 1,
            world_size: self.world_size,
            latency_us: Latency::of(&ascending),
            calls_per_sample: 1,
            samples: times.len() as u64,
            // Each came from a world of its own.
            samples_us: stats::thinned(&times, 1000)
                .into_iter()
                .map(|time| vec![time])
                .collect(),
            ..Record::default()
        })
    }

    fn record(&self, number: usize) -> Option<Record> {
        let cell = self.cells.get(number)?;
        let rounds = self.told.rounds(number)?;
        let last = rounds.last()?.first()?;
        let samples = |rank: &Measured| -> Vec<f64> {
            let calls = f64::from(rank.calls.max(1));
            rank.samples_ns
                .iter()
                .map(|ns| *ns as f64 / calls)
                .collect()
        };
        let slowest: Vec<Vec<f64>> = rounds.iter().map(|ranks| slowest(ranks, samples)).collect();
        let mut all = slowest.concat();
        stats::sort(&mut all);
        let latency = Latency::of(&all);
        let bytes = cell.shape.bytes();
        let bandwidth = |bytes: f64| {
            let is_known = bytes > 0.0 && latency.median > 0.0;
            is_known.then(|| bytes / (latency.median * 1e-6) / 1e9)
        };
        let unsupported = unsupported(&rounds);
        let is_checked = self.plan.checks > 0 && matches!(cell.what, What::Collective(_));
        Some(Record {
            taken: last.taken.clone(),
            latency_us: latency,
            algbw_gbytes_per_s: bandwidth(bytes as f64),
            busbw_gbytes_per_s: bandwidth(cell.shape.bus_bytes()),
            wrong: (is_checked && unsupported.is_none()).then(|| wrong(&rounds)),
            wrong_text: wrong_text(&rounds),
            unsupported,
            cold_us: rounds
                .iter()
                .map(|ranks| micros(ranks.iter().map(|m| m.cold_ns).max().unwrap_or(0) as f64))
                .collect(),
            start_skew_us: self.one_host.then(|| start_skew(&rounds, starts)).flatten(),
            rank_median_us: self.by_rank(number),
            calls_per_sample: last.calls,
            samples: all.len() as u64,
            samples_us: kept(&slowest),
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
            op: text(collective.is_some_and(Collective::reduces), cell.op.name()),
            root: collective
                .is_some_and(Collective::is_rooted)
                .then(|| u32::try_from(shape.root).unwrap_or(u32::MAX)),
            in_place: cell.in_place,
            memory: cell.memory.name().to_owned(),
            split: text(
                collective.is_some_and(Collective::has_lengths),
                shape.split.name(),
            ),
            group: kind.kind.clone(),
            groups: u32::try_from(kind.groups.len()).unwrap_or(u32::MAX),
            world_size: self.world_size,
            ..Record::default()
        }
    }

    fn by_rank(&self, number: usize) -> Vec<Option<f64>> {
        let of = |rank: u32| {
            let told = self.told.of_rank(number, rank);
            let mut times: Vec<f64> = told
                .flat_map(|measured| {
                    let calls = f64::from(measured.calls.max(1));
                    let samples = measured.samples_ns.iter();
                    samples.map(move |ns| micros(*ns as f64 / calls))
                })
                .collect();
            stats::sort(&mut times);
            (!times.is_empty()).then(|| stats::median(&times))
        };
        (0..self.world_size).map(of).collect()
    }
}

/// When each sample of a rank began.
fn starts(measured: &Measured) -> Vec<u64> {
    let mut start = 0_u64;
    let starts = measured.starts_ns.iter().map(|since| {
        start = start.wrapping_add(*since);
        start
    });
    starts.collect()
}

/// Nanoseconds as microseconds.
fn micros(nanos: f64) -> f64 {
    nanos / 1e3
}
