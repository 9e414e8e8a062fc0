//! A baseline as a document.

use std::fmt::Write as _;

use maud::{Markup, html};
use serde_json::Value;

use super::{Baseline, Cell, Outlier, SCHEMA_VERSION, Slow};
use crate::fail::Failure;
use crate::out::{BAD, escaped, terminal_width};
use crate::report::document::{
    About, Document, Headline, Metric, Model, Mood, Suite, SuiteCase, SuiteResult, labels, sheet,
};
use crate::report::html::parts::{captioned, counted, fact, micros, short};
use crate::report::json;
use crate::report::markdown;
use crate::report::terminal::{self, Column};

/// The columns of the sheet.
const SHEET: &str = "command name runs median_us fastest_us slowest_us spread limit_us";
/// Cells of an outlier that are listed.
const LISTED_MAX: usize = 5;

/// Columns of the lines.
const COLUMNS: &[Column<Cell>] = &[
    Column::text("", 6, |cell| cell.command.clone()),
    Column::label("runs", 4, |cell| cell.runs.to_string()),
    Column::figure(["normal", "us"], 9, |cell| short(cell.median_us)),
    Column::figure(["spread", "%"], 7, |cell| percent(cell.spread)),
    Column::figure(["limit", "us"], 9, |cell| short(cell.limit_us)),
    Column::text("cell", 0, |cell| escaped(&cell.name)),
];

const TABLE: &[markdown::Column<Cell>] = &[
    ("command", |cell| cell.command.clone()),
    ("cell", |cell| cell.name.clone()),
    (">runs", |cell| cell.runs.to_string()),
    (">normal us", |cell| short(cell.median_us)),
    (">fastest us", |cell| short(cell.fastest_us)),
    (">slowest us", |cell| short(cell.slowest_us)),
    (">spread %", |cell| percent(cell.spread)),
    (">limit us", |cell| short(cell.limit_us)),
];

const OUTLIERS: &[markdown::Column<Outlier>] = &[
    ("file", |outlier| outlier.file.clone()),
    ("host", |outlier| outlier.host.clone()),
    (">cells beyond their limit", |outlier| {
        format!("{} of {}", outlier.slow.len(), outlier.cells)
    }),
    ("worst", |outlier| {
        outlier
            .slow
            .first()
            .map_or_else(String::new, Slow::in_words)
    }),
];

fn percent(part: f64) -> String {
    format!("{:.1}", part * 100.0)
}

impl Slow {
    /// The cell, what was measured and what is normal.
    #[must_use]
    pub fn in_words(&self) -> String {
        format!(
            "{}: {}, limit {}, normal {}",
            self.name,
            micros(self.us),
            micros(self.limit_us),
            micros(self.median_us)
        )
    }
}

impl Outlier {
    /// The file, its host, and how many cells it has that are not normal.
    fn in_words(&self) -> String {
        let host = match &self.host[..] {
            "" => String::new(),
            host => format!(" (host {host})"),
        };
        format!(
            "{}{host}: {} of {} beyond the limit",
            self.file,
            self.slow.len(),
            counted(self.cells as u64, "cell", "cells")
        )
    }
}

impl Baseline {
    fn sentence(&self) -> String {
        let cells = counted(self.cells.len() as u64, "cell", "cells");
        let runs = counted(self.runs.len() as u64, "run", "runs");
        let on = if self.emulated {
            " on EMULATED devices"
        } else {
            ""
        };
        let found = match &self.outliers[..] {
            [] if self.runs.len() < super::RUNS_MIN => "too few to name outliers".to_owned(),
            [] => "no outlier".to_owned(),
            [one] => format!("an outlier: {}", one.in_words()),
            [first, rest @ ..] => format!("{} outliers: {}, …", rest.len() + 1, first.in_words()),
        };
        format!("{cells} of {runs}{on}; {found}")
    }
}

impl Model for Baseline {
    const COMMAND: &'static str = "baseline";
    const VERSION: u32 = SCHEMA_VERSION;
}

