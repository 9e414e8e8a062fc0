//! Whether one set of figures is greater than another, and by how much, from their order alone.
//!
//! The test is that of Wilcoxon, Mann and Whitney with the exact distribution of the rank sum,
//! equal figures included: all ways to deal the observed ranks into the two sets are counted. Where
//! there are many figures, the normal distribution stands for the exact one. The size of the effect
//! is the median of all ratios (Hodges and Lehmann), with the interval that belongs to the test.
//!
//! Where each new figure was taken beside an old one, the test is Wilcoxon's of signed ranks, which what both figures of a pair have
//! in common does not touch. The size of the effect is the median of the means of any two pairs then, of logarithms.

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

/// Compares rounds of two sides: in `pairs` where each was taken beside the one of the other side in its place.
#[must_use]
pub fn compare_rounds(base: &[f64], new: &[f64], pairs: bool) -> Option<Effect> {
    if pairs && base.len() == new.len() {
        compare_pairs(base, new)
    } else {
        compare(base, new)
    }
}

/// Compares `new` with `base`; positive figures, at least one of each.
#[must_use]
pub fn compare(base: &[f64], new: &[f64]) -> Option<Effect> {
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
    let (low, high) = interval(&ratios, outside(base.len(), new.len()));
    Some(Effect {
        ratio: stats::median(&ratios),
        low: low.unwrap_or(0.0),
        high: high.unwrap_or(f64::INFINITY),
        p_slower,
        p_faster,
    })
}

/// Compares each figure of `new` with that of `base` in the same place, which was taken beside it; positive figures, at least one pair.
#[must_use]
pub fn compare_pairs(base: &[f64], new: &[f64]) -> Option<Effect> {
    if base.is_empty() || base.len() != new.len() || !positive(base) || !positive(new) {
        return None;
    }
    let ratios = base.iter().zip(new).map(|(base, new)| (new / base).ln());
    let ratios = stats::thinned(&ratios.collect::<Vec<_>>(), FIGURES_MAX);
    let (p_slower, p_faster) = signed_tails(&ratios);
    let mut means: Vec<f64> = Vec::new();
    for (at, one) in ratios.iter().enumerate() {
        means.extend(ratios[at..].iter().map(|other| f64::midpoint(*one, *other)));
    }
    stats::sort(&mut means);
    let (low, high) = interval(&means, outside_of_pairs(ratios.len()));
    Some(Effect {
        ratio: stats::median(&means).exp(),
        low: low.map_or(0.0, f64::exp),
        high: high.map_or(f64::INFINITY, f64::exp),
        p_slower,
        p_faster,
    })
}

fn positive(figures: &[f64]) -> bool {
    figures
        .iter()
        .all(|figure| *figure > 0.0 && figure.is_finite())
}

/// How probable it is that the ranks of what is positive have so great a sum, or so small a one, where each sign is a matter of
/// chance. What is zero has no sign.
fn signed_tails(signed: &[f64]) -> (f64, f64) {
    let signed: Vec<f64> = signed
        .iter()
        .copied()
        .filter(|one| one.abs() > 0.0)
        .collect();
    let sizes: Vec<f64> = signed.iter().map(|one| one.abs()).collect();
    let ranks = doubled_ranks(&sizes, &[]);
    let of_positive = ranks.iter().zip(&signed).filter(|(_, one)| **one > 0.0);
    let observed: usize = of_positive.map(|(rank, _)| rank).sum();
    let ways = signed_ways(&ranks);
    let all: f64 = ways.iter().sum();
    let tail = |ways: &[f64]| ways.iter().sum::<f64>() / all;
    (tail(&ways[observed..]), tail(&ways[..=observed]))
}

