//! `muster __rank`: one rank of a matrix, started by the launcher.

use clap::Args;

use crate::exit::Exit;
use crate::fail::Failure;
use crate::world::tether;

/// Options of a rank.
#[derive(Debug, Args)]
pub struct RankArgs {
    /// Process id of the launcher
    #[arg(long)]
    launcher: u32,
    /// The job, as JSON
    #[arg(long)]
    job: String,
}

/// Runs one rank to its end.
///
/// # Errors
/// If the launcher is gone, or the job cannot be understood or done.
pub fn run(args: &RankArgs) -> Result<Exit, Failure> {
    tether::tie_to(args.launcher)?;
    Err(Failure::internal(format!(
        "nothing to do yet for {}",
        args.job
    )))
}
