//! From the outcomes of cases and matrices to the report's verdict (REPORT-1).

use super::model::{Case, MatrixSummary, Outcome, Report};
use crate::exit::Exit;
use crate::report::cause::{Cause, listed};

/// Lines of evidence kept in a verdict; the cases themselves hold the rest.
const EVIDENCE_MAX: usize = 8;

impl Report {
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
            self.verdict = Some(Cause::new(
                Exit::Internal,
                "no matrix ran to its end, and nothing says why",
            ));
        }
        self.passed = self.verdict.is_none();
        self.partial = self.is_partial();
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

    /// Whether a matrix ended early, or was skipped because another one did.
    fn is_partial(&self) -> bool {
        let ended_early = |matrix: &MatrixSummary| matrix.outcome == Outcome::Aborted;
        let verdict = self.verdict.as_ref();
        verdict.is_some_and(|verdict| verdict.class == Exit::Interrupted)
            || self.matrices.iter().any(ended_early)
            || (verdict.is_some() && self.matrices.iter().any(|m| m.outcome == Outcome::Skipped))
    }

    /// The cases that failed, in order.
    pub fn failures(&self) -> impl Iterator<Item = &Case> {
        self.cases.iter().filter(|case| !case.passed)
    }

    fn verdict_of_cases(&self) -> Option<Cause> {
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
        let mut verdict = Cause::new(class, case.headline());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::fixtures::{case, summary, wrong};

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
}
