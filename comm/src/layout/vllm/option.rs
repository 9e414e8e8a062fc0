//! Versions of vllm-ascend, and the options that add or change its groups.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::types::{UnknownName, by_name};

/// A release line of vllm-ascend, with the vLLM that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum VllmVersion {
    /// vllm-ascend v0.11.0, vLLM 0.11.0.
    V0_11,
    /// vllm-ascend v0.13.0, vLLM 0.13.0.
    V0_13,
    /// vllm-ascend v0.18.0 (v0.20.2rc1 makes the same groups), vLLM 0.18.0.
    V0_18,
    /// vllm-ascend v0.23.0 (v0.22.1rc1 makes the same groups), vLLM 0.23.0.
    V0_23,
    /// vllm-ascend v0.25.1rc1 (main of 2026-08-22 makes the same groups), vLLM 0.25.1.
    V0_25,
}

impl VllmVersion {
    /// Every version, the oldest first.
    pub const ALL: [Self; 5] = [
        Self::V0_11,
        Self::V0_13,
        Self::V0_18,
        Self::V0_23,
        Self::V0_25,
    ];

    /// The newest version that is no release candidate.
    pub const DEFAULT: Self = Self::V0_23;

    /// `0.11`, `0.13`, ...
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::V0_11 => "0.11",
            Self::V0_13 => "0.13",
            Self::V0_18 => "0.18",
            Self::V0_23 => "0.23",
            Self::V0_25 => "0.25",
        }
    }
}

impl fmt::Display for VllmVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Reads `0.18`, `v0.18.0` or `0.25.1rc1`: only the first two numbers count.
impl FromStr for VllmVersion {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        let mut numbers = text.trim_start_matches('v').split('.');
        let line = match (numbers.next(), numbers.next()) {
            (Some("0"), Some("20")) => "0.18",
            (Some("0"), Some("22")) => "0.23",
            (Some(major), Some(minor)) => &format!("{major}.{minor}"),
            _ => text,
        };
        by_name("version of vllm-ascend", line, &Self::ALL, |version| {
            version.name()
        })
    }
}

/// An option of vLLM or vllm-ascend that adds or changes groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum VllmOption {
    /// The model has no experts.
    Dense,
    /// Hosts that one engine spans.
    Nodes,
    /// vLLM's expert load balancer.
    Eplb,
    /// vllm-ascend's expert load balancer.
    DynamicEplb,
    /// Prefill tp divided by decode tp, on the prefill side of a disaggregated deployment.
    PdTpRatio,
    /// KV heads of a prefill rank divided by those of a decode rank; above 1 for a KV producer.
    PdHeadRatio,
    /// Copies of each KV head within prefill tp.
    NumHeadReplica,
    /// Tensor parallel size of the output projection of attention.
    Oproj,
    /// Tensor parallel size of the language model head.
    Lmhead,
    /// Tensor parallel size of the embedding.
    Embedding,
    /// Tensor parallel size of dense MLPs.
    Mlp,
    /// Tensor parallel dense MLPs over dp.
    MlpOptimize,
    /// Tensor parallel size of the output projection with `FlashComm2`.
    FlashComm2,
    /// The gate overlaps the quantization of shared experts.
    MultistreamOverlapGate,
    /// Weights of some layers are spread over ranks.
    LayerSharding,
    /// Context parallelism of sparse attention over tp.
    DsaCp,
}

/// What the table knows of an option.
struct Row {
    option: VllmOption,
    name: &'static str,
    /// Whether it is on or off, rather than a size.
    is_flag: bool,
    since: VllmVersion,
    until: VllmVersion,
}

const fn row(
    option: VllmOption,
    name: &'static str,
    is_flag: bool,
    versions: (VllmVersion, VllmVersion),
) -> Row {
    Row {
        option,
        name,
        is_flag,
        since: versions.0,
        until: versions.1,
    }
}

const ALWAYS: (VllmVersion, VllmVersion) = (VllmVersion::V0_11, VllmVersion::V0_25);
const SINCE_13: (VllmVersion, VllmVersion) = (VllmVersion::V0_13, VllmVersion::V0_25);
const FROM_13_TO_23: (VllmVersion, VllmVersion) = (VllmVersion::V0_13, VllmVersion::V0_23);
const SINCE_18: (VllmVersion, VllmVersion) = (VllmVersion::V0_18, VllmVersion::V0_25);
const ONLY_11: (VllmVersion, VllmVersion) = (VllmVersion::V0_11, VllmVersion::V0_11);

/// In the order of [`VllmOption`].
static TABLE: [Row; 16] = [
    row(VllmOption::Dense, "dense", true, ALWAYS),
    row(VllmOption::Nodes, "nodes", false, ALWAYS),
    row(VllmOption::Eplb, "eplb", true, SINCE_18),
    row(VllmOption::DynamicEplb, "dynamic_eplb", true, SINCE_18),
    row(VllmOption::PdTpRatio, "pd_tp_ratio", false, ALWAYS),
    row(VllmOption::PdHeadRatio, "pd_head_ratio", false, ALWAYS),
    row(
        VllmOption::NumHeadReplica,
        "num_head_replica",
        false,
        ALWAYS,
    ),
    row(VllmOption::Oproj, "oproj", false, ALWAYS),
    row(VllmOption::Lmhead, "lmhead", false, ALWAYS),
    row(VllmOption::Embedding, "embedding", false, SINCE_13),
    row(VllmOption::Mlp, "mlp", false, SINCE_13),
    row(VllmOption::MlpOptimize, "mlp_optimize", true, ONLY_11),
    row(VllmOption::FlashComm2, "flashcomm2", false, FROM_13_TO_23),
    row(
        VllmOption::MultistreamOverlapGate,
        "multistream_overlap_gate",
        true,
        FROM_13_TO_23,
    ),
    row(
        VllmOption::LayerSharding,
        "layer_sharding",
        true,
        FROM_13_TO_23,
    ),
    row(VllmOption::DsaCp, "dsa_cp", true, FROM_13_TO_23),
];

impl VllmOption {
    /// Every option, in the sequence in which names are written.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.option)
    }

    fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// The word: `lmhead`, `dynamic_eplb`, ...
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Whether it is on or off, and has no size.
    #[must_use]
    pub fn is_flag(self) -> bool {
        self.row().is_flag
    }

    /// The first and the last version that has it.
    #[must_use]
    pub fn versions(self) -> (VllmVersion, VllmVersion) {
        (self.row().since, self.row().until)
    }

    /// Whether a version has it.
    #[must_use]
    pub fn is_in(self, version: VllmVersion) -> bool {
        (self.row().since..=self.row().until).contains(&version)
    }
}

impl fmt::Display for VllmOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for VllmOption {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        let all: Vec<_> = Self::all().collect();
        by_name("option of vllm-ascend", name, &all, Self::name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_options() {
        for (place, option) in VllmOption::all().enumerate() {
            assert_eq!(option as usize, place, "{option}");
        }
    }

    #[test]
    fn versions_are_read_as_people_write_them() {
        for (text, version) in [
            ("0.11", VllmVersion::V0_11),
            ("v0.13.0", VllmVersion::V0_13),
            ("0.20.2rc1", VllmVersion::V0_18),
            ("0.25.1rc1", VllmVersion::V0_25),
        ] {
            assert_eq!(text.parse(), Ok(version), "{text}");
        }
        for text in ["", "0", "0.12", "main", "1.0"] {
            assert!(text.parse::<VllmVersion>().is_err(), "{text}");
        }
    }
}
