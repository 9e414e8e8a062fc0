//! What every rank of a matrix is told: the matrix, what to check, and how long to wait.

use std::time::Duration;

use muster_comm::types::DType;
use serde::{Deserialize, Serialize};

use crate::check::inject::Inject;
use crate::matrix::Matrix;

/// How bytes go between the ranks of one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Shared memory where ranks share it, TCP elsewhere
    Auto,
    /// Shared memory only
    Shm,
    /// TCP even between ranks of one host
    Tcp,
}

impl Transport {
    /// The word that options and the environment use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Shm => "shm",
            Self::Tcp => "tcp",
        }
    }
}

/// One matrix to prove. Every rank gets the same, and derives the same list of cases from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The axes and the world size.
    pub matrix: Matrix,
    /// Order of the axes, where not the default one.
    pub order: Option<String>,
    /// Element types to check; the default choice where empty.
    pub dtypes: Vec<DType>,
    /// Numbers of elements to check; the default choice where empty.
    pub counts: Vec<usize>,
    /// Time that each call is given, in milliseconds.
    pub deadline_ms: u64,
    /// How bytes go.
    pub transport: Transport,
    /// Faults to plant.
    pub inject: Vec<Inject>,
    /// Seed of the inputs.
    pub seed: u64,
}

impl Job {
    /// Time that each call is given.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        Duration::from_millis(self.deadline_ms)
    }

    /// The faults that `rank` has to plant while this matrix runs.
    pub fn faults_of(&self, rank: u32) -> impl Iterator<Item = &Inject> {
        self.inject.iter().filter(move |inject| {
            inject.rank == rank
                && inject
                    .matrix
                    .as_ref()
                    .is_none_or(|name| *name == self.matrix.name)
        })
    }
}
