//! What every rank must hold after a collective, computed the naive way.
//!
//! This is the judge of all algorithms, so it is as plain as it can be: whole buffers of all ranks,
//! one element after the other, no blocks, no vectors, no code shared with `kernel` or `algo`.
//! It knows no group, no transport and no plan. Buffers are bytes in native order, one `Vec` a
//! rank, so that a test can loop over element types. `docs/numerics.md` states the rules.
//!
//! A mistake in the arguments here is a mistake of the test that asks, so it panics.

mod compare;
mod inputs;

pub use self::compare::{Difference, first_difference};
pub use self::inputs::{distinct_inputs, exact_inputs};
use crate::types::{DType, Rank, ReduceOp};

/// Every rank holds the reduction of all inputs.
///
/// # Panics
/// If there is no input, or if the inputs differ in length or end inside an element.
#[must_use]
pub fn all_reduce(dtype: DType, op: ReduceOp, inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
    vec![reduction(dtype, op, inputs); inputs.len()]
}

/// The root holds the reduction of all inputs, the others nothing.
///
/// # Panics
/// As [`all_reduce`], and if `root` is no rank.
#[must_use]
pub fn reduce(dtype: DType, op: ReduceOp, root: Rank, inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
    only_at(root, inputs.len(), reduction(dtype, op, inputs))
}

/// Rank `i` holds the reduction of the inputs of ranks 0 to `i`.
///
/// # Panics
/// As [`all_reduce`].
#[must_use]
pub fn scan(dtype: DType, op: ReduceOp, inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let upto = |rank: usize| reduction(dtype, op, &inputs[..=rank]);
    (0..inputs.len()).map(upto).collect()
}

/// Rank `i` holds the reduction of the inputs of ranks 0 to `i - 1`; rank 0 the identity of the reduction.
///
/// # Panics
/// As [`all_reduce`], and for an average, which has no identity.
#[must_use]
pub fn exclusive_scan(dtype: DType, op: ReduceOp, inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut first = Vec::new();
    for _ in 0..inputs[0].len() / dtype.size() {
        Value::identity(dtype, op).write(dtype, &mut first);
    }
    let before = |rank: usize| reduction(dtype, op, &inputs[..rank]);
    std::iter::once(first)
        .chain((1..inputs.len()).map(before))
        .collect()
}

/// Rank `i` holds block `i` of the reduction of all inputs, which has a block of equal length for
/// each rank.
///
/// # Panics
/// As [`all_reduce`], and if the inputs do not divide into one block a rank.
#[must_use]
pub fn reduce_scatter(dtype: DType, op: ReduceOp, inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let whole = reduction(dtype, op, inputs);
    blocks(
        &whole,
        &equal_split(whole.len(), dtype.size(), inputs.len()),
    )
}

/// Rank `i` holds block `i` of the reduction of all inputs, which is `recv_counts[i]` elements long.
///
/// # Panics
/// As [`all_reduce`], and if the counts do not add up to the inputs' length.
#[must_use]
pub fn reduce_scatter_v(
    dtype: DType,
    op: ReduceOp,
    recv_counts: &[usize],
    inputs: &[Vec<u8>],
) -> Vec<Vec<u8>> {
    assert_eq!(recv_counts.len(), inputs.len(), "one count a rank");
    blocks(&reduction(dtype, op, inputs), &in_bytes(dtype, recv_counts))
}

/// Every rank holds all inputs, one after the other in the order of the ranks.
///
/// Inputs may differ in length, which makes this the reference of `all_gather_v` too.
#[must_use]
pub fn all_gather(inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
    vec![inputs.concat(); inputs.len()]
}

/// The root holds all inputs, one after the other in the order of the ranks; the others nothing.
///
/// Inputs may differ in length, which makes this the reference of `gather_v` too.
///
/// # Panics
/// If `root` is no rank.
#[must_use]
pub fn gather(root: Rank, inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
    only_at(root, inputs.len(), inputs.concat())
}

