//! What `validate` found: whether a host is accepted, by what came of each stage.

use std::fmt::Write as _;

use maud::{Markup, html};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::exit::Exit;
use crate::fail::Failure;
use crate::out::{STRONG, escaped, terminal_width};
use crate::report::document::{
    About, Document, Headline, Metric, Model, Mood, Suite, SuiteCase, SuiteResult, labels, sheet,
};
use crate::report::html::parts::{captioned, counted, fact, seconds, tag};
use crate::report::json;
use crate::report::machine::Machine;
use crate::report::markdown;
use crate::report::origin::Origin;
use crate::report::terminal::{self, Column};

/// Version of the JSON document's fields.
pub const SCHEMA_VERSION: u32 = 1;
/// The columns of the sheet.
const SHEET: &str = "name outcome exit_code elapsed_us finding command";

/// Columns of the lines.
const COLUMNS: &[Column<Stage>] = &[
    Column::text("stage", 7, |stage| stage.name.clone()),
    Column::text("outcome", 12, |stage| {
        let style = stage.outcome.mood().style();
        format!("{style}{}{style:#}", stage.outcome.word())
    }),
    Column::label("time", 8, |stage| {
        format!("{:.1} s", stage.elapsed_us as f64 / 1e6)
    }),
    Column::text("finding", 0, |stage| escaped(&stage.finding)),
];

const TABLE: &[markdown::Column<Stage>] = &[
    ("stage", |stage| stage.name.clone()),
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
    /// The whole result of a command that measures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
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
    /// Takes in what came of a stage; `left` are still to come.
    pub fn add(&mut self, stage: Stage, left: usize) {
        self.stages.push(stage);
        let worst = self.stages.iter().map(|stage| stage.outcome).max();
        self.outcome = worst.unwrap_or(Outcome::Interrupted);
        self.partial = left > 0 || self.outcome == Outcome::Interrupted;
        self.passed = !self.partial && self.outcome <= Outcome::Remarks;
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
                                th scope="row" { (escaped(&stage.name)) }
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
        }
    }

    fn suites(&self) -> Vec<Suite> {
        let case = |stage: &Stage| SuiteCase {
            class: "validate".to_owned(),
            name: stage.name.clone(),
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
            let sample = |stage: &Stage| (labels(stage, "stage=name"), figure(stage));
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
