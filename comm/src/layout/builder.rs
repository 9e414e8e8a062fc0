//! From the numbers that a user gives to a [`Layout`], or to the rule that they break.
//!
//! Checks run in Megatron's sequence (see `docs/layout.md`), so that a configuration with several
//! faults is refused for the same one as there. Ours come first: sizes below 1, a missing world.

use crate::types::{MAX_WORLD_SIZE, Rank};

use super::axis::{Axis, AxisSet, Param, Part, Sizes};
use super::error::{LayoutError, NotDivisible};
use super::grid::{Grid, positive};
use super::order::{self, DEFAULT_ORDER};
use super::{Dims, Layout};

/// Members of a pipeline that an error shows.
const SHOWN_RANKS: usize = 8;

/// Collects the numbers of a layout; [`build`](Self::build) checks them.
///
/// Every setter takes whatever a parser yields, also nonsense. What is not set is 1, except `etp`
/// (tp, as in Megatron), `dp` (what the others leave) and the world size, which must be given.
#[derive(Clone, Debug)]
pub struct LayoutBuilder {
    world: Option<i64>,
    tp: i64,
    cp: i64,
    pp: i64,
    ep: i64,
    etp: Option<i64>,
    dp: Option<i64>,
    virtual_pp: Option<i64>,
    rank_offset: i64,
    order: String,
}

impl LayoutBuilder {
    pub(super) fn new() -> Self {
        Self {
            world: None,
            tp: 1,
            cp: 1,
            pp: 1,
            ep: 1,
            etp: None,
            dp: None,
            virtual_pp: None,
            rank_offset: 0,
            order: DEFAULT_ORDER.to_owned(),
        }
    }

    /// Number of ranks.
    #[must_use]
    pub fn world(mut self, size: impl Into<i64>) -> Self {
        self.world = Some(size.into());
        self
    }

    /// Tensor parallel size.
    #[must_use]
    pub fn tp(mut self, size: impl Into<i64>) -> Self {
        self.tp = size.into();
        self
    }

    /// Context parallel size.
    #[must_use]
    pub fn cp(mut self, size: impl Into<i64>) -> Self {
        self.cp = size.into();
        self
    }

    /// Pipeline parallel size.
    #[must_use]
    pub fn pp(mut self, size: impl Into<i64>) -> Self {
        self.pp = size.into();
        self
    }

    /// Expert parallel size.
    #[must_use]
    pub fn ep(mut self, size: impl Into<i64>) -> Self {
        self.ep = size.into();
        self
    }

    /// Expert tensor parallel size; without it tp, which is Megatron's default.
    #[must_use]
    pub fn etp(mut self, size: impl Into<i64>) -> Self {
        self.etp = Some(size.into());
        self
    }

    /// Data parallel size, as a check: it follows from the other sizes.
    #[must_use]
    pub fn dp(mut self, size: impl Into<i64>) -> Self {
        self.dp = Some(size.into());
        self
    }

    /// Model chunks on each pipeline stage. Changes no group, but needs a pipeline.
    #[must_use]
    pub fn virtual_pp(mut self, chunks: impl Into<i64>) -> Self {
        self.virtual_pp = Some(chunks.into());
        self
    }

    /// Number of the first rank.
    #[must_use]
    pub fn rank_offset(mut self, first: impl Into<i64>) -> Self {
        self.rank_offset = first.into();
        self
    }

    /// Which axis changes fastest with the rank number, first to last: `tp-cp-ep-dp-pp`.
    #[must_use]
    pub fn order(mut self, order: impl Into<String>) -> Self {
        self.order = order.into();
        self
    }

    /// Checks the numbers and yields the layout.
    ///
    /// # Errors
    /// The first broken rule, with the numbers and what would be legal.
    pub fn build(&self) -> Result<Layout, LayoutError> {
        let world = self.checked_world()?;
        let dp = self.dense_dp(world)?;
        self.check_virtual_pp()?;
        let dense = Grid::new(
            Part::Dense,
            Sizes {
                tp: self.tp,
                cp: self.cp,
                ep: 1,
                dp,
                pp: self.pp,
            },
            &self.order,
            self.rank_offset,
        )?;
        let etp = self.etp.unwrap_or(self.tp);
        let edp = self.expert_dp(world, etp)?;
        let expert = Grid::new(
            Part::Expert,
            Sizes {
                tp: etp,
                cp: 1,
                ep: self.ep,
                dp: edp,
                pp: self.pp,
            },
            &self.order,
            self.rank_offset,
        )?;
        self.check_pipelines(&dense, &expert)?;
        Ok(Layout {
            dims: Dims {
                world,
                tp: dense.size(Axis::Tp),
                cp: dense.size(Axis::Cp),
                pp: dense.size(Axis::Pp),
                dp: dense.size(Axis::Dp),
                ep: expert.size(Axis::Ep),
                etp: expert.size(Axis::Tp),
                edp: expert.size(Axis::Dp),
            },
            etp_given: self.etp.is_some(),
            order: self.order.to_ascii_lowercase(),
            dense,
            expert,
        })
    }

