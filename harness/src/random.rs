//! Random numbers that are a function of what they are for: no state is carried along, so every rank
//! draws the same numbers for the same thing, in any order, on any machine.
//!
//! A number is a hash of a key and a counter (the finaliser of SplitMix64, which passes the usual
//! statistical batteries). A library's generator would do as well, but may change its sequence with
//! its version, and two results could then not be compared.

/// A sequence of numbers under a key.
#[derive(Clone, Copy, Debug)]
pub struct Draws {
    key: u64,
    next: u64,
}

impl Draws {
    /// The sequence for a list of words: seed, step, purpose, index…
    #[must_use]
    pub fn of(words: &[u64]) -> Self {
        let key = words
            .iter()
            .fold(0x6d75_7374_6572_u64, |key, word| mix(key ^ mix(*word)));
        Self { key, next: 0 }
    }

    /// The next number, uniform over all of `u64`.
    pub fn next_u64(&mut self) -> u64 {
        self.next += 1;
        mix(self.key.wrapping_add(self.next.wrapping_mul(GOLDEN)))
    }

    /// Uniform over the open interval from 0 to 1, in steps of 2^-53.
    pub fn next_unit(&mut self) -> f64 {
        const STEP: f64 = 1.0 / (1_u64 << 53) as f64;
        ((self.next_u64() >> 11) as f64 + 0.5) * STEP
    }

    /// Uniform over `0..n`. The bias is below `n / 2^64`.
    ///
    /// # Panics
    /// If `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        assert!(n > 0, "nothing to choose from");
        let product = u128::from(self.next_u64()) * n as u128;
        usize::try_from(product >> 64).unwrap_or(n - 1)
    }

    /// Standard normal, by the transform of Box and Muller.
    pub fn next_normal(&mut self) -> f64 {
        let radius = (-2.0 * self.next_unit().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.next_unit()).cos()
    }

    /// A random order of `0..n`.
    pub fn permutation(&mut self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        for last in (1..n).rev() {
            order.swap(last, self.below(last + 1));
        }
        order
    }
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(GOLDEN);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_a_function_of_their_key_and_look_uniform_and_normal() {
        let mut first = Draws::of(&[1, 2]);
        let mut again = Draws::of(&[1, 2]);
        assert_eq!(first.next_u64(), again.next_u64());
        assert_ne!(Draws::of(&[2, 1]).next_u64(), Draws::of(&[1, 2]).next_u64());
        let n = 100_000;
        let mean = (0..n).map(|_| first.next_unit()).sum::<f64>() / f64::from(n);
        assert!((mean - 0.5).abs() < 0.01, "{mean}");
        let squares = (0..n).map(|_| first.next_normal().powi(2)).sum::<f64>();
        assert!((squares / f64::from(n) - 1.0).abs() < 0.03, "{squares}");
    }

    #[test]
    fn a_permutation_holds_each_number_once() {
        let mut order = Draws::of(&[7]).permutation(100);
        assert_ne!(order, (0..100).collect::<Vec<_>>());
        order.sort_unstable();
        assert_eq!(order, (0..100).collect::<Vec<_>>());
    }
}
