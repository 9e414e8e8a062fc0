//! What dumps of ranks show, as one page for a ticket and in the other forms of results: the verdict, who waits for whom,
//! the last calls side by side, stacks.

mod calls;
mod graph;
mod stacks;
#[cfg(test)]
mod tests;

use maud::{Markup, html};
use muster_comm::error::verdict::Verdict;
use muster_comm::watch::report::Report;
use serde::Serialize;
use serde_json::Value;

use crate::TOOL;
use crate::exit::Exit;
use crate::fail::Failure;
use crate::live::{Late, late_in};
use crate::out::escaped;
use crate::report::cause::{Cause, listed};
use crate::report::document::{
    About, Document, Headline, Metric, Mood, Suite, SuiteCase, SuiteResult, sheet,
};
use crate::report::html::parts::{counted, fact, seconds};
use crate::report::json;
use crate::report::markdown::{self, Column};

/// Version of the JSON document's fields.
const SCHEMA_VERSION: u32 = 1;
const COMMAND: &str = "explain";
/// The columns of the sheet.
const SHEET: &str = "rank pid group call seq site age_ms waits_for";

const TABLE: &[Column<Row>] = &[
    ("rank", |row| row.rank.to_string()),
    ("in", |row| row.call.clone()),
    ("group", |row| row.group.clone()),
    ("call number", |row| row.seq.to_string()),
    ("at", |row| row.site.clone()),
    ("for", |row| format!("{:.1} s", row.age_ms as f64 / 1e3)),
    ("waits for", |row| row.waits_for.clone()),
];

/// What dumps of ranks show.
#[derive(Debug, Serialize)]
pub struct Explanation {
    /// Version of the fields.
    schema_version: u32,
    /// The program that wrote it.
    tool: String,
    /// `explain`.
    command: &'static str,
    /// What the dumps mean; none where nobody waits.
    verdict: Option<Verdict>,
    /// The ranks that were dumped.
    ranks: Vec<Report>,
    /// Ranks that the others waited for in call after call: a remark.
    late: Vec<Late>,
    #[serde(skip)]
    cause: Option<Cause>,
}

/// A call under way.
#[derive(Debug, Serialize)]
struct Row {
    rank: u32,
    pid: u32,
    group: String,
    call: String,
    seq: u64,
    site: String,
    age_ms: u64,
    waits_for: String,
}

impl Explanation {
    /// Of these ranks; a rank that was dumped twice counts by its last dump.
    #[must_use]
    pub fn new(verdict: Option<Verdict>, reports: Vec<Report>) -> Self {
        let mut ranks: Vec<Report> = Vec::new();
        for report in reports {
            match ranks.iter_mut().find(|known| known.rank == report.rank) {
                Some(known) if known.wall_ms > report.wall_ms => {}
                Some(known) => *known = report,
                None => ranks.push(report),
            }
        }
        ranks.sort_by_key(|report| report.rank);
        let cause = verdict.as_ref().map(|verdict| {
            let mut cause = Cause::new(
                Exit::from(verdict.class),
                format!("{}: {}", verdict.who, verdict.place),
            );
            cause.blamed.clone_from(&verdict.blamed);
            cause.evidence.clone_from(&verdict.evidence);
            cause.next = Some(verdict.next.clone());
            cause
        });
        Self {
            schema_version: SCHEMA_VERSION,
            tool: TOOL.to_owned(),
            command: COMMAND,
            verdict,
            late: late_in(&ranks),
            ranks,
            cause,
        }
    }

    /// Ranks of the world.
    fn world(&self) -> u32 {
        let sizes = self.ranks.iter().map(|report| report.world_size);
        sizes.max().unwrap_or(0)
    }

    fn blamed(&self) -> &[u32] {
        self.verdict.as_ref().map_or(&[], |verdict| &verdict.blamed)
    }

    /// The calls under way.
    fn rows(&self) -> Vec<Row> {
        let of = |report: &Report| {
            let (rank, pid) = (report.rank, report.pid);
            let under_way = report.groups.iter().filter_map(|group| {
                let call = group.call.as_ref()?;
                let missing = call.wait.as_ref().map(|wait| &wait.missing[..]);
                Some(Row {
                    rank,
                    pid,
                    group: group.name.clone(),
                    call: call.call.name().to_owned(),
                    seq: call.seq,
                    site: call.site.clone(),
                    age_ms: call.age_ms,
                    waits_for: listed(missing.unwrap_or_default()),
                })
            });
            under_way.collect::<Vec<Row>>()
        };
        self.ranks.iter().flat_map(of).collect()
    }

    /// What the dumps mean.
    #[must_use]
    pub const fn verdict(&self) -> Option<&Verdict> {
        self.verdict.as_ref()
    }

