//! What every contract says by itself, and by which variables: for explaining an answer.
//!
//! Detection asks contracts until one speaks; here all of them are asked, so that a person sees who
//! else spoke and was not believed. Nothing is decided here.

use super::contract::Contract;
use super::reader::Reader;
use super::{node, process};
use crate::config::Environment;

/// What a number is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// Number of this rank on its host.
    LocalRank,
    /// Ranks of this host.
    LocalWorldSize,
    /// Number of hosts.
    Nnodes,
    /// Number of this host.
    NodeRank,
    /// Rank in the world.
    Rank,
    /// Number of ranks.
    WorldSize,
}

/// One contract that speaks, in full or in part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// Who speaks.
    pub contract: Contract,
    /// Everything that it needs is set.
    pub whole: bool,
    /// Rank, for contracts that start one process a rank.
    pub rank: Option<u32>,
    /// World size, for those.
    pub world_size: Option<u32>,
    /// Number of the node, for contracts that start one process a node.
    pub node_rank: Option<u32>,
    /// The variables it was read from, with their values.
    pub variables: Vec<(String, String)>,
    /// Why it cannot be believed by itself.
    pub error: Option<String>,
}

/// All contracts that speak, in the order in which detection asks them.
#[must_use]
pub fn survey(environment: &Environment) -> Vec<Heard> {
    Contract::all()
        .filter_map(|contract| {
            if contract.is_per_process() {
                of_process(environment, contract)
            } else {
                of_node(environment, contract)
            }
        })
        .collect()
}

fn of_process(environment: &Environment, contract: Contract) -> Option<Heard> {
    let silent = Heard {
        contract,
        whole: false,
        rank: None,
        world_size: None,
        node_rank: None,
        variables: Vec::new(),
        error: None,
    };
    match process::read(environment, contract) {
        Ok(claim) if !claim.present => None,
        Ok(claim) => Some(Heard {
            whole: claim.pair().is_some(),
            rank: claim.rank,
            world_size: claim.world_size,
            node_rank: claim.node_rank,
            error: claim.refusal.as_ref().map(ToString::to_string).or_else(|| {
                let part = claim.pair().is_none();
                part.then(|| claim.incomplete().to_string())
            }),
            variables: claim.variables,
            ..silent
        }),
        Err(error) => Some(Heard {
            error: Some(error.to_string()),
            ..silent
        }),
    }
}

fn of_node(environment: &Environment, contract: Contract) -> Option<Heard> {
    let mut reader = Reader::new(environment, contract);
    let (node_rank, whole, error) = match node::read(&mut reader) {
        Ok(claim) if !claim.present => return None,
        Ok(claim) => (claim.node_rank, claim.missing.is_empty(), None),
        Err(error) => (None, false, Some(error.to_string())),
    };
    Some(Heard {
        contract,
        whole,
        rank: None,
        world_size: None,
        node_rank,
        variables: reader.used(),
        error,
    })
}

impl Heard {
    /// The variables from which this contract takes a number, of those that are set.
    #[must_use]
    pub fn sources(&self, field: Field) -> Vec<&str> {
        let names = names(self.contract, field);
        let set = |name: &&str| self.variables.iter().any(|(known, _)| known == *name);
        names.iter().copied().filter(set).collect()
    }
}

