//! From the numbers that a user gives to a [`VllmLayout`], or to the rule that they break.
//!
//! Checks run in the sequence of the original: the configuration of vLLM, that of vllm-ascend, and at last the
//! making of groups.

use std::collections::BTreeMap;

use crate::types::MAX_WORLD_SIZE;

use super::{VllmError, VllmLayout, VllmOption, VllmSizes, VllmVersion};

/// Collects the numbers of a layout; [`build`](Self::build) checks them.
///
/// Every setter takes whatever a parser yields. A size that is not set is 1; the world is then what the sizes make.
#[derive(Clone, Debug)]
pub struct VllmBuilder {
    version: VllmVersion,
    world: Option<i64>,
    tp: i64,
    pp: i64,
    pcp: i64,
    dcp: i64,
    dp: i64,
    options: BTreeMap<VllmOption, i64>,
}

impl VllmBuilder {
    pub(super) fn new(version: VllmVersion) -> Self {
        Self {
            version,
            world: None,
            tp: 1,
            pp: 1,
            pcp: 1,
            dcp: 1,
            dp: 1,
            options: BTreeMap::new(),
        }
    }

    /// Number of ranks. More than the sizes make are replicas of the deployment.
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

    /// Pipeline parallel size.
    #[must_use]
    pub fn pp(mut self, size: impl Into<i64>) -> Self {
        self.pp = size.into();
        self
    }

    /// Prefill context parallel size.
    #[must_use]
    pub fn pcp(mut self, size: impl Into<i64>) -> Self {
        self.pcp = size.into();
        self
    }

    /// Decode context parallel size.
    #[must_use]
    pub fn dcp(mut self, size: impl Into<i64>) -> Self {
        self.dcp = size.into();
        self
    }

    /// Data parallel size.
    #[must_use]
    pub fn dp(mut self, size: impl Into<i64>) -> Self {
        self.dp = size.into();
        self
    }

    /// An option with its size; 1 switches on one that has none, 0 switches off.
    #[must_use]
    pub fn option(mut self, option: VllmOption, size: impl Into<i64>) -> Self {
        self.options.insert(option, size.into());
        self
    }

    /// Checks the numbers and yields the layout.
    ///
    /// # Errors
    /// The first broken rule, with the numbers and what would be legal.
    pub fn build(&self) -> Result<VllmLayout, VllmError> {
        let sizes = VllmSizes {
            tp: positive("tp", self.tp)?,
            pp: positive("pp", self.pp)?,
            pcp: positive("pcp", self.pcp)?,
            dcp: positive("dcp", self.dcp)?,
            dp: positive("dp", self.dp)?,
        };
        let mut layout = VllmLayout {
            version: self.version,
            world: 1,
            sizes,
            options: self.checked_options()?,
        };
        check_dcp(&layout)?;
        if self.version > VllmVersion::V0_11 {
            check_fine_grained(&layout)?;
            check_flashcomm2(&layout)?;
        }
        layout.world = self.checked_world(sizes)?;
        check_groups(&layout)?;
        Ok(layout)
    }

    fn checked_options(&self) -> Result<BTreeMap<VllmOption, u32>, VllmError> {
        let version = self.version;
        let mut on = BTreeMap::new();
        for (option, value) in self.options.iter().filter(|(_, value)| **value != 0) {
            let (option, value) = (*option, *value);
            if !option.is_in(version) {
                return Err(VllmError::OptionNotInVersion { option, version });
            }
            if option.is_flag() && value != 1 {
                return Err(VllmError::NoSize { option, value });
            }
            on.insert(option, positive(option.name(), value)?);
        }
        Ok(on)
    }

    fn checked_world(&self, sizes: VllmSizes) -> Result<u32, VllmError> {
        let VllmSizes {
            tp, pp, pcp, dp, ..
        } = sizes;
        let product = [tp, pp, pcp, dp].into_iter().fold(1_u64, |product, size| {
            product.saturating_mul(u64::from(size))
        });
        let got = match self.world {
            None => product,
            Some(world) => u64::from(positive("world", world)?),
        };
        let world = u32::try_from(got)
            .ok()
            .filter(|world| *world <= MAX_WORLD_SIZE)
            .ok_or(VllmError::WorldTooLarge { got })?;
        if !u64::from(world).is_multiple_of(product) {
            return Err(VllmError::WorldNotDivisible { world, product });
        }
        Ok(world)
    }
}

