//! The result of `verify` as a document.

use std::fmt::Write as _;

use maud::Markup;
use serde_json::Value;

use crate::exit::Exit;
use crate::fail::Failure;
use crate::report::cause::listed;
use crate::report::document::{
    About, Comparable, Document, Headline, Metric, Model, Row, Suite, SuiteCase, SuiteResult, sheet,
};
use crate::report::html::parts::{counted, number};
use crate::report::json;
use crate::report::markdown::{self, Column};
use crate::verify::model::{Case, MatrixSummary, Outcome, Report, SCHEMA_VERSION};
use crate::verify::table;

/// Failed cases of a group and call that are told in full.
const TOLD_MAX: usize = 20;
/// Failed cases that Markdown lists.
const LISTED_MAX: usize = 30;

/// The columns of the sheet.
const SHEET: &str = "matrix world_size group ranks check collective dtype count passed elapsed_us \
    blamed=detail.blamed wrong=detail.wrong text=detail.text";

const TABLE: &[Column<MatrixSummary>] = &[
    ("matrix", |matrix| matrix.matrix.clone()),
    (">ranks", |matrix| matrix.world_size.to_string()),
    (">groups", |matrix| {
        let groups: u32 = matrix.groups.iter().map(|group| group.count).sum();
        groups.to_string()
    }),
    (">checks", |matrix| matrix.cases.to_string()),
    (">passed", |matrix| matrix.cases_passed.to_string()),
    (">time", |matrix| {
        format!("{:.2} s", matrix.elapsed_us as f64 / 1e6)
    }),
    ("result", |matrix| result_in_words(matrix)),
];

impl Model for Report {
    const COMMAND: &'static str = "verify";
    const VERSION: u32 = SCHEMA_VERSION;
    const MARKS: &'static [&'static str] = &["cases", "matrices"];
}

impl Document for Report {
    fn about(&self) -> About<'_> {
        About {
            command: "verify",
            tool: &self.tool,
            schema_version: self.schema_version,
            exit: self.exit(),
            partial: self.partial,
            backend: Some(&self.backend),
            emulated: self.emulated,
            seed: Some(self.seed),
            elapsed_us: self.elapsed_us,
            verdict: self.verdict.as_ref(),
            machine: self.machine.as_ref(),
            origin: self.origin.as_ref(),
        }
    }

    fn headline(&self) -> Headline {
        let sentence = match &self.verdict {
            Some(verdict) => self
                .failed_in_words()
                .unwrap_or_else(|| verdict.text.clone()),
            None => self.passed_in_words(),
        };
        Headline::of(self.exit(), sentence)
    }

    fn json(&self) -> Result<String, Failure> {
        json::line(self)
    }

    fn body(&self) -> Markup {
        super::page::body(self)
    }

    fn suites(&self) -> Vec<Suite> {
        self.matrices
            .iter()
            .map(|matrix| self.suite(matrix))
            .collect()
    }

    fn sheet(&self) -> Vec<Vec<String>> {
        sheet(&self.cases, SHEET, |_| Value::Null)
    }

    fn metrics(&self) -> Vec<Metric> {
        let by = |label: &str, value: &dyn Fn(&MatrixSummary) -> f64| {
            let labels = |matrix: &MatrixSummary| {
                let mut labels = vec![("matrix", matrix.matrix.clone())];
                if !label.is_empty() {
                    labels.push(("result", label.to_owned()));
                }
                labels
            };
            let of = self.matrices.iter().map(|m| (labels(m), value(m)));
            of.collect::<Vec<_>>()
        };
        let mut cases = by("passed", &|m| m.cases_passed as f64);
        cases.extend(by("failed", &|m| {
            self.cases_of(m).filter(|case| !case.passed).count() as f64
        }));
        vec![
            Metric {
                name: "muster_verify_matrix_passed",
                help: "Whether every case of the matrix passed",
                samples: by("", &|m| f64::from(m.outcome == Outcome::Passed)),
            },
            Metric {
                name: "muster_verify_cases",
                help: "Cases of the matrix by their result",
                samples: cases,
            },
            Metric {
                name: "muster_verify_matrix_seconds",
                help: "Time from starting the ranks of the matrix to their end",
                samples: by("", &|m| m.elapsed_us as f64 / 1e6),
            },
        ]
    }

    fn markdown(&self) -> String {
        let mut text = markdown::table(&self.matrices, TABLE, usize::MAX);
        let failures: Vec<&Case> = self.failures().collect();
        if !failures.is_empty() {
            text.push_str("\n#### What failed\n\n");
        }
        for case in failures.iter().take(LISTED_MAX) {
            let _ = writeln!(text, "- {}", markdown::cell(&case.headline()));
        }
        if failures.len() > LISTED_MAX {
            let _ = writeln!(text, "- and {} more", failures.len() - LISTED_MAX);
        }
        text
    }

    fn text(&self) -> String {
        table::render(self)
    }

    /// Times of single checks are no repeated samples and hold the time to compute what must come out, so
    /// they are left out.
    fn comparable(&self) -> Option<Comparable<'_>> {
        Some(Comparable {
            rows: self.cases.iter().map(compared).collect(),
            timed: None,
        })
    }
}

