//! `muster plan`: shows, proves and prices the algorithms of collectives.
//!
//! Nothing here talks to a rank: plans are arithmetic.

mod check;
mod cost;
mod describe;
mod modelled;
mod show;
mod table;

use clap::{Args, Subcommand};
use muster_comm::algo::planned;
use muster_comm::types::{Collective, closest};

use crate::cmd::values::did_you_mean;
use crate::exit::Exit;
use crate::fail::Failure;
use crate::out;

/// Version of the JSON documents of this command.
const SCHEMA_VERSION: u32 = 1;

/// Options of `muster plan`.
#[derive(Debug, Args)]
#[command(
    about = "Show, prove and price the algorithms of collectives",
    long_about = "A plan carries out a collective: rounds of steps for each rank. This command draws plans, proves \
        that they are correct, predicts their costs, and prints the table that selects algorithms. It starts no \
        ranks.",
    after_long_help = AFTER_LONG_HELP,
)]
pub struct PlanArgs {
    #[command(subcommand)]
    what: What,
}

const AFTER_LONG_HELP: &str = "Examples:\n  \
    muster plan show all_reduce -n 8 --algo ring              every round of every rank\n  \
    muster plan show all_to_all -n 4 --format svg > plan.svg  a picture\n  \
    muster plan check                                         prove all algorithms, 1 to 33 ranks\n  \
    muster plan cost all_reduce -n 64 --bytes 8KiB,64MiB      predicted times\n  \
    muster plan describe                                      a page about all algorithms\n  \
    muster plan table --file my-rules.txt                     check your own selection table";

#[derive(Debug, Subcommand)]
enum What {
    /// Draw the plans of one collective
    Show(show::ShowArgs),
    /// Prove every algorithm for many numbers of ranks and shapes
    Check(check::CheckArgs),
    /// Count and predict what the algorithms of a collective cost
    Cost(Box<cost::CostArgs>),
    /// Print a Markdown page that describes every algorithm, with its costs and predicted times
    Describe,
    /// Print the table that selects algorithms
    Table(table::TableArgs),
    /// Print the file of a machine that predictions know, to add figures to it for --topology FILE
    Topology(TopologyArgs),
}

/// Options of `muster plan topology`.
#[derive(Debug, Args)]
struct TopologyArgs {
    /// The machine
    #[arg(value_name = "PRESET", value_parser = crate::topology::preset)]
    text: &'static str,
}

/// A result to print, and the class of the outcome.
#[derive(Debug)]
struct Outcome {
    exit: Exit,
    text: String,
}

impl Outcome {
    fn ok(text: String) -> Self {
        Self {
            exit: Exit::Ok,
            text,
        }
    }
}

/// Runs `muster plan`.
///
/// # Errors
/// If an option is wrong or the result cannot be written.
pub fn run(args: &PlanArgs) -> Result<Exit, Failure> {
    let outcome = render(args)?;
    out::result(&outcome.text)?;
    Ok(outcome.exit)
}

fn render(args: &PlanArgs) -> Result<Outcome, Failure> {
    match &args.what {
        What::Show(args) => show::render(args),
        What::Check(args) => check::render(args),
        What::Cost(args) => cost::render(args),
        What::Describe => describe::render(),
        What::Table(args) => table::render(args),
        What::Topology(args) => Ok(Outcome::ok(args.text.to_owned())),
    }
}

/// A collective that is carried out by plans.
fn parse_collective(word: &str) -> Result<Collective, String> {
    let names = || planned().map(Collective::name);
    planned()
        .find(|collective| collective.name() == word)
        .ok_or_else(|| {
            let known: Vec<&str> = names().collect();
            let meant = did_you_mean(closest(word, names()));
            format!("known: {}{meant}", known.join(", "))
        })
}

/// A JSON document, ended by a newline.
fn document(value: &serde_json::Value) -> String {
    format!("{value}\n")
}

