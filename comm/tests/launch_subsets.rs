//! Whatever part of the variables of two launchers is left: a true identity, a refusal, or nothing.
//!
//! Containers, `sudo`, `ssh` and job scripts drop variables and carry stale ones along. The property
//! holds for every pair of contracts: an answer is never put together from both, and never wrong.

use std::collections::BTreeMap;

use muster_comm::config::{Ancestor, Environment};
use muster_comm::launch::{Contract, Detected, Identity, LaunchError, detect};
use proptest::prelude::*;

/// Who a process is, for the tests: ranks lie in blocks of `per_node`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Who {
    rank: u32,
    world_size: u32,
    per_node: u32,
}

impl Who {
    fn local_rank(self) -> u32 {
        self.rank % self.per_node
    }

    fn node(self) -> u32 {
        self.rank / self.per_node
    }

    fn nodes(self) -> u32 {
        self.world_size / self.per_node
    }
}

/// All variables that a launcher sets for a rank.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the others start one process a node and have no rank to set"
)]
fn variables(contract: Contract, who: Who) -> Vec<(String, String)> {
    let local = who.local_rank();
    let (rank, size, here) = (who.rank, who.world_size, who.per_node);
    let (node, nodes) = (who.node(), who.nodes());
    let text = match contract {
        Contract::Muster => format!(
            "MUSTER_RANK={rank} MUSTER_WORLD_SIZE={size} MUSTER_LOCAL_RANK={local} \
             MUSTER_LOCAL_WORLD_SIZE={here} MUSTER_NODE_RANK={node} MUSTER_NNODES={nodes} \
             MUSTER_JOB_ID=job MUSTER_RENDEZVOUS=tcp://10.0.0.1:20000"
        ),
        Contract::Torchrun => format!(
            "RANK={rank} WORLD_SIZE={size} LOCAL_RANK={local} LOCAL_WORLD_SIZE={here} \
             GROUP_RANK={node} GROUP_WORLD_SIZE={nodes} ROLE_RANK={rank} ROLE_WORLD_SIZE={size} \
             MASTER_ADDR=10.0.0.1 MASTER_PORT=29500 TORCHELASTIC_RUN_ID=run \
             TORCHELASTIC_RESTART_COUNT=0 TORCHELASTIC_USE_AGENT_STORE=True"
        ),
        Contract::OpenMpi => format!(
            "OMPI_COMM_WORLD_RANK={rank} OMPI_COMM_WORLD_SIZE={size} \
             OMPI_COMM_WORLD_LOCAL_RANK={local} OMPI_COMM_WORLD_LOCAL_SIZE={here} \
             OMPI_COMM_WORLD_NODE_RANK={local} PMIX_RANK={rank} PMIX_NAMESPACE=77"
        ),
        Contract::Hydra => format!(
            "PMI_RANK={rank} PMI_SIZE={size} MPI_LOCALRANKID={local} MPI_LOCALNRANKS={here} PMI_FD=6"
        ),
        Contract::Mvapich => format!(
            "MV2_COMM_WORLD_RANK={rank} MV2_COMM_WORLD_SIZE={size} \
             MV2_COMM_WORLD_LOCAL_RANK={local} MV2_COMM_WORLD_LOCAL_SIZE={here}"
        ),
        Contract::Pals => format!(
            "PALS_RANKID={rank} PMI_RANK={rank} PMI_SIZE={size} PALS_LOCAL_RANKID={local} \
             PALS_LOCAL_SIZE={here}"
        ),
        Contract::Flux => format!(
            "FLUX_TASK_RANK={rank} FLUX_JOB_SIZE={size} FLUX_TASK_LOCAL_ID={local} \
             FLUX_JOB_NNODES={nodes} FLUX_JOB_ID=f1"
        ),
        Contract::Jsrun => format!(
            "JSM_NAMESPACE_RANK={rank} JSM_NAMESPACE_SIZE={size} JSM_NAMESPACE_LOCAL_RANK={local} \
             LSB_JOBID=9"
        ),
        Contract::Slurm => format!(
            "SLURM_JOB_ID=9 SLURM_STEP_ID=0 SLURM_PROCID={rank} SLURM_LOCALID={local} \
             SLURM_NODEID={node} SLURM_NTASKS={size} SLURM_NPROCS={size} \
             SLURM_STEP_NUM_TASKS={size} SLURM_STEP_NUM_NODES={nodes} \
             SLURM_STEP_TASKS_PER_NODE={here}(x{nodes}) SLURM_STEP_NODELIST=n[1-{nodes}]"
        ),
        Contract::Env => format!(
            "RANK={rank} WORLD_SIZE={size} LOCAL_RANK={local} LOCAL_WORLD_SIZE={here} \
             MASTER_ADDR=10.0.0.1 MASTER_PORT=6000"
        ),
        Contract::Ray => format!(
            "WG_BACKEND=ray RANK={rank} WORLD_SIZE={size} RAY_LOCAL_RANK={local} \
             RAY_LOCAL_WORLD_SIZE={here} WG_PREFIX=abcdef"
        ),
        Contract::RankTable => format!("RANK_ID={rank} RANK_SIZE={size} DEVICE_ID={local}"),
        Contract::MindSpore => {
            format!("MS_ROLE=MS_WORKER MS_WORKER_NUM={size} MS_NODE_ID={rank} RANK_ID={rank}")
        }
        Contract::Pmix => format!("PMIX_RANK={rank} PMIX_NAMESPACE=77"),
        other => unreachable!("{other} starts one process a node"),
    };
    text.split_whitespace()
        .map(|pair| pair.split_once('=').expect("NAME=value"))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// The variables of both, less those that the mask drops.
fn mixed(first: &[(String, String)], second: &[(String, String)], mask: u64) -> Environment {
    let union: BTreeMap<String, String> = first.iter().chain(second).cloned().collect();
    let kept = union
        .into_iter()
        .enumerate()
        .filter(|(position, _)| mask & (1 << position) != 0)
        .map(|(_, pair)| pair);
    Environment::from_pairs(kept).with_ancestors(vec![Ancestor {
        pid: 100,
        name: "hydra_pmi_proxy".to_owned(),
        started_ticks: 5,
    }])
}

fn contract() -> impl Strategy<Value = Contract> {
    prop::sample::select(Contract::PER_PROCESS.to_vec())
}

fn who() -> impl Strategy<Value = Who> {
    (1_u32..5, 1_u32..5).prop_flat_map(|(nodes, per_node)| {
        let world_size = nodes * per_node;
        (0..world_size).prop_map(move |rank| Who {
            rank,
            world_size,
            per_node,
        })
    })
}

/// The identity, if the answer is one.
fn identity(answer: Result<Detected, LaunchError>) -> Option<Identity> {
    match answer {
        Ok(Detected::Identity(identity)) => Some(identity),
        Ok(Detected::PerNode(_) | Detected::Standalone { .. }) | Err(_) => None,
    }
}

/// Whether nothing in `identity` contradicts `who`.
fn is_true_of(identity: &Identity, who: Who) -> bool {
    let fits = |found: Option<u32>, truth: u32| found.is_none_or(|found| found == truth);
    identity.rank.0 == who.rank
        && identity.world_size == who.world_size
        && fits(identity.local_rank, who.local_rank())
        && fits(identity.local_world_size, who.per_node)
        && fits(identity.node_rank, who.node())
        && fits(identity.nnodes, who.nodes())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, max_global_rejects: 1 << 16, ..ProptestConfig::default() })]

    #[test]
    fn what_is_left_of_two_launchers_that_agree_never_gives_a_wrong_identity(
        first in contract(), second in contract(), who in who(), mask: u64,
    ) {
        let environment = mixed(&variables(first, who), &variables(second, who), mask);
        if let Some(identity) = identity(detect(&environment, None)) {
            prop_assert!(is_true_of(&identity, who), "{identity:?}");
        }
    }

    #[test]
    fn what_is_left_of_two_launchers_that_differ_is_one_of_them_and_never_a_mixture(
        first in contract(), second in contract(), one in who(), other in who(), mask: u64,
    ) {
        let (left, right) = (variables(first, one), variables(second, other));
        let shared = left.iter().any(|(name, _)| right.iter().any(|(same, _)| name == same));
        // Where the names are the same, one launcher has overwritten the other.
        prop_assume!(!shared);
        let environment = mixed(&left, &right, mask);
        if let Some(identity) = identity(detect(&environment, None)) {
            let whole = is_true_of(&identity, one) || is_true_of(&identity, other);
            prop_assert!(whole, "{one:?} {other:?} {identity:?}");
        }
    }

    #[test]
    fn two_whole_contracts_that_differ_are_refused_unless_one_started_the_other(
        first in contract(), second in contract(), one in who(), other in who(),
    ) {
        // muster's own variables win without asking, and PMIx is never whole.
        let beside = [Contract::Muster, Contract::Pmix];
        prop_assume!(!beside.contains(&first) && !beside.contains(&second));
        prop_assume!((one.rank, one.world_size) != (other.rank, other.world_size));
        let (left, right) = (variables(first, one), variables(second, other));
        let shared = left.iter().any(|(name, _)| right.iter().any(|(same, _)| name == same));
        prop_assume!(!shared);
        let environment = mixed(&left, &right, u64::MAX);
        match detect(&environment, None) {
            Ok(Detected::Identity(identity)) => {
                let (inner, outer) = if is_true_of(&identity, one) {
                    (one, other)
                } else {
                    (other, one)
                };
                let mpi = [Contract::OpenMpi, Contract::Hydra, Contract::Mvapich, Contract::Pals];
                prop_assert!(!(mpi.contains(&first) && mpi.contains(&second)), "{identity:?}");
                prop_assert!(is_true_of(&identity, inner));
                prop_assert!(outer.per_node == 1, "{identity:?}");
                prop_assert!(inner.world_size > outer.world_size);
                prop_assert!(outer.world_size == 1 || inner.nodes() > 1);
            }
            Err(LaunchError::Disagree { .. } | LaunchError::Incomplete { .. }) => {}
            other => prop_assert!(false, "{other:?}"),
        }
    }

    #[test]
    fn the_whole_of_one_contract_gives_the_identity_it_was_made_of(
        contract in contract(), who in who(),
    ) {
        let environment = mixed(&variables(contract, who), &[], u64::MAX);
        match detect(&environment, None) {
            Ok(Detected::Identity(identity)) => {
                prop_assert!(is_true_of(&identity, who), "{identity:?}");
                prop_assert_eq!(identity.source.contract, contract);
            }
            Err(LaunchError::Incomplete { .. }) => prop_assert_eq!(contract, Contract::Pmix),
            other => prop_assert!(false, "{other:?}"),
        }
    }

    #[test]
    fn no_values_make_detection_panic(
        values in prop::collection::vec(
            (prop::sample::select(NAMES.to_vec()), "[0-9]{0,3}|[ -~]{0,12}|.{0,4}"), 0..12)
    ) {
        let environment = Environment::from_pairs(values);
        let _ = detect(&environment, None);
        for contract in Contract::all() {
            let _ = detect(&environment, Some(contract));
        }
    }
}

/// Names that some contract reads, for values of all kinds.
const NAMES: [&str; 40] = [
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "PMI_RANK",
    "PMI_SIZE",
    "PALS_RANKID",
    "PMIX_RANK",
    "SLURM_STEP_ID",
    "SLURM_PROCID",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_STEP_NODELIST",
    "SLURM_NODEID",
    "RANK_ID",
    "RANK_SIZE",
    "MS_ROLE",
    "MS_WORKER_NUM",
    "MS_NODE_RANK",
    "MS_LOCAL_WORKER",
    "PET_NODE_RANK",
    "PET_NNODES",
    "PET_NPROC_PER_NODE",
    "JOB_COMPLETION_INDEX",
    "LWS_WORKER_INDEX",
    "LWS_GROUP_SIZE",
    "VC_TASK_INDEX",
    "VC_WORKER_HOSTS",
    "VC_WORKER_NUM",
    "MA_NUM_HOSTS",
    "MUSTER_RANK",
    "MUSTER_WORLD_SIZE",
    "MUSTER_RENDEZVOUS",
    "MINDX_TASK_ID",
    "ASCEND_RT_VISIBLE_DEVICES",
];