/// The variables from which a contract may take a number.
fn names(contract: Contract, field: Field) -> &'static [&'static str] {
    use Field::{LocalRank, LocalWorldSize, Nnodes, NodeRank, Rank, WorldSize};
    match (contract, field) {
        (Contract::Muster, Rank) => &["MUSTER_RANK"],
        (Contract::Muster, WorldSize) => &["MUSTER_WORLD_SIZE"],
        (Contract::Muster, LocalRank) => &["MUSTER_LOCAL_RANK"],
        (Contract::Muster, LocalWorldSize) => &["MUSTER_LOCAL_WORLD_SIZE"],
        (Contract::Muster, NodeRank) => &["MUSTER_NODE_RANK"],
        (Contract::Muster, Nnodes) => &["MUSTER_NNODES"],
        (Contract::Torchrun | Contract::Env | Contract::Ray, Rank) => &["RANK"],
        (Contract::Torchrun | Contract::Env | Contract::Ray, WorldSize) => &["WORLD_SIZE"],
        (Contract::Ray, LocalRank) => &["RAY_LOCAL_RANK"],
        (Contract::Ray, LocalWorldSize) => &["RAY_LOCAL_WORLD_SIZE"],
        (Contract::Torchrun | Contract::Env, LocalRank) => &["LOCAL_RANK"],
        (Contract::Torchrun | Contract::Env, LocalWorldSize) => &["LOCAL_WORLD_SIZE"],
        (Contract::Torchrun, NodeRank) => &["GROUP_RANK"],
        (Contract::Torchrun, Nnodes) => &["GROUP_WORLD_SIZE"],
        (Contract::OpenMpi, Rank) => &["OMPI_COMM_WORLD_RANK"],
        (Contract::OpenMpi, WorldSize) => &["OMPI_COMM_WORLD_SIZE"],
        (Contract::OpenMpi, LocalRank) => &["OMPI_COMM_WORLD_LOCAL_RANK"],
        (Contract::OpenMpi, LocalWorldSize) => &["OMPI_COMM_WORLD_LOCAL_SIZE"],
        (Contract::Mvapich, Rank) => &["MV2_COMM_WORLD_RANK"],
        (Contract::Mvapich, WorldSize) => &["MV2_COMM_WORLD_SIZE"],
        (Contract::Mvapich, LocalRank) => &["MV2_COMM_WORLD_LOCAL_RANK"],
        (Contract::Mvapich, LocalWorldSize) => &["MV2_COMM_WORLD_LOCAL_SIZE"],
        (Contract::Pals, Rank) => &["PALS_RANKID", "PMI_RANK"],
        (Contract::Pals | Contract::Hydra, WorldSize) => &["PMI_SIZE"],
        (Contract::Pals, LocalRank) => &["PALS_LOCAL_RANKID", "PMI_LOCAL_RANK"],
        (Contract::Pals, LocalWorldSize) => &["PALS_LOCAL_SIZE", "PMI_LOCAL_SIZE"],
        (Contract::Hydra, Rank) => &["PMI_RANK"],
        (Contract::Hydra, LocalRank) => &["MPI_LOCALRANKID"],
        (Contract::Hydra, LocalWorldSize) => &["MPI_LOCALNRANKS"],
        (Contract::Pmix, Rank) => &["PMIX_RANK"],
        (Contract::Flux, Rank) => &["FLUX_TASK_RANK"],
        (Contract::Flux, WorldSize) => &["FLUX_JOB_SIZE"],
        (Contract::Flux, LocalRank) => &["FLUX_TASK_LOCAL_ID"],
        (Contract::Flux, Nnodes) => &["FLUX_JOB_NNODES"],
        (Contract::Jsrun, Rank) => &["JSM_NAMESPACE_RANK"],
        (Contract::Jsrun, WorldSize) => &["JSM_NAMESPACE_SIZE"],
        (Contract::Jsrun, LocalRank) => &["JSM_NAMESPACE_LOCAL_RANK"],
        (Contract::Slurm, Rank) => &["SLURM_PROCID"],
        (Contract::Slurm, WorldSize) => &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"],
        (Contract::Slurm, LocalRank) => &["SLURM_LOCALID"],
        (Contract::Slurm, LocalWorldSize) => &["SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"],
        (Contract::Slurm, NodeRank) => &["SLURM_NODEID"],
        (Contract::Slurm, Nnodes) => &[
            "SLURM_STEP_NUM_NODES",
            "SLURM_NNODES",
            "SLURM_JOB_NUM_NODES",
        ],
        (Contract::RankTable, Rank) => &["RANK_ID"],
        (Contract::RankTable, WorldSize) => &["RANK_SIZE"],
        (Contract::RankTable, LocalRank) => &["DEVICE_ID", "ASCEND_DEVICE_ID"],
        (Contract::MindSpore, Rank) => &["RANK_ID", "MS_NODE_ID"],
        (Contract::MindSpore, WorldSize) => &["MS_WORKER_NUM"],
        (Contract::MindSpore, LocalWorldSize) => &["MS_LOCAL_WORKER"],
        (Contract::MindSpore, NodeRank) => &["MS_NODE_RANK"],
        _ => node_names(contract, field),
    }
}

