//! The results of commands that measure: a list of records, each measured and checked or with the
//! reason why not.
//!
//! A command brings its settings, its record and what it shows of them ([`Measures`]); the rest is the
//! same for all.
//!
//! MEASURED-1: a record is made of the samples of all ranks or not at all.
//! MEASURED-2: a report has passed only if it has no verdict, has a record of every cell it planned, and
//! found no element wrong.

use std::fmt::Debug;
use std::time::Duration;

use maud::Markup;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::TOOL;
use crate::exit::Exit;
use crate::fail::Failure;
use crate::report::cause::Cause;
use crate::report::document::{
    About, Comparable, Document, Headline, Metric, Model, Row, Suite, SuiteCase, SuiteResult,
    Timed, labels, sheet,
};
use crate::report::html::parts::counted;
use crate::report::json;
use crate::report::machine::{Machine, MachineState};
use crate::report::markdown::{self, Column};
use crate::report::origin::Origin;
use crate::report::schema::Described;
use crate::stats;

/// Most samples of a figure that are kept in a record, all rounds together. Quantiles are taken from all
/// samples, before.
pub const SAMPLES_KEPT_MAX: usize = 1000;
/// Rows that Markdown shows.
const LISTED_MAX: usize = 200;

/// The outcome of a command that measures. Field names and their order are a contract with other
/// programs; the schema of each command describes them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MeasuredReport<S, R> {
    /// Version of these fields: see the command's `SCHEMA_VERSION`.
    pub schema_version: u32,
    /// Program and version that wrote this.
    pub tool: String,
    /// The command.
    pub command: String,
    /// What moved the data: `host` or `hccl`.
    pub backend: String,
    /// Whether the device was an emulated one. Such figures say nothing about hardware.
    pub emulated: bool,
    /// Whether everything asked for was measured and right.
    pub passed: bool,
    /// Whether something that was asked for was not measured.
    #[serde(default)]
    pub partial: bool,
    /// Seed of what is random.
    pub seed: u64,
    /// Wall time of the run in microseconds.
    pub elapsed_us: u64,
    /// Where it ran.
    pub machine: Machine,
    /// When and how it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// How bytes were allowed to go: `auto`, `shm` or `tcp`.
    pub transport: String,
    /// Whether each rank kept to its share of the processors.
    #[serde(default)]
    pub pinned: bool,
    /// What only this command has.
    #[serde(flatten)]
    pub settings: S,
    /// How often each cell was measured, at different times.
    pub rounds: u32,
    /// Cells that were planned.
    pub cells_planned: u64,
    /// The cells that were measured, in the order of the plan.
    pub records: Vec<R>,
    /// Looks at the machine during the run, in their order.
    #[serde(default)]
    pub machine_states: Vec<MachineState>,
    /// The cause, when the run failed.
    pub verdict: Option<Cause>,
}

/// Quantiles of the time of a call, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Latency {
    /// The least.
    pub min: f64,
    /// The middle one.
    pub median: f64,
    /// Nine in ten take no longer.
    pub p90: f64,
    /// 99 in a hundred take no longer.
    pub p99: f64,
    /// 999 in a thousand take no longer.
    pub p99_9: f64,
    /// The greatest.
    pub max: f64,
    /// The mean.
    pub mean: f64,
}

impl Latency {
    /// Of ascending samples.
    #[must_use]
    pub fn of(ascending: &[f64]) -> Self {
        let sum: f64 = ascending.iter().sum();
        Self {
            min: stats::quantile(ascending, 0.0),
            median: stats::median(ascending),
            p90: stats::quantile(ascending, 0.9),
            p99: stats::quantile(ascending, 0.99),
            p99_9: stats::quantile(ascending, 0.999),
            max: stats::quantile(ascending, 1.0),
            mean: sum / ascending.len().max(1) as f64,
        }
    }
}

/// How far apart ranks began, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Skew {
    /// The middle one of all samples.
    pub median: f64,
    /// 99 in a hundred are no greater.
    pub p99: f64,
    /// The greatest.
    pub max: f64,
}

