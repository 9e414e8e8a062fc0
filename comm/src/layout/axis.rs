//! Axes of parallelism, sets of them, and the numbers a user may give.
//!
//! Knows nothing of ranks: that is [`grid`](super::grid).

use std::fmt;
use std::str::FromStr;

use crate::types::UnknownName;

/// One direction in which a model or its data is split.
///
/// In the expert part of a layout [`Axis::Tp`] stands for expert tensor parallelism (etp) and
/// [`Axis::Dp`] for expert data parallelism (edp), as in Megatron's own generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Axis {
    /// Context parallelism: a sequence is split.
    Cp,
    /// Data parallelism: samples are split.
    Dp,
    /// Expert parallelism: experts are split. Size 1 in the dense part.
    Ep,
    /// Pipeline parallelism: layers are split.
    Pp,
    /// Tensor parallelism: matrices are split.
    Tp,
}

impl Axis {
    /// Every axis, in the sequence of Megatron's default order.
    pub const ALL: [Self; 5] = [Self::Tp, Self::Cp, Self::Ep, Self::Dp, Self::Pp];

    /// The sequence in which Megatron looks for axes that an order string leaves out.
    pub(super) const AS_CHECKED: [Self; 5] = [Self::Tp, Self::Pp, Self::Dp, Self::Ep, Self::Cp];

    /// The name in an order string: `tp`, `cp`, …
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cp => "cp",
            Self::Dp => "dp",
            Self::Ep => "ep",
            Self::Pp => "pp",
            Self::Tp => "tp",
        }
    }

    /// The axis of this exact name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|axis| axis.name() == name)
    }

    const fn bit(self) -> u8 {
        match self {
            Self::Cp => 1,
            Self::Dp => 2,
            Self::Ep => 4,
            Self::Pp => 8,
            Self::Tp => 16,
        }
    }
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Axis {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        Self::from_name(name).ok_or_else(|| UnknownName {
            what: "axis",
            got: name.to_owned(),
            known: Self::ALL.iter().map(|axis| axis.name()).collect(),
        })
    }
}

/// A set of axes: the ranks of a group differ in these, and agree in all others.
///
/// The sequence in which axes are named does not matter: `dp-cp` and `cp-dp` are one set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AxisSet(u8);

impl AxisSet {
    /// The set of these axes.
    #[must_use]
    pub const fn of(axes: &[Axis]) -> Self {
        let mut bits = 0;
        let mut index = 0;
        while index < axes.len() {
            bits |= axes[index].bit();
            index += 1;
        }
        Self(bits)
    }

    /// Whether the axis is in the set.
    #[must_use]
    pub const fn contains(self, axis: Axis) -> bool {
        self.0 & axis.bit() != 0
    }

    /// Every axis that is not in the set.
    #[must_use]
    pub const fn complement(self) -> Self {
        Self(!self.0 & Self::of(&Axis::ALL).0)
    }
}

impl FromStr for AxisSet {
    type Err = UnknownName;

    /// Reads names joined with `-`, as Megatron's `get_ranks` does.
    fn from_str(names: &str) -> Result<Self, UnknownName> {
        let axes = names
            .split('-')
            .map(str::parse)
            .collect::<Result<Vec<Axis>, _>>()?;
        Ok(Self::of(&axes))
    }
}

/// The two grids that lie over the same ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// Attention and everything that is not an expert: tp, cp, dp, pp.
    Dense,
    /// The experts: etp, ep, edp, pp.
    Expert,
}

impl Part {
    /// `dense` or `expert`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dense => "dense",
            Self::Expert => "expert",
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Sizes of the axes of one grid, as a caller gives them: anything, to be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Tensor parallel size (etp in the expert part).
    pub tp: i64,
    /// Context parallel size; 1 in the expert part.
    pub cp: i64,
    /// Expert parallel size; 1 in the dense part.
    pub ep: i64,
    /// Data parallel size (edp in the expert part).
    pub dp: i64,
    /// Pipeline parallel size.
    pub pp: i64,
}

impl Sizes {
    /// The size of an axis.
    #[must_use]
    pub const fn of(&self, axis: Axis) -> i64 {
        match axis {
            Axis::Cp => self.cp,
            Axis::Dp => self.dp,
            Axis::Ep => self.ep,
            Axis::Pp => self.pp,
            Axis::Tp => self.tp,
        }
    }
}

/// A number that the user of a layout gives, by the name of its option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Param {
    /// Context parallel size.
    Cp,
    /// Data parallel size; follows from the others, may be given as a check.
    Dp,
    /// Expert parallel size.
    Ep,
    /// Expert tensor parallel size; tp if not given.
    Etp,
    /// Level of a hierarchical context parallel group.
    HierarchicalCp,
    /// Number of distributed optimizer instances.
    OptimizerInstances,
    /// Pipeline parallel size.
    Pp,
    /// Number of the first rank.
    RankOffset,
    /// Tensor parallel size.
    Tp,
    /// Number of model chunks on each pipeline stage.
    VirtualPp,
    /// Number of ranks.
    World,
}

impl Param {
    /// The number behind an axis, by the name that a user gave it.
    pub(super) const fn of(axis: Axis, part: Part) -> Self {
        match (axis, part) {
            (Axis::Cp, _) => Self::Cp,
            (Axis::Dp, _) => Self::Dp,
            (Axis::Ep, _) => Self::Ep,
            (Axis::Pp, _) => Self::Pp,
            (Axis::Tp, Part::Dense) => Self::Tp,
            (Axis::Tp, Part::Expert) => Self::Etp,
        }
    }

    /// The name in messages and options.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cp => "cp",
            Self::Dp => "dp",
            Self::Ep => "ep",
            Self::Etp => "etp",
            Self::HierarchicalCp => "hierarchical_cp",
            Self::OptimizerInstances => "optimizer_instances",
            Self::Pp => "pp",
            Self::RankOffset => "rank_offset",
            Self::Tp => "tp",
            Self::VirtualPp => "virtual_pp",
            Self::World => "world_size",
        }
    }
}

impl fmt::Display for Param {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_set_does_not_depend_on_the_sequence_of_its_names() {
        let set: AxisSet = "dp-cp".parse().unwrap();
        assert_eq!(set, "cp-dp".parse().unwrap());
        assert!(set.contains(Axis::Dp));
        assert!(!set.contains(Axis::Tp));
        assert_eq!(set.complement(), "tp-ep-pp".parse().unwrap());
    }

    #[test]
    fn an_unknown_axis_is_an_error_that_lists_the_known_ones() {
        let error = "dp-xx".parse::<AxisSet>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown axis \"xx\"; known: tp, cp, ep, dp, pp"
        );
    }
}
