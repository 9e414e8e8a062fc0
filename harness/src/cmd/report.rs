//! `muster report`: a result file in other forms.

use std::path::PathBuf;

use clap::Args;

use crate::exit::Exit;
use crate::fail::Failure;
use crate::results;

use super::saving::{Saving, Target, target};

/// Options of `muster report`.
#[derive(Debug, Args)]
#[command(
    about = "Write reports of a result file: a page, JUnit, Markdown, CSV, Prometheus",
    long_about = "Reads a result that verify, bench, moe, compare, drill, doctor, validate or baseline wrote with --save or --format json, and writes it in other forms, \
        each as the ending of the file's name says. Nothing is run, and a result that failed is no failure here.",
    after_long_help = "Examples:\n  \
        muster report result.json report.html\n  \
        muster report nightly.json nightly.xml nightly.prom nightly.md"
)]
pub struct ReportArgs {
    /// The result file
    #[arg(value_name = "RESULT")]
    result: PathBuf,

    /// What to write: .html, .xml (JUnit), .md, .csv, .prom or .json
    #[arg(value_name = "FILE", required = true, value_parser = target)]
    files: Vec<Target>,
}

/// Runs `muster report`.
///
/// # Errors
/// If the result cannot be used or a file cannot be written.
pub fn run(args: &ReportArgs) -> Result<Exit, Failure> {
    let result = results::read(&args.result)?;
    let saving = Saving::of(args.files.clone(), None);
    saving.check()?;
    saving.write(result.as_ref())?;
    Ok(Exit::Ok)
}