/// Labels of a sample, with their values.
pub type Labels = Vec<(&'static str, String)>;

/// One record of such a result.
pub trait Record: Serialize + DeserializeOwned + Described + 'static {
    /// What it is about, in words.
    fn name(&self) -> String;
    /// The fields that tell it from others, for labels of figures.
    const LABELS: &'static str;
    /// Time of what was done once.
    fn latency(&self) -> &Latency;
    /// Times of calls on the slowest rank, a list for each round; empty where rounds do not count.
    fn rounds_us(&self) -> Option<&[Vec<f64>]>;
    /// Wrong elements that ranks found; 0 too where nothing was checked.
    fn wrong(&self) -> u64;
    /// What was wrong first, in words.
    fn wrong_text(&self) -> Option<&str>;
    /// Why it was not measured, if it was not.
    fn unsupported(&self) -> Option<&str>;
}

/// What a command that measures brings beside its records; implemented by what only it has in its report.
pub trait Measures: Serialize + DeserializeOwned + Described + Sized + 'static {
    /// What it makes a list of.
    type Record: Record;
    /// The command.
    const COMMAND: &'static str;
    /// Version of the report's fields.
    const VERSION: u32;
    /// What the schema says of the report and of its seed.
    const TEXTS: [&'static str; 2];
    /// The columns of the sheet.
    const SHEET: &'static str;
    /// The columns in Markdown.
    const TABLE: &'static [Column<Self::Record>];

    /// The sentence about a report that has passed.
    fn passed(report: &MeasuredReport<Self, Self::Record>) -> String;
    /// The suite and the class of a record, for systems that count tests.
    fn suite_and_class(
        report: &MeasuredReport<Self, Self::Record>,
        record: &Self::Record,
    ) -> (String, String);
    /// The sections of the page.
    fn body(report: &MeasuredReport<Self, Self::Record>) -> Markup;
    /// Figures.
    fn metrics(records: &[Self::Record]) -> Vec<Metric>;
    /// The rows of a record for `compare`: each with its name and the times of its rounds. What was wrong belongs
    /// to the last.
    fn rows<'a>(
        report: &'a MeasuredReport<Self, Self::Record>,
        record: &'a Self::Record,
    ) -> Vec<(String, &'a [Vec<f64>])>;
    /// What times depend on beside machine and common settings.
    fn conditions(_report: &MeasuredReport<Self, Self::Record>) -> Labels {
        Vec::new()
    }
    /// The cause to name where all was measured and right, and something is slow all the same.
    fn slow(_report: &MeasuredReport<Self, Self::Record>) -> Option<Cause> {
        None
    }
    /// What is printed before the first record.
    fn opening(report: &MeasuredReport<Self, Self::Record>) -> String;
    /// What is printed above records that share it.
    fn heading(_record: &Self::Record) -> String {
        String::new()
    }
    /// What is printed of a record.
    fn line(record: &Self::Record) -> String;
    /// What is printed at the end.
    fn closing(report: &MeasuredReport<Self, Self::Record>) -> String;
}

impl<S: Measures<Record = R>, R: Record> MeasuredReport<S, R> {
    /// An empty report.
    #[must_use]
    pub fn new(settings: S) -> Self {
        Self {
            schema_version: S::VERSION,
            tool: TOOL.to_owned(),
            command: S::COMMAND.to_owned(),
            backend: String::new(),
            emulated: false,
            passed: false,
            partial: false,
            seed: 0,
            elapsed_us: 0,
            machine: Machine::here(),
            origin: None,
            transport: String::new(),
            pinned: false,
            settings,
            rounds: 0,
            cells_planned: 0,
            records: Vec::new(),
            machine_states: Vec::new(),
            verdict: None,
        }
    }

    /// Decides whether everything passed (MEASURED-2).
    pub fn close(&mut self) {
        if self.verdict.is_none() {
            self.verdict = self.nothing_measured();
        }
        if self.exit() == Exit::Ok {
            self.verdict = S::slow(self);
        }
        self.passed = self.exit() == Exit::Ok;
        let rounds = self.rounds as usize;
        let all_rounds = |record: &R| record.rounds_us().is_none_or(|all| all.len() >= rounds);
        self.partial = (self.records.len() as u64) < self.cells_planned
            || !self.records.iter().all(all_rounds);
    }