/// What a failure to plan is: something in the options that does not fit together.
fn unfit(error: impl std::fmt::Display) -> Failure {
    Failure::usage(error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        plan: PlanArgs,
    }

    fn outcome(line: &str) -> Result<Outcome, Failure> {
        let words = std::iter::once("plan").chain(line.split_whitespace());
        render(&Cli::try_parse_from(words).expect("legal options").plan)
    }

    fn refused(line: &str) -> String {
        let words = std::iter::once("plan").chain(line.split_whitespace());
        match Cli::try_parse_from(words) {
            Err(error) => error.to_string(),
            Ok(cli) => {
                let failure = render(&cli.plan).expect_err("not legal");
                assert_eq!(failure.exit, Exit::Usage);
                failure.message
            }
        }
    }

    #[test]
    fn show_draws_the_selected_algorithm_or_the_one_asked_for() {
        let text = outcome("show all_reduce -n 4").expect("shown").text;
        assert!(text.starts_with("all_reduce, recursive_doubling"), "{text}");
        assert!(text.contains("proved"), "{text}");
        let text = outcome("show all_reduce -n 4 --algo ring --count 8 --rank 2")
            .expect("shown")
            .text;
        assert!(text.contains("rank 2, scratch 0"), "{text}");
        assert!(!text.contains("rank 1, scratch"), "{text}");
        let text = outcome("show broadcast -n 3 --root 1 --links direct")
            .expect("shown")
            .text;
        assert!(text.contains("expose Out[0..12]"), "{text}");
        for (format, start) in [("mermaid", "sequenceDiagram"), ("svg", "<svg ")] {
            let line = format!("show all_to_all -n 3 --format {format}");
            let text = outcome(&line).expect("shown").text;
            assert!(text.starts_with(start), "{text}");
        }
    }

    #[test]
    fn show_as_json_holds_every_step_of_every_rank() {
        let text = outcome("show all_gather_v -n 3 --counts 2,0,1 --algo pairwise --format json")
            .expect("shown")
            .text;
        let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(value["schema_version"], SCHEMA_VERSION);
        assert_eq!(value["algo"], "pairwise");
        assert_eq!(value["plans"].as_array().map(Vec::len), Some(3));
        let step = &value["plans"][0]["rounds"][0]["steps"][0];
        assert_eq!(step["step"], "copy");
        assert_eq!(step["src"]["space"], "in");
        assert_eq!(step["src"]["len"], 2);
    }

    #[test]
    fn wrong_options_are_refused_with_what_is_allowed() {
        let message = refused("show all_redcue -n 4");
        assert!(message.contains("did you mean all_reduce?"), "{message}");
        let message = refused("show all_reduce -n 4 --algo rign");
        assert!(message.contains("did you mean ring?"), "{message}");
        let message = refused("show reduce -n 4 --root 4");
        assert!(message.contains("ranks are 0 to 3"), "{message}");
        let message = refused("show all_gather_v -n 4 --counts 1,2");
        assert!(message.contains("4 counts"), "{message}");
        let message = refused("show all_reduce -n 4 --counts 1,2,3,4");
        assert!(message.contains("--count"), "{message}");
        let message = refused("show all_reduce -n 4 --root 1");
        assert!(message.contains("no root"), "{message}");
        let message = refused("show all_reduce -n 4 --rank 9");
        assert!(message.contains("0 to 3"), "{message}");
        let message = refused("check --n-max 1000");
        assert!(message.contains("1000"), "{message}");
        let message = refused("cost all_reduce -n 4 --bytes 3MB");
        assert!(message.contains("MiB"), "{message}");
        refused("show all_reduce -n 0");
    }

    #[test]
    fn check_proves_what_it_lists() {
        let outcome_table = outcome("check --n-max 4").expect("checked");
        assert_eq!(outcome_table.exit, Exit::Ok);
        assert!(outcome_table.text.contains("halving_doubling"));
        assert!(outcome_table.text.contains("all proved"));
        let text = outcome("check barrier --n-max 9 --format json")
            .expect("checked")
            .text;
        let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(value["passed"], true);
        assert_eq!(value["algorithms"].as_array().map(Vec::len), Some(3));
        assert_eq!(value["algorithms"][1]["cases"], 9);
    }

    #[test]
    fn cost_counts_and_predicts_every_algorithm_that_the_hosts_allow() {
        let text = outcome("cost all_reduce -n 16 --bytes 1KiB,64MiB")
            .expect("priced")
            .text;
        assert!(text.contains("ring") && text.contains("64 MiB"), "{text}");
        assert!(
            !text.contains("direct"),
            "two hosts share no memory: {text}"
        );
        let text = outcome("cost all_reduce -n 8 --bytes 1KiB --format json")
            .expect("priced")
            .text;
        let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(value["predictions"][0]["algo"], "direct");
        assert!(value["predictions"][0]["seconds"].as_f64() > Some(0.0));
    }

    #[test]
    fn table_prints_rules_that_it_can_read_itself() {
        let text = outcome("table").expect("printed").text;
        muster_comm::algo::Table::with_overrides(&text).expect("its own output is legal");
    }
}
