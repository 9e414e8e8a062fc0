//! Slurm: what `srun` tells the tasks of a step.

use super::claim::Claim;
use super::endpoint::job_name;
use super::error::LaunchError;
use super::notation::{expand_counts, expand_hosts};
use super::reader::Reader;
use crate::config::{self, ConfigError};

/// The rank of a task within its step.
pub(super) fn slurm(mut reader: Reader<'_>) -> Result<Claim, LaunchError> {
    let mut claim = Claim::new(reader.contract);
    let (step, rank) = (reader.has("SLURM_STEP_ID"), reader.has("SLURM_PROCID"));
    claim.missing.extend((!step).then_some("SLURM_STEP_ID"));
    claim.missing.extend((!rank).then_some("SLURM_PROCID"));
    claim.why = "; outside of a step Slurm numbers no tasks: put srun in front of the command";
    // In a batch script SLURM_PROCID is 0 whatever the number of tasks: only a step has ranks.
    claim.present = step && rank;
    if !claim.present {
        if reader.has("SLURM_JOB_ID") {
            let tasks = reader.first_text(&["SLURM_NTASKS", "SLURM_NPROCS"])?;
            claim.notes.push(batch_note(tasks));
        }
        return Ok(claim);
    }
    claim.rank = reader.number("SLURM_PROCID")?;
    claim.world_size = reader.world_size("SLURM_STEP_NUM_TASKS")?;
    if claim.world_size.is_none() {
        claim.world_size = reader.number_of(&["SLURM_NTASKS", "SLURM_NPROCS"])?;
    }
    claim.require(claim.world_size, "SLURM_STEP_NUM_TASKS");
    claim.local_rank = reader.number("SLURM_LOCALID")?;
    claim.node_rank = reader.number("SLURM_NODEID")?;
    claim.nnodes = reader.number("SLURM_STEP_NUM_NODES")?;
    claim.local_world_size = slurm_local_size(&mut reader, &claim)?;
    claim.attempt = reader.number("SLURM_RESTART_COUNT")?;
    let job = reader.first_text(&["SLURM_JOB_ID", "SLURM_JOBID"])?;
    let step = reader.text("SLURM_STEP_ID")?;
    if let (Some(job), Some(step)) = (job, step) {
        claim.job_id = Some(job_name(reader.contract, &format!("{job}.{step}")));
    }
    slurm_place(&mut reader, &mut claim)?;
    if reader.text("SLURM_HET_SIZE")?.is_some() {
        claim.refusal = Some(reader.unsupported(
            "a heterogeneous job numbers the tasks of each component by itself; give MUSTER_RANK \
             and MUSTER_WORLD_SIZE"
                .to_owned(),
        ));
    }
    claim.finish(&reader)
}

fn batch_note(tasks: Option<&str>) -> String {
    let tasks = tasks.unwrap_or("the");
    format!(
        "inside a Slurm allocation but not in a step: put srun in front of the command to use {} tasks",
        config::shown(tasks)
    )
}

/// Tasks of this node, from the compressed counts, which must add up to the world.
fn slurm_local_size(reader: &mut Reader<'_>, claim: &Claim) -> Result<Option<u32>, LaunchError> {
    const NAME: &str = "SLURM_STEP_TASKS_PER_NODE";
    let Some(text) = reader.text(NAME)? else {
        return Ok(None);
    };
    let counts = expand_counts(text)
        .map_err(|_| ConfigError::malformed(NAME, text, "task counts as in 4(x2),3"))?;
    let sum: u64 = counts.iter().copied().map(u64::from).sum();
    if let Some(world_size) = claim.world_size
        && sum != u64::from(world_size)
    {
        return Err(reader.contradiction(format!(
            "tasks per node add up to {sum} where the step has {world_size} tasks"
        )));
    }
    let nodes = counts.len();
    if let Some(nnodes) = claim.nnodes
        && nnodes as usize != nodes
    {
        return Err(reader.contradiction(format!("{nodes} task counts for {nnodes} nodes")));
    }
    match claim.node_rank {
        None if nodes == 1 => Ok(counts.first().copied()),
        None => Ok(None),
        Some(node) => match counts.get(node as usize) {
            Some(count) => Ok(Some(*count)),
            None => Err(reader.contradiction(format!("node {node} of {nodes} task counts"))),
        },
    }
}

/// Rank 0 runs on the first host of the step, unless the user arranged the tasks.
fn slurm_place(reader: &mut Reader<'_>, claim: &mut Claim) -> Result<(), LaunchError> {
    const NAME: &str = "SLURM_STEP_NODELIST";
    let Some(text) = reader.text(NAME)? else {
        return Ok(());
    };
    let hosts = expand_hosts(text)
        .map_err(|_| ConfigError::malformed(NAME, text, "a host list as in n[01-04,7]"))?;
    if let Some(nnodes) = claim.nnodes
        && nnodes as usize != hosts.len()
    {
        let named = hosts.len();
        return Err(reader.contradiction(format!("{named} hosts for {nnodes} nodes")));
    }
    let arranged = reader
        .text("SLURM_DISTRIBUTION")?
        .is_some_and(|how| how.starts_with("arbitrary"));
    if arranged && hosts.len() > 1 {
        let note = "the tasks are arranged by hand (SLURM_DISTRIBUTION=arbitrary): rank 0 may be \
                    on any host";
        claim.notes.push(note.to_owned());
        return Ok(());
    }
    claim.place.host = hosts
        .into_iter()
        .next()
        .map(|host| (host, "first host of SLURM_STEP_NODELIST"));
    Ok(())
}
