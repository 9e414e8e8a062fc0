//! `muster plan check`: every algorithm, proved.

use std::fmt::Write as _;

use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use muster_comm::algo::{Algorithm, algorithms_for, planned, sweep};
use muster_comm::types::Collective;
use serde_json::json;

use super::{Outcome, SCHEMA_VERSION, document, parse_collective, unfit};
use crate::cmd::saving::Form;
use crate::exit::Exit;
use crate::fail::Failure;

/// Most ranks that a check may go up to: the work grows with the fourth power, and 100 ranks take
/// minutes.
const N_MAX: u32 = 100;

/// Options of `muster plan check`.
#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// Collectives to check [default: all]
    #[arg(value_name = "COLLECTIVE", value_parser = parse_collective)]
    collectives: Vec<Collective>,

    /// Check every number of ranks from 1 to this one
    #[arg(long, value_name = "N", default_value_t = 33, value_parser = clap::value_parser!(u32).range(1..=i64::from(N_MAX)))]
    n_max: u32,

    /// How to show the result
    #[arg(long, value_enum, default_value_t)]
    format: Form,
}

/// What came out for one algorithm of one collective.
struct Row {
    collective: Collective,
    algorithm: &'static Algorithm,
    cases: usize,
    in_place: usize,
    /// The first case that is wrong, and why.
    fault: Option<String>,
}

pub(super) fn render(args: &CheckArgs) -> Result<Outcome, Failure> {
    let collectives: Vec<Collective> = if args.collectives.is_empty() {
        planned().collect()
    } else {
        args.collectives.clone()
    };
    let mut rows = Vec::new();
    for collective in collectives {
        for algorithm in algorithms_for(collective) {
            rows.push(prove(collective, algorithm, args.n_max as usize)?);
        }
    }
    // A plan that cannot be proved is a bug of ours.
    let passed = rows.iter().all(|row| row.fault.is_none());
    let text = match args.format {
        Form::Table => table(&rows, args.n_max),
        Form::Json => json(&rows, args.n_max, passed),
    };
    Ok(Outcome {
        exit: if passed { Exit::Ok } else { Exit::Internal },
        text,
    })
}

fn prove(
    collective: Collective,
    algorithm: &'static Algorithm,
    n_max: usize,
) -> Result<Row, Failure> {
    let mut row = Row {
        collective,
        algorithm,
        cases: 0,
        in_place: 0,
        fault: None,
    };
    for n in 1..=n_max {
        for problem in sweep::problems(collective, n).map_err(unfit)? {
            match sweep::prove(algorithm, &problem) {
                Ok(proof) => {
                    row.cases += 1;
                    row.in_place += usize::from(proof.in_place);
                }
                Err(error) => {
                    row.fault = Some(format!("n={n}: {error}"));
                    return Ok(row);
                }
            }
        }
    }
    Ok(row)
}

fn table(rows: &[Row], n_max: u32) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header([
        "Collective",
        "Algorithm",
        "Links",
        "Cases",
        "In place",
        "Verdict",
    ]);
    for row in rows {
        table.add_row([
            row.collective.name().to_owned(),
            row.algorithm.name.to_owned(),
            row.algorithm.links.name().to_owned(),
            row.cases.to_string(),
            row.in_place.to_string(),
            row.fault.clone().unwrap_or_else(|| "proved".to_owned()),
        ]);
    }
    for column in 3..5 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let cases: usize = rows.iter().map(|row| row.cases).sum();
    let wrong = rows.iter().filter(|row| row.fault.is_some()).count();
    let mut text = format!("{table}\n");
    // Writing to a string cannot fail.
    let _ = if wrong == 0 {
        writeln!(
            text,
            "\n{} algorithms over 1 to {n_max} ranks, {cases} cases: all proved",
            rows.len()
        )
    } else {
        writeln!(text, "\n{wrong} of {} algorithms are wrong", rows.len())
    };
    text
}

fn json(rows: &[Row], n_max: u32, passed: bool) -> String {
    let algorithms: Vec<_> = rows
        .iter()
        .map(|row| {
            json!({
                "collective": row.collective,
                "algo": row.algorithm.name,
                "links": row.algorithm.links,
                "cases": row.cases,
                "in_place": row.in_place,
                "passed": row.fault.is_none(),
                "fault": row.fault,
            })
        })
        .collect();
    document(&json!({
        "schema_version": SCHEMA_VERSION,
        "tool": crate::TOOL,
        "n_max": n_max,
        "passed": passed,
        "algorithms": algorithms,
    }))
}
