//! Why a layout is refused: one variant for each rule, with the numbers and what would be legal.

use std::fmt;

use crate::types::{MAX_WORLD_SIZE, Rank};

use super::axis::{Axis, Param, Part};

/// Most legal values that a message lists.
const SHOWN_VALUES: usize = 24;

/// A layout that is refused.
///
/// [`rule`](Self::rule) names the rule in one word, with the names of the recorded tables where
/// Megatron refuses the same.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// The dp that was given is not what the other sizes leave.
    #[error(
        "dp={got} contradicts the other sizes: world_size {world} divided by tp*cp*pp = {model} \
         leaves dp={want}"
    )]
    DpDiffers {
        /// What was given.
        got: i64,
        /// What follows from the other sizes.
        want: u32,
        /// Number of ranks.
        world: u32,
        /// tp * cp * pp.
        model: u32,
    },
    /// A single grid was asked for both expert and context parallelism.
    #[error("ep={ep} and cp={cp} in one grid: the dense grid has cp, the expert grid has ep")]
    EpAndCpInOneGrid {
        /// Expert parallel size.
        ep: i64,
        /// Context parallel size.
        cp: i64,
    },
    /// The levels of hierarchical context parallelism do not multiply to cp.
    #[error("hierarchical_cp sizes {sizes:?} multiply to {product}, which must equal cp={cp}")]
    HierarchicalCp {
        /// The levels as given.
        sizes: Vec<i64>,
        /// Their product.
        product: u64,
        /// Context parallel size.
        cp: u32,
    },
    /// Optimizer instances do not divide the ranks that share weights.
    #[error(
        "optimizer_instances={instances} does not divide {of} = {count}; legal: {}",
        list(legal)
    )]
    OptimizerInstances {
        /// Number of instances.
        instances: i64,
        /// What has to be divided: `dp*cp` or `edp`.
        of: &'static str,
        /// Its size.
        count: u32,
        /// What would divide it.
        legal: Vec<u32>,
    },
    /// An axis stands twice in the order.
    #[error("order \"{order}\" names {axis} twice; each of tp, cp, ep, dp, pp at most once")]
    OrderAxisTwice {
        /// The order as given.
        order: String,
        /// The axis.
        axis: Axis,
    },
    /// The order leaves out an axis of a size above 1.
    #[error(
        "order \"{order}\" leaves out {} ({part} part); only an axis of size 1 may be left out",
        pairs(missing)
    )]
    OrderMissesAxis {
        /// The order as given.
        order: String,
        /// The grid in which it is missing.
        part: Part,
        /// What is missing, with sizes.
        missing: Vec<(Param, i64)>,
    },
    /// A word of the order is no axis.
    #[error(
        "order \"{order}\" has the unknown axis \"{word}\"; it is tp, cp, ep, dp, pp in any \
         sequence, joined with \"-\"{}", did_you_mean(*suggestion)
    )]
    OrderUnknownAxis {
        /// The order as given.
        order: String,
        /// The word.
        word: String,
        /// The axis that may have been meant.
        suggestion: Option<&'static str>,
    },
    /// pp is not the last axis, and dense and expert data parallelism differ.
    #[error(
        "order \"{order}\" does not end in \"pp\"{}: with pp={pp} that needs dp = edp, but dp={dp} \
         and edp={edp}",
        if *capitals { " (Megatron looks for lower case)" } else { "" }
    )]
    PpNotLastAndDpDiffers {
        /// The order as given.
        order: String,
        /// Pipeline parallel size.
        pp: u32,
        /// Data parallel size.
        dp: u32,
        /// Expert data parallel size.
        edp: u32,
        /// Whether it would end in pp if it were written in lower case.
        capitals: bool,
    },
    /// The two grids disagree about the pipelines.
    #[error(
        "order \"{order}\" gives two sets of pipelines: rank {rank} has pp group {dense:?} in the \
         dense part and {expert:?} in the expert part; an order ending in \"pp\" always agrees"
    )]
    PpGroupsDiffer {
        /// The order as given.
        order: String,
        /// The lowest rank whose pipelines differ.
        rank: Rank,
        /// Its pipeline in the dense part, shortened to a few members.
        dense: Vec<Rank>,
        /// Its pipeline in the expert part, likewise.
        expert: Vec<Rank>,
    },
    /// The first rank is negative or too high.
    #[error("rank_offset={got} is not between 0 and {highest}")]
    RankOffset {
        /// What was given.
        got: i64,
        /// Highest offset at this world size.
        highest: u32,
    },
    /// A size is zero or negative.
    #[error("{param}={got}: every size must be at least 1")]
    SizeNotPositive {
        /// Which size.
        param: Param,
        /// What was given.
        got: i64,
    },
    /// Model chunks without a pipeline.
    #[error("virtual_pp={virtual_pp} needs pp of at least 2, but pp={pp}")]
    VirtualPpNeedsPp {
        /// Chunks on each stage.
        virtual_pp: i64,
        /// Pipeline parallel size.
        pp: i64,
    },
    /// The dense part does not fit the world.
    #[error("{0}")]
    WorldNotDivisibleByDense(Box<NotDivisible>),
    /// The expert part does not fit the world.
    #[error("{0}")]
    WorldNotDivisibleByExpert(Box<NotDivisible>),
    /// No world size was given.
    #[error("no world_size was given; a layout needs the number of ranks")]
    WorldNotGiven,
    /// More ranks than a layout may describe.
    #[error("world_size {got} is above the limit of {MAX_WORLD_SIZE} ranks")]
    WorldTooLarge {
        /// What was given.
        got: u64,
    },
}

