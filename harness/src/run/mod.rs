//! Running one matrix: as the launcher of its ranks, as one of them, or as a guest of another
//! launcher; and finding the one cause when it fails.

mod applicable;
mod binding;
pub mod job;
mod jobs;
pub mod joined;
mod launcher;
pub mod local;
pub mod npu;
mod printed;
pub mod program;
pub mod rank;
pub mod session;
mod standing;
mod supervisor;
pub mod verdict;
pub mod work;

use std::time::Duration;

use muster_comm::layout::FrameworkLayout;

use crate::check::collect::Collector;
use crate::fail::Failure;
use crate::report::cause::Cause;
use crate::run::job::Job;
use crate::run::verdict::{Facts, judge};
use crate::run::work::Measured;
use crate::verify::model::{Case, MatrixSummary, NotApplicable, Outcome};

/// How far a matrix has come.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Answers of ranks so far.
    pub answers: usize,
    /// Answers expected.
    pub expected: usize,
    /// What ranks measured since the last time, with the rank that told it.
    pub measured: Vec<(u32, Measured)>,
}

impl Progress {
    /// As a collector has it.
    fn of(collector: &mut Collector) -> Self {
        let (answers, expected) = collector.progress();
        Self {
            answers,
            expected,
            measured: collector.take_measured(Measured::decode),
        }
    }
}

/// One matrix, run to its end or to its first failure.
#[derive(Debug)]
pub struct Finished {
    /// Its line in the report.
    pub summary: MatrixSummary,
    /// Its cases.
    pub cases: Vec<Case>,
    /// What the devices do not have.
    pub not_applicable: Vec<NotApplicable>,
    /// The cause, if it could not be run to its end.
    pub verdict: Option<Cause>,
    /// What ranks printed, a line each with the rank before it.
    pub output: Vec<String>,
}

impl Finished {
    /// What came of a job: what ranks said and what else was seen.
    #[must_use]
    pub fn new(
        job: &Job,
        layout: &FrameworkLayout,
        collector: &Collector,
        facts: &Facts,
        elapsed: Duration,
        bring_up: Option<Duration>,
    ) -> Self {
        let name = &job.matrix.name;
        let verdict = judge(facts, collector).map(|mut verdict| {
            verdict.matrix = Some(name.clone());
            verdict
        });
        let cases = collector.report(name, job.matrix.world_size);
        let passed = cases.iter().filter(|case| case.passed).count();
        let summary = MatrixSummary {
            groups: collector.group_counts(),
            cases: cases.len() as u64,
            cases_passed: passed as u64,
            elapsed_us: micros(elapsed),
            bring_up_us: bring_up.map(micros),
            outcome: match &verdict {
                Some(_) => Outcome::Aborted,
                None if passed == cases.len() => Outcome::Passed,
                None => Outcome::Failed,
            },
            reason: verdict.as_ref().map(|verdict| verdict.text.clone()),
            waits_us: collector.waits_us().to_vec(),
            ..skipped(job, layout, String::new())
        };
        Self {
            summary,
            cases,
            not_applicable: collector.not_applicable(),
            verdict,
            output: Vec::new(),
        }
    }

    /// What came of a job whose ranks could not be started.
    #[must_use]
    pub fn not_started(job: &Job, layout: &FrameworkLayout, failure: Failure) -> Self {
        let mut verdict = Cause::new(failure.exit, failure.message.clone());
        verdict.matrix = Some(job.matrix.name.clone());
        verdict.next = failure.help;
        let summary = MatrixSummary {
            outcome: Outcome::Aborted,
            ..skipped(job, layout, failure.message)
        };
        Self {
            summary,
            cases: Vec::new(),
            not_applicable: Vec::new(),
            verdict: Some(verdict),
            output: Vec::new(),
        }
    }
}

/// The line of a matrix that did not run, and why.
#[must_use]
pub fn skipped(job: &Job, layout: &FrameworkLayout, reason: String) -> MatrixSummary {
    let dims = layout.dims();
    MatrixSummary {
        matrix: job.matrix.name.clone(),
        world_size: dims.world,
        tp: dims.tp,
        ep: dims.ep,
        dp: dims.dp,
        cp: dims.cp,
        pp: dims.pp,
        etp: dims.etp,
        groups: Vec::new(),
        cases: 0,
        cases_passed: 0,
        elapsed_us: 0,
        bring_up_us: None,
        outcome: Outcome::Skipped,
        reason: Some(reason),
        waits_us: Vec::new(),
    }
}

/// A time in microseconds.
#[must_use]
pub fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Answers of ranks that a job asks for in all.
#[must_use]
pub fn answers(job: &Job, layout: &FrameworkLayout) -> usize {
    let catalogue = job.work.catalogue(layout);
    let members = |case| catalogue.members(case).len();
    catalogue.cases.iter().map(members).sum()
}
