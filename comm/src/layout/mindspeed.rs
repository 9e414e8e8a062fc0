//! The groups that MindSpeed adds on Ascend: split context parallel groups, 2-D tensor parallel
//! groups, and experts spread over tp*ep ranks.
//!
//! MindSpeed computes all of these as if the order were Megatron's default, whatever was asked
//! for. With another order its lists mix ranks of different cp or tp groups; such a layout is
//! refused here instead. Recorded from MindSpeed 2.3.0 for core 0.12.1.

use crate::types::Rank;

use super::error::divisors;
use super::{DEFAULT_ORDER, Dims, GroupKind, Groups, Layout};

/// A MindSpeed feature that the layout does not allow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MindSpeedError {
    /// Context parallel features without context parallelism.
    #[error("MindSpeed's context parallel groups need cp of at least 2, but cp={cp}")]
    CpNotSplit {
        /// Context parallel size.
        cp: u32,
    },
    /// tp-extend-ep with an etp that is not tp.
    #[error("tp-extend-ep spreads experts over tp*ep ranks, so etp must be tp={tp}, but etp={etp}")]
    EtpNotTp {
        /// Expert tensor parallel size.
        etp: u32,
        /// Tensor parallel size.
        tp: u32,
    },
    /// Experts cannot be spread evenly.
    #[error(
        "{experts} experts cannot be spread evenly over tp*ep = {tp}*{ep} = {} ranks; legal: a \
         multiple of it", tp * ep
    )]
    Experts {
        /// Number of experts.
        experts: i64,
        /// Tensor parallel size.
        tp: u32,
        /// Expert parallel size.
        ep: u32,
    },
    /// Attention heads cannot be spread evenly.
    #[error(
        "{heads} attention heads cannot be spread evenly over ulysses_degree*tp = {degree}*{tp}; \
         legal: a multiple of {}", degree * tp
    )]
    Heads {
        /// Number of attention heads.
        heads: i64,
        /// Ulysses degree.
        degree: u32,
        /// Tensor parallel size.
        tp: u32,
    },
    /// The order gives other groups than the default order, which MindSpeed presumes.
    #[error(
        "order \"{order}\" gives other {kind} groups than \"{DEFAULT_ORDER}\", which MindSpeed \
         presumes whatever was asked for"
    )]
    OrderNotDefault {
        /// The order of the layout.
        order: String,
        /// The groups that differ.
        kind: GroupKind,
    },
    /// 2-D tensor parallelism together with expert parallelism.
    #[error("TP-2D excludes expert parallelism, but ep={ep}; legal: ep=1")]
    Tp2dWithEp {
        /// Expert parallel size.
        ep: u32,
    },
    /// tp_x times tp_y is not tp.
    #[error("tp_x*tp_y = {tp_x}*{tp_y} must equal tp={tp}; legal tp_x: {legal:?}")]
    TpFactors {
        /// First factor.
        tp_x: i64,
        /// Second factor.
        tp_y: i64,
        /// Tensor parallel size.
        tp: u32,
        /// Legal first factors.
        legal: Vec<u32>,
    },
    /// The Ulysses degree does not split cp into at least two rings.
    #[error(
        "ulysses_degree={degree} must divide cp={cp} and leave a ring of at least 2; legal: {legal:?}"
    )]
    UlyssesDegree {
        /// What was given.
        degree: i64,
        /// Context parallel size.
        cp: u32,
        /// What would be legal.
        legal: Vec<u32>,
    },
    /// The window does not split the ring.
    #[error(
        "cp_window_size={window} must divide the ring of {ring} and be smaller; legal: {legal:?}"
    )]
    Window {
        /// What was given.
        window: i64,
        /// Ranks of a ring.
        ring: u32,
        /// What would be legal.
        legal: Vec<u32>,
    },
}

/// How a cp group works on its sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpAlgorithm {
    /// Ulysses inside, a ring outside (`hybrid_cp_algo`).
    Hybrid {
        /// Ranks of a Ulysses group.
        ulysses_degree: i64,
    },
    /// One ring (`megatron_cp_algo`).
    Ring,
}

