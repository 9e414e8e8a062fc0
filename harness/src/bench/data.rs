//! What lies in the buffers of a benchmark: short patterns, repeated.
//!
//! A pattern has a prime number of elements, so that a block that lands a power of two away from
//! its place does not look right. Results are exact in every element type, because inputs come
//! from the same generators as those of `verify`, and what must come out of a reduction is computed
//! by the naive reference, once for each element of the pattern.
//!
//! DATA-1: receive buffers are filled before a checked call, so that an element that nobody wrote
//! is counted as wrong.
use muster_comm::collective::reference::{self, distinct_inputs, exact_inputs};
use muster_comm::types::{DType, Extent, Pattern, Rank, ReduceOp, Source};

use crate::bench::shape::Shape;

/// Elements of a pattern: prime, and short enough that making one costs nothing.
const PERIOD: usize = 4093;
/// Byte that receive buffers are filled with.
const FILL: u8 = 0xa5;
/// Far from small numbers, so that neighbouring seeds give unrelated data.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// A stretch of a buffer that repeats a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The bytes of the pattern.
    pub pattern: Vec<u8>,
    /// Element of the pattern with which the stretch begins.
    pub phase: usize,
    /// Elements of the stretch.
    pub elements: usize,
}

/// The data of one member in one cell.
#[derive(Clone, Copy, Debug)]
pub struct Data {
    /// Sizes.
    pub shape: Shape,
    /// Element type.
    pub dtype: DType,
    /// Reduction.
    pub op: ReduceOp,
    /// This member.
    pub me: usize,
    /// Seed of all inputs.
    pub seed: u64,
}

impl Data {
    /// What the send buffer holds, stretch after stretch.
    #[must_use]
    pub fn sent(&self) -> Vec<Stretch> {
        let (shape, me) = (&self.shape, self.me);
        let elements = shape.send_elements(me);
        let Some(pattern) = shape.collective.pattern() else {
            return vec![self.moved(me, None, elements)];
        };
        match pattern.send(me == shape.root) {
            _ if pattern.reduces() => vec![stretch(self.summand(me), elements)],
            Extent::Nothing => Vec::new(),
            Extent::OwnBlock | Extent::Vector => vec![self.moved(me, None, elements)],
            Extent::AllBlocks => (0..shape.n)
                .map(|to| self.moved(me, Some(to), shape.part(me, to)))
                .collect(),
        }
    }

    /// What the receive buffer must hold after the call.
    #[must_use]
    pub fn received(&self) -> Vec<Stretch> {
        let (shape, me) = (&self.shape, self.me);
        if shape.collective.is_of_objects() {
            // Objects are looked at as they come.
            return Vec::new();
        }
        let elements = shape.recv_elements(me);
        let Some(pattern) = shape.collective.pattern() else {
            let previous = (me + shape.n - 1) % shape.n;
            return vec![self.moved(previous, None, elements)];
        };
        // What a member has for this one alone differs from what it has for others.
        let to = (pattern.send(true) == Extent::AllBlocks).then_some(me);
        match pattern.source() {
            _ if pattern.recv(me == shape.root) == Extent::Nothing => Vec::new(),
            Source::Nobody => Vec::new(),
            Source::Root => vec![self.moved(shape.root, to, elements)],
            Source::Each => (0..shape.n)
                .map(|from| self.moved(from, to, shape.part(from, me)))
                .collect(),
            Source::Reduction(_) => {
                let before: usize = to.map_or(0, |me| (0..me).map(|to| shape.part(me, to)).sum());
                vec![Stretch {
                    phase: before % PERIOD,
                    ..stretch(self.reduction(pattern), elements)
                }]
            }
        }
    }

    /// What a member has, for a certain other one or for all.
    fn moved(&self, from: usize, to: Option<usize>, elements: usize) -> Stretch {
        let to = to.map_or(0, |to| to as u64 + 1);
        let seed = self.seed.wrapping_add(to.wrapping_mul(SPREAD));
        let length = PERIOD.min(elements);
        stretch(
            distinct_inputs(self.dtype, Rank::from_index(from), length, seed),
            elements,
        )
    }

    /// What a member contributes to a reduction.
    fn summand(&self, member: usize) -> Vec<u8> {
        let (rank, n) = (Rank::from_index(member), self.shape.n);
        exact_inputs(self.dtype, self.op, rank, n, PERIOD, self.seed)
    }

    /// What this member gets of a reduction.
    fn reduction(&self, pattern: Pattern) -> Vec<u8> {
        let contributors = pattern.contributors(self.shape.n, self.me);
        let inputs: Vec<Vec<u8>> = contributors.map(|member| self.summand(member)).collect();
        if inputs.is_empty() {
            return self.identity();
        }
        reference::reduce(self.dtype, self.op, Rank(0), &inputs).swap_remove(0)
    }

    /// A pattern that a reduction in place does not change, however often it is repeated: its identity. So repeated
    /// calls neither overflow nor meet subnormal numbers.
    #[must_use]
    pub fn neutral(&self, elements: usize) -> Stretch {
        stretch(self.identity(), elements)
    }

    /// The identity of the reduction, as a pattern; an average leaves zeroes as they are.
    fn identity(&self) -> Vec<u8> {
        let zero = || vec![0; self.dtype.size()];
        let one = self.op.identity(self.dtype).unwrap_or_else(zero);
        one.repeat(PERIOD)
    }
}

fn stretch(pattern: Vec<u8>, elements: usize) -> Stretch {
    Stretch {
        pattern,
        phase: 0,
        elements,
    }
}

