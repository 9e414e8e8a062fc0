//! The report of `verify`: what was checked, what came out, and who is to blame.
//!
//! Field names and their order are a contract with other programs; `schema_version` rises when one
//! changes its meaning or goes away. The model knows no terminal and no process.
//!
//! REPORT-1: a report has passed only if it has no verdict, ran every case it planned, and every
//! case passed. A missing result is a failed case.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::exit::Exit;

/// Version of the report's fields.
pub const SCHEMA_VERSION: u32 = 1;

/// The program that wrote a report.
pub const TOOL: &str = concat!("muster ", env!("CARGO_PKG_VERSION"));

/// The outcome of `verify`.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
    /// Seed of the inputs: the same seed gives the same data.
    pub seed: u64,
    /// Wall time of the run in microseconds.
    pub elapsed_us: u64,
    /// What ran, a matrix each, in the order of the command line.
    pub matrices: Vec<MatrixSummary>,
    /// Every case of every matrix.
    pub cases: Vec<Case>,
    /// What the devices do not have: neither passed nor failed, and not among the cases. Empty on the
    /// host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_applicable: Vec<NotApplicable>,
    /// The cause, when the run failed.
    pub verdict: Option<Verdict>,
}

/// A call, type or reduction that the devices do not have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
}

/// How a matrix ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
pub struct GroupCount {
    /// Kind of group: `tp`, `dp-cp`, …
    pub kind: String,
    /// Number of groups of it.
    pub count: u32,
}

/// One thing that was checked on one group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
}

/// What was wrong with a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// Why a run failed: one cause, the first one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Class of the cause; see the table of exit codes.
    pub class: Exit,
    /// The number the program exits with.
    pub exit_code: u8,
    /// Name of the matrix, if one ran.
    pub matrix: Option<String>,
    /// World ranks that are to blame, ascending; empty where nobody is.
    pub blamed: Vec<u32>,
    /// One line for people.
    pub text: String,
    /// What the verdict rests on, a line each.
    pub evidence: Vec<String>,
    /// What to do next.
    pub next: Option<String>,
}

impl Verdict {
    /// A verdict of a class, without a culprit so far.
    #[must_use]
    pub fn new(class: Exit, text: impl Into<String>) -> Self {
        Self {
            class,
            exit_code: class.code(),
            matrix: None,
            blamed: Vec::new(),
            text: text.into(),
            evidence: Vec::new(),
            next: None,
        }
    }
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
            seed,
            elapsed_us: 0,
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

    /// Decides whether the report has passed, and adds a verdict where cases failed without one.
    pub fn close(&mut self) {
        if self.verdict.is_none() {
            self.verdict = self.verdict_of_cases();
        }
        let ran = self
            .matrices
            .iter()
            .any(|matrix| matrix.outcome == Outcome::Passed);
        let clean = self.matrices.iter().all(|matrix| match matrix.outcome {
            Outcome::Passed | Outcome::Skipped => true,
            Outcome::Aborted | Outcome::Failed => false,
        });
        if self.verdict.is_none() && !(ran && clean) {
            // REPORT-1: nothing proved is not a pass.
            self.verdict = Some(Verdict::new(
                Exit::Internal,
                "no matrix ran to its end, and nothing says why",
            ));
        }
        self.passed = self.verdict.is_none();
    }

    /// The exit code class that the report stands for.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match &self.verdict {
            Some(verdict) => verdict.class,
            None if self.passed => Exit::Ok,
            None => Exit::Internal,
        }
    }

    /// The cases that failed, in order.
    pub fn failures(&self) -> impl Iterator<Item = &Case> {
        self.cases.iter().filter(|case| !case.passed)
    }

    fn verdict_of_cases(&self) -> Option<Verdict> {
        let failures: Vec<&Case> = self.failures().collect();
        let first = failures.first()?;
        // Wrong data outranks a case that failed for another reason: it is what users lose sleep
        // over.
        let wrong = failures.iter().find(|case| {
            case.detail
                .as_ref()
                .is_some_and(|detail| detail.first_wrong.is_some())
        });
        let (class, case) = match wrong {
            Some(case) => (Exit::Data, *case),
            None => (Exit::FailedCell, *first),
        };
        let mut verdict = Verdict::new(class, case.headline());
        verdict.matrix = Some(case.matrix.clone());
        verdict.blamed = common_blame(&failures);
        verdict.evidence = failures
            .iter()
            .take(EVIDENCE_MAX)
            .map(|case| case.headline())
            .collect();
        verdict.next = Some(match verdict.blamed.as_slice() {
            [] => "run the failing matrix alone, with --dtypes and --sizes narrowed to the first failure".to_owned(),
            ranks => format!(
                "look at rank {}: every failure can be explained by it",
                listed(ranks)
            ),
        });
        Some(verdict)
    }
}

/// Lines of evidence kept in a verdict; the cases themselves hold the rest.
const EVIDENCE_MAX: usize = 8;

