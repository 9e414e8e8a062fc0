//! Inputs for which a test can say exactly what must come out.
//!
//! Everything is a function of the seed, the rank and the index: every rank can compute every
//! other rank's input, and a failure repeats.

use super::Value;
use crate::types::{DType, Rank, ReduceOp};

/// Greatest magnitude, where the type and the number of ranks allow it: small numbers read well.
const MAGNITUDE_MAX: u64 = 1000;

/// The input of a rank of `world_size` ranks to a reduction whose result is exact.
///
/// Whatever the order and the grouping in which ranks are combined, and wherever an algorithm
/// rounds to `dtype` in between, no bit is lost:
/// - sums and averages: whole numbers other than zero, so small that the sum of all magnitudes is
///   exact in the type. In a group so large that no such numbers exist, some ranks contribute zero
///   at some indices. The division of an average is the only operation that rounds.
/// - products: powers of two, few enough other than one and minus one to stay in range.
/// - minimum and maximum: whole numbers;
/// - bits: any integers.
///
/// Integers do not overflow, save in sums over more ranks than the type has values for.
///
/// # Panics
/// If `rank` is no rank of `world_size`.
#[must_use]
pub fn exact_inputs(
    dtype: DType,
    op: ReduceOp,
    rank: Rank,
    world_size: usize,
    count: usize,
    seed: u64,
) -> Vec<u8> {
    assert!(rank.index() < world_size, "the rank is one of the ranks");
    let mut output = Vec::with_capacity(count * dtype.size());
    for index in 0..count {
        let random = random(seed, Some(rank), index);
        // At each index other ranks are the active ones; the choice is the same on every rank.
        let turn = random_turn(seed, rank, world_size, index);
        let value = match op {
            ReduceOp::Avg | ReduceOp::Sum => addend(dtype, world_size, turn, random),
            ReduceOp::Max | ReduceOp::Min => {
                let magnitude = 1 + random % exact_max(dtype).min(MAGNITUDE_MAX);
                number(dtype, magnitude, is_negative(dtype, random))
            }
            ReduceOp::Prod => factor(dtype, turn, random),
            ReduceOp::BitAnd | ReduceOp::BitOr | ReduceOp::BitXor => bits(dtype, random),
        };
        value.write(dtype, &mut output);
    }
    output
}

/// The input of a rank to a collective that only moves data: any finite numbers of the type, of
/// any magnitude, different for every rank, index and seed as far as the type has room.
#[must_use]
pub fn distinct_inputs(dtype: DType, rank: Rank, count: usize, seed: u64) -> Vec<u8> {
    let mut output = Vec::with_capacity(count * dtype.size());
    for index in 0..count {
        let random = random(seed, Some(rank), index);
        // Floats with an exponent of all ones are infinities and NaNs: one bit is kept at zero.
        let bits = match dtype {
            DType::Bf16 | DType::F16 => random & !(1 << 14),
            DType::F32 => random & !(1 << 30),
            DType::F64 => random & !(1 << 62),
            DType::I8
            | DType::I16
            | DType::I32
            | DType::I64
            | DType::U8
            | DType::U16
            | DType::U32
            | DType::U64 => random,
        };
        output.extend(&bits.to_le_bytes()[..dtype.size()]);
    }
    output
}

/// A summand: not zero, and so small that the sum of all ranks' magnitudes is exact.
fn addend(dtype: DType, world_size: usize, turn: usize, random: u64) -> Value {
    let limit = exact_max(dtype);
    let ranks = world_size as u64;
    if turn as u64 >= limit {
        return number(dtype, 0, false);
    }
    let magnitude_max = (limit / ranks.min(limit)).min(MAGNITUDE_MAX);
    number(
        dtype,
        1 + random % magnitude_max,
        is_negative(dtype, random),
    )
}

/// A factor: two or a half while it is this rank's turn, else one, with any sign the type has.
fn factor(dtype: DType, turn: usize, random: u64) -> Value {
    /// The bit that chooses between two and a half; others choose sign and magnitude.
    const HALVE: u64 = 1 << 40;
    let negative = is_negative(dtype, random);
    if turn >= doublings_max(dtype) {
        return number(dtype, 1, negative);
    }
    match number(dtype, 2, negative) {
        Value::Single(two) if random & HALVE != 0 => Value::Single(1.0 / two),
        Value::Double(two) if random & HALVE != 0 => Value::Double(1.0 / two),
        two @ (Value::Single(_) | Value::Double(_) | Value::Integer(_)) => two,
    }
}

/// Any whole number of the type.
fn bits(dtype: DType, random: u64) -> Value {
    Value::Integer(super::wrap(dtype, random.into()))
}

/// Up to here the type holds every whole number.
const fn exact_max(dtype: DType) -> u64 {
    match dtype {
        DType::Bf16 => 1 << 8,
        DType::F16 => 1 << 11,
        DType::F32 => 1 << 24,
        DType::F64 => 1 << 53,
        DType::I8 => i8::MAX as u64,
        DType::I16 => i16::MAX as u64,
        DType::I32 => i32::MAX as u64,
        DType::I64 => i64::MAX as u64,
        DType::U8 => u8::MAX as u64,
        DType::U16 => u16::MAX as u64,
        DType::U32 => u32::MAX as u64,
        DType::U64 => u64::MAX,
    }
}

/// How often one can be doubled, and halved where the type has halves, inside the normal range.
const fn doublings_max(dtype: DType) -> usize {
    match dtype {
        DType::F16 => 14,
        DType::Bf16 | DType::F32 | DType::F64 => 100,
        DType::I8 => 6,
        DType::I16 => 14,
        DType::I32 => 30,
        DType::I64 => 62,
        DType::U8 => 7,
        DType::U16 => 15,
        DType::U32 => 31,
        DType::U64 => 63,
    }
}

const fn is_negative(dtype: DType, random: u64) -> bool {
    !matches!(dtype, DType::U8 | DType::U16 | DType::U32 | DType::U64) && random & (1 << 41) != 0
}

/// A whole number of at most [`exact_max`].
fn number(dtype: DType, magnitude: u64, negative: bool) -> Value {
    let sign = if negative { -1.0 } else { 1.0 };
    match dtype {
        DType::Bf16 | DType::F16 | DType::F32 => Value::Single(sign * magnitude as f32),
        DType::F64 => Value::Double(f64::from(sign) * magnitude as f64),
        DType::I8
        | DType::I16
        | DType::I32
        | DType::I64
        | DType::U8
        | DType::U16
        | DType::U32
        | DType::U64 => {
            let magnitude = i128::from(magnitude);
            Value::Integer(if negative { -magnitude } else { magnitude })
        }
    }
}

/// The place of a rank in the order in which ranks are active at this index.
fn random_turn(seed: u64, rank: Rank, world_size: usize, index: usize) -> usize {
    let shift = random(seed, None, index) % world_size as u64;
    (rank.index() + crate::types::index(shift)) % world_size
}

/// Bits that look random; the same for the same arguments. Without a rank, common to all ranks.
fn random(seed: u64, rank: Option<Rank>, index: usize) -> u64 {
    let rank = rank.map_or(0, |rank| u64::from(rank.0) + 1);
    scramble(scramble(scramble(seed) ^ rank) ^ index as u64)
}

/// The finalizer of the SplitMix64 generator: every input bit changes half of the output bits.
const fn scramble(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