/// The same for contracts that start one process a node.
fn node_names(contract: Contract, field: Field) -> &'static [&'static str] {
    match (contract, field) {
        (Contract::AscendJobPytorch, Field::Nnodes) => &["WORLD_SIZE", "LOCAL_WORLD_SIZE"],
        (Contract::AscendJobPytorch, Field::LocalWorldSize) => &["LOCAL_WORLD_SIZE"],
        (Contract::AscendJobMindSpore, Field::NodeRank) => &["MS_NODE_RANK"],
        (Contract::AscendJobMindSpore, Field::Nnodes) => &["MS_WORKER_NUM", "MS_LOCAL_WORKER"],
        (Contract::AscendJobMindSpore, Field::LocalWorldSize) => &["MS_LOCAL_WORKER"],
        (Contract::AscendJobTensorflow, Field::NodeRank) => &["CM_RANK"],
        (Contract::AscendJobTensorflow, Field::Nnodes) => &["CM_WORKER_SIZE", "CM_LOCAL_WORKER"],
        (Contract::AscendJobTensorflow, Field::LocalWorldSize) => &["CM_LOCAL_WORKER"],
        (Contract::Dlrover, Field::NodeRank) => &["NODE_RANK", "WORKER_RANK"],
        (Contract::Dlrover, Field::Nnodes) => &["NODE_NUM", "WORKER_NUM"],
        (Contract::ModelArts | Contract::VolcanoSvc, Field::NodeRank) => &["VC_TASK_INDEX"],
        (Contract::ModelArts, Field::Nnodes) => &["MA_NUM_HOSTS"],
        (Contract::ModelArts, Field::LocalWorldSize) => &["MA_NUM_GPUS"],
        (Contract::Mlp, Field::NodeRank) => &["MLP_ROLE_INDEX"],
        (Contract::Mlp, Field::Nnodes) => &["MLP_WORKER_NUM"],
        (Contract::Mlp, Field::LocalWorldSize) => &["MLP_WORKER_GPU"],
        (Contract::PytorchJob, Field::NodeRank) => &["PET_NODE_RANK", "RANK"],
        (Contract::TrainJob, Field::NodeRank) => &["PET_NODE_RANK", "JOB_COMPLETION_INDEX"],
        (Contract::PytorchJob | Contract::TrainJob, Field::Nnodes) => &["PET_NNODES"],
        (Contract::PytorchJob | Contract::TrainJob, Field::LocalWorldSize) => {
            &["PET_NPROC_PER_NODE"]
        }
        (Contract::IndexedJob, Field::NodeRank) => &["JOB_COMPLETION_INDEX"],
        (Contract::LeaderWorkerSet, Field::NodeRank) => &["LWS_WORKER_INDEX"],
        (Contract::LeaderWorkerSet, Field::Nnodes) => &["LWS_GROUP_SIZE"],
        (Contract::Pai, Field::LocalWorldSize) => &["NPROC_PER_NODE"],
        (
            Contract::AscendJobPytorch
            | Contract::VolcanoPytorch
            | Contract::Pai
            | Contract::PodEnv,
            Field::NodeRank,
        ) => &["RANK"],
        (Contract::VolcanoPytorch | Contract::Pai | Contract::PodEnv, Field::Nnodes) => {
            &["WORLD_SIZE"]
        }
        _ => &[],
    }
}
