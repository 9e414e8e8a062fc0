//! Layouts of real training stacks, by name. Sources and remarks in full: `docs/presets.md`.

use crate::types::{UnknownName, closest};

use super::{DEFAULT_ORDER, FrameworkLayout, Layout, MatrixFault};

/// Order of vLLM and of its Ascend plugin, with ep added where Megatron's generator wants it: dp
/// lies outside pp. With pp=1 it gives the same groups as the default order.
const GENERATION_ORDER: &str = "tp-cp-ep-pp-dp";

/// Experts of Qwen3-30B-A3B (each MoE layer; 8 are chosen for a token).
const QWEN3_30B_A3B_EXPERTS: u32 = 128;

/// Routed experts of Qwen3.5-35B-A3B (8 are chosen for a token).
const QWEN35_35B_A3B_EXPERTS: u32 = 256;

/// Experts of Qwen3-235B-A22B (8 are chosen for a token).
const QWEN3_235B_EXPERTS: u32 = 128;

/// Routed experts of DeepSeek-V3, V3.1, V3.2 and R1 (8 are chosen for a token).
const DEEPSEEK_EXPERTS: u32 = 256;

/// A named list of phases that one job goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    /// The name, as in `--preset`.
    pub name: &'static str,
    /// What it is, in one line.
    pub summary: &'static str,
    /// Where the sizes come from.
    pub source: &'static str,
    /// What to know about it.
    pub notes: &'static str,
    specs: &'static [Spec],
}

/// One layout of a preset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// What the job does with this layout: `train`, `generate`, …
    pub name: &'static str,
    /// The layout.
    pub layout: FrameworkLayout,
    /// Experts of each MoE layer, if it is a mixture-of-experts model.
    pub experts: Option<u32>,
    /// Whether the job destroys all groups of this phase when it leaves it, and makes them again
    /// when it comes back.
    pub reload: bool,
}

impl Phase {
    /// Experts that each ep rank holds.
    #[must_use]
    pub fn experts_per_rank(&self) -> Option<u32> {
        self.experts.map(|experts| experts / self.layout.dims().ep)
    }
}

