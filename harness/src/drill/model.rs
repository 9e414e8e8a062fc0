//! What came of drills, for printing and for reports.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::plan::Transport;
use super::told::Said;
use crate::exit::Exit;
use crate::report::machine::Machine;
use crate::report::origin::Origin;

/// Version of the JSON document.
pub const SCHEMA_VERSION: u32 = 1;

/// All runs of a suite.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Report {
    /// Version of this form.
    pub schema_version: u32,
    /// `muster`.
    pub tool: Cow<'static, str>,
    /// Whether every run passed or was skipped, and one at least passed.
    pub passed: bool,
    /// Whether somebody stopped the suite before its end.
    pub interrupted: bool,
    /// Seed of everything that is left to chance.
    pub seed: u64,
    /// How long all of it took, in milliseconds.
    pub elapsed_ms: u64,
    /// Where they took place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<Machine>,
    /// When and how.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// The runs, in order.
    pub drills: Vec<Run>,
}

/// One run of a drill.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Run {
    /// Its number in the catalogue of faults.
    pub id: Cow<'static, str>,
    /// Its name.
    pub name: Cow<'static, str>,
    /// Whether it is a control: nothing is wrong, and nobody may say so.
    pub control: bool,
    /// Whether it belongs to the first wave.
    pub first_wave: bool,
    /// What carried the ranks' bytes.
    pub transport: Transport,
    /// Number of ranks.
    pub world_size: u32,
    /// Which repetition this is, from 1.
    pub repetition: u32,
    /// What was done.
    pub injected: String,
    /// What had to come of it.
    pub expected: Expected,
    /// What the survivors said.
    pub verdict: Option<Said>,
    /// From the fault to the last survivor's return, in milliseconds.
    pub detected_ms: Option<f64>,
    /// How long that may be.
    pub bound_ms: f64,
    /// Whether all survivors returned.
    pub survivors_returned: bool,
    /// The five assertions; empty where the drill was skipped.
    pub assertions: Vec<Assertion>,
    /// What was left behind.
    pub leaks: Vec<String>,
    /// How it ended.
    pub outcome: RunOutcome,
    /// Whether it passed.
    pub passed: bool,
    /// Why not, or why it was skipped.
    pub reasons: Vec<String>,
    /// What ranks have looked at, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// How long the run took, in milliseconds.
    pub elapsed_ms: u64,
}

/// What had to come of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Expected {
    /// The class; `OK` where nothing may be said.
    pub class: Cow<'static, str>,
    /// Whom to blame, in words.
    pub blamed: String,
    /// The exit code, where there is one.
    pub exit_code: Option<u8>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum RunOutcome {
    /// An assertion does not hold.
    Failed,
    /// All assertions hold.
    Passed,
    /// It could not be carried out here.
    Skipped,
}

/// One of the five assertions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Assertion {
    /// Its name.
    pub name: Cow<'static, str>,
    /// Whether it holds.
    pub holds: bool,
}

impl Report {
    /// The class of the outcome.
    #[must_use]
    pub fn exit(&self) -> Exit {
        if self.interrupted {
            Exit::Interrupted
        } else if self.runs(RunOutcome::Failed) > 0 {
            Exit::FailedCell
        } else if self.runs(RunOutcome::Passed) == 0 {
            // Nothing was proved: this machine lacks what the drills need.
            Exit::Resource
        } else {
            Exit::Ok
        }
    }

    /// How many drills (not runs) passed in all their runs, and how many were run: of the first wave's
    /// faults, of other faults, and of controls.
    #[must_use]
    pub fn counts(&self) -> [(usize, usize); 3] {
        let kinds: [fn(&Run) -> bool; 3] = [
            |run| run.first_wave,
            |run| !run.first_wave && !run.control,
            |run| !run.first_wave && run.control,
        ];
        kinds.map(|is_of| {
            let mut names: Vec<&str> = Vec::new();
            for run in self.drills.iter().filter(|run| is_of(run)) {
                if run.outcome != RunOutcome::Skipped && !names.contains(&run.name.as_ref()) {
                    names.push(&run.name);
                }
            }
            let passed = names.iter().filter(|name| {
                let mut runs = self.drills.iter().filter(|run| run.name == **name);
                runs.all(|run| run.outcome != RunOutcome::Failed)
            });
            (passed.count(), names.len())
        })
    }

    /// Number of runs that ended so.
    #[must_use]
    pub fn runs(&self, outcome: RunOutcome) -> usize {
        self.drills
            .iter()
            .filter(|run| run.outcome == outcome)
            .count()
    }
}
