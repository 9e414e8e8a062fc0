//! A command that measures, under way: lines as they come, the report at the end.

use std::time::Instant;

use muster_comm::config::Environment;
use muster_comm::launch::Identity;
use muster_comm::layout::FrameworkLayout;
use muster_comm::sync::Clock;

use super::saving::{Saving, Shown, publish};
use crate::compare::margin::detects;
use crate::exit::Exit;
use crate::fail::Failure;
use crate::out;
use crate::progress::Progress as Line;
use crate::report::cause::Cause;
use crate::report::document::Document;
use crate::report::measured::{MeasuredReport, Measures, Record};
use crate::run::job::Job;
use crate::run::session::{self, Next, Session};
use crate::run::work::Measured;
use crate::run::{self, Finished, Progress};

/// What merges what the ranks of a job tell.
pub(super) trait Gather: Sized {
    /// What only this command has in its report.
    type Settings: Measures;

    /// For a job; none where it is of another kind. `one_host` says that all ranks share a host, and with it a
    /// clock.
    fn of(job: &Job, layout: &FrameworkLayout, one_host: bool) -> Option<Self>;
    /// Takes in what a rank tells; gives back the record that is complete with it.
    fn take(
        &mut self,
        rank: u32,
        measured: Measured,
    ) -> Option<<Self::Settings as Measures>::Record>;
    /// A world of ranks has ended, the `world`th; gives back the record that is complete with it.
    fn end(
        &mut self,
        _world: usize,
        _finished: &Finished,
    ) -> Option<<Self::Settings as Measures>::Record> {
        None
    }
    /// The records of all cells that have a complete round.
    fn so_far(&self) -> Vec<<Self::Settings as Measures>::Record>;
    /// There will be no more: records of cells that have a part of their rounds, and looks at the machine.
    fn close(self, report: &mut Report<Self>) -> Vec<<Self::Settings as Measures>::Record>;
}

/// The report of a command.
pub(super) type Report<G> =
    MeasuredReport<<G as Gather>::Settings, <<G as Gather>::Settings as Measures>::Record>;

/// Runs jobs of one kind, and reports; `report` has no records yet. With `detect` a job ends once its rounds could tell a change of this part.
///
/// # Errors
/// If the host cannot carry the ranks, or the result cannot be written.
pub(super) fn run<G>(
    mut report: Report<G>,
    (shown, interim): (Shown, bool),
    saving: &Saving,
    (jobs, detect): (&[(Job, FrameworkLayout)], Option<f64>),
    environment: &Environment,
    identity: Option<&Identity>,
) -> Result<Exit, Failure>
where
    G: Gather,
    Report<G>: Document + Clone,
{
    let lines = |(job, layout): &(Job, FrameworkLayout)| job.work.lines(layout) as u64;
    report.cells_planned = jobs.iter().map(lines).sum();
    let work = |(job, layout): &(Job, FrameworkLayout)| {
        let worlds = job.work.worlds(layout);
        let cells = worlds.iter().map(|world| world.cells(layout));
        cells.sum::<usize>() * job.matrix.world_size as usize + worlds.len()
    };
    let mut measuring = Measuring::<G> {
        report,
        shown,
        interim: interim && shown == Shown::Json,
        saving,
        jobs,
        detect,
        one_host: identity.is_none_or(Identity::is_on_one_host),
        gather: None,
        before: 0,
        heading: None,
        progress: Line::new(),
        done: 0,
        whole: jobs.iter().map(work).sum(),
        started: Clock::now(),
    };
    session::run(&mut measuring, jobs, environment, identity)
}

/// A run under way.
struct Measuring<'a, G: Gather> {
    report: Report<G>,
    shown: Shown,
    /// Whether what was measured so far is printed after each round.
    interim: bool,
    saving: &'a Saving,
    jobs: &'a [(Job, FrameworkLayout)],
    /// The change that rounds must be able to tell, as a part; then there are no more.
    detect: Option<f64>,
    one_host: bool,
    /// Of the job under way.
    gather: Option<G>,
    /// Records of the jobs before it.
    before: usize,
    /// The last heading that was printed.
    heading: Option<String>,
    progress: Line,
    /// What of the whole run is done: measurements of one rank, and worlds.
    done: usize,
    whole: usize,
    started: Instant,
}

type RecordOf<G> = <<G as Gather>::Settings as Measures>::Record;

impl<G: Gather> Measuring<'_, G> {
    /// Shows a line and keeps it.
    fn add(&mut self, record: RecordOf<G>) -> Result<(), Failure> {
        if self.shown == Shown::Table {
            let heading = G::Settings::heading(&record);
            let mut text = String::new();
            if self.heading.as_ref() != Some(&heading) {
                text.push_str(if self.heading.is_some() { "\n" } else { "" });
                text.push_str(&heading);
                self.heading = Some(heading);
            }
            text.push_str(&G::Settings::line(&record));
            self.progress.suspended(|| out::result(&text))?;
        }
        self.report.records.push(record);
        Ok(())
    }
}