fn positive(name: &'static str, got: i64) -> Result<u32, VllmError> {
    match u32::try_from(got) {
        Ok(size) if size > 0 => Ok(size),
        Err(_) if got > 0 => Err(VllmError::WorldTooLarge {
            got: got.unsigned_abs(),
        }),
        Ok(_) | Err(_) => Err(VllmError::SizeBelowOne { name, got }),
    }
}

const FINE_GRAINED: [VllmOption; 4] = [
    VllmOption::Oproj,
    VllmOption::Lmhead,
    VllmOption::Embedding,
    VllmOption::Mlp,
];

/// The fine-grained options that are on.
fn fine_grained(layout: &VllmLayout) -> impl Iterator<Item = (VllmOption, u32)> + '_ {
    let sized = FINE_GRAINED.map(|option| (option, layout.option(option)));
    sized.into_iter().filter(|(_, size)| *size > 0)
}

fn check_dcp(layout: &VllmLayout) -> Result<(), VllmError> {
    let VllmSizes { tp, dcp, .. } = layout.sizes;
    if layout.version >= VllmVersion::V0_18 && !tp.is_multiple_of(dcp) {
        return Err(VllmError::DcpNotDividingTp { dcp, tp });
    }
    Ok(())
}

fn check_fine_grained(layout: &VllmLayout) -> Result<(), VllmError> {
    let VllmSizes { tp, dp, .. } = layout.sizes;
    let version = layout.version;
    let is_strict = version >= VllmVersion::V0_23;
    for (option, size) in fine_grained(layout) {
        if is_strict && layout.option(VllmOption::Dense) > 0 {
            return Err(VllmError::FineGrainedNotMoe { option, version });
        }
        if is_strict && option == VllmOption::Oproj && tp != 1 {
            return Err(VllmError::OprojNeedsTp1 { tp, version });
        }
        if !dp.is_multiple_of(size) {
            return Err(VllmError::FineGrainedNotDividingDp { option, size, dp });
        }
    }
    Ok(())
}

fn check_flashcomm2(layout: &VllmLayout) -> Result<(), VllmError> {
    let (size, tp) = (layout.option(VllmOption::FlashComm2), layout.sizes.tp);
    if size >= tp && size > 0 {
        return Err(VllmError::FlashComm2NotBelowTp { size, tp });
    }
    if size > 0 && !tp.is_multiple_of(size) {
        return Err(VllmError::FlashComm2NotDividingTp { size, tp });
    }
    Ok(())
}

/// What only shows when groups are made.
fn check_groups(layout: &VllmLayout) -> Result<(), VllmError> {
    let VllmSizes {
        tp,
        pp,
        pcp,
        dcp,
        dp,
    } = layout.sizes;
    let world = layout.world;
    if !world.is_multiple_of(dcp) {
        return Err(VllmError::DcpNotDividingWorld { dcp, world });
    }
    let is_old = layout.version == VllmVersion::V0_11;
    for (option, size) in fine_grained(layout) {
        if !is_old && world != tp * pp * dp {
            let ranks = tp * pp * dp;
            return Err(VllmError::FineGrainedGrid {
                option,
                pcp,
                ranks,
                world,
            });
        }
        if is_old && !world.is_multiple_of(size) {
            return Err(VllmError::RankInNoGroup {
                option,
                size,
                world,
            });
        }
    }
    if layout.option(VllmOption::PdHeadRatio) > 1 {
        let (ratio, replicas, block) = layout.prefill_shape();
        let runs = tp / ratio;
        let fits = if replicas == 1 {
            world.is_multiple_of(ratio)
        } else {
            tp.is_multiple_of(ratio) && block.is_multiple_of(replicas.saturating_mul(runs))
        };
        if !fits {
            return Err(VllmError::PTpShape {
                ratio,
                replicas,
                block,
                tp,
            });
        }
    }
    Ok(())
}
