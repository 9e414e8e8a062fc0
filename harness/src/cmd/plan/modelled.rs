//! `muster plan cost --model`: what `bench` would measure, and predictions beside what it measured.

use std::path::Path;

use muster_comm::algo::choices_for;
use muster_comm::types::{Collective, DType};
use serde_json::json;

use super::cost::{right_aligned, show_bytes, show_seconds, styled};
use super::{Outcome, SCHEMA_VERSION, document, unfit};
use crate::bench::model::BenchReport;
use crate::bench::shape::{Shape, Split};
use crate::cmd::saving::Form;
use crate::fail::Failure;
use crate::predict::against::{Against, Row, against};
use crate::predict::call::{Call, Place};
use crate::predict::costs::{Calls, Predicted};
use crate::results;
use crate::topology::Machine;

/// A machine whose calls were measured.
pub(super) fn measured_machine(path: &str) -> Result<Machine, String> {
    let machine = Machine::named(path)?;
    if machine.calls.is_none() {
        return Err(format!(
            "{path} has no part \"calls\"; `muster tune --model FILE` measures and writes one"
        ));
    }
    Ok(machine)
}

fn calls(machine: &Machine) -> Result<&Calls, Failure> {
    let calls = machine.calls.as_ref();
    calls.ok_or_else(|| Failure::internal("a model without calls"))
}

/// Ranks on hosts of `per_host` each.
pub(super) fn place(machine: &Machine, n: usize, per_host: usize) -> Place {
    let host = |rank: usize| u32::try_from(rank / per_host.max(1)).unwrap_or(u32::MAX);
    let processors = machine
        .calls
        .as_ref()
        .map_or(1, |calls| calls.measured.processors);
    Place {
        hosts: (0..n).map(host).collect(),
        processors: processors.max(1),
        shares_memory: true,
        may_read: true,
    }
}

/// A size, an algorithm, and what the model says of it.
type Cell = (u64, &'static str, Result<Predicted, String>);

/// Predictions of all algorithms of a collective.
pub(super) fn table(
    machine: &Machine,
    collective: Collective,
    place: &Place,
    sizes: &[u64],
    form: Form,
) -> Result<Outcome, Failure> {
    let calls = calls(machine)?;
    let members: Vec<u32> = (0..).take(place.hosts.len()).collect();
    let n = members.len();
    let algorithms = std::iter::once(None).chain(choices_for(collective).map(Some));
    let algorithms: Vec<_> = algorithms.collect();
    let mut cells: Vec<Cell> = Vec::new();
    for bytes in sizes {
        for algorithm in &algorithms {
            let dtype = DType::F32;
            let call = Call {
                collective,
                shape: Shape::of(collective, n, dtype.size(), *bytes, Split::Even, 0),
                dtype,
                algorithm: *algorithm,
                segment: None,
                in_place: false,
                in_region: false,
                groups: 1,
            };
            let name = algorithm.map_or("auto", |algorithm| algorithm.name);
            cells.push((*bytes, name, calls.predict(&call, place, &members)));
        }
    }
    if let Some((_, _, Err(why))) = cells.first()
        && cells.iter().all(|(_, _, found)| found.is_err())
    {
        return Err(unfit(why));
    }
    let heading = format!(
        "{collective} over {n} ranks on {} hosts of {}: predicted times, f32, out of place",
        place.host_count(),
        machine.name
    );
    let text = match form {
        Form::Json => document(&json!({
            "schema_version": SCHEMA_VERSION,
            "tool": crate::TOOL,
            "collective": collective,
            "n": n,
            "hosts": place.host_count(),
            "predicted": true,
            "model": machine.name,
            "measured": calls.measured,
            "predictions": cells.iter().map(|(bytes, name, found)| json!({
                "algo": name,
                "bytes": bytes,
                "seconds": found.as_ref().ok().map(|found| found.us * 1e-6),
                "route": found.as_ref().ok().map(|found| found.route.name()),
                "bound": found.as_ref().ok().map(|found| found.bound),
                "unknown": found.as_ref().err(),
            })).collect::<Vec<_>>(),
        })),
        Form::Table => by_size(&heading, &cells, algorithms.len()) + &grounds(calls),
    };
    Ok(Outcome::ok(text))
}

/// A line for each size, a column for each algorithm.
fn by_size(heading: &str, cells: &[Cell], algorithms: usize) -> String {
    let mut table = styled();
    let names = cells.iter().take(algorithms).map(|(_, name, _)| *name);
    table.set_header(std::iter::once("Bytes").chain(names));
    for of_size in cells.chunks(algorithms.max(1)) {
        let bytes = of_size.first().map_or(0, |(bytes, ..)| *bytes);
        let times = of_size.iter().map(|(_, _, found)| match found {
            Ok(found) => show_seconds(found.us * 1e-6),
            Err(_) => "-".to_owned(),
        });
        table.add_row(std::iter::once(show_bytes(bytes)).chain(times));
    }
    let reasons = cells
        .iter()
        .filter_map(|(_, _, found)| found.as_ref().err());
    format!(
        "{heading}\n{}\n{}",
        right_aligned(table),
        not_predicted(reasons)
    )
}

/// Why some lines have no prediction, each reason once.
fn not_predicted<'a>(all: impl Iterator<Item = &'a String>) -> String {
    let mut reasons: Vec<&String> = Vec::new();
    for why in all {
        if !reasons.contains(&why) {
            reasons.push(why);
        }
    }
    let lines = reasons.iter().map(|why| format!("not predicted: {why}\n"));
    lines.collect()
}

