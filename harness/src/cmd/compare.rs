//! `muster compare`: two result files or two builds, and whether the new one is worse.

mod turns;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use muster_comm::config::Environment;

use crate::cmd::saving::Saving;
use crate::cmd::values::percent;
use crate::compare::judge::{self, Comparison, Wishes};
use crate::compare::report::CompareReport;
use crate::compare::side::Side;
use crate::compare::states::in_one_state;
use crate::compare::view;
use crate::exit::Exit;
use crate::fail::Failure;
use crate::out;
use crate::report::cause::Cause;
use crate::report::document::Document;
use crate::report::machine::Machine;
use crate::report::origin::Origin;
use crate::results;

/// Options of `muster compare`.
#[derive(Debug, Args)]
#[command(
    about = "Compare two result files of bench, moe or verify, and name what became worse",
    long_about = "Compares two result files of `muster bench`, of `muster moe` or of `muster verify`. Rows are matched by everything that \
        was chosen; times are judged by a rank test over rounds with an interval for the effect, corrected for the number \
        of rows; wrong data is judged first. docs/compare.md explains it.",
    after_long_help = after_long_help(),
)]
pub struct CompareArgs {
    /// The result to compare with
    #[arg(value_name = "BASE", required_unless_present = "run")]
    base: Option<PathBuf>,

    /// The result to check
    #[arg(value_name = "NEW", required_unless_present = "run")]
    new: Option<PathBuf>,

    /// Instead of files: a build of muster to measure, given twice, the base first; both measure in turns, a round each, what is written after `--`
    #[arg(long, value_name = "PROGRAM", conflicts_with_all = ["base", "new", "more_base", "more_new"])]
    run: Vec<PathBuf>,

    /// How often each of the builds measures, 5 rounds each time
    #[arg(long, value_name = "N", default_value_t = 4, conflicts_with = "base", value_parser = clap::value_parser!(u32).range(1..=200))]
    turns: u32,

    /// What the builds measure: `bench` or `moe` with options
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "base", default_values_t = ["bench".to_owned()])]
    command: Vec<String>,

    /// Another run of the base, whose rounds are added; may be given more than once
    #[arg(long, value_name = "FILE")]
    more_base: Vec<PathBuf>,

    /// Another run of the new result; may be given more than once
    #[arg(long, value_name = "FILE")]
    more_new: Vec<PathBuf>,

    /// Smallest change that counts, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, value_parser = percent)]
    threshold: f64,

    /// How much slower a row may be at most to count as the same, in percent [default: twice the threshold]
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    margin: Option<f64>,

    /// Accept rows that are missing in the new file
    #[arg(long)]
    allow_missing: bool,

    /// Compare even if machine, build profile, backend or transport differ
    #[arg(long)]
    any_machine: bool,

    /// The same as `--format markdown`
    #[arg(long, hide = true, conflicts_with = "format")]
    markdown: bool,

    /// How to show the result
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,

    #[command(flatten)]
    saving: Saving,
}

/// How a comparison is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One JSON document
    Json,
    /// Markdown, for the summary of a CI job
    Markdown,
    /// Sentences, the worst first
    #[value(alias = "text")]
    Table,
}

fn after_long_help() -> String {
    format!(
        "Examples:\n  \
         muster bench --rounds 10 --save base.json     before a change\n  \
         muster bench --rounds 10 --save new.json      after it\n  \
         muster compare base.json new.json             exit 50 if something became slower\n  \
         muster compare base.json new.json --format markdown >> \"$GITHUB_STEP_SUMMARY\"\n  \
         muster compare --run old/muster --run new/muster -- bench all_to_all -e 1M     two builds, in turns\n\n{}",
        Exit::table()
    )
}

