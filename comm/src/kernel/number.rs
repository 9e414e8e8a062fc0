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
    /// The quotient; integers truncate toward zero. `divisor` is not zero.
    fn divide(self, divisor: u32) -> Self;
}

macro_rules! integers {
    ($($int:ty as $wide:ty),* $(,)?) => {$(
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
            fn divide(self, divisor: u32) -> Self {
                // In 64 bits, because a small type cannot hold every divisor. The quotient is no
                // further from zero than `self` and therefore fits its type.
                (self as $wide / <$wide>::from(divisor)) as Self
            }
        }
    )*};
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a quotient is no further from zero than its dividend"
)]
mod integers {
    use super::Number;

    integers! {
        i8 as i64, i16 as i64, i32 as i64, i64 as i64,
        u8 as u64, u16 as u64, u32 as u64, u64 as u64,
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
