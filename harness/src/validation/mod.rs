//! What `validate` found: whether a host is accepted, by what came of each stage.

mod document;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use muster_comm::config::Environment;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::exit::Exit;
use crate::out::{STRONG, escaped, terminal_width};
use crate::report::document::Mood;
use crate::report::html::parts::counted;
use crate::report::machine::Machine;
use crate::report::origin::Origin;
use crate::report::terminal::{self, Column};
use crate::stats;

/// Version of the JSON document's fields.
pub const SCHEMA_VERSION: u32 = 1;
/// A stage whose middle cell is this much slower in later passes is to be looked at.
const SLOWER: f64 = 1.1;
/// Fewest passes after the first of which that is said.
const PASSES_MIN: usize = 4;

/// Columns of the lines.
const COLUMNS: &[Column<Stage>] = &[
    Column::text("stage", 9, Stage::label),
    Column::text("outcome", 12, |stage| {
        let style = stage.outcome.mood().style();
        format!("{style}{}{style:#}", stage.outcome.word())
    }),
    Column::label("time", 8, |stage| {
        format!("{:.1} s", stage.elapsed_us as f64 / 1e6)
    }),
    Column::text("finding", 0, |stage| escaped(&stage.finding)),
];

/// Whether a host may be used.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Validation {
    /// Version of the fields.
    pub schema_version: u32,
    /// The program that wrote it.
    pub tool: String,
    /// `validate`.
    pub command: String,
    /// The host is accepted, perhaps with remarks.
    pub passed: bool,
    /// Not all stages have ended.
    pub partial: bool,
    /// What moved the data.
    pub backend: Option<String>,
    /// Devices were emulated: nothing here speaks of hardware.
    pub emulated: bool,
    /// The worst of the stages.
    pub outcome: Outcome,
    /// Wall time in microseconds.
    pub elapsed_us: u64,
    /// The stages, in the order in which they ran.
    pub stages: Vec<Stage>,
    /// Where it ran.
    pub machine: Option<Machine>,
    /// When and how.
    pub origin: Option<Origin>,
}

/// What comes of a stage, and of all of them: the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// All is right.
    Accepted,
    /// Something is to be looked at, and keeps no job from running.
    Remarks,
    /// It was interrupted: nothing is known.
    Interrupted,
    /// Something is wrong.
    Refused,
}

impl Outcome {
    const fn word(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Remarks => "with remarks",
            Self::Interrupted => "interrupted",
            Self::Refused => "refused",
        }
    }

    const fn mood(self) -> Mood {
        match self {
            Self::Accepted => Mood::Good,
            Self::Remarks | Self::Interrupted => Mood::Care,
            Self::Refused => Mood::Bad,
        }
    }
}

/// A command that was run, and what came of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stage {
    /// `doctor`, `verify`, `bench`, `moe` or `drill`.
    pub name: String,
    /// 1, or which repetition of it this is.
    #[serde(default = "first")]
    pub pass: u32,
    /// The command line, to run it again.
    pub command: String,
    /// What came of it.
    pub outcome: Outcome,
    /// Class of the command's end.
    pub class: Exit,
    /// Code with which the command ended.
    pub exit_code: u8,
    /// The result in a sentence.
    pub finding: String,
    /// What is wrong, or to be looked at.
    pub remarks: Vec<Remark>,
    /// Wall time in microseconds.
    pub elapsed_us: u64,
    /// The whole result of a command that measures, of the first pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// How a later pass lies to the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<Drift>,
}

const fn first() -> u32 {
    1
}

impl Stage {
    /// Its name, and the pass where that is not the first.
    fn label(&self) -> String {
        match self.pass {
            1 => self.name.clone(),
            pass => format!("{} {pass}", self.name),
        }
    }
}

/// Times of a pass as multiples of those of the first, cell by cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Drift {
    /// Of the cell that gained most.
    pub least: f64,
    /// Of the middle cell.
    pub middle: f64,
    /// Of the cell that lost most.
    pub greatest: f64,
    /// The cell that lost most.
    pub slowest: String,
}

