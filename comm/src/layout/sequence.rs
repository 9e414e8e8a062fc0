//! Every group in the sequence in which Megatron-LM creates it, optional features included.
//!
//! `torch.distributed.new_group` must be called by all ranks in the same sequence, so the sequence
//! is part of what a job does, and it differs between Megatron versions while the rank lists do
//! not. Recorded from core_v0.12.1 (0.12.0 to 0.12.3 are the same) and core_v0.15.3 (0.15.0 to
//! 0.15.3 are the same).

use std::borrow::Cow;
use std::fmt;

use crate::types::Rank;

use super::axis::{Axis, AxisSet, Param, Part};
use super::error::{LayoutError, divisors};
use super::grid::positive;
use super::{GroupKind, Layout};

/// A Megatron-LM release line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MegatronVersion {
    /// core_v0.12.0 to core_v0.12.3.
    V0_12,
    /// core_v0.15.0 to core_v0.15.3.
    V0_15,
}

impl MegatronVersion {
    /// Both versions.
    pub const ALL: [Self; 2] = [Self::V0_12, Self::V0_15];

    /// `0.12` or `0.15`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::V0_12 => "0.12",
            Self::V0_15 => "0.15",
        }
    }
}

impl fmt::Display for MegatronVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Where a group communicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupBackend {
    /// The job's default backend: the device's.
    Default,
    /// The host's, for objects and optimizer state.
    Gloo,
}

/// The timeout that Megatron passes for a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupTimeout {
    /// None is passed, so the backend's own default holds (gloo 30 minutes, nccl 10). So it is for
    /// ep, for the gloo twin of edp and, in 0.12, for hierarchical cp.
    BackendDefault,
    /// `distributed_timeout_minutes`, 30 unless set.
    Configured,
}

/// One call of `new_group`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewGroup {
    /// The kind, if it is one of the sixteen.
    pub kind: Option<GroupKind>,
    /// Megatron's `group_desc`.
    pub megatron_name: Cow<'static, str>,
    /// Where it communicates.
    pub backend: GroupBackend,
    /// Which timeout is passed.
    pub timeout: GroupTimeout,
    /// The members. They ascend, except in `INTRA_DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP` with a
    /// pipeline, which torch sorts.
    pub ranks: Vec<Rank>,
}

/// Optional features that add groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SequenceOptions {
    /// Whether gloo twins are made (`create_gloo_process_groups`).
    pub gloo: bool,
    /// Sizes of hierarchical context parallel levels, innermost first; empty for none.
    pub hierarchical_cp: Vec<i64>,
    /// Number of distributed optimizer instances.
    pub optimizer_instances: i64,
}

impl Default for SequenceOptions {
    fn default() -> Self {
        Self {
            gloo: true,
            hierarchical_cp: Vec::new(),
            optimizer_instances: 1,
        }
    }
}

impl Layout {
    /// Every `new_group` call of `initialize_model_parallel`, in sequence.
    ///
    /// # Errors
    /// Hierarchical sizes whose product is not cp (Megatron 0.12 accepts those and makes
    /// incomplete groups; 0.15 refuses), optimizer instances that do not divide dp*cp or, in 0.15,
    /// edp.
    pub fn creation_sequence(
        &self,
        version: MegatronVersion,
        options: &SequenceOptions,
    ) -> Result<Vec<NewGroup>, LayoutError> {
        let levels = self.checked_levels(&options.hierarchical_cp)?;
        let instances = self.checked_instances(version, options.optimizer_instances)?;
        let mut calls = Calls {
            layout: self,
            version,
            gloo: options.gloo,
            calls: Vec::new(),
        };
        match version {
            MegatronVersion::V0_12 => {
                calls.walk(GroupKind::Dp);
                calls.data_parallel_with_cp(instances);
            }
            MegatronVersion::V0_15 => {
                calls.data_parallel_with_cp(instances);
                calls.walk(GroupKind::Dp);
            }
        }
        calls.context_parallel(&levels);
        calls.walk(GroupKind::Mp);
        calls.walk(GroupKind::Tp);
        calls.pipelines();
        for kind in [
            GroupKind::TpDpCp,
            GroupKind::TpDp,
            GroupKind::TpCp,
            GroupKind::Ep,
            GroupKind::Etp,
            GroupKind::EtpEp,
            GroupKind::EtpEpPp,
        ] {
            calls.walk(kind);
        }
        calls.expert_data_parallel(instances);
        if version == MegatronVersion::V0_15 {
            calls.optimizer_instances(instances);
        }
        Ok(calls.calls)
    }

