//! A report as JUnit XML, which CI systems show as tests.
//!
//! JUNIT-1: a report that has not passed has at least one failure or error in it, whatever its cases
//! say.

use std::time::Duration;

use quick_junit::{NonSuccessKind, Property, TestCase, TestCaseStatus, TestSuite};

use crate::fail::Failure;
use crate::out::escaped;
use crate::report::document::{About, Document, Mood, Suite, SuiteCase, SuiteResult};

/// The report.
///
/// # Errors
/// A failure of class INTERNAL where the library refuses it, which nothing known causes.
pub fn render(document: &dyn Document) -> Result<String, Failure> {
    let (about, headline) = (document.about(), document.headline());
    let mut suites = document.suites();
    let is_bad = |case: &SuiteCase| {
        matches!(
            case.result,
            SuiteResult::Error(_) | SuiteResult::Failed(_, _)
        )
    };
    let has_bad = suites.iter().flat_map(|suite| &suite.cases).any(is_bad);
    if headline.mood != Mood::Good && !has_bad {
        let text = format!("{}: {}", headline.word, headline.sentence);
        suites.push(whole_run(&about, text));
    }
    let mut report = quick_junit::Report::new(format!("muster {}", about.command));
    report.set_time(Duration::from_micros(about.elapsed_us));
    report.add_test_suites(suites.iter().map(|found| suite(&about, found)));
    report
        .to_string()
        .map_err(|error| Failure::internal(format!("the report cannot be written as XML: {error}")))
}

/// A suite that says what became of the run, where no case does (JUNIT-1).
fn whole_run(about: &About<'_>, text: String) -> Suite {
    let mut lines = vec![text];
    if let Some(verdict) = about.verdict {
        lines.extend(verdict.evidence.iter().cloned());
        lines.extend(verdict.next.clone());
    }
    let case = SuiteCase {
        class: about.command.to_owned(),
        name: "run".to_owned(),
        elapsed_us: about.elapsed_us,
        result: SuiteResult::Error(lines.join("\n")),
    };
    Suite {
        name: "run".to_owned(),
        cases: vec![case],
    }
}

fn suite(about: &About<'_>, found: &Suite) -> TestSuite {
    let mut suite = TestSuite::new(escaped(&found.name));
    let times = found.cases.iter().map(|case| case.elapsed_us);
    suite.set_time(Duration::from_micros(times.sum()));
    let mut property = |name: &str, value: &str| {
        suite.add_property(Property::new(name, escaped(value)));
    };
    property("tool", about.tool);
    property("partial", if about.partial { "true" } else { "false" });
    if let Some(backend) = about.backend {
        property("backend", backend);
        property("emulated", if about.emulated { "true" } else { "false" });
    }
    if let Some(origin) = about.origin {
        property("started_at", &origin.started_at);
        property("host", &origin.host);
    }
    suite.add_test_cases(found.cases.iter().map(case));
    suite
}

fn case(found: &SuiteCase) -> TestCase {
    let status = match &found.result {
        SuiteResult::Passed => TestCaseStatus::success(),
        SuiteResult::Skipped(why) => {
            let mut status = TestCaseStatus::skipped();
            status.set_message(escaped(why));
            status
        }
        SuiteResult::Failed(line, all) => bad(NonSuccessKind::Failure, line, all),
        SuiteResult::Error(text) => bad(
            NonSuccessKind::Error,
            text.lines().next().unwrap_or_default(),
            text,
        ),
    };
    let mut case = TestCase::new(escaped(&found.name), status);
    case.set_classname(escaped(&found.class));
    case.set_time(Duration::from_micros(found.elapsed_us));
    case
}

fn bad(kind: NonSuccessKind, line: &str, all: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::non_success(kind);
    status.set_message(escaped(line));
    status.set_description(escaped(all));
    status
}
