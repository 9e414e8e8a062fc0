//! Equal splits: each source sends every expert the same number of rows, its capacity. What is
//! more is dropped, what is less is padded; no counts are exchanged.

use muster_comm::error::CommError;

use super::rows::{PADDING, Rows, Splits};
use super::{Outcome, Phase, Received, Recount, Watch, kept_places};
use crate::moe::data::Number;
use crate::moe::routing::{Routing, WEIGHT_UNITS};

/// One step, with `capacity` rows for each expert from each source.
pub(super) fn step<T: Number>(
    rows: Rows<'_>,
    capacity: usize,
    routing: &Routing,
    watch: &mut Watch,
    recount: &Recount<'_>,
) -> Result<Outcome, CommError> {
    let (layer, hidden) = (rows.layer, rows.layer.hidden);
    let shape = layer.shape;
    let input = rows.input::<T>(routing);
    let all = shape.experts * capacity;
    let (copies, probs, places) = watch.run(Phase::Permute, || {
        let mut copies = layer.pool.take(all * hidden, T::from_f32(0.0));
        let mut probs = vec![0.0_f32; all];
        let mut places = vec![PADDING; all];
        for (token, place, expert, number) in kept_places(routing, shape.experts, capacity) {
            let row = expert * capacity + number;
            copies[row * hidden..(row + 1) * hidden]
                .copy_from_slice(&input[token * hidden..(token + 1) * hidden]);
            probs[row] = f32::from(routing.weights_of(token)[place]) / f32::from(WEIGHT_UNITS);
            places[row] = token;
        }
        Ok((copies, probs, places))
    })?;
    let block = shape.local() * capacity;
    let even = vec![block; shape.ranks];
    let splits = Splits {
        send: even.clone(),
        recv: even,
        even: true,
        parts: vec![all; layer.etp_size()],
    };
    layer.pool.give(input);
    let tokens = rows.send(&copies, &splits, watch)?;
    layer.pool.give(copies);
    let weights = rows.send_beside(&probs, 1, &splits, watch)?;
    // A row of padding has no weight; every other has at least one unit.
    let is_real = |weight: &&f32| **weight > 0.0;
    let rows_received = weights.iter().filter(is_real).count();
    let (tokens, weights) = rows.gather(tokens, weights, &splits, watch)?;
    let received = recount.is_checked().then(|| {
        let real = |row: &usize| weights[*row] > 0.0;
        let numbers: Vec<usize> = (0..weights.len()).filter(real).collect();
        let of = |row: &usize| tokens[row * hidden..(row + 1) * hidden].iter().copied();
        let tokens: Vec<T> = numbers.iter().flat_map(of).collect();
        Received::new(&tokens, numbers.iter().map(|row| weights[*row]).collect())
    });
    let combined = rows.answer((tokens, &weights), &splits, (&places, routing), watch)?;
    let kept = |places: &[usize]| places.iter().filter(|place| **place != PADDING).count();
    Ok(Outcome {
        combined,
        received,
        rows_sent: kept(&places),
        rows_received,
        rows_own: kept(&places[layer.my().ep * block..][..block]),
    })
}
