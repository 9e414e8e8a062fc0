//! What the doctor found, as a result: for a terminal, for programs, and for files.

mod text;

use std::time::Duration;

use maud::{Markup, html};
use muster_comm::error::verdict::COLUMNS as WIDTH;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::doctor::{Group, Judged, Problem, Status, System};
use crate::exit::Exit;
use crate::fail::Failure;
use crate::out::{escaped, terminal_width};
use crate::report::document::{
    About, Document, Headline, Metric, Model, Mood, Suite, SuiteCase, SuiteResult, labels, sheet,
};
use crate::report::html::parts::{captioned, counted, fact, seconds, tag};
use crate::report::json;
use crate::report::machine::Machine;
use crate::report::markdown::{self, Column};
use crate::report::origin::Origin;

/// Version of the JSON document's fields.
const SCHEMA_VERSION: u32 = 1;
/// The columns of the sheet.
const SHEET: &str = "id group status finding evidence remedy elapsed_us";

const TABLE: &[Column<Checked>] = &[
    ("check", |check| check.id.clone()),
    ("status", |check| check.status.word().to_owned()),
    ("finding", |check| check.finding.clone()),
    ("seen", |check| check.evidence.clone()),
    ("do", |check| check.remedy.clone()),
];

/// What the doctor has to say.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Diagnosis {
    /// Version of the fields.
    pub schema_version: u32,
    /// The program that wrote it.
    pub tool: String,
    /// `doctor`.
    pub command: String,
    /// One line about the host.
    pub host: String,
    /// The toolkit is the emulator: nothing here speaks of hardware.
    pub emulated: bool,
    /// No check failed.
    pub passed: bool,
    /// Wall time in microseconds.
    pub elapsed_us: u64,
    /// The checks, in the order of their table.
    pub checks: Vec<Checked>,
    /// The machine, where it is the one that was looked at.
    #[serde(default)]
    pub machine: Option<Machine>,
    /// When and how.
    #[serde(default)]
    pub origin: Option<Origin>,
}

/// A check, and what it found.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Checked {
    /// Its name.
    pub id: String,
    /// What it is about: `ascend`, `variables`, `network`, `host` or `jobs`.
    pub group: String,
    /// The worst of what it found.
    pub status: Status,
    /// All that it found, in one line.
    pub finding: String,
    /// Where that was seen, in one line.
    pub evidence: String,
    /// What to do, in one line; empty where nothing is to be done.
    pub remedy: String,
    /// How long it took, in microseconds.
    pub elapsed_us: u64,
    /// What it found, each by itself, worst first.
    #[serde(default)]
    pub problems: Vec<Problem>,
    /// The check itself broke: a bug of ours, never a pass.
    #[serde(default)]
    pub broken: bool,
}

impl Diagnosis {
    /// What these checks found on this host.
    #[must_use]
    pub fn new(judged: Vec<Judged>, system: &System, elapsed: Duration) -> Self {
        let checks: Vec<Checked> = judged.into_iter().map(Checked::from).collect();
        let is_here = system.root() == std::path::Path::new("/");
        Self {
            schema_version: SCHEMA_VERSION,
            tool: crate::TOOL.to_owned(),
            command: Self::COMMAND.to_owned(),
            host: system.about(),
            emulated: system.is_known_as_emulated(),
            passed: checks.iter().all(|check| check.status != Status::Fail),
            elapsed_us: micros(elapsed),
            checks,
            machine: is_here.then(Machine::here),
            origin: Some(Origin::here(system.environment())),
        }
    }

    /// The class of the outcome.
    #[must_use]
    pub fn exit(&self) -> Exit {
        if self.checks.iter().any(|check| check.broken) {
            Exit::Internal
        } else if self.passed {
            Exit::Ok
        } else {
            Exit::Resource
        }
    }

    /// The text for people, worst first, for a terminal as wide as the one that reads it; with `all` also what is well and what
    /// was skipped.
    #[must_use]
    pub fn shown(&self, all: bool) -> String {
        text::of(self, terminal_width().unwrap_or(WIDTH), all)
    }

    /// How many checks have this status.
    fn count(&self, status: Status) -> usize {
        self.of(status).count()
    }

    fn of(&self, status: Status) -> impl Iterator<Item = &Checked> {
        self.checks
            .iter()
            .filter(move |check| check.status == status)
    }

    /// Those to look at, worst first.
    fn problems(&self) -> impl Iterator<Item = &Checked> {
        self.of(Status::Fail).chain(self.of(Status::Warn))
    }

    fn counts(&self) -> String {
        format!(
            "{} failed, {} to look at, {} well, {} skipped",
            self.count(Status::Fail),
            self.count(Status::Warn),
            self.count(Status::Ok),
            self.count(Status::Skip)
        )
    }
}

