//! One matrix whose ranks are processes of this host, started and supervised by this one.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use muster_comm::layout::FrameworkLayout;
use muster_comm::sync::Clock;

use crate::fail::Failure;
use crate::run::job::{Job, Transport};
use crate::run::jobs::Jobs;
use crate::run::launcher::{Command, Launcher};
use crate::run::supervisor::{GRACE, Limits, PATIENCE, Supervisor};
use crate::run::{Finished, Progress, printed};
use crate::world::limits;
use crate::world::signals::Interrupts;

/// Time for ranks to end by themselves after a request to stop.
const GRACE_INTERRUPTED: Duration = Duration::from_millis(500);

/// Makes sure that the host can carry the ranks of a job, before any rank of any job starts.
///
/// # Errors
/// A failure of class RESOURCE that names what is needed and what there is.
pub fn make_sure_that_it_fits(job: &Job, layout: &FrameworkLayout) -> Result<(), Failure> {
    let world_size = job.matrix.world_size;
    limits::make_room_for_descriptors(world_size)?;
    let bytes_a_rank = job.work.bytes_a_rank(layout);
    limits::check_memory(world_size, bytes_a_rank)
}

/// Starts the ranks of a job, waits for their answers, and reaps them.
///
/// # Errors
/// If the host cannot carry the ranks, or the meeting point cannot be made.
pub fn run(
    job: &Job,
    layout: &FrameworkLayout,
    interrupts: &Arc<Interrupts>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Finished, Failure> {
    let world_size = job.matrix.world_size;
    let started = Clock::now();
    let launcher = Launcher::serve("verify", world_size, job.deadline())?;
    let command = Command {
        args: arguments(job)?,
        env: environment(job),
        printer: None,
        torch: false,
    };
    let (ranks, _guard) = launcher.start(command, Arc::clone(interrupts))?;
    let limits = Limits {
        patience: job.deadline().saturating_add(PATIENCE),
        grace: GRACE,
        asked: None,
        interrupted: GRACE_INTERRUPTED,
    };
    let mut progress = |_: usize, so_far| progress(so_far);
    let jobs = Jobs::new([(job, layout)].into_iter(), started, &mut progress);
    let mut supervisor =
        Supervisor::new(&launcher.coordinator, world_size, ranks, limits).with_jobs(jobs);
    supervisor.supervise();
    let finished = supervisor.finish().pop();
    let mut finished = finished.ok_or_else(|| Failure::internal("no matrix to run"))?;
    // Ranks of a run that passes print nothing; what a library warns of there is worth a look.
    let blamed = finished
        .verdict
        .as_ref()
        .map_or(&[][..], |verdict| &verdict.blamed);
    finished.output = printed::last_lines(supervisor.ranks.processes(), blamed);
    // Ranks first, so that none sees the control plane go before its own end.
    drop(supervisor);
    launcher.coordinator.shutdown();
    Ok(finished)
}

fn arguments(job: &Job) -> Result<Vec<OsString>, Failure> {
    let text = serde_json::to_string(job).map_err(|error| {
        Failure::internal(format!("the job cannot be written as JSON: {error}"))
    })?;
    let launcher = std::process::id().to_string();
    Ok(["__rank", "--launcher", &launcher, "--job", &text]
        .map(OsString::from)
        .to_vec())
}

/// What a job sets besides the contract.
fn environment(job: &Job) -> Vec<(String, String)> {
    let mut variables = Vec::new();
    if let Some(limit_ms) = job.hccl.as_ref().and_then(|hccl| hccl.exec_timeout_ms) {
        // For versions of CANN that take the limit from the environment only.
        variables.push((
            "HCCL_EXEC_TIMEOUT".to_owned(),
            (limit_ms / 1000).to_string(),
        ));
    }
    if job.transport != Transport::Auto {
        variables.push((
            "MUSTER_TRANSPORT".to_owned(),
            job.transport.name().to_owned(),
        ));
    }
    variables
}
