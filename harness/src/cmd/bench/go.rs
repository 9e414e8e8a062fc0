//! A benchmark under way: worlds one after the other, lines as they come, the report at the end.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;

use muster_comm::config::Environment;
use muster_comm::launch::Identity;
use muster_comm::layout::Layout;
use muster_comm::sync::Clock;

use super::{BenchArgs, Format, choose};
use crate::backend::Choice;
use crate::bench::gather::{self, Gather};
use crate::bench::measured::Measured;
use crate::bench::model::{BenchReport, Record, Settings};
use crate::bench::plan::{Plan, What};
use crate::bench::table;
use crate::check::job::Job;
use crate::cmd::saving::Saving;
use crate::exit::Exit;
use crate::fail::Failure;
use crate::out;
use crate::progress::Progress;
use crate::report::csv;
use crate::report::document::Document;
use crate::report::origin::Origin;
use crate::run::{self, Finished, joined, local};
use crate::stats;
use crate::world::signals::Interrupts;

/// Times that a world is brought up, where no number is given.
const BRING_UPS_DEFAULT: u32 = 20;

/// A run under way.
pub(super) struct Run<'a> {
    args: &'a BenchArgs,
    report: BenchReport,
    started: Instant,
    /// The heading of the last line that was printed.
    heading: Option<String>,
    progress: Progress,
    /// What of the whole run is done, counted as measurements of one rank.
    done: usize,
    whole: usize,
}

impl<'a> Run<'a> {
    /// A run that has not begun.
    pub(super) fn new(args: &'a BenchArgs, choice: &Choice, seed: u64, origin: Origin) -> Self {
        let report = BenchReport {
            backend: choice.name().to_owned(),
            emulated: choice.emulated.is_some(),
            seed,
            origin: Some(origin),
            transport: args.transport.name().to_owned(),
            rounds: args.rounds,
            ..BenchReport::new(Settings {
                rules: String::new(),
                warm_ups: args.warmup,
            })
        };
        Self {
            args,
            report,
            started: Clock::now(),
            heading: None,
            progress: Progress::new(),
            done: 0,
            whole: 0,
        }
    }
}

