//! Which ranks form which group: the rank arithmetic of Megatron-LM, MindSpeed, vLLM and verl.
//!
//! Pure: numbers in, rank lists out; no I/O, no environment, no clock. Everything above (bring-up,
//! verify, the groups command) takes its groups from here.
//!
//! A [`Layout`] lays two [`Grid`]s over the same ranks: the dense one (tp, cp, dp, pp) and the
//! expert one (etp, ep, edp, pp). Both use one order string, whose first axis changes fastest with
//! the rank number. A group holds the ranks that agree in every axis but its own. The only link
//! between the grids is that their pipelines must be the same.
//!
//! [`VllmLayout`] does the same for vLLM with vllm-ascend, and [`VerlLayout`] for the device meshes of verl. Everything
//! above takes a [`FrameworkLayout`], which is one of the three.
//!
//! LAYOUT-1: a `Layout` that exists is one that Megatron accepts, and yields Megatron's groups in
//! Megatron's sequence (held to tables recorded from the original). LAYOUT-2: every kind except
//! `embd` and `pos_embd` is a partition of the ranks. LAYOUT-3: no input panics.
//!
//! ```
//! use muster_comm::{GroupKind, Layout};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let layout = Layout::builder().world(8).tp(2).ep(4).build()?;
//! assert_eq!(format!("{:?}", layout.groups(GroupKind::Ep)), "[[0, 2, 4, 6], [1, 3, 5, 7]]");
//! assert_eq!(layout.remark(), "TP=2 EP=4 on 8: ETP=2, expert-DP=1");
//!
//! let refused = Layout::builder().world(8).tp(3).build().unwrap_err();
//! assert_eq!(refused.rule(), "world_not_divisible_by_dense");
//! # Ok(())
//! # }
//! ```

mod axis;
mod builder;
mod error;
mod framework;
mod grid;
mod groups;
mod kind;
mod matrix;
mod mindspeed;
mod order;
mod presets;
mod sequence;
mod verl;
mod vllm;
mod word;

use crate::types::Rank;

pub use axis::{Axis, AxisSet, Param, Part, Sizes};
pub use builder::LayoutBuilder;
pub use error::{LayoutError, NotDivisible};
pub use framework::{FrameworkLayout, NamedGroups};
pub use grid::{Coordinates, Grid};
pub use groups::{Groups, Members};
pub use kind::GroupKind;
pub use matrix::{
    DEFAULT_MATRICES, MAX_MATRIX_CHARS, Matrix, MatrixError, MatrixFault, default_matrices,
};
pub use mindspeed::{CpAlgorithm, CpGroups, CpOptions, MindSpeedError, Tp2dGroups, TpExtendEp};
pub use order::DEFAULT_ORDER;
pub use presets::{Phase, Preset};
pub use sequence::{GroupBackend, GroupTimeout, MegatronVersion, NewGroup, SequenceOptions};
pub use verl::{VerlError, VerlLayout};
pub use vllm::{
    Coordinator, VllmBuilder, VllmError, VllmLayout, VllmOption, VllmRemark, VllmSizes,
    VllmTextError, VllmVersion,
};
pub use word::WordError;

use kind::Shape;

/// The sizes of a layout, all at least 1.
///
/// `world = tp * cp * dp * pp = etp * ep * edp * pp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dims {
    /// Number of ranks.
    pub world: u32,
    /// Tensor parallel size.
    pub tp: u32,
    /// Context parallel size.
    pub cp: u32,
    /// Pipeline parallel size.
    pub pp: u32,
    /// Data parallel size.
    pub dp: u32,
    /// Expert parallel size.
    pub ep: u32,
    /// Expert tensor parallel size.
    pub etp: u32,
    /// Expert data parallel size.
    pub edp: u32,
}

/// A legal distribution of ranks over the axes of parallelism. See the [module](self).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    dims: Dims,
    etp_given: bool,
    order: String,
    dense: Grid,
    expert: Grid,
}

impl Layout {
    /// Begins a layout; see [`LayoutBuilder`].
    #[must_use]
    pub fn builder() -> LayoutBuilder {
        LayoutBuilder::new()
    }

    /// The sizes.
    #[must_use]
    pub fn dims(&self) -> Dims {
        self.dims
    }

    /// Number of ranks.
    #[must_use]
    pub fn world_size(&self) -> u32 {
        self.dims.world
    }

    /// Number of the first rank; 0 unless the builder was told otherwise.
    #[must_use]
    pub fn rank_offset(&self) -> u32 {
        self.dense.rank_offset()
    }

    /// The ranks of the layout, ascending.
    pub fn ranks(&self) -> impl ExactSizeIterator<Item = Rank> + use<> {
        let first = self.rank_offset();
        (first..first + self.dims.world).map(Rank)
    }

