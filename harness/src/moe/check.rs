//! What a step must have made, recounted from the routing of all sources and from nothing else.

use std::ops::Range;

use half::bf16;

use super::data;
use super::dispatch::{Dispatcher, kept_places};
use super::layer::{Layer, Payload};
use super::routing::{MASKED, Routing, WEIGHT_UNITS};

/// What was wrong first, and how much in all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wrong {
    /// Elements that are not what they must be.
    pub elements: u64,
    /// The first of them, in words.
    pub first: Option<String>,
}

impl Wrong {
    /// Adds wrong elements, and in words the first of them.
    pub fn note(&mut self, elements: u64, text: impl FnOnce() -> String) {
        self.elements += elements;
        if elements > 0 && self.first.is_none() {
            self.first = Some(text());
        }
    }

    /// Adds what another check found.
    pub fn add(&mut self, other: Self) {
        self.elements += other.elements;
        if self.first.is_none() {
            self.first = other.first;
        }
    }
}

/// A row that must come: source, token, and the sum of its weights for this rank's experts, in units.
pub type Expected = (usize, usize, u32);

/// The rows that this rank must receive, in their order, recounted from the routing of every source.
/// `tokens` is the mean number of tokens of a source; `routing_of` gives the routing of a world rank.
pub fn rows_expected(
    layer: &Layer,
    dispatcher: Dispatcher,
    tokens: usize,
    routing_of: &dyn Fn(usize) -> Routing,
) -> Vec<Expected> {
    let mine = layer.experts_of(layer.my().ep);
    let mut rows = Vec::new();
    if dispatcher == Dispatcher::AllGather {
        for member in &layer.members {
            let routing = routing_of(member.world);
            let row = |token| (member.world, token, units(&routing, token, &mine));
            rows.extend((0..routing.tokens()).map(row));
        }
        return rows;
    }
    let capacity = dispatcher
        .capacity(layer.shape, tokens)
        .unwrap_or(usize::MAX);
    for etp in 0..layer.etp_size() {
        for ep in 0..layer.shape.ranks {
            let source = layer.members[layer.member(ep, etp)].world;
            let routing = routing_of(source);
            if dispatcher == Dispatcher::Deduplicated {
                let row = |token| (source, token, units(&routing, token, &mine));
                let of_source = (0..routing.tokens()).map(row);
                rows.extend(of_source.filter(|(_, _, units)| *units > 0));
                continue;
            }
            let kept = kept_places(&routing, layer.shape.experts, capacity);
            let mut of_source: Vec<_> = kept
                .filter(|(_, _, expert, _)| mine.contains(expert))
                .map(|(token, place, expert, _)| (expert, token, routing.weights_of(token)[place]))
                .collect();
            of_source.sort_by_key(|(expert, token, _)| (*expert, *token));
            let row = |(_, token, weight)| (source, token, u32::from(weight));
            rows.extend(of_source.into_iter().map(row));
        }
    }
    rows
}

/// The counts that this rank must receive in a step, in the order in which its calls receive them.
pub fn counts_expected(
    layer: &Layer,
    dispatcher: Dispatcher,
    routing_of: &dyn Fn(usize) -> Routing,
) -> Vec<i64> {
    let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let members = || layer.members.iter().map(|member| routing_of(member.world));
    match dispatcher {
        Dispatcher::AllGather => members().map(|routing| number(routing.tokens())).collect(),
        Dispatcher::AllToAll => members()
            .flat_map(|routing| routing.counts(layer.shape.experts))
            .map(|count| i64::try_from(count).unwrap_or(i64::MAX))
            .collect(),
        Dispatcher::Capacity(_) => Vec::new(),
        Dispatcher::Deduplicated => {
            let my = layer.my();
            let mine = layer.experts_of(my.ep);
            let rows = |ep: usize, etp: usize| {
                let routing = routing_of(layer.members[layer.member(ep, etp)].world);
                let tokens = 0..routing.tokens();
                number(
                    tokens
                        .filter(|token| units(&routing, *token, &mine) > 0)
                        .count(),
                )
            };
            let sources = 0..layer.shape.ranks;
            let mut counts: Vec<i64> = sources.clone().map(|ep| rows(ep, my.etp)).collect();
            counts.extend((0..layer.etp_size()).map(|etp| {
                let of_sources = sources.clone().map(|ep| rows(ep, etp));
                of_sources.sum::<i64>()
            }));
            counts
        }
    }
}

/// The weights of a token for some experts, in units.
fn units(routing: &Routing, token: usize, experts: &Range<usize>) -> u32 {
    let chosen = routing
        .experts_of(token)
        .iter()
        .zip(routing.weights_of(token));
    chosen
        .filter(|(expert, _)| **expert != MASKED && experts.contains(&(**expert as usize)))
        .map(|(_, weight)| u32::from(*weight))
        .sum()
}

