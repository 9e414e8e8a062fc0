//! What is normal for a kind of host: learned from the results of many runs, and held against a new one.
//!
//! A cell is a row of `bench` or of `moe`. Its value in a run is the median of the medians of its rounds. What is normal is the median of
//! these values over the runs, and the limit lies as far above it as the runs lie apart. There is no figure over several cells.
//!
//! BASELINE-1: a cell is compared with the same cell alone, and only where it was taken under the same conditions.
//! BASELINE-2: a cell that the baseline does not know is said to be unknown. It never counts as normal.

mod document;
pub mod limits;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::exit::Exit;
use crate::fail::Failure;
use crate::report::document::{Comparable, Document};
use crate::report::origin::Origin;
use crate::stats;

/// Version of the JSON document's fields.
pub const SCHEMA_VERSION: u32 = 1;
/// How many deviations above what is normal the limit lies: the usual bound for outliers by the median deviation (Iglewicz and Hoaglin, 1993).
pub const DEVIATIONS: f64 = 3.5;
/// Fewest runs of which one can be called an outlier: of two that differ, nobody knows which is normal.
const RUNS_MIN: usize = 3;

/// What is normal.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Baseline {
    /// Version of the fields.
    pub schema_version: u32,
    /// The program that wrote it.
    pub tool: String,
    /// `baseline`.
    pub command: String,
    /// No run is an outlier.
    pub passed: bool,
    /// What moved the data.
    pub backend: Option<String>,
    /// Devices were emulated: nothing here speaks of hardware.
    pub emulated: bool,
    /// The files that were read, and the host of each.
    pub runs: Vec<Source>,
    /// What times depend on beside the program, by command.
    pub conditions: BTreeMap<String, Vec<Condition>>,
    /// What is normal, cell by cell.
    pub cells: Vec<Cell>,
    /// Runs with cells that are beyond their limit.
    pub outliers: Vec<Outlier>,
    /// When and how it was learned.
    pub origin: Option<Origin>,
}

/// A file from which a baseline was learned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Source {
    /// Its name.
    pub file: String,
    /// The host that wrote it, where it says so.
    pub host: String,
}

/// A setting or a property of a host on which times depend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Condition {
    /// What it is.
    pub name: String,
    /// What it was.
    pub value: String,
}

/// What is normal for a row of `bench` or `moe`. Times are in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cell {
    /// The command that measures it.
    pub command: String,
    /// What it is about.
    pub name: String,
    /// In how many runs it was measured.
    pub runs: usize,
    /// The median of the runs.
    pub median_us: f64,
    /// The fastest run.
    pub fastest_us: f64,
    /// The slowest run.
    pub slowest_us: f64,
    /// How far runs, or rounds of a run, lie apart: a robust standard deviation, as a part of the median.
    pub spread: f64,
    /// What is slower than this is not normal.
    pub limit_us: f64,
}

/// A run with cells beyond their limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Outlier {
    /// Its file.
    pub file: String,
    /// Its host.
    pub host: String,
    /// How many cells it has.
    pub cells: usize,
    /// Those beyond their limit, the worst first.
    pub slow: Vec<Slow>,
}

/// A cell that is not normal. Times are in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Slow {
    /// What it is about.
    pub name: String,
    /// What was measured.
    pub us: f64,
    /// What is normal.
    pub median_us: f64,
    /// What is slower than this is not normal.
    pub limit_us: f64,
}

/// What is found of the cells of a command.
#[derive(Debug, Default)]
pub struct Judged {
    /// How many are at most as slow as their limit.
    pub normal: usize,
    /// Those that are slower, the worst first.
    pub slow: Vec<Slow>,
    /// Those that the baseline does not know.
    pub unknown: Vec<String>,
}

/// The results of one file.
#[derive(Debug)]
pub struct Run {
    source: Source,
    backend: Option<String>,
    emulated: bool,
    commands: BTreeMap<&'static str, Measured>,
}

/// What a command measured.
#[derive(Debug, Default)]
struct Measured {
    conditions: Vec<Condition>,
    /// The medians of the rounds of each row.
    rows: Vec<(String, Vec<f64>)>,
}