/// Options of MindSpeed's context parallelism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpOptions {
    /// How a cp group works.
    pub algorithm: CpAlgorithm,
    /// Ranks of an inner ring (`cp_window_size`); 1 for a single ring.
    pub window: i64,
    /// Whether second communicators are made so that send and receive overlap.
    pub send_recv_overlap: bool,
    /// Number of attention heads, if it is to be checked.
    pub attention_heads: Option<i64>,
}

impl Default for CpOptions {
    fn default() -> Self {
        Self {
            algorithm: CpAlgorithm::Ring,
            window: 1,
            send_recv_overlap: false,
            attention_heads: None,
        }
    }
}

/// MindSpeed's context parallel groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpGroups {
    /// Second communicator on each cp group, with send/receive overlap.
    pub cp2: Option<Groups>,
    /// Ulysses groups of hybrid cp: neighbours within a cp group.
    pub ulysses: Option<Groups>,
    /// Rings of hybrid cp: every `ulysses_degree`-th rank of a cp group.
    pub ring: Option<Groups>,
    /// Inner rings of the double ring: windows of neighbours within a ring.
    pub intra: Groups,
    /// Whether each inner ring has a second communicator.
    pub intra_overlap: bool,
    /// Lists (not communicators): equal places of all windows, the way keys and values travel.
    pub inter_kv: Groups,
    /// Lists (not communicators) in travelling order: the way their gradients travel, each hop to
    /// the next window and one place on.
    pub inter_dkv: Vec<Vec<Rank>>,
    cp_groups: usize,
}

impl CpGroups {
    /// The communicators in the sequence in which MindSpeed makes them, with its names.
    #[must_use]
    pub fn creation_sequence(&self) -> Vec<(&'static str, Vec<Rank>)> {
        let mut calls = Vec::new();
        let cp2 = self.cp2.iter().flat_map(Groups::iter);
        calls.extend(cp2.map(|group| ("cp2", group.to_vec())));
        if let (Some(ulysses), Some(ring)) = (&self.ulysses, &self.ring) {
            for index in 0..self.cp_groups {
                calls.extend(share(ulysses, index, self.cp_groups, "cp_ulysses"));
                calls.extend(share(ring, index, self.cp_groups, "cp_ring"));
            }
        }
        for group in self.intra.iter() {
            calls.push(("cp_ring_intra", group.to_vec()));
            if self.intra_overlap {
                calls.push(("cp_ring_intra_overlap", group.to_vec()));
            }
        }
        calls
    }
}

/// MindSpeed's 2-D tensor parallel groups: each tp group as a grid of tp_x times tp_y.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tp2dGroups {
    /// tp_x neighbours.
    pub nd1_dim1: Groups,
    /// Every tp_x-th rank; tp_y of them.
    pub nd1_dim2: Groups,
    /// tp_y neighbours.
    pub nd2_dim1: Groups,
    /// Every tp_y-th rank; tp_x of them.
    pub nd2_dim2: Groups,
    /// The nd1_dim2 groups of equal place along a cp group, joined.
    ///
    /// MindSpeed's ranks leave the creating loop as soon as their own group exists, so they make
    /// different numbers of calls. Here every rank sees all groups.
    pub tp_y_cp: Groups,
    tp_groups: usize,
}

impl Tp2dGroups {
    /// The four kinds within tp in the sequence in which MindSpeed makes them, with its names.
    #[must_use]
    pub fn creation_sequence(&self) -> Vec<(&'static str, Vec<Rank>)> {
        let kinds = [
            ("nd1_dim1", &self.nd1_dim1),
            ("nd1_dim2", &self.nd1_dim2),
            ("nd2_dim1", &self.nd2_dim1),
            ("nd2_dim2", &self.nd2_dim2),
        ];
        (0..self.tp_groups)
            .flat_map(|index| {
                kinds.map(|(name, groups)| share(groups, index, self.tp_groups, name))
            })
            .flatten()
            .collect()
    }
}

/// Experts spread over tp*ep ranks, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TpExtendEp {
    /// The groups of tp*ep ranks that dispatch among themselves.
    pub groups: Groups,
    /// Experts on each rank.
    pub experts_per_rank: u32,
}