/// Predictions beside the lines of a `bench` result.
pub(super) fn beside(machine: &Machine, path: &Path, form: Form) -> Result<Outcome, Failure> {
    let calls = calls(machine)?;
    let report: BenchReport = results::read_as(path)?;
    let found = against(calls, &report);
    let text = match form {
        Form::Json => document(&json!({
            "schema_version": SCHEMA_VERSION,
            "tool": crate::TOOL,
            "predicted": true,
            "model": machine.name,
            "measured": calls.measured,
            "against": path,
            "lines": found.predicted,
            "median_error": found.median_error,
            "p90_error": found.p90_error,
            "rows": found.rows,
        })),
        Form::Table => side_by_side(machine, &found) + &grounds(calls),
    };
    Ok(Outcome::ok(text))
}

fn side_by_side(machine: &Machine, found: &Against) -> String {
    let mut table = styled();
    table.set_header([
        "Call",
        "Measured",
        "Predicted",
        "Error",
        "Way",
        "Most of it",
    ]);
    for row in &found.rows {
        table.add_row(cells(row));
    }
    let percent = |part: Option<f64>| {
        part.map_or_else(
            || "unknown".to_owned(),
            |part| format!("{:.1} %", part * 100.0),
        )
    };
    let reasons = found.rows.iter().filter_map(|row| row.unknown.as_ref());
    format!(
        "Predicted by {} beside measured\n{}\n{} of {} lines predicted: median error {}, nine in ten within {}\n{}",
        machine.name,
        right_aligned(table),
        found.predicted,
        found.rows.len(),
        percent(found.median_error),
        percent(found.p90_error),
        not_predicted(reasons),
    )
}

fn cells(row: &Row) -> [String; 6] {
    let shown = |us: f64| show_seconds(us * 1e-6);
    let way = match (&row.predicted_route, &row.taken) {
        (Some(predicted), Some(taken)) if predicted != taken => {
            format!("{predicted}, took {taken}")
        }
        (Some(predicted), _) => predicted.clone(),
        (None, _) => String::new(),
    };
    [
        row.name.clone(),
        shown(row.measured_us),
        row.predicted_us.map_or_else(|| "-".to_owned(), shown),
        row.error
            .map_or(String::new(), |error| format!("{:+.0} %", error * 100.0)),
        way,
        row.bound.unwrap_or_default().to_owned(),
    ]
}

fn grounds(calls: &Calls) -> String {
    let measured = &calls.measured;
    format!(
        "Predicted from costs measured {} on {}, {} processors, load {:.1} to {:.1}.\n",
        measured.at, measured.cpu, measured.processors, measured.load[0], measured.load[1]
    )
}