impl<G: Gather> Measuring<'_, G> {
    /// Rows whose rounds could not tell a change of this part.
    fn unsteady(&self, records: &[RecordOf<G>], detect: f64) -> usize {
        let rows = records
            .iter()
            .flat_map(|record| self.report.rows_of(record));
        let rows: Vec<_> = rows.filter(|row| row.failed.is_none()).collect();
        let steady = rows
            .iter()
            .filter(|row| detects(&row.rounds_us, rows.len(), detect));
        rows.len() - steady.count()
    }

    /// As many rounds as were needed are all that were asked for.
    fn end_early(&mut self, detect: f64) {
        let unsteady = self.unsteady(&self.report.records, detect);
        if unsteady > 0 {
            out::note(&format!(
                "{unsteady} rows vary too much to tell a change of {} % after {} rounds",
                detect * 100.0,
                self.report.rounds
            ));
        }
        let rounds = self.report.records.iter().filter_map(Record::rounds_us);
        let fewest = rounds
            .map(<[_]>::len)
            .min()
            .and_then(|rounds| u32::try_from(rounds).ok());
        self.report.rounds = fewest.unwrap_or(self.report.rounds);
    }
}

impl<G: Gather> Measuring<'_, G>
where
    Report<G>: Document + Clone,
{
    /// Prints what was measured so far: it is there even where this process is killed.
    fn tell(&self, so_far: Vec<RecordOf<G>>) -> Result<(), Failure> {
        if !self.interim || so_far.is_empty() {
            return Ok(());
        }
        let mut report = self.report.clone();
        report.records.truncate(self.before);
        report.records.extend(so_far);
        report.elapsed_us = run::micros(Clock::now().duration_since(self.started));
        let why = "the result of some of the rounds";
        report.verdict = Some(Cause::new(Exit::Interrupted, why));
        report.close();
        out::result(&report.json()?)
    }
}

impl<G: Gather> Session for Measuring<'_, G>
where
    Report<G>: Document + Clone,
{
    fn begin(&mut self, job: usize) -> Result<(), Failure> {
        let (job, layout) = &self.jobs[job];
        if self.gather.is_none() && self.heading.is_none() && self.shown == Shown::Table {
            out::result(&G::Settings::opening(&self.report))?;
        }
        let (name, ranks) = (&job.matrix.name, job.matrix.world_size);
        self.progress.begin(format!("{name}, {ranks} ranks"));
        self.gather = G::of(job, layout, self.one_host);
        self.before = self.report.records.len();
        Ok(())
    }

    fn take(&mut self, _: usize, so_far: Progress) -> Result<(), Failure> {
        self.done += so_far.measured.len();
        self.progress.set(self.done, self.whole);
        for (rank, measured) in so_far.measured {
            let record = self
                .gather
                .as_mut()
                .and_then(|all| all.take(rank, measured));
            record.map_or(Ok(()), |record| self.add(record))?;
        }
        Ok(())
    }

    fn end(&mut self, _: usize, world: usize, finished: Finished) -> Result<Next, Failure> {
        self.done += 1;
        self.progress.set(self.done, self.whole);
        let lines = finished.output.iter();
        self.progress
            .suspended(|| lines.for_each(|line| out::note(line)));
        let record = self
            .gather
            .as_mut()
            .and_then(|all| all.end(world, &finished));
        record.map_or(Ok(()), |record| self.add(record))?;
        self.report.verdict = self.report.verdict.take().or(finished.verdict);
        if self.report.verdict.is_some() {
            return Ok(Next::Nothing);
        }
        if self.detect.is_none() && !self.interim {
            return Ok(Next::World);
        }
        let so_far = self.gather.as_ref().map_or_else(Vec::new, G::so_far);
        let is_steady = |detect| !so_far.is_empty() && self.unsteady(&so_far, detect) == 0;
        let is_enough = self.detect.is_some_and(is_steady);
        self.tell(so_far)?;
        Ok(if is_enough { Next::Job } else { Next::World })
    }

    /// What has some of its rounds is worth showing when there will be no more.
    fn close(&mut self, _: usize) -> Result<(), Failure> {
        let rest = self.gather.take().map(|all| all.close(&mut self.report));
        rest.into_iter()
            .flatten()
            .try_for_each(|record| self.add(record))
    }

    fn publish(&mut self) -> Result<Exit, Failure> {
        self.progress.clear();
        self.report.elapsed_us = run::micros(Clock::now().duration_since(self.started));
        if let (Some(detect), None) = (self.detect, &self.report.verdict) {
            self.end_early(detect);
        }
        self.report.close();
        publish(&self.report, self.saving, self.shown)
    }
}
