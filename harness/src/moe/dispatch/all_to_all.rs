//! Megatron-LM's all-to-all dispatcher: a copy of the token for each of its experts, no
//! deduplication, counts first.

use muster_comm::error::CommError;

use super::rows::{Rows, Splits};
use super::{Outcome, Phase, Received, Recount, Watch};
use crate::moe::data::Number;
use crate::moe::layer::Layer;
use crate::moe::routing::{Routing, WEIGHT_UNITS};

/// One step.
pub(super) fn step<T: Number>(
    rows: Rows<'_>,
    routing: &Routing,
    watch: &mut Watch,
    recount: &mut Recount<'_>,
) -> Result<Outcome, CommError> {
    let layer = rows.layer;
    let input = rows.input::<T>(routing);
    let splits = exchange_counts(layer, routing, watch, recount)?;
    let permuted = watch.run(Phase::Permute, || Ok(permute(&input, routing, layer)))?;
    let (copies, probs, places) = permuted;
    layer.pool.give(input);
    let tokens = rows.send(&copies, &splits, watch)?;
    layer.pool.give(copies);
    let weights = rows.send_beside(&probs, 1, &splits, watch)?;
    let arrived = weights.len();
    let (tokens, weights) = rows.gather(tokens, weights, &splits, watch)?;
    let received = recount
        .is_checked()
        .then(|| Received::new(&tokens, weights.clone()));
    let combined = rows.answer((tokens, &weights), &splits, (&places, routing), watch)?;
    Ok(Outcome {
        combined,
        received,
        rows_sent: places.len(),
        rows_received: arrived,
        rows_own: splits.send[layer.my().ep],
    })
}

/// All members tell each other how many rows each of their experts gets.
fn exchange_counts(
    layer: &Layer,
    routing: &Routing,
    watch: &mut Watch,
    recount: &mut Recount<'_>,
) -> Result<Splits, CommError> {
    let experts = layer.shape.experts;
    let mine: Vec<i64> = routing
        .counts(experts)
        .into_iter()
        .map(|count| i64::try_from(count).unwrap_or(i64::MAX))
        .collect();
    let mut all = vec![0_i64; experts * layer.members.len()];
    layer
        .etp_ep
        .all_gather(Phase::Counts, watch, &mine, &mut all)?;
    let whose = |place: usize| layer.members[place / experts].world;
    recount.mend(0, &mut all, (layer.me * experts, &mine), &whose);
    let count = |number: &i64| usize::try_from(*number).unwrap_or(0);
    let rows = |member: usize, ep: usize| -> usize {
        let counts = &all[member * experts..(member + 1) * experts];
        counts[layer.experts_of(ep)].iter().map(count).sum()
    };
    let (my, ranks) = (layer.my(), layer.shape.ranks);
    let from = |etp: usize| -> Vec<usize> {
        (0..ranks)
            .map(|ep| rows(layer.member(ep, etp), my.ep))
            .collect()
    };
    Ok(Splits {
        send: (0..ranks).map(|ep| rows(layer.me, ep)).collect(),
        recv: from(my.etp),
        even: false,
        parts: (0..layer.etp_size())
            .map(|etp| from(etp).iter().sum())
            .collect(),
    })
}

/// A copy of the token for each selection, in the order of the experts and of the tokens within an
/// expert; the weights in the same order; and the token of each row.
fn permute<T: Number>(
    input: &[T],
    routing: &Routing,
    layer: &Layer,
) -> (Vec<T>, Vec<f32>, Vec<usize>) {
    let hidden = layer.hidden;
    let counts = routing.counts(layer.shape.experts);
    let mut next = Vec::with_capacity(counts.len());
    let mut rows = 0_usize;
    for count in counts {
        next.push(rows);
        rows += usize::try_from(count).unwrap_or(0);
    }
    let mut tokens = layer.pool.take(rows * hidden, T::from_f32(0.0));
    let mut probs = vec![0.0; rows];
    let mut places = vec![0; rows];
    for (token, place, expert) in routing.selections() {
        let row = next[expert];
        next[expert] += 1;
        tokens[row * hidden..(row + 1) * hidden]
            .copy_from_slice(&input[token * hidden..(token + 1) * hidden]);
        probs[row] = f32::from(routing.weights_of(token)[place]) / f32::from(WEIGHT_UNITS);
        places[row] = token;
    }
    (tokens, probs, places)
}