impl Measured {
    fn of(found: Comparable<'_>) -> Option<Self> {
        let conditions = found.timed?.conditions.into_iter();
        let condition = |(name, value): (&str, String)| Condition {
            name: name.to_owned(),
            value,
        };
        let rows = found.rows.into_iter();
        let rows = rows.filter(|row| !row.rounds_us.is_empty());
        Some(Self {
            conditions: conditions.map(condition).collect(),
            rows: rows.map(|row| (row.name, row.rounds_us)).collect(),
        })
    }
}

impl Run {
    /// Of the results in a file.
    ///
    /// # Errors
    /// A failure of class USAGE where nothing in it was timed.
    pub fn of(file: &str, results: &[Box<dyn Document>]) -> Result<Self, Failure> {
        let abouts = || results.iter().map(|result| result.about());
        let host = abouts().find_map(|about| about.origin.map(|origin| origin.host.clone()));
        let mut run = Self {
            source: Source {
                file: file.to_owned(),
                host: host.unwrap_or_default(),
            },
            backend: abouts().find_map(|about| about.backend.map(str::to_owned)),
            emulated: abouts().any(|about| about.emulated),
            commands: BTreeMap::new(),
        };
        for result in results {
            if let Some(measured) = result.comparable().and_then(Measured::of) {
                run.commands.insert(result.about().command, measured);
            }
        }
        if run.commands.values().all(|one| one.rows.is_empty()) {
            return Err(Failure::usage(format!("nothing in {file} was timed")).with_help(
                "a baseline is made of what `muster validate`, `bench` and `moe` write with --save",
            ));
        }
        Ok(run)
    }

    fn cells(&self) -> impl Iterator<Item = (&str, &str, &[f64])> {
        self.commands.iter().flat_map(|(command, measured)| {
            let rows = measured.rows.iter();
            rows.map(|(name, rounds)| (*command, &name[..], &rounds[..]))
        })
    }
}

impl Baseline {
    /// Learns what is normal. `margin` is how much slower than normal a cell may be where runs lie closer together, as a part.
    ///
    /// # Errors
    /// A failure of class USAGE where runs were made under other conditions, unless `any_machine`.
    pub fn learn(runs: &[Run], margin: f64, any_machine: bool) -> Result<Self, Failure> {
        let mut conditions: BTreeMap<String, Vec<Condition>> = BTreeMap::new();
        for run in runs {
            for (command, measured) in &run.commands {
                let known = conditions.entry((*command).to_owned());
                let known = known.or_insert_with(|| measured.conditions.clone());
                let differ = differences(known, &measured.conditions);
                if !differ.is_empty() && !any_machine {
                    return Err(Failure::usage(format!(
                        "{} was measured under other conditions than the files before: {}",
                        run.source.file,
                        differ.join("; ")
                    ))
                    .with_help("make a baseline for each kind of host, or say --any-machine"));
                }
            }
        }
        let mut by_cell: BTreeMap<(&str, &str), Vec<&[f64]>> = BTreeMap::new();
        for (command, name, rounds) in runs.iter().flat_map(Run::cells) {
            by_cell.entry((command, name)).or_default().push(rounds);
        }
        let cells = by_cell.into_iter();
        let cells = cells.map(|((command, name), runs)| Cell::of(command, name, &runs, margin));
        let mut baseline = Self {
            schema_version: SCHEMA_VERSION,
            tool: crate::TOOL.to_owned(),
            command: "baseline".to_owned(),
            passed: true,
            backend: runs.iter().find_map(|run| run.backend.clone()),
            emulated: runs.iter().any(|run| run.emulated),
            runs: runs.iter().map(|run| run.source.clone()).collect(),
            conditions,
            cells: cells.collect(),
            outliers: Vec::new(),
            origin: None,
        };
        if runs.len() >= RUNS_MIN {
            baseline.outliers = runs
                .iter()
                .filter_map(|run| baseline.outlier(run))
                .collect();
        }
        baseline.passed = baseline.outliers.is_empty();
        Ok(baseline)
    }

    fn outlier(&self, run: &Run) -> Option<Outlier> {
        let mut slow = Vec::new();
        for (command, name, rounds) in run.cells() {
            let cell = self.cell(command, name);
            slow.extend(cell.and_then(|cell| cell.slow(rounds)));
        }
        sort(&mut slow);
        (!slow.is_empty()).then(|| Outlier {
            file: run.source.file.clone(),
            host: run.source.host.clone(),
            cells: run.cells().count(),
            slow,
        })
    }

