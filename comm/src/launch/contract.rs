//! The launch contracts that muster knows, by name and by nearness.

use std::fmt;
use std::str::FromStr;

use crate::types::UnknownName;

/// A way in which a launcher tells a process who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Contract {
    /// Ascend operator with MindSpore: `MS_NODE_RANK`, `MS_LOCAL_WORKER`; one process a node.
    AscendJobMindSpore,
    /// Ascend operator with PyTorch: `RANK` counts pods, `WORLD_SIZE` counts NPUs.
    AscendJobPytorch,
    /// Ascend operator with TensorFlow: `CM_RANK`, `CM_LOCAL_WORKER`; one process a node.
    AscendJobTensorflow,
    /// DLRover agent: `NODE_RANK`, `NODE_NUM`; one process a node.
    Dlrover,
    /// Plain `RANK`, `WORLD_SIZE`, `LOCAL_RANK`, set by a script.
    Env,
    /// Flux: `FLUX_TASK_RANK`.
    Flux,
    /// Hydra, the starter of MPICH and Intel MPI: `PMI_RANK`, `PMI_SIZE`.
    Hydra,
    /// Kubernetes indexed Job or JobSet: `JOB_COMPLETION_INDEX`; one process a pod.
    IndexedJob,
    /// LSF jsrun: `JSM_NAMESPACE_RANK`.
    Jsrun,
    /// LeaderWorkerSet: `LWS_WORKER_INDEX`; one process a pod.
    LeaderWorkerSet,
    /// MindSpore msrun or dynamic cluster: `MS_WORKER_NUM`.
    MindSpore,
    /// Volcengine machine learning platform: `MLP_ROLE_INDEX`; one process a node.
    Mlp,
    /// Huawei ModelArts custom image: `VC_TASK_INDEX`, `MA_NUM_HOSTS`; one process a node.
    ModelArts,
    /// muster itself, or a user by hand: `MUSTER_RANK`.
    Muster,
    /// MVAPICH: `MV2_COMM_WORLD_RANK`.
    Mvapich,
    /// Open MPI: `OMPI_COMM_WORLD_RANK`.
    OpenMpi,
    /// Alibaba PAI: `RANK`, `WORLD_SIZE` count nodes, beside `NPROC_PER_NODE`.
    Pai,
    /// Cray PALS: `PALS_RANKID`.
    Pals,
    /// Any PMIx server: `PMIX_RANK`, which alone tells no world size.
    Pmix,
    /// `RANK` and `WORLD_SIZE` of pods without `LOCAL_RANK`: a job operator we cannot name.
    PodEnv,
    /// Kubeflow PyTorchJob: `PET_NODE_RANK` and `RANK` count pods.
    PytorchJob,
    /// A Ray actor: `RANK` beside `WG_BACKEND=ray`, as verl sets it, or beside other variables of Ray.
    Ray,
    /// Ascend rank table start: `RANK_ID`, `RANK_SIZE`.
    RankTable,
    /// Slurm srun: `SLURM_PROCID` within a step.
    Slurm,
    /// torchrun: `RANK` beside `TORCHELASTIC_RUN_ID`.
    Torchrun,
    /// Kubeflow TrainJob: `PET_NODE_RANK`, `PET_NNODES`; one process a pod.
    TrainJob,
    /// Volcano with the pytorch plugin: `RANK` counts pods.
    VolcanoPytorch,
    /// Volcano with the svc plugin: `VC_TASK_INDEX` and `VC_<TASK>_HOSTS`.
    VolcanoSvc,
}

impl Contract {
    /// Contracts that start one process a rank, nearest first.
    ///
    /// Launchers nest: srun starts torchrun, which starts ranks. The one that stands further in
    /// front is nearer to the rank and, where nesting is proved, speaks for it.
    pub const PER_PROCESS: [Self; 14] = [
        Self::Muster,
        Self::Torchrun,
        Self::Ray,
        Self::OpenMpi,
        Self::Mvapich,
        Self::Pals,
        Self::Hydra,
        Self::Pmix,
        Self::Flux,
        Self::Jsrun,
        Self::Slurm,
        Self::Env,
        Self::RankTable,
        Self::MindSpore,
    ];