impl Layout {
    /// MindSpeed's context parallel groups.
    ///
    /// # Errors
    /// cp of 1, an order that MindSpeed does not honour, a Ulysses degree or window that does not
    /// divide, heads that cannot be spread.
    pub fn mindspeed_cp(&self, options: &CpOptions) -> Result<CpGroups, MindSpeedError> {
        let cp = self.dims().cp;
        if cp < 2 {
            return Err(MindSpeedError::CpNotSplit { cp });
        }
        self.check_order(GroupKind::Cp)?;
        let degree = self.checked_degree(options)?;
        let ring_size = cp / degree;
        let window = factor(options.window, ring_size, ring_size - 1).ok_or_else(|| {
            MindSpeedError::Window {
                window: options.window,
                ring: ring_size,
                legal: divisors_to(ring_size, ring_size - 1),
            }
        })?;
        let cp_groups = self.groups(GroupKind::Cp);
        // Members of a cp group lie one stride apart, and cp is at least 2.
        let stride = cp_groups.offsets()[1];
        let ulysses = split_near(cp_groups.firsts(), cp, degree, stride);
        let ring = split_far(cp_groups.firsts(), ring_size, degree, stride);
        let step = stride * degree;
        let hybrid = matches!(options.algorithm, CpAlgorithm::Hybrid { .. });
        Ok(CpGroups {
            intra: split_near(ring.firsts(), ring_size, window, step),
            intra_overlap: options.send_recv_overlap,
            inter_kv: split_far(ring.firsts(), ring_size / window, window, step),
            inter_dkv: ring
                .iter()
                .flat_map(|members| routes(&members.to_vec(), window))
                .collect(),
            cp_groups: cp_groups.len(),
            cp2: options.send_recv_overlap.then_some(cp_groups),
            ulysses: hybrid.then_some(ulysses),
            ring: hybrid.then_some(ring),
        })
    }

    /// MindSpeed's 2-D tensor parallel groups.
    ///
    /// # Errors
    /// Factors whose product is not tp, expert parallelism, an order that MindSpeed does not honour.
    pub fn mindspeed_tp_2d(&self, tp_x: i64, tp_y: i64) -> Result<Tp2dGroups, MindSpeedError> {
        let Dims { tp, cp, ep, .. } = self.dims();
        let refused = || MindSpeedError::TpFactors {
            tp_x,
            tp_y,
            tp,
            legal: divisors(tp.into()),
        };
        let x = factor(tp_x, tp, tp).ok_or_else(refused)?;
        let y = factor(tp_y, tp, tp).ok_or_else(refused)?;
        if u64::from(x) * u64::from(y) != u64::from(tp) {
            return Err(refused());
        }
        if ep > 1 {
            return Err(MindSpeedError::Tp2dWithEp { ep });
        }
        self.check_order(GroupKind::Tp)?;
        self.check_order(GroupKind::TpCp)?;
        let tp_groups = self.groups(GroupKind::Tp);
        let stages = self.groups(GroupKind::TpCp);
        Ok(Tp2dGroups {
            nd1_dim1: split_near(tp_groups.firsts(), tp, x, 1),
            nd1_dim2: split_far(tp_groups.firsts(), y, x, 1),
            nd2_dim1: split_near(tp_groups.firsts(), tp, y, 1),
            nd2_dim2: split_far(tp_groups.firsts(), x, y, 1),
            tp_y_cp: split_far(stages.firsts(), y * cp, x, 1),
            tp_groups: tp_groups.len(),
        })
    }

    /// The groups of `--moe-tp-extend-ep`: experts whole, over tp*ep ranks. The same placement as
    /// etp=1 with an ep of tp*ep.
    ///
    /// # Errors
    /// An etp that is not tp, or experts that cannot be spread evenly.
    pub fn mindspeed_tp_extend_ep(&self, experts: i64) -> Result<TpExtendEp, MindSpeedError> {
        let Dims { tp, ep, etp, .. } = self.dims();
        if etp != tp {
            return Err(MindSpeedError::EtpNotTp { etp, tp });
        }
        let refused = MindSpeedError::Experts { experts, tp, ep };
        let Some(count) = u32::try_from(experts).ok().filter(|count| *count > 0) else {
            return Err(refused);
        };
        if !count.is_multiple_of(tp * ep) {
            return Err(refused);
        }
        Ok(TpExtendEp {
            groups: self.groups(GroupKind::EtpEp),
            experts_per_rank: count / (tp * ep),
        })
    }