    fn cell(&self, command: &str, name: &str) -> Option<&Cell> {
        let mut cells = self.cells.iter();
        cells.find(|cell| cell.command == command && cell.name == name)
    }

    /// Whether something is known of what a command measures.
    #[must_use]
    pub fn knows(&self, command: &str) -> bool {
        self.conditions.contains_key(command)
    }

    /// Holds what a command measured against what is normal.
    ///
    /// # Errors
    /// A failure of class USAGE where the result was measured under other conditions, or none of its cells is known.
    pub fn judge(&self, result: &dyn Document) -> Result<Judged, Failure> {
        let command = result.about().command;
        let found = result
            .comparable()
            .and_then(Measured::of)
            .unwrap_or_default();
        let known = self.conditions.get(command).map_or(&[][..], Vec::as_slice);
        let differ = differences(known, &found.conditions);
        if !differ.is_empty() {
            return Err(Failure::usage(format!(
                "the baseline is of another kind of host: {}",
                differ.join("; ")
            )));
        }
        let mut judged = Judged::default();
        for (name, rounds) in &found.rows {
            match self.cell(command, name) {
                None => judged.unknown.push(name.clone()),
                Some(cell) => match cell.slow(rounds) {
                    None => judged.normal += 1,
                    Some(slow) => judged.slow.push(slow),
                },
            }
        }
        sort(&mut judged.slow);
        if judged.normal == 0 && judged.slow.is_empty() {
            return Err(Failure::usage(format!(
                "the baseline knows no cell that {command} measured"
            )));
        }
        Ok(judged)
    }

    /// The class of the outcome.
    #[must_use]
    pub const fn exit(&self) -> Exit {
        if self.passed { Exit::Ok } else { Exit::Slow }
    }
}

impl Cell {
    /// Of the rounds of all runs that measured it; there is at least one.
    fn of(command: &str, name: &str, runs: &[&[f64]], margin: f64) -> Self {
        let mut values: Vec<f64> = runs.iter().map(|rounds| stats::middle(rounds)).collect();
        stats::sort(&mut values);
        let median = stats::median(&values);
        let between = deviation(values.iter().map(|value| value / median));
        let within = runs
            .iter()
            .zip(runs.iter().map(|rounds| stats::middle(rounds)));
        let within = deviation(
            within.flat_map(|(rounds, middle)| rounds.iter().map(move |time| time / middle)),
        );
        let spread = between.max(within);
        Self {
            command: command.to_owned(),
            name: name.to_owned(),
            runs: runs.len(),
            median_us: median,
            fastest_us: values.first().copied().unwrap_or(median),
            slowest_us: values.last().copied().unwrap_or(median),
            spread: spread.exp_m1(),
            limit_us: median * (DEVIATIONS * spread).max(margin.ln_1p()).exp(),
        }
    }

    /// The cell of a run, where it is slower than the limit.
    fn slow(&self, rounds: &[f64]) -> Option<Slow> {
        let us = stats::middle(rounds);
        (us > self.limit_us).then(|| Slow {
            name: self.name.clone(),
            us,
            median_us: self.median_us,
            limit_us: self.limit_us,
        })
    }
}

/// The worst first.
fn sort(slow: &mut [Slow]) {
    slow.sort_by(|one, other| {
        let beyond = |slow: &Slow| slow.us / slow.limit_us;
        beyond(other).total_cmp(&beyond(one))
    });
}

/// A robust standard deviation of the logarithms of ratios around 1.
fn deviation(ratios: impl Iterator<Item = f64>) -> f64 {
    let logarithms: Vec<f64> = ratios.map(f64::ln).collect();
    stats::deviation(&logarithms, 0.0)
}

/// What differs, in words.
fn differences(known: &[Condition], other: &[Condition]) -> Vec<String> {
    let both = known.iter().zip(other).filter(|(one, other)| one != other);
    both.map(|(one, other)| format!("{} {} and {}", one.name, one.value, other.value))
        .collect()
}

#[cfg(test)]
mod tests;
