//! Statistics of samples: quantiles and the confidence interval of a median.
//!
//! Pure. No assumption is made on the distribution: times of calls have long tails, and often
//! several peaks.

/// Standard normal quantile of a two-sided interval of 95 %.
const Z_95: f64 = 1.959_963_984_540_054;

/// The least sample that at least the share `part` of all samples does not exceed. Samples are
/// ascending; zero where there are none.
#[must_use]
pub fn quantile(ascending: &[f64], part: f64) -> f64 {
    let n = ascending.len();
    let place = (part * n as f64).ceil().clamp(1.0, n.max(1) as f64);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 1 and the number of samples"
    )]
    let place = place as usize;
    ascending.get(place - 1).copied().unwrap_or(0.0)
}

/// The middle sample, or the mean of the middle two.
#[must_use]
pub fn median(ascending: &[f64]) -> f64 {
    let n = ascending.len();
    if n == 0 {
        return 0.0;
    }
    f64::midpoint(ascending[(n - 1) / 2], ascending[n / 2])
}

/// The middle of figures in any order; zero where there are none.
#[must_use]
pub fn middle(figures: &[f64]) -> f64 {
    let mut ascending = figures.to_vec();
    sort(&mut ascending);
    median(&ascending)
}

/// A robust standard deviation: that of a normal distribution is 1.4826 times its median distance from the `center`.
#[must_use]
pub fn deviation(figures: &[f64], center: f64) -> f64 {
    let away: Vec<f64> = figures
        .iter()
        .map(|figure| (figure - center).abs())
        .collect();
    1.4826 * middle(&away)
}

/// Sorts samples. They are times, so none is a NaN.
pub fn sort(samples: &mut [f64]) {
    samples.sort_unstable_by(f64::total_cmp);
}

/// The interval that holds the median with 95 % confidence, from the order of the samples alone;
/// none for fewer than six samples, where no such interval exists.
///
/// The number of samples below the median is binomial with a half, so its spread is half the root
/// of the number of samples; the normal approximation is rounded outward.
#[must_use]
pub fn median_interval(ascending: &[f64]) -> Option<(f64, f64)> {
    let n = ascending.len();
    if n < 6 {
        return None;
    }
    let (middle, spread) = (n as f64 / 2.0, Z_95 * (n as f64).sqrt() / 2.0);
    let low = (middle - spread).floor().max(0.0);
    let high = (middle + spread).ceil().min(n as f64 - 1.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to indices just above"
    )]
    let (low, high) = (low as usize, high as usize);
    Some((ascending[low], ascending[high]))
}

/// At most `keep` of the samples, at even distances, in their order.
#[must_use]
pub fn thinned(samples: &[f64], keep: usize) -> Vec<f64> {
    if samples.len() <= keep {
        return samples.to_vec();
    }
    (0..keep)
        .map(|index| samples[index * samples.len() / keep])
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantiles_of_one_to_a_hundred_are_themselves() {
        let samples: Vec<f64> = (1..=100).map(f64::from).collect();
        for (part, value) in [
            (0.0, 1.0),
            (0.01, 1.0),
            (0.5, 50.0),
            (0.9, 90.0),
            (0.99, 99.0),
            (0.999, 100.0),
            (1.0, 100.0),
        ] {
            assert!((quantile(&samples, part) - value).abs() < 1e-12, "{part}");
        }
        assert!((median(&samples) - 50.5).abs() < 1e-12);
        assert!((median(&[3.0]) - 3.0).abs() < 1e-12);
        assert!(quantile(&[], 0.5).abs() < 1e-12);
    }

    #[test]
    fn the_interval_of_a_median_covers_it_as_often_as_promised() {
        // A fixed generator: 2000 draws of 41 samples, uniform on 0 to 1, so the median is a half.
        let mut state = 1_u64;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        let mut covered = 0;
        for _ in 0..2000 {
            let mut samples: Vec<f64> = (0..41).map(|_| next()).collect();
            sort(&mut samples);
            let (low, high) = median_interval(&samples).expect("enough samples");
            covered += usize::from(low <= 0.5 && 0.5 <= high);
        }
        assert!((1880..=1995).contains(&covered), "{covered} of 2000");
    }

    proptest! {
        #[test]
        fn a_quantile_is_a_sample_and_grows_with_its_part(
            mut samples in prop::collection::vec(0.0..1e9_f64, 1..200),
            a in 0.0..1.0_f64,
            b in 0.0..1.0_f64,
        ) {
            sort(&mut samples);
            let (low, high) = (quantile(&samples, a.min(b)), quantile(&samples, a.max(b)));
            prop_assert!(low <= high);
            prop_assert!(samples.contains(&low));
        }

        #[test]
        fn thinning_keeps_order_and_bound(samples in prop::collection::vec(0.0..1.0_f64, 0..300), keep in 1..100_usize) {
            let kept = thinned(&samples, keep);
            prop_assert!(kept.len() == samples.len().min(keep));
            let mut rest = samples.iter();
            for sample in &kept {
                prop_assert!(rest.any(|other| other.total_cmp(sample).is_eq()));
            }
        }
    }
}