impl Drift {
    /// Of the cells of a pass; none where there are none.
    #[must_use]
    pub fn of<'a>(cells: impl Iterator<Item = (&'a str, f64)>) -> Option<Self> {
        let mut cells: Vec<(&str, f64)> = cells.collect();
        cells.sort_by(|one, other| one.1.total_cmp(&other.1));
        let ratios: Vec<f64> = cells.iter().map(|(_, ratio)| *ratio).collect();
        let (slowest, greatest) = cells.last()?;
        Some(Self {
            least: *ratios.first()?,
            middle: stats::middle(&ratios),
            greatest: *greatest,
            slowest: (*slowest).to_owned(),
        })
    }

    /// As a part of a sentence.
    #[must_use]
    pub fn in_words(&self) -> String {
        format!(
            "{:.2} times the first pass in the middle, {:.2} to {:.2} ({})",
            self.middle, self.least, self.greatest, self.slowest
        )
    }
}

/// Something to look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Remark {
    /// What it is about: the stage, or a check of the doctor.
    pub about: String,
    /// What is wrong.
    pub what: String,
    /// Where that was seen.
    pub evidence: String,
    /// What to do.
    pub remedy: String,
}

impl Validation {
    /// Before the first stage.
    #[must_use]
    pub fn begun() -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            tool: crate::TOOL.to_owned(),
            command: "validate".to_owned(),
            passed: false,
            partial: true,
            backend: None,
            emulated: false,
            outcome: Outcome::Interrupted,
            elapsed_us: 0,
            stages: Vec::new(),
            machine: Some(Machine::here()),
            origin: Some(Origin::here(&Environment::capture())),
        }
    }

    /// Takes in what came of a stage.
    pub fn add(&mut self, stage: Stage, is_last: bool) {
        self.stages.push(stage);
        if is_last {
            self.remark_drift();
        }
        let worst = self.stages.iter().map(|stage| stage.outcome).max();
        self.outcome = worst.unwrap_or(Outcome::Interrupted);
        self.partial = !is_last || self.outcome == Outcome::Interrupted;
        self.passed = !self.partial && self.outcome <= Outcome::Remarks;
    }

    /// Remarks on stages that were slower in the later half of their passes: heat, or memory that is never given back.
    fn remark_drift(&mut self) {
        let timed = self.stages.iter().filter(|stage| stage.drift.is_some());
        let names: BTreeSet<String> = timed.map(|stage| stage.name.clone()).collect();
        for name in names {
            let of_name = self.stages.iter().filter(|stage| stage.name == name);
            let drifts = of_name.filter_map(|stage| stage.drift.as_ref());
            let middles: Vec<f64> = drifts.map(|drift| drift.middle).collect();
            let later = &middles[middles.len() / 2..];
            if middles.len() < PASSES_MIN || later.iter().any(|middle| *middle < SLOWER) {
                continue;
            }
            let passes: Vec<String> = middles.iter().map(|one| format!("{one:.2}")).collect();
            let Some(last) = self.stages.iter_mut().rfind(|stage| stage.name == name) else {
                continue;
            };
            last.outcome = last.outcome.max(Outcome::Remarks);
            last.remarks.push(Remark {
                about: name,
                what: "later passes are slower than the first".to_owned(),
                evidence: format!("the middle cell, pass by pass: {}", passes.join(", ")),
                remedy:
                    "look at clocks and temperatures under load, and at what else ran on the host"
                        .to_owned(),
            });
        }
    }

    /// The class of the outcome: that of the first stage that refused the host.
    #[must_use]
    pub fn exit(&self) -> Exit {
        let refused = |stage: &&Stage| stage.outcome == Outcome::Refused;
        match self.stages.iter().find(refused) {
            Some(stage) if stage.class == Exit::Ok => Exit::Internal,
            Some(stage) => stage.class,
            None if self.partial => Exit::Interrupted,
            None => Exit::Ok,
        }
    }

    fn remarks(&self) -> impl Iterator<Item = &Remark> {
        self.stages.iter().flat_map(|stage| &stage.remarks)
    }

    fn sentence(&self) -> String {
        let stages = counted(self.stages.len() as u64, "stage", "stages");
        let remarks = self.remarks().count() as u64;
        let remarks = match remarks {
            0 => String::new(),
            many => format!(", {}", counted(many, "remark", "remarks")),
        };
        let on = if self.emulated {
            " on EMULATED devices"
        } else {
            ""
        };
        format!(
            "{stages}{remarks} in {:.1} s{on}",
            self.elapsed_us as f64 / 1e6
        )
    }

    fn word(&self) -> &'static str {
        match self.outcome {
            Outcome::Remarks if !self.partial => "accepted with remarks",
            Outcome::Refused => "refused",
            Outcome::Accepted if !self.partial => "accepted",
            Outcome::Accepted | Outcome::Interrupted | Outcome::Remarks => "interrupted",
        }
    }

    fn mood(&self) -> Mood {
        if self.partial && self.outcome == Outcome::Accepted {
            Mood::Care
        } else {
            self.outcome.mood()
        }
    }

    /// What is below the lines of the stages.
    #[must_use]
    pub fn closing(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        for remark in self.remarks() {
            let (about, what) = (escaped(&remark.about), escaped(&remark.what));
            let _ = writeln!(text, "\n{STRONG}{about}{STRONG:#}: {what}");
            for (word, part) in [("seen", &remark.evidence), ("do", &remark.remedy)] {
                if !part.is_empty() {
                    let _ = writeln!(text, "  {word:<5} {}", escaped(part));
                }
            }
        }
        let style = self.mood().style();
        let _ = writeln!(
            text,
            "\n{style}{}{style:#}: {}",
            self.word(),
            self.sentence()
        );
        text
    }
}

