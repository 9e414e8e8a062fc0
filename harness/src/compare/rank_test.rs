//! Whether one set of figures is greater than another, and by how much, from their order alone.
//!
//! The test is that of Wilcoxon, Mann and Whitney with the exact distribution of the rank sum,
//! equal figures included: all ways to deal the observed ranks into the two sets are counted. Where
//! there are many figures, the normal distribution stands for the exact one. The size of the effect
//! is the median of all ratios (Hodges and Lehmann), with the interval that belongs to the test.

use std::cell::RefCell;

use crate::stats;

/// Most figures in both sets together for which all ways are counted.
const EXACT_MAX: usize = 60;
/// Most figures of a set; more are thinned.
const FIGURES_MAX: usize = 200;

/// How far one set lies above another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effect {
    /// Median of all ratios of a new figure to an old one.
    pub ratio: f64,
    /// Lower end of its 95 % interval.
    pub low: f64,
    /// Upper end of it.
    pub high: f64,
    /// Probability of new figures as great as these or greater, if nothing had changed.
    pub p_slower: f64,
    /// The same for as small as these or smaller.
    pub p_faster: f64,
}

/// Compares `new` with `base`; positive figures, at least one of each.
#[must_use]
pub fn compare(base: &[f64], new: &[f64]) -> Option<Effect> {
    let positive = |figures: &[f64]| {
        figures
            .iter()
            .all(|figure| *figure > 0.0 && figure.is_finite())
    };
    if base.is_empty() || new.is_empty() || !positive(base) || !positive(new) {
        return None;
    }
    let (base, new) = (
        stats::thinned(base, FIGURES_MAX),
        stats::thinned(new, FIGURES_MAX),
    );
    let (p_slower, p_faster) = tails(&doubled_ranks(&base, &new), base.len());
    let mut ratios: Vec<f64> = new
        .iter()
        .flat_map(|new| base.iter().map(move |base| new / base))
        .collect();
    stats::sort(&mut ratios);
    let (low, high) = interval(&ratios, base.len(), new.len());
    Some(Effect {
        ratio: stats::median(&ratios),
        low,
        high,
        p_slower,
        p_faster,
    })
}

/// How probable it is that the ranks behind the first `base` have so great a sum, or so small a one.
fn tails(ranks: &[usize], base: usize) -> (f64, f64) {
    if ranks.len() <= EXACT_MAX {
        counted_tails(ranks, base)
    } else {
        normal_tails(ranks, base)
    }
}

/// By all ways to deal the ranks.
fn counted_tails(ranks: &[usize], base: usize) -> (f64, f64) {
    let observed: usize = ranks[base..].iter().sum();
    let ways = ways(ranks, ranks.len() - base);
    let all: f64 = ways.iter().sum();
    let tail = |ways: &[f64]| ways.iter().sum::<f64>() / all;
    (tail(&ways[observed..]), tail(&ways[..=observed]))
}

/// By the normal distribution.
fn normal_tails(ranks: &[usize], base: usize) -> (f64, f64) {
    let observed: usize = ranks[base..].iter().sum();
    let new = ranks.len() - base;
    // The sum of `new` numbers that are drawn from all ranks; equal ranks make it vary less.
    let n = ranks.len() as f64;
    let mean = n + 1.0;
    let squares: f64 = ranks.iter().map(|rank| (*rank as f64 - mean).powi(2)).sum();
    let deviation = (base as f64 * new as f64 / (n * (n - 1.0)) * squares).sqrt();
    let above = observed as f64 - new as f64 * mean;
    // Sums of doubled ranks are two apart, so the observed one stands for what is up to one beside it.
    let tail = |above: f64| match deviation > 0.0 {
        true => libm::erfc((above - 1.0) / deviation / std::f64::consts::SQRT_2) / 2.0,
        false => 1.0,
    };
    (tail(above), tail(-above))
}

/// The smallest p that sets of these sizes can have: what even the clearest difference reaches.
#[must_use]
pub fn least_p(base: usize, new: usize) -> f64 {
    (0..base.min(new)).fold(1.0, |p, step| {
        p * (step + 1) as f64 / (base + new - step) as f64
    })
}

/// Twice the rank of every figure among all of them, so that the mean rank of equal figures is a
/// whole number too.
fn doubled_ranks(base: &[f64], new: &[f64]) -> Vec<usize> {
    let all: Vec<f64> = base.iter().chain(new).copied().collect();
    let rank = |figure: &f64| {
        let below = all.iter().filter(|other| *other < figure).count();
        let not_above = all.iter().filter(|other| *other <= figure).count();
        // Ranks below + 1 to not_above: twice their mean.
        below + 1 + not_above
    };
    all.iter().map(rank).collect()
}

