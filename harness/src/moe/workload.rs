//! Workloads: who is popular, and who has how many tokens.
//!
//! A workload decides the experts of each token (`routing`), never the split sizes: those follow.
//! What is asked of the experts' loads is known exactly or, where experts are drawn by popularity
//! without replacement, by a formula whose error is far below sampling noise ([`Workload::expected`]).

use std::fmt;
use std::str::FromStr;

use muster_comm::types::closest;
use serde::{Deserialize, Serialize};

use super::skew::Skew;
use crate::random::Draws;

/// Purposes of random numbers, so that they do not depend on one another.
pub(super) const POPULARITY: u64 = 1;
/// Choice of a token's experts.
pub(super) const CHOICE: u64 = 2;
/// Weights of a token's experts.
pub(super) const WEIGHTS: u64 = 3;

/// How experts are chosen and tokens spread.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Workload {
    /// Experts dealt in turn, rank by rank first: every expert gets the same number of selections.
    Balanced,
    /// `hot` experts, drawn by lot, get this fraction of all selections.
    HotExperts {
        /// How many.
        hot: usize,
        /// Their part of all selections.
        fraction: f64,
    },
    /// The experts of one ep rank get `ratio` times the mean of the others.
    HotRank {
        /// Times the mean of the others.
        ratio: f64,
        /// The ep rank.
        rank: usize,
    },
    /// Popularity is log-normal: `exp(sigma * z)` with `z` standard normal, the same on all ranks.
    LogNormal {
        /// Standard deviation of the logarithm.
        sigma: f64,
    },
    /// As [`Workload::HotRank`], another rank in each step.
    Rotating {
        /// Times the mean of the others.
        ratio: f64,
    },
    /// Sources have different numbers of tokens, falling evenly from the first to the last, and the
    /// last `empty` none at all; experts are uniform.
    Uneven {
        /// Sources without tokens.
        empty: usize,
    },
    /// Every expert as likely as every other.
    Uniform,
    /// Popularity falls as a power: the expert at place `i` has weight `1 / (i + 1)^alpha`.
    Zipf {
        /// The exponent.
        alpha: f64,
        /// The place is the expert's number, so that the popular ones lie on the first ranks;
        /// otherwise places are dealt by lot.
        by_id: bool,
    },
}

/// What a workload is applied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Routed experts.
    pub experts: usize,
    /// Experts of each token.
    pub top_k: usize,
    /// Expert parallel ranks: rank `r` holds the experts from `r * experts / ranks` on.
    pub ranks: usize,
}

impl Shape {
    /// Experts of each rank.
    #[must_use]
    pub const fn local(&self) -> usize {
        self.experts / self.ranks
    }
}

/// Most tokens of a rank for which vllm-ascend takes MC2, its fused dispatch and combine.
const MC2_TOKENS_MAX: usize = 512;
/// Fewest EP ranks, and most experts of a rank, for which it does so on Atlas A2.
const MC2_RANKS_MIN_A2: usize = 16;
const MC2_EXPERTS_MAX_A2: usize = 24;

impl Shape {
    /// Where vllm-ascend would not take MC2 for so many tokens of a rank, and what it takes: a sentence each.
    ///
    /// **Source**: vllm-ascend, `ascend_forward_context.py` (`select_moe_comm_method`).
    #[must_use]
    pub fn beyond_mc2(&self, tokens: &[usize]) -> Vec<String> {
        let mut beyond = Vec::new();
        if self.ranks < MC2_RANKS_MIN_A2 {
            beyond.push(format!(
                "on A2 vllm-ascend takes MC2 from EP={MC2_RANKS_MIN_A2} on, and all-gather with EP={}",
                self.ranks
            ));
        } else if self.local() > MC2_EXPERTS_MAX_A2 {
            beyond.push(format!(
                "on A2 vllm-ascend takes MC2 for up to {MC2_EXPERTS_MAX_A2} experts of a rank, and all-gather for {}",
                self.local()
            ));
        }
        let most = tokens.iter().copied().max().unwrap_or(0);
        if most > MC2_TOKENS_MAX {
            beyond.push(format!(
                "vllm-ascend takes MC2 for up to {MC2_TOKENS_MAX} tokens of a rank; for {most} all-gather on A2, all-to-all on A3"
            ));
        }
        beyond
    }
}

/// What a workload cannot do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}; allowed are {allowed}")]
pub struct WorkloadError {
    what: String,
    allowed: String,
}

