//! The records for people: a line each, as they come.
//!
//! A view of the model: nothing is decided here.

use std::fmt::Write as _;

use crate::bench::model::{BenchReport, Record};
use crate::out::{BAD, GOOD, STRONG, escaped, terminal_width};
use crate::report::html::parts::{short, size};
use crate::report::terminal::{self, Column};

/// What is above everything that an emulated device did.
pub const EMULATED: &str = "emulated device: nothing below was measured on hardware\n";

/// What is above a run of lines that share it.
#[must_use]
pub fn heading(record: &Record) -> String {
    let mut text = format!("{STRONG}{}{STRONG:#}", record.collective);
    let mut add = |part: String| {
        let _ = write!(text, ", {part}");
    };
    if let Some(dtype) = &record.dtype {
        add(dtype.clone());
    }
    if let Some(op) = &record.op {
        add(op.clone());
    }
    if let Some(root) = record.root {
        add(format!("root {root}"));
    }
    if let Some(split) = &record.split {
        add(format!("{split} blocks"));
    }
    if record.dtype.is_some() {
        add(format!(
            "{}, {} memory",
            if record.in_place {
                "in place"
            } else {
                "out of place"
            },
            record.memory
        ));
    }
    let ranks = record.ranks;
    add(match record.groups {
        1 => format!("{} of {ranks} ranks", record.group),
        groups => format!("{groups} groups {} of {ranks} ranks at once", record.group),
    });
    text
}

/// The columns of the lines.
const COLUMNS: &[Column<Record>] = &[
    Column::label("size", 9, |r| size(r.bytes)),
    Column::label("count", 11, |r: &Record| r.count.to_string()).spare(5),
    Column::text("algorithm", 23, |r| escaped(&algorithm(r))),
    Column::figure(["min", "us"], 9, |r: &Record| short(r.latency_us.min)).spare(3),
    Column::figure(["median", "us"], 9, |r| short(r.latency_us.median)),
    Column::figure(["p90", "us"], 9, |r: &Record| short(r.latency_us.p90)).spare(6),
    Column::figure(["p99", "us"], 9, |r: &Record| short(r.latency_us.p99)).spare(1),
    Column::figure(["max", "us"], 9, |r: &Record| short(r.latency_us.max)).spare(4),
    Column::figure(["algbw", "GB/s"], 8, |r: &Record| {
        rate(r.algbw_gbytes_per_s)
    })
    .spare(2),
    Column::figure(["busbw", "GB/s"], 8, |r| rate(r.busbw_gbytes_per_s)),
    Column::figure(["wrong", ""], 7, |r| wrong(r.wrong)),
    Column::figure(["samples", ""], 8, |r: &Record| r.samples.to_string()).spare(7),
];

/// The names of the columns.
#[must_use]
pub fn columns() -> String {
    terminal::head(COLUMNS, terminal_width())
}

/// One line.
#[must_use]
pub fn line(record: &Record) -> String {
    let why_not = record.unsupported.as_deref().map(escaped);
    terminal::line(COLUMNS, terminal_width(), record, why_not.as_deref())
}

/// A bandwidth.
fn rate(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".to_owned(), short)
}

fn wrong(wrong: Option<u64>) -> String {
    match wrong {
        None => "-".to_owned(),
        Some(0) => "0".to_owned(),
        Some(wrong) => format!("{BAD}{wrong}{BAD:#}"),
    }
}

/// The algorithm: where the tables chose, also which.
#[must_use]
pub fn algorithm(record: &Record) -> String {
    let segment = record
        .segment
        .map_or_else(String::new, |bytes| format!("/{}K", bytes >> 10));
    match &record.taken {
        Some(taken) if *taken != record.algo => format!("{}{segment}: {taken}", record.algo),
        _ => format!("{}{segment}", record.algo),
    }
}

/// What is below the lines: what was wrong, the spread, the verdict.
#[must_use]
pub fn closing(report: &BenchReport) -> String {
    let mut text = String::new();
    let wrong = report
        .records
        .iter()
        .filter(|record| record.wrong.is_some_and(|w| w > 0));
    for record in wrong {
        let _ = writeln!(
            text,
            "{BAD}wrong data{BAD:#}: {} {} of {}: {}",
            record.collective,
            escaped(&record.algo),
            size(record.bytes),
            escaped(record.wrong_text.as_deref().unwrap_or("no detail"))
        );
    }
    let skews = report
        .records
        .iter()
        .filter_map(|record| record.start_skew_us);
    let worst = skews
        .map(|skew| skew.median)
        .fold(None, |worst: Option<f64>, skew| {
            Some(worst.map_or(skew, |worst| worst.max(skew)))
        });
    if let Some(worst) = worst {
        let _ = writeln!(
            text,
            "starts of ranks at most {} us apart in the median of a line; times are those of the slowest rank",
            short(worst)
        );
    }
    let seconds = report.elapsed_us as f64 / 1e6;
    let measured = format!(
        "{} of {} lines in {seconds:.1} s, backend {}{}, {} rounds, {} {} ({} cpus)",
        report.records.len(),
        report.cells_planned,
        report.backend,
        if report.emulated { " (emulated)" } else { "" },
        report.rounds,
        report.machine.profile,
        escaped(&report.machine.cpu),
        report.machine.cpus,
    );
    let _ = match &report.verdict {
        Some(verdict) => writeln!(
            text,
            "{BAD}VERDICT {}{BAD:#} {}\n{measured}",
            verdict.class.class(),
            escaped(&verdict.text)
        ),
        None if report.passed => writeln!(text, "{GOOD}measured{GOOD:#}: {measured}"),
        None => writeln!(text, "{BAD}failed{BAD:#}: {measured}"),
    };
    if let Some(verdict) = &report.verdict {
        text.push_str(&verdict.evidence_and_next());
    }
    text
}
