//! The forms in which the answer of `validate` is written.

use maud::{Markup, html};
use serde_json::Value;

use super::{Outcome, Remark, SCHEMA_VERSION, Stage, Validation, head, line};
use crate::bench::model::BenchReport;
use crate::fail::Failure;
use crate::moe::report::MoeReport;
use crate::out::escaped;
use crate::report::document::{
    About, Document, Headline, Metric, Model, Suite, SuiteCase, SuiteResult, labels, sheet,
};
use crate::report::html::parts::{captioned, fact, seconds, tag};
use crate::report::json;
use crate::report::markdown;

/// The columns of the sheet.
const SHEET: &str = "name pass outcome exit_code elapsed_us finding command";
const TABLE: &[markdown::Column<Stage>] = &[
    ("stage", Stage::label),
    ("outcome", |stage| stage.outcome.word().to_owned()),
    (">time", |stage| seconds(stage.elapsed_us)),
    ("finding", |stage| stage.finding.clone()),
];

const REMARKS: &[markdown::Column<Remark>] = &[
    ("about", |remark| remark.about.clone()),
    ("remark", |remark| remark.what.clone()),
    ("seen", |remark| remark.evidence.clone()),
    ("do", |remark| remark.remedy.clone()),
];

impl Model for Validation {
    const COMMAND: &'static str = "validate";
    const VERSION: u32 = SCHEMA_VERSION;
}

impl Document for Validation {
    fn about(&self) -> About<'_> {
        About {
            command: Self::COMMAND,
            tool: &self.tool,
            schema_version: self.schema_version,
            exit: self.exit(),
            partial: self.partial,
            backend: self.backend.as_deref(),
            emulated: self.emulated,
            seed: None,
            elapsed_us: self.elapsed_us,
            verdict: None,
            machine: self.machine.as_ref(),
            origin: self.origin.as_ref(),
        }
    }

    fn headline(&self) -> Headline {
        let refused = self
            .stages
            .iter()
            .find(|stage| stage.outcome == Outcome::Refused);
        let why = refused.map_or_else(String::new, |stage| {
            format!("; {}: {}", stage.name, stage.finding)
        });
        Headline {
            mood: self.mood(),
            word: self.word().to_owned(),
            sentence: self.sentence() + &why,
        }
    }

    fn json(&self) -> Result<String, Failure> {
        json::line(self)
    }

    fn body(&self) -> Markup {
        html! {
            dl.facts {
                (fact("stages", &self.stages.len().to_string(), ""))
                (fact("remarks", &self.remarks().count().to_string(), ""))
                (fact("time", &seconds(self.elapsed_us), ""))
            }
            section aria-labelledby="stages" {
                h2 #stages { "Stages" }
                (captioned("What was run, in this order", html! {
                    table.list {
                        thead { tr { th scope="col" { "stage" } th scope="col" { "outcome" } th.n scope="col" { "time" } th scope="col" { "finding" } th scope="col" { "to run it again" } } }
                        tbody { @for stage in &self.stages {
                            tr {
                                th scope="row" { (escaped(&stage.label())) }
                                td { (tag(stage.outcome.mood(), stage.outcome.word())) }
                                td.n { (seconds(stage.elapsed_us)) }
                                td.text { (escaped(&stage.finding)) }
                                td.text { code { (escaped(&stage.command)) } }
                            }
                        } }
                    }
                }))
            }
            @if self.remarks().next().is_some() {
                section aria-labelledby="remarks" {
                    h2 #remarks { "What to do" }
                    @for stage in &self.stages { @for remark in &stage.remarks {
                        section class=(format!("verdict {}", stage.outcome.mood().class())) {
                            p { strong { (escaped(&remark.about)) } " " (escaped(&remark.what)) }
                            dl {
                                @if !remark.evidence.is_empty() { dt { "seen" } dd { (escaped(&remark.evidence)) } }
                                @if !remark.remedy.is_empty() { dt { "do" } dd { (escaped(&remark.remedy)) } }
                            }
                        }
                    } }
                }
            }
            @for stage in &self.stages {
                @if let Some(figures) = figures(stage) {
                    details { summary { "What " (escaped(&stage.label())) " measured" } (figures) }
                }
            }
        }
    }

    fn suites(&self) -> Vec<Suite> {
        let case = |stage: &Stage| SuiteCase {
            class: "validate".to_owned(),
            name: stage.label(),
            elapsed_us: stage.elapsed_us,
            result: match stage.outcome {
                Outcome::Accepted | Outcome::Remarks => SuiteResult::Passed,
                Outcome::Interrupted => SuiteResult::Skipped(stage.finding.clone()),
                Outcome::Refused => {
                    let said = |remark: &Remark| {
                        let Remark {
                            about,
                            what,
                            evidence,
                            remedy,
                        } = remark;
                        format!("{about}: {what}\nseen: {evidence}\ndo: {remedy}")
                    };
                    let all: Vec<String> = stage.remarks.iter().map(said).collect();
                    SuiteResult::Failed(stage.finding.clone(), all.join("\n"))
                }
            },
        };
        vec![Suite {
            name: "validate".to_owned(),
            cases: self.stages.iter().map(case).collect(),
        }]
    }

    fn sheet(&self) -> Vec<Vec<String>> {
        sheet(&self.stages, SHEET, |_| Value::Null)
    }

    fn metrics(&self) -> Vec<Metric> {
        let of = |figure: fn(&Stage) -> f64| {
            let sample = |stage: &Stage| (labels(stage, "stage=name pass"), figure(stage));
            self.stages.iter().map(sample).collect()
        };
        vec![
            Metric {
                name: "muster_validate_accepted",
                help: "Whether the host is accepted",
                samples: vec![(Vec::new(), f64::from(u8::from(self.passed)))],
            },
            Metric {
                name: "muster_validate_stage_accepted",
                help: "Whether a stage accepted the host",
                samples: of(|stage| f64::from(u8::from(stage.outcome <= Outcome::Remarks))),
            },
            Metric {
                name: "muster_validate_stage_seconds",
                help: "Time of a stage",
                samples: of(|stage| stage.elapsed_us as f64 / 1e6),
            },
        ]
    }

    fn parts(&self) -> Vec<&Value> {
        let results = self.stages.iter().map(|stage| &stage.result);
        results.flatten().collect()
    }

    fn markdown(&self) -> String {
        let mut text = markdown::table(&self.stages, TABLE, usize::MAX);
        if self.remarks().next().is_some() {
            text.push('\n');
            text += &markdown::table(self.remarks(), REMARKS, usize::MAX);
        }
        text
    }

    fn text(&self) -> String {
        let lines: String = self.stages.iter().map(line).collect();
        head() + &lines + &self.closing()
    }
}

/// The sections of the page of a command that measured.
fn figures(stage: &Stage) -> Option<Markup> {
    fn body<T: Model>(stage: &Stage) -> Option<Markup> {
        let result = stage.result.as_ref().filter(|_| stage.name == T::COMMAND)?;
        Some(T::deserialize(result).ok()?.body())
    }
    body::<BenchReport>(stage).or_else(|| body::<MoeReport>(stage))
}
