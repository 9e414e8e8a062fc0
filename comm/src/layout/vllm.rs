//! Which ranks form which group in vLLM with vllm-ascend, by version.
//!
//! A rank is `(((replica * dp + d) * pp + p) * pcp + c) * tp + t`. A coordinator has a name and lists of
//! ranks. For each list it makes one group of devices, and directly after it one of gloo.
//!
//! VLLM-1: a [`VllmLayout`] that exists is one that its version accepts. Coordinators, their lists and the
//! sequence of both are its version's (held to tables recorded from the original). VLLM-2: all lists of a
//! coordinator together hold every rank once.
//!
//! ```
//! use muster_comm::layout::{VllmLayout, VllmVersion};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let layout = VllmLayout::builder(VllmVersion::V0_18).tp(2).dp(2).build()?;
//! let groups = layout.groups("dp").ok_or("made by every version")?;
//! assert_eq!(format!("{groups:?}"), "[[0, 2], [1, 3]]");
//! assert_eq!(layout.to_string(), "vllm0.18:tp2dp2@4");
//! # Ok(())
//! # }
//! ```

mod builder;
mod error;
mod option;
mod text;

use std::collections::BTreeMap;
use std::fmt;

use super::Dims;
use super::groups::{Dim, Groups};

pub use builder::VllmBuilder;
pub use error::VllmError;
pub use option::{VllmOption, VllmVersion};
pub use text::VllmTextError;

/// Prefix of the text form of a layout.
pub(super) const PREFIX: &str = "vllm";

/// `hccl_buffer_size` where nothing else is set, in MiB.
const BUFFER_MIB: u32 = 200;

/// The sizes of a layout, all at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VllmSizes {
    /// Tensor parallel size.
    pub tp: u32,
    /// Pipeline parallel size.
    pub pp: u32,
    /// Prefill context parallel size.
    pub pcp: u32,
    /// Decode context parallel size: runs of tp.
    pub dcp: u32,
    /// Data parallel size.
    pub dp: u32,
}

/// A legal distribution of ranks in one version of vllm-ascend.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VllmLayout {
    version: VllmVersion,
    world: u32,
    sizes: VllmSizes,
    /// Those that are on; 1 for one without a size.
    options: BTreeMap<VllmOption, u32>,
}

/// The groups of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coordinator {
    /// vLLM's name.
    pub name: &'static str,
    /// What it is for, in a few words.
    pub meaning: &'static str,
    /// Its lists of ranks, in the sequence in which groups are made.
    pub groups: Groups,
    /// `hccl_buffer_size` in MiB; none where it is not set and `HCCL_BUFFSIZE` applies.
    pub buffer_mib: Option<u32>,
    /// Whether it has a message queue in shared memory.
    pub message_queue: bool,
}

/// Something that a version accepts although the groups are not what their name says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VllmRemark {
    /// dcp groups reach over several tp groups.
    DcpCrossesTp,
    /// Fine-grained tensor parallel groups hold ranks of several dp groups.
    FineGrainedCrossesDp,
    /// The mc2 groups are not the ep groups.
    Mc2IsNotEp,
}

impl VllmRemark {
    /// The remark in one word.
    #[must_use]
    pub const fn rule(self) -> &'static str {
        match self {
            Self::DcpCrossesTp => "dcp_crosses_tp",
            Self::FineGrainedCrossesDp => "fine_grained_crosses_dp",
            Self::Mc2IsNotEp => "mc2_is_not_ep",
        }
    }
}

impl fmt::Display for VllmRemark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DcpCrossesTp => {
                "dcp groups reach over several tp groups; versions from 0.18 on refuse this"
            }
            Self::FineGrainedCrossesDp => {
                "fine-grained groups (otp, lmheadtp, emtp, mlptp) mix ranks of several dp groups"
            }
            Self::Mc2IsNotEp => {
                "mc2 groups are not the ep groups, so fused dispatch reaches other ranks than the experts' owners"
            }
        })
    }
}

/// The axes of the ranks.
struct Dimensions {
    replica: Dim,
    dp: Dim,
    pp: Dim,
    pcp: Dim,
    tp: Dim,
    /// dp and pp as fine-grained tensor parallelism sees them: with dp inside of pp.
    inner_dp: Dim,
    outer_pp: Dim,
}

