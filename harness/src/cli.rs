//! The command line: which commands there are, what `--help` teaches, and how outcomes become exit
//! codes. The options of a command live with the command.

use std::ffi::OsString;

use clap::{CommandFactory, Parser, Subcommand};

use crate::cmd::{
    bench, compare, completions, doctor, drill, dump, emu, env, groups, moe, plan, rank, ranktable,
    report, run, tune, verify,
};
use crate::exit::Exit;
use crate::fail::Failure;
use crate::out;

/// Proves the parallel groups of a training stack on this machine, and names the failing rank
#[derive(Debug, Parser)]
#[command(
    name = "muster",
    version,
    max_term_width = 100,
    after_help = "Run `muster --help` for examples and the exit codes, `muster verify --help` for the main command.",
    after_long_help = long_help(),
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start the ranks of each matrix and prove every group of it
    Verify(Box<verify::VerifyArgs>),
    /// Check this host for what will make a job fail
    Doctor(doctor::DoctorArgs),
    /// Show this process's rank, world and devices by its environment
    Env(env::EnvArgs),
    /// Measure collectives: latency on the slowest rank, bandwidth, wrong elements
    Bench(Box<bench::BenchArgs>),
    /// Measure which algorithms are best on this machine, and write a selection table
    Tune(Box<tune::TuneArgs>),
    /// Compare two result files of verify, bench or moe, and name what became worse
    Compare(compare::CompareArgs),
    /// Write reports of a result file: a page, JUnit, Markdown, CSV, Prometheus
    Report(report::ReportArgs),
    /// Measure dispatch and combine of tokens as in MoE layers
    Moe(Box<moe::MoeArgs>),
    /// Start any program as the ranks of a world, watch it, and report which rank failed
    Run(run::RunArgs),
    /// Inject faults into real ranks and check their verdicts
    Drill(drill::DrillArgs),
    /// Print what ranks are doing, even if they are stuck
    Dump(dump::DumpArgs),
    /// Print the verdict from dumps of many ranks
    Explain(dump::ExplainArgs),
    /// Print which ranks form which group
    Groups(Box<groups::GroupsArgs>),
    /// Show, prove and price the algorithms
    Plan(plan::PlanArgs),
    /// Check a rank table of HCCL, or write one
    Ranktable(ranktable::RankTableArgs),
    /// Install and explain the emulator of HCCL
    Emu(emu::EmuArgs),
    /// Print a completion script for a shell
    Completions(completions::CompletionsArgs),
    /// One rank of a run; started by the launcher, not by people
    #[command(name = "__rank", hide = true)]
    Rank(rank::RankArgs),
    /// The process that becomes a rank of `muster run`
    #[command(name = "__exec", hide = true)]
    Exec(run::ExecArgs),
    /// Ends what a killed launcher leaves behind
    #[command(name = "__guard", hide = true)]
    Guard(run::GuardArgs),
    /// One rank of a drill
    #[command(name = "__drill", hide = true)]
    Actor(drill::ActorArgs),
}

fn long_help() -> String {
    format!(
        "Examples:\n  \
         muster verify                        prove the default matrices on this machine\n  \
         muster verify tp2ep4 --format json   one matrix, for a program to read\n  \
         mpirun -n 8 muster verify tp2ep4     join the ranks that a launcher started\n\n{}",
        Exit::table()
    )
}

/// Runs the command line, whose first word is the program's name, and gives back how it ended.
pub fn run(words: impl IntoIterator<Item = OsString>) -> Exit {
    let cli = match Cli::try_parse_from(words) {
        Ok(cli) => cli,
        Err(error) => {
            // Help goes to stdout, complaints to stderr; a closed pipe is nobody's problem.
            let _ = error.print();
            return if error.exit_code() == 0 {
                Exit::Ok
            } else {
                Exit::Usage
            };
        }
    };
    let outcome = match &cli.command {
        Command::Verify(args) => verify::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Env(args) => env::run(args),
        Command::Ranktable(args) => ranktable::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Tune(args) => tune::run(args),
        Command::Compare(args) => compare::run(args),
        Command::Report(args) => report::run(args),
        Command::Moe(args) => moe::run(args),
        Command::Groups(args) => groups::run(args, &mut anstream::stdout().lock())
            .map(|()| Exit::Ok)
            .map_err(Failure::from),
        Command::Plan(args) => plan::run(args),
        Command::Emu(args) => emu::run(args),
        Command::Completions(args) => completions::run(args, Cli::command()),
        Command::Rank(args) => rank::run(args),
        Command::Run(args) => run::run(args),
        Command::Exec(args) => run::exec(args),
        Command::Guard(args) => run::guard(args),
        Command::Drill(args) => drill::run(args),
        Command::Actor(args) => drill::play(args),
        Command::Dump(args) => dump::run(args),
        Command::Explain(args) => dump::explain(args),
    };
    outcome.unwrap_or_else(|failure| out::failure(&failure))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_of_commands_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_long_help_lists_every_exit_code() {
        let help = Cli::command().render_long_help().to_string();
        for exit in Exit::ALL {
            assert!(
                help.contains(exit.class()),
                "{} is missing from\n{help}",
                exit.class()
            );
        }
    }
}
