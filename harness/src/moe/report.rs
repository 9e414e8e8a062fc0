//! The report of `moe`: a record for each cell.
//!
//! Field names and their order are a contract with other programs; the version rises when one changes
//! its meaning or goes away. `docs/moe.md` defines every figure.

use serde::{Deserialize, Serialize};

use super::dispatch::Phase;
use super::model::Model;
use super::skew::Skew;
use crate::report::measured::{Latency, MeasuredReport, Skew as StartSkew};

/// The outcome of `moe`.
pub type MoeReport = MeasuredReport<Settings, Record>;

/// What only the outcome of `moe` has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Settings {
    /// The shape of the layer.
    pub model: Model,
    /// The groups.
    pub layout: Parallel,
    /// Steps before the timed ones, in each round.
    pub warm_ups: u32,
    /// Timed steps in each round.
    pub steps: u32,
}

/// Sizes of the layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Parallel {
    /// All ranks.
    pub world_size: u32,
    /// Tensor parallel size.
    pub tp: u32,
    /// Expert parallel size.
    pub ep: u32,
    /// Expert tensor parallel size.
    pub etp: u32,
}

/// One cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Record {
    /// Mean tokens of a rank.
    pub tokens: u64,
    /// The workload, or the file.
    pub routing: String,
    /// How tokens went.
    pub dispatcher: String,
    /// What was sent: `bf16`, `f32` or `fp8`.
    pub dtype: String,
    /// How uneven it was meant to be and was.
    pub imbalance: Imbalance,
    /// How much was sent, in one step.
    pub volume: Volume,
    /// To the experts, on the slowest rank.
    pub dispatch: Timing,
    /// Back, on the slowest rank.
    pub combine: Timing,
    /// There and back with the experts between, on the slowest rank.
    pub round_trip: Timing,
    /// The first step of each round, there and back, on the slowest rank.
    pub cold_us: Vec<f64>,
    /// How far apart the ranks began their steps.
    pub start_skew_us: Option<StartSkew>,
    /// Median time of each phase on the slowest rank.
    pub phases_us: Vec<PhaseTime>,
    /// Every rank of the world.
    pub ranks: Vec<RankRow>,
    /// Wrong elements that ranks found in checked steps.
    pub wrong: u64,
    /// What was wrong first, in words.
    pub wrong_text: Option<String>,
    /// Why it was not measured, where a call cannot be carried out; all times are zero then.
    #[serde(default)]
    pub unsupported: Option<String>,
}

/// How uneven loads were; of the first routing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Imbalance {
    /// What the workload asks of experts and of ep ranks; none for a file.
    pub asked: Option<Loads>,
    /// What its tokens got.
    pub achieved: Loads,
    /// Tokens by source.
    pub sources: Skew,
    /// Selections that a capacity dropped, over all.
    pub dropped: f64,
}

/// Loads by expert and by ep rank.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Loads {
    /// By expert.
    pub experts: Skew,
    /// By ep rank.
    pub ranks: Skew,
}

/// Bytes of one dispatch, of the first routing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Volume {
    /// Rows that all ranks sent, without padding.
    pub rows: u64,
    /// Bytes of a row on its way to the expert, its scales included, its weight not.
    pub row_bytes: u64,
    /// Bytes of all rows.
    pub logical_bytes: u64,
    /// Of those, bytes that left their rank.
    pub off_rank_bytes: u64,
    /// The most that one rank sent or received, which is what nccl-tests counts for alltoallv.
    pub busiest_bytes: u64,
    /// The mean over ranks of what was received, which is what DeepEP counts.
    pub received_bytes_mean: f64,
    /// Bytes of the empty rows that fill a capacity; in no other figure, and in no bandwidth.
    #[serde(default)]
    pub padding_bytes: u64,
    /// Bytes beside the rows: weights in f32, and the experts that they are for.
    #[serde(default)]
    pub beside_bytes: u64,
    /// Bytes that left their rank so that all parts of an expert have its rows.
    #[serde(default)]
    pub etp_gather_bytes: u64,
    /// Bytes that left their rank so that the parts' results are summed, in f32.
    #[serde(default)]
    pub etp_reduce_bytes: u64,
}

/// Times of a part of the step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Timing {
    /// Quantiles over steps of the slowest rank's time.
    pub latency_us: Latency,
    /// nccl-tests' rule: bytes of the busiest rank over the median time, in 1e9 bytes a second.
    pub algbw_gbytes_per_s: Option<f64>,
    /// The same times (n - 1) / n.
    pub busbw_gbytes_per_s: Option<f64>,
    /// DeepEP's rule: bytes received by a rank in the mean over the median time. Only where one copy of a token goes to each rank,
    /// as DeepEP has it.
    pub deepep_gbytes_per_s: Option<f64>,
    /// Times of steps on the slowest rank, a list for each round.
    pub samples_us: Vec<Vec<f64>>,
}

/// Time of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PhaseTime {
    /// Which.
    pub phase: Phase,
    /// Median over steps of the slowest rank's time.
    pub median: f64,
}

/// One rank.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RankRow {
    /// World rank.
    pub rank: u32,
    /// Its tokens.
    pub tokens: u64,
    /// Rows that it sent and received in a dispatch.
    pub rows_sent: u64,
    /// Rows that it received in a dispatch.
    pub rows_received: u64,
    /// Median time of dispatch on this rank.
    pub dispatch_us: f64,
    /// Median time of combine on this rank.
    pub combine_us: f64,
    /// In each collective phase the median time from when this rank came to when the last one did:
    /// small for the rank that the others wait for.
    pub wait_us: Vec<PhaseTime>,
    /// By world rank: how long this rank waits in a step, on average, for that one as the last of its group, in all collective phases
    /// together. Empty where clocks cannot be compared, and with more than 64 ranks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits_for_us: Vec<f64>,
}