const GRAMMAR: &str = "balanced, uniform, lognormal:SIGMA, zipf:ALPHA[,by-id], hot-experts:COUNT,FRACTION, \
    hot-rank:RATIO[,RANK], rotating:RATIO, uneven[:EMPTY]";
const NAMES: [&str; 8] = [
    "balanced",
    "uniform",
    "lognormal",
    "zipf",
    "hot-experts",
    "hot-rank",
    "rotating",
    "uneven",
];
/// Above, one expert has nearly everything and top-k hides it.
const SIGMA_MAX: f64 = 10.0;
/// As [`SIGMA_MAX`].
const ALPHA_MAX: f64 = 10.0;
/// Above, the ratio cannot be told from everything on one rank.
const RATIO_MAX: f64 = 1e6;

impl Workload {
    /// Whether the shape allows the workload.
    ///
    /// # Errors
    /// What does not fit, and what would.
    pub fn check(&self, shape: Shape, sources: usize) -> Result<(), WorkloadError> {
        let wrong = |what: String, allowed: String| Err(WorkloadError { what, allowed });
        let Shape { experts, top_k, .. } = shape;
        match *self {
            Self::HotExperts { hot, fraction } => {
                let (of_hot, of_cold) = (fraction * top_k as f64, (1.0 - fraction) * top_k as f64);
                if hot == 0 || hot >= experts {
                    return wrong(
                        format!("{hot} hot experts of {experts}"),
                        format!("1 to {}", experts - 1),
                    );
                }
                if of_hot > hot as f64 || of_cold > (experts - hot) as f64 {
                    let least = (1.0 - (experts - hot) as f64 / top_k as f64).max(0.0);
                    let most = (hot as f64 / top_k as f64).min(1.0);
                    return wrong(
                        format!(
                            "a fraction of {fraction} for {hot} hot experts, of which a token takes each once"
                        ),
                        format!("fractions from {least:.3} to {most:.3} with top-{top_k}"),
                    );
                }
                Ok(())
            }
            Self::HotRank { ratio, rank } if rank >= shape.ranks => wrong(
                format!("hot-rank:{ratio},{rank} with {} ep ranks", shape.ranks),
                format!("ep ranks from 0 to {}", shape.ranks - 1),
            ),
            Self::HotRank { ratio, .. } | Self::Rotating { ratio } => {
                if shape.ranks == 1 {
                    return wrong(
                        "a hot rank among one ep rank".to_owned(),
                        "ep sizes from 2 on".to_owned(),
                    );
                }
                let part = hot_part(ratio, shape.ranks) * top_k as f64;
                if part > shape.local() as f64
                    || top_k as f64 - part > (experts - shape.local()) as f64
                {
                    let most = shape.local() as f64 / top_k as f64;
                    let limit =
                        most * (shape.ranks - 1) as f64 / (1.0 - most).max(f64::MIN_POSITIVE);
                    return wrong(
                        format!(
                            "a ratio of {ratio} with {} experts on each rank, of which a token takes each once",
                            shape.local()
                        ),
                        format!("ratios up to {limit:.3} with top-{top_k}"),
                    );
                }
                Ok(())
            }
            Self::Uneven { empty } if empty >= sources => wrong(
                format!("{empty} of {sources} ranks without tokens"),
                format!("0 to {}", sources - 1),
            ),
            Self::Balanced
            | Self::LogNormal { .. }
            | Self::Uneven { .. }
            | Self::Uniform
            | Self::Zipf { .. } => Ok(()),
        }
    }

    /// Tokens of source number `source` of `sources`, where each has `mean` on average.
    #[must_use]
    pub fn tokens(&self, source: usize, sources: usize, mean: usize) -> usize {
        let Self::Uneven { empty } = *self else {
            return mean;
        };
        let busy = sources - empty;
        if source >= busy {
            return 0;
        }
        // Shares busy, busy - 1, ... 1 of the whole, cut so that the sum is exact.
        let total = (mean * sources) as u128;
        let shares = (busy * (busy + 1) / 2) as u128;
        let before =
            |source: usize| (source * busy - source * source.saturating_sub(1) / 2) as u128;
        let share = total * before(source + 1) / shares - total * before(source) / shares;
        usize::try_from(share).unwrap_or(usize::MAX)
    }