impl VllmLayout {
    /// Begins a layout.
    #[must_use]
    pub fn builder(version: VllmVersion) -> VllmBuilder {
        VllmBuilder::new(version)
    }

    /// The version of vllm-ascend.
    #[must_use]
    pub fn version(&self) -> VllmVersion {
        self.version
    }

    /// Number of ranks.
    #[must_use]
    pub fn world_size(&self) -> u32 {
        self.world
    }

    /// The sizes.
    #[must_use]
    pub fn sizes(&self) -> VllmSizes {
        self.sizes
    }

    /// Copies of the whole deployment, each with its own dp (external data parallelism).
    #[must_use]
    pub fn replicas(&self) -> u32 {
        let VllmSizes {
            tp, pp, pcp, dp, ..
        } = self.sizes;
        self.world / (tp * pp * pcp * dp)
    }

    /// The size of an option, 1 if it is on and has none; 0 if it is off.
    #[must_use]
    pub fn option(&self, option: VllmOption) -> u32 {
        self.options.get(&option).copied().unwrap_or(0)
    }

    /// The sizes in Megatron's terms: pcp is cp, replicas are part of dp, experts lie whole on the ranks of dp,
    /// pcp and tp.
    #[must_use]
    pub fn dims(&self) -> Dims {
        let VllmSizes {
            tp, pp, pcp, dp, ..
        } = self.sizes;
        let has_experts = self.option(VllmOption::Dense) == 0;
        let ep = if has_experts { dp * pcp * tp } else { 1 };
        Dims {
            world: self.world,
            tp,
            cp: pcp,
            pp,
            dp: dp * self.replicas(),
            ep,
            etp: 1,
            edp: self.world / (ep * pp),
        }
    }

    /// The groups of one name; `None` where the version with these options makes none of it.
    #[must_use]
    pub fn groups(&self, name: &str) -> Option<Groups> {
        let all = self.coordinators().into_iter();
        let mut of_name = all.filter(|coordinator| coordinator.name == name);
        of_name.next().map(|coordinator| coordinator.groups)
    }

    /// The coordinators, in the sequence in which they are made.
    #[must_use]
    pub fn coordinators(&self) -> Vec<Coordinator> {
        let mut all = self.of_vllm();
        let mc2 = self.mc2();
        all.extend(self.prefill_tp());
        all.push(Coordinator {
            buffer_mib: None,
            ..coordinator("mc2", "expert parallel: fused dispatch and combine", &mc2)
        });
        if self.option(VllmOption::DynamicEplb) > 0 {
            all.push(Coordinator {
                buffer_mib: Some(100),
                ..coordinator("dynamic_eplb", "moves experts between ranks", &mc2)
            });
        }
        let gate = (self.option(VllmOption::MultistreamOverlapGate) > 0)
            .then(|| coordinator("fc3_quant_x", "quantized input of shared experts", &mc2));
        if self.version == VllmVersion::V0_13 {
            all.extend(self.of_ascend());
            all.extend(gate);
        } else {
            all.extend(gate);
            all.extend(self.of_ascend());
        }
        all
    }

    /// What the version accepts although the groups are not what their name says.
    #[must_use]
    pub fn remarks(&self) -> Vec<VllmRemark> {
        let all = self.coordinators();
        let named = |name: &str| all.iter().find(|coordinator| coordinator.name == name);
        let inside = |inner: &str, outer: &str| match (named(inner), named(outer)) {
            (Some(inner), Some(outer)) => self.lies_within(&inner.groups, &outer.groups),
            _ => true,
        };
        let fine_grained = ["otp", "lmheadtp", "emtp", "mlptp", "mlp_tp"];
        let remarks = [
            (inside("mc2", "ep"), VllmRemark::Mc2IsNotEp),
            (inside("dcp", "tp"), VllmRemark::DcpCrossesTp),
            (
                fine_grained.iter().all(|name| inside(name, "dp")),
                VllmRemark::FineGrainedCrossesDp,
            ),
        ];
        let broken = remarks.into_iter().filter(|(holds, _)| !holds);
        broken.map(|(_, remark)| remark).collect()
    }