impl LayoutError {
    /// The rule in one word: stable, for tests and machine output.
    #[must_use]
    pub const fn rule(&self) -> &'static str {
        match self {
            Self::DpDiffers { .. } => "dp_differs",
            Self::EpAndCpInOneGrid { .. } => "ep_and_cp_in_one_grid",
            Self::HierarchicalCp { .. } => "hierarchical_cp_product",
            Self::OptimizerInstances { .. } => "partial_distopt_not_divisible",
            Self::OrderAxisTwice { .. } => "order_axis_twice",
            Self::OrderMissesAxis { .. } => "order_misses_axis",
            Self::OrderUnknownAxis { .. } => "order_unknown_axis",
            Self::PpNotLastAndDpDiffers { .. } => "not_pp_last_and_dp_differs",
            Self::PpGroupsDiffer { .. } => "pp_groups_differ",
            Self::RankOffset { .. } => "rank_offset",
            Self::SizeNotPositive { got: 0, .. } => "zero_size",
            Self::SizeNotPositive { .. } => "size_not_positive",
            Self::VirtualPpNeedsPp { .. } => "virtual_pp_needs_pp",
            Self::WorldNotDivisibleByDense(_) => "world_not_divisible_by_dense",
            Self::WorldNotDivisibleByExpert(_) => "world_not_divisible_by_expert",
            Self::WorldNotGiven => "world_not_given",
            Self::WorldTooLarge { .. } => "world_too_large",
        }
    }
}

/// The numbers of a world that the sizes of one part do not divide.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotDivisible {
    /// Number of ranks.
    pub world: u32,
    /// The sizes whose product should divide it, the first to blame first.
    pub sizes: [(Param, i64); 3],
    /// The size to change, if changing one is enough: its place in `sizes`.
    pub culprit: Option<usize>,
    /// What the culprit may be; without a culprit, what the product may be.
    pub legal: Vec<u32>,
    /// In the expert part: etp was not given and is tp; then what `ep` may be if etp were 1.
    pub legal_ep_at_etp_1: Option<Vec<u32>>,
}