impl From<Judged> for Checked {
    fn from(judged: Judged) -> Self {
        let finding = &judged.finding;
        Self {
            id: judged.check.id.to_owned(),
            group: judged.check.group.name().to_owned(),
            status: finding.status(),
            finding: finding.what(),
            evidence: finding.evidence(),
            remedy: finding.remedy(),
            elapsed_us: micros(judged.elapsed),
            problems: finding.said().to_vec(),
            broken: judged.broken,
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl Model for Diagnosis {
    const COMMAND: &'static str = "doctor";
    const VERSION: u32 = SCHEMA_VERSION;
}

impl Document for Diagnosis {
    fn about(&self) -> About<'_> {
        About {
            command: Self::COMMAND,
            tool: &self.tool,
            schema_version: self.schema_version,
            exit: self.exit(),
            partial: false,
            backend: None,
            emulated: self.emulated,
            seed: None,
            elapsed_us: self.elapsed_us,
            verdict: None,
            machine: self.machine.as_ref(),
            origin: self.origin.as_ref(),
        }
    }

    fn headline(&self) -> Headline {
        let (mood, word) = match (self.passed, self.count(Status::Warn)) {
            (false, _) => (Mood::Bad, "not fit"),
            (true, 0) => (Mood::Good, "fit"),
            (true, _) => (Mood::Care, "fit"),
        };
        let first = self.problems().next().map_or_else(String::new, |check| {
            format!("; first {}: {}", check.id, check.finding)
        });
        Headline {
            mood,
            word: word.to_owned(),
            sentence: format!("{}: {}{first}", self.host, self.counts()),
        }
    }

    fn json(&self) -> Result<String, Failure> {
        json::line(self)
    }

    fn body(&self) -> Markup {
        html! {
            dl.facts {
                (fact("failed", &self.count(Status::Fail).to_string(), ""))
                (fact("to look at", &self.count(Status::Warn).to_string(), ""))
                (fact("well", &self.count(Status::Ok).to_string(), &format!("{} skipped", self.count(Status::Skip))))
                (fact("time", &seconds(self.elapsed_us), ""))
            }
            @if self.problems().next().is_some() {
                section aria-labelledby="problems" {
                    h2 #problems { "What to do" }
                    @for check in self.problems() { (problems(check)) }
                }
            }
            section aria-labelledby="checks" {
                h2 #checks { "Checks" }
                (captioned(&counted(self.checks.len() as u64, "check", "checks"), html! {
                    table.list {
                        thead { tr { th scope="col" { "check" } th scope="col" { "about" } th scope="col" { "status" } th scope="col" { "finding" } } }
                        tbody { @for check in &self.checks { (line(check)) } }
                    }
                }))
            }
        }
    }

    fn suites(&self) -> Vec<Suite> {
        let case = |check: &Checked| SuiteCase {
            class: format!("doctor.{}", check.group),
            name: check.id.clone(),
            elapsed_us: check.elapsed_us,
            result: match check.status {
                _ if check.broken => SuiteResult::Error(check.finding.clone()),
                Status::Fail => SuiteResult::Failed(
                    check.finding.clone(),
                    format!("seen: {}\ndo: {}", check.evidence, check.remedy),
                ),
                Status::Skip => SuiteResult::Skipped(check.finding.clone()),
                Status::Ok | Status::Warn => SuiteResult::Passed,
            },
        };
        let suite = |group: Group| Suite {
            name: format!("doctor.{}", group.name()),
            cases: self
                .checks
                .iter()
                .filter(|check| check.group == group.name())
                .map(case)
                .collect(),
        };
        let suites = Group::ALL.into_iter().map(suite);
        suites.filter(|suite| !suite.cases.is_empty()).collect()
    }

    fn sheet(&self) -> Vec<Vec<String>> {
        sheet(&self.checks, SHEET, |_| Value::Null)
    }

    fn metrics(&self) -> Vec<Metric> {
        let statuses = [Status::Fail, Status::Warn, Status::Ok, Status::Skip];
        let by_status = |status: Status| {
            let label = vec![("status", status.word().to_owned())];
            (label, self.count(status) as f64)
        };
        let ran = self
            .checks
            .iter()
            .filter(|check| check.status != Status::Skip);
        let passed = |check: &Checked| {
            let is_passed = check.status != Status::Fail && !check.broken;
            (
                labels(check, "check=id group"),
                f64::from(u8::from(is_passed)),
            )
        };
        vec![
            Metric {
                name: "muster_doctor_checks",
                help: "Checks by what came of them",
                samples: statuses.into_iter().map(by_status).collect(),
            },
            Metric {
                name: "muster_doctor_check_passed",
                help: "Whether a check did not fail; checks that were skipped are absent",
                samples: ran.map(passed).collect(),
            },
        ]
    }

    fn markdown(&self) -> String {
        if self.problems().next().is_none() {
            return "No check failed or warned.".to_owned();
        }
        markdown::table(self.problems(), TABLE, usize::MAX)
    }

    fn text(&self) -> String {
        self.shown(false)
    }
}

fn problems(check: &Checked) -> Markup {
    html! {
        @for problem in &check.problems {
            @let mood = mood(problem.status);
            section class=(format!("verdict {}", mood.class())) {
                p { (tag(mood, problem.status.word())) " " strong { (escaped(&check.id)) } " " (escaped(&problem.what)) }
                dl {
                    @if !problem.evidence.is_empty() { dt { "seen" } dd { (escaped(&problem.evidence)) } }
                    @if !problem.remedy.is_empty() { dt { "do" } dd { code { (escaped(&problem.remedy)) } } }
                }
            }
        }
    }
}

fn line(check: &Checked) -> Markup {
    html! {
        tr {
            th scope="row" { (escaped(&check.id)) }
            td { (escaped(&check.group)) }
            td {
                @match check.status {
                    Status::Skip => span.tag.none { "skip" },
                    status => (tag(mood(status), status.word())),
                }
            }
            td.text { (escaped(&check.finding)) }
        }
    }
}

const fn mood(status: Status) -> Mood {
    match status {
        Status::Fail => Mood::Bad,
        Status::Warn | Status::Skip => Mood::Care,
        Status::Ok => Mood::Good,
    }
}
