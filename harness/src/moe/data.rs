//! What tokens hold, so that each received row proves where it came from.
//!
//! Every element is a whole number from 0 to 15: exact in bf16, f32 and fp8 (e4m3), and exact in bf16
//! after it was multiplied by a weight ([`super::routing::WEIGHT_UNITS`]). The first columns spell
//! the source and the token in base 16, the others are a hash of source, token and column.

use half::bf16;
use muster_comm::buffer::Element;

/// Digits of the source.
const SOURCE_DIGITS: usize = 4;
/// Digits of the token.
const TOKEN_DIGITS: usize = 6;
/// Fewest columns of a token: those that spell source and token, and some that are hashed.
pub const HIDDEN_MIN: usize = 16;
/// Most tokens of a source that the digits can spell.
pub const TOKENS_MAX: usize = 1 << (4 * TOKEN_DIGITS);
/// Channels that share a scale in fp8.
pub const SCALE_BLOCK: usize = 128;

/// The element of a token at a column.
#[must_use]
pub fn element(source: usize, token: usize, column: usize) -> u8 {
    let digit = |number: usize, place: usize| (number >> (4 * place)) & 15;
    let value = if column < SOURCE_DIGITS {
        digit(source, column)
    } else if column < SOURCE_DIGITS + TOKEN_DIGITS {
        digit(token, column - SOURCE_DIGITS)
    } else {
        let mixed = source.wrapping_mul(0x9e37_79b1) ^ token.wrapping_mul(0x85eb_ca6b);
        (mixed.wrapping_add(column.wrapping_mul(0xc2b2_ae35)) >> 7) & 15
    };
    u8::try_from(value).unwrap_or(0)
}

/// An element type of rows.
pub trait Number: Element {
    /// The nearest value of the type.
    fn from_f32(value: f32) -> Self;
    /// The value.
    fn to_f32(self) -> f32;
}

impl Number for bf16 {
    fn from_f32(value: f32) -> Self {
        Self::from_f32(value)
    }

    fn to_f32(self) -> f32 {
        Self::to_f32(self)
    }
}

impl Number for f32 {
    fn from_f32(value: f32) -> Self {
        value
    }

    fn to_f32(self) -> f32 {
        self
    }
}

/// One fp8 number (e4m3) for a small whole number: 1 sign, 4 exponent (bias 7), 3 mantissa bits.
///
/// # Panics
/// If the number needs more than four significant bits, or exceeds 240.
#[must_use]
pub fn e4m3_of(value: u8) -> u8 {
    if value == 0 {
        return 0;
    }
    let exponent = value.ilog2();
    let mantissa = (u32::from(value) << 3) >> exponent;
    assert!(
        value <= 240 && (mantissa << exponent) >> 3 == u32::from(value),
        "{value} is no e4m3 number"
    );
    u8::try_from(((exponent + 7) << 3) | (mantissa & 7)).unwrap_or(0)
}

/// The value of an fp8 number (e4m3), NaN for its two encodings of it.
#[must_use]
pub fn e4m3_value(bits: u8) -> f32 {
    let sign = if bits & 0x80 == 0 { 1.0 } else { -1.0 };
    let (exponent, mantissa) = (i32::from((bits >> 3) & 15), f32::from(bits & 7));
    match (exponent, bits & 7) {
        (15, 7) => f32::NAN,
        (0, _) => sign * mantissa * 2.0_f32.powi(-9),
        _ => sign * (1.0 + mantissa / 8.0) * 2.0_f32.powi(exponent - 7),
    }
}

/// The scale of a block of channels: powers of two that differ from block to block, so that a scale
/// that went astray shows.
#[must_use]
pub fn scale_of(block: usize) -> f32 {
    [1.0, 0.5, 0.25, 0.125][block % 4]
}

/// What is stored for an element under the scale of its block.
#[must_use]
pub fn scaled(value: u8, block: usize) -> u8 {
    e4m3_of(value << (block % 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_survive_every_payload_type_and_a_weight() {
        for value in 0..16_u8 {
            for block in 0..8 {
                let back = e4m3_value(scaled(value, block)) * scale_of(block);
                assert_eq!(
                    back.to_bits(),
                    f32::from(value).to_bits(),
                    "{value} in block {block}"
                );
            }
            for units in 1..16_u8 {
                let weighted = f32::from(value) * f32::from(units) / 16.0;
                assert_eq!(
                    bf16::from_f32(weighted).to_f32().to_bits(),
                    weighted.to_bits()
                );
            }
        }
    }

    #[test]
    fn fp8_values_are_those_of_the_format() {
        // OCP 8-bit floating point specification, e4m3: largest 448, smallest normal 2^-6.
        assert_eq!(e4m3_value(0x7e).to_bits(), 448.0_f32.to_bits());
        assert_eq!(e4m3_value(0x08).to_bits(), 2.0_f32.powi(-6).to_bits());
        assert_eq!(e4m3_value(0x01).to_bits(), 2.0_f32.powi(-9).to_bits());
        assert!(e4m3_value(0x7f).is_nan());
        assert_eq!(e4m3_of(1), 0x38);
    }

    #[test]
    fn the_first_columns_spell_source_and_token() {
        let (source, token) = (0x1234, 0x00ab_cdef);
        let digits: Vec<u8> = (0..10)
            .map(|column| element(source, token, column))
            .collect();
        assert_eq!(digits, [4, 3, 2, 1, 0xf, 0xe, 0xd, 0xc, 0xb, 0xa]);
        let row = |token| {
            (10..200)
                .map(|column| element(3, token, column))
                .collect::<Vec<_>>()
        };
        assert_ne!(row(5), row(6));
    }
}
