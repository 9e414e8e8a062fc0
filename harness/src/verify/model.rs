//! The report of `verify`: what was checked, what came out, and who is to blame.
//!
//! Field names and their order are a contract with other programs; `schema_version` rises when one
//! changes its meaning or goes away. The model knows no terminal and no process.
//!
//! REPORT-1: a report has passed only if it has no verdict, ran every case it planned, and every
//! case passed. A missing result is a failed case.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::TOOL;
use crate::report::cause::{Cause, listed};
use crate::report::machine::Machine;
use crate::report::origin::Origin;

/// Version of the report's fields.
pub const SCHEMA_VERSION: u32 = 1;

/// The outcome of `verify`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Report {
    /// Version of these fields: [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Program and version that wrote this.
    pub tool: String,
    /// What moved the data: `host` or `hccl`.
    pub backend: String,
    /// Whether the device was an emulated one. Such a result says nothing about hardware.
    pub emulated: bool,
    /// Whether everything asked for ran and passed.
    pub passed: bool,
    /// Whether something that was asked for did not run to its end.
    #[serde(default)]
    pub partial: bool,
    /// Seed of the inputs: the same seed gives the same data.
    pub seed: u64,
    /// Wall time of the run in microseconds.
    pub elapsed_us: u64,
    /// Where it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Machine>,
    /// When and how it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// What ran, a matrix each, in the order of the command line.
    pub matrices: Vec<MatrixSummary>,
    /// Every case of every matrix.
    pub cases: Vec<Case>,
    /// What the devices do not have: neither passed nor failed, and not among the cases. Empty on the
    /// host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_applicable: Vec<NotApplicable>,
    /// The cause, when the run failed.
    pub verdict: Option<Cause>,
}

/// A call, type or reduction that the devices do not have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NotApplicable {
    /// The call.
    pub collective: Option<String>,
    /// Element type.
    pub dtype: Option<String>,
    /// The reduction, where only that is missing; the rest of such a case was checked.
    pub op: Option<String>,
    /// Why, with what there is.
    pub why: String,
    /// Number of cases that it concerns.
    pub cases: u64,
}

impl NotApplicable {
    /// Whether two rows say the same but for their numbers of cases.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        self.collective == other.collective
            && self.dtype == other.dtype
            && self.op == other.op
            && self.why == other.why
    }
}

/// Sizes and totals of one matrix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MatrixSummary {
    /// Its name, as on the command line.
    pub matrix: String,
    /// Number of ranks.
    pub world_size: u32,
    /// Tensor parallel size.
    pub tp: u32,
    /// Expert parallel size.
    pub ep: u32,
    /// Data parallel size of the dense part.
    pub dp: u32,
    /// Context parallel size.
    pub cp: u32,
    /// Pipeline parallel size.
    pub pp: u32,
    /// Expert tensor parallel size.
    pub etp: u32,
    /// Number of groups checked, by kind, in the order of creation.
    pub groups: Vec<GroupCount>,
    /// Cases that were planned.
    pub cases: u64,
    /// Cases that passed.
    pub cases_passed: u64,
    /// Time from starting the ranks to their end, in microseconds.
    pub elapsed_us: u64,
    /// Time from starting the ranks to the end of their first barrier, in microseconds.
    pub bring_up_us: Option<u64>,
    /// How it ended.
    pub outcome: Outcome,
    /// Why, where the outcome is not a pass.
    pub reason: Option<String>,
    /// How long the rank of a row waited for that of a column in calls that all members leave together, in microseconds;
    /// empty where nobody did, and with more than 64 ranks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits_us: Vec<Vec<u64>>,
}

/// How a matrix ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Ended before every case had run.
    Aborted,
    /// Ran to its end; a case failed.
    Failed,
    /// Every case passed.
    Passed,
    /// Never started.
    Skipped,
}

impl Outcome {
    /// The word that reports use.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Aborted => "aborted",
            Self::Failed => "failed",
            Self::Passed => "passed",
            Self::Skipped => "skipped",
        }
    }
}

/// How many groups of one kind were checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GroupCount {
    /// Kind of group: `tp`, `dp-cp`, …
    pub kind: String,
    /// Number of groups of it.
    pub count: u32,
}

