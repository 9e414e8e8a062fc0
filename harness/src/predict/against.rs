//! Predictions beside measurements: each line of a `bench` result, and how far off the model is.

use serde::Serialize;

use super::call::{Call, Place};
use super::costs::Calls;
use super::terms::TERMS;
use super::work::Work;
use crate::bench::model::{BenchReport, Record};
use crate::stats;

/// A line.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The call, in words.
    pub name: String,
    /// Measured median, in microseconds.
    pub measured_us: f64,
    /// Predicted, in microseconds; none where the model does not know.
    pub predicted_us: Option<f64>,
    /// Predicted over measured, less one.
    pub error: Option<f64>,
    /// How the model takes the call to go.
    pub predicted_route: Option<String>,
    /// How it went.
    pub taken: Option<String>,
    /// The term that costs most.
    pub bound: Option<&'static str>,
    /// Why there is no prediction.
    pub unknown: Option<String>,
    /// How often each term occurs.
    pub work: Vec<(&'static str, f64)>,
}

/// All lines.
#[derive(Clone, Debug, Serialize)]
pub struct Against {
    /// The lines, in the order of the result.
    pub rows: Vec<Row>,
    /// Median of the errors, without their signs.
    pub median_error: Option<f64>,
    /// Nine in ten errors are no larger.
    pub p90_error: Option<f64>,
    /// Lines that the model predicts.
    pub predicted: usize,
}

/// The place of a result's ranks.
#[must_use]
pub fn place_of(report: &BenchReport, record: &Record) -> Place {
    Place::of(
        &report.settings.hosts,
        record.world_size,
        report.machine.cpus,
        report.transport != "tcp",
    )
}

/// Sets a model beside a result.
#[must_use]
pub fn against(calls: &Calls, report: &BenchReport) -> Against {
    let measured = report
        .records
        .iter()
        .filter(|record| record.unsupported.is_none() && record.latency_us.median > 0.0);
    let rows: Vec<Row> = measured.map(|record| row(calls, report, record)).collect();
    let mut errors: Vec<f64> = rows
        .iter()
        .filter_map(|row| Some(row.error?.abs()))
        .collect();
    stats::sort(&mut errors);
    let has = !errors.is_empty();
    Against {
        predicted: errors.len(),
        median_error: has.then(|| stats::median(&errors)),
        p90_error: has.then(|| stats::quantile(&errors, 0.9)),
        rows,
    }
}

fn row(calls: &Calls, report: &BenchReport, record: &Record) -> Row {
    let place = place_of(report, record);
    // Groups of a kind are alike: the ranks that stand together, as long as groups cover the world.
    let members: Vec<u32> = (0..record.ranks).collect();
    let call = Call::of(record);
    let found = call
        .clone()
        .and_then(|call| calls.predict(&call, &place, &members));
    let work = call.and_then(|call| Work::of(&call, &place, &members));
    let counts = work.map_or_else(
        |_| Vec::new(),
        |(work, _)| {
            let all = TERMS.iter().map(|term| term.name).zip(work.0);
            all.filter(|(_, count)| *count > 0.0).collect()
        },
    );
    let measured_us = record.latency_us.median;
    let (predicted, unknown) = match found {
        Ok(predicted) => (Some(predicted), None),
        Err(why) => (None, Some(why)),
    };
    Row {
        name: name(record),
        measured_us,
        predicted_us: predicted.as_ref().map(|one| one.us),
        error: predicted.as_ref().map(|one| one.us / measured_us - 1.0),
        predicted_route: predicted.as_ref().map(|one| one.route.name().to_owned()),
        taken: record.taken.clone(),
        bound: predicted.map(|one| one.bound),
        unknown,
        work: counts,
    }
}

fn name(record: &Record) -> String {
    let mut words = vec![record.collective.clone(), format!("{} ranks", record.ranks)];
    if record.groups > 1 || record.ranks != record.world_size {
        words.push(format!("{} x {}", record.groups, record.group));
    }
    words.push(format!("{} B", record.bytes));
    words.extend(record.dtype.clone());
    if record.algo != "auto" {
        words.push(record.algo.clone());
    }
    words.extend(record.segment.map(|bytes| format!("segment {bytes}")));
    if record.memory != "private" {
        words.push(record.memory.clone());
    }
    words.join(" ")
}
