//! `muster __rank`: one rank of a matrix, started by the launcher.

use clap::Args;
use muster_comm::config::Environment;
use muster_comm::sync::Clock;
use muster_comm::world::World;

use crate::exit::Exit;
use crate::fail::Failure;
use crate::run::job::Job;
use crate::run::{joined, rank};
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
/// If the launcher is gone, the job cannot be understood, or the ranks do not come together.
pub fn run(args: &RankArgs) -> Result<Exit, Failure> {
    let started = Clock::now();
    tether::tie_to(args.launcher)?;
    let job: Job = serde_json::from_str(&args.job)
        .map_err(|error| Failure::usage(format!("the job cannot be read: {error}")))?;
    let layout = job
        .matrix
        .layout()
        .map_err(|error| Failure::usage(format!("matrix {}: {error}", job.matrix.name)))?;
    let environment = Environment::capture();
    let identity = joined::identity(&environment, None)?
        .ok_or_else(|| Failure::usage("a rank is started by `muster verify`, not by hand"))?;
    let options = joined::options(&environment, &identity, &job)?;
    let world = World::join(options).map_err(|error| joined::bring_up_failure(&error))?;
    let mut is_lost = false;
    let outcome = rank::run(&world, &job, &layout, started, &mut |bytes| {
        world.report(bytes).inspect_err(|_| is_lost = true)
    });
    match outcome {
        // What was wrong has been reported; this rank has done its work.
        Ok(_) => {
            world.leave();
            Ok(Exit::Ok)
        }
        // So has this, and the launcher prints it, unless no report reaches it any more.
        Err(failure) if failure.exit != Exit::Internal && !is_lost => Ok(failure.exit),
        Err(failure) => Err(failure),
    }
}