    fn checked_degree(&self, options: &CpOptions) -> Result<u32, MindSpeedError> {
        let Dims { tp, cp, .. } = self.dims();
        let degree = match options.algorithm {
            CpAlgorithm::Ring => 1,
            CpAlgorithm::Hybrid { ulysses_degree } => factor(ulysses_degree, cp, cp / 2)
                .ok_or_else(|| MindSpeedError::UlyssesDegree {
                    degree: ulysses_degree,
                    cp,
                    legal: divisors_to(cp, cp / 2),
                })?,
        };
        match options.attention_heads {
            Some(heads) if heads < 1 || heads % i64::from(degree * tp) != 0 => {
                Err(MindSpeedError::Heads { heads, degree, tp })
            }
            Some(_) | None => Ok(degree),
        }
    }

    /// Refuses an order under which MindSpeed's presumption about a kind of group is wrong.
    fn check_order(&self, kind: GroupKind) -> Result<(), MindSpeedError> {
        let Dims {
            world, tp, cp, pp, ..
        } = self.dims();
        // The dense groups do not depend on ep and etp; with 1 and 1 nothing else can be refused.
        let presumed = Self::builder()
            .world(world)
            .tp(tp)
            .cp(cp)
            .pp(pp)
            .etp(1)
            .rank_offset(self.rank_offset())
            .build();
        let agrees = presumed.is_ok_and(|presumed| presumed.groups(kind) == self.groups(kind));
        if agrees {
            return Ok(());
        }
        Err(MindSpeedError::OrderNotDefault {
            order: self.order().to_owned(),
            kind,
        })
    }
}

/// A size that divides `whole` and is at most `highest`.
fn factor(size: i64, whole: u32, highest: u32) -> Option<u32> {
    u32::try_from(size)
        .ok()
        .filter(|size| *size > 0 && *size <= highest && whole.is_multiple_of(*size))
}

fn divisors_to(whole: u32, highest: u32) -> Vec<u32> {
    let mut legal = divisors(whole.into());
    legal.retain(|size| *size <= highest);
    legal
}

/// Splits each group of `size` members, `stride` apart, into runs of `run` neighbours.
fn split_near(firsts: &[u32], size: u32, run: u32, stride: u32) -> Groups {
    let begins = |first: &u32| {
        let first = *first;
        (0..size / run).map(move |index| first + index * run * stride)
    };
    Groups::new(
        firsts.iter().flat_map(begins).collect(),
        (0..run).map(|index| index * stride).collect(),
    )
}

/// Splits each group of `size * every` members, `stride` apart, into `every` groups of each
/// `every`-th member.
fn split_far(firsts: &[u32], size: u32, every: u32, stride: u32) -> Groups {
    let begins = |first: &u32| {
        let first = *first;
        (0..every).map(move |index| first + index * stride)
    };
    Groups::new(
        firsts.iter().flat_map(begins).collect(),
        (0..size).map(|index| index * every * stride).collect(),
    )
}

/// The routes through a ring on which each hop leads to the next window and one place on.
///
/// Every member lies on exactly one route; routes begin in the first window, lowest first.
fn routes(ring: &[Rank], window: u32) -> Vec<Vec<Rank>> {
    let window = Rank(window).index();
    let windows = ring.len() / window;
    let mut seen = vec![false; ring.len()];
    let mut routes = Vec::new();
    for start in 0..window {
        let (mut at_window, mut place) = (0, start);
        let mut route = Vec::new();
        while !seen[at_window * window + place] {
            seen[at_window * window + place] = true;
            route.push(ring[at_window * window + place]);
            at_window = (at_window + 1) % windows;
            place = (place + 1) % window;
        }
        if !route.is_empty() {
            routes.push(route);
        }
    }
    routes
}

/// The part of a list that came from one of `of` equal sources.
fn share(
    groups: &Groups,
    index: usize,
    of: usize,
    name: &'static str,
) -> Vec<(&'static str, Vec<Rank>)> {
    let each = groups.len() / of;
    groups
        .iter()
        .skip(index * each)
        .take(each)
        .map(|group| (name, group.to_vec()))
        .collect()
}