thread_local! {
    /// The ways that were counted last, with their ranks and how many of them are chosen: all rows of a comparison whose figures
    /// differ have the same.
    static COUNTED: RefCell<(Vec<usize>, usize, Vec<f64>)> = const { RefCell::new((Vec::new(), 0, Vec::new())) };
}

/// [`count_ways`], once for the same ranks in any order.
fn ways(ranks: &[usize], chosen: usize) -> Vec<f64> {
    let mut ranks = ranks.to_vec();
    ranks.sort_unstable();
    COUNTED.with_borrow_mut(|counted| {
        if (&counted.0, counted.1) != (&ranks, chosen) {
            let ways = count_ways(&ranks, chosen);
            *counted = (ranks, chosen, ways);
        }
        counted.2.clone()
    })
}

/// In how many ways `chosen` of the ascending ranks have each sum. As floats: 60 over 30 needs more than 53
/// bits, and only the proportions matter.
fn count_ways(ranks: &[usize], chosen: usize) -> Vec<f64> {
    let mut sums = vec![0];
    for (taken, rank) in ranks.iter().enumerate() {
        sums.push(sums[taken] + rank);
    }
    let mut table = vec![vec![0.0_f64; sums[ranks.len()] + 1]; chosen + 1];
    table[0][0] = 1.0;
    for (taken, rank) in ranks.iter().enumerate() {
        for number in (1..=chosen.min(taken + 1)).rev() {
            let (fewer, more) = table.split_at_mut(number);
            // This rank and others before it: from the smallest of them to the greatest.
            let least = sums[number - 1];
            let greatest = sums[taken] - sums[taken + 1 - number];
            let from = &fewer[number - 1][least..=greatest];
            let to = &mut more[0][least + rank..=greatest + rank];
            for (to, from) in to.iter_mut().zip(from) {
                *to += from;
            }
        }
    }
    table.swap_remove(chosen)
}

/// The 95 % interval of the median ratio: as many of the outermost ratios fall away on each side as
/// the test, for figures that all differ, allows with 2.5 %.
fn interval(ascending: &[f64], base: usize, new: usize) -> (f64, f64) {
    let outside = outside(base, new);
    // With too few figures nothing may fall away; the whole range is still no 95 % interval.
    if outside == 0 {
        return (0.0, f64::INFINITY);
    }
    let (first, last) = (outside - 1, ascending.len() - outside);
    (
        ascending.get(first).copied().unwrap_or(0.0),
        ascending.get(last).copied().unwrap_or(f64::INFINITY),
    )
}

/// How many of the ratios fall away on each side.
fn outside(base: usize, new: usize) -> usize {
    const TAIL: f64 = 0.025;
    /// Standard deviations of the normal distribution beyond which that much lies.
    const DEVIATIONS: f64 = 1.96;
    if base + new > EXACT_MAX {
        let pairs = base as f64 * new as f64;
        let deviation = (pairs * (base + new + 1) as f64 / 12.0).sqrt();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "positive from two figures on, and less than the number of pairs"
        )]
        return (pairs / 2.0 - DEVIATIONS * deviation) as usize;
    }
    let distinct: Vec<usize> = (1..=base + new).map(|rank| 2 * rank).collect();
    let ways = ways(&distinct, new);
    let all: f64 = ways.iter().sum();
    let least = new * (new + 1);
    // The count of pairs in which the new figure is less grows with the rank sum by one each.
    let (mut outside, mut below) = (0, 0.0);
    for sum in (least..ways.len()).step_by(2) {
        below += ways[sum] / all;
        if below > TAIL {
            break;
        }
        outside += 1;
    }
    outside
}