/// Runs `muster compare`.
///
/// # Errors
/// If a file cannot be used, the files do not fit together, or the result cannot be written.
pub fn run(args: &CompareArgs) -> Result<Exit, Failure> {
    args.saving.check()?;
    let [base, new] = args.sides()?;
    let command = base.first().map_or("", |file| file.about().command);
    let wishes = Wishes {
        threshold: args.threshold / 100.0,
        margin: args.margin.unwrap_or(2.0 * args.threshold) / 100.0,
        allow_missing: args.allow_missing,
        pairs: !args.run.is_empty(),
    };
    let (mut base, mut new) = args.comparable(&base, &new)?;
    let left_out = in_one_state(&mut base.measured, &mut new.measured, wishes.pairs);
    let mut comparison = judge::judge(
        &base.measured.rows,
        &new.measured.rows,
        &base.measured.pulses(),
        &new.measured.pulses(),
        &wishes,
    );
    comparison.remarks.extend(left_out);
    let comparison = with_early_end(comparison, &new.verdicts);
    args.publish(command, comparison, new.machine)
}

impl CompareArgs {
    /// The results of both sides, read or measured.
    fn sides(&self) -> Result<turns::Sides, Failure> {
        if let [base, new] = &self.run[..] {
            // Before the other turns.
            let check = |[base, new]: &turns::Sides| self.comparable(base, new).map(drop);
            return turns::measure([base, new], self.turns, &self.command, check);
        }
        if !self.run.is_empty() {
            return Err(Failure::usage(format!(
                "--run is given {} times, and two builds are compared",
                self.run.len()
            ))
            .with_help("say --run BASE --run NEW"));
        }
        let read = |first: &Option<PathBuf>, more: &[PathBuf]| {
            let all = first.iter().chain(more);
            all.map(|path| results::read(path))
                .collect::<Result<Vec<_>, Failure>>()
        };
        Ok([
            read(&self.base, &self.more_base)?,
            read(&self.new, &self.more_new)?,
        ])
    }

    /// Both sides, where they may be compared.
    fn comparable(
        &self,
        base: &[Box<dyn Document>],
        new: &[Box<dyn Document>],
    ) -> Result<(Side, Side), Failure> {
        let commands = || base.iter().chain(new).map(|file| file.about().command);
        let first = commands().next().unwrap_or("");
        if let Some(other) = commands().find(|other| *other != first) {
            return Err(Failure::usage(format!(
                "a result of {first} cannot be compared with one of {other}"
            )));
        }
        let (base, new) = (Side::of(base)?, Side::of(new)?);
        let differences = base.differences(&new);
        if !differences.is_empty() && !self.any_machine {
            return Err(Failure::usage(format!(
                "times of different machines or settings say nothing about the program: {}",
                differences.join("; ")
            ))
            .with_help("measure both in the same way on one machine, or say --any-machine"));
        }
        Ok((base, new))
    }

    /// What the base, or what is compared with it, is called.
    fn names(&self, side: usize) -> Vec<String> {
        let (first, more) = [(&self.base, &self.more_base), (&self.new, &self.more_new)][side];
        let program = self
            .run
            .get(side)
            .map(|program| turns::name(program, &self.command));
        let files = first
            .iter()
            .chain(more)
            .map(|path| path.display().to_string());
        files.chain(program).collect()
    }

    /// Writes and prints the result.
    fn publish(
        &self,
        command: &str,
        comparison: Comparison,
        machine: Option<Machine>,
    ) -> Result<Exit, Failure> {
        let report = CompareReport {
            base: self.names(0),
            new: self.names(1),
            machine,
            origin: Some(Origin::here(&Environment::capture())),
            ..CompareReport::new(command, comparison)
        };
        let written = self.saving.write(&report);
        out::result(&match (self.markdown, self.format) {
            (true, _) | (_, Format::Markdown) => view::markdown(&report.comparison),
            (false, Format::Table) => view::text(&report.comparison),
            (false, Format::Json) => report.json()?,
        })?;
        Saving::ended(report.comparison.class, written)
    }
}

/// A run that ended early is no pass, whatever its rows say.
fn with_early_end(mut comparison: Comparison, verdicts: &[Cause]) -> Comparison {
    for verdict in verdicts
        .iter()
        .filter(|verdict| verdict.class != Exit::Data)
    {
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
