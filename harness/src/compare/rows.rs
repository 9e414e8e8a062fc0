//! The rows of result files: what was measured or checked, by name, with what came out.
//!
//! Two rows are the same row if everything that was chosen is the same: call, algorithm, ranks,
//! size, element type, reduction, root, place, memory, split and group; for a dispatch model, groups,
//! tokens, routing, dispatcher and type, and which part of the step.

use std::collections::HashMap;

use crate::bench::model::{BenchReport, Record};
use crate::bench::{stats, table};
use crate::moe::report::{MoeReport, Record as MoeRecord, Timing};
use crate::report::model::{Case, Report, listed};

/// One row of one side.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// What it is about, in words; tells it from every other row.
    pub name: String,
    /// The median of each round, in microseconds; empty where nothing was timed.
    pub rounds_us: Vec<f64>,
    /// Wrong elements, or 1 for a check that failed with wrong data; 0 where all was right.
    pub wrong: u64,
    /// Why it did not pass, where that was for another reason than wrong data.
    pub failed: Option<String>,
    /// What was wrong, in words.
    pub detail: Option<String>,
}

/// The rows of benchmark files of one side, in their order. Rounds of the same row in several files
/// are put together.
#[must_use]
pub fn of_bench(reports: &[BenchReport]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for record in reports.iter().flat_map(|report| &report.records) {
        let name = name_of(record);
        let place = *places.entry(name.clone()).or_insert_with(|| {
            rows.push(Row {
                name,
                ..Row::default()
            });
            rows.len() - 1
        });
        let row = &mut rows[place];
        row.rounds_us.extend(medians(&record.samples_us));
        row.wrong += record.wrong.unwrap_or(0);
        row.failed = row.failed.take().or_else(|| record.unsupported.clone());
        row.detail = row.detail.take().or_else(|| record.wrong_text.clone());
    }
    rows
}

/// The median of each round that has samples.
fn medians(rounds: &[Vec<f64>]) -> impl Iterator<Item = f64> {
    rounds.iter().filter_map(|samples| {
        let mut ascending = samples.clone();
        stats::sort(&mut ascending);
        (!ascending.is_empty()).then(|| stats::median(&ascending))
    })
}

/// The rows of `moe` files of one side: dispatch, combine and round trip of each record apart.
/// Rounds of the same row in several files are put together.
#[must_use]
pub fn of_moe(reports: &[MoeReport]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    let records = reports
        .iter()
        .flat_map(|report| report.records.iter().map(move |record| (report, record)));
    for (report, record) in records {
        let parts: [(&str, &Timing); 3] = [
            ("dispatch", &record.dispatch),
            ("combine", &record.combine),
            ("round trip", &record.round_trip),
        ];
        for (part, timing) in parts {
            let name = moe_name(report, record, part);
            let place = *places.entry(name.clone()).or_insert_with(|| {
                rows.push(Row {
                    name,
                    ..Row::default()
                });
                rows.len() - 1
            });
            let row = &mut rows[place];
            row.rounds_us.extend(medians(&timing.samples_us));
            row.failed = row.failed.take().or_else(|| record.unsupported.clone());
            // Data is that of the whole step: said once.
            if part == "round trip" {
                row.wrong += record.wrong;
                row.detail = row.detail.take().or_else(|| record.wrong_text.clone());
            }
        }
    }
    rows
}

/// What a part of a dispatch is about, in words.
fn moe_name(report: &MoeReport, record: &MoeRecord, part: &str) -> String {
    let (model, layout) = (&report.model, &report.layout);
    let shape = match model.name.as_str() {
        "custom" => format!(
            "hidden {}, {} experts, top-{}",
            model.hidden, model.experts, model.top_k
        ),
        name => name.to_owned(),
    };
    format!(
        "{part}, {shape}, tp{} ep{} etp{} on {} ranks, {} tokens, {}, {}, {}",
        layout.tp,
        layout.ep,
        layout.etp,
        layout.world_size,
        record.tokens,
        record.routing,
        record.dispatcher,
        record.dtype
    )
}

/// What a record is about, in words.
pub(crate) fn name_of(record: &Record) -> String {
    let mut words = vec![record.collective.clone()];
    words.extend(record.dtype.clone());
    words.extend(record.op.clone());
    if record.bytes > 0 {
        words.push(table::size(record.bytes));
    }
    let ranks = match record.groups {
        1 if record.group == "world" => format!("{} ranks", record.ranks),
        1 => format!("{} of {} ranks", record.group, record.ranks),
        groups => format!("{groups} groups {} of {} ranks", record.group, record.ranks),
    };
    let mut parts = vec![words.join(" "), ranks];
    if record.world_size != record.ranks {
        parts.push(format!("world of {}", record.world_size));
    }
    if record.dtype.is_some() {
        let place = if record.in_place {
            "in place"
        } else {
            "out of place"
        };
        parts.push(place.to_owned());
        parts.push(format!("{} memory", record.memory));
    }
    if let Some(root) = record.root.filter(|root| *root > 0) {
        parts.push(format!("root {root}"));
    }
    parts.extend(record.split.as_ref().map(|split| format!("{split} blocks")));
    if record.algo != "auto" {
        parts.push(record.algo.clone());
    }
    parts.extend(
        record
            .segment
            .map(|bytes| format!("segments of {} KiB", bytes >> 10)),
    );
    parts.join(", ")
}

/// The rows of `verify` files of one side. Times of single checks are no repeated samples and hold
/// the time to compute what must come out, so they are left out.
#[must_use]
pub fn of_verify(reports: &[Report]) -> Vec<Row> {
    reports
        .iter()
        .flat_map(|report| &report.cases)
        .map(|case| {
            let has_wrong_data = case.detail.as_ref().is_some_and(|detail| {
                detail.first_wrong.is_some() || detail.wrong.is_some_and(|wrong| wrong > 0)
            });
            let text = case.detail.as_ref().map(|detail| detail.text.clone());
            Row {
                name: case_name(case),
                rounds_us: Vec::new(),
                wrong: u64::from(!case.passed && has_wrong_data),
                failed: (!case.passed && !has_wrong_data)
                    .then(|| text.clone().unwrap_or_else(|| "it failed".to_owned())),
                detail: text,
            }
        })
        .collect()
}

fn case_name(case: &Case) -> String {
    let what = case.collective.as_deref().unwrap_or(&case.check);
    let shape = match (&case.dtype, case.count) {
        (Some(dtype), Some(count)) => format!(" {dtype}[{count}]"),
        (None, Some(count)) => format!(" [{count}]"),
        (Some(_) | None, None) => String::new(),
    };
    format!(
        "{}, group {} [{}]: {what}{shape}",
        case.matrix,
        case.group,
        listed(&case.ranks)
    )
}