    /// The cause where no cell could be carried out: a run that measured nothing has proved nothing.
    #[must_use]
    pub fn nothing_measured(&self) -> Option<Cause> {
        let Some(first) = self.records.first() else {
            return Some(Cause::new(Exit::Internal, "nothing was measured"));
        };
        let first = first.unsupported()?;
        let is_refused = |record: &R| record.unsupported().is_some();
        self.records
            .iter()
            .all(is_refused)
            .then(|| Cause::new(Exit::Resource, format!("nothing was measured: {first}")))
    }

    /// The class of the outcome.
    #[must_use]
    pub fn exit(&self) -> Exit {
        if let Some(verdict) = &self.verdict {
            verdict.class
        } else if self.records.iter().any(|record| record.wrong() > 0) {
            Exit::Data
        } else if (self.records.len() as u64) < self.cells_planned {
            Exit::Internal
        } else {
            Exit::Ok
        }
    }

    fn conditions(&self) -> Labels {
        let machine = &self.machine;
        let pinned = if self.pinned { "pinned" } else { "free" };
        let mut all = vec![
            ("processor", machine.cpu.clone()),
            ("processors", machine.cpus.to_string()),
            ("architecture", machine.arch.clone()),
            ("build profile", machine.profile.clone()),
            ("backend", self.backend.clone()),
            ("emulated device", self.emulated.to_string()),
            ("transport", self.transport.clone()),
            ("ranks", pinned.to_owned()),
        ];
        all.extend(S::conditions(self));
        all
    }

    /// What `compare` sees of a record.
    #[must_use]
    pub fn rows_of(&self, record: &R) -> Vec<Row> {
        let row = |(name, rounds): (String, &[Vec<f64>])| Row {
            name,
            rounds_us: medians(rounds),
            failed: record.unsupported().map(str::to_owned),
            ..Row::default()
        };
        let mut rows: Vec<Row> = S::rows(self, record).into_iter().map(row).collect();
        // Data is that of the whole record: said once.
        if let Some(last) = rows.last_mut() {
            last.wrong = record.wrong();
            last.detail = record.wrong_text().map(str::to_owned);
        }
        rows
    }

    fn rows(&self) -> Vec<Row> {
        let rows = self.records.iter().flat_map(|record| self.rows_of(record));
        rows.collect()
    }
}

/// The median of each round that has samples.
fn medians(rounds: &[Vec<f64>]) -> Vec<f64> {
    let medians = rounds.iter().filter_map(|samples| {
        let mut ascending = samples.clone();
        stats::sort(&mut ascending);
        (!ascending.is_empty()).then(|| stats::median(&ascending))
    });
    medians.collect()
}

impl<S: Measures<Record = R> + Debug, R: Record + Debug> Model for MeasuredReport<S, R> {
    const COMMAND: &'static str = S::COMMAND;
    const VERSION: u32 = S::VERSION;
    const TEXTS: &'static [(&'static str, &'static str)] =
        &[("", S::TEXTS[0]), ("seed", S::TEXTS[1])];
}