impl Preset {
    /// Every preset.
    #[must_use]
    pub const fn all() -> &'static [Self] {
        &ALL
    }

    /// The preset of this name.
    ///
    /// # Errors
    /// An unknown name, with every known one.
    pub fn find(name: &str) -> Result<&'static Self, UnknownName> {
        let lower = name.to_ascii_lowercase();
        ALL.iter()
            .find(|preset| preset.name == lower)
            .ok_or_else(|| UnknownName {
                what: "preset",
                got: name.to_owned(),
                known: ALL.iter().map(|preset| preset.name).collect(),
            })
    }

    /// The preset whose name is closest to a word, if it is close.
    #[must_use]
    pub fn closest(name: &str) -> Option<&'static str> {
        closest(name, ALL.iter().map(|preset| preset.name))
    }

    /// The phases, in the sequence in which the job goes through them.
    ///
    /// # Errors
    /// None: a test builds them all.
    pub fn phases(&self) -> Result<Vec<Phase>, MatrixFault> {
        self.specs.iter().map(Spec::build).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Spec {
    name: &'static str,
    world: u32,
    tp: u32,
    cp: u32,
    pp: u32,
    ep: u32,
    etp: Option<u32>,
    order: &'static str,
    /// The layout in one word where it is not Megatron's; then the sizes above are not used.
    other: Option<&'static str>,
    experts: Option<u32>,
    reload: bool,
}

impl Spec {
    /// One rank for everything, in Megatron's order; to be changed by the methods below.
    const fn new(name: &'static str, world: u32) -> Self {
        Self {
            name,
            world,
            tp: 1,
            cp: 1,
            pp: 1,
            ep: 1,
            etp: None,
            order: DEFAULT_ORDER,
            other: None,
            experts: None,
            reload: false,
        }
    }

    /// A deployment of vLLM of a model with so many experts.
    const fn vllm(name: &'static str, layout: &'static str, experts: u32) -> Self {
        let mut spec = Self::new(name, 0);
        spec.other = Some(layout);
        spec.experts = Some(experts);
        spec
    }

    const fn tp(mut self, tp: u32) -> Self {
        self.tp = tp;
        self
    }

    const fn cp(mut self, cp: u32) -> Self {
        self.cp = cp;
        self
    }

    const fn pp(mut self, pp: u32) -> Self {
        self.pp = pp;
        self
    }

    const fn experts(mut self, ep: u32, experts: u32) -> Self {
        self.ep = ep;
        self.experts = Some(experts);
        self
    }

    const fn etp(mut self, etp: u32) -> Self {
        self.etp = Some(etp);
        self
    }

    const fn generation(mut self) -> Self {
        self.order = GENERATION_ORDER;
        self
    }

    const fn reload(mut self) -> Self {
        self.reload = true;
        self
    }

    fn build(&self) -> Result<Phase, MatrixFault> {
        Ok(Phase {
            name: self.name,
            layout: self.layout()?,
            experts: self.experts,
            reload: self.reload,
        })
    }

    fn layout(&self) -> Result<FrameworkLayout, MatrixFault> {
        if let Some(layout) = self.other.and_then(FrameworkLayout::other) {
            return layout;
        }
        let builder = Layout::builder()
            .world(self.world)
            .tp(self.tp)
            .cp(self.cp)
            .pp(self.pp)
            .ep(self.ep)
            .order(self.order);
        let layout = match self.etp {
            Some(etp) => builder.etp(etp).build(),
            None => builder.build(),
        };
        let layout = layout.map(FrameworkLayout::Megatron);
        layout.map_err(|error| MatrixFault::Illegal(Box::new(error)))
    }
}

static ALL: [Preset; 13] = [
    Preset {
        name: "megatron-smoke",
        summary: "Megatron-LM host acceptance: TP2 on 2, TP8 on 8, TP2 EP4 on 8",
        source: "the matrices that a new NPU host must pass, from this tool's requirements",
        notes: "etp is not given, so it is tp: expert-DP is 1 in TP2 EP4",
        specs: &[
            Spec::new("tp2", 2).tp(2),
            Spec::new("tp8", 8).tp(8),
            Spec::new("tp2ep4", 8).tp(2).experts(4, 128),
        ],
    },
    Preset {
        name: "mindspeed-rl-12",
        summary: "MindSpeed-RL GRPO of Qwen3-30B-A3B on 12: train TP3 PP1 EP4, generate TP6 EP2",
        source: "a published 12-NPU MindSpeed-RL configuration \
                 (mindspeed_rl_grpo_qwen3_30b_a3b_lora_12npu)",
        notes: "3*1*4 = 12 is Megatron's default ETP = TP. Generation is given the same reading \
                (ETP = TP = 6); vLLM's own expert group, all 12 ranks, is the etp-ep group here",
        specs: &[
            Spec::new("train", 12)
                .tp(3)
                .experts(4, QWEN3_30B_A3B_EXPERTS)
                .reload(),
            Spec::new("generate", 12)
                .tp(6)
                .experts(2, QWEN3_30B_A3B_EXPERTS)
                .generation()
                .reload(),
        ],
    },
    Preset {
        name: "qwen3-30b-a3b-16",
        summary: "Qwen3-30B-A3B on 16: TP2 EP8, 16 experts a rank",
        source: "model: Qwen3-30B-A3B (128 experts, top-8); sizes: this tool's requirements",
        notes: "etp is not given, so it is tp: expert-DP is 1 and ep groups have stride 2",
        specs: &[Spec::new("train", 16)
            .tp(2)
            .experts(8, QWEN3_30B_A3B_EXPERTS)],
    },
    Preset {
        name: "qwen3-30b-a3b-8",
        summary: "Qwen3-30B-A3B on 8: TP2 EP4, 32 experts a rank",
        source: "model: Qwen3-30B-A3B (128 experts, top-8); sizes: this tool's requirements",
        notes: "etp is not given, so it is tp: expert-DP is 1 and ep groups have stride 2",
        specs: &[Spec::new("train", 8)
            .tp(2)
            .experts(4, QWEN3_30B_A3B_EXPERTS)],
    },
    Preset {
        name: "relax-4",
        summary: "Relax colocated on 4: all groups destroyed and made again at every switch",
        source: "Relax's 4-NPU colocated Qwen3 scripts (docs for run-qwen3-4B-4xnpu-colocate) and \
                 its pull request 56; the TP2 DP2 phase is ours",
        notes: "training and rollout share the ranks, and groups are destroyed and reloaded between \
                them; train-dp is added so that data parallel groups of 2 are reloaded too",
        specs: &[
            Spec::new("train", 4).tp(4).etp(1).reload(),
            Spec::new("rollout", 4).tp(4).generation().reload(),
            Spec::new("train-dp", 4).tp(2).reload(),
        ],
    },
    Preset {
        name: "relax-8",
        summary: "Relax on 8: colocated with TP4 and engines of 4, and MoE with TP4 EP8",
        source: "Relax's 8-NPU scripts: run_qwen35_9B_mtp_8xnpu_thd (train, rollout) and \
                 run_qwen35-35B-pokemon-sft-mtp-8xnpu (moe)",
        notes: "training and rollout share the ranks, and groups are destroyed and reloaded between \
                them; moe is a job of its own (supervised fine-tuning)",
        specs: &[
            Spec::new("train", 8).tp(4).etp(1).reload(),
            Spec::new("rollout", 8).tp(4).generation().reload(),
            Spec::new("moe", 8)
                .tp(4)
                .etp(1)
                .experts(8, QWEN35_35B_A3B_EXPERTS),
        ],
    },
    Preset {
        name: "relax-32",
        summary: "Relax on 2 x 16: MoE with TP8 PP2 EP16, engines of 8",
        source: "Relax's script run-qwen35-35B-A3B-16xnpu-colocate (2 nodes of 16)",
        notes: "training and rollout share the ranks, and groups are destroyed and reloaded between \
                them",
        specs: &[
            Spec::new("train", 32)
                .tp(8)
                .pp(2)
                .etp(1)
                .experts(16, QWEN35_35B_A3B_EXPERTS)
                .reload(),
            Spec::new("rollout", 32).tp(8).generation().reload(),
        ],
    },
    Preset {
        name: "twinkle-8",
        summary: "Twinkle on 8: TP2 PP2 DP2, MoE with EP2, MoE with CP2, and a single rank",
        source: "Twinkle's Ascend cookbook: tp_npu, tp_moe_npu, tp_moe_cp_npu; pull request 153 for \
                 the single rank",
        notes: "metrics are gathered as objects over DP, or over DP-CP where cp is above 1: on NPU \
                that hung over HCCL, so it goes over the host",
        specs: &[
            Spec::new("tp-pp-dp", 8).tp(2).pp(2),
            Spec::new("moe", 8)
                .tp(2)
                .pp(2)
                .experts(2, QWEN3_30B_A3B_EXPERTS),
            Spec::new("moe-cp", 8)
                .tp(2)
                .pp(2)
                .cp(2)
                .experts(2, QWEN3_30B_A3B_EXPERTS),
            Spec::new("single", 1),
        ],
    },
    Preset {
        name: "verl-fsdp-16",
        summary: "verl with FSDP on 16: Ulysses sequence parallel 8, generate TP2",
        source: "verl's Ascend recipes for Qwen3-30B-A3B with FSDP (ulysses_sequence_parallel_size, \
                 rollout.tensor_model_parallel_size); sizes: this tool's requirements",
        notes: "no Megatron here: sequence parallel ranks are consecutive, as cp groups are with \
                tp=1, so cp stands for SP, dp for its data parallel, dp-cp for the shard group of \
                all 16",
        specs: &[
            Spec::new("train", 16).cp(8).reload(),
            Spec::new("generate", 16).tp(2).generation().reload(),
        ],
    },
    Preset {
        name: "verl-megatron-16",
        summary: "verl with Megatron on 16: TP1 PP1 CP1 EP16, generate TP4",
        source: "verl's Ascend recipe for Qwen3-30B-A3B with Megatron on 16 (generation TP4); sizes \
                 of training: this tool's requirements",
        notes: "one ep group of all 16, 8 experts a rank; generation is 4 engines of TP4",
        specs: &[
            Spec::new("train", 16)
                .experts(16, QWEN3_30B_A3B_EXPERTS)
                .reload(),
            Spec::new("generate", 16).tp(4).generation().reload(),
        ],
    },
    Preset {
        name: "vllm-deepseek-16",
        summary: "vLLM serves DeepSeek-R1 or V3.1 on 16 with TP4 DP4, V3.2 with TP8 DP2",
        source: "vllm-ascend's deployment guides and weekly tests",
        notes: "the ep and mc2 groups hold all 16 ranks, 16 of 256 experts each",
        specs: &[
            Spec::vllm("v3.1", "vllm:tp4dp4", DEEPSEEK_EXPERTS),
            Spec::vllm("v3.2", "vllm:tp8dp2", DEEPSEEK_EXPERTS),
        ],
    },
    Preset {
        name: "vllm-deepseek-pd-32",
        summary: "vLLM serves DeepSeek-V3.1 disaggregated: prefill TP8 DP2, decode TP1 DP32",
        source: "vllm-ascend's guide to disaggregated deployment of DeepSeek-V3.1",
        notes: "prefill and decode are two jobs with 16 and 32 NPUs; decode has 8 experts a rank",
        specs: &[
            Spec::vllm("prefill", "vllm:tp8dp2", DEEPSEEK_EXPERTS),
            Spec::vllm("decode", "vllm:dp32", DEEPSEEK_EXPERTS),
        ],
    },
    Preset {
        name: "vllm-qwen3-235b-32",
        summary: "vLLM serves Qwen3-235B-A22B: TP4 DP4 or TP16 on 16; decode TP4 DP8 or TP1 DP32",
        source: "vllm-ascend's deployment guides and weekly tests",
        notes: "the last phase has a language model head of tensor parallel size 8 over dp",
        specs: &[
            Spec::vllm("tp4dp4", "vllm:tp4dp4", QWEN3_235B_EXPERTS),
            Spec::vllm("tp16", "vllm:tp16", QWEN3_235B_EXPERTS),
            Spec::vllm("decode-tp4", "vllm:tp4dp8", QWEN3_235B_EXPERTS),
            Spec::vllm("decode-tp1", "vllm:dp32+lmhead=8", QWEN3_235B_EXPERTS),
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_legal_and_spreads_its_experts_evenly() {
        for preset in Preset::all() {
            let phases = preset
                .phases()
                .unwrap_or_else(|error| panic!("{}: {error}", preset.name));
            assert!(!phases.is_empty(), "{}", preset.name);
            for phase in phases {
                let ep = phase.layout.dims().ep;
                assert_eq!(phase.experts.unwrap_or(ep) % ep, 0, "{}", preset.name);
            }
        }
    }

    #[test]
    fn presets_have_the_sizes_that_their_names_promise() {
        let phases = |name| Preset::find(name).unwrap().phases().unwrap();
        let experts = |name| phases(name)[0].experts_per_rank();
        assert_eq!(experts("qwen3-30b-a3b-8"), Some(32));
        assert_eq!(experts("qwen3-30b-a3b-16"), Some(16));
        assert_eq!(experts("verl-megatron-16"), Some(8));
        let remarks = |name| -> Vec<String> {
            phases(name)
                .iter()
                .filter_map(|phase| phase.layout.megatron())
                .map(Layout::remark)
                .collect()
        };
        assert_eq!(
            remarks("mindspeed-rl-12"),
            [
                "TP=3 EP=4 on 12: ETP=3, expert-DP=1",
                "TP=6 EP=2 on 12: ETP=6, expert-DP=1"
            ]
        );
        assert_eq!(phases("twinkle-8").len(), 4);
        assert!(phases("relax-4").iter().all(|phase| phase.reload));
        let of_moe = phases("relax-8")
            .pop()
            .and_then(|phase| phase.experts_per_rank());
        assert_eq!(of_moe, Some(32));
        assert_eq!(experts("relax-32"), Some(16));
        for preset in Preset::all() {
            let digits = preset
                .name
                .rsplit('-')
                .next()
                .and_then(|word| word.parse().ok());
            let largest = preset
                .phases()
                .unwrap()
                .iter()
                .map(|p| p.layout.world_size())
                .max();
            assert!(digits.is_none() || digits == largest, "{}", preset.name);
        }
    }

    #[test]
    fn an_unknown_preset_is_answered_with_the_closest_one() {
        let error = Preset::find("qwen3-30b-a3b-4").unwrap_err();
        assert_eq!(error.suggestion(), Some("qwen3-30b-a3b-8"));
        assert_eq!(Preset::closest("twinkle8"), Some("twinkle-8"));
    }
}