/// What is above the lines.
#[must_use]
pub fn head() -> String {
    let names = terminal::head(COLUMNS, terminal_width());
    names
        .lines()
        .take(1)
        .map(|line| format!("{line}\n"))
        .collect()
}

/// The line of a stage.
#[must_use]
pub fn line(stage: &Stage) -> String {
    terminal::line(COLUMNS, terminal_width(), stage, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(number: u32, middle: f64) -> Stage {
        let cells = [("a", middle * 0.9), ("b", middle), ("c", middle * 1.2)];
        Stage {
            name: "bench".to_owned(),
            pass: number,
            command: String::new(),
            outcome: Outcome::Accepted,
            class: Exit::Ok,
            exit_code: 0,
            finding: String::new(),
            remarks: Vec::new(),
            elapsed_us: 0,
            result: None,
            drift: (number > 1).then(|| Drift::of(cells.into_iter())).flatten(),
        }
    }

    fn soaked(middles: &[f64]) -> Validation {
        let mut found = Validation::begun();
        found.add(pass(1, 1.0), false);
        for (number, middle) in (2..).zip(middles) {
            let is_last = number as usize == middles.len() + 1;
            found.add(pass(number, *middle), is_last);
        }
        found
    }

    #[test]
    fn passes_that_grow_slower_are_a_remark_and_no_refusal() {
        let found = soaked(&[1.0, 1.02, 1.2, 1.25]);
        assert!(found.passed && !found.partial);
        assert_eq!(found.outcome, Outcome::Remarks);
        let remark = found.remarks().next().expect("a remark");
        assert_eq!(
            remark.evidence,
            "the middle cell, pass by pass: 1.00, 1.02, 1.20, 1.25"
        );
    }

    #[test]
    fn slow_passes_at_the_beginning_and_single_ones_are_no_remark() {
        for middles in [
            &[1.3, 1.2, 1.0, 1.0][..],
            &[1.0, 1.0, 1.0, 1.3],
            &[1.5, 1.5, 1.5],
        ] {
            let found = soaked(middles);
            assert_eq!(found.outcome, Outcome::Accepted, "{middles:?}");
        }
    }

    #[test]
    fn a_drift_names_the_cell_that_lost_most() {
        let drift = pass(2, 1.0).drift.expect("a drift");
        assert_eq!(
            drift.in_words(),
            "1.00 times the first pass in the middle, 0.90 to 1.20 (c)"
        );
        assert_eq!(Drift::of(std::iter::empty()), None);
    }
}
