//! Pods of the Ascend operator (AscendJob).

use super::super::ascend::no_worker;
use super::super::endpoint::{Place, job_name};
use super::super::error::LaunchError;
use super::super::process::is_list;
use super::super::reader::{Reader, small};
use super::{Claim, counts_pods};
use crate::config::ConfigError;

/// `WORLD_SIZE` counts NPUs, `RANK` counts pods, `LOCAL_RANK` lists the NPUs of this pod.
pub(super) fn pytorch(reader: &mut Reader<'_>) -> Result<Claim, LaunchError> {
    let list = reader
        .environment()
        .text("LOCAL_RANK")?
        .filter(|text| is_list(text));
    let marked = ["MINDX_TASK_ID", "MINDX_SERVER_IP", "HCCL_LOGIC_SUPERPOD_ID"]
        .iter()
        .any(|name| reader.has(name));
    let present = counts_pods(reader) && (marked || list.is_some());
    let mut claim = Claim::marked(
        present,
        &["RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MINDX_TASK_ID"],
    );
    if !present {
        return Ok(claim);
    }
    claim.node_rank = reader.number("RANK")?;
    let world_size = reader.world_size("WORLD_SIZE")?;
    claim.procs = reader.number("LOCAL_WORLD_SIZE")?;
    claim.require(claim.procs, "LOCAL_WORLD_SIZE");
    if let Some(text) = reader.text("LOCAL_RANK")?.filter(|text| is_list(text)) {
        let ids: Option<Vec<u32>> = text.split(',').map(|id| small(id.trim())).collect();
        let allowed = "whole numbers separated by commas";
        let ids = ids.ok_or_else(|| ConfigError::malformed("LOCAL_RANK", text, allowed))?;
        if let Some(procs) = claim.procs.filter(|procs| *procs as usize != ids.len()) {
            let listed = ids.len();
            return Err(reader.contradiction(format!(
                "LOCAL_RANK lists {listed} ranks where LOCAL_WORLD_SIZE is {procs}"
            )));
        }
    }
    if let (Some(world_size), Some(procs)) = (world_size, claim.procs) {
        if procs == 0 || world_size % procs != 0 {
            return Err(reader.contradiction(format!(
                "world size {world_size} is no multiple of {procs} NPUs a pod"
            )));
        }
        claim.nnodes = Some(world_size / procs);
    }
    claim.meet_at_master(reader)?;
    if let Some(task) = reader.text("MINDX_TASK_ID")? {
        claim.job_id = Some(job_name(reader.contract, task));
    }
    Ok(claim)
}

/// Nodes as a number of workers divided by the workers of a node.
fn nodes_of(
    reader: &Reader<'_>,
    workers: Option<u32>,
    procs: Option<u32>,
) -> Result<Option<u32>, LaunchError> {
    let (Some(workers), Some(procs)) = (workers, procs) else {
        return Ok(None);
    };
    if procs == 0 || workers % procs != 0 {
        return Err(reader.contradiction(format!(
            "{workers} workers are no multiple of {procs} a node"
        )));
    }
    Ok(Some(workers / procs))
}

pub(super) fn mindspore(reader: &mut Reader<'_>) -> Result<Claim, LaunchError> {
    let present = reader.has("MS_NODE_RANK") && reader.has("MS_LOCAL_WORKER");
    let mut claim = Claim::marked(
        present,
        &["MS_NODE_RANK", "MS_WORKER_NUM", "MS_LOCAL_WORKER"],
    );
    if !present {
        return Ok(claim);
    }
    let role = reader.text("MS_ROLE")?;
    if let Some(role @ ("MS_SCHED" | "MS_PSERVER")) = role {
        return Err(no_worker(reader, role));
    }
    claim.node_rank = reader.number("MS_NODE_RANK")?;
    claim.procs = reader.number("MS_LOCAL_WORKER")?;
    let workers = reader.world_size("MS_WORKER_NUM")?;
    claim.require(workers, "MS_WORKER_NUM");
    claim.nnodes = nodes_of(reader, workers, claim.procs)?;
    let scheduler = reader.host("MS_SCHED_HOST")?;
    let taken = reader.port("MS_SCHED_PORT")?;
    if let (Some(scheduler), Some(port)) = (&scheduler, taken) {
        claim.job_id = Some(job_name(reader.contract, &format!("{scheduler}:{port}")));
    }
    let host = scheduler.map(|host| (host, "MS_SCHED_HOST"));
    claim.place = Place { host, taken };
    Ok(claim)
}

pub(super) fn tensorflow(reader: &mut Reader<'_>) -> Result<Claim, LaunchError> {
    let present = reader.has("CM_RANK");
    let mut claim = Claim::marked(present, &["CM_RANK", "CM_WORKER_SIZE", "CM_LOCAL_WORKER"]);
    if !present {
        return Ok(claim);
    }
    for other in ["RANK_TABLE_FILE", "RANK_ID", "RANK_SIZE"] {
        if reader.text(other)?.is_some() {
            return Err(reader.contradiction(format!("CM_RANK and {other} exclude each other")));
        }
    }
    claim.node_rank = reader.number("CM_RANK")?;
    claim.procs = reader.number("CM_LOCAL_WORKER")?;
    let workers = reader.world_size("CM_WORKER_SIZE")?;
    claim.nnodes = nodes_of(reader, workers, claim.procs)?;
    let chief = reader.host("CM_CHIEF_IP")?;
    let taken = reader.port("CM_CHIEF_PORT")?;
    if let (Some(chief), Some(port)) = (&chief, taken) {
        claim.job_id = Some(job_name(reader.contract, &format!("{chief}:{port}")));
    }
    let host = chief.map(|host| (host, "CM_CHIEF_IP"));
    claim.place = Place { host, taken };
    Ok(claim)
}
