//! Routing: the experts of each token, and the counts that follow from them.
//!
//! ROUTING-1: the choice of a token depends on workload, shape, seed, step, source and token only, so
//! every rank, and whoever recounts, can make any part of it.
//! ROUTING-2: the experts of one token are different from each other.

use super::workload::{CHOICE, Shape, WEIGHTS, Workload};
use crate::random::Draws;

/// In place of an expert: this selection sends nothing.
pub const MASKED: u32 = u32::MAX;
/// Weights are multiples of one over this, so that sums of weighted small numbers are exact.
pub const WEIGHT_UNITS: u16 = 16;

/// The tokens of one source, with their experts and weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routing {
    top_k: usize,
    /// Expert of selection `s` of token `t` at `t * top_k + s`; may be [`MASKED`].
    experts: Vec<u32>,
    /// Its weight in units of one over [`WEIGHT_UNITS`], in the same place.
    weights: Vec<u8>,
}

/// What is needed to make the routing of any source.
#[derive(Clone, Debug)]
pub struct Router {
    workload: Workload,
    shape: Shape,
    seed: u64,
    step: u64,
    popularity: Option<Vec<f64>>,
    hot: Option<(Vec<usize>, Vec<usize>, f64)>,
}

impl Routing {
    /// A routing from its selections, `top_k` of each token one after the other. Weights are drawn.
    ///
    /// # Panics
    /// If the number of selections is no multiple of `top_k`.
    #[must_use]
    pub fn new(experts: Vec<u32>, top_k: usize, seed: u64, source: usize) -> Self {
        assert!(
            top_k > 0 && experts.len().is_multiple_of(top_k),
            "whole tokens"
        );
        let mut draws = Draws::of(&[seed, WEIGHTS, source as u64]);
        let units = usize::from(WEIGHT_UNITS) - 1;
        let weight = |_| u8::try_from(draws.below(units) + 1).unwrap_or(1);
        let weights = (0..experts.len()).map(weight).collect();
        Self {
            top_k,
            experts,
            weights,
        }
    }

    /// Number of tokens.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.experts.len() / self.top_k
    }

    /// Experts of a token.
    #[must_use]
    pub fn top_k(&self) -> usize {
        self.top_k
    }

    /// The experts of a token, in the order of its selections.
    #[must_use]
    pub fn experts_of(&self, token: usize) -> &[u32] {
        &self.experts[token * self.top_k..(token + 1) * self.top_k]
    }

    /// The weights of a token's selections, in units of one over [`WEIGHT_UNITS`].
    #[must_use]
    pub fn weights_of(&self, token: usize) -> &[u8] {
        &self.weights[token * self.top_k..(token + 1) * self.top_k]
    }

    /// Every selection that is not masked: token, place, expert.
    pub fn selections(&self) -> impl Iterator<Item = (usize, usize, usize)> {
        let top_k = self.top_k;
        self.experts
            .iter()
            .enumerate()
            .filter(|(_, expert)| **expert != MASKED)
            .map(move |(at, expert)| (at / top_k, at % top_k, *expert as usize))
    }

    /// How many selections each expert gets.
    #[must_use]
    pub fn counts(&self, experts: usize) -> Vec<u64> {
        let mut counts = vec![0; experts];
        for (_, _, expert) in self.selections() {
            counts[expert] += 1;
        }
        counts
    }
}

impl Router {
    /// Makes what the routing of a step has in common over all sources.
    ///
    /// # Panics
    /// If the shape does not allow the workload ([`Workload::check`]).
    #[must_use]
    pub fn new(workload: Workload, shape: Shape, seed: u64, step: u64) -> Self {
        let hot = workload.hot(shape, seed, step).map(|(hot, fraction)| {
            let cold = (0..shape.experts).filter(|expert| hot.binary_search(expert).is_err());
            let cold = cold.collect();
            (hot, cold, fraction)
        });
        Self {
            workload,
            shape,
            seed,
            step,
            popularity: workload.weights(shape, seed),
            hot,
        }
    }

    /// The routing of one source of `sources`, where each has `mean` tokens on average.
    ///
    /// Cost: about `experts` logarithms a token for popularity workloads, else `top_k` draws.
    #[must_use]
    pub fn route(&self, source: usize, sources: usize, mean: usize) -> Routing {
        let tokens = self.workload.tokens(source, sources, mean);
        let top_k = self.shape.top_k;
        let mut experts = Vec::with_capacity(tokens * top_k);
        let mut scratch: Vec<usize> = (0..self.shape.experts).collect();
        for token in 0..tokens {
            let mut draws = Draws::of(&[self.seed, CHOICE, self.step, source as u64, token as u64]);
            if let Some((hot, cold, fraction)) = &self.hot {
                let wanted = fraction * top_k as f64;
                let extra = usize::from(draws.next_unit() < wanted.fract());
                let from_hot = (whole_part(wanted) + extra).min(hot.len()).min(top_k);
                choose(&mut draws, &mut hot.clone(), from_hot, &mut experts);
                choose(
                    &mut draws,
                    &mut cold.clone(),
                    top_k - from_hot,
                    &mut experts,
                );
            } else if let Some(weights) = &self.popularity {
                first_arrivals(&mut draws, weights, top_k, &mut experts);
            } else if self.workload == Workload::Balanced {
                let first = (source * mean + token) * top_k;
                experts.extend((first..first + top_k).map(|turn| self.dealt(turn)));
            } else {
                choose(&mut draws, &mut scratch, top_k, &mut experts);
            }
        }
        Routing::new(experts, top_k, self.seed, source)
    }

    /// The expert at a turn when experts are dealt rank by rank.
    fn dealt(&self, turn: usize) -> u32 {
        let Shape { ranks, experts, .. } = self.shape;
        let place = turn % experts;
        number((place % ranks) * self.shape.local() + place / ranks)
    }
}

fn whole_part(value: f64) -> usize {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a fraction of top-k: small and not negative"
    )]
    let whole = value.floor() as usize;
    whole
}

fn number(expert: usize) -> u32 {
    u32::try_from(expert).unwrap_or(MASKED)
}

/// `count` of the candidates, each as likely, none twice. Changes the candidates' order only.
fn choose(draws: &mut Draws, candidates: &mut [usize], count: usize, into: &mut Vec<u32>) {
    for place in 0..count {
        let other = place + draws.below(candidates.len() - place);
        candidates.swap(place, other);
        into.push(number(candidates[place]));
    }
}

/// `count` experts without replacement in proportion to their weights: those whose exponential
/// clocks ring first.
fn first_arrivals(draws: &mut Draws, weights: &[f64], count: usize, into: &mut Vec<u32>) {
    let mut clocks: Vec<(f64, usize)> = weights
        .iter()
        .enumerate()
        .map(|(expert, weight)| (-draws.next_unit().ln() / weight, expert))
        .collect();
    if count < clocks.len() {
        clocks.select_nth_unstable_by(count - 1, |a, b| a.0.total_cmp(&b.0));
        clocks.truncate(count);
    }
    clocks.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    into.extend(clocks.into_iter().map(|(_, expert)| number(expert)));
}

#[cfg(test)]
mod tests;
