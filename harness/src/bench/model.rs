//! The report of `bench`: a record for each cell.
//!
//! Field names and their order are a contract with other programs; the version rises when one changes
//! its meaning or goes away. `docs/metrics.md` defines every figure.

use serde::{Deserialize, Serialize};

use crate::report::measured::{Latency, MeasuredReport, Skew};

/// The outcome of `bench`.
pub type BenchReport = MeasuredReport<Settings, Record>;

/// What only the outcome of `bench` has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Settings {
    /// Where the rules came from that select algorithms: `built in`, `MUSTER_ALGO` or a file.
    #[serde(default)]
    pub rules: String,
    /// Calls before the timed ones, in each round.
    pub warm_ups: u32,
    /// The name of the host of each rank of the largest world; empty where all are on one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
}

/// One cell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Record {
    /// What was done: the name of a collective, `group_create` or `bring_up`.
    pub collective: String,
    /// Name of the algorithm, `auto` where the selection tables chose.
    pub algo: String,
    /// Ranks of one group.
    pub ranks: u32,
    /// Size as nccl-tests counts it.
    pub bytes: u64,
    /// Elements of the buffer, or of one block.
    pub count: u64,
    /// Element type, where there is one.
    pub dtype: Option<String>,
    /// Reduction, where there is one.
    pub op: Option<String>,
    /// Root, where there is one, as an index into the group.
    pub root: Option<u32>,
    /// Whether send and receive buffer were one.
    pub in_place: bool,
    /// Where buffers lay: `private`, `region` or `device`.
    pub memory: String,
    /// How uneven blocks differed, where blocks may.
    pub split: Option<String>,
    /// Kind of the group.
    pub group: String,
    /// Groups of the kind that worked at once.
    pub groups: u32,
    /// Ranks of the whole world.
    pub world_size: u32,
    /// Time of a call on the slowest rank.
    pub latency_us: Latency,
    /// `bytes` over the median time, in 1e9 bytes a second; null where there are no bytes.
    pub algbw_gbytes_per_s: Option<f64>,
    /// The same with the bus factor.
    pub busbw_gbytes_per_s: Option<f64>,
    /// Wrong elements that ranks found, all checks together; null where nothing was checked.
    pub wrong: Option<u64>,
    /// What was wrong first, in words.
    pub wrong_text: Option<String>,
    /// Why it was not measured, where the call cannot be carried out; all times are zero then.
    pub unsupported: Option<String>,
    /// Time of the first call in each round, on the slowest rank.
    pub cold_us: Vec<f64>,
    /// How far apart the ranks began their samples; null where their clocks cannot be compared.
    pub start_skew_us: Option<Skew>,
    /// Median time of a call by rank of the world, null for ranks in none of the groups.
    pub rank_median_us: Vec<Option<f64>>,
    /// Calls in each sample, in the last round.
    pub calls_per_sample: u32,
    /// Samples in all rounds, of which `samples_us` keeps a part.
    pub samples: u64,
    /// Times of a call on the slowest rank, a list for each round, in the order of time.
    pub samples_us: Vec<Vec<f64>>,
    /// How the last timed call went: the name of an algorithm, `entry` where the contribution rode in the
    /// exchange that begins a call, `straight` where ranks used each other's buffers in place, `copy` in a
    /// group of one; null where it was not a collective of the host backend.
    #[serde(default)]
    pub taken: Option<String>,
    /// Bytes that went through staging at once, where that was asked for.
    #[serde(default)]
    pub segment: Option<u32>,
}