    fn checked_levels(&self, sizes: &[i64]) -> Result<Vec<usize>, LayoutError> {
        let mut product: u64 = 1;
        for size in sizes {
            product = product.saturating_mul(positive(Param::HierarchicalCp, *size)?);
        }
        let cp = self.dims().cp;
        if !sizes.is_empty() && product != u64::from(cp) {
            return Err(LayoutError::HierarchicalCp {
                sizes: sizes.to_vec(),
                product,
                cp,
            });
        }
        // Each size divides cp, so the conversion cannot fail.
        Ok(sizes
            .iter()
            .flat_map(|size| usize::try_from(*size))
            .collect())
    }

    fn checked_instances(
        &self,
        version: MegatronVersion,
        instances: i64,
    ) -> Result<usize, LayoutError> {
        positive(Param::OptimizerInstances, instances)?;
        let dims = self.dims();
        let refuse = |of, count| {
            Err(LayoutError::OptimizerInstances {
                instances,
                of,
                count,
                legal: divisors(count.into()),
            })
        };
        if i64::from(dims.dp * dims.cp) % instances != 0 {
            return refuse("dp*cp", dims.dp * dims.cp);
        }
        if version == MegatronVersion::V0_15 && i64::from(dims.edp) % instances != 0 {
            return refuse("edp", dims.edp);
        }
        // It divides a u32.
        Ok(usize::try_from(instances).unwrap_or(1))
    }
}

struct Calls<'a> {
    layout: &'a Layout,
    version: MegatronVersion,
    gloo: bool,
    calls: Vec<NewGroup>,
}