/// One thing that was checked on one group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Case {
    /// Name of the matrix.
    pub matrix: String,
    /// Number of ranks of the matrix.
    pub world_size: u32,
    /// Kind of the group: `tp`, `dp-cp`, …, or `world`.
    pub group: String,
    /// World ranks of the group's members, in the group's order.
    pub ranks: Vec<u32>,
    /// What was checked: `membership`, `collective`, `object`, …
    pub check: String,
    /// The call that was checked, where the check is about one.
    pub collective: Option<String>,
    /// Element type, where there is one.
    pub dtype: Option<String>,
    /// Number of elements, where there are any.
    pub count: Option<u64>,
    /// Whether every member said that it was right.
    pub passed: bool,
    /// Time on the slowest member, in microseconds.
    pub elapsed_us: u64,
    /// What was wrong, when it failed.
    pub detail: Option<Detail>,
    /// By which algorithm the last call of the check went, if one was selected; see `docs/tuning.md`.
    #[serde(default)]
    pub algo: Option<String>,
}

/// What was wrong with a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Detail {
    /// World ranks whose contribution or behaviour explains the failure, if that could be told.
    pub blamed: Vec<u32>,
    /// World rank that saw it first.
    pub seen_by: u32,
    /// World ranks that saw it.
    pub seen_by_all: Vec<u32>,
    /// Index of the first wrong element in the receiver's buffer.
    pub first_wrong: Option<u64>,
    /// What that element should have been.
    pub expected: Option<String>,
    /// What it was.
    pub got: Option<String>,
    /// Number of wrong elements that the first observer counted.
    pub wrong: Option<u64>,
    /// One sentence fragment that says it all.
    pub text: String,
}

impl Report {
    /// An empty report, to be filled matrix by matrix.
    #[must_use]
    pub fn new(backend: impl Into<String>, emulated: bool, seed: u64) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            tool: TOOL.to_owned(),
            backend: backend.into(),
            emulated,
            passed: false,
            partial: false,
            seed,
            elapsed_us: 0,
            machine: None,
            origin: None,
            matrices: Vec::new(),
            cases: Vec::new(),
            not_applicable: Vec::new(),
            verdict: None,
        }
    }

    /// Adds rows of what devices do not have to those of other matrices.
    pub fn add_not_applicable(&mut self, rows: Vec<NotApplicable>) {
        for row in rows {
            match self
                .not_applicable
                .iter_mut()
                .find(|known| known.is_like(&row))
            {
                Some(known) => known.cases += row.cases,
                None => self.not_applicable.push(row),
            }
        }
    }
}

impl Case {
    /// The case and what was wrong with it, in one line.
    #[must_use]
    pub fn headline(&self) -> String {
        let mut line = format!(
            "{}: group {} [{}]",
            self.matrix,
            self.group,
            listed(&self.ranks)
        );
        line.push_str(": ");
        line.push_str(self.collective.as_deref().unwrap_or(&self.check));
        if let Some(dtype) = &self.dtype {
            line.push(' ');
            line.push_str(dtype);
        }
        if let Some(count) = self.count {
            // Writing to a string cannot fail.
            let _ = write!(line, "[{count}]");
        }
        if let Some(detail) = &self.detail {
            line.push_str(": ");
            line.push_str(&detail.text);
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::json::line;
    use crate::verify::fixtures;

    #[test]
    fn the_document_has_exactly_the_promised_fields() {
        let mut report = Report::new("host", false, 7);
        report.matrices.push(fixtures::summary(Outcome::Failed));
        report.cases.push(fixtures::wrong(&[1]));
        report.close();
        let text = line(&report).expect("renders");
        assert!(text.ends_with("}\n"));
        let value: serde_json::Value = serde_json::from_str(&text).expect("one document");
        let keys = |value: &serde_json::Value| -> Vec<String> {
            value
                .as_object()
                .expect("an object")
                .keys()
                .cloned()
                .collect()
        };
        assert_eq!(
            keys(&value),
            [
                "schema_version",
                "tool",
                "backend",
                "emulated",
                "passed",
                "partial",
                "seed",
                "elapsed_us",
                "matrices",
                "cases",
                "verdict"
            ]
        );
        assert_eq!(
            keys(&value["cases"][0]),
            [
                "matrix",
                "world_size",
                "group",
                "ranks",
                "check",
                "collective",
                "dtype",
                "count",
                "passed",
                "elapsed_us",
                "detail",
                "algo"
            ]
        );
        assert_eq!(
            keys(&value["verdict"]),
            [
                "class",
                "exit_code",
                "matrix",
                "blamed",
                "text",
                "evidence",
                "next"
            ]
        );
        assert_eq!(value["verdict"]["class"], "DATA");
        assert_eq!(value["passed"], false);
    }
}