    /// The expert weights of a popularity workload.
    pub(super) fn weights(&self, shape: Shape, seed: u64) -> Option<Vec<f64>> {
        let mut draws = Draws::of(&[seed, POPULARITY]);
        match *self {
            Self::LogNormal { sigma } => {
                let weight = |_| (sigma * draws.next_normal()).exp();
                Some((0..shape.experts).map(weight).collect())
            }
            Self::Zipf { alpha, by_id } => {
                let places = if by_id {
                    (0..shape.experts).collect()
                } else {
                    draws.permutation(shape.experts)
                };
                let weight = |place: usize| (place as f64 + 1.0).powf(-alpha);
                Some(places.into_iter().map(weight).collect())
            }
            Self::Balanced
            | Self::HotExperts { .. }
            | Self::HotRank { .. }
            | Self::Rotating { .. }
            | Self::Uneven { .. }
            | Self::Uniform => None,
        }
    }

    /// The experts that are hot in a step, and their part of all selections.
    pub(super) fn hot(&self, shape: Shape, seed: u64, step: u64) -> Option<(Vec<usize>, f64)> {
        let of_rank = |rank: usize| {
            let first = rank * shape.local();
            (first..first + shape.local()).collect::<Vec<_>>()
        };
        match *self {
            Self::HotExperts { hot, fraction } => {
                let mut chosen = Draws::of(&[seed, POPULARITY]).permutation(shape.experts);
                chosen.truncate(hot);
                chosen.sort_unstable();
                Some((chosen, fraction))
            }
            Self::HotRank { ratio, rank } => Some((of_rank(rank), hot_part(ratio, shape.ranks))),
            Self::Rotating { ratio } => {
                let rank = usize::try_from(step % shape.ranks as u64).unwrap_or(0);
                Some((of_rank(rank), hot_part(ratio, shape.ranks)))
            }
            Self::Balanced
            | Self::LogNormal { .. }
            | Self::Uneven { .. }
            | Self::Uniform
            | Self::Zipf { .. } => None,
        }
    }

    /// What is asked of each expert in a step: its part of all selections; the parts sum to 1.
    #[must_use]
    pub fn expected(&self, shape: Shape, seed: u64, step: u64) -> Vec<f64> {
        if let Some((hot, fraction)) = self.hot(shape, seed, step) {
            let cold = (1.0 - fraction) / (shape.experts - hot.len()) as f64;
            let mut parts = vec![cold; shape.experts];
            for expert in &hot {
                parts[*expert] = fraction / hot.len() as f64;
            }
            return parts;
        }
        match self.weights(shape, seed) {
            Some(weights) => inclusion(&weights, shape.top_k),
            None => vec![1.0 / shape.experts as f64; shape.experts],
        }
    }

    /// The imbalance that is asked for, by expert and by ep rank.
    #[must_use]
    pub fn asked(&self, shape: Shape, seed: u64, step: u64) -> (Skew, Skew) {
        let experts = self.expected(shape, seed, step);
        let ranks: Vec<f64> = experts
            .chunks(shape.local())
            .map(|part| part.iter().sum())
            .collect();
        (Skew::of(&experts), Skew::of(&ranks))
    }
}

/// Part of all selections for a rank that gets `ratio` times the mean of the other `ranks - 1`.
fn hot_part(ratio: f64, ranks: usize) -> f64 {
    ratio / (ratio + ranks as f64 - 1.0)
}

/// Part of all selections of each expert where each token takes the `top_k` first arrivals of
/// independent exponential clocks with these rates, which is drawing without replacement in
/// proportion to the weights. At the time `t` when `top_k` clocks have rung on average, clock `i`
/// has with probability `1 - exp(-w_i t)`.
fn inclusion(weights: &[f64], top_k: usize) -> Vec<f64> {
    let count = weights.len();
    if top_k >= count {
        return vec![1.0 / count as f64; count];
    }
    let rung = |time: f64| {
        weights
            .iter()
            .map(|weight| -(-weight * time).exp_m1())
            .sum::<f64>()
    };
    let wanted = top_k as f64;
    let (mut low, mut high) = (0.0, 1.0);
    while rung(high) < wanted && high < f64::MAX / 4.0 {
        high *= 2.0;
    }
    for _ in 0..200 {
        let middle = f64::midpoint(low, high);
        if rung(middle) < wanted {
            low = middle;
        } else {
            high = middle;
        }
    }
    weights
        .iter()
        .map(|weight| -(-weight * high).exp_m1() / wanted)
        .collect()
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Balanced => f.write_str("balanced"),
            Self::HotExperts { hot, fraction } => write!(f, "hot-experts:{hot},{fraction}"),
            Self::HotRank { ratio, rank } => write!(f, "hot-rank:{ratio},{rank}"),
            Self::LogNormal { sigma } => write!(f, "lognormal:{sigma}"),
            Self::Rotating { ratio } => write!(f, "rotating:{ratio}"),
            Self::Uneven { empty } => write!(f, "uneven:{empty}"),
            Self::Uniform => f.write_str("uniform"),
            Self::Zipf { alpha, by_id: true } => write!(f, "zipf:{alpha},by-id"),
            Self::Zipf {
                alpha,
                by_id: false,
            } => write!(f, "zipf:{alpha}"),
        }
    }
}