impl Calls<'_> {
    /// One call for each group of a kind, with its gloo twin if it has one.
    fn walk(&mut self, kind: GroupKind) {
        for group in self.layout.groups(kind).iter() {
            self.make(kind, group.to_vec());
        }
    }

    fn make(&mut self, kind: GroupKind, ranks: Vec<Rank>) {
        let twins = [
            (GroupKind::Dp, "DATA_PARALLEL_GROUP_GLOO"),
            (GroupKind::DpCp, "DATA_PARALLEL_GROUP_WITH_CP_GLOO"),
            (GroupKind::Edp, "EXPERT_DATA_PARALLEL_GROUP_GLOO"),
        ];
        let twin = twins.into_iter().find(|(twinned, _)| *twinned == kind);
        self.calls.push(NewGroup {
            kind: Some(kind),
            megatron_name: Cow::Borrowed(kind.megatron_name()),
            backend: GroupBackend::Default,
            timeout: timeout_unless(kind == GroupKind::Ep),
            ranks: ranks.clone(),
        });
        self.calls
            .extend(twin.filter(|_| self.gloo).map(|(_, name)| NewGroup {
                kind: Some(kind),
                megatron_name: Cow::Borrowed(name),
                backend: GroupBackend::Gloo,
                timeout: timeout_unless(kind == GroupKind::Edp),
                ranks,
            }));
    }

    fn make_other(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        backend: GroupBackend,
        timeout: GroupTimeout,
        ranks: Vec<Rank>,
    ) {
        self.calls.push(NewGroup {
            kind: None,
            megatron_name: name.into(),
            backend,
            timeout,
            ranks,
        });
    }

    /// The dp-cp groups, each followed by the slices of its optimizer instances.
    fn data_parallel_with_cp(&mut self, instances: usize) {
        use GroupBackend::{Default, Gloo};
        for group in self.layout.groups(GroupKind::DpCp).iter() {
            let ranks = group.to_vec();
            self.make(GroupKind::DpCp, ranks.clone());
            if instances == 1 {
                continue;
            }
            let slice = ranks.len() / instances;
            for intra in ranks.chunks(slice) {
                let name = "INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP";
                self.make_other(name, Default, GroupTimeout::Configured, intra.to_vec());
                if self.gloo {
                    let name = "INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP_GLOO";
                    self.make_other(name, Gloo, GroupTimeout::Configured, intra.to_vec());
                }
            }
            if self.version == MegatronVersion::V0_12 {
                for first in 0..slice {
                    let inter = ranks.iter().skip(first).step_by(slice).copied().collect();
                    let name = "INTER_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP";
                    self.make_other(name, Default, GroupTimeout::Configured, inter);
                }
            }
        }
    }

    /// The cp groups, each followed by its hierarchical levels.
    fn context_parallel(&mut self, levels: &[usize]) {
        let timeout = match self.version {
            MegatronVersion::V0_12 => GroupTimeout::BackendDefault,
            MegatronVersion::V0_15 => GroupTimeout::Configured,
        };
        for group in self.layout.groups(GroupKind::Cp).iter() {
            let ranks = group.to_vec();
            self.make(GroupKind::Cp, ranks.clone());
            for (level, members) in hierarchy(&ranks, levels) {
                let name = format!("HIERARCHICAL_CONTEXT_PARALLEL_GROUP_L{level}");
                self.make_other(name, GroupBackend::Default, timeout, members);
            }
        }
    }

    /// Each pipeline, followed by its embedding groups.
    fn pipelines(&mut self) {
        let embd = self.layout.groups(GroupKind::Embd);
        let pos_embd = self.layout.groups(GroupKind::PosEmbd);
        let pipelines = self.layout.groups(GroupKind::Pp);
        for ((pipeline, ends), start) in pipelines.iter().zip(embd.iter()).zip(pos_embd.iter()) {
            self.make(GroupKind::Pp, pipeline.to_vec());
            self.make(GroupKind::Embd, ends.to_vec());
            self.make(GroupKind::PosEmbd, start.to_vec());
        }
    }

    /// The edp groups, in 0.15 each followed by the two levels of its optimizer instances.
    fn expert_data_parallel(&mut self, instances: usize) {
        for group in self.layout.groups(GroupKind::Edp).iter() {
            let ranks = group.to_vec();
            self.make(GroupKind::Edp, ranks.clone());
            if instances == 1 || self.version == MegatronVersion::V0_12 {
                continue;
            }
            for (level, members) in hierarchy(&ranks, &[ranks.len() / instances, instances]) {
                let name = format!("HIERARCHICAL_EXPERT_DATA_PARALLEL_GROUP_L{level}");
                let timeout = GroupTimeout::Configured;
                self.make_other(name, GroupBackend::Default, timeout, members.clone());
                if self.gloo {
                    let name = format!("HIERARCHICAL_EXPERT_DATA_PARALLEL_GROUP_GLOO_L{level}");
                    self.make_other(name, GroupBackend::Gloo, timeout, members);
                }
            }
        }
    }

    /// For each optimizer instance the copies of the experts that belong to it, one after the other.
    fn optimizer_instances(&mut self, instances: usize) {
        let axes = AxisSet::of(&[Axis::Tp, Axis::Ep, Axis::Pp]);
        let copies = self.layout.grid(Part::Expert).groups(axes).to_vecs();
        for instance in copies.chunks(copies.len() / instances) {
            self.make_other(
                "INTRA_DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP",
                GroupBackend::Default,
                GroupTimeout::Configured,
                instance.concat(),
            );
        }
    }
}

/// Two kinds of groups are made without a timeout.
fn timeout_unless(left_out: bool) -> GroupTimeout {
    if left_out {
        GroupTimeout::BackendDefault
    } else {
        GroupTimeout::Configured
    }
}

/// Splits a group into levels: level i joins members that are the product of the earlier sizes apart.
fn hierarchy(ranks: &[Rank], sizes: &[usize]) -> Vec<(usize, Vec<Rank>)> {
    let mut groups = Vec::new();
    let mut stride = 1;
    for (level, size) in sizes.iter().enumerate() {
        for block in ranks.chunks(stride * size) {
            for first in 0..stride {
                let members = block.iter().skip(first).step_by(stride).copied().collect();
                groups.push((level, members));
            }
        }
        stride *= size;
    }
    groups
}
