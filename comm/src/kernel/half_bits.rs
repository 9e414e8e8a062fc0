//! f16 and bf16 to f32 and back, in integer and f32 arithmetic that every CPU has.
//!
//! Without branches and table look-ups, so that a loop over these becomes vector code. Widening is
//! exact; narrowing rounds to nearest, ties to even; NaN stays NaN, with a payload that is not
//! specified. The stored form is a `u16` with the bits of the half type.

/// Sign bit of an f32.
const SIGN: u32 = 0x8000_0000;
/// Exponent bits of an f32; all of them are set in infinities and NaNs.
const EXPONENT: u32 = 0x7f80_0000;
/// Bits of an f32 fraction that bf16 has no room for.
const BF16_CUT: u32 = 16;
/// Bits of an f32 fraction that f16 has no room for.
const F16_CUT: u32 = 13;

/// A bf16 as f32: its bits are the upper half.
#[inline(always)]
pub(super) fn widen_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << BF16_CUT)
}

/// The bf16 nearest to an f32.
#[inline(always)]
pub(super) fn narrow_bf16(value: f32) -> u16 {
    /// Half of the last place that is kept, less one: with the last bit kept it carries on ties
    /// to odd only.
    const HALF_DOWN: u32 = (1 << (BF16_CUT - 1)) - 1;
    /// Makes a NaN quiet, so that cutting its payload cannot leave an infinity.
    const QUIET: u32 = 0x0040_0000;
    let bits = value.to_bits();
    let last = (bits >> BF16_CUT) & 1;
    // A carry into the exponent is right: the value rounds up to the next power of two, or to
    // infinity. Only NaN bits could wrap, and those are not used.
    let rounded = bits.wrapping_add(HALF_DOWN + last);
    let chosen = if value.is_nan() {
        bits | QUIET
    } else {
        rounded
    };
    upper_half(chosen)
}

/// An f16 as f32.
#[inline(always)]
pub(super) fn widen_f16(bits: u16) -> f32 {
    /// 2^(127 - 15): the exponents of the two types count from different zeros.
    const REBIAS: f32 = f32::from_bits((127 + 127 - 15) << 23);
    /// What the largest exponent of f16 becomes: infinity and NaN are at and above it.
    const BEYOND: f32 = 65_536.0;
    let sign = (u32::from(bits) << 16) & SIGN;
    let magnitude = u32::from(bits & 0x7fff) << F16_CUT;
    // A multiplication by a power of two is exact, and turns subnormals into normal numbers.
    let scaled = f32::from_bits(magnitude) * REBIAS;
    let special = if scaled >= BEYOND { EXPONENT } else { 0 };
    f32::from_bits(scaled.to_bits() | special | sign)
}

/// The f16 nearest to an f32.
#[inline(always)]
pub(super) fn narrow_f16(value: f32) -> u16 {
    /// f32 bits of 2^16, from where on every finite value rounds to infinity.
    const BEYOND: u32 = (127 + 16) << 23;
    /// f32 bits of 2^-14, the least normal f16.
    const NORMAL: u32 = (127 - 14) << 23;
    /// f32 bits of 0.5, whose last place is 2^-24: the least subnormal f16. Adding it makes the
    /// addition itself round to that place.
    const ALIGN: u32 = (127 - 1) << 23;
    /// The distance of the two exponents' zeros, in place.
    const REBIAS: u32 = (127 - 15) << 23;
    /// As in `narrow_bf16`.
    const HALF_DOWN: u32 = (1 << (F16_CUT - 1)) - 1;
    const INFINITY: u32 = 0x7c00;
    const NAN: u32 = 0x7e00;

    let sign = (value.to_bits() & SIGN) >> 16;
    let magnitude = value.to_bits() & !SIGN;
    let last = (magnitude >> F16_CUT) & 1;
    let normal = magnitude
        .wrapping_sub(REBIAS)
        .wrapping_add(HALF_DOWN + last)
        >> F16_CUT;
    let aligned = f32::from_bits(magnitude) + f32::from_bits(ALIGN);
    let subnormal = aligned.to_bits().wrapping_sub(ALIGN);
    let special = if magnitude > EXPONENT { NAN } else { INFINITY };
    let finite = if magnitude < NORMAL {
        subnormal
    } else {
        normal
    };
    let chosen = if magnitude >= BEYOND { special } else { finite };
    lower_half(chosen | sign)
}

#[inline(always)]
fn upper_half(bits: u32) -> u16 {
    (bits >> 16) as u16
}

#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the callers use the lower sixteen bits"
)]
fn lower_half(bits: u32) -> u16 {
    bits as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_widens_to_the_value_that_the_half_crate_gives_it() {
        for bits in 0..=u16::MAX {
            let expected = [
                half::f16::from_bits(bits).to_f32(),
                half::bf16::from_bits(bits).to_f32(),
            ];
            let got = [widen_f16(bits), widen_bf16(bits)];
            for (expected, got) in expected.into_iter().zip(got) {
                assert_eq!(expected.is_nan(), got.is_nan(), "{bits:#06x}");
                if !expected.is_nan() {
                    assert_eq!(expected.to_bits(), got.to_bits(), "{bits:#06x}");
                }
            }
        }
    }

    #[test]
    fn narrowing_a_widened_half_gives_it_back() {
        for bits in 0..=u16::MAX {
            if !half::f16::from_bits(bits).is_nan() {
                assert_eq!(narrow_f16(widen_f16(bits)), bits);
            }
            if !half::bf16::from_bits(bits).is_nan() {
                assert_eq!(narrow_bf16(widen_bf16(bits)), bits);
            }
        }
    }

    /// Around every place where rounding turns: each half value, half-way to the next one, and
    /// the f32 neighbours of both.
    #[test]
    fn narrowing_rounds_to_nearest_even_at_every_turning_point() {
        for bits in 0..=u16::MAX {
            for wide in [widen_f16(bits), widen_bf16(bits)] {
                let f16_half_way = wide.to_bits().wrapping_add(1 << (F16_CUT - 1));
                let bf16_half_way = wide.to_bits().wrapping_add(1 << (BF16_CUT - 1));
                // For subnormal f16 the place that rounds lies higher; 0.5 ulp is 2^-25.
                let subnormal = (wide.abs() + 2.0f32.powi(-25)).to_bits();
                for centre in [wide.to_bits(), f16_half_way, bf16_half_way, subnormal] {
                    for value in [centre.wrapping_sub(1), centre, centre.wrapping_add(1)] {
                        assert_narrows_like_the_half_crate(f32::from_bits(value));
                    }
                }
            }
        }
    }

    fn assert_narrows_like_the_half_crate(value: f32) {
        let bits = value.to_bits();
        let (f16, bf16) = (narrow_f16(value), narrow_bf16(value));
        if value.is_nan() {
            assert!(half::f16::from_bits(f16).is_nan(), "{bits:#010x}");
            assert!(half::bf16::from_bits(bf16).is_nan(), "{bits:#010x}");
        } else {
            assert_eq!(half::f16::from_f32(value).to_bits(), f16, "{bits:#010x}");
            assert_eq!(half::bf16::from_f32(value).to_bits(), bf16, "{bits:#010x}");
        }
    }
}
