//! The records for people: a line each, as they come.
//!
//! A view of the model: nothing is decided here. Widths are fixed, because lines are printed long
//! before the last one is known.

use std::fmt::Write as _;

use crate::bench::model::{BenchReport, Record};
use crate::out::{BAD, GOOD, STRONG, escaped};
use crate::report::html::parts::{short, size};

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

/// The names of the columns.
#[must_use]
pub fn columns() -> String {
    format!(
        "{:>10} {:>11}  {:<24} {:>10} {:>10} {:>10} {:>10} {:>10} {:>8} {:>8} {:>7} {:>8}\n\
         {:>10} {:>11}  {:<24} {:>10} {:>10} {:>10} {:>10} {:>10} {:>8} {:>8} {:>7} {:>8}",
        "size",
        "count",
        "algorithm",
        "min",
        "median",
        "p90",
        "p99",
        "max",
        "algbw",
        "busbw",
        "wrong",
        "samples",
        "",
        "",
        "",
        "us",
        "us",
        "us",
        "us",
        "us",
        "GB/s",
        "GB/s",
        "",
        "",
    )
}

/// One line.
#[must_use]
pub fn line(record: &Record) -> String {
    let mut text = format!(
        "{:>10} {:>11}  {:<24} ",
        size(record.bytes),
        record.count,
        escaped(&algorithm(record))
    );
    if let Some(why) = &record.unsupported {
        let _ = write!(text, "not measured: {}", escaped(why));
        return text;
    }
    let latency = &record.latency_us;
    for time in [
        latency.min,
        latency.median,
        latency.p90,
        latency.p99,
        latency.max,
    ] {
        let _ = write!(text, "{:>10} ", short(time));
    }
    let rate = |rate: Option<f64>| rate.map_or_else(|| "-".to_owned(), short);
    let _ = write!(
        text,
        "{:>8} {:>8} ",
        rate(record.algbw_gbytes_per_s),
        rate(record.busbw_gbytes_per_s)
    );
    match record.wrong {
        None => {
            let _ = write!(text, "{:>7}", "-");
        }
        Some(0) => {
            let _ = write!(text, "{:>7}", 0);
        }
        Some(wrong) => {
            let _ = write!(text, "{BAD}{wrong:>7}{BAD:#}");
        }
    }
    let _ = write!(text, " {:>8}", record.samples);
    text
}

/// The algorithm: where the tables chose, also which.
fn algorithm(record: &Record) -> String {
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
