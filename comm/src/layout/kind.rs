//! The sixteen kinds of groups that Megatron-LM makes, and how each follows from the grids.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::types::UnknownName;

use super::axis::{Axis, AxisSet, Part};

/// A kind of group. [`GroupKind::ALL`] lists them as reports do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GroupKind {
    /// Context parallel.
    Cp,
    /// Data parallel.
    Dp,
    /// Data and context parallel: the ranks that hold the same dense weights.
    DpCp,
    /// Expert data parallel: the ranks that hold the same experts.
    Edp,
    /// First and last stage of a pipeline, which share the word embedding.
    Embd,
    /// Expert parallel: tokens are dispatched over it.
    Ep,
    /// Expert tensor parallel.
    Etp,
    /// Expert tensor and expert parallel.
    EtpEp,
    /// Expert tensor, expert and pipeline parallel: one copy of all experts.
    EtpEpPp,
    /// Tensor and pipeline parallel: one copy of the dense model.
    Mp,
    /// First stage of a pipeline, which holds the position embedding.
    PosEmbd,
    /// Pipeline parallel.
    Pp,
    /// Tensor parallel.
    Tp,
    /// Tensor and context parallel.
    TpCp,
    /// Tensor and data parallel.
    TpDp,
    /// Tensor, data and context parallel: one pipeline stage.
    TpDpCp,
}

/// How a kind follows from a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// All ranks that differ only in these axes.
    Axes(Part, AxisSet),
    /// First and last member of each pp group, or its only one.
    EndsOfPipeline,
    /// First member of each pp group.
    StartOfPipeline,
}

impl GroupKind {
    /// Every kind, in the sequence of reports and of the recorded tables.
    pub const ALL: [Self; 16] = [
        Self::Dp,
        Self::DpCp,
        Self::Cp,
        Self::Mp,
        Self::Tp,
        Self::Pp,
        Self::Embd,
        Self::PosEmbd,
        Self::TpDpCp,
        Self::TpDp,
        Self::TpCp,
        Self::Ep,
        Self::Etp,
        Self::EtpEp,
        Self::EtpEpPp,
        Self::Edp,
    ];

    /// The short name: `dp-cp`, `etp-ep-pp`, …
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cp => "cp",
            Self::Dp => "dp",
            Self::DpCp => "dp-cp",
            Self::Edp => "edp",
            Self::Embd => "embd",
            Self::Ep => "ep",
            Self::Etp => "etp",
            Self::EtpEp => "etp-ep",
            Self::EtpEpPp => "etp-ep-pp",
            Self::Mp => "mp",
            Self::PosEmbd => "pos_embd",
            Self::Pp => "pp",
            Self::Tp => "tp",
            Self::TpCp => "tp-cp",
            Self::TpDp => "tp-dp",
            Self::TpDpCp => "tp-dp-cp",
        }
    }

    /// The `group_desc` under which Megatron registers the group with torch.
    #[must_use]
    pub const fn megatron_name(self) -> &'static str {
        match self {
            Self::Cp => "CONTEXT_PARALLEL_GROUP",
            Self::Dp => "DATA_PARALLEL_GROUP",
            Self::DpCp => "DATA_PARALLEL_GROUP_WITH_CP",
            Self::Edp => "EXPERT_DATA_PARALLEL_GROUP",
            Self::Embd => "EMBEDDING_GROUP",
            Self::Ep => "EXPERT_MODEL_PARALLEL_GROUP",
            Self::Etp => "EXPERT_TENSOR_PARALLEL_GROUP",
            Self::EtpEp => "EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP",
            Self::EtpEpPp => "EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP",
            Self::Mp => "MODEL_PARALLEL_GROUP",
            Self::PosEmbd => "POSITION_EMBEDDING_GROUP",
            Self::Pp => "PIPELINE_MODEL_PARALLEL_GROUP",
            Self::Tp => "TENSOR_MODEL_PARALLEL_GROUP",
            Self::TpCp => "TENSOR_AND_CONTEXT_PARALLEL_GROUP",
            Self::TpDp => "TENSOR_AND_DATA_PARALLEL_GROUP",
            Self::TpDpCp => "TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP",
        }
    }

    /// What the group is for, in a few words.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Cp => "context parallel: one sequence",
            Self::Dp => "data parallel: same weights, other samples",
            Self::DpCp => "data + context parallel: same dense weights",
            Self::Edp => "expert data parallel: same experts",
            Self::Embd => "first + last stage: shared embedding",
            Self::Ep => "expert parallel: token dispatch",
            Self::Etp => "expert tensor parallel: one expert",
            Self::EtpEp => "expert tensor + expert parallel",
            Self::EtpEpPp => "one copy of all experts",
            Self::Mp => "tensor + pipeline: one copy of the dense model",
            Self::PosEmbd => "first stage: position embedding",
            Self::Pp => "pipeline parallel: one pipeline",
            Self::Tp => "tensor parallel: one layer",
            Self::TpCp => "tensor + context parallel",
            Self::TpDp => "tensor + data parallel",
            Self::TpDpCp => "one pipeline stage",
        }
    }

    /// Whether every rank of the world is a member of a group of this kind.
    ///
    /// False for `embd` and `pos_embd`, which leave out the inner stages of a pipeline.
    #[must_use]
    pub const fn covers_all_ranks(self) -> bool {
        !matches!(self, Self::Embd | Self::PosEmbd)
    }

    /// The grid that the kind belongs to; `embd` and `pos_embd` belong to the dense one.
    #[must_use]
    pub const fn part(self) -> Part {
        match self.shape() {
            Shape::Axes(part, _) => part,
            Shape::EndsOfPipeline | Shape::StartOfPipeline => Part::Dense,
        }
    }

    pub(super) const fn shape(self) -> Shape {
        use Axis::{Cp, Dp, Ep, Pp, Tp};
        use Part::{Dense, Expert};
        let (part, axes): (Part, &[Axis]) = match self {
            Self::Embd => return Shape::EndsOfPipeline,
            Self::PosEmbd => return Shape::StartOfPipeline,
            Self::Cp => (Dense, &[Cp]),
            Self::Dp => (Dense, &[Dp]),
            Self::DpCp => (Dense, &[Dp, Cp]),
            Self::Edp => (Expert, &[Dp]),
            Self::Ep => (Expert, &[Ep]),
            Self::Etp => (Expert, &[Tp]),
            Self::EtpEp => (Expert, &[Tp, Ep]),
            Self::EtpEpPp => (Expert, &[Tp, Ep, Pp]),
            Self::Mp => (Dense, &[Tp, Pp]),
            Self::Pp => (Dense, &[Pp]),
            Self::Tp => (Dense, &[Tp]),
            Self::TpCp => (Dense, &[Tp, Cp]),
            Self::TpDp => (Dense, &[Tp, Dp]),
            Self::TpDpCp => (Dense, &[Tp, Dp, Cp]),
        };
        Shape::Axes(part, AxisSet::of(axes))
    }
}

impl fmt::Display for GroupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for GroupKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl FromStr for GroupKind {
    type Err = UnknownName;

    /// Reads the short name or Megatron's `group_desc`.
    fn from_str(name: &str) -> Result<Self, UnknownName> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == name || kind.megatron_name() == name)
            .ok_or_else(|| UnknownName {
                what: "group kind",
                got: name.to_owned(),
                known: Self::ALL.iter().map(|kind| kind.name()).collect(),
            })
    }
}