    /// The order string in lower case, as given.
    #[must_use]
    pub fn order(&self) -> &str {
        &self.order
    }

    /// Whether etp was given, rather than taken from tp.
    #[must_use]
    pub fn etp_given(&self) -> bool {
        self.etp_given
    }

    /// One of the two grids, for groups over any set of axes.
    #[must_use]
    pub fn grid(&self, part: Part) -> &Grid {
        match part {
            Part::Dense => &self.dense,
            Part::Expert => &self.expert,
        }
    }

    /// Every group of a kind, in the sequence in which Megatron creates them.
    #[must_use]
    pub fn groups(&self, kind: GroupKind) -> Groups {
        match kind.shape() {
            Shape::Axes(part, axes) => self.grid(part).groups(axes),
            Shape::EndsOfPipeline => self.stages(true),
            Shape::StartOfPipeline => self.stages(false),
        }
    }

    /// The members of the group of a kind that holds a rank.
    ///
    /// `None` for a rank outside the layout, and for `embd` and `pos_embd` on inner stages.
    #[must_use]
    pub fn group_of(&self, kind: GroupKind, rank: Rank) -> Option<Vec<Rank>> {
        match kind.shape() {
            Shape::Axes(part, axes) => self.grid(part).group_of(axes, rank),
            Shape::EndsOfPipeline | Shape::StartOfPipeline => {
                let members = self
                    .groups(kind)
                    .get(self.group_index(kind, rank)?)?
                    .to_vec();
                Some(members)
            }
        }
    }

    /// The position in [`groups`](Self::groups) of the group that holds a rank; `None` as there.
    #[must_use]
    pub fn group_index(&self, kind: GroupKind, rank: Rank) -> Option<usize> {
        const PP: AxisSet = AxisSet::of(&[Axis::Pp]);
        let stage = || Some(self.dense.coordinates(rank)?.pp);
        let index = self.dense.group_index(PP, rank);
        match kind.shape() {
            Shape::Axes(part, axes) => self.grid(part).group_index(axes, rank),
            Shape::EndsOfPipeline => {
                let stage = stage()?;
                index.filter(|_| stage == 0 || stage == self.dims.pp - 1)
            }
            Shape::StartOfPipeline => {
                let stage = stage()?;
                index.filter(|_| stage == 0)
            }
        }
    }

    /// Where a rank stands in a grid; `None` for a rank outside the layout.
    #[must_use]
    pub fn coordinates(&self, part: Part, rank: Rank) -> Option<Coordinates> {
        self.grid(part).coordinates(rank)
    }

    /// The rank that stands there; `None` for coordinates outside the grid.
    #[must_use]
    pub fn rank_at(&self, part: Part, coordinates: Coordinates) -> Option<Rank> {
        self.grid(part).rank_at(coordinates)
    }

    /// What follows from the sizes for the experts, in one line.
    ///
    /// "TP=2 EP=4 on 8: ETP=2, expert-DP=1". Worth showing wherever ep or tp is above 1, because
    /// Megatron's etp defaults to tp and not to 1, which changes the ep groups.
    #[must_use]
    pub fn remark(&self) -> String {
        let Dims {
            world,
            tp,
            cp,
            pp,
            ep,
            etp,
            edp,
            ..
        } = self.dims;
        let cp = if cp > 1 {
            format!(" CP={cp}")
        } else {
            String::new()
        };
        let pp = if pp > 1 {
            format!(" PP={pp}")
        } else {
            String::new()
        };
        format!("TP={tp}{cp}{pp} EP={ep} on {world}: ETP={etp}, expert-DP={edp}")
    }

    /// How the layout would differ with etp=1, where etp was not given and that would be legal.
    #[must_use]
    pub fn etp_alternative(&self) -> Option<Self> {
        let Dims {
            world,
            tp,
            cp,
            pp,
            ep,
            etp,
            ..
        } = self.dims;
        if self.etp_given || etp == 1 {
            return None;
        }
        Self::builder()
            .world(world)
            .tp(tp)
            .cp(cp)
            .pp(pp)
            .ep(ep)
            .etp(1)
            .order(self.order.as_str())
            .rank_offset(self.rank_offset())
            .build()
            .ok()
    }

    /// First, or first and last, members of the pipelines.
    fn stages(&self, with_last: bool) -> Groups {
        let pipelines = self.dense.groups(AxisSet::of(&[Axis::Pp]));
        let mut offsets = vec![0];
        if with_last && self.dims.pp > 1 {
            offsets.extend(pipelines.offsets().last());
        }
        Groups::new(pipelines.firsts().to_vec(), offsets)
    }
}
