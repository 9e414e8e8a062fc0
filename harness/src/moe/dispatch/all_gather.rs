//! Megatron-LM's all-gather dispatcher: every rank gets every token, with the map and the weights of
//! the routing, takes what is its experts', and the results are summed and scattered.

use muster_comm::error::CommError;
use muster_comm::types::ReduceOp;

use super::rows::{Rows, scaled};
use super::{Outcome, Phase, Received, Watch};
use crate::moe::data::Number;
use crate::moe::routing::{Routing, WEIGHT_UNITS};

/// One step.
pub(super) fn step<T: Number>(
    rows: Rows<'_>,
    routing: &Routing,
    watch: &mut Watch,
    keep: bool,
) -> Result<Outcome, CommError> {
    let (layer, hidden) = (rows.layer, rows.layer.hidden);
    let (experts, group) = (layer.shape.experts, &layer.etp_ep);
    let input = rows.input::<T>(routing);
    let counts = watch.run(Phase::Counts, || {
        let mine = [i64::try_from(routing.tokens()).unwrap_or(i64::MAX)];
        let mut all = vec![0_i64; group.size()];
        group.all_gather(&mine, &mut all)?;
        let count = |number: &i64| usize::try_from(*number).unwrap_or(0);
        Ok(all.iter().map(count).collect::<Vec<_>>())
    })?;
    let all: usize = counts.iter().sum();
    let (chosen, probs) = watch.run(Phase::Permute, || {
        let mut chosen = vec![0_u8; routing.tokens() * experts];
        let mut probs = vec![0.0_f32; routing.tokens() * experts];
        for (token, place, expert) in routing.selections() {
            chosen[token * experts + expert] = 1;
            let units = routing.weights_of(token)[place];
            probs[token * experts + expert] = f32::from(units) / f32::from(WEIGHT_UNITS);
        }
        Ok((chosen, probs))
    })?;
    let (mut map, mut weights) = (vec![0_u8; all * experts], vec![0.0_f32; all * experts]);
    watch.run(Phase::Probs, || {
        let counts = scaled(&counts, experts);
        group.all_gather_v(&chosen, &mut map, &counts)?;
        group.all_gather_v(&probs, &mut weights, &counts)
    })?;
    let mut tokens = vec![T::from_f32(0.0); all * hidden];
    watch.run(Phase::Tokens, || {
        group.all_gather_v(&input, &mut tokens, &scaled(&counts, hidden))
    })?;
    let mine = layer.experts_of(layer.my().ep);
    let of_token = |token: usize| -> f32 {
        let row = token * experts;
        let here = mine.clone().filter(|expert| map[row + expert] == 1);
        // The sum of nothing is -0 by the library's account.
        here.fold(0.0, |sum, expert| sum + weights[row + expert])
    };
    let weights: Vec<f32> = (0..all).map(of_token).collect();
    let received = keep.then(|| Received::new(&tokens, weights.clone()));
    let made: Vec<f32> = watch.run(Phase::Experts, || {
        let wide: Vec<f32> = tokens.iter().map(|element| element.to_f32()).collect();
        Ok(rows.experts(wide, &weights))
    })?;
    let mut combined = vec![0.0_f32; routing.tokens() * hidden];
    watch.run(Phase::Back, || {
        group.reduce_scatter_v(
            &made,
            &scaled(&counts, hidden),
            &mut combined,
            ReduceOp::Sum,
        )
    })?;
    Ok(Outcome {
        combined,
        received,
        rows_sent: routing.tokens() * group.size(),
        rows_received: all,
        rows_own: routing.tokens(),
    })
}
