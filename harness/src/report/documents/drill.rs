//! Drills as a document.

use std::fmt::Write as _;

use maud::Markup;

use crate::drill::model::{Report, Run, RunOutcome};
use crate::drill::plan::ranks_in_words;
use crate::fail::Failure;
use crate::report::document::{About, Document, Headline, Metric, Suite, SuiteCase, SuiteResult};
use crate::report::html::parts::counted;
use crate::report::{json, markdown};

mod page;

/// The names of the columns, in their order.
const HEADER: &str = "id,name,transport,world_size,repetition,injected,expected_class,expected_blamed,\
    said_class,said_blamed,detected_ms,bound_ms,survivors_returned,outcome,reasons,leaks";

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
        page::body(self)
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
        let mut rows = vec![HEADER.split(',').map(str::to_owned).collect()];
        rows.extend(self.drills.iter().map(row));
        rows
    }

    fn metrics(&self) -> Vec<Metric> {
        let by = |value: fn(&Run) -> Option<f64>| {
            let all = self.drills.iter();
            all.filter_map(|run| Some((labels(run), value(run)?)))
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
        let mut text = String::from(
            "| drill | over | ranks | said | found in | bound | result |\n|---|---|---:|---|---:|---:|---|\n",
        );
        for run in &self.drills {
            let found = run
                .detected_ms
                .map_or_else(String::new, |ms| format!("{ms:.0} ms"));
            let _ = writeln!(
                text,
                "| {} {} | {} | {} | {} | {found} | {:.0} ms | {} |",
                run.id,
                markdown::cell(&run.name),
                run.transport.name(),
                run.world_size,
                markdown::cell(&said(run)),
                run.bound_ms,
                markdown::cell(&result_in_words(run)),
            );
        }
        text
    }
}

/// A run in words.
fn name_of(run: &Run) -> String {
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
fn said(run: &Run) -> String {
    match (&run.verdict, run.outcome) {
        (_, RunOutcome::Skipped) => "–".to_owned(),
        (Some(said), _) => format!("{} {}", said.class, ranks_in_words(&said.blamed)),
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

const fn outcome_word(outcome: RunOutcome) -> &'static str {
    match outcome {
        RunOutcome::Failed => "failed",
        RunOutcome::Passed => "passed",
        RunOutcome::Skipped => "skipped",
    }
}

fn labels(run: &Run) -> Vec<(&'static str, String)> {
    vec![
        ("drill", run.name.to_string()),
        ("id", run.id.to_string()),
        ("transport", run.transport.name().to_owned()),
        ("world_size", run.world_size.to_string()),
        ("repetition", run.repetition.to_string()),
    ]
}

fn row(run: &Run) -> Vec<String> {
    let verdict = run.verdict.as_ref();
    vec![
        run.id.to_string(),
        run.name.to_string(),
        run.transport.name().to_owned(),
        run.world_size.to_string(),
        run.repetition.to_string(),
        run.injected.clone(),
        run.expected.class.to_string(),
        run.expected.blamed.clone(),
        verdict.map_or_else(String::new, |said| said.class.clone()),
        verdict.map_or_else(String::new, |said| ranks_in_words(&said.blamed)),
        run.detected_ms
            .map_or_else(String::new, |ms| ms.to_string()),
        run.bound_ms.to_string(),
        run.survivors_returned.to_string(),
        outcome_word(run.outcome).to_owned(),
        run.reasons.join("; "),
        run.leaks.join("; "),
    ]
}
