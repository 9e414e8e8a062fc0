//! Whether a row without a proven difference is proven to be the same.
//!
//! JUDGE-4: a row is the same only if the upper end of its interval is within the margin. A test that could not have
//! seen the effect has proved nothing.

use crate::compare::judge::LEVEL;
use crate::compare::rank_test::{self, Effect, least_p, least_p_of_pairs};

/// States of a machine lie this many times apart (see `docs/compare.md`).
const STATES: f64 = 1.5;

/// Whether rounds may be of two states of the machine: then chance decides how many of each there are, and the interval
/// reaches from about nothing to the distance of the states.
pub(super) fn may_be_two_states(effect: &Effect, limit: f64) -> bool {
    effect.high.is_finite() && effect.low < limit && effect.high > STATES * effect.low
}

/// Most rounds of a side that are worth naming.
const ROUNDS_MAX: f64 = 1000.0;

/// What a row is measured against.
#[derive(Clone, Copy, Debug)]
pub(super) struct Margin {
    /// How much slower a row may be at most, as a part.
    pub(super) margin: f64,
    /// How many rows are compared.
    pub(super) rows: usize,
    /// Whether rounds are compared in pairs.
    pub(super) pairs: bool,
}

impl Margin {
    /// Whether the row may be called the same: `of_medians` is the ratio of the medians of both sides, and is far from
    /// that of the effect where rounds of a side fall apart.
    pub(super) fn holds(self, effect: &Effect, of_medians: f64) -> bool {
        let limit = 1.0 + self.margin;
        let apart = (of_medians / effect.ratio).ln().abs();
        effect.high <= limit && apart <= limit.ln()
    }

    /// About how many rounds of each side would decide, if their spread stays; none where no number is likely to.
    pub(super) fn rounds_wanted(self, effect: &Effect, rounds: usize) -> Option<usize> {
        if !effect.high.is_finite() {
            let least = |n: usize| match self.pairs {
                true => least_p_of_pairs(n),
                false => least_p(n, n),
            };
            let is_enough = |n: &usize| least(*n) * self.rows as f64 <= LEVEL;
            return (rounds + 1..).find(is_enough);
        }
        let limit = 1.0 + self.margin;
        // An interval is as wide as one over the root of the rounds.
        let (width, room) = if effect.ratio < limit {
            (
                (effect.high / effect.ratio).ln(),
                (limit / effect.ratio).ln(),
            )
        } else {
            ((effect.ratio / effect.low).ln(), effect.ratio.ln())
        };
        let wanted = (rounds as f64 * (width / room).powi(2)).ceil();
        if wanted.is_nan() || wanted > ROUNDS_MAX {
            return None;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "positive and at most ROUNDS_MAX"
        )]
        let wanted = wanted as usize;
        Some(wanted.max(rounds + 1))
    }
}

/// Fewest rounds after which it is asked whether they are enough.
const ROUNDS_MIN: usize = 10;
/// An interval reaches 1.96 deviations, and 9 of 10 ratios lie within another 1.28: the power of the interval's width that both take.
const POWER: f64 = (1.96 + 1.28) / 1.96;

/// Whether another side with rounds like these is told apart from this one in 9 of 10 comparisons, where it is slower by this `part`.
#[must_use]
pub fn detects(rounds_us: &[f64], rows: usize, part: f64) -> bool {
    let rounds = rounds_us.len();
    let is_enough = rounds >= ROUNDS_MIN && least_p(rounds, rounds) * rows as f64 <= LEVEL;
    let width = rank_test::compare(rounds_us, rounds_us).map(|effect| effect.high);
    is_enough && width.is_some_and(|width| width.powf(POWER) <= 1.0 + part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effect(low: f64, ratio: f64, high: f64) -> Effect {
        Effect {
            ratio,
            low,
            high,
            p_slower: 0.5,
            p_faster: 0.5,
        }
    }

    const TENTH: Margin = Margin {
        margin: 0.1,
        rows: 10,
        pairs: false,
    };

    #[test]
    fn a_row_whose_interval_goes_beyond_the_margin_is_not_the_same() {
        assert!(TENTH.holds(&effect(0.97, 1.0, 1.04), 1.0));
        assert!(TENTH.holds(&effect(0.2, 0.5, 0.9), 0.5));
        assert!(!TENTH.holds(&effect(0.83, 1.006, 8.2), 1.0));
        assert!(!TENTH.holds(&effect(0.0, 1.0, f64::INFINITY), 1.0));
    }

    /// "1.46 us, was 0.159 us: +18.9 % (95 %: +2.1 % to +1658.3 %)", of two runs of one program.
    #[test]
    fn an_interval_from_nothing_to_many_times_is_no_regression() {
        assert!(may_be_two_states(&effect(1.021, 1.189, 17.58), 1.05));
        assert!(!may_be_two_states(&effect(1.08, 1.15, 1.22), 1.05));
        assert!(!may_be_two_states(&effect(1.02, 1.15, 1.4), 1.05));
        assert!(!may_be_two_states(&effect(2.0, 4.0, 9.0), 1.05));
        assert!(!may_be_two_states(&effect(0.0, 2.0, f64::INFINITY), 1.05));
    }

    /// "72.9 us, was 179 us: +0.6 %".
    #[test]
    fn medians_that_contradict_the_effect_are_not_the_same() {
        assert!(!TENTH.holds(&effect(0.98, 1.006, 1.03), 72.9 / 179.0));
    }

    #[test]
    fn steady_rounds_detect_a_small_part_and_spread_ones_do_not() {
        let rounds = |spread: f64, count: u32| -> Vec<f64> {
            (0..count)
                .map(|at| {
                    100.0 * (1.0 + spread * (f64::from(at * 7 % count) / f64::from(count) - 0.5))
                })
                .collect()
        };
        assert!(detects(&rounds(0.02, 10), 20, 0.05));
        assert!(!detects(&rounds(0.02, 9), 20, 0.05), "too few");
        assert!(!detects(&rounds(0.3, 10), 20, 0.05));
        assert!(
            detects(&rounds(0.3, 200), 20, 0.1),
            "many rounds make up for spread"
        );
        assert!(!detects(&[], 20, 0.05));
    }

    #[test]
    fn the_rounds_that_would_decide_grow_with_the_square_of_the_width() {
        let wide = TENTH.rounds_wanted(&effect(0.8, 1.0, 1.21), 10);
        assert_eq!(wide, Some(40));
        assert_eq!(TENTH.rounds_wanted(&effect(0.5, 1.099, 2.0), 10), None);
        // Slower than the margin, and not sure to be slower at all.
        assert_eq!(TENTH.rounds_wanted(&effect(0.9, 1.2, 1.6), 10), Some(25));
        // Five rounds of each side can tell ten rows apart, four cannot.
        assert_eq!(
            TENTH.rounds_wanted(&effect(0.0, 1.0, f64::INFINITY), 1),
            Some(5)
        );
        // A pair has a sign by chance in half of all cases: eight pairs.
        let pairs = Margin {
            pairs: true,
            ..TENTH
        };
        let unknown = effect(0.0, 1.0, f64::INFINITY);
        assert_eq!(pairs.rounds_wanted(&unknown, 1), Some(8));
    }
}