impl Run<'_> {
    /// Says that ranks keep to their share of the processors.
    pub(super) fn set_pinned(&mut self, pinned: bool) {
        self.report.pinned = pinned;
    }

    /// Says which rules select algorithms.
    pub(super) fn set_rules(&mut self, source: String) {
        self.report.settings.rules = source;
    }

    /// Starts the ranks of one world after the other.
    pub(super) fn locally(&mut self, jobs: &[(Job, Layout)]) -> Result<Exit, Failure> {
        for (job, layout) in jobs {
            local::make_sure_that_it_fits(job, layout)?;
            self.report.cells_planned += self.planned(job, layout);
            self.whole += self.work(job, layout);
        }
        let interrupts = Arc::new(Interrupts::install()?);
        for (job, layout) in jobs {
            if self.report.verdict.is_some() {
                break;
            }
            if self.wants_bring_up() {
                self.bring_up(job, layout, &interrupts)?;
            }
            let Some(plan) = job
                .bench
                .as_ref()
                .filter(|plan| !plan.cells(layout).is_empty())
            else {
                continue;
            };
            if self.report.verdict.is_some() {
                break;
            }
            self.rounds(job, plan, layout, &interrupts)?;
        }
        self.publish()
    }

    /// Measures one number of ranks: a world of its own for each round, so that what differs between
    /// two starts of one program is among the differences between rounds.
    fn rounds(
        &mut self,
        job: &Job,
        plan: &Plan,
        layout: &Layout,
        interrupts: &Arc<Interrupts>,
    ) -> Result<(), Failure> {
        let mut gather = Gather::new(plan, layout, true);
        let mut failed = None;
        self.begin(job);
        for round in 0..plan.rounds {
            let mut job = job.clone();
            job.bench = Some(Plan {
                round: Some(round),
                ..plan.clone()
            });
            let outcome = local::run(&job, layout, interrupts, &mut |so_far| {
                self.went_on(so_far.measured.len());
                let shown = self.take(&mut gather, so_far.measured);
                failed = failed.take().or_else(|| shown.err());
            });
            let finished =
                outcome.unwrap_or_else(|failure| Finished::not_started(&job, layout, failure));
            if let Some(failure) = failed {
                return Err(failure);
            }
            self.end_world(finished);
            if self.report.verdict.is_some() {
                break;
            }
        }
        self.close(&gather)
    }

    /// Measures in the world in which this process is a rank.
    pub(super) fn joined(
        &mut self,
        jobs: &[(Job, Layout)],
        environment: &Environment,
        identity: &Identity,
    ) -> Result<Exit, Failure> {
        if self.wants_bring_up() {
            return Err(Failure::usage(
                "bring_up starts worlds again and again, which a rank of another launcher cannot",
            ));
        }
        let Some((job, layout)) = jobs.first() else {
            return Err(Failure::internal("no world to measure"));
        };
        let Some(plan) = &job.bench else {
            return Err(Failure::internal("no plan to measure"));
        };
        self.report.cells_planned = self.planned(job, layout);
        let mut gather = Gather::new(plan, layout, identity.is_on_one_host());
        self.whole = self.work(job, layout);
        self.begin(job);
        let waiting = std::cell::RefCell::new((&mut *self, &mut gather, None));
        joined::run(
            jobs,
            environment,
            identity,
            &mut |_, so_far| {
                let mut waiting = waiting.borrow_mut();
                let (bench, gather, failed) = &mut *waiting;
                bench.went_on(so_far.measured.len());
                let shown = bench.take(gather, so_far.measured);
                *failed = failed.take().or_else(|| shown.err());
            },
            &mut |all| {
                let mut waiting = waiting.borrow_mut();
                let (bench, gather, failed) = &mut *waiting;
                if let Some(failure) = failed.take() {
                    return Err(failure);
                }
                for finished in all {
                    bench.end_world(finished);
                }
                bench.close(gather)?;
                bench.publish()
            },
        )
    }

    fn begin(&self, job: &Job) {
        let (name, ranks) = (&job.matrix.name, job.matrix.world_size);
        self.progress.begin(format!("{name}, {ranks} ranks"));
    }

    fn went_on(&mut self, by: usize) {
        self.done += by;
        self.progress.set(self.done, self.whole);
    }

    /// How much there is to do in a world, counted as measurements of one rank.
    fn work(&self, job: &Job, layout: &Layout) -> usize {
        let lines = job
            .bench
            .as_ref()
            .map_or(0, |plan| plan.cells(layout).len() * plan.rounds as usize);
        let bring_ups = if self.wants_bring_up() {
            self.bring_ups() as usize
        } else {
            0
        };
        (lines + bring_ups) * layout.dims().world as usize
    }

    /// How often a world is brought up, warm-ups included.
    fn bring_ups(&self) -> u32 {
        self.args.iters.unwrap_or(BRING_UPS_DEFAULT) + self.args.warmup.min(2)
    }

    fn wants_bring_up(&self) -> bool {
        self.args.whats().contains(&What::BringUp)
    }

    fn planned(&self, job: &Job, layout: &Layout) -> u64 {
        let cells = job
            .bench
            .as_ref()
            .map_or(0, |plan| plan.cells(layout).len());
        cells as u64 + u64::from(self.wants_bring_up())
    }

    /// Takes in what ranks measured, and shows the lines that are complete with it.
    fn take(&mut self, gather: &mut Gather, measured: Vec<(u32, Measured)>) -> Result<(), Failure> {
        for (rank, measured) in measured {
            if let Some(record) = gather.take(rank, measured) {
                self.show(&record)?;
                self.report.records.push(record);
            }
        }
        Ok(())
    }

    fn show(&mut self, record: &Record) -> Result<(), Failure> {
        if self.args.format != Format::Table {
            return Ok(());
        }
        let heading = table::heading(record);
        let mut text = String::new();
        if self.heading.as_ref() != Some(&heading) {
            let gap = if self.heading.is_some() { "\n" } else { "" };
            if self.heading.is_none() && self.report.emulated {
                text.push_str(table::EMULATED);
            }
            let _ = write!(text, "{gap}{heading}\n{}\n", table::columns());
            self.heading = Some(heading);
        }
        text.push_str(&table::line(record));
        text.push('\n');
        self.progress.suspended(|| out::result(&text))
    }

    /// A world has ended.
    fn end_world(&mut self, finished: Finished) {
        if !finished.output.is_empty() {
            self.progress
                .suspended(|| finished.output.iter().for_each(|line| out::note(line)));
        }
        self.report.verdict = self.report.verdict.take().or(finished.verdict);
    }

    /// All rounds of a number of ranks are over, or there will be no more of them.
    fn close(&mut self, gather: &Gather) -> Result<(), Failure> {
        self.report.machine_states.extend(gather.machine_states());
        // What has some of its rounds is worth showing when there will be no more.
        for record in gather.so_far() {
            let is_known = |known: &Record| {
                known.samples_us.len() >= record.samples_us.len() && same_line(known, &record)
            };
            if !self.report.records.iter().any(is_known) {
                self.show(&record)?;
                self.report.records.push(record);
            }
        }
        Ok(())
    }

    /// Starts and ends a world again and again.
    fn bring_up(
        &mut self,
        job: &Job,
        layout: &Layout,
        interrupts: &Arc<Interrupts>,
    ) -> Result<(), Failure> {
        let mut job = job.clone();
        let Some(plan) = &mut job.bench else {
            return Ok(());
        };
        plan.what.clear();
        let mut micros = Vec::new();
        self.begin(&job);
        for time in 0..self.bring_ups() {
            let finished = local::run(&job, layout, interrupts, &mut |_| {})?;
            self.went_on(job.matrix.world_size as usize);
            let took = finished.summary.bring_up_us;
            self.report.verdict = self.report.verdict.take().or(finished.verdict);
            if self.report.verdict.is_some() {
                break;
            }
            if let (Some(took), true) = (took, time >= self.args.warmup.min(2)) {
                micros.push(took as f64);
            }
        }
        if micros.is_empty() {
            return Ok(());
        }
        let mut ascending = micros.clone();
        stats::sort(&mut ascending);
        let record = Record {
            collective: What::BringUp.name().to_owned(),
            ranks: job.matrix.world_size,
            latency_us: gather::latency(&ascending),
            cold_us: Vec::new(),
            start_skew_us: None,
            calls_per_sample: 1,
            samples: micros.len() as u64,
            // Each came from a world of its own.
            samples_us: stats::thinned(&micros, 1000)
                .into_iter()
                .map(|time| vec![time])
                .collect(),
            ..choose::bare_record(&job)
        };
        self.show(&record)?;
        self.report.records.push(record);
        Ok(())
    }

    /// Prints the result. Its class is that of the run, unless it could not be written.
    fn publish(&mut self) -> Result<Exit, Failure> {
        self.progress.clear();
        self.report.elapsed_us = run::micros(Clock::now().duration_since(self.started));
        self.report.close();
        // The files first: a closed terminal must not cost what was measured. And the table in any
        // case: nor must a full disk.
        let written = self.args.saving.write(&self.report);
        out::result(&match self.args.format {
            Format::Csv => csv::render(&self.report),
            Format::Json => self.report.json()?,
            Format::Table => format!("\n{}", table::closing(&self.report)),
        })?;
        Saving::ended(self.report.exit(), written)
    }
}

/// Whether two records are about the same line.
fn same_line(one: &Record, other: &Record) -> bool {
    let key = |record: &Record| {
        (
            record.collective.clone(),
            (record.algo.clone(), record.segment),
            (record.ranks, record.bytes, record.world_size),
            (record.dtype.clone(), record.op.clone()),
            (record.in_place, record.memory.clone(), record.group.clone()),
        )
    };
    key(one) == key(other)
}
