//! Shapes of mixture-of-experts layers: of published models by name, or as given.

use muster_comm::types::{UnknownName, closest};
use serde::{Deserialize, Serialize};

/// What of a model decides how much a MoE layer sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Model {
    /// Name of the preset, or `custom`.
    pub name: String,
    /// Elements of a token.
    pub hidden: usize,
    /// Routed experts of a layer; shared experts send nothing.
    pub experts: usize,
    /// Experts chosen for each token.
    pub top_k: usize,
    /// Where the figures come from.
    pub source: String,
}

/// A model by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelPreset {
    /// The name, as in `--preset`.
    pub name: &'static str,
    /// Elements of a token.
    pub hidden: usize,
    /// Routed experts of a layer.
    pub experts: usize,
    /// Experts chosen for each token.
    pub top_k: usize,
    /// MoE layers of the model.
    pub layers: usize,
    /// Where the figures come from.
    pub source: &'static str,
}

const PRESETS: [ModelPreset; 11] = [
    preset(
        "mixtral-8x7b",
        4096,
        8,
        2,
        32,
        "Hugging Face configuration of mistralai/Mixtral-8x7B-Instruct-v0.1",
    ),
    preset(
        "qwen3-30b-a3b",
        2048,
        128,
        8,
        48,
        "slime's model scripts; MindSpeed-RL's configurations",
    ),
    preset(
        "qwen3-235b-a22b",
        4096,
        128,
        8,
        94,
        "slime's model scripts; MindSpeed-RL's configurations",
    ),
    preset(
        "deepseek-v3",
        7168,
        256,
        8,
        58,
        "vLLM's DeepseekV3Config; slime's model scripts",
    ),
    preset(
        "kimi-k2",
        7168,
        384,
        8,
        60,
        "slime's model scripts; Megatron-Bridge's documentation",
    ),
    preset(
        "glm-4.5",
        5120,
        160,
        8,
        89,
        "slime's model scripts; Megatron-Bridge's documentation",
    ),
    preset(
        "glm-4.5-air",
        4096,
        128,
        8,
        45,
        "slime's model scripts; configuration of INTELLECT-3, which has the same base",
    ),
    preset(
        "qwen3-next-80b-a3b",
        2048,
        512,
        10,
        48,
        "slime's model scripts (one copy only)",
    ),
    preset(
        "gpt-oss-120b",
        2880,
        128,
        4,
        36,
        "copy of openai/gpt-oss-120b's configuration; Megatron-Bridge's documentation",
    ),
    preset(
        "minimax-m2",
        3072,
        256,
        8,
        62,
        "slime's model scripts (one copy only)",
    ),
    preset(
        "qwen3.5-35b-a3b",
        2048,
        256,
        8,
        40,
        "slime's model scripts (one copy only)",
    ),
];

const fn preset(
    name: &'static str,
    hidden: usize,
    experts: usize,
    top_k: usize,
    layers: usize,
    source: &'static str,
) -> ModelPreset {
    ModelPreset {
        name,
        hidden,
        experts,
        top_k,
        layers,
        source,
    }
}

impl ModelPreset {
    /// Every preset.
    #[must_use]
    pub const fn all() -> &'static [Self] {
        &PRESETS
    }

    /// The preset of this name, in any case of letters.
    ///
    /// # Errors
    /// An unknown name, with every known one.
    pub fn find(name: &str) -> Result<&'static Self, UnknownName> {
        let lower = name.to_ascii_lowercase();
        // The same shape under another name.
        let lower = if lower == "deepseek-r1" {
            "deepseek-v3".to_owned()
        } else {
            lower
        };
        PRESETS
            .iter()
            .find(|preset| preset.name == lower)
            .ok_or_else(|| UnknownName {
                what: "model preset",
                got: name.to_owned(),
                known: PRESETS.iter().map(|preset| preset.name).collect(),
            })
    }

    /// The preset whose name is closest to a word, if it is close.
    #[must_use]
    pub fn closest(name: &str) -> Option<&'static str> {
        closest(name, PRESETS.iter().map(|preset| preset.name))
    }

    /// Its figures.
    #[must_use]
    pub fn model(&self) -> Model {
        Model {
            name: self.name.to_owned(),
            hidden: self.hidden,
            experts: self.experts,
            top_k: self.top_k,
            source: self.source.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_found_by_its_name_and_chooses_no_more_experts_than_there_are() {
        for preset in ModelPreset::all() {
            let upper = preset.name.to_ascii_uppercase();
            assert_eq!(ModelPreset::find(&upper), Ok(preset));
            assert!(preset.top_k <= preset.experts && !preset.source.is_empty());
            assert_eq!(preset.hidden % 16, 0, "{}", preset.name);
        }
        assert_eq!(ModelPreset::closest("qwen3-30b"), Some("qwen3-30b-a3b"));
        assert_eq!(
            ModelPreset::find("DeepSeek-R1").map(|preset| preset.experts),
            Ok(256)
        );
    }
}
