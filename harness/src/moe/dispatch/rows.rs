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
        let elements = (0..routing.tokens() * hidden)
            .map(|at| T::from_f32(f32::from(data::element(source, at / hidden, at % hidden))));
        elements.collect()
    }

    /// Rows to the ranks of their experts.
    pub(super) fn send<T: Number>(
        &self,
        rows: &[T],
        splits: &Splits,
        watch: &mut Watch,
    ) -> Result<Vec<T>, CommError> {
        let (ep, hidden) = (&self.layer.ep, self.layer.hidden);
        let arrived: usize = splits.recv.iter().sum();
        let (send, recv) = (scaled(&splits.send, hidden), scaled(&splits.recv, hidden));
        if self.payload != Payload::Fp8 {
            let mut tokens = vec![T::from_f32(0.0); arrived * hidden];
            watch.run(Phase::Tokens, || {
                ep.all_to_all_v(rows, &send, &mut tokens, &recv)
            })?;
            return Ok(tokens);
        }
        let blocks = hidden.div_ceil(SCALE_BLOCK);
        let (bytes, scales) = watch.run(Phase::Permute, || Ok(quantise(rows, hidden)))?;
        let mut codes = vec![0_u8; arrived * hidden];
        let mut factors = vec![0.0_f32; arrived * blocks];
        let (send_scales, recv_scales) =
            (scaled(&splits.send, blocks), scaled(&splits.recv, blocks));
        watch.run(Phase::Tokens, || {
            ep.all_to_all_v(&scales, &send_scales, &mut factors, &recv_scales)?;
            ep.all_to_all_v(&bytes, &send, &mut codes, &recv)
        })?;
        watch.run(Phase::Experts, || {
            let value = |(at, code): (usize, &u8)| {
                let block = at / hidden * blocks + at % hidden / SCALE_BLOCK;
                T::from_f32(data::e4m3_value(*code) * factors[block])
            };
            Ok(codes.iter().enumerate().map(value).collect())
        })
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
        let (send, recv) = (scaled(&splits.send, width), scaled(&splits.recv, width));
        watch.run(Phase::Probs, || {
            let ep = &self.layer.ep;
            ep.all_to_all_v(numbers, &send, &mut arrived, &recv)
        })?;
        Ok(arrived)
    }

    /// What the experts made, back to the ranks of the tokens.
    pub(super) fn send_back<T: Number>(
        &self,
        made: &[T],
        splits: &Splits,
        watch: &mut Watch,
    ) -> Result<Vec<T>, CommError> {
        let hidden = self.layer.hidden;
        let mut back = vec![T::from_f32(0.0); splits.send.iter().sum::<usize>() * hidden];
        let (send, recv) = (scaled(&splits.recv, hidden), scaled(&splits.send, hidden));
        watch.run(Phase::Back, || {
            let ep = &self.layer.ep;
            ep.all_to_all_v(made, &send, &mut back, &recv)
        })?;
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
        let mut every_token = vec![T::from_f32(0.0); all * hidden];
        let mut every_weight = vec![0.0_f32; all];
        watch.run(Phase::EtpGather, || {
            etp.all_gather_v(&tokens, &mut every_token, &scaled(&splits.parts, hidden))?;
            etp.all_gather_v(&weights, &mut every_weight, &splits.parts)
        })?;
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

    /// With etp: the parts of the result are summed, in f32 as the router's weights are.
    pub(super) fn reduce<T: Number>(
        &self,
        made: Vec<T>,
        splits: &Splits,
        watch: &mut Watch,
    ) -> Result<Vec<T>, CommError> {
        let Some(etp) = &self.layer.etp else {
            return Ok(made);
        };
        let hidden = self.layer.hidden;
        watch.run(Phase::EtpReduce, || {
            let wide: Vec<f32> = made.iter().map(|element| element.to_f32()).collect();
            let mut mine = vec![0.0_f32; splits.parts[self.layer.my().etp] * hidden];
            etp.reduce_scatter_v(
                &wide,
                &scaled(&splits.parts, hidden),
                &mut mine,
                ReduceOp::Sum,
            )?;
            Ok(mine.into_iter().map(T::from_f32).collect())
        })
    }
}

pub(super) fn scaled(counts: &[usize], factor: usize) -> Vec<usize> {
    counts.iter().map(|count| count * factor).collect()
}

/// The rows as fp8 with a scale for each block of channels.
fn quantise<T: Number>(rows: &[T], hidden: usize) -> (Vec<u8>, Vec<f32>) {
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
    (
        rows.iter().enumerate().map(code).collect(),
        scales.collect(),
    )
}

/// The sum of a token's rows, in f32, in the order of the experts.
pub(super) fn unpermute<T: Number>(
    rows: &[T],
    places: &[usize],
    tokens: usize,
    hidden: usize,
) -> Vec<f32> {
    let mut sums = vec![0.0_f32; tokens * hidden];
    for (row, token) in rows.chunks_exact(hidden).zip(places) {
        let sum = &mut sums[token * hidden..(token + 1) * hidden];
        for (sum, element) in sum.iter_mut().zip(row) {
            *sum += element.to_f32();
        }
    }
    sums
}