    /// Contracts that start one process a node or pod, most specific first.
    pub const PER_NODE: [Self; 14] = [
        Self::AscendJobPytorch,
        Self::AscendJobMindSpore,
        Self::AscendJobTensorflow,
        Self::Dlrover,
        Self::ModelArts,
        Self::Mlp,
        Self::PytorchJob,
        Self::TrainJob,
        Self::VolcanoPytorch,
        Self::VolcanoSvc,
        Self::LeaderWorkerSet,
        Self::Pai,
        Self::PodEnv,
        Self::IndexedJob,
    ];

    /// The name by which `--launcher` chooses the contract and messages call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AscendJobMindSpore => "ascendjob-mindspore",
            Self::AscendJobPytorch => "ascendjob-pytorch",
            Self::AscendJobTensorflow => "ascendjob-tensorflow",
            Self::Dlrover => "dlrover",
            Self::Env => "env",
            Self::Flux => "flux",
            Self::Hydra => "mpich",
            Self::IndexedJob => "indexed-job",
            Self::Jsrun => "jsrun",
            Self::LeaderWorkerSet => "lws",
            Self::MindSpore => "mindspore",
            Self::Mlp => "mlp",
            Self::ModelArts => "modelarts",
            Self::Muster => "muster",
            Self::Mvapich => "mvapich",
            Self::OpenMpi => "openmpi",
            Self::Pai => "pai",
            Self::Pals => "pals",
            Self::Pmix => "pmix",
            Self::PodEnv => "pod-env",
            Self::PytorchJob => "pytorchjob",
            Self::RankTable => "ranktable",
            Self::Ray => "ray",
            Self::Slurm => "slurm",
            Self::Torchrun => "torchrun",
            Self::TrainJob => "trainjob",
            Self::VolcanoPytorch => "volcano-pytorch",
            Self::VolcanoSvc => "volcano-svc",
        }
    }

    /// Every contract, in the order in which detection tries them.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::PER_PROCESS.into_iter().chain(Self::PER_NODE)
    }

    /// Whether the launcher starts one process a rank, not one a node.
    #[must_use]
    pub fn is_per_process(self) -> bool {
        Self::PER_PROCESS.contains(&self)
    }

    /// The shell of nesting: contracts of one shell never start each other.
    pub(super) const fn shell(self) -> u8 {
        match self {
            Self::Muster => 0,
            Self::Ray | Self::Torchrun => 1,
            Self::Hydra | Self::Mvapich | Self::OpenMpi | Self::Pals | Self::Pmix => 2,
            Self::Flux | Self::Jsrun => 3,
            Self::Slurm => 4,
            Self::Env => 5,
            Self::RankTable => 6,
            Self::MindSpore => 7,
            Self::AscendJobMindSpore
            | Self::AscendJobPytorch
            | Self::AscendJobTensorflow
            | Self::Dlrover
            | Self::IndexedJob
            | Self::LeaderWorkerSet
            | Self::Mlp
            | Self::ModelArts
            | Self::Pai
            | Self::PodEnv
            | Self::PytorchJob
            | Self::TrainJob
            | Self::VolcanoPytorch
            | Self::VolcanoSvc => 8,
        }
    }
}

impl fmt::Display for Contract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Contract {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        Self::all()
            .find(|contract| contract.name() == name)
            .ok_or_else(|| UnknownName {
                what: "launcher",
                got: name.to_owned(),
                known: Self::all().map(Self::name).collect(),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_contract_has_a_name_of_its_own_that_leads_back_to_it() {
        let all: Vec<Contract> = Contract::all().collect();
        for (position, contract) in all.iter().enumerate() {
            assert_eq!(contract.name().parse(), Ok(*contract));
            assert!(!all[..position].contains(contract));
        }
        let error = "opnmpi".parse::<Contract>().expect_err("a slip");
        assert_eq!(error.suggestion(), Some("openmpi"));
    }

    #[test]
    fn the_order_of_detection_goes_from_inner_to_outer_shells() {
        assert!(Contract::PER_PROCESS.is_sorted_by_key(|contract| contract.shell()));
    }
}
