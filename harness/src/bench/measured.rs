//! What one rank tells about one cell: the samples that it took, and what it found wrong.

use serde::{Deserialize, Serialize};

use crate::bench::told::Head;

/// Most samples that a rank takes of a cell in one round: what fits a message to the launcher with
/// room to spare, and tells the 99.9 % quantile from the maximum.
pub const SAMPLES_MAX: usize = 20_000;

/// One cell in one round, on one rank.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// What is the same whatever is measured.
    pub head: Head,
    /// Calls in each sample.
    pub calls: u32,
    /// Time of the first call of the cell in this round, in nanoseconds.
    pub cold_ns: u64,
    /// When each sample began, on the clock that all processes of the host share: nanoseconds since
    /// the one before, the first since zero.
    pub starts_ns: Vec<u64>,
    /// Time of each sample, in nanoseconds.
    pub samples_ns: Vec<u64>,
    /// How the last call went; see the record.
    #[serde(default)]
    pub taken: Option<String>,
    /// The name of its host, in what it tells first.
    #[serde(default)]
    pub host: Option<String>,
}