impl<S: Measures<Record = R> + Debug, R: Record + Debug> Document for MeasuredReport<S, R> {
    fn about(&self) -> About<'_> {
        About {
            command: S::COMMAND,
            tool: &self.tool,
            schema_version: self.schema_version,
            exit: self.exit(),
            partial: self.partial,
            backend: Some(&self.backend),
            emulated: self.emulated,
            seed: Some(self.seed),
            elapsed_us: self.elapsed_us,
            verdict: self.verdict.as_ref(),
            machine: Some(&self.machine),
            origin: self.origin.as_ref(),
        }
    }

    /// The verdict where there is one, else the first record that is wrong, else what is said of a result
    /// that has passed.
    fn headline(&self) -> Headline {
        let exit = self.exit();
        let planned = counted(self.cells_planned, "line", "lines");
        let measured = format!("{} of {planned} measured", self.records.len());
        let wrong = self.records.iter().find(|record| record.wrong() > 0);
        match (&self.verdict, wrong) {
            (Some(verdict), _) => Headline::of(exit, format!("{}; {measured}", verdict.text)),
            (None, Some(record)) => {
                let text = record.wrong_text().unwrap_or("no detail");
                Headline::of(exit, format!("{}: {text}; {measured}", record.name()))
            }
            (None, None) if self.passed => Headline {
                word: "measured".to_owned(),
                ..Headline::of(exit, S::passed(self))
            },
            (None, None) => Headline::of(exit, measured),
        }
    }

    fn json(&self) -> Result<String, Failure> {
        json::line(self)
    }

    fn body(&self) -> Markup {
        S::body(self)
    }

    fn suites(&self) -> Vec<Suite> {
        let mut suites: Vec<Suite> = Vec::new();
        for record in &self.records {
            let (name, class) = S::suite_and_class(self, record);
            let case = SuiteCase {
                class,
                name: record.name(),
                elapsed_us: whole(record.latency().median),
                result: result(record),
            };
            match suites.iter_mut().find(|suite| suite.name == name) {
                Some(suite) => suite.cases.push(case),
                None => suites.push(Suite {
                    name,
                    cases: vec![case],
                }),
            }
        }
        suites
    }

    fn sheet(&self) -> Vec<Vec<String>> {
        let more = json!({"backend": self.backend, "emulated": self.emulated});
        sheet(&self.records, S::SHEET, |_| more.clone())
    }

    fn metrics(&self) -> Vec<Metric> {
        S::metrics(&self.records)
    }

    fn markdown(&self) -> String {
        markdown::table(&self.records, S::TABLE, LISTED_MAX)
    }

    fn text(&self) -> String {
        S::closing(self)
    }

    fn comparable(&self) -> Option<Comparable<'_>> {
        Some(Comparable {
            rows: self.rows(),
            timed: Some(Timed {
                conditions: self.conditions(),
                rounds: self.rounds,
                states: &self.machine_states,
            }),
        })
    }
}

/// What came out of a record, for systems that count tests.
fn result(record: &impl Record) -> SuiteResult {
    if let Some(why) = record.unsupported() {
        return SuiteResult::Skipped(why.to_owned());
    }
    if record.wrong() == 0 {
        return SuiteResult::Passed;
    }
    let text = record.wrong_text().unwrap_or_default().to_owned();
    SuiteResult::Failed(format!("{} wrong elements: {text}", record.wrong()), text)
}

/// The records that have figures.
pub fn measured<R: Record>(records: &[R]) -> impl Iterator<Item = &R> {
    records
        .iter()
        .filter(|record| record.unsupported().is_none())
}

/// A figure of each record that was measured and has it.
pub fn metric<R: Record>(
    name: &'static str,
    help: &'static str,
    records: &[R],
    value: impl Fn(&R) -> Option<f64>,
) -> Metric {
    let samples =
        measured(records).filter_map(|record| Some((labels(record, R::LABELS), value(record)?)));
    Metric {
        name,
        help,
        samples: samples.collect(),
    }
}

/// Quantiles of a time of a record in seconds, a sample each; `more` is a label beside those of the record.
pub fn in_seconds<R: Record>(
    record: &R,
    more: Option<(&'static str, &str)>,
    times: &Latency,
) -> [(Labels, f64); 5] {
    let mut all = labels(record, R::LABELS);
    all.extend(more.map(|(name, value)| (name, value.to_owned())));
    let quantiles = [
        ("0", times.min),
        ("0.5", times.median),
        ("0.9", times.p90),
        ("0.99", times.p99),
        ("1", times.max),
    ];
    quantiles.map(|(quantile, time)| {
        let mut labels = all.clone();
        labels.push(("quantile", quantile.to_owned()));
        (labels, time / 1e6)
    })
}

/// A time of a record in whole microseconds.
fn whole(us: f64) -> u64 {
    let time = Duration::try_from_secs_f64(us / 1e6).unwrap_or_default();
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