impl FromStr for Workload {
    type Err = WorkloadError;

    fn from_str(given: &str) -> Result<Self, WorkloadError> {
        let (name, rest) = given.split_once(':').unwrap_or((given, ""));
        let parts: Vec<&str> = rest
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
            .collect();
        let parsed = match (name, parts.as_slice()) {
            ("balanced", []) => Self::Balanced,
            ("uniform", []) => Self::Uniform,
            ("lognormal", [sigma]) => Self::LogNormal {
                sigma: real("sigma", sigma, 0.0, SIGMA_MAX)?,
            },
            ("zipf", [alpha]) => Self::Zipf {
                alpha: real("alpha", alpha, 0.0, ALPHA_MAX)?,
                by_id: false,
            },
            ("zipf", [alpha, "by-id"]) => Self::Zipf {
                alpha: real("alpha", alpha, 0.0, ALPHA_MAX)?,
                by_id: true,
            },
            ("hot-experts", [hot, fraction]) => Self::HotExperts {
                hot: whole("the number of hot experts", hot)?,
                fraction: real("the fraction", fraction, 0.0, 1.0)?,
            },
            ("hot-rank", [ratio]) => Self::HotRank {
                ratio: real("the ratio", ratio, 0.0, RATIO_MAX)?,
                rank: 0,
            },
            ("hot-rank", [ratio, rank]) => Self::HotRank {
                ratio: real("the ratio", ratio, 0.0, RATIO_MAX)?,
                rank: whole("the ep rank", rank)?,
            },
            ("rotating", [ratio]) => Self::Rotating {
                ratio: real("the ratio", ratio, 0.0, RATIO_MAX)?,
            },
            ("uneven", []) => Self::Uneven { empty: 0 },
            ("uneven", [empty]) => Self::Uneven {
                empty: whole("the number of empty ranks", empty)?,
            },
            _ if NAMES.contains(&name) => {
                return Err(WorkloadError {
                    what: format!("{given:?} has not the parameters of {name}"),
                    allowed: GRAMMAR.to_owned(),
                });
            }
            _ => {
                let meant = closest(name, NAMES);
                let hint =
                    meant.map_or_else(String::new, |meant| format!(" (did you mean {meant}?)"));
                return Err(WorkloadError {
                    what: format!("unknown workload {given:?}{hint}"),
                    allowed: GRAMMAR.to_owned(),
                });
            }
        };
        Ok(parsed)
    }
}

fn real(what: &str, given: &str, least: f64, most: f64) -> Result<f64, WorkloadError> {
    given
        .parse::<f64>()
        .ok()
        .filter(|value| (least..=most).contains(value))
        .ok_or_else(|| WorkloadError {
            what: format!("{what} is {given:?}"),
            allowed: format!("numbers from {least} to {most}"),
        })
}

fn whole(what: &str, given: &str) -> Result<usize, WorkloadError> {
    given.parse().map_err(|_| WorkloadError {
        what: format!("{what} is {given:?}"),
        allowed: "whole numbers from 0 on".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_of_mc2_are_named_where_a_run_is_beyond_them() {
        let shape = |experts: usize, ranks: usize| Shape {
            experts,
            top_k: 8,
            ranks,
        };
        assert_eq!(shape(256, 16).beyond_mc2(&[1, 512]), [] as [String; 0]);
        for (shape, tokens, part) in [
            (shape(256, 8), 1, "all-gather with EP=8"),
            (shape(512, 16), 1, "and all-gather for 32"),
            (shape(256, 16), 513, "for 513 all-gather on A2"),
        ] {
            let beyond = shape.beyond_mc2(&[1, tokens]);
            assert_eq!(beyond.len(), 1, "{beyond:?}");
            assert!(beyond[0].contains(part), "{beyond:?}");
        }
    }
}
