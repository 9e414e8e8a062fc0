//! The contracts that start one process a node or pod, whose ranks are still to be started.
//!
//! Here `RANK` counts pods and `WORLD_SIZE` counts pods, processes or devices, by engine and
//! version. A rank is `node_rank * procs_per_node + local_rank`; where the numbers cannot be
//! brought together the contract is refused.

mod ascend;
mod kubernetes;
mod platform;
mod pods;

use super::contract::Contract;
use super::devices::VisibleDevices;
use super::endpoint::{self, Place, job_name};
use super::error::LaunchError;
use super::identity::{Detected, PerNode, Source};
use super::process::{is_torchrun, master};
use super::reader::{Reader, host};
use crate::config::{self, ConfigError, Environment};

/// What one contract says about this node.
#[derive(Debug, Default)]
pub(super) struct Claim {
    /// Something of the contract is set that marks it.
    pub(super) present: bool,
    pub(super) node_rank: Option<u32>,
    pub(super) nnodes: Option<u32>,
    pub(super) procs: Option<u32>,
    pub(super) place: Place,
    pub(super) job_id: Option<String>,
    pub(super) missing: Vec<&'static str>,
    pub(super) why: &'static str,
    pub(super) notes: Vec<String>,
}

/// The node this process stands for, or standalone.
///
/// # Errors
/// As [`super::detect`].
pub(super) fn detect(
    environment: &Environment,
    mut notes: Vec<String>,
) -> Result<Detected, LaunchError> {
    for contract in Contract::PER_NODE {
        let mut reader = Reader::new(environment, contract);
        let claim = read(&mut reader)?;
        if claim.present {
            return answer(&reader, claim, notes).map(Detected::PerNode);
        }
    }
    if let Some(role) = environment.text("K_MPI_JOB_ROLE")? {
        notes.push(format!(
            "in the {} pod of an MPIJob but not under mpirun: put mpirun in front of the command",
            config::shown(role)
        ));
    }
    Ok(Detected::Standalone { notes })
}

/// The node by one contract only.
///
/// # Errors
/// As [`super::detect`], for this contract.
pub(super) fn forced(
    environment: &Environment,
    contract: Contract,
) -> Result<PerNode, LaunchError> {
    let mut reader = Reader::new(environment, contract);
    let claim = read(&mut reader)?;
    answer(&reader, claim, Vec::new())
}

/// What a contract says of this node, in full or in part.
///
/// # Errors
/// If a variable of the contract is malformed, or two of them contradict each other.
pub(super) fn read(reader: &mut Reader<'_>) -> Result<Claim, LaunchError> {
    match reader.contract {
        Contract::AscendJobMindSpore => ascend::mindspore(reader),
        Contract::AscendJobPytorch => ascend::pytorch(reader),
        Contract::AscendJobTensorflow => ascend::tensorflow(reader),
        Contract::Dlrover => platform::dlrover(reader),
        Contract::IndexedJob => kubernetes::indexed_job(reader),
        Contract::LeaderWorkerSet => kubernetes::leader_worker_set(reader),
        Contract::Mlp => platform::mlp(reader),
        Contract::ModelArts => platform::modelarts(reader),
        Contract::Pai => pods::pai(reader),
        Contract::PodEnv => pods::pod_env(reader),
        Contract::PytorchJob => kubernetes::pytorch_job(reader),
        Contract::TrainJob => kubernetes::train_job(reader),
        Contract::VolcanoPytorch => pods::volcano_pytorch(reader),
        Contract::VolcanoSvc => pods::volcano_svc(reader),
        Contract::Env
        | Contract::Flux
        | Contract::Hydra
        | Contract::Jsrun
        | Contract::MindSpore
        | Contract::Muster
        | Contract::Mvapich
        | Contract::OpenMpi
        | Contract::Pals
        | Contract::Pmix
        | Contract::RankTable
        | Contract::Ray
        | Contract::Slurm
        | Contract::Torchrun => Ok(Claim::default()),
    }
}

/// Checks a claim and makes it the answer.
fn answer(
    reader: &Reader<'_>,
    mut claim: Claim,
    mut notes: Vec<String>,
) -> Result<PerNode, LaunchError> {
    let Some(node_rank) = claim.node_rank.filter(|_| claim.missing.is_empty()) else {
        if claim.missing.is_empty() {
            claim.missing.push("the number of this node");
        }
        return Err(LaunchError::Incomplete {
            contract: reader.contract,
            present: reader.used(),
            missing: claim.missing,
            why: claim.why,
        });
    };
    if let Some(nnodes) = claim.nnodes.filter(|nnodes| node_rank >= *nnodes) {
        return Err(reader.contradiction(format!("node {node_rank} is not below {nnodes} nodes")));
    }
    let environment = reader.environment();
    notes.append(&mut claim.notes);
    if let Some(procs) = claim.procs {
        notes.push(format!(
            "ranks of this node: {node_rank} * {procs} + local rank"
        ));
    }
    let job_id = environment.read(&config::JOB_ID)?.or(claim.job_id);
    let attempt = environment.read(&config::ATTEMPT)?.unwrap_or(0);
    let (endpoint, remark) = endpoint::choose(
        environment,
        claim.place,
        claim.nnodes == Some(1),
        job_id.as_deref(),
        attempt,
    )?;
    notes.extend(remark);
    Ok(PerNode {
        node_rank,
        nnodes: claim.nnodes,
        procs_per_node: claim.procs,
        endpoint,
        job_id,
        attempt,
        devices: VisibleDevices::detect(environment, &mut notes),
        source: Source {
            contract: reader.contract,
            variables: reader.used(),
            agreeing: Vec::new(),
        },
        notes,
    })
}

impl Claim {
    /// A claim to be filled in or, where its mark is not set, one that lacks all it `needs`.
    pub(super) fn marked(present: bool, needs: &[&'static str]) -> Self {
        Self {
            present,
            missing: if present { Vec::new() } else { needs.to_vec() },
            ..Self::default()
        }
    }

    pub(super) fn require(&mut self, value: Option<u32>, name: &'static str) {
        if value.is_none() {
            self.missing.push(name);
        }
    }

    /// Takes `MASTER_ADDR` for the place and, with its port, for the name of the job.
    pub(super) fn meet_at_master(&mut self, reader: &mut Reader<'_>) -> Result<(), LaunchError> {
        let (place, id) = master(reader)?;
        self.place = place;
        self.job_id = id.map(|id| job_name(reader.contract, &id));
        Ok(())
    }
}

/// Whether `RANK` and `WORLD_SIZE` are set in a way that they may count pods.
pub(super) fn counts_pods(reader: &Reader<'_>) -> bool {
    reader.has("RANK") && reader.has("WORLD_SIZE") && !is_torchrun(reader)
}

pub(super) fn host_list(reader: &mut Reader<'_>, name: &str) -> Result<Vec<String>, LaunchError> {
    let Some(text) = reader.text(name)? else {
        return Ok(Vec::new());
    };
    let hosts: Option<Vec<String>> = text.split(',').map(|item| host(item.trim())).collect();
    hosts.ok_or_else(|| ConfigError::malformed(name, text, "host names separated by commas").into())
}