/// Writes stretches into a buffer, one after the other; what is behind them is filled with a byte
/// that no pattern is made of alone.
pub fn write(stretches: &[Stretch], size: usize, buffer: &mut [u8]) {
    let mut rest = buffer;
    for stretch in stretches {
        let (part, behind) = rest.split_at_mut(stretch.elements * size);
        for (to, from) in pieces(part.len(), stretch, size) {
            part[to.clone()].copy_from_slice(&stretch.pattern[from..from + to.len()]);
        }
        rest = behind;
    }
    rest.fill(FILL);
}

/// Fills a buffer with the byte that shows elements which nobody wrote.
pub fn blank(buffer: &mut [u8]) {
    buffer.fill(FILL);
}

/// How many elements of a buffer are not what the stretches say, and the first of them.
#[must_use]
pub fn wrong(stretches: &[Stretch], size: usize, buffer: &[u8]) -> (u64, Option<usize>) {
    let (mut rest, mut before) = (buffer, 0);
    let (mut count, mut first) = (0_u64, None);
    for stretch in stretches {
        let (part, behind) = rest.split_at(stretch.elements * size);
        for (at, from) in pieces(part.len(), stretch, size) {
            let (got, expected) = (&part[at.clone()], &stretch.pattern[from..from + at.len()]);
            if got == expected {
                continue;
            }
            let differing = got
                .chunks(size)
                .zip(expected.chunks(size))
                .enumerate()
                .filter(|(_, (got, expected))| got != expected);
            for (element, _) in differing {
                first = first.or(Some(before + at.start / size + element));
                count += 1;
            }
        }
        before += stretch.elements;
        rest = behind;
    }
    (count, first)
}

/// Where in a part of `length` bytes the pattern begins anew: bytes of the part, and the byte of
/// the pattern with which they begin.
fn pieces(
    length: usize,
    stretch: &Stretch,
    size: usize,
) -> impl Iterator<Item = (std::ops::Range<usize>, usize)> {
    let period = stretch.pattern.len();
    let (mut at, mut from) = (0, stretch.phase * size);
    std::iter::from_fn(move || {
        if at >= length || period == 0 {
            return None;
        }
        let piece = (period - from).min(length - at);
        let found = (at..at + piece, from);
        at += piece;
        from = 0;
        Some(found)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::shape::Split;
    use muster_comm::types::Collective;

    fn data(collective: Collective, n: usize, me: usize, bytes: u64) -> Data {
        Data {
            shape: Shape::of(collective, n, 4, bytes, Split::Uneven, 1),
            dtype: DType::F32,
            op: ReduceOp::Sum,
            me,
            seed: 7,
        }
    }

    fn bytes(stretches: &[Stretch], elements: usize) -> Vec<u8> {
        let mut buffer = vec![0; elements * 4];
        write(stretches, 4, &mut buffer);
        buffer
    }

    /// What the reference makes of the inputs of all members, for buffers longer than a pattern.
    #[test]
    fn what_must_come_out_is_what_the_reference_says() {
        let (n, size) = (3, 40_000);
        type Naive = fn(&[Vec<u8>]) -> Vec<Vec<u8>>;
        let cases: [(Collective, Naive); 8] = [
            (Collective::AllReduce, |inputs| {
                reference::all_reduce(DType::F32, ReduceOp::Sum, inputs)
            }),
            (Collective::ReduceScatter, |inputs| {
                reference::reduce_scatter(DType::F32, ReduceOp::Sum, inputs)
            }),
            (Collective::Reduce, |inputs| {
                reference::reduce(DType::F32, ReduceOp::Sum, Rank(1), inputs)
            }),
            (Collective::Scan, |inputs| {
                reference::scan(DType::F32, ReduceOp::Sum, inputs)
            }),
            (Collective::ExclusiveScan, |inputs| {
                reference::exclusive_scan(DType::F32, ReduceOp::Sum, inputs)
            }),
            (Collective::AllGather, reference::all_gather),
            (Collective::Gather, |inputs| {
                reference::gather(Rank(1), inputs)
            }),
            (Collective::AllToAll, |inputs| {
                reference::all_to_all(DType::F32, inputs)
            }),
        ];
        for (collective, naive) in cases {
            let of = |me| data(collective, n, me, size);
            let inputs: Vec<Vec<u8>> = (0..n)
                .map(|me| bytes(&of(me).sent(), of(me).shape.send_elements(me)))
                .collect();
            for (me, expected) in naive(&inputs).into_iter().enumerate() {
                let data = of(me);
                let got = bytes(&data.received(), data.shape.recv_elements(me));
                assert_eq!(got, expected, "{collective} on {me}");
            }
        }
    }

    #[test]
    fn every_wrong_element_is_counted_and_the_first_is_named() {
        let data = data(Collective::AllGather, 3, 0, 60_000);
        let mut buffer = bytes(&data.received(), data.shape.recv_elements(0));
        assert_eq!(wrong(&data.received(), 4, &buffer), (0, None));
        buffer[4 * 7777] ^= 1;
        buffer[4 * 9000 + 3] ^= 0x80;
        assert_eq!(wrong(&data.received(), 4, &buffer), (2, Some(7777)));
        blank(&mut buffer);
        let elements = data.shape.recv_elements(0) as u64;
        assert_eq!(wrong(&data.received(), 4, &buffer), (elements, Some(0)));
    }

    #[test]
    fn a_block_in_the_wrong_place_is_noticed() {
        let data = data(Collective::AllToAll, 4, 2, 1 << 18);
        let mut buffer = bytes(&data.received(), data.shape.recv_elements(2));
        let block = data.shape.count * 4;
        let (first, second) = buffer.split_at_mut(block);
        first.swap_with_slice(&mut second[..block]);
        let (count, first) = wrong(&data.received(), 4, &buffer);
        assert!(count > data.shape.count as u64, "{count} {first:?}");
    }
}