/// The ranks that every failure that blames somebody has in common.
fn common_blame(failures: &[&Case]) -> Vec<u32> {
    let mut common: Option<Vec<u32>> = None;
    let blamed = failures
        .iter()
        .filter_map(|case| case.detail.as_ref())
        .map(|detail| &detail.blamed)
        .filter(|blamed| !blamed.is_empty());
    for ranks in blamed {
        common = Some(match common {
            None => ranks.clone(),
            Some(so_far) => so_far
                .into_iter()
                .filter(|rank| ranks.contains(rank))
                .collect(),
        });
    }
    common.unwrap_or_default()
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

/// Ranks as text: runs of neighbours become `0-7`.
#[must_use]
pub fn listed(ranks: &[u32]) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut at = 0;
    while let Some(first) = ranks.get(at).copied() {
        let mut last = first;
        let mut end = at + 1;
        while let Some(next) = ranks.get(end).copied()
            && last.checked_add(1) == Some(next)
        {
            last = next;
            end += 1;
        }
        // Two neighbours read better apart.
        if end - at >= 3 {
            parts.push(format!("{first}-{last}"));
        } else {
            parts.extend(ranks.iter().take(end).skip(at).map(u32::to_string));
        }
        at = end;
    }
    parts.join(", ")
}

#[cfg(test)]
pub(crate) mod fixtures {
    use super::*;

    pub(crate) fn case(passed: bool) -> Case {
        Case {
            matrix: "tp2ep4".to_owned(),
            world_size: 8,
            group: "ep".to_owned(),
            ranks: vec![0, 2, 4, 6],
            check: "collective".to_owned(),
            collective: Some("all_reduce".to_owned()),
            dtype: Some("f32".to_owned()),
            count: Some(1000),
            passed,
            elapsed_us: 12,
            detail: None,
        }
    }

    pub(crate) fn wrong(blamed: &[u32]) -> Case {
        let mut case = case(false);
        case.detail = Some(Detail {
            blamed: blamed.to_vec(),
            seen_by: 2,
            seen_by_all: vec![2],
            first_wrong: Some(17),
            expected: Some("3".to_owned()),
            got: Some("4".to_owned()),
            wrong: Some(1),
            text: "element 17 is 4, expected 3, seen by rank 2".to_owned(),
        });
        case
    }

    pub(crate) fn summary(outcome: Outcome) -> MatrixSummary {
        MatrixSummary {
            matrix: "tp2ep4".to_owned(),
            world_size: 8,
            tp: 2,
            ep: 4,
            dp: 4,
            cp: 1,
            pp: 1,
            etp: 2,
            groups: vec![GroupCount {
                kind: "tp".to_owned(),
                count: 4,
            }],
            cases: 2,
            cases_passed: 2,
            elapsed_us: 1_500_000,
            bring_up_us: Some(40_000),
            outcome,
            reason: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fixtures::{case, summary, wrong};
    use super::*;

    fn report(cases: Vec<Case>, outcome: Outcome) -> Report {
        let mut report = Report::new("host", false, 1);
        report.cases = cases;
        report.matrices.push(summary(outcome));
        report.close();
        report
    }

    #[test]
    fn a_report_passes_only_when_every_case_did() {
        let passed = report(vec![case(true)], Outcome::Passed);
        assert!(passed.passed);
        assert_eq!(passed.exit(), Exit::Ok);
        let failed = report(vec![case(true), case(false)], Outcome::Failed);
        assert!(!failed.passed);
        assert_eq!(failed.exit(), Exit::FailedCell);
    }

    #[test]
    fn a_report_in_which_nothing_ran_is_not_a_pass() {
        let mut empty = Report::new("host", false, 1);
        empty.close();
        assert_eq!(empty.exit(), Exit::Internal);
        let skipped = report(Vec::new(), Outcome::Skipped);
        assert_eq!(skipped.exit(), Exit::Internal);
        let aborted = report(vec![case(true)], Outcome::Aborted);
        assert_eq!(aborted.exit(), Exit::Internal);
    }

    #[test]
    fn wrong_data_outranks_other_failures_and_blames_whom_all_failures_share() {
        let report = report(
            vec![case(false), wrong(&[2, 4]), wrong(&[2])],
            Outcome::Failed,
        );
        let verdict = report.verdict.as_ref().expect("a verdict");
        assert_eq!(verdict.class, Exit::Data);
        assert_eq!(verdict.exit_code, 40);
        assert_eq!(verdict.blamed, [2]);
        assert!(
            verdict
                .text
                .contains("group ep [0, 2, 4, 6]: all_reduce f32[1000]"),
            "{verdict:?}"
        );
    }

    #[test]
    fn runs_of_ranks_are_folded() {
        assert_eq!(listed(&[]), "");
        assert_eq!(listed(&[3]), "3");
        assert_eq!(listed(&[0, 1]), "0, 1");
        assert_eq!(listed(&[0, 1, 2, 3, 8, 9, 10, 12]), "0-3, 8-10, 12");
        assert_eq!(listed(&[u32::MAX]), u32::MAX.to_string());
    }
}
