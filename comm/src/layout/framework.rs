//! The layout of a job, whichever framework makes its groups.

use std::fmt;

use crate::types::Rank;

use super::groups::Groups;
use super::{Dims, GroupKind, Layout, MatrixFault, VerlLayout, VllmLayout, verl, vllm};

/// A layout of one of the frameworks whose groups are known.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FrameworkLayout {
    /// Megatron-LM, and what builds on it.
    Megatron(Layout),
    /// The device meshes of verl.
    Verl(VerlLayout),
    /// vLLM with vllm-ascend.
    Vllm(VllmLayout),
}

/// All groups of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedGroups {
    /// The name in reports: `tp`, `dp-cp`, `mc2`.
    pub name: &'static str,
    /// What they are for, in a few words.
    pub meaning: &'static str,
    /// The groups, in the sequence in which the framework makes them.
    pub groups: Groups,
}

impl FrameworkLayout {
    /// Reads a layout of another framework than Megatron in its own form; `None` where the text is no such form.
    ///
    /// # Errors
    /// What is wrong with the text or its sizes.
    #[must_use]
    pub fn other(text: &str) -> Option<Result<Self, MatrixFault>> {
        if text.starts_with(verl::PREFIX) {
            let layout = text.parse().map(Self::Verl);
            return Some(layout.map_err(|error| MatrixFault::Verl(Box::new(error))));
        }
        (text.starts_with(vllm::PREFIX) && text.contains(':')).then(|| {
            let layout = text.parse().map(Self::Vllm);
            layout.map_err(|error| MatrixFault::Vllm(Box::new(error)))
        })
    }

    /// The form that [`other`](Self::other) reads; `None` for a layout of Megatron, which has an order besides.
    #[must_use]
    pub fn other_form(&self) -> Option<String> {
        match self {
            Self::Megatron(_) => None,
            Self::Verl(layout) => Some(layout.to_string()),
            Self::Vllm(layout) => Some(layout.to_string()),
        }
    }

    /// Number of ranks.
    #[must_use]
    pub fn world_size(&self) -> u32 {
        match self {
            Self::Megatron(layout) => layout.world_size(),
            Self::Verl(layout) => layout.world_size(),
            Self::Vllm(layout) => layout.world_size(),
        }
    }

    /// The sizes, in Megatron's terms ([`VllmLayout::dims`], [`VerlLayout::dims`]).
    #[must_use]
    pub fn dims(&self) -> Dims {
        match self {
            Self::Megatron(layout) => layout.dims(),
            Self::Verl(layout) => layout.dims(),
            Self::Vllm(layout) => layout.dims(),
        }
    }

    /// The layout, if it is Megatron's.
    #[must_use]
    pub fn megatron(&self) -> Option<&Layout> {
        match self {
            Self::Megatron(layout) => Some(layout),
            Self::Verl(_) | Self::Vllm(_) => None,
        }
    }

    /// The layout, if it is vLLM's.
    #[must_use]
    pub fn vllm(&self) -> Option<&VllmLayout> {
        match self {
            Self::Megatron(_) | Self::Verl(_) => None,
            Self::Vllm(layout) => Some(layout),
        }
    }

    /// All groups, name by name: in the sequence of reports for Megatron, in that of making for vLLM.
    #[must_use]
    pub fn named_groups(&self) -> Vec<NamedGroups> {
        match self {
            Self::Megatron(layout) => GroupKind::ALL
                .into_iter()
                .map(|kind| NamedGroups {
                    name: kind.name(),
                    meaning: kind.meaning(),
                    groups: layout.groups(kind),
                })
                .collect(),
            Self::Verl(layout) => layout.named_groups(),
            Self::Vllm(layout) => layout
                .coordinators()
                .into_iter()
                .map(|coordinator| NamedGroups {
                    name: coordinator.name,
                    meaning: coordinator.meaning,
                    groups: coordinator.groups,
                })
                .collect(),
        }
    }

    /// The groups of one name; `None` where the layout has none of it.
    #[must_use]
    pub fn groups(&self, name: &str) -> Option<Groups> {
        match self {
            Self::Megatron(layout) => Some(layout.groups(name.parse().ok()?)),
            Self::Verl(_) => {
                let mut all = self.named_groups().into_iter();
                let found = all.find(|groups| groups.name == name);
                found.map(|groups| groups.groups)
            }
            Self::Vllm(layout) => layout.groups(name),
        }
    }

    /// The groups over which experts are spread: [`GroupKind::Ep`], [`GroupKind::Etp`] or [`GroupKind::EtpEp`].
    ///
    /// vLLM has no expert tensor parallelism: there etp groups hold one rank, and etp-ep groups are the ep groups. Without
    /// experts, as in verl's meshes, each rank is alone.
    #[must_use]
    pub fn expert_groups(&self, kind: GroupKind) -> Groups {
        let alone = || Groups::new((0..self.world_size()).collect(), vec![0]);
        match self {
            Self::Megatron(layout) => layout.groups(kind),
            Self::Vllm(layout) if kind != GroupKind::Etp && layout.dims().ep > 1 => {
                layout.groups("ep").unwrap_or_else(alone)
            }
            Self::Verl(_) | Self::Vllm(_) => alone(),
        }
    }

    /// The members of the group of [`expert_groups`](Self::expert_groups) that holds a rank; empty for a rank
    /// outside the layout.
    #[must_use]
    pub fn expert_group_of(&self, kind: GroupKind, rank: Rank) -> Vec<Rank> {
        if let Self::Megatron(layout) = self {
            return layout.group_of(kind, rank).unwrap_or_default();
        }
        let groups = self.expert_groups(kind);
        let holding = groups.holding(rank);
        holding.map_or_else(Vec::new, |(_, members)| members.to_vec())
    }
}

impl fmt::Display for FrameworkLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Megatron(layout) => f.pad(&layout.remark()),
            Self::Verl(layout) => layout.fmt(f),
            Self::Vllm(layout) => layout.fmt(f),
        }
    }
}

impl From<Layout> for FrameworkLayout {
    fn from(layout: Layout) -> Self {
        Self::Megatron(layout)
    }
}

impl From<VllmLayout> for FrameworkLayout {
    fn from(layout: VllmLayout) -> Self {
        Self::Vllm(layout)
    }
}

impl From<VerlLayout> for FrameworkLayout {
    fn from(layout: VerlLayout) -> Self {
        Self::Verl(layout)
    }
}
