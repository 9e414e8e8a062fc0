//! Arithmetic on the types that reductions compute in, one element at a time.
//!
//! Every function here is a few instructions without a branch, so that a loop over it becomes
//! vector code. What the operations mean is written down in `docs/numerics.md`.

/// A type that reductions compute in: the integers, f32 and f64.
pub(super) trait Number: Copy {
    /// The sum; integers wrap.
    fn sum(self, other: Self) -> Self;
    /// The product; integers wrap.
    fn prod(self, other: Self) -> Self;
    /// The lesser; `self` where they are equal, NaN where either is.
    fn min(self, other: Self) -> Self;
    /// The greater; `self` where they are equal, NaN where either is.
    fn max(self, other: Self) -> Self;
    /// The bits that both have.
    fn and(self, other: Self) -> Self;
    /// The bits that either has.
    fn or(self, other: Self) -> Self;
    /// The bits that one of them has.
    fn xor(self, other: Self) -> Self;
    /// The quotient; integers truncate toward zero. `divisor` is not zero.
    fn divide(self, divisor: u32) -> Self;
}

macro_rules! integers {
    ($($int:ty, divided as $wide:ty);* $(;)?) => {$(
        impl Number for $int {
            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn prod(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }

            #[inline(always)]
            fn min(self, other: Self) -> Self {
                Ord::min(self, other)
            }

            #[inline(always)]
            fn max(self, other: Self) -> Self {
                Ord::max(self, other)
            }

            #[inline(always)]
            fn and(self, other: Self) -> Self {
                self & other
            }

            #[inline(always)]
            fn or(self, other: Self) -> Self {
                self | other
            }

            #[inline(always)]
            fn xor(self, other: Self) -> Self {
                self ^ other
            }

            #[inline(always)]
            fn divide(self, divisor: u32) -> Self {
                (self as $wide / divisor as $wide) as Self
            }
        }
    )*};
}

/// No CPU divides integers in vectors, but they divide floats, and the truncated quotient is right
/// where the float holds the dividend exactly and has a bit to spare: a quotient that is no whole
/// number is at least `1 / divisor` away from the next one, which is more than rounding can move
/// it. A divisor that the float does not hold exactly exceeds every dividend, and gives zero.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a quotient is no further from zero than its dividend, and has its sign"
)]
mod integers {
    use super::Number;

    integers! {
        i8, divided as f32;
        i16, divided as f32;
        i32, divided as f64;
        i64, divided as i64;
        u8, divided as f32;
        u16, divided as f32;
        u32, divided as f64;
        u64, divided as u64;
    }
}

macro_rules! floats {
    ($($float:ty),*) => {$(
        impl Number for $float {
            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                self + other
            }

            #[inline(always)]
            fn prod(self, other: Self) -> Self {
                self * other
            }

            #[inline(always)]
            fn min(self, other: Self) -> Self {
                // Where `self` is NaN both tests fail and it stays.
                if (other < self) | other.is_nan() { other } else { self }
            }

            #[inline(always)]
            fn max(self, other: Self) -> Self {
                if (other > self) | other.is_nan() { other } else { self }
            }

            #[inline(always)]
            fn and(self, other: Self) -> Self {
                Self::from_bits(self.to_bits() & other.to_bits())
            }

            #[inline(always)]
            fn or(self, other: Self) -> Self {
                Self::from_bits(self.to_bits() | other.to_bits())
            }

            #[inline(always)]
            fn xor(self, other: Self) -> Self {
                Self::from_bits(self.to_bits() ^ other.to_bits())
            }

            #[inline(always)]
            fn divide(self, divisor: u32) -> Self {
                self / divisor as Self
            }
        }
    )*};
}

floats!(f32, f64);

/// A reduction of two elements, as a type, so that each gets a loop of its own.
pub(super) trait Fold {
    /// `earlier op later`, where the names give the order of the ranks.
    fn fold<N: Number>(earlier: N, later: N) -> N;
}

/// Folds by adding; the average is a sum that is divided at the end.
pub(super) struct Sum;
/// Folds by multiplying.
pub(super) struct Prod;
/// Folds by keeping the least.
pub(super) struct Min;
/// Folds by keeping the greatest.
pub(super) struct Max;
/// Folds by keeping the bits that all have.
pub(super) struct And;
/// Folds by keeping the bits that any has.
pub(super) struct Or;
/// Folds by keeping the bits that an odd number has.
pub(super) struct Xor;

impl Fold for And {
    #[inline(always)]
    fn fold<N: Number>(earlier: N, later: N) -> N {
        earlier.and(later)
    }
}

impl Fold for Or {
    #[inline(always)]
    fn fold<N: Number>(earlier: N, later: N) -> N {
        earlier.or(later)
    }
}

impl Fold for Xor {
    #[inline(always)]
    fn fold<N: Number>(earlier: N, later: N) -> N {
        earlier.xor(later)
    }
}

impl Fold for Sum {
    #[inline(always)]
    fn fold<N: Number>(earlier: N, later: N) -> N {
        earlier.sum(later)
    }
}

impl Fold for Prod {
    #[inline(always)]
    fn fold<N: Number>(earlier: N, later: N) -> N {
        earlier.prod(later)
    }
}

impl Fold for Min {
    #[inline(always)]
    fn fold<N: Number>(earlier: N, later: N) -> N {
        earlier.min(later)
    }
}

impl Fold for Max {
    #[inline(always)]
    fn fold<N: Number>(earlier: N, later: N) -> N {
        earlier.max(later)
    }
}

#[cfg(test)]
mod tests {
    use super::Number;

    /// Divisors around every power of two and around a few other numbers.
    fn divisors() -> impl Iterator<Item = u32> {
        let powers = (0..32).map(|bit| 1u32 << bit);
        let others = [3, 5, 7, 12, 100, 255, 1000, 65_535, 99_999, u32::MAX];
        powers
            .chain(others)
            .flat_map(|middle| [middle - 1, middle, middle.saturating_add(1)])
            .filter(|divisor| *divisor > 0)
    }

    #[test]
    fn small_integers_are_divided_as_whole_numbers_are() {
        for divisor in divisors() {
            for dividend in i16::MIN..=i16::MAX {
                let exact = i64::from(dividend) / i64::from(divisor);
                assert_eq!(i64::from(dividend.divide(divisor)), exact);
            }
            for dividend in 0..=u16::MAX {
                let exact = u64::from(dividend) / u64::from(divisor);
                assert_eq!(u64::from(dividend.divide(divisor)), exact);
            }
        }
    }

    #[test]
    fn integers_of_32_bits_are_divided_as_whole_numbers_are() {
        // Beside the multiples of each divisor, where a quotient could be rounded up.
        for divisor in divisors() {
            let greatest = u32::MAX / divisor;
            let multiples = [
                0,
                1,
                2,
                greatest / 3,
                greatest / 2,
                greatest.saturating_sub(1),
            ];
            for multiple in multiples
                .into_iter()
                .chain([greatest])
                .filter(|it| *it <= greatest)
            {
                for dividend in [multiple * divisor, (multiple * divisor).wrapping_sub(1)] {
                    assert_eq!(Number::divide(dividend, divisor), dividend / divisor);
                    let signed = dividend.cast_signed();
                    let exact = i64::from(signed) / i64::from(divisor);
                    assert_eq!(i64::from(Number::divide(signed, divisor)), exact);
                }
            }
        }
    }
}