impl Report {
    /// The cases of a matrix.
    pub(super) fn cases_of<'a>(
        &'a self,
        matrix: &'a MatrixSummary,
    ) -> impl Iterator<Item = &'a Case> {
        self.cases
            .iter()
            .filter(|case| case.matrix == matrix.matrix)
    }

    /// How many checks failed and who explains them, where the verdict rests on checks.
    fn failed_in_words(&self) -> Option<String> {
        let failed = self.failures().count() as u64;
        let verdict = self.verdict.as_ref()?;
        if failed == 0 || !matches!(verdict.class, Exit::Data | Exit::FailedCell) {
            return None;
        }
        let all = counted(self.cases.len() as u64, "check", "checks");
        let failed = format!("{} of {all} failed", number(failed));
        Some(match verdict.blamed.as_slice() {
            [] => format!("{failed}; first, {}", verdict.text),
            [rank] => format!("{failed}, and rank {rank} can explain them"),
            ranks => format!("{failed}, and ranks {} can explain them", listed(ranks)),
        })
    }

    fn passed_in_words(&self) -> String {
        let ran = self
            .matrices
            .iter()
            .filter(|m| m.outcome == Outcome::Passed);
        let (mut matrices, mut most) = (0, 0);
        for matrix in ran {
            matrices += 1;
            most = most.max(matrix.world_size);
        }
        let skipped = self.matrices.len() - matrices;
        let mut text = format!(
            "{} passed in {} with up to {}",
            counted(self.cases.len() as u64, "check", "checks"),
            counted(matrices as u64, "matrix", "matrices"),
            counted(u64::from(most), "rank", "ranks"),
        );
        if skipped > 0 {
            let _ = write!(
                text,
                "; {} skipped",
                counted(skipped as u64, "matrix", "matrices")
            );
        }
        text
    }

    /// One case for each kind of group and call.
    fn suite(&self, matrix: &MatrixSummary) -> Suite {
        let mut kinds: Vec<((&str, &str), Vec<&Case>)> = Vec::new();
        for case in self.cases_of(matrix) {
            let key = (case.group.as_str(), call_of(case));
            match kinds.iter_mut().rev().find(|(known, _)| *known == key) {
                Some((_, cases)) => cases.push(case),
                None => kinds.push((key, vec![case])),
            }
        }
        let mut cases: Vec<SuiteCase> = kinds
            .into_iter()
            .map(|((group, call), cases)| SuiteCase {
                class: format!("verify.{}.{group}", matrix.matrix),
                name: call.to_owned(),
                elapsed_us: cases.iter().map(|case| case.elapsed_us).sum(),
                result: together(&cases),
            })
            .collect();
        if cases.is_empty() {
            let reason = matrix.reason.clone().unwrap_or_default();
            cases.push(SuiteCase {
                class: format!("verify.{}", matrix.matrix),
                name: "matrix".to_owned(),
                elapsed_us: matrix.elapsed_us,
                result: match matrix.outcome {
                    Outcome::Skipped => SuiteResult::Skipped(reason),
                    Outcome::Aborted | Outcome::Failed | Outcome::Passed => {
                        SuiteResult::Error(reason)
                    }
                },
            });
        }
        Suite {
            name: matrix.matrix.clone(),
            cases,
        }
    }
}

/// The call of a case, or what was checked where it is about none.
pub(super) fn call_of(case: &Case) -> &str {
    case.collective.as_deref().unwrap_or(&case.check)
}

/// What became of cases that are counted as one.
fn together(cases: &[&Case]) -> SuiteResult {
    let failed: Vec<&&Case> = cases.iter().filter(|case| !case.passed).collect();
    let Some(first) = failed.first() else {
        return SuiteResult::Passed;
    };
    let mut lines: Vec<String> = failed.iter().take(TOLD_MAX).map(|c| c.headline()).collect();
    if failed.len() > TOLD_MAX {
        lines.push(format!("and {} more", failed.len() - TOLD_MAX));
    }
    let line = format!(
        "{} of {} failed: {}",
        failed.len(),
        cases.len(),
        first.headline()
    );
    SuiteResult::Failed(line, lines.join("\n"))
}

/// The row of a case for `compare`.
fn compared(case: &Case) -> Row {
    let has_wrong_data = case.detail.as_ref().is_some_and(|detail| {
        detail.first_wrong.is_some() || detail.wrong.is_some_and(|wrong| wrong > 0)
    });
    let text = case.detail.as_ref().map(|detail| detail.text.clone());
    Row {
        name: case_name(case),
        rounds_us: Vec::new(),
        wrong: u64::from(!case.passed && has_wrong_data),
        failed: (!case.passed && !has_wrong_data)
            .then(|| text.clone().unwrap_or_else(|| "it failed".to_owned())),
        detail: text,
    }
}

fn case_name(case: &Case) -> String {
    let what = case.collective.as_deref().unwrap_or(&case.check);
    let shape = match (&case.dtype, case.count) {
        (Some(dtype), Some(count)) => format!(" {dtype}[{count}]"),
        (None, Some(count)) => format!(" [{count}]"),
        (Some(_) | None, None) => String::new(),
    };
    format!(
        "{}, group {} [{}]: {what}{shape}",
        case.matrix,
        case.group,
        listed(&case.ranks)
    )
}

/// How a matrix ended, with the reason where there is one.
fn result_in_words(matrix: &MatrixSummary) -> String {
    match &matrix.reason {
        Some(reason) => format!("{}: {reason}", matrix.outcome.word()),
        None => matrix.outcome.word().to_owned(),
    }
}