    /// Whether each group of the first list lies within one of the second.
    fn lies_within(&self, inner: &Groups, outer: &Groups) -> bool {
        let mut home = vec![0; self.world as usize];
        for (index, group) in outer.iter().enumerate() {
            group.iter().for_each(|rank| home[rank.index()] = index);
        }
        let is_one = |group: super::Members<'_>| {
            let mut homes = group.iter().map(|rank| home[rank.index()]);
            let first = homes.next();
            homes.all(|home| Some(home) == first)
        };
        inner.iter().all(is_one)
    }

    fn dimensions(&self) -> Dimensions {
        let VllmSizes {
            tp, pp, pcp, dp, ..
        } = self.sizes;
        Dimensions {
            replica: (self.replicas(), dp * pp * pcp * tp),
            dp: (dp, pp * pcp * tp),
            pp: (pp, pcp * tp),
            pcp: (pcp, tp),
            tp: (tp, 1),
            inner_dp: (dp, tp),
            outer_pp: (pp, dp * tp),
        }
    }

    /// Runs of `size` ranks.
    fn runs(&self, size: u32) -> Groups {
        Groups::over(&[(size, 1)], &[(self.world / size, size)])
    }

    fn ep(&self) -> Groups {
        let of = self.dimensions();
        Groups::over(&[of.dp, of.pcp, of.tp], &[of.replica, of.pp])
    }

    /// Before 0.18 these are runs, whatever pp is.
    fn mc2(&self) -> Groups {
        let VllmSizes { tp, pcp, dp, .. } = self.sizes;
        if self.version < VllmVersion::V0_18 {
            self.runs(dp * pcp * tp)
        } else {
            self.ep()
        }
    }

    /// The coordinators that vLLM itself makes.
    fn of_vllm(&self) -> Vec<Coordinator> {
        let of = self.dimensions();
        let is_old = self.version == VllmVersion::V0_11;
        let queue = |coordinator| Coordinator {
            message_queue: true,
            ..coordinator
        };
        let mut all = vec![coordinator("world", "all ranks", &self.runs(self.world))];
        if !is_old && self.option(VllmOption::Nodes) > 1 && self.sizes.dp > 1 {
            let engines = Groups::over(&[of.pp, of.pcp, of.tp], &[of.replica, of.dp]);
            let meaning = "one engine over several hosts";
            all.push(queue(coordinator("inner_dp_world", meaning, &engines)));
        }
        let tp = Groups::over(&[of.tp], &[of.replica, of.dp, of.pp, of.pcp]);
        all.push(queue(coordinator("tp", "tensor parallel: one layer", &tp)));
        let dcp = self.runs(self.sizes.dcp);
        let meaning = "decode context parallel: one KV cache";
        all.push(queue(coordinator("dcp", meaning, &dcp)));
        if !is_old {
            let pcp = Groups::over(&[of.pcp], &[of.replica, of.dp, of.pp, of.tp]);
            let meaning = "prefill context parallel: one prompt";
            all.push(coordinator("pcp", meaning, &pcp));
        }
        let pp = Groups::over(&[of.pp], &[of.replica, of.dp, of.tp, of.pcp]);
        all.push(coordinator("pp", "pipeline parallel: one pipeline", &pp));
        let dp = Groups::over(&[of.dp], &[of.replica, of.tp, of.pp, of.pcp]);
        all.push(Coordinator {
            buffer_mib: Some(50),
            ..coordinator("dp", "data parallel: same weights, other requests", &dp)
        });
        if self.option(VllmOption::Dense) == 0 || self.version < VllmVersion::V0_18 {
            all.push(coordinator(
                "ep",
                "expert parallel: token dispatch",
                &self.ep(),
            ));
        }
        if self.option(VllmOption::Eplb) > 0 {
            all.push(coordinator(
                "eplb",
                "vLLM's expert load balancer",
                &self.ep(),
            ));
        }
        all
    }

    /// Ranks of a KV producer that send to the same consumer.
    fn prefill_tp(&self) -> Option<Coordinator> {
        if self.option(VllmOption::PdHeadRatio) < 2 {
            return None;
        }
        let (ratio, replicas, block) = self.prefill_shape();
        let lists = if replicas == 1 {
            self.runs(ratio)
        } else {
            let runs = self.sizes.tp / ratio;
            let size = block / replicas / runs;
            let (blocks, copies) = ((self.world / block, block), (replicas, 1));
            Groups::over(
                &[(size, replicas)],
                &[blocks, copies, (runs, size * replicas)],
            )
        };
        let meaning = "prefill: ranks that send to one decode rank";
        Some(coordinator("p_tp", meaning, &lists))
    }

    /// `pd_tp_ratio`, `num_head_replica`, and the ranks that they divide.
    fn prefill_shape(&self) -> (u32, u32, u32) {
        let ratio = self.option(VllmOption::PdTpRatio).max(1);
        let replicas = self.option(VllmOption::NumHeadReplica).max(1);
        let block = if self.version < VllmVersion::V0_18 {
            self.world / self.sizes.dp
        } else {
            self.sizes.tp
        };
        (ratio, replicas, block)
    }

    /// The coordinators of vllm-ascend's own options.
    fn of_ascend(&self) -> Vec<Coordinator> {
        let mut all = if self.version == VllmVersion::V0_11 {
            self.fine_grained_runs()
        } else {
            self.fine_grained()
        };
        let of = self.dimensions();
        let parts = self.option(VllmOption::FlashComm2);
        let part = self.sizes.tp / parts.max(1);
        if parts > 1 {
            let stages = (self.world / self.sizes.tp, self.sizes.tp);
            let otp = Groups::over(&[(parts, part)], &[stages, (part, 1)]);
            let odp = Groups::over(&[(part, 1)], &[stages, (parts, part)]);
            let meaning = "FlashComm2: one output projection";
            all.push(coordinator("flashcomm2_otp", meaning, &otp));
            let meaning = "FlashComm2: copies of a projection";
            all.push(coordinator("flashcomm2_odp", meaning, &odp));
        }
        if self.option(VllmOption::LayerSharding) > 0 {
            let shards = match parts {
                0 if self.option(VllmOption::DsaCp) == 0 => {
                    Groups::over(&[of.inner_dp], &[of.outer_pp, of.tp])
                }
                0 | 1 => Groups::over(&[of.replica, of.dp, of.pcp, of.tp], &[of.pp]),
                parts => Groups::over(&[of.inner_dp, (part, 1)], &[of.outer_pp, (parts, part)]),
            };
            let meaning = "layer sharding: one layer's weights";
            all.push(coordinator("shard_weight", meaning, &shards));
        }
        all
    }

    /// Fine-grained tensor parallelism of 0.11: runs of ranks.
    fn fine_grained_runs(&self) -> Vec<Coordinator> {
        let mlp = self.option(VllmOption::MlpOptimize) * self.sizes.dp;
        let sizes = [
            ("mlp_tp", MLP, mlp),
            ("otp", OPROJ, self.option(VllmOption::Oproj)),
            ("lmheadtp", LMHEAD, self.option(VllmOption::Lmhead)),
        ];
        let asked = sizes.into_iter().filter(|(_, _, size)| *size > 0);
        asked
            .map(|(name, meaning, size)| coordinator(name, meaning, &self.runs(size)))
            .collect()
    }

    /// Fine-grained tensor parallelism over dp. Equal sizes share the coordinator of the first name.
    fn fine_grained(&self) -> Vec<Coordinator> {
        let of = self.dimensions();
        let (dp, stride) = of.inner_dp;
        let mut seen = Vec::new();
        let mut all = Vec::new();
        for (option, name, meaning) in [
            (VllmOption::Oproj, "otp", OPROJ),
            (VllmOption::Lmhead, "lmheadtp", LMHEAD),
            (VllmOption::Embedding, "emtp", "tensor parallel embedding"),
            (VllmOption::Mlp, "mlptp", MLP),
        ] {
            let size = self.option(option);
            if size == 0 || seen.contains(&size) {
                continue;
            }
            seen.push(size);
            let chunks = (dp / size, size * stride);
            let lists = Groups::over(&[(size, stride)], &[of.outer_pp, chunks, of.tp]);
            all.push(coordinator(name, meaning, &lists));
        }
        all
    }
}

const MLP: &str = "tensor parallel dense MLP";
const OPROJ: &str = "tensor parallel output projection";
const LMHEAD: &str = "tensor parallel language model head";

fn coordinator(name: &'static str, meaning: &'static str, groups: &Groups) -> Coordinator {
    Coordinator {
        name,
        meaning,
        groups: groups.clone(),
        buffer_mib: Some(BUFFER_MIB),
        message_queue: false,
    }
}
