//! Drills as a document.

use maud::Markup;
use serde_json::json;

use crate::drill::model::{Report, Run, RunOutcome, SCHEMA_VERSION};
use crate::drill::plan::ranks_in_words;
use crate::drill::table;
use crate::fail::Failure;
use crate::report::document::{
    About, Document, Headline, Metric, Model, Suite, SuiteCase, SuiteResult, labels, sheet, text_of,
};
use crate::report::html::parts::counted;
use crate::report::json;
use crate::report::markdown::{self, Column};

/// The columns of the sheet.
const SHEET: &str = "id name transport world_size repetition injected expected_class=expected.class \
    expected_blamed=expected.blamed said_class=verdict.class said_blamed detected_ms bound_ms survivors_returned outcome \
    reasons leaks";

/// What tells runs apart.
const LABELS: &str = "drill=name id transport world_size repetition";

const TABLE: &[Column<Run>] = &[
    ("drill", |run| format!("{} {}", run.id, run.name)),
    ("over", |run| run.transport.name().to_owned()),
    (">ranks", |run| run.world_size.to_string()),
    ("said", |run| said(run)),
    (">found in", |run| {
        text_of(run.detected_ms.map(|ms| format!("{ms:.0} ms")))
    }),
    (">bound", |run| format!("{:.0} ms", run.bound_ms)),
    ("result", |run| result_in_words(run)),
];

impl Model for Report {
    const COMMAND: &'static str = "drill";
    const VERSION: u32 = SCHEMA_VERSION;
    const MARKS: &'static [&'static str] = &["drills", "interrupted"];
}

impl Document for Report {
    fn about(&self) -> About<'_> {
        About {
            command: "drill",
            tool: &self.tool,
            schema_version: self.schema_version,
            exit: self.exit(),
            partial: self.interrupted,
            backend: Some("host"),
            emulated: false,
            seed: Some(self.seed),
            elapsed_us: self.elapsed_ms.saturating_mul(1000),
            verdict: None,
            machine: self.machine.as_ref(),
            origin: self.origin.as_ref(),
        }
    }

    fn headline(&self) -> Headline {
        let runs = counted(self.drills.len() as u64, "run", "runs");
        let failed = self
            .drills
            .iter()
            .find(|run| run.outcome == RunOutcome::Failed);
        let sentence = match failed {
            Some(run) => format!(
                "{} of {runs} failed, first {}: {}",
                self.runs(RunOutcome::Failed),
                name_of(run),
                run.reasons
                    .first()
                    .map_or("no reason was given", String::as_str)
            ),
            None => {
                let skipped = match self.runs(RunOutcome::Skipped) {
                    0 => String::new(),
                    skipped => format!(", {skipped} could not be carried out here"),
                };
                format!(
                    "{} of {runs} passed{skipped}",
                    self.runs(RunOutcome::Passed)
                )
            }
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
        let case = |run: &Run| SuiteCase {
            class: format!("drill.{}", run.name),
            name: name_of(run),
            elapsed_us: run.elapsed_ms.saturating_mul(1000),
            result: match run.outcome {
                RunOutcome::Passed => SuiteResult::Passed,
                RunOutcome::Skipped => SuiteResult::Skipped(run.reasons.join("; ")),
                RunOutcome::Failed => SuiteResult::Failed(
                    run.reasons.first().cloned().unwrap_or_default(),
                    format!("done: {}\n{}", run.injected, run.reasons.join("\n")),
                ),
            },
        };
        vec![Suite {
            name: "drill".to_owned(),
            cases: self.drills.iter().map(case).collect(),
        }]
    }

    fn sheet(&self) -> Vec<Vec<String>> {
        sheet(&self.drills, SHEET, |run| {
            let said = run.verdict.as_ref();
            json!({"said_blamed": said.map(|said| ranks_in_words(&said.blamed))})
        })
    }

    fn metrics(&self) -> Vec<Metric> {
        let by = |value: fn(&Run) -> Option<f64>| {
            let all = self.drills.iter();
            all.filter_map(|run| Some((labels(run, LABELS), value(run)?)))
                .collect::<Vec<_>>()
        };
        vec![
            Metric {
                name: "muster_drill_passed",
                help: "Whether the run of the drill passed; runs that were skipped are absent",
                samples: by(|run| match run.outcome {
                    RunOutcome::Passed => Some(1.0),
                    RunOutcome::Failed => Some(0.0),
                    RunOutcome::Skipped => None,
                }),
            },
            Metric {
                name: "muster_drill_detected_seconds",
                help: "From the fault to the return of the last survivor",
                samples: by(|run| Some(run.detected_ms? / 1e3)),
            },
        ]
    }

    fn markdown(&self) -> String {
        markdown::table(&self.drills, TABLE, usize::MAX)
    }

    fn text(&self) -> String {
        table::closing(self)
    }
}

/// A run in words.
pub(super) fn name_of(run: &Run) -> String {
    let repetition = match run.repetition {
        1 => String::new(),
        number => format!(", time {number}"),
    };
    format!(
        "{} over {} with {}{repetition}",
        run.name,
        run.transport.name(),
        counted(u64::from(run.world_size), "rank", "ranks")
    )
}

/// What survivors said, in words.
pub(super) fn said(run: &Run) -> String {
    match (&run.verdict, run.outcome) {
        (_, RunOutcome::Skipped) => "–".to_owned(),
        (Some(said), _) => format!("{} {}", said.class, ranks_in_words(&said.blamed)),
        (None, RunOutcome::Passed) if !run.notes.is_empty() => run.notes.join("; "),
        (None, RunOutcome::Passed) if run.control => "nothing, all is well".to_owned(),
        (None, RunOutcome::Passed) => run.expected.class.to_lowercase(),
        (None, RunOutcome::Failed) => "nothing".to_owned(),
    }
}

/// How a run ended, with the reasons.
fn result_in_words(run: &Run) -> String {
    let word = outcome_word(run.outcome);
    if run.reasons.is_empty() {
        word.to_owned()
    } else {
        format!("{word}: {}", run.reasons.join("; "))
    }
}

pub(super) const fn outcome_word(outcome: RunOutcome) -> &'static str {
    match outcome {
        RunOutcome::Failed => "failed",
        RunOutcome::Passed => "passed",
        RunOutcome::Skipped => "skipped",
    }
}
