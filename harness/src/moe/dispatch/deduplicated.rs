//! One copy of a token for each rank that has any of its experts, with the list of them: what DeepEP
//! and its like send. The rank sums its own experts' results, and one row comes back.

use muster_comm::error::CommError;

use super::rows::{Rows, Splits};
use super::{Outcome, Phase, Received, Recount, Watch};
use crate::moe::data::Number;
use crate::moe::layer::Layer;
use crate::moe::routing::{MASKED, Routing, WEIGHT_UNITS};

/// In place of an expert's number on its rank: not here.
const ELSEWHERE: i32 = -1;

/// Rows to send: the token of each, and for each of its selections the expert on that rank and the
/// weight.
struct Outbound {
    places: Vec<usize>,
    experts: Vec<i32>,
    weights: Vec<f32>,
    send: Vec<usize>,
}

/// One step.
pub(super) fn step<T: Number>(
    rows: Rows<'_>,
    routing: &Routing,
    watch: &mut Watch,
    recount: &mut Recount<'_>,
) -> Result<Outcome, CommError> {
    let (layer, hidden, top_k) = (rows.layer, rows.layer.hidden, routing.top_k());
    let input = rows.input::<T>(routing);
    let (outbound, copies) = watch.run(Phase::Permute, || {
        let outbound = pack(layer, routing);
        let mut copies = layer.pool.empty(outbound.places.len() * hidden);
        for token in &outbound.places {
            copies.extend_from_slice(&input[token * hidden..(token + 1) * hidden]);
        }
        Ok((outbound, copies))
    })?;
    let splits = exchange_counts(layer, &outbound.send, watch, recount)?;
    layer.pool.give(input);
    let tokens = rows.send(&copies, &splits, watch)?;
    layer.pool.give(copies);
    let experts = rows.send_beside(&outbound.experts, top_k, &splits, watch)?;
    let weights = rows.send_beside(&outbound.weights, top_k, &splits, watch)?;
    let weights = watch.run(Phase::Experts, || {
        let of_row = |(experts, weights): (&[i32], &[f32])| -> f32 {
            let both = experts.iter().zip(weights);
            both.filter(|(expert, _)| **expert != ELSEWHERE)
                .map(|(_, weight)| weight)
                .sum()
        };
        let pairs = experts.chunks_exact(top_k).zip(weights.chunks_exact(top_k));
        Ok(pairs.map(of_row).collect::<Vec<f32>>())
    })?;
    let arrived = weights.len();
    let (tokens, weights) = rows.gather(tokens, weights, &splits, watch)?;
    let received = recount
        .is_checked()
        .then(|| Received::new(&tokens, weights.clone()));
    let combined = rows.answer(
        (tokens, &weights),
        &splits,
        (&outbound.places, routing),
        watch,
    )?;
    Ok(Outcome {
        combined,
        received,
        rows_sent: outbound.places.len(),
        rows_received: arrived,
        rows_own: splits.send[layer.my().ep],
    })
}

fn pack(layer: &Layer, routing: &Routing) -> Outbound {
    let mut outbound = Outbound {
        places: Vec::new(),
        experts: Vec::new(),
        weights: Vec::new(),
        send: Vec::with_capacity(layer.shape.ranks),
    };
    for ep in 0..layer.shape.ranks {
        let here = layer.experts_of(ep);
        let before = outbound.places.len();
        for token in 0..routing.tokens() {
            let experts = routing.experts_of(token);
            let is_here = |expert: u32| expert != MASKED && here.contains(&(expert as usize));
            if !experts.iter().any(|expert| is_here(*expert)) {
                continue;
            }
            outbound.places.push(token);
            for (expert, units) in experts.iter().zip(routing.weights_of(token)) {
                let number = (*expert as usize).wrapping_sub(here.start);
                let number = i32::try_from(number).unwrap_or(ELSEWHERE);
                let number = if is_here(*expert) { number } else { ELSEWHERE };
                outbound.experts.push(number);
                let weight = f32::from(*units) / f32::from(WEIGHT_UNITS);
                outbound.weights.push(weight);
            }
        }
        outbound.send.push(outbound.places.len() - before);
    }
    outbound
}

/// All members tell each other how many rows each of them gets, and those of an expert how many came.
fn exchange_counts(
    layer: &Layer,
    send: &[usize],
    watch: &mut Watch,
    recount: &mut Recount<'_>,
) -> Result<Splits, CommError> {
    let count = |number: i64| usize::try_from(number).unwrap_or(0);
    let mine: Vec<i64> = send
        .iter()
        .map(|rows| i64::try_from(*rows).unwrap_or(i64::MAX))
        .collect();
    let mut theirs = vec![0_i64; mine.len()];
    layer
        .ep
        .all_to_all(Phase::Counts, watch, &mine, &mut theirs)?;
    let my = layer.my();
    let of = |ep: usize, etp: usize| layer.members[layer.member(ep, etp)].world;
    recount.mend(0, &mut theirs, (my.ep, &mine[my.ep..=my.ep]), &|ep| {
        of(ep, my.etp)
    });
    let recv: Vec<usize> = theirs.into_iter().map(count).collect();
    let arrived = recv.iter().sum();
    let parts = match &layer.etp {
        None => vec![arrived],
        Some(etp) => {
            let mut parts = vec![0_i64; etp.size()];
            let mine = [i64::try_from(arrived).unwrap_or(i64::MAX)];
            etp.all_gather(Phase::Counts, watch, &mine, &mut parts)?;
            let whose = |part: usize| of(my.ep, part);
            recount.mend(send.len(), &mut parts, (my.etp, &mine), &whose);
            parts.into_iter().map(count).collect()
        }
    };
    Ok(Splits {
        send: send.to_vec(),
        recv,
        even: false,
        parts,
    })
}