/// Every rank holds the root's input.
///
/// # Panics
/// If `root` is no rank.
#[must_use]
pub fn broadcast(root: Rank, inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
    vec![inputs[root.index()].clone(); inputs.len()]
}

/// Rank `i` holds block `i` of the root's input, which has a block of equal length for each rank.
///
/// # Panics
/// If `root` is no rank, or if its input does not divide into one block a rank.
#[must_use]
pub fn scatter(dtype: DType, root: Rank, inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let whole = &inputs[root.index()];
    blocks(whole, &equal_split(whole.len(), dtype.size(), inputs.len()))
}

/// Rank `i` holds block `i` of the root's input, which is `send_counts[i]` elements long.
///
/// # Panics
/// If `root` is no rank, or if the counts do not add up to its input's length.
#[must_use]
pub fn scatter_v(
    dtype: DType,
    root: Rank,
    send_counts: &[usize],
    inputs: &[Vec<u8>],
) -> Vec<Vec<u8>> {
    assert_eq!(send_counts.len(), inputs.len(), "one count a rank");
    blocks(&inputs[root.index()], &in_bytes(dtype, send_counts))
}

/// Rank `i` holds block `i` of every input, in the order of the ranks; blocks are equal in length.
///
/// # Panics
/// If an input does not divide into one block a rank.
#[must_use]
pub fn all_to_all(dtype: DType, inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let split = |input: &Vec<u8>| equal_split(input.len(), dtype.size(), inputs.len());
    exchange(inputs, &inputs.iter().map(split).collect::<Vec<_>>())
}

/// Rank `i` holds block `i` of every input, in the order of the ranks; the block that `sender` has
/// for `i` is `send_counts[sender][i]` elements long.
///
/// # Panics
/// If a sender's counts do not add up to its input's length.
#[must_use]
pub fn all_to_all_v(dtype: DType, send_counts: &[Vec<usize>], inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
    assert_eq!(send_counts.len(), inputs.len(), "one list of counts a rank");
    let split = |counts: &Vec<usize>| in_bytes(dtype, counts);
    exchange(inputs, &send_counts.iter().map(split).collect::<Vec<_>>())
}

/// Hands block `i` of every input to rank `i`; `lengths[sender][i]` is in bytes.
fn exchange(inputs: &[Vec<u8>], lengths: &[Vec<usize>]) -> Vec<Vec<u8>> {
    let mut outputs = vec![Vec::new(); inputs.len()];
    for (input, lengths) in inputs.iter().zip(lengths) {
        assert_eq!(lengths.len(), inputs.len(), "one block a rank");
        for (output, block) in outputs.iter_mut().zip(blocks(input, lengths)) {
            output.extend(block);
        }
    }
    outputs
}

/// Cuts a buffer into consecutive blocks of these lengths in bytes.
fn blocks(whole: &[u8], lengths: &[usize]) -> Vec<Vec<u8>> {
    let total: usize = lengths.iter().sum();
    assert_eq!(total, whole.len(), "the blocks make up the whole buffer");
    let mut start = 0;
    let mut cut = |length: &usize| {
        let block = whole[start..start + length].to_vec();
        start += length;
        block
    };
    lengths.iter().map(&mut cut).collect()
}

fn equal_split(bytes: usize, element: usize, ranks: usize) -> Vec<usize> {
    assert_eq!(
        bytes % (element * ranks),
        0,
        "the buffer has a block of whole elements for each rank"
    );
    vec![bytes / ranks; ranks]
}

fn in_bytes(dtype: DType, counts: &[usize]) -> Vec<usize> {
    counts.iter().map(|count| count * dtype.size()).collect()
}

fn only_at(root: Rank, ranks: usize, output: Vec<u8>) -> Vec<Vec<u8>> {
    let mut outputs = vec![Vec::new(); ranks];
    outputs[root.index()] = output;
    outputs
}

