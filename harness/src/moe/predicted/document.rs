//! Predictions of MoE layers as a document. Every form of it says that nothing was measured.

use std::fmt::Write as _;

use maud::{Markup, html};
use serde_json::json;

use super::{Prediction, Row, SCHEMA_VERSION};
use crate::exit::Exit;
use crate::fail::Failure;
use crate::out::{escaped, terminal_width};
use crate::report::document::{
    About, Document, Headline, Metric, Model, Mood, Suite, SuiteCase, SuiteResult, labels, sheet,
};
use crate::report::html::parts::{captioned, fact, short};
use crate::report::json;
use crate::report::markdown;
use crate::report::terminal::{self, Column};
use crate::topology;

/// The columns of the sheet.
const SHEET: &str = "ep world_size tokens dispatcher dtype predicted topology \
    predicted_dispatch_us=dispatch.predicted_us dispatch_algorithm=dispatch.algorithm dispatch_bound=dispatch.bound \
    dispatch_bytes=dispatch.bytes predicted_combine_us=combine.predicted_us combine_algorithm=combine.algorithm \
    combine_bound=combine.bound combine_bytes=combine.bytes predicted_us wins is_lower_bound";

/// Columns of the lines.
const COLUMNS: &[Column<Row>] = &[
    Column::label("EP", 6, |row| row.ep.to_string()),
    Column::label("tokens", 6, |row| row.tokens.to_string()),
    Column::text("dtype", 5, |row| row.dtype.clone()),
    Column::text("dispatcher", 14, |row| row.dispatcher.clone()),
    Column::figure(["predicted", "dispatch us"], 11, |row| {
        us(row, row.dispatch.predicted_us)
    }),
    Column::text("by", 18, |row| row.dispatch.algorithm.clone()),
    Column::text("bound by", 10, |row| row.dispatch.bound.clone()),
    Column::figure(["predicted", "combine us"], 11, |row| {
        us(row, row.combine.predicted_us)
    }),
    Column::text("by", 18, |row| row.combine.algorithm.clone()),
    Column::text("bound by", 10, |row| row.combine.bound.clone()),
    Column::text("", 0, |row| if row.wins { "least" } else { "" }.to_owned()),
];

const TABLE: &[markdown::Column<Row>] = &[
    (">EP", |row| row.ep.to_string()),
    (">tokens", |row| row.tokens.to_string()),
    ("dtype", |row| row.dtype.clone()),
    ("dispatcher", |row| row.dispatcher.clone()),
    (">predicted dispatch us", |row| {
        us(row, row.dispatch.predicted_us)
    }),
    ("by", |row| row.dispatch.algorithm.clone()),
    ("bound by", |row| row.dispatch.bound.clone()),
    (">predicted combine us", |row| {
        us(row, row.combine.predicted_us)
    }),
    ("by", |row| row.combine.algorithm.clone()),
    ("bound by", |row| row.combine.bound.clone()),
    ("least", |row| {
        if row.wins { "least" } else { "" }.to_owned()
    }),
];

/// A time; of a lower bound with its sign.
fn us(row: &Row, us: f64) -> String {
    let sign = if row.is_lower_bound { ">= " } else { "" };
    format!("{sign}{}", short(us))
}

impl Model for Prediction {
    const COMMAND: &'static str = "moe_predict";
    const VERSION: u32 = SCHEMA_VERSION;
    const TEXTS: &'static [(&'static str, &'static str)] = &[(
        "",
        "The outcome of `moe --predict`. No figure in it was measured.",
    )];
}

impl Prediction {
    fn heading(&self) -> String {
        let model = &self.model;
        format!(
            "Predicted, not measured: {} (hidden {}, {} experts, top-{}), balanced routing, on {}",
            model.name, model.hidden, model.experts, model.top_k, self.topology
        )
    }
}

