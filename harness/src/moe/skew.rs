//! How unevenly tokens are spread: measures of a list of loads.
//!
//! Zero loads count; a list whose sum is zero is balanced.

use serde::{Deserialize, Serialize};

/// Measures of imbalance.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Skew {
    /// Largest load over the mean: 1 is balanced.
    pub max_over_mean: f64,
    /// Gini coefficient: 0 is balanced, near 1 is everything on one.
    pub gini: f64,
    /// Standard deviation over the mean.
    pub coefficient_of_variation: f64,
    /// How many have no load at all.
    pub empty: usize,
}

impl Skew {
    /// The measures of some loads.
    #[must_use]
    pub fn of(loads: &[f64]) -> Self {
        let n = loads.len() as f64;
        let sum: f64 = loads.iter().sum();
        let empty = loads.iter().filter(|load| **load <= 0.0).count();
        if loads.is_empty() || sum <= 0.0 {
            return Self {
                max_over_mean: 1.0,
                gini: 0.0,
                coefficient_of_variation: 0.0,
                empty,
            };
        }
        let mean = sum / n;
        let max = loads.iter().copied().fold(0.0, f64::max);
        let variance = loads.iter().map(|load| (load - mean).powi(2)).sum::<f64>() / n;
        let mut sorted = loads.to_vec();
        sorted.sort_by(f64::total_cmp);
        // With loads x_1 <= ... <= x_n: sum of (2i - n - 1) x_i over n times the sum of x_i.
        let weighted: f64 = sorted
            .iter()
            .enumerate()
            .map(|(place, load)| (2.0 * (place as f64 + 1.0) - n - 1.0) * load)
            .sum();
        Self {
            max_over_mean: max / mean,
            gini: weighted / (n * sum),
            coefficient_of_variation: variance.sqrt() / mean,
            empty,
        }
    }

    /// The measures of some counts.
    #[must_use]
    pub fn of_counts(counts: &[u64]) -> Self {
        let loads: Vec<f64> = counts.iter().map(|count| *count as f64).collect();
        Self::of(&loads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(got: f64, want: f64) -> bool {
        (got - want).abs() < 1e-12
    }

    #[test]
    fn measures_of_loads_whose_values_are_known() {
        let even = Skew::of_counts(&[5, 5, 5, 5]);
        assert!(near(even.max_over_mean, 1.0) && near(even.gini, 0.0));
        assert!(near(even.coefficient_of_variation, 0.0) && even.empty == 0);
        let one = Skew::of_counts(&[0, 0, 0, 8]);
        assert!(near(one.max_over_mean, 4.0) && near(one.gini, 0.75) && one.empty == 3);
        assert!(near(one.coefficient_of_variation, 3.0_f64.sqrt()));
        // Mean absolute difference of 1, 2, 3 is 8/9; the Gini coefficient is half of it over 2.
        assert!(near(Skew::of_counts(&[3, 1, 2]).gini, 2.0 / 9.0));
        let none = Skew::of_counts(&[0, 0]);
        assert!(near(none.max_over_mean, 1.0) && none.empty == 2);
    }
}
