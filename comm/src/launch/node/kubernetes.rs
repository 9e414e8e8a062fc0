//! Kubernetes jobs with names of their own: PyTorchJob, TrainJob, LeaderWorkerSet, indexed Job.

use super::super::endpoint::{Place, job_name};
use super::super::error::LaunchError;
use super::super::reader::{Reader, small};
use super::Claim;
use crate::config;

pub(super) fn pytorch_job(reader: &mut Reader<'_>) -> Result<Claim, LaunchError> {
    let marked = reader.has("PET_NODE_RANK") || reader.has("PET_NNODES");
    let present = marked && (reader.has("RANK") || reader.has("WORLD_SIZE"));
    let mut claim = Claim::marked(present, &["RANK", "WORLD_SIZE", "PET_NNODES"]);
    if !present {
        return Ok(claim);
    }
    claim.node_rank = reader.number_of(&["PET_NODE_RANK", "RANK"])?;
    claim.require(claim.node_rank, "RANK");
    let world_size = reader.world_size("WORLD_SIZE")?;
    pet_sizes(reader, &mut claim)?;
    if let (Some(world_size), Some(nodes)) = (world_size, claim.nnodes) {
        // Early versions count pods, late ones processes.
        let procs = claim.procs.unwrap_or(1);
        let processes = u64::from(nodes) * u64::from(procs);
        let by_process = u64::from(world_size) == processes;
        let open = claim.procs.is_none();
        if !by_process && world_size != nodes && !open {
            return Err(reader.contradiction(format!(
                "world size {world_size} is neither {nodes} pods nor {nodes} pods of {procs} processes"
            )));
        }
    }
    claim.nnodes = claim
        .nnodes
        .or_else(|| world_size.filter(|_| claim.procs == Some(1)));
    claim.meet_at_master(reader)?;
    Ok(claim)
}

pub(super) fn train_job(reader: &mut Reader<'_>) -> Result<Claim, LaunchError> {
    let present = reader.has("PET_NODE_RANK") || reader.has("PET_NNODES");
    let mut claim = Claim::marked(present, &["PET_NODE_RANK", "PET_NNODES"]);
    if !present {
        return Ok(claim);
    }
    claim.node_rank = reader.number_of(&["PET_NODE_RANK", "JOB_COMPLETION_INDEX"])?;
    claim.require(claim.node_rank, "PET_NODE_RANK");
    claim.why = "; an elastic job numbers its nodes inside torchrun only: put torchrun in front";
    pet_sizes(reader, &mut claim)?;
    let host = reader.host("PET_MASTER_ADDR")?;
    let taken = reader.port("PET_MASTER_PORT")?;
    if let (Some(host), Some(port)) = (&host, taken) {
        claim.job_id = Some(job_name(reader.contract, &format!("{host}:{port}")));
    }
    let host = host.map(|host| (host, "PET_MASTER_ADDR"));
    claim.place = Place { host, taken };
    Ok(claim)
}

/// `PET_NPROC_PER_NODE` and `PET_NNODES`, where they are plain numbers.
fn pet_sizes(reader: &mut Reader<'_>, claim: &mut Claim) -> Result<(), LaunchError> {
    let nodes = reader.text("PET_NNODES")?;
    claim.nnodes = nodes.and_then(small);
    if let Some(nodes) = nodes.filter(|_| claim.nnodes.is_none()) {
        let note = format!(
            "PET_NNODES={} fixes no number of nodes",
            config::shown(nodes)
        );
        claim.notes.push(note);
    }
    let procs = reader.text("PET_NPROC_PER_NODE")?;
    claim.procs = procs.and_then(small).filter(|procs| *procs > 0);
    if let Some(procs) = procs.filter(|_| claim.procs.is_none()) {
        let procs = config::shown(procs);
        let note = format!("PET_NPROC_PER_NODE={procs} fixes no number of ranks");
        claim.notes.push(note);
    }
    Ok(())
}

pub(super) fn leader_worker_set(reader: &mut Reader<'_>) -> Result<Claim, LaunchError> {
    let present = reader.has("LWS_WORKER_INDEX") || reader.has("LWS_GROUP_SIZE");
    let mut claim = Claim::marked(present, &["LWS_WORKER_INDEX", "LWS_GROUP_SIZE"]);
    if !present {
        return Ok(claim);
    }
    claim.node_rank = reader.number("LWS_WORKER_INDEX")?;
    claim.nnodes = reader.number("LWS_GROUP_SIZE")?;
    claim.require(claim.node_rank, "LWS_WORKER_INDEX");
    claim.require(claim.nnodes, "LWS_GROUP_SIZE");
    let leader = reader.host("LWS_LEADER_ADDRESS")?;
    claim.job_id = leader
        .as_ref()
        .map(|leader| job_name(reader.contract, leader));
    claim.place.host = leader.map(|host| (host, "LWS_LEADER_ADDRESS"));
    Ok(claim)
}

/// An indexed Job tells its index and nothing else.
pub(super) fn indexed_job(reader: &mut Reader<'_>) -> Result<Claim, LaunchError> {
    let mut claim = Claim::default();
    claim.node_rank = reader.number("JOB_COMPLETION_INDEX")?;
    claim.present = claim.node_rank.is_some();
    claim.require(claim.node_rank, "JOB_COMPLETION_INDEX");
    Ok(claim)
}