    /// How many ranks wait.
    fn waiting(&self) -> usize {
        let waits = |report: &&Report| {
            let mut calls = report.groups.iter().filter_map(|group| group.call.as_ref());
            calls.any(|call| call.wait.is_some())
        };
        self.ranks.iter().filter(waits).count()
    }
}

impl Document for Explanation {
    fn about(&self) -> About<'_> {
        About {
            command: COMMAND,
            tool: &self.tool,
            schema_version: self.schema_version,
            exit: self
                .verdict
                .as_ref()
                .map_or(Exit::Ok, |verdict| verdict.class.into()),
            partial: false,
            backend: None,
            emulated: false,
            seed: None,
            elapsed_us: 0,
            verdict: self.cause.as_ref(),
            machine: None,
            origin: None,
        }
    }

    fn headline(&self) -> Headline {
        let Some(verdict) = &self.verdict else {
            let dumps = self.ranks.len();
            return match self.waiting() {
                0 => Headline {
                    mood: Mood::Good,
                    word: "nobody waits".to_owned(),
                    sentence: format!("nobody waits, as far as {dumps} dumps tell"),
                },
                waiting => Headline {
                    mood: Mood::Care,
                    word: "no verdict".to_owned(),
                    sentence: format!(
                        "{waiting} of {dumps} ranks wait, and the dumps do not tell for whom"
                    ),
                },
            };
        };
        Headline {
            mood: Mood::Bad,
            word: verdict.class.name().to_owned(),
            sentence: format!("{}: {}", verdict.who, verdict.place),
        }
    }

    fn json(&self) -> Result<String, Failure> {
        json::line(self)
    }

    fn body(&self) -> Markup {
        let dumped = self.ranks.len() as u64;
        html! {
            dl.facts {
                @if let Some(verdict) = &self.verdict {
                    (fact("what", &verdict.what, ""))
                    (fact("for", &seconds(verdict.elapsed_ms.saturating_mul(1000)), "when the verdict was given"))
                    (fact("others", &verdict.others, ""))
                }
                @if self.ranks.iter().any(|report| !report.groups.is_empty()) {
                    (fact("ranks that wait", &self.waiting().to_string(), &format!("of {}", counted(u64::from(self.world()), "rank", "ranks"))))
                }
                (fact("dumps", &counted(dumped, "rank", "ranks"), ""))
            }
            (late(&self.late))
            (graph::section(&self.ranks, self.blamed()))
            (calls::section(&self.ranks))
            (stacks::section(&self.ranks, self.blamed()))
        }
    }

    fn suites(&self) -> Vec<Suite> {
        let result = match &self.verdict {
            Some(verdict) => SuiteResult::Failed(self.headline().sentence, verdict.line()),
            None => SuiteResult::Passed,
        };
        let case = SuiteCase {
            class: COMMAND.to_owned(),
            name: "verdict".to_owned(),
            elapsed_us: 0,
            result,
        };
        vec![Suite {
            name: COMMAND.to_owned(),
            cases: vec![case],
        }]
    }

    fn sheet(&self) -> Vec<Vec<String>> {
        sheet(&self.rows(), SHEET, |_| Value::Null)
    }

    fn metrics(&self) -> Vec<Metric> {
        let one = |name, help, value: usize| Metric {
            name,
            help,
            samples: vec![(Vec::new(), value as f64)],
        };
        vec![
            one(
                "muster_explain_ranks",
                "Ranks with a dump",
                self.ranks.len(),
            ),
            one(
                "muster_explain_ranks_waiting",
                "Ranks that wait in a call",
                self.waiting(),
            ),
        ]
    }

    fn markdown(&self) -> String {
        let rows = self.rows();
        if rows.is_empty() {
            return "No call is under way.".to_owned();
        }
        markdown::table(rows.iter(), TABLE, usize::MAX)
    }

    fn text(&self) -> String {
        let text = match &self.verdict {
            Some(verdict) => escaped(&verdict.line()),
            None => self.headline().sentence,
        };
        let late = self.late.iter().map(|late| escaped(&late.line()));
        std::iter::once(text)
            .chain(late)
            .map(|line| line + "\n")
            .collect()
    }
}

/// The remark on ranks that were late before the dumps were taken.
fn late(late: &[Late]) -> Markup {
    html! {
        @if !late.is_empty() {
            section aria-labelledby="late" {
                h2 #late { "Late in call after call" }
                p.soft { "By the last calls in the dumps. A remark, not a verdict: a late rank may have more work, or less processor time." }
                ul { @for one in late { li { (escaped(&one.line())) } } }
            }
        }
    }
}
