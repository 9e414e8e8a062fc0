//! `muster compare`: two result files, and whether the new one is worse.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::bench::measured::Pulse;
use crate::bench::model::BenchReport;
use crate::compare::files::{self, Results};
use crate::compare::judge::{self, Comparison, Wishes};
use crate::compare::{rows, view};
use crate::exit::Exit;
use crate::fail::Failure;
use crate::out;
use crate::report::model::Report;

/// Options of `muster compare`.
#[derive(Debug, Args)]
#[command(
    about = "Compare two result files of bench or verify, and name what became worse",
    long_about = "Compares two result files of `muster bench` or of `muster verify`. Rows are matched by everything that \
        was chosen; times are judged by a rank test over rounds with an interval for the effect, corrected for the number \
        of rows; wrong data is judged first. docs/compare.md explains it.",
    after_long_help = after_long_help(),
)]
pub struct CompareArgs {
    /// The result to compare with
    #[arg(value_name = "BASE")]
    base: PathBuf,

    /// The result to judge
    #[arg(value_name = "NEW")]
    new: PathBuf,

    /// Another run of the base, whose rounds count too; may be given more than once
    #[arg(long, value_name = "FILE")]
    more_base: Vec<PathBuf>,

    /// Another run of what is judged; may be given more than once
    #[arg(long, value_name = "FILE")]
    more_new: Vec<PathBuf>,

    /// Least change that counts, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, value_parser = percent)]
    threshold: f64,

    /// Rows that are not in the new file are no failure
    #[arg(long)]
    allow_missing: bool,

    /// Compare although machine, build profile, backend or transport differ
    #[arg(long)]
    any_machine: bool,

    /// Print Markdown, for the summary of a CI job
    #[arg(long, conflicts_with = "format")]
    markdown: bool,

    /// How to show the result
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// How a comparison is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One JSON document
    Json,
    /// Sentences, the worst first
    Text,
}

fn after_long_help() -> String {
    format!(
        "Examples:\n  \
         muster bench --rounds 10 --save base.json     before a change\n  \
         muster bench --rounds 10 --save new.json      after it\n  \
         muster compare base.json new.json             exit 50 where something became slower\n  \
         muster compare base.json new.json --markdown >> \"$GITHUB_STEP_SUMMARY\"\n\n{}",
        Exit::table()
    )
}

fn percent(text: &str) -> Result<f64, String> {
    text.trim_end_matches('%')
        .parse()
        .ok()
        .filter(|percent: &f64| (0.1..=1000.0).contains(percent))
        .ok_or_else(|| "a threshold is 0.1 to 1000 percent".to_owned())
}

/// Runs `muster compare`.
///
/// # Errors
/// If a file cannot be used, the files do not fit together, or the result cannot be written.
pub fn run(args: &CompareArgs) -> Result<Exit, Failure> {
    let read = |first: &PathBuf, more: &[PathBuf]| -> Result<Vec<Results>, Failure> {
        let all = std::iter::once(first).chain(more);
        all.map(|path| files::read(path)).collect()
    };
    let base = read(&args.base, &args.more_base)?;
    let new = read(&args.new, &args.more_new)?;
    let command = base.first().map_or("", Results::command);
    if let Some(other) = base
        .iter()
        .chain(&new)
        .find(|file| file.command() != command)
    {
        return Err(Failure::usage(format!(
            "a result of {command} cannot be compared with one of {}",
            other.command()
        )));
    }
    let wishes = Wishes {
        threshold: args.threshold / 100.0,
        allow_missing: args.allow_missing,
    };
    let (base_bench, base_verify) = split(base);
    let (new_bench, new_verify) = split(new);
    let comparison = if command == "bench" {
        same_machine(&base_bench, &new_bench, args.any_machine)?;
        judge::judge(
            &rows::of_bench(&base_bench),
            &rows::of_bench(&new_bench),
            &pulses(&base_bench),
            &pulses(&new_bench),
            &wishes,
        )
    } else {
        let (base, new) = (rows::of_verify(&base_verify), rows::of_verify(&new_verify));
        judge::judge(&base, &new, &[], &[], &wishes)
    };
    let comparison = with_early_end(comparison, &new_bench, &new_verify);
    out::result(&match (args.markdown, args.format) {
        (true, _) => view::markdown(&comparison),
        (false, Format::Text) => view::text(&comparison),
        (false, Format::Json) => document(&comparison, command)?,
    })?;
    Ok(comparison.class)
}

fn split(files: Vec<Results>) -> (Vec<BenchReport>, Vec<Report>) {
    let (mut bench, mut verify) = (Vec::new(), Vec::new());
    for file in files {
        match file {
            Results::Bench(report) => bench.push(*report),
            Results::Verify(report) => verify.push(*report),
        }
    }
    (bench, verify)
}

fn pulses(reports: &[BenchReport]) -> Vec<Pulse> {
    let states = reports.iter().flat_map(|report| &report.machine_states);
    states.map(|state| state.pulse).collect()
}

fn same_machine(base: &[BenchReport], new: &[BenchReport], any: bool) -> Result<(), Failure> {
    let Some(first) = base.first() else {
        return Ok(());
    };
    for other in base.iter().chain(new) {
        let differences = files::differences(first, other);
        if !differences.is_empty() && !any {
            return Err(Failure::usage(format!(
                "times of different machines or settings say nothing about the program: {}",
                differences.join("; ")
            ))
            .with_help("measure both on one machine, or say --any-machine"));
        }
    }
    Ok(())
}

/// A run that ended early is no pass, whatever its rows say.
fn with_early_end(
    mut comparison: Comparison,
    bench: &[BenchReport],
    verify: &[Report],
) -> Comparison {
    let ends = bench
        .iter()
        .map(|report| &report.verdict)
        .chain(verify.iter().map(|report| &report.verdict));
    for verdict in ends.flatten().filter(|verdict| verdict.class != Exit::Data) {
        let name = verdict.class.class();
        comparison
            .remarks
            .push(format!("the new run ended early: {name} {}", verdict.text));
        if comparison.class == Exit::Ok {
            comparison.class = Exit::Internal;
            comparison.exit_code = Exit::Internal.code();
        }
    }
    comparison
}

fn document(comparison: &Comparison, command: &str) -> Result<String, Failure> {
    let broken = |error: serde_json::Error| {
        Failure::internal(format!("the comparison cannot be written as JSON: {error}"))
    };
    let mut value = serde_json::json!({
        "schema_version": 1,
        "tool": crate::report::model::TOOL,
        "command": "compare",
        "compared": command,
        "passed": comparison.class == Exit::Ok,
    });
    let fields = serde_json::to_value(comparison).map_err(broken)?;
    if let (Some(value), Some(fields)) = (value.as_object_mut(), fields.as_object()) {
        value.extend(fields.clone());
    }
    let mut text = serde_json::to_string(&value).map_err(broken)?;
    text.push('\n');
    Ok(text)
}
