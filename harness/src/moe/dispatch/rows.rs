//! What the dispatchers have in common: rows of tokens go to the ranks of their experts, are
//! multiplied by a weight there, and come back.

use muster_comm::buffer::Element;
use muster_comm::error::CommError;
use muster_comm::types::ReduceOp;

use super::{Phase, Watch};
use crate::moe::data::{self, Number, SCALE_BLOCK};
use crate::moe::layer::{Layer, Payload};
use crate::moe::routing::Routing;

/// How many rows go where, in one dispatch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Splits {
    /// Rows to each ep rank.
    pub(super) send: Vec<usize>,
    /// Rows from each ep rank.
    pub(super) recv: Vec<usize>,
    /// Whether all of these are equal by agreement, so that no counts need to go with a call.
    pub(super) even: bool,
    /// Rows that each etp rank received.
    pub(super) parts: Vec<usize>,
}

/// The rows of one rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows<'a> {
    pub(super) layer: &'a Layer,
    pub(super) payload: Payload,
}

impl Rows<'_> {
    /// The tokens of this rank.
    pub(super) fn input<T: Number>(&self, routing: &Routing) -> Vec<T> {
        let (source, hidden) = (self.layer.my().world, self.layer.hidden);
        let count = routing.tokens() * hidden;
        let mut input = self.layer.pool.empty(count);
        input.extend(
            (0..count)
                .map(|at| T::from_f32(f32::from(data::element(source, at / hidden, at % hidden)))),
        );
        input
    }

    /// Rows to the ranks of their experts.
    pub(super) fn send<T: Number>(
        &self,
        rows: &[T],
        splits: &Splits,
        watch: &mut Watch,
    ) -> Result<Vec<T>, CommError> {
        let (pool, hidden) = (&self.layer.pool, self.layer.hidden);
        let arrived: usize = splits.recv.iter().sum();
        if self.payload != Payload::Fp8 {
            let mut tokens = pool.take(arrived * hidden, T::from_f32(0.0));
            self.there(Phase::Tokens, watch, (rows, &mut tokens), splits, hidden)?;
            return Ok(tokens);
        }
        let blocks = hidden.div_ceil(SCALE_BLOCK);
        let (bytes, scales) = watch.run(Phase::Permute, || Ok(self.quantise(rows)))?;
        let mut codes = pool.take(arrived * hidden, 0_u8);
        let mut factors = pool.take(arrived * blocks, 0.0_f32);
        let phase = Phase::Tokens;
        self.there(phase, watch, (&scales, &mut factors), splits, blocks)?;
        self.there(phase, watch, (&bytes, &mut codes), splits, hidden)?;
        let tokens = watch.run(Phase::Experts, || {
            let value = |(at, code): (usize, &u8)| {
                let block = at / hidden * blocks + at % hidden / SCALE_BLOCK;
                T::from_f32(data::e4m3_value(*code) * factors[block])
            };
            let mut tokens = pool.empty(codes.len());
            tokens.extend(codes.iter().enumerate().map(value));
            Ok(tokens)
        })?;
        pool.give(codes);
        pool.give(bytes);
        Ok(tokens)
    }

    /// `width` elements for each row, from where the tokens are to their experts.
    fn there<E: Element>(
        &self,
        phase: Phase,
        watch: &mut Watch,
        (from, to): (&[E], &mut [E]),
        splits: &Splits,
        width: usize,
    ) -> Result<(), CommError> {
        let ep = &self.layer.ep;
        if splits.even {
            return ep.all_to_all(phase, watch, from, to);
        }
        let (send, recv) = (scaled(&splits.send, width), scaled(&splits.recv, width));
        ep.all_to_all_v(phase, watch, from, &send, to, &recv)
    }

    /// The rows as fp8 with a scale for each block of channels.
    fn quantise<T: Number>(&self, rows: &[T]) -> (Vec<u8>, Vec<f32>) {
        let hidden = self.layer.hidden;
        let blocks = hidden.div_ceil(SCALE_BLOCK);
        let count = rows.len() / hidden;
        let scales = (0..count * blocks).map(|at| data::scale_of(at % blocks));
        let code = |(at, element): (usize, &T)| {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "elements are whole numbers from 0 to 15"
            )]
            let value = element.to_f32() as u8;
            data::scaled(value, at % hidden / SCALE_BLOCK)
        };
        let mut bytes = self.layer.pool.empty(rows.len());
        bytes.extend(rows.iter().enumerate().map(code));
        (bytes, scales.collect())
    }

    /// Numbers beside the rows, `width` for each, to the same ranks.
    pub(super) fn send_beside<T: Element>(
        &self,
        numbers: &[T],
        width: usize,
        splits: &Splits,
        watch: &mut Watch,
    ) -> Result<Vec<T>, CommError> {
        let mut arrived = vec![T::zeroed(); splits.recv.iter().sum::<usize>() * width];
        self.there(Phase::Probs, watch, (numbers, &mut arrived), splits, width)?;
        Ok(arrived)
    }

    /// What the experts made, back to the ranks of the tokens.
    fn send_back<T: Number>(
        &self,
        made: &[T],
        splits: &Splits,
        watch: &mut Watch,
    ) -> Result<Vec<T>, CommError> {
        let hidden = self.layer.hidden;
        let rows = splits.send.iter().sum::<usize>();
        let mut back = self.layer.pool.take(rows * hidden, T::from_f32(0.0));
        let swapped = Splits {
            send: splits.recv.clone(),
            recv: splits.send.clone(),
            ..splits.clone()
        };
        self.there(Phase::Back, watch, (made, &mut back), &swapped, hidden)?;
        Ok(back)
    }

    /// With etp: every part of an expert needs all rows of the expert.
    pub(super) fn gather<T: Number>(
        &self,
        tokens: Vec<T>,
        weights: Vec<f32>,
        splits: &Splits,
        watch: &mut Watch,
    ) -> Result<(Vec<T>, Vec<f32>), CommError> {
        let Some(etp) = &self.layer.etp else {
            return Ok((tokens, weights));
        };
        let hidden = self.layer.hidden;
        let all: usize = splits.parts.iter().sum();
        let mut every_token = self.layer.pool.take(all * hidden, T::from_f32(0.0));
        let mut every_weight = vec![0.0_f32; all];
        let (phase, counts) = (Phase::EtpGather, scaled(&splits.parts, hidden));
        etp.all_gather_v(phase, watch, &tokens, &mut every_token, &counts)?;
        etp.all_gather_v(phase, watch, &weights, &mut every_weight, &splits.parts)?;
        self.layer.pool.give(tokens);
        Ok((every_token, every_weight))
    }

    /// Identity times the weight. With etp a rank has a part of the expert: here the columns whose
    /// number leaves its index as the remainder; the others are zero.
    pub(super) fn experts<T: Number>(&self, mut tokens: Vec<T>, weights: &[f32]) -> Vec<T> {
        let (part, parts) = (self.layer.my().etp, self.layer.etp_size());
        for (row, weight) in tokens.chunks_exact_mut(self.layer.hidden).zip(weights) {
            for (column, element) in row.iter_mut().enumerate() {
                let has = column % parts == part;
                let factor = if has { *weight } else { 0.0 };
                *element = T::from_f32(element.to_f32() * factor);
            }
        }
        tokens
    }

    /// What follows the arrival of rows, whatever brought them: the experts, the way back, and the sum of
    /// each of this rank's tokens. `places` has the token of each row that this rank sent.
    pub(super) fn answer<T: Number>(
        &self,
        (tokens, weights): (Vec<T>, &[f32]),
        splits: &Splits,
        (places, routing): (&[usize], &Routing),
        watch: &mut Watch,
    ) -> Result<Vec<f32>, CommError> {
        let layer = self.layer;
        let made = watch.run(Phase::Experts, || Ok(self.experts(tokens, weights)))?;
        let made = self.reduce(made, splits, watch)?;
        let back = self.send_back(&made, splits, watch)?;
        let combined = watch.run(Phase::Unpermute, || {
            Ok(unpermute(&back, places, routing.tokens(), layer))
        })?;
        layer.pool.give(made);
        layer.pool.give(back);
        Ok(combined)
    }

    /// With etp: the parts of the result are summed, in f32 as the router's weights are.
    fn reduce<T: Number>(
        &self,
        made: Vec<T>,
        splits: &Splits,
        watch: &mut Watch,
    ) -> Result<Vec<T>, CommError> {
        let Some(etp) = &self.layer.etp else {
            return Ok(made);
        };
        let hidden = self.layer.hidden;
        let (phase, counts) = (Phase::EtpReduce, scaled(&splits.parts, hidden));
        let pool = &self.layer.pool;
        let wide: Vec<f32> = watch.run(phase, || {
            let mut wide = pool.empty(made.len());
            wide.extend(made.iter().map(|element| element.to_f32()));
            Ok(wide)
        })?;
        pool.give(made);
        let mut mine = pool.take(splits.parts[self.layer.my().etp] * hidden, 0.0_f32);
        etp.reduce_scatter_v(phase, watch, &wide, &counts, &mut mine, ReduceOp::Sum)?;
        pool.give(wide);
        watch.run(phase, || {
            let mut narrow = pool.empty(mine.len());
            narrow.extend(mine.iter().copied().map(T::from_f32));
            pool.give(mine);
            Ok(narrow)
        })
    }
}

/// In place of a token: a row that is there to make splits equal.
pub(super) const PADDING: usize = usize::MAX;

pub(super) fn scaled(counts: &[usize], factor: usize) -> Vec<usize> {
    counts.iter().map(|count| count * factor).collect()
}

/// The sum of a token's rows, in f32, in the order of the experts. `places` has the token of each
/// row, or [`PADDING`].
fn unpermute<T: Number>(rows: &[T], places: &[usize], tokens: usize, layer: &Layer) -> Vec<f32> {
    let hidden = layer.hidden;
    let mut sums = layer.pool.take(tokens * hidden, 0.0_f32);
    let real = |(_, token): &(&[T], &usize)| **token != PADDING;
    for (row, token) in rows.chunks_exact(hidden).zip(places).filter(real) {
        let sum = &mut sums[token * hidden..(token + 1) * hidden];
        for (sum, element) in sum.iter_mut().zip(row) {
            *sum += element.to_f32();
        }
    }
    sums
}
