//! What one rank tells about one cell: the samples that it took, and what it found wrong.

use serde::{Deserialize, Serialize};

use crate::report::machine::Pulse;

/// Most samples that a rank takes of a cell in one round: what fits a message to the launcher with
/// room to spare, and tells the 99.9 % quantile from the maximum.
pub const SAMPLES_MAX: usize = 20_000;

/// One cell in one round, on one rank.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Number of the cell in the plan.
    pub cell: u32,
    /// Number of the round.
    pub round: u32,
    /// Calls in each sample.
    pub calls: u32,
    /// Time of the first call of the cell in this round, in nanoseconds.
    pub cold_ns: u64,
    /// When each sample began, on the clock that all processes of the host share: nanoseconds since
    /// the one before, the first since zero.
    pub starts_ns: Vec<u64>,
    /// Time of each sample, in nanoseconds.
    pub samples_ns: Vec<u64>,
    /// Wrong elements in all checks.
    pub wrong: u64,
    /// What was wrong first, in words.
    pub wrong_text: Option<String>,
    /// Why it was not measured, where the call said that it cannot be carried out.
    pub unsupported: Option<String>,
    /// How the last call went; see the record.
    #[serde(default)]
    pub taken: Option<String>,
    /// What the machine could do just before, where this rank looked.
    pub machine: Option<Pulse>,
}
