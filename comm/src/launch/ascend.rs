//! The contracts of Ascend stacks: the rank table start and MindSpore.

use super::claim::Claim;
use super::endpoint::{Place, job_name};
use super::error::LaunchError;
use super::reader::{Reader, small};

/// `RANK_ID` and `RANK_SIZE`, set for each card.
pub(super) fn rank_table(mut reader: Reader<'_>) -> Result<Claim, LaunchError> {
    let mut claim = Claim::new(reader.contract);
    let has_size = reader.has("RANK_SIZE");
    // With MindSpore's worker count and no RANK_SIZE, RANK_ID is MindSpore's.
    claim.present = has_size || (reader.has("RANK_ID") && !reader.has("MS_WORKER_NUM"));
    if !claim.present {
        claim.missing = vec!["RANK_ID", "RANK_SIZE"];
        return Ok(claim);
    }
    claim.rank = reader.number("RANK_ID")?;
    claim.world_size = reader.world_size("RANK_SIZE")?;
    claim.require(claim.rank, "RANK_ID");
    claim.require(claim.world_size, "RANK_SIZE");
    claim.local_rank = reader.number_of(&["DEVICE_ID", "ASCEND_DEVICE_ID"])?;
    reader.text("RANK_TABLE_FILE")?;
    for other in ["CM_CHIEF_IP", "CM_WORKER_SIZE"] {
        if reader.text(other)?.is_some() {
            return Err(reader.contradiction(format!(
                "{other} and the rank table variables exclude each other"
            )));
        }
    }
    claim.finish(&reader)
}

/// msrun and the dynamic cluster; a scheduler or parameter server is no rank.
pub(super) fn mindspore(mut reader: Reader<'_>) -> Result<Claim, LaunchError> {
    let mut claim = Claim::new(reader.contract);
    let numbered = reader.has("MS_NODE_ID") || reader.has("RANK_ID");
    // The Ascend operator starts one process a node, which then numbers its own workers.
    let by_node = !numbered && reader.has("MS_NODE_RANK") && reader.has("MS_LOCAL_WORKER");
    claim.present = !by_node && (reader.has("MS_WORKER_NUM") || reader.has("MS_ROLE"));
    if !claim.present {
        claim.missing = vec!["MS_WORKER_NUM", "RANK_ID"];
        return Ok(claim);
    }
    let role = reader.text("MS_ROLE")?;
    if let Some(role @ ("MS_SCHED" | "MS_PSERVER")) = role {
        claim.refusal = Some(no_worker(&reader, role));
        return claim.finish(&reader);
    }
    claim.world_size = reader.world_size("MS_WORKER_NUM")?;
    claim.require(claim.world_size, "MS_WORKER_NUM");
    let node_id = reader.text("MS_NODE_ID")?.and_then(small);
    let rank_id = reader.number("RANK_ID")?;
    if let (Some(node_id), Some(rank_id)) = (node_id, rank_id)
        && node_id != rank_id
    {
        return Err(reader.contradiction(format!(
            "MS_NODE_ID is {node_id} where RANK_ID is {rank_id}"
        )));
    }
    claim.rank = rank_id.or(node_id);
    claim.require(claim.rank, "RANK_ID");
    claim.why = "; without it the scheduler assigns ranks, and only to MindSpore";
    claim.local_world_size = reader.number("MS_LOCAL_WORKER")?;
    claim.node_rank = reader.number("MS_NODE_RANK")?;
    let scheduler = reader.host("MS_SCHED_HOST")?;
    let taken = reader.port("MS_SCHED_PORT")?;
    if let (Some(host), Some(port)) = (&scheduler, taken) {
        claim.job_id = Some(job_name(reader.contract, &format!("{host}:{port}")));
    }
    claim.place = Place {
        host: scheduler.map(|host| (host, "MS_SCHED_HOST")),
        taken,
    };
    claim.finish(&reader)
}

/// The refusal of a process whose `MS_ROLE` is not that of a worker.
pub(super) fn no_worker(reader: &Reader<'_>, role: &str) -> LaunchError {
    let why = if role == "MS_SCHED" {
        "it is the scheduler"
    } else {
        "it is a parameter server"
    };
    LaunchError::NotARank {
        contract: reader.contract,
        why,
        variables: reader.used(),
    }
}
