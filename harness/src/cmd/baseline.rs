//! `muster baseline`: what is normal for a kind of host, learned from the results of many.

use std::path::PathBuf;

use clap::Args;
use muster_comm::config::Environment;

use crate::baseline::{Baseline, Run};
use crate::exit::Exit;
use crate::fail::Failure;
use crate::report::origin::Origin;
use crate::results;

use super::saving::{Form, Saving, Target, publish, target};
use super::values::percent;

/// Options of `muster baseline`.
#[derive(Debug, Args)]
#[command(
    about = "Learn from the results of many hosts or runs what is normal, and name outliers",
    long_about = "Reads results of validate, bench and moe, and learns what is normal: for each cell the median of the runs, how far they lie \
        apart, and the limit above which a cell is not normal. Runs with cells above it are named. `muster validate --against FILE` \
        holds a host against what was learned.",
    after_long_help = "Examples:\n  \
        muster validate --save $(hostname).json              on each host\n  \
        muster baseline *.json -o expected.json              what is normal, and who is not\n  \
        muster validate --against expected.json              on a new host\n\n\
        Exit code 0, or 50 if a run is an outlier."
)]
pub struct BaselineArgs {
    /// Results of `muster validate`, `bench` or `moe`, one for each host or run
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// Write what was learned to this file, as JSON
    #[arg(short, long, visible_alias = "save", value_name = "FILE")]
    output: Option<PathBuf>,

    /// How much slower than normal a cell may be, in percent, where runs lie closer together
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0, value_parser = percent)]
    margin: f64,

    /// Learn even if machine, build profile, backend or transport differ
    #[arg(long)]
    any_machine: bool,

    /// Text for people or JSON for programs
    #[arg(long, value_enum, default_value_t)]
    format: Form,

    /// Write a report too: .html, .xml (JUnit), .md, .csv, .prom or .json; may be given more than once
    #[arg(long, value_name = "FILE", value_parser = target)]
    report: Vec<Target>,
}

/// Learns, and says what.
///
/// # Errors
/// If a file cannot be used, files do not fit together, or the result cannot be written.
pub fn run(args: &BaselineArgs) -> Result<Exit, Failure> {
    let saving = Saving::of(args.report.clone(), args.output.clone());
    saving.check()?;
    let read = |path: &PathBuf| Run::of(&path.display().to_string(), &results::read_all(path)?);
    let runs = args
        .files
        .iter()
        .map(read)
        .collect::<Result<Vec<_>, Failure>>()?;
    let mut found = Baseline::learn(&runs, args.margin / 100.0, args.any_machine)?;
    found.origin = Some(Origin::here(&Environment::capture()));
    publish(&found, &saving, args.format.into())
}