/// The reduction of all inputs, element by element, in ascending order of the ranks.
fn reduction(dtype: DType, op: ReduceOp, inputs: &[Vec<u8>]) -> Vec<u8> {
    let (first, others) = inputs.split_first().expect("there is at least one rank");
    for other in others {
        assert_eq!(other.len(), first.len(), "inputs are equal in length");
    }
    assert_eq!(first.len() % dtype.size(), 0, "inputs hold whole elements");
    let mut output = Vec::with_capacity(first.len());
    for index in 0..first.len() / dtype.size() {
        let mut result = Value::read(dtype, first, index);
        for other in others {
            result = result.combine(dtype, op, Value::read(dtype, other, index));
        }
        if op == ReduceOp::Avg {
            result = result.divide(inputs.len());
        }
        result.write(dtype, &mut output);
    }
    output
}

/// One element, in the type in which reductions compute with it.
#[derive(Clone, Copy, Debug)]
enum Value {
    /// f32, and f16 and bf16 on their way to one rounding.
    Single(f32),
    /// f64.
    Double(f64),
    /// Every integer, inside the range of its type.
    Integer(i128),
}

impl Value {
    /// Element `index` of a buffer.
    fn read(dtype: DType, buffer: &[u8], index: usize) -> Self {
        let bytes = &buffer[index * dtype.size()..][..dtype.size()];
        match dtype {
            DType::Bf16 => Self::Single(half::bf16::from_ne_bytes(exactly(bytes)).to_f32()),
            DType::F16 => Self::Single(half::f16::from_ne_bytes(exactly(bytes)).to_f32()),
            DType::F32 => Self::Single(f32::from_ne_bytes(exactly(bytes))),
            DType::F64 => Self::Double(f64::from_ne_bytes(exactly(bytes))),
            DType::I8 => Self::Integer(i8::from_ne_bytes(exactly(bytes)).into()),
            DType::I16 => Self::Integer(i16::from_ne_bytes(exactly(bytes)).into()),
            DType::I32 => Self::Integer(i32::from_ne_bytes(exactly(bytes)).into()),
            DType::I64 => Self::Integer(i64::from_ne_bytes(exactly(bytes)).into()),
            DType::U8 => Self::Integer(u8::from_ne_bytes(exactly(bytes)).into()),
            DType::U16 => Self::Integer(u16::from_ne_bytes(exactly(bytes)).into()),
            DType::U32 => Self::Integer(u32::from_ne_bytes(exactly(bytes)).into()),
            DType::U64 => Self::Integer(u64::from_ne_bytes(exactly(bytes)).into()),
        }
    }

