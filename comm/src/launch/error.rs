//! Why the environment gives no identity. Every variant is a usage error (exit 2).

use std::fmt;

use super::contract::Contract;
use crate::config::ConfigError;

/// What one contract said, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Who speaks.
    pub contract: Contract,
    /// Rank, where it is given.
    pub rank: Option<u32>,
    /// World size, where it is given.
    pub world_size: Option<u32>,
    /// Local rank, where it is given.
    pub local_rank: Option<u32>,
    /// The variables behind it, with their values.
    pub variables: Vec<(String, String)>,
}

/// `slurm says rank 1 of 4 (SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=4)`.
impl fmt::Display for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} says rank ", self.contract)?;
        match self.rank {
            Some(rank) => write!(f, "{rank}")?,
            None => f.write_str("unknown")?,
        }
        if let Some(world_size) = self.world_size {
            write!(f, " of {world_size}")?;
        }
        if let Some(local_rank) = self.local_rank {
            write!(f, ", local rank {local_rank}")?;
        }
        write!(f, " ({})", Assignments(&self.variables))
    }
}

/// `A=1 B=2`.
struct Assignments<'a>(&'a [(String, String)]);

impl fmt::Display for Assignments<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (name, value)) in self.0.iter().enumerate() {
            let gap = if position == 0 { "" } else { " " };
            write!(f, "{gap}{name}={value}")?;
        }
        Ok(())
    }
}

/// Why no identity can be told from the environment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    /// A variable does not hold what its contract says it holds.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// One contract contradicts itself.
    #[error("{contract}: {what} ({})", Assignments(variables))]
    Contradiction {
        /// The contract.
        contract: Contract,
        /// The two sides, with their numbers.
        what: String,
        /// What was read.
        variables: Vec<(String, String)>,
    },
    /// Two contracts are set and say different things.
    #[error("{first}, but {second}; choose one with --launcher {} or --launcher {}", first.contract, second.contract)]
    Disagree {
        /// The nearer contract.
        first: Box<Statement>,
        /// The other one.
        second: Box<Statement>,
    },
    /// A contract is set in part.
    #[error("{contract}: {} not set{}{why}", missing.join(" and "), Beside(present))]
    Incomplete {
        /// The contract.
        contract: Contract,
        /// What is set.
        present: Vec<(String, String)>,
        /// What is needed and is not set.
        missing: Vec<&'static str>,
        /// A reason or way out, beginning with "; ", or nothing.
        why: &'static str,
    },
    /// The process was started by a launcher, but not as a rank.
    #[error(
        "{contract}: this process is no rank: {why} ({})",
        Assignments(variables)
    )]
    NotARank {
        /// The contract.
        contract: Contract,
        /// What it is instead.
        why: &'static str,
        /// What was read.
        variables: Vec<(String, String)>,
    },
    /// The contract describes something that muster cannot join.
    #[error("{contract}: {what} ({})", Assignments(variables))]
    Unsupported {
        /// The contract.
        contract: Contract,
        /// What, and what can be done instead.
        what: String,
        /// What was read.
        variables: Vec<(String, String)>,
    },
}

/// ` beside A=1 B=2`, or nothing.
struct Beside<'a>(&'a [(String, String)]);

impl fmt::Display for Beside<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            Ok(())
        } else {
            write!(f, " beside {}", Assignments(self.0))
        }
    }
}
