//! A run of `moe` under way: lines as they come, the report at the end.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

use muster_comm::config::Environment;
use muster_comm::launch::Identity;
use muster_comm::layout::Layout;
use muster_comm::sync::Clock;

use super::{Format, MoeArgs};
use crate::check::job::Job;
use crate::cmd::saving::Saving;
use crate::exit::Exit;
use crate::fail::Failure;
use crate::moe::gather::Gather;
use crate::moe::measured::Measured;
use crate::moe::plan::Plan;
use crate::moe::report::{MoeReport, Record};
use crate::moe::table;
use crate::out;
use crate::progress::Progress;
use crate::report::document::Document;
use crate::run::{self, Finished, joined, local};
use crate::world::signals::Interrupts;

/// A run.
pub(super) struct Run<'a> {
    args: &'a MoeArgs,
    report: MoeReport,
    started: Instant,
    progress: Progress,
    told: usize,
}

impl<'a> Run<'a> {
    /// A run that has not begun, with a report that has no records.
    pub(super) fn new(args: &'a MoeArgs, report: MoeReport) -> Self {
        Self {
            args,
            report,
            started: Clock::now(),
            progress: Progress::new(),
            told: 0,
        }
    }
}

impl Run<'_> {
    /// Starts the ranks: a world for each round, so that what differs between two starts of one
    /// program is among the differences between rounds.
    pub(super) fn locally(&mut self, job: &Job, layout: &Layout) -> Result<Exit, Failure> {
        local::make_sure_that_it_fits(job, layout)?;
        let interrupts = Arc::new(Interrupts::install()?);
        let mut gather = self.begin(job, layout, true)?;
        let mut failed = None;
        for round in 0..plan_of(job)?.rounds {
            let mut job = job.clone();
            if let Some(plan) = &mut job.moe {
                plan.round = Some(round);
            }
            let outcome = local::run(&job, layout, &interrupts, &mut |so_far| {
                let shown = self.take(&mut gather, so_far.dispatched);
                failed = failed.take().or_else(|| shown.err());
            });
            if let Some(failure) = failed {
                return Err(failure);
            }
            let finished =
                outcome.unwrap_or_else(|failure| Finished::not_started(&job, layout, failure));
            self.close(finished);
            if self.report.verdict.is_some() {
                break;
            }
        }
        self.complete(&gather)?;
        self.publish()
    }

    /// Measures in the world in which this process is a rank.
    pub(super) fn joined(
        &mut self,
        job: &Job,
        layout: &Layout,
        environment: &Environment,
        identity: &Identity,
    ) -> Result<Exit, Failure> {
        let gather = if identity.rank.0 == 0 {
            self.begin(job, layout, identity.is_on_one_host())?
        } else {
            Gather::new(plan_of(job)?, layout, job.seed, false)
        };
        let waiting = RefCell::new((&mut *self, gather, None));
        joined::run(
            &[(job.clone(), layout.clone())],
            environment,
            identity,
            &mut |_, so_far| {
                let mut waiting = waiting.borrow_mut();
                let (run, gather, failed) = &mut *waiting;
                let shown = run.take(gather, so_far.dispatched);
                *failed = failed.take().or_else(|| shown.err());
            },
            &mut |all| {
                let mut waiting = waiting.borrow_mut();
                let (run, gather, failed) = &mut *waiting;
                if let Some(failure) = failed.take() {
                    return Err(failure);
                }
                for finished in all {
                    run.close(finished);
                }
                run.complete(gather)?;
                run.publish()
            },
        )
    }

    fn begin(&mut self, job: &Job, layout: &Layout, one_host: bool) -> Result<Gather, Failure> {
        let plan = plan_of(job)?;
        self.report.cells_planned = plan.cells().len() as u64;
        let (name, ranks) = (&job.matrix.name, job.matrix.world_size);
        self.progress.begin(format!("{name}, {ranks} ranks"));
        if self.args.format == Format::Table {
            out::result(&format!(
                "{}{}",
                table::heading(&self.report),
                table::columns()
            ))?;
        }
        Ok(Gather::new(plan, layout, job.seed, one_host))
    }

    /// Takes in what ranks measured, and shows the lines that are complete with it.
    fn take(&mut self, gather: &mut Gather, measured: Vec<(u32, Measured)>) -> Result<(), Failure> {
        self.told += measured.len();
        self.progress.set(self.told, gather.expected());
        for (rank, measured) in measured {
            let Some(record) = gather.take(rank, measured) else {
                continue;
            };
            self.add(record)?;
        }
        Ok(())
    }

    fn add(&mut self, record: Record) -> Result<(), Failure> {
        if self.args.format == Format::Table {
            let line = table::line(&record);
            self.progress.suspended(|| out::result(&line))?;
        }
        self.report.records.push(record);
        Ok(())
    }

    /// There will be no more rounds: what has some of them is worth showing.
    fn complete(&mut self, gather: &Gather) -> Result<(), Failure> {
        self.report.machine_states = gather.machine_states().to_vec();
        let known = self.report.records.len();
        for record in gather.so_far().into_iter().skip(known) {
            self.add(record)?;
        }
        Ok(())
    }

    fn close(&mut self, finished: Finished) {
        self.progress.clear();
        for line in &finished.output {
            out::note(line);
        }
        self.report.verdict = self.report.verdict.take().or(finished.verdict);
    }

    /// Prints the result. Its class is that of the run, unless it could not be written.
    fn publish(&mut self) -> Result<Exit, Failure> {
        self.progress.clear();
        self.report.elapsed_us = run::micros(Clock::now().duration_since(self.started));
        let steps = self
            .report
            .records
            .first()
            .map(|record| &record.round_trip.samples_us);
        let steps = steps.and_then(|rounds| rounds.first()).map_or(0, Vec::len);
        self.report.settings.steps = u32::try_from(steps).unwrap_or(u32::MAX);
        self.report.close();
        // The files first: a closed terminal must not cost what was measured. And the table in any
        // case: nor must a full disk.
        let written = self.args.saving.write(&self.report);
        out::result(&match self.args.format {
            Format::Json => self.report.json()?,
            Format::Table => {
                // Details of one line fit a screen; of many they would hide the lines.
                let details = match &self.report.records[..] {
                    [record] => table::details(record),
                    _ => String::new(),
                };
                format!("{details}\n{}", table::closing(&self.report))
            }
        })?;
        Saving::ended(self.report.exit(), written)
    }
}

fn plan_of(job: &Job) -> Result<&Plan, Failure> {
    job.moe
        .as_ref()
        .ok_or_else(|| Failure::internal("no plan to dispatch by"))
}