/// Holds received rows against the recount.
#[must_use]
pub fn received(layer: &Layer, expected: &[Expected], tokens: &[f32], probs: &[f32]) -> Wrong {
    let (hidden, me) = (layer.hidden, layer.my().world);
    let mut wrong = Wrong::default();
    let rows = tokens.len() / hidden;
    if rows != expected.len() || probs.len() != expected.len() {
        let (want, weights) = (expected.len(), probs.len());
        wrong.note(1, || {
            format!("rank {me} received {rows} rows and {weights} weights, the routing says {want}")
        });
        return wrong;
    }
    for (row, (source, token, units)) in expected.iter().enumerate() {
        let got = &tokens[row * hidden..(row + 1) * hidden];
        let want = |column| f32::from(data::element(*source, *token, column));
        let is_wrong =
            |(column, element): (usize, &f32)| want(column).to_bits() != element.to_bits();
        let bad = got
            .iter()
            .enumerate()
            .filter(|(at, element)| is_wrong((*at, element)))
            .count();
        wrong.note(bad as u64, || {
            format!(
                "row {row} on rank {me} is not token {token} of rank {source}: {}",
                spelt(got)
            )
        });
        #[expect(clippy::cast_precision_loss, reason = "small whole numbers")]
        let weight = *units as f32 / f32::from(WEIGHT_UNITS);
        wrong.note(u64::from(weight.to_bits() != probs[row].to_bits()), || {
            let got = probs[row];
            format!("the weight of token {token} of rank {source} is {got} on rank {me}, it was {weight}")
        });
    }
    wrong
}

/// Whose row it says it is.
fn spelt(row: &[f32]) -> String {
    let digits = |range: Range<usize>| {
        row[range]
            .iter()
            .rev()
            .fold(0.0, |number, digit| number * 16.0 + f64::from(*digit))
    };
    format!("it says token {} of rank {}", digits(4..10), digits(0..4))
}

/// Holds combined tokens against the input times the sum of the weights of all selections that were
/// not dropped. Where ranks sum their experts' results before they send them back, the partial sums
/// are rounded to what is sent.
#[must_use]
pub fn combined(
    layer: &Layer,
    dispatcher: Dispatcher,
    payload: Payload,
    tokens: usize,
    routing: &Routing,
    got: &[f32],
) -> Wrong {
    let (hidden, source) = (layer.hidden, layer.my().world);
    let mut wrong = Wrong::default();
    if got.len() != routing.tokens() * hidden {
        let want = routing.tokens();
        wrong.note(1, || {
            format!("{} combined elements, {want} tokens of {hidden}", got.len())
        });
        return wrong;
    }
    let capacity = dispatcher
        .capacity(layer.shape, tokens)
        .unwrap_or(usize::MAX);
    let mut parts: Vec<Vec<u32>> = vec![Vec::new(); routing.tokens()];
    if dispatcher == Dispatcher::Deduplicated {
        for (token, parts) in parts.iter_mut().enumerate() {
            let of_rank = |ep| units(routing, token, &layer.experts_of(ep));
            parts.extend((0..layer.shape.ranks).map(of_rank));
        }
    } else {
        for (token, place, _, _) in kept_places(routing, layer.shape.experts, capacity) {
            parts[token].push(u32::from(routing.weights_of(token)[place]));
        }
    }
    for (token, parts) in parts.iter().enumerate() {
        let row = &got[token * hidden..(token + 1) * hidden];
        let want = |column| combined_element(source, token, column, parts, payload);
        let bad: Vec<usize> = (0..hidden)
            .filter(|column| want(*column).to_bits() != row[*column].to_bits())
            .collect();
        wrong.note(bad.len() as u64, || {
            let column = bad[0];
            let (got, want) = (row[column], want(column));
            format!("combined token {token} of rank {source}, element {column}: got {got}, expected {want}")
        });
    }
    wrong
}

fn combined_element(
    source: usize,
    token: usize,
    column: usize,
    parts: &[u32],
    payload: Payload,
) -> f32 {
    let element = f32::from(data::element(source, token, column));
    let part = |units: &u32| {
        // At most 16 selections of 15 units: whole numbers that f32 holds.
        #[expect(clippy::cast_precision_loss, reason = "small whole numbers")]
        let exact = element * *units as f32 / f32::from(WEIGHT_UNITS);
        match payload {
            Payload::F32 => exact,
            Payload::Bf16 | Payload::Fp8 => bf16::from_f32(exact).to_f32(),
        }
    };
    // Exact: multiples of a sixteenth, far below 2^24 of them.
    parts.iter().map(part).fold(0.0, |sum, part| sum + part)
}
