//! The commands, one file each: its options and what it does.
//!
//! A command gives back the class of its outcome, or a [`Failure`] that the
//! top prints. It prints results through [`crate::out`] and nothing else.

pub mod baseline;
pub mod bench;
mod child;
pub mod compare;
pub mod completions;
pub mod doctor;
pub mod drill;
pub mod dump;
pub mod emu;
pub mod env;
pub mod groups;
mod library;
mod machine;
mod measure;
pub mod moe;
pub mod plan;
pub mod rank;
pub mod ranktable;
pub mod replay;
pub mod report;
pub mod rules;
pub mod run;
pub mod saving;
pub mod tap;
pub mod top;
pub mod tune;
pub mod validate;
mod values;
pub mod verify;

use clap::Subcommand;

use crate::exit::Exit;
use crate::fail::Failure;

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start the ranks of each matrix and prove every group of it
    Verify(Box<verify::VerifyArgs>),
    /// Accept a host or refuse it: doctor, verify, bench, moe and a drill
    Validate(validate::ValidateArgs),
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
    /// Learn from the results of many hosts or runs what is normal, and name outliers
    Baseline(baseline::BaselineArgs),
    /// Write reports of a result file: a page, JUnit, Markdown, CSV, Prometheus
    Report(report::ReportArgs),
    /// Measure dispatch and combine of tokens as in MoE layers
    Moe(Box<moe::MoeArgs>),
    /// Start any program as the ranks of a world, watch it, and report which rank failed
    Run(run::RunArgs),
    /// Inject faults into real ranks and check their verdicts
    Drill(drill::DrillArgs),
    /// Make the calls of a recorded program again, and check their results
    Replay(replay::ReplayArgs),
    /// Print what ranks are doing, even if they are stuck
    Dump(dump::DumpArgs),
    /// Print the verdict from dumps of many ranks
    Explain(dump::ExplainArgs),
    /// Show what running jobs do: ranks, calls, waits, bandwidth
    Top(top::TopArgs),
    /// Print which ranks form which group
    Groups(Box<groups::GroupsArgs>),
    /// Show, prove and price the algorithms
    Plan(plan::PlanArgs),
    /// Check a rank table of HCCL, or write one
    Ranktable(ranktable::RankTableArgs),
    /// Install and explain the emulator of HCCL
    Emu(emu::EmuArgs),
    /// Watch programs that call HCCL by themselves, and say why they hang
    Tap(tap::TapArgs),
    /// Print a completion script for a shell
    Completions(completions::CompletionsArgs),
    /// One rank of a run; started by the launcher, not by people
    #[command(name = "__rank", hide = true)]
    Rank(rank::RankArgs),
    /// One rank of `muster replay`
    #[command(name = "__replay", hide = true)]
    ReplayRank(replay::RankArgs),
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

impl Command {
    /// Runs the command; `cli` is the whole command line, for completions.
    ///
    /// # Errors
    /// As the command has them.
    pub fn run(&self, cli: clap::Command) -> Result<Exit, Failure> {
        match self {
            Self::Verify(args) => verify::run(args),
            Self::Validate(args) => validate::run(args),
            Self::Doctor(args) => doctor::run(args),
            Self::Env(args) => env::run(args),
            Self::Ranktable(args) => ranktable::run(args),
            Self::Bench(args) => bench::run(args),
            Self::Tune(args) => tune::run(args),
            Self::Compare(args) => compare::run(args),
            Self::Baseline(args) => baseline::run(args),
            Self::Report(args) => report::run(args),
            Self::Moe(args) => moe::run(args),
            Self::Groups(args) => {
                groups::run(args, &mut anstream::stdout().lock()).map_err(Failure::from)
            }
            Self::Plan(args) => plan::run(args),
            Self::Emu(args) => emu::run(args),
            Self::Tap(args) => tap::run(args),
            Self::Top(args) => top::run(args),
            Self::Completions(args) => completions::run(args, cli),
            Self::Replay(args) => replay::run(args),
            Self::ReplayRank(args) => replay::rank(args),
            Self::Rank(args) => rank::run(args),
            Self::Run(args) => run::run(args),
            Self::Exec(args) => run::exec(args),
            Self::Guard(args) => run::guard(args),
            Self::Drill(args) => drill::run(args),
            Self::Actor(args) => drill::play(args),
            Self::Dump(args) => dump::run(args),
            Self::Explain(args) => dump::explain(args),
        }
    }
}
