//! Why a layout of vLLM is refused: one variant for each rule.

use crate::types::MAX_WORLD_SIZE;

use super::super::error::{divisors, list};
use super::{VllmOption, VllmVersion};

/// A layout that vLLM or vllm-ascend refuses, or that leaves ranks without a group.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VllmError {
    /// Decode context parallel ranks are part of tp.
    #[error("dcp={dcp} must divide tp={tp}; legal: {}", list(&divisors(u64::from(*tp))))]
    DcpNotDividingTp {
        /// Decode context parallel size.
        dcp: u32,
        /// Tensor parallel size.
        tp: u32,
    },
    /// Before 0.18 dcp has to divide the world.
    #[error("dcp={dcp} must divide the world of {world}")]
    DcpNotDividingWorld {
        /// Decode context parallel size.
        dcp: u32,
        /// Number of ranks.
        world: u32,
    },
    /// A fine-grained tensor parallel size does not divide dp.
    #[error("{option}={size} must divide dp={dp}; legal: {}", list(&divisors(u64::from(*dp))))]
    FineGrainedNotDividingDp {
        /// The option.
        option: VllmOption,
        /// Its size.
        size: u32,
        /// Data parallel size.
        dp: u32,
    },
    /// Fine-grained tensor parallelism leaves no room for pcp or replicas.
    #[error(
        "{option} needs pcp=1 and a world of tp*pp*dp = {ranks} ranks, but pcp={pcp} and the world has {world}"
    )]
    FineGrainedGrid {
        /// The option.
        option: VllmOption,
        /// Prefill context parallel size.
        pcp: u32,
        /// tp * pp * dp.
        ranks: u32,
        /// Number of ranks.
        world: u32,
    },
    /// Fine-grained tensor parallelism is for models with experts.
    #[error("{option} is for models with experts in vllm-ascend {version}; leave out dense")]
    FineGrainedNotMoe {
        /// The option.
        option: VllmOption,
        /// The version.
        version: VllmVersion,
    },
    /// `FlashComm2` spreads the projection over a part of tp.
    #[error("flashcomm2={size} must be below tp={tp}")]
    FlashComm2NotBelowTp {
        /// Its size.
        size: u32,
        /// Tensor parallel size.
        tp: u32,
    },
    /// The size of `FlashComm2` does not divide tp.
    #[error("flashcomm2={size} must divide tp={tp}; legal: {}", list(&divisors(u64::from(*tp))))]
    FlashComm2NotDividingTp {
        /// Its size.
        size: u32,
        /// Tensor parallel size.
        tp: u32,
    },
    /// An option that is on or off, with another value than 1.
    #[error("{option} is on or off and has no size; {value} was given")]
    NoSize {
        /// The option.
        option: VllmOption,
        /// What was given.
        value: i64,
    },
    /// The output projection can be split only where attention is not.
    #[error("oproj needs tp=1 in vllm-ascend {version}, but tp={tp}")]
    OprojNeedsTp1 {
        /// Tensor parallel size.
        tp: u32,
        /// The version.
        version: VllmVersion,
    },
    /// The version does not have the option.
    #[error(
        "vllm-ascend {version} has no option {option}; versions with it: {} to {}",
        option.versions().0,
        option.versions().1
    )]
    OptionNotInVersion {
        /// The option.
        option: VllmOption,
        /// The version.
        version: VllmVersion,
    },
    /// The groups of a KV producer do not fit the ranks.
    #[error(
        "pd_tp_ratio={ratio} with num_head_replica={replicas} does not fit blocks of {block} ranks with tp={tp}: \
         pd_tp_ratio must divide tp, and num_head_replica * tp / pd_tp_ratio must divide the block"
    )]
    PTpShape {
        /// Prefill tp divided by decode tp.
        ratio: u32,
        /// Copies of each KV head.
        replicas: u32,
        /// Ranks that are divided.
        block: u32,
        /// Tensor parallel size.
        tp: u32,
    },
    /// Some ranks would be in no group.
    #[error("{option}={size} does not divide the world of {world}, so some ranks are in no group")]
    RankInNoGroup {
        /// The option.
        option: VllmOption,
        /// Its size.
        size: u32,
        /// Number of ranks.
        world: u32,
    },
    /// A size is zero or negative.
    #[error("{name}={got}: every size must be at least 1")]
    SizeBelowOne {
        /// The axis or option.
        name: &'static str,
        /// What was given.
        got: i64,
    },
    /// The sizes do not divide the world.
    #[error("a world of {world} is not divisible by tp*pp*pcp*dp = {product}")]
    WorldNotDivisible {
        /// Number of ranks.
        world: u32,
        /// tp * pp * pcp * dp.
        product: u64,
    },
    /// More ranks than a layout may describe.
    #[error("a world of {got} ranks is above the limit of {MAX_WORLD_SIZE}")]
    WorldTooLarge {
        /// What was given, or what the sizes make.
        got: u64,
    },
}

impl VllmError {
    /// The rule in one word: stable, for tests and machine output.
    #[must_use]
    pub const fn rule(&self) -> &'static str {
        match self {
            Self::DcpNotDividingTp { .. } => "dcp_not_dividing_tp",
            Self::DcpNotDividingWorld { .. } => "dcp_not_dividing_world",
            Self::FineGrainedGrid { .. } => "fine_grained_grid",
            Self::FineGrainedNotDividingDp { .. } => "fine_grained_not_dividing_dp",
            Self::FineGrainedNotMoe { .. } => "fine_grained_not_moe",
            Self::FlashComm2NotBelowTp { .. } => "flashcomm2_not_below_tp",
            Self::FlashComm2NotDividingTp { .. } => "flashcomm2_not_dividing_tp",
            Self::NoSize { .. } => "no_size",
            Self::OprojNeedsTp1 { .. } => "oproj_needs_tp_1",
            Self::OptionNotInVersion { .. } => "option_not_in_version",
            Self::PTpShape { .. } => "p_tp_shape",
            Self::RankInNoGroup { .. } => "rank_in_no_group",
            Self::SizeBelowOne { .. } => "size_below_one",
            Self::WorldNotDivisible { .. } => "world_not_divisible",
            Self::WorldTooLarge { .. } => "world_too_large",
        }
    }
}
