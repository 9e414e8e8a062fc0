//! What detection answers with: who this process is, and how that is known.

use std::fmt;

use super::contract::Contract;
use super::devices::VisibleDevices;
use super::exchange::Exchange;
use crate::rendezvous::Endpoint;
use crate::types::Rank;

/// What the environment says about this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Detected {
    /// A launcher started one process a rank; this is one of them.
    Identity(Identity),
    /// A launcher started one process a node; the ranks of this node are still to be started.
    PerNode(PerNode),
    /// No launcher speaks. What looked like one but is none stands in the notes.
    Standalone {
        /// Remarks for the user, each one line.
        notes: Vec<String>,
    },
}

/// One rank of a world that a launcher started.
///
/// Always `rank < world_size`; where known, `local_rank < local_world_size <= world_size` and
/// `node_rank < nnodes`. Nothing that the launcher left open is computed from something else:
/// `world_size` need not divide by `local_world_size`, and ranks need not lie in node order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Rank in the world.
    pub rank: Rank,
    /// Number of ranks.
    pub world_size: u32,
    /// Number of this rank among those of its host, where the launcher says so.
    pub local_rank: Option<u32>,
    /// Number of ranks on this host, where the launcher says so.
    pub local_world_size: Option<u32>,
    /// Number of this host, where the launcher says so.
    pub node_rank: Option<u32>,
    /// Number of hosts, where the launcher says so.
    pub nnodes: Option<u32>,
    /// Where the ranks may meet; `None` where neither launcher nor user gives a way to tell.
    pub endpoint: Option<EndpointHint>,
    /// How rank 0 may tell the others where to meet, where `endpoint` is `None` and the launcher has means for that.
    pub exchange: Option<Exchange>,
    /// A name that all ranks of this job share and no other running job has, where there is one.
    pub job_id: Option<String>,
    /// Which start of the job this is, from 0.
    pub attempt: u32,
    /// Which devices a mask leaves to this process, where one is set.
    pub devices: Option<VisibleDevices>,
    /// The contract that was believed, and its variables.
    pub source: Source,
    /// Remarks for the user, each one line.
    pub notes: Vec<String>,
}

impl Identity {
    /// Whether the launcher says that every rank of the world is on this host.
    #[must_use]
    pub fn is_on_one_host(&self) -> bool {
        self.world_size == 1
            || self.nnodes == Some(1)
            || self.local_world_size == Some(self.world_size)
    }
}

/// A node (or pod) of a job whose ranks are not started yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerNode {
    /// Number of this node, from 0.
    pub node_rank: u32,
    /// Number of nodes, where the launcher says so; always above `node_rank`.
    pub nnodes: Option<u32>,
    /// Ranks to start on this node, where the launcher says so.
    pub procs_per_node: Option<u32>,
    /// Where the ranks may meet.
    pub endpoint: Option<EndpointHint>,
    /// A name that all nodes of this job share, where there is one.
    pub job_id: Option<String>,
    /// Which start of the job this is, from 0.
    pub attempt: u32,
    /// Which devices a mask leaves to this process, where one is set.
    pub devices: Option<VisibleDevices>,
    /// The contract that was believed, and its variables.
    pub source: Source,
    /// Remarks for the user, each one line.
    pub notes: Vec<String>,
}

impl PerNode {
    /// Rank of the local rank `local_rank`, as `node_rank * procs_per_node + local_rank`.
    ///
    /// `None` where the ranks of a node are not counted or there are not that many.
    #[must_use]
    pub fn rank_of(&self, local_rank: u32) -> Option<Rank> {
        let procs = self.procs_per_node.filter(|procs| local_rank < *procs)?;
        let first = self.node_rank.checked_mul(procs)?;
        first.checked_add(local_rank).map(Rank)
    }

    /// Number of ranks, as `nnodes * procs_per_node`, where both are known.
    #[must_use]
    pub fn world_size(&self) -> Option<u32> {
        self.nnodes?.checked_mul(self.procs_per_node?)
    }
}

/// Where the ranks may meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointHint {
    /// The place.
    pub endpoint: Endpoint,
    /// How it was found, one fragment for the user.
    pub how: String,
}

/// Why an identity is believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The contract that speaks for this process.
    pub contract: Contract,
    /// The variables it was read from, with their values, in the order of reading.
    pub variables: Vec<(String, String)>,
    /// Further contracts that are set and say the same.
    pub agreeing: Vec<Contract>,
}

/// Longest text of a source: it travels in a hello.
const SOURCE_BYTES_MAX: usize = 256;

/// `slurm (SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=4)`, as many variables as fit 256 bytes.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        for (name, value) in &self.variables {
            let gap = if text.is_empty() { "" } else { " " };
            let next = format!("{gap}{name}={value}");
            // Brackets and the longest name of a contract fit the rest.
            if text.len() + next.len() > SOURCE_BYTES_MAX - 32 {
                break;
            }
            text.push_str(&next);
        }
        write!(f, "{} ({text})", self.contract)
    }
}
