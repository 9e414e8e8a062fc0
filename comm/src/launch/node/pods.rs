//! Pods that use the names `RANK` and `WORLD_SIZE` for pods, and Volcano's own index.

use super::super::endpoint::job_name;
use super::super::error::LaunchError;
use super::super::process::{is_ray, is_torchrun};
use super::super::reader::{Reader, small};
use super::{Claim, counts_pods, host_list};

/// The index of a Volcano task, under its new name and its old one.
const VOLCANO_INDEX: [&str; 2] = ["VC_TASK_INDEX", "VK_TASK_INDEX"];

pub(super) fn volcano_pytorch(reader: &mut Reader<'_>) -> Result<Claim, LaunchError> {
    let present = counts_pods(reader) && VOLCANO_INDEX.iter().any(|name| reader.has(name));
    let mut claim = Claim::marked(present, &["RANK", "WORLD_SIZE", "VC_TASK_INDEX"]);
    if !present {
        return Ok(claim);
    }
    pods(reader, &mut claim)?;
    Ok(claim)
}

pub(super) fn volcano_svc(reader: &mut Reader<'_>) -> Result<Claim, LaunchError> {
    let plain = !reader.has("RANK") && !reader.has("WORLD_SIZE");
    let present = plain && VOLCANO_INDEX.iter().any(|name| reader.has(name));
    let mut claim = Claim::marked(present, &["VC_TASK_INDEX"]);
    if !present {
        return Ok(claim);
    }
    claim.node_rank = reader.number_of(&VOLCANO_INDEX)?;
    let lists: Vec<String> = reader
        .environment()
        .names()
        .filter(|name| name.starts_with("VC_") && name.ends_with("_HOSTS"))
        .map(str::to_owned)
        .collect();
    let [list] = lists.as_slice() else {
        let note = "several Volcano tasks or none: which one this pod belongs to is not told";
        claim.notes.push(note.to_owned());
        return Ok(claim);
    };
    let hosts = host_list(reader, list)?;
    let number = list.replace("_HOSTS", "_NUM");
    claim.nnodes = reader.number(&number)?;
    if let Some(nnodes) = claim.nnodes
        && hosts.len() != nnodes as usize
    {
        let named = hosts.len();
        return Err(reader.contradiction(format!("{named} hosts for {nnodes} pods")));
    }
    let joined = hosts.join(",");
    claim.job_id = Some(job_name(reader.contract, &joined));
    claim.place.host = hosts
        .into_iter()
        .next()
        .map(|host| (host, "first of the task's hosts"));
    Ok(claim)
}

pub(super) fn pai(reader: &mut Reader<'_>) -> Result<Claim, LaunchError> {
    let present = counts_pods(reader) && reader.has("NPROC_PER_NODE");
    let mut claim = Claim::marked(present, &["RANK", "WORLD_SIZE", "NPROC_PER_NODE"]);
    if !present {
        return Ok(claim);
    }
    pods(reader, &mut claim)?;
    claim.procs = reader
        .text("NPROC_PER_NODE")?
        .and_then(small)
        .filter(|procs| *procs > 0);
    Ok(claim)
}

/// `RANK` or `WORLD_SIZE` without anything that tells whose they are.
pub(super) fn pod_env(reader: &mut Reader<'_>) -> Result<Claim, LaunchError> {
    let is_known = is_torchrun(reader) || is_ray(reader);
    let present = (reader.has("RANK") || reader.has("WORLD_SIZE")) && !is_known;
    let mut claim = Claim::marked(present, &["RANK", "WORLD_SIZE"]);
    if !present {
        return Ok(claim);
    }
    claim.why = "; set all of RANK, WORLD_SIZE and LOCAL_RANK for a rank, or unset them";
    pods(reader, &mut claim)?;
    Ok(claim)
}

/// `RANK` and `WORLD_SIZE` as pods. With `LOCAL_WORLD_SIZE` beside them they may count processes.
fn pods(reader: &mut Reader<'_>, claim: &mut Claim) -> Result<(), LaunchError> {
    claim.node_rank = reader.number("RANK")?;
    claim.nnodes = reader.world_size("WORLD_SIZE")?;
    claim.require(claim.node_rank, "RANK");
    claim.require(claim.nnodes, "WORLD_SIZE");
    if claim.missing.is_empty() && reader.number("LOCAL_WORLD_SIZE")?.is_some() {
        return Err(reader.unsupported(
            "RANK and WORLD_SIZE beside LOCAL_WORLD_SIZE may count pods or processes; LOCAL_RANK \
             would tell"
                .to_owned(),
        ));
    }
    claim.meet_at_master(reader)?;
    claim
        .notes
        .push("without LOCAL_RANK, RANK and WORLD_SIZE are read as numbers of pods".to_owned());
    Ok(())
}
