//! Platforms with names of their own: DLRover, ModelArts, MLP.

use super::super::endpoint::job_name;
use super::super::error::LaunchError;
use super::super::reader::Reader;
use super::{Claim, host_list};

/// The job master that DLRover names is no rank, so it gives no place to meet.
pub(super) fn dlrover(reader: &mut Reader<'_>) -> Result<Claim, LaunchError> {
    let present = reader.has("DLROVER_MASTER_ADDR");
    let mut claim = Claim::marked(present, &["DLROVER_MASTER_ADDR", "NODE_RANK", "NODE_NUM"]);
    if !present {
        return Ok(claim);
    }
    reader.text("DLROVER_MASTER_ADDR")?;
    claim.node_rank = first_number(reader, &["NODE_RANK", "WORKER_RANK", "RANK"])?;
    claim.nnodes = first_number(reader, &["NODE_NUM", "WORKER_NUM", "WORLD_SIZE"])?;
    claim.require(claim.node_rank, "NODE_RANK");
    let name = reader.text("ELASTIC_JOB_NAME")?;
    let uid = reader.text("JOB_UID")?;
    let id = [name, uid]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join("/");
    claim.job_id = (!id.is_empty()).then(|| job_name(reader.contract, &id));
    Ok(claim)
}

fn first_number(reader: &mut Reader<'_>, names: &[&str]) -> Result<Option<u32>, LaunchError> {
    for name in names {
        if let Some(number) = reader.number(name)? {
            return Ok(Some(number));
        }
    }
    Ok(None)
}

pub(super) fn modelarts(reader: &mut Reader<'_>) -> Result<Claim, LaunchError> {
    let present = reader.has("MA_NUM_HOSTS") || reader.has("MA_VJ_NAME");
    let mut claim = Claim::marked(present, &["VC_TASK_INDEX", "MA_NUM_HOSTS"]);
    if !present {
        return Ok(claim);
    }
    claim.node_rank = reader.number("VC_TASK_INDEX")?;
    claim.nnodes = reader.number("MA_NUM_HOSTS")?;
    claim.require(claim.node_rank, "VC_TASK_INDEX");
    claim.require(claim.nnodes, "MA_NUM_HOSTS");
    claim.procs = reader.number("MA_NUM_GPUS")?.filter(|procs| *procs > 0);
    let hosts = host_list(reader, "VC_WORKER_HOSTS")?;
    if let Some(nnodes) = claim.nnodes
        && !hosts.is_empty()
        && hosts.len() != nnodes as usize
    {
        let named = hosts.len();
        return Err(reader.contradiction(format!("{named} hosts for {nnodes} nodes")));
    }
    claim.place.host = hosts
        .into_iter()
        .next()
        .map(|host| (host, "first of VC_WORKER_HOSTS"));
    let id = reader.text("MA_VJ_NAME")?;
    claim.job_id = id.map(|id| job_name(reader.contract, id));
    Ok(claim)
}

pub(super) fn mlp(reader: &mut Reader<'_>) -> Result<Claim, LaunchError> {
    let present = reader.has("MLP_ROLE_INDEX");
    let mut claim = Claim::marked(present, &["MLP_ROLE_INDEX", "MLP_WORKER_NUM"]);
    if !present {
        return Ok(claim);
    }
    claim.node_rank = reader.number("MLP_ROLE_INDEX")?;
    claim.nnodes = reader.number("MLP_WORKER_NUM")?;
    claim.require(claim.nnodes, "MLP_WORKER_NUM");
    claim.procs = reader.number("MLP_WORKER_GPU")?.filter(|procs| *procs > 0);
    let host = reader.host("MLP_WORKER_0_HOST")?;
    claim.place.host = host.map(|host| (host, "MLP_WORKER_0_HOST"));
    let id = reader.text("MLP_TASK_ID")?;
    claim.job_id = id.map(|id| job_name(reader.contract, id));
    Ok(claim)
}