impl Document for Baseline {
    fn about(&self) -> About<'_> {
        About {
            command: Self::COMMAND,
            tool: &self.tool,
            schema_version: self.schema_version,
            exit: self.exit(),
            partial: false,
            backend: self.backend.as_deref(),
            emulated: self.emulated,
            seed: None,
            elapsed_us: 0,
            verdict: None,
            machine: None,
            origin: self.origin.as_ref(),
        }
    }

    fn headline(&self) -> Headline {
        let mood = if self.passed { Mood::Good } else { Mood::Bad };
        let word = if self.passed { "learned" } else { "outliers" };
        Headline {
            mood,
            word: word.to_owned(),
            sentence: self.sentence(),
        }
    }

    fn json(&self) -> Result<String, Failure> {
        json::line(self)
    }

    fn body(&self) -> Markup {
        html! {
            dl.facts {
                (fact("runs", &self.runs.len().to_string(), ""))
                (fact("cells", &self.cells.len().to_string(), ""))
                (fact("outliers", &self.outliers.len().to_string(), ""))
            }
            @if !self.outliers.is_empty() {
                section aria-labelledby="outliers" {
                    h2 #outliers { "Outliers" }
                    @for outlier in &self.outliers {
                        section class="verdict bad" {
                            p { strong { (escaped(&outlier.in_words())) } }
                            ul { @for slow in outlier.slow.iter().take(LISTED_MAX) { li { (escaped(&slow.in_words())) } } }
                        }
                    }
                }
            }
            section aria-labelledby="cells" {
                h2 #cells { "What is normal" }
                (captioned("Median of the runs; the limit lies as far above it as runs lie apart", html! {
                    table.list {
                        thead { tr {
                            th scope="col" { "cell" } th scope="col" { "command" } th.n scope="col" { "runs" }
                            th.n scope="col" { "normal µs" } th.n scope="col" { "fastest" } th.n scope="col" { "slowest" }
                            th.n scope="col" { "spread %" } th.n scope="col" { "limit µs" }
                        } }
                        tbody { @for cell in &self.cells {
                            tr {
                                th scope="row" { (escaped(&cell.name)) }
                                td { (escaped(&cell.command)) }
                                td.n { (cell.runs) }
                                td.n { (short(cell.median_us)) }
                                td.n { (short(cell.fastest_us)) }
                                td.n { (short(cell.slowest_us)) }
                                td.n { (percent(cell.spread)) }
                                td.n { (short(cell.limit_us)) }
                            }
                        } }
                    }
                }))
            }
        }
    }

    fn suites(&self) -> Vec<Suite> {
        let case = |run: &super::Source| {
            let outlier = self.outliers.iter().find(|one| one.file == run.file);
            let result = outlier.map_or(SuiteResult::Passed, |outlier| {
                let all: Vec<String> = outlier.slow.iter().map(Slow::in_words).collect();
                SuiteResult::Failed(outlier.in_words(), all.join("\n"))
            });
            SuiteCase {
                class: "baseline".to_owned(),
                name: run.file.clone(),
                elapsed_us: 0,
                result,
            }
        };
        vec![Suite {
            name: "baseline".to_owned(),
            cases: self.runs.iter().map(case).collect(),
        }]
    }

    fn sheet(&self) -> Vec<Vec<String>> {
        sheet(&self.cells, SHEET, |_| Value::Null)
    }

    fn metrics(&self) -> Vec<Metric> {
        let of = |figure: fn(&Cell) -> f64| {
            let sample = |cell: &Cell| (labels(cell, "command cell=name"), figure(cell) / 1e6);
            self.cells.iter().map(sample).collect()
        };
        vec![
            Metric {
                name: "muster_baseline_normal_seconds",
                help: "The median of the runs",
                samples: of(|cell| cell.median_us),
            },
            Metric {
                name: "muster_baseline_limit_seconds",
                help: "What is slower than this is not normal",
                samples: of(|cell| cell.limit_us),
            },
        ]
    }

    fn markdown(&self) -> String {
        let mut text = String::new();
        if !self.outliers.is_empty() {
            text += &markdown::table(&self.outliers, OUTLIERS, usize::MAX);
            text.push('\n');
        }
        text + &markdown::table(&self.cells, TABLE, usize::MAX)
    }

    fn text(&self) -> String {
        let width = terminal_width();
        let mut text = terminal::head(COLUMNS, width);
        for cell in &self.cells {
            text += &terminal::line(COLUMNS, width, cell, None);
        }
        // Writing to a string cannot fail.
        for outlier in &self.outliers {
            let _ = writeln!(
                text,
                "\n{BAD}outlier{BAD:#} {}",
                escaped(&outlier.in_words())
            );
            for slow in outlier.slow.iter().take(LISTED_MAX) {
                let _ = writeln!(text, "  {}", escaped(&slow.in_words()));
            }
            let more = outlier.slow.len().saturating_sub(LISTED_MAX);
            if more > 0 {
                let _ = writeln!(text, "  and {}", counted(more as u64, "other", "others"));
            }
        }
        let headline = self.headline();
        let style = headline.mood.style();
        let _ = writeln!(
            text,
            "\n{style}{}{style:#}: {}",
            headline.word,
            escaped(&headline.sentence)
        );
        text
    }
}
