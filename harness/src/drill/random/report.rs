//! What came of many random runs: a table by kind of fault, the misses, and the same as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use super::run::Record;
use crate::drill::random::fault::Fault;
use crate::exit::Exit;
use crate::out::{BAD, GOOD, STRONG, escaped};

/// Version of the JSON document.
const SCHEMA_VERSION: u32 = 1;
/// Misses that are kept in full.
const MISSES_MAX: usize = 500;

/// All runs.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Version of this form.
    pub schema_version: u32,
    /// Seed of the first run; the next one has the next number.
    pub seed: u64,
    /// Runs that were carried out.
    pub runs: u64,
    /// Those in which all was exact.
    pub exact: u64,
    /// Runs that this machine could not carry out.
    pub skipped: u64,
    /// Whether somebody stopped it before its end.
    pub interrupted: bool,
    /// How long all of it took, in milliseconds.
    pub elapsed_ms: u64,
    /// By kind of fault.
    pub faults: BTreeMap<Fault, Row>,
    /// What was not exact.
    pub misses: Vec<Miss>,
}

/// Runs of one kind.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    /// How many.
    pub runs: u64,
    /// How many were exact in everything.
    pub exact: u64,
    /// In how many all who could not go on were told, and nobody else.
    pub detected: u64,
    /// In how many every class was true.
    pub class: u64,
    /// In how many the culprits were exact.
    pub culprit: u64,
    /// In how many there was one line everywhere.
    pub same: u64,
    /// The slowest, in milliseconds.
    pub slowest_ms: Option<u64>,
    /// In how many something was left behind.
    pub left: u64,
}

/// A run that was not exact.
#[derive(Clone, Debug, Serialize)]
pub struct Miss {
    /// Its seed.
    pub seed: u64,
    /// What was done.
    pub truth: String,
    /// What was said, and by how many.
    pub said: Vec<String>,
    /// What is wrong with it.
    pub reasons: Vec<String>,
    /// The command that does it again.
    pub command: String,
    /// Load average of the machine at its end.
    pub load_average: f64,
    /// Where its files are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
}

impl Report {
    /// A report of no run.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            seed,
            ..Self::default()
        }
    }

    /// Takes in a run; gives back what is wrong with it.
    pub fn take(&mut self, record: &Record) -> Option<Miss> {
        if record.skipped.is_some() {
            self.skipped += 1;
            return None;
        }
        let graded = &record.graded;
        self.runs += 1;
        self.exact += u64::from(graded.is_exact());
        let row = self.faults.entry(record.scenario.fault).or_default();
        row.runs += 1;
        row.exact += u64::from(graded.is_exact());
        row.detected += u64::from(graded.detected);
        row.class += u64::from(graded.class);
        row.culprit += u64::from(graded.culprit);
        row.same += u64::from(graded.same);
        row.left += u64::from(!graded.clean);
        let took = graded
            .slowest
            .map(|took| u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
        row.slowest_ms = row.slowest_ms.max(took);
        if graded.is_exact() {
            return None;
        }
        let miss = Miss::of(record);
        if self.misses.len() < MISSES_MAX {
            self.misses.push(miss.clone());
        }
        Some(miss)
    }

    /// The class of the outcome.
    #[must_use]
    pub fn exit(&self) -> Exit {
        if self.interrupted {
            Exit::Interrupted
        } else if self.exact < self.runs {
            Exit::FailedCell
        } else if self.runs == 0 {
            Exit::Resource
        } else {
            Exit::Ok
        }
    }

    /// The table, and the closing line.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = format!(
            "\n{STRONG}{:<18} {:>6} {:>6} {:>9} {:>6} {:>8} {:>6} {:>10} {:>6}{STRONG:#}\n",
            "fault", "runs", "exact", "detected", "class", "culprit", "same", "slowest", "left"
        );
        for (fault, row) in &self.faults {
            let slowest = row
                .slowest_ms
                .map_or_else(|| "-".to_owned(), |ms| format!("{ms} ms"));
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{:<18} {:>6} {:>6} {:>9} {:>6} {:>8} {:>6} {slowest:>10} {:>6}",
                fault.name(),
                row.runs,
                row.exact,
                row.detected,
                row.class,
                row.culprit,
                row.same,
                row.left
            );
        }
        let style = if self.exact == self.runs { GOOD } else { BAD };
        let _ = writeln!(
            text,
            "{style}{} of {} runs exact{style:#}; {} skipped; {} s; seeds from {}{}",
            self.exact,
            self.runs,
            self.skipped,
            self.elapsed_ms / 1000,
            self.seed,
            if self.interrupted {
                "; stopped before the end"
            } else {
                ""
            }
        );
        text
    }
}

impl Miss {
    fn of(record: &Record) -> Self {
        let mut said: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (by, line) in &record.said {
            let who = by.map_or_else(|| "launcher".to_owned(), |rank| rank.to_string());
            said.entry(line).or_default().push(who);
        }
        Self {
            seed: record.scenario.seed,
            truth: record.scenario.in_words(&record.truth),
            said: said
                .iter()
                .map(|(line, by)| format!("{}: {line}", by.join(",")))
                .collect(),
            reasons: record.graded.reasons.clone(),
            command: record.scenario.command(),
            load_average: record.load_average,
            kept: record.kept.as_ref().map(|path| path.display().to_string()),
        }
    }

    /// It as text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("{BAD}MISS{BAD:#} {}\n", self.command);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "     true: {}", self.truth);
        for line in &self.said {
            let _ = writeln!(text, "     said by {}", escaped(line));
        }
        if self.said.is_empty() {
            text.push_str("     said: nothing\n");
        }
        for reason in &self.reasons {
            let _ = writeln!(text, "     {}", escaped(reason));
        }
        let _ = writeln!(text, "     load average: {:.1}", self.load_average);
        if let Some(kept) = &self.kept {
            let _ = writeln!(text, "     files: {kept}");
        }
        text
    }
}