    fn checked_world(&self) -> Result<u32, LayoutError> {
        let world = positive(Param::World, self.world.ok_or(LayoutError::WorldNotGiven)?)?;
        let optional = |param, size: Option<i64>| size.map_or(Ok(1), |got| positive(param, got));
        positive(Param::Tp, self.tp)?;
        positive(Param::Cp, self.cp)?;
        positive(Param::Pp, self.pp)?;
        positive(Param::Ep, self.ep)?;
        optional(Param::Etp, self.etp)?;
        optional(Param::Dp, self.dp)?;
        optional(Param::VirtualPp, self.virtual_pp)?;
        u32::try_from(world)
            .ok()
            .filter(|world| *world <= MAX_WORLD_SIZE)
            .ok_or(LayoutError::WorldTooLarge { got: world })
    }

    fn dense_dp(&self, world: u32) -> Result<i64, LayoutError> {
        let sizes = [
            (Param::Tp, self.tp),
            (Param::Cp, self.cp),
            (Param::Pp, self.pp),
        ];
        let dp = quotient(world, &sizes).ok_or_else(|| {
            let numbers = NotDivisible::new(world, sizes, false);
            LayoutError::WorldNotDivisibleByDense(Box::new(numbers))
        })?;
        match self.dp {
            Some(got) if got != i64::from(dp) => Err(LayoutError::DpDiffers {
                got,
                want: dp,
                world,
                model: world / dp,
            }),
            Some(_) | None => Ok(dp.into()),
        }
    }

    fn expert_dp(&self, world: u32, etp: i64) -> Result<i64, LayoutError> {
        let sizes = [
            (Param::Ep, self.ep),
            (Param::Etp, etp),
            (Param::Pp, self.pp),
        ];
        let edp = quotient(world, &sizes).ok_or_else(|| {
            let etp_is_tp = self.etp.is_none() && etp > 1;
            let numbers = NotDivisible::new(world, sizes, etp_is_tp);
            LayoutError::WorldNotDivisibleByExpert(Box::new(numbers))
        })?;
        Ok(edp.into())
    }

    fn check_virtual_pp(&self) -> Result<(), LayoutError> {
        match self.virtual_pp {
            Some(virtual_pp) if self.pp < 2 => Err(LayoutError::VirtualPpNeedsPp {
                virtual_pp,
                pp: self.pp,
            }),
            Some(_) | None => Ok(()),
        }
    }

    fn check_pipelines(&self, dense: &Grid, expert: &Grid) -> Result<(), LayoutError> {
        let pp = dense.size(Axis::Pp);
        let (dp, edp) = (dense.size(Axis::Dp), expert.size(Axis::Dp));
        if pp > 1 && dp != edp && !order::ends_with_pp(&self.order) {
            return Err(LayoutError::PpNotLastAndDpDiffers {
                order: order::shown(&self.order),
                pp,
                dp,
                edp,
                capitals: order::ends_with_pp(&self.order.to_ascii_lowercase()),
            });
        }
        // Equal size and stride of one axis in two grids over the same ranks give equal groups.
        if pp > 1 && dense.stride(Axis::Pp) != expert.stride(Axis::Pp) {
            return Err(self.pipelines_differ(dense, expert));
        }
        Ok(())
    }

    fn pipelines_differ(&self, dense: &Grid, expert: &Grid) -> LayoutError {
        // Rank 0 of the grid leads a pipeline in both, with different strides.
        let rank = Rank(dense.rank_offset());
        let shorten = |grid: &Grid| {
            let axes = AxisSet::of(&[Axis::Pp]);
            let mut members = grid.group_of(axes, rank).unwrap_or_default();
            members.truncate(SHOWN_RANKS);
            members
        };
        LayoutError::PpGroupsDiffer {
            order: order::shown(&self.order),
            rank,
            dense: shorten(dense),
            expert: shorten(expert),
        }
    }
}

/// `world` divided by the product of positive sizes, if that is a whole number.
fn quotient(world: u32, sizes: &[(Param, i64); 3]) -> Option<u32> {
    let product = sizes.iter().try_fold(1_u32, |product, (_, size)| {
        product.checked_mul(u32::try_from(*size).ok()?)
    })?;
    (world.checked_rem(product) == Some(0)).then(|| world / product)
}