    /// Appends the element to a buffer, rounded to its type.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "integers were wrapped to the range of their type"
    )]
    fn write(self, dtype: DType, output: &mut Vec<u8>) {
        match (dtype, self) {
            (DType::Bf16, Self::Single(value)) => {
                output.extend(half::bf16::from_f32(value).to_ne_bytes());
            }
            (DType::F16, Self::Single(value)) => {
                output.extend(half::f16::from_f32(value).to_ne_bytes());
            }
            (_, Self::Single(value)) => output.extend(value.to_ne_bytes()),
            (_, Self::Double(value)) => output.extend(value.to_ne_bytes()),
            (_, Self::Integer(value)) => match dtype.size() {
                1 => output.extend((value as u8).to_ne_bytes()),
                2 => output.extend((value as u16).to_ne_bytes()),
                4 => output.extend((value as u32).to_ne_bytes()),
                _ => output.extend((value as u64).to_ne_bytes()),
            },
        }
    }

    /// The element that changes nothing.
    fn identity(dtype: DType, op: ReduceOp) -> Self {
        assert_ne!(op, ReduceOp::Avg, "an average has no identity");
        let float = match op {
            ReduceOp::Avg | ReduceOp::Sum => 0.0,
            ReduceOp::Prod => 1.0,
            ReduceOp::Min => f32::INFINITY,
            ReduceOp::Max => f32::NEG_INFINITY,
            ReduceOp::BitAnd | ReduceOp::BitOr | ReduceOp::BitXor => return Self::bits(dtype, op),
        };
        let bits = 8 * dtype.size();
        let (least, greatest): (i128, i128) = match dtype {
            DType::Bf16 | DType::F16 | DType::F32 => return Self::Single(float),
            DType::F64 => return Self::Double(float.into()),
            DType::I8 | DType::I16 | DType::I32 | DType::I64 => {
                (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
            }
            DType::U8 | DType::U16 | DType::U32 | DType::U64 => (0, (1 << bits) - 1),
        };
        Self::Integer(match op {
            ReduceOp::Min => greatest,
            ReduceOp::Max => least,
            ReduceOp::Prod => 1,
            ReduceOp::Avg
            | ReduceOp::BitAnd
            | ReduceOp::BitOr
            | ReduceOp::BitXor
            | ReduceOp::Sum => 0,
        })
    }

    /// The bits that change nothing.
    fn bits(dtype: DType, op: ReduceOp) -> Self {
        let all = if op == ReduceOp::BitAnd { -1 } else { 0 };
        Self::Integer(wrap(dtype, all))
    }

    /// `self op other`, where `self` comes from the lower ranks. An average adds.
    fn combine(self, dtype: DType, op: ReduceOp, other: Self) -> Self {
        match (self, other) {
            (Self::Single(a), Self::Single(b)) => Self::Single(match op {
                ReduceOp::Avg | ReduceOp::Sum => a + b,
                ReduceOp::Prod => a * b,
                ReduceOp::Min | ReduceOp::Max if a.is_nan() || b.is_nan() => f32::NAN,
                ReduceOp::Min => {
                    if b < a {
                        b
                    } else {
                        a
                    }
                }
                ReduceOp::Max => {
                    if b > a {
                        b
                    } else {
                        a
                    }
                }
                ReduceOp::BitAnd | ReduceOp::BitOr | ReduceOp::BitXor => {
                    unreachable!("{op} takes integers only")
                }
            }),
            (Self::Double(a), Self::Double(b)) => Self::Double(match op {
                ReduceOp::Avg | ReduceOp::Sum => a + b,
                ReduceOp::Prod => a * b,
                ReduceOp::Min | ReduceOp::Max if a.is_nan() || b.is_nan() => f64::NAN,
                ReduceOp::Min => {
                    if b < a {
                        b
                    } else {
                        a
                    }
                }
                ReduceOp::Max => {
                    if b > a {
                        b
                    } else {
                        a
                    }
                }
                ReduceOp::BitAnd | ReduceOp::BitOr | ReduceOp::BitXor => {
                    unreachable!("{op} takes integers only")
                }
            }),
            (Self::Integer(a), Self::Integer(b)) => Self::Integer(wrap(
                dtype,
                match op {
                    ReduceOp::Avg | ReduceOp::Sum => a + b,
                    // The product of two u64 may leave i128, whose low 64 bits are still right.
                    ReduceOp::Prod => a.wrapping_mul(b),
                    ReduceOp::Min => a.min(b),
                    ReduceOp::Max => a.max(b),
                    ReduceOp::BitAnd => a & b,
                    ReduceOp::BitOr => a | b,
                    ReduceOp::BitXor => a ^ b,
                },
            )),
            _ => unreachable!("the elements of one buffer are of one type"),
        }
    }

    /// The sum over `ranks` ranks as their average.
    fn divide(self, ranks: usize) -> Self {
        match self {
            Self::Single(sum) => Self::Single(sum / ranks as f32),
            Self::Double(sum) => Self::Double(sum / ranks as f64),
            // Integer division truncates toward zero.
            Self::Integer(sum) => Self::Integer(sum / ranks as i128),
        }
    }
}

/// The number modulo two to the width of an integer type, inside the range of the type.
fn wrap(dtype: DType, value: i128) -> i128 {
    let bits = 8 * dtype.size();
    let low = value & ((1 << bits) - 1);
    let signed = matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64);
    if signed && low >= 1 << (bits - 1) {
        low - (1 << bits)
    } else {
        low
    }
}

fn exactly<const SIZE: usize>(bytes: &[u8]) -> [u8; SIZE] {
    bytes
        .try_into()
        .expect("the element has the size of its type")
}

#[cfg(test)]
mod tests;
