//! Megatron-LM's all-gather dispatcher: every rank gets every token, with the map and the weights of
//! the routing, takes what is its experts', and the results are summed and scattered.

use muster_comm::error::CommError;
use muster_comm::types::ReduceOp;

use super::rows::{Rows, scaled};
use super::{Outcome, Phase, Received, Recount, Watch};
use crate::moe::data::Number;
use crate::moe::routing::{Routing, WEIGHT_UNITS};

/// One step.
pub(super) fn step<T: Number>(
    rows: Rows<'_>,
    routing: &Routing,
    watch: &mut Watch,
    recount: &mut Recount<'_>,
) -> Result<Outcome, CommError> {
    let (layer, hidden) = (rows.layer, rows.layer.hidden);
    let (experts, group) = (layer.shape.experts, &layer.etp_ep);
    let input = rows.input::<T>(routing);
    let mine = [i64::try_from(routing.tokens()).unwrap_or(i64::MAX)];
    let mut all = vec![0_i64; group.size()];
    group.all_gather(Phase::Counts, watch, &mine, &mut all)?;
    let whose = |place: usize| layer.members[place].world;
    recount.mend(0, &mut all, (layer.me, &mine), &whose);
    let count = |number: &i64| usize::try_from(*number).unwrap_or(0);
    let counts: Vec<usize> = all.iter().map(count).collect();
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
    let mut map = layer.pool.take(all * experts, 0_u8);
    let mut weights = layer.pool.take(all * experts, 0.0_f32);
    let by_expert = scaled(&counts, experts);
    group.all_gather_v(Phase::Probs, watch, &chosen, &mut map, &by_expert)?;
    group.all_gather_v(Phase::Probs, watch, &probs, &mut weights, &by_expert)?;
    let pool = &layer.pool;
    let mut tokens = pool.take(all * hidden, T::from_f32(0.0));
    let by_element = scaled(&counts, hidden);
    group.all_gather_v(Phase::Tokens, watch, &input, &mut tokens, &by_element)?;
    let mine = layer.experts_of(layer.my().ep);
    let of_token = |token: usize| -> f32 {
        let row = token * experts;
        let here = mine.clone().filter(|expert| map[row + expert] == 1);
        // The sum of nothing is -0 by the library's account.
        here.fold(0.0, |sum, expert| sum + weights[row + expert])
    };
    let of_rows: Vec<f32> = (0..all).map(of_token).collect();
    pool.give(map);
    pool.give(weights);
    let weights = of_rows;
    let received = recount
        .is_checked()
        .then(|| Received::new(&tokens, weights.clone()));
    let made: Vec<f32> = watch.run(Phase::Experts, || {
        let mut wide: Vec<f32> = pool.empty(tokens.len());
        wide.extend(tokens.iter().map(|element| element.to_f32()));
        Ok(rows.experts(wide, &weights))
    })?;
    pool.give(input);
    pool.give(tokens);
    let mut combined = pool.take(routing.tokens() * hidden, 0.0_f32);
    let sum = ReduceOp::Sum;
    group.reduce_scatter_v(Phase::Back, watch, &made, &by_element, &mut combined, sum)?;
    pool.give(made);
    Ok(Outcome {
        combined,
        received,
        rows_sent: routing.tokens() * group.size(),
        rows_received: all,
        rows_own: routing.tokens(),
    })
}