impl Document for Prediction {
    fn about(&self) -> About<'_> {
        About {
            command: Self::COMMAND,
            tool: &self.tool,
            schema_version: self.schema_version,
            exit: Exit::Ok,
            partial: false,
            backend: None,
            emulated: false,
            seed: None,
            elapsed_us: 0,
            verdict: None,
            machine: None,
            origin: None,
        }
    }

    fn headline(&self) -> Headline {
        let bounds = if self.unknown.is_empty() {
            String::new()
        } else {
            format!(
                "; lower bounds, for {} figures are not known",
                self.unknown.len()
            )
        };
        Headline {
            mood: Mood::Care,
            word: "predicted".to_owned(),
            sentence: format!("{} lines for {}{bounds}", self.rows.len(), self.topology),
        }
    }

    fn json(&self) -> Result<String, Failure> {
        json::line(self)
    }

    fn body(&self) -> Markup {
        html! {
            dl.facts {
                (fact("predicted for", &self.topology, ""))
                (fact("model", &self.model.name, ""))
                (fact("measured", "nothing", ""))
            }
            @if !self.unknown.is_empty() {
                section aria-labelledby="unknown" {
                    h2 #unknown { "Not known, so times are lower bounds" }
                    ul { @for what in &self.unknown { li { (escaped(what)) } } }
                }
            }
            section aria-labelledby="predicted" {
                h2 #predicted { "Predicted" }
                (captioned("Predicted by the cost model, not measured", html! {
                    table.list {
                        thead { tr { @for (name, _) in TABLE { th scope="col" { (name.trim_start_matches('>')) } } } }
                        tbody { @for row in &self.rows {
                            tr { @for (_, cell) in TABLE { td { (escaped(&cell(row))) } } }
                        } }
                    }
                }))
            }
        }
    }

    fn suites(&self) -> Vec<Suite> {
        let case = |row: &Row| SuiteCase {
            class: "moe_predict".to_owned(),
            name: format!(
                "ep {} {} tokens {} {}",
                row.ep, row.tokens, row.dtype, row.dispatcher
            ),
            elapsed_us: 0,
            result: SuiteResult::Skipped("predicted, not measured".to_owned()),
        };
        vec![Suite {
            name: format!("predicted for {}", self.topology),
            cases: self.rows.iter().map(case).collect(),
        }]
    }

    fn sheet(&self) -> Vec<Vec<String>> {
        let more = json!({"predicted": true, "topology": self.topology});
        sheet(&self.rows, SHEET, |_| more.clone())
    }

    fn metrics(&self) -> Vec<Metric> {
        let of = |figure: fn(&Row) -> f64| {
            let sample = |row: &Row| (labels(row, "ep tokens dispatcher dtype"), figure(row) / 1e6);
            self.rows.iter().map(sample).collect()
        };
        vec![
            Metric {
                name: "muster_moe_predicted_dispatch_seconds",
                help: "Time of dispatch by the cost model; predicted, not measured",
                samples: of(|row| row.dispatch.predicted_us),
            },
            Metric {
                name: "muster_moe_predicted_combine_seconds",
                help: "Time of combine by the cost model; predicted, not measured",
                samples: of(|row| row.combine.predicted_us),
            },
        ]
    }

    fn markdown(&self) -> String {
        let mut text = format!("{}\n\n", self.heading());
        text += &markdown::table(&self.rows, TABLE, usize::MAX);
        if let Some(line) = topology::lower_bounds(&self.unknown) {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "\n{line}");
        }
        text
    }

    fn text(&self) -> String {
        let width = terminal_width();
        let mut text = format!(
            "{}\n{}",
            escaped(&self.heading()),
            terminal::head(COLUMNS, width)
        );
        for row in &self.rows {
            text += &terminal::line(COLUMNS, width, row, None);
        }
        if let Some(line) = topology::lower_bounds(&self.unknown) {
            let _ = writeln!(text, "{}", escaped(&line));
        }
        text + "Predicted by the cost model: no congestion, no protocol. It ranks, it does not measure.\n"
    }
}