/// Corrects the p of many tests by Holm's method: the chance that any of them is a false alarm stays
/// below the level. The order is kept.
#[must_use]
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let mut corrected = vec![1.0; p.len()];
    let mut greatest = 0.0_f64;
    for (done, index) in order.into_iter().enumerate() {
        let left = (p.len() - done) as f64;
        greatest = greatest.max((p[index] * left).min(1.0));
        corrected[index] = greatest;
    }
    corrected
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    /// Three and three without overlap: one of the C(6,3) = 20 ways.
    #[test]
    fn the_exact_distribution_of_small_sets_is_the_one_that_can_be_counted_by_hand() {
        let effect = compare(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]).expect("figures");
        assert!(close(effect.p_slower, 1.0 / 20.0), "{effect:?}");
        assert!(close(effect.p_faster, 1.0), "{effect:?}");
        assert!(close(least_p(3, 3), 1.0 / 20.0));
        // The new ranks 2 and 4 of 4 have the sum 6; of the six pairs 2+4 and 3+4 reach it: 1+4 = 5.
        let effect = compare(&[1.0, 3.0], &[2.0, 4.0]).expect("figures");
        assert!(close(effect.p_slower, 2.0 / 6.0), "{effect:?}");
    }

    /// All equal: every way has the same sum.
    #[test]
    fn equal_figures_prove_nothing() {
        let effect = compare(&[2.0; 10], &[2.0; 10]).expect("figures");
        assert!(close(effect.p_slower, 1.0), "{effect:?}");
        assert!(close(effect.ratio, 1.0), "{effect:?}");
        assert_eq!(compare(&[], &[1.0]), None);
        assert_eq!(compare(&[0.0], &[1.0]), None);
    }

    /// The published table of the test: sets of ten differ at 2.5 % on each side if U is 23 or less,
    /// so the 24th ratios from each end bound the interval.
    #[test]
    fn the_interval_is_that_of_the_published_table() {
        let ratios: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(interval(&ratios, 10, 10), (24.0, 77.0));
        assert_eq!(interval(&ratios[..9], 3, 3), (0.0, f64::INFINITY));
    }

    /// Thirty and thirty are counted; the normal distribution must say nearly the same of them, equal figures included.
    #[test]
    fn the_normal_distribution_says_of_many_figures_what_counting_does() {
        for shift in 0..12 {
            let figures = |shift: usize| -> Vec<f64> {
                (0..30).map(|at| (at * 7 % 15 + shift) as f64).collect()
            };
            let ranks = doubled_ranks(&figures(0), &figures(shift));
            let (counted, normal) = (counted_tails(&ranks, 30), normal_tails(&ranks, 30));
            let apart = |one: f64, other: f64| (one - other).abs() / (one + 0.001);
            assert!(
                apart(counted.0, normal.0) < 0.2 && apart(counted.1, normal.1) < 0.2,
                "shift {shift}: {counted:?} {normal:?}"
            );
        }
        assert_eq!((outside(30, 30), outside(40, 40)), (318, 596));
    }

    #[test]
    fn holm_multiplies_by_what_is_left_and_never_turns_back() {
        let corrected = holm(&[0.01, 0.04, 0.03]);
        for (got, want) in corrected.iter().zip([0.03, 0.06, 0.06]) {
            assert!(close(*got, want), "{corrected:?}");
        }
        assert!(close(holm(&[0.9, 0.8])[0], 1.0));
    }

    /// A fixed generator of numbers between zero and one.
    fn random(state: &mut u64) -> f64 {
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (*state >> 11) as f64 / (1_u64 << 53) as f64
    }

    #[test]
    fn the_interval_covers_the_truth_and_the_test_seldom_cries_wolf() {
        let mut state = 3;
        let (mut covered, mut alarms) = (0, 0);
        for _ in 0..1000 {
            let mut draw = |scale: f64| -> Vec<f64> {
                // A skewed distribution with a long tail, as times have.
                (0..10)
                    .map(|_| scale * (1.0 + 0.2 * -(1.0 - random(&mut state)).ln()))
                    .collect()
            };
            let effect = compare(&draw(1.0), &draw(1.1)).expect("figures");
            covered += usize::from(effect.low <= 1.1 && 1.1 <= effect.high);
            let same = compare(&draw(1.0), &draw(1.0)).expect("figures");
            alarms += usize::from(same.p_slower <= 0.05);
        }
        assert!((920..=985).contains(&covered), "{covered} of 1000");
        assert!((20..=70).contains(&alarms), "{alarms} of 1000");
    }

    proptest! {
        #[test]
        fn a_common_factor_changes_nothing_and_a_swap_turns_everything_around(
            base in prop::collection::vec(1.0..100.0_f64, 2..12),
            new in prop::collection::vec(1.0..100.0_f64, 2..12),
        ) {
            let effect = compare(&base, &new).expect("figures");
            prop_assert!(effect.low <= effect.ratio && effect.ratio <= effect.high);
            prop_assert!((0.0..=1.0 + 1e-12).contains(&effect.p_slower));
            let twice = |figures: &[f64]| -> Vec<f64> { figures.iter().map(|f| f * 2.0).collect() };
            let scaled = compare(&twice(&base), &twice(&new)).expect("figures");
            prop_assert!(close(scaled.p_slower, effect.p_slower));
            prop_assert!((scaled.ratio / effect.ratio - 1.0).abs() < 1e-9);
            let swapped = compare(&new, &base).expect("figures");
            prop_assert!(close(swapped.p_faster, effect.p_slower));
        }
    }
}