/// In how many ways some of the ranks have each sum.
fn signed_ways(ranks: &[usize]) -> Vec<f64> {
    let mut ways = vec![1.0_f64];
    for rank in ranks {
        let mut with = vec![0.0; *rank];
        with.extend_from_slice(&ways);
        for (with, without) in with.iter_mut().zip(&ways) {
            *with += without;
        }
        ways = with;
    }
    ways
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

/// The smallest p that so many pairs can have.
#[must_use]
pub fn least_p_of_pairs(pairs: usize) -> f64 {
    0.5_f64.powi(i32::try_from(pairs).unwrap_or(i32::MAX))
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

/// The 95 % interval of the median: as many of the outermost figures fall away on each side as
/// the test, for figures that all differ, allows with 2.5 %. An end is not known where that is none: the whole range is no 95 %
/// interval.
fn interval(ascending: &[f64], outside: usize) -> (Option<f64>, Option<f64>) {
    if outside == 0 {
        return (None, None);
    }
    let (first, last) = (outside - 1, ascending.len() - outside);
    (ascending.get(first).copied(), ascending.get(last).copied())
}

/// What falls away on each side of an interval, as a part.
const TAIL: f64 = 0.025;

/// How many of the means of two pairs fall away on each side.
fn outside_of_pairs(pairs: usize) -> usize {
    let ways = signed_ways(&(1..=pairs).collect::<Vec<_>>());
    let all: f64 = ways.iter().sum();
    let mut below = 0.0;
    let is_outside = |ways: &&f64| {
        below += **ways / all;
        below <= TAIL
    };
    ways.iter().take_while(is_outside).count()
}

/// How many of the ratios fall away on each side.
fn outside(base: usize, new: usize) -> usize {
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
        assert_eq!(interval(&ratios, outside(10, 10)), (Some(24.0), Some(77.0)));
        assert_eq!(interval(&ratios[..9], outside(3, 3)), (None, None));
        // The table of signed ranks: at 2.5 % on each side T is 0 of 6 pairs, 8 of 10 and 52 of 20.
        let of = |pairs: usize| outside_of_pairs(pairs);
        assert_eq!([of(5), of(6), of(10), of(20)], [0, 1, 9, 53]);
    }

    /// Of three pairs that all got slower: one of the eight ways to deal signs.
    #[test]
    fn pairs_are_judged_by_the_ranks_of_their_differences() {
        let effect = compare_pairs(&[1.0, 10.0, 100.0], &[1.1, 12.0, 130.0]).expect("figures");
        assert!(close(effect.p_slower, 1.0 / 8.0), "{effect:?}");
        assert!(close(effect.p_faster, 1.0), "{effect:?}");
        assert!((effect.ratio - 1.2).abs() < 0.01, "{effect:?}");
        assert!(close(least_p_of_pairs(3), 1.0 / 8.0));
        // The smallest of three differences is the other way: sums of 5 and 6 of ranks 1, 2, 3 are two of the eight ways.
        let effect = compare_pairs(&[1.0, 1.0, 1.0], &[0.99, 1.1, 1.2]).expect("figures");
        assert!(close(effect.p_slower, 2.0 / 8.0), "{effect:?}");
        let equal = compare_pairs(&[2.0; 10], &[2.0; 10]).expect("figures");
        assert!(
            close(equal.p_slower, 1.0) && close(equal.ratio, 1.0),
            "{equal:?}"
        );
        assert_eq!(compare_pairs(&[1.0], &[1.0, 2.0]), None);
        assert_eq!(compare_pairs(&[], &[]), None);
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
        let (mut covered_by_pairs, mut alarms_of_pairs) = (0, 0);
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
            // What both figures of a pair have in common may be of any size.
            let common: Vec<f64> = draw(1.0).iter().map(|one| one.powi(9)).collect();
            let mut beside = |scale: f64| -> Vec<f64> {
                draw(scale)
                    .iter()
                    .zip(&common)
                    .map(|(one, all)| one * all)
                    .collect()
            };
            let effect = compare_pairs(&beside(1.0), &beside(1.1)).expect("figures");
            covered_by_pairs += usize::from(effect.low <= 1.1 && 1.1 <= effect.high);
            let same = compare_pairs(&beside(1.0), &beside(1.0)).expect("figures");
            alarms_of_pairs += usize::from(same.p_slower <= 0.05);
        }
        assert!(
            (920..=985).contains(&covered_by_pairs),
            "{covered_by_pairs} of 1000"
        );
        assert!(
            (20..=70).contains(&alarms_of_pairs),
            "{alarms_of_pairs} of 1000"
        );
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