impl NotDivisible {
    /// Finds out whom to blame, given that the product of `sizes` does not divide `world`.
    pub(super) fn new(world: u32, sizes: [(Param, i64); 3], etp_is_tp: bool) -> Self {
        let quotient = |blamed: usize| {
            let rest = product_without(&sizes, blamed);
            let fits = u64::from(world).checked_rem(rest) == Some(0);
            fits.then(|| u64::from(world) / rest)
        };
        let culprit = (0..sizes.len()).find(|blamed| quotient(*blamed).is_some());
        let whole = culprit.and_then(quotient).unwrap_or_else(|| world.into());
        let pp = sizes.iter().find(|(param, _)| *param == Param::Pp);
        let pp = pp.map_or(1, |(_, size)| size.unsigned_abs());
        let rescue = u64::from(world)
            .checked_div(pp)
            .filter(|stage| stage * pp == u64::from(world))
            .map(divisors);
        Self {
            world,
            sizes,
            culprit,
            legal: divisors(whole),
            legal_ep_at_etp_1: rescue.filter(|_| etp_is_tp),
        }
    }
}

impl fmt::Display for NotDivisible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let world = self.world;
        let Some(culprit) = self.culprit else {
            let names = self.sizes.map(|(param, _)| param.name()).join("*");
            let values = self.sizes.map(|(_, size)| size.to_string()).join("*");
            write!(
                f,
                "world_size {world} is not divisible by {names} = {values}; legal products: {}",
                list(&self.legal)
            )?;
            return self.rescue(f);
        };
        let (param, size) = self.sizes[culprit];
        let rest = product_without(&self.sizes, culprit);
        let others: Vec<_> = self
            .sizes
            .iter()
            .filter(|(other, _)| *other != param)
            .map(|(other, value)| format!("{other}={value}"))
            .collect();
        write!(
            f,
            "{param}={size} does not divide {}: world_size {world} divided by {} is {}; legal {param}: {}",
            u64::from(world) / rest,
            others.join(" * "),
            u64::from(world) / rest,
            list(&self.legal)
        )?;
        self.rescue(f)
    }
}

impl NotDivisible {
    fn rescue(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(legal) = &self.legal_ep_at_etp_1 else {
            return Ok(());
        };
        write!(
            f,
            "; etp was not given and is tp; with etp=1 legal ep: {}",
            list(legal)
        )
    }
}

/// Every divisor, ascending.
pub(super) fn divisors(number: u64) -> Vec<u32> {
    let mut low = Vec::new();
    let mut high = Vec::new();
    let mut candidate: u64 = 1;
    while candidate * candidate <= number {
        if number.is_multiple_of(candidate) {
            low.extend(u32::try_from(candidate));
            if candidate * candidate != number {
                high.extend(u32::try_from(number / candidate));
            }
        }
        candidate += 1;
    }
    low.extend(high.into_iter().rev());
    low
}

fn product_without(sizes: &[(Param, i64); 3], left_out: usize) -> u64 {
    let others = sizes.iter().enumerate().filter(|(i, _)| *i != left_out);
    others.fold(1, |product: u64, (_, (_, size))| {
        product.saturating_mul(size.unsigned_abs())
    })
}

pub(super) fn list(values: &[u32]) -> String {
    let shown: Vec<_> = values
        .iter()
        .take(SHOWN_VALUES)
        .map(ToString::to_string)
        .collect();
    let more = if values.len() > SHOWN_VALUES {
        ", …"
    } else {
        ""
    };
    format!("{}{more}", shown.join(", "))
}

fn pairs(sizes: &[(Param, i64)]) -> String {
    let texts: Vec<_> = sizes
        .iter()
        .map(|(param, size)| format!("{param}={size}"))
        .collect();
    texts.join(", ")
}

pub(super) fn did_you_mean(suggestion: Option<&str>) -> String {
    suggestion.map_or_else(String::new, |word| format!("; did you mean \"{word}\"?"))
}
