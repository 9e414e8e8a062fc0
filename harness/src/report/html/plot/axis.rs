//! Axes: what one counts, how its values read, and where on a logarithmic one a value lies.

use crate::report::html::parts::{digits, micros, size};

/// What an axis counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes, in powers of 1024.
    Bytes,
    /// Things.
    Count,
    /// 1e9 bytes a second.
    GigabytesPerSecond,
    /// Microseconds.
    Micros,
}

impl Unit {
    pub(super) fn shown(self, value: f64) -> String {
        match self {
            Self::Bytes => size(whole(value)),
            Self::Count => whole(value).to_string(),
            Self::GigabytesPerSecond => format!("{} GB/s", digits(value)),
            Self::Micros => micros(value),
        }
    }

    /// The same at a tick, where values are round.
    pub(super) fn tick(self, value: f64) -> String {
        let round = |value: f64| {
            if value >= 0.9 {
                format!("{value:.0}")
            } else {
                format!("{value}")
            }
        };
        match self {
            Self::Bytes | Self::Count => self.shown(value),
            Self::GigabytesPerSecond => round(rounded(value)),
            Self::Micros => match value {
                us if us >= 0.9e6 => format!("{} s", round(rounded(us / 1e6))),
                us if us >= 0.9e3 => format!("{} ms", round(rounded(us / 1e3))),
                us => format!("{} µs", round(rounded(us))),
            },
        }
    }

    const fn is_binary(self) -> bool {
        matches!(self, Self::Bytes | Self::Count)
    }
}

fn whole(value: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "sizes are positive and far below 2^53"
    )]
    let whole = value.max(0.0).round() as u64;
    whole
}

/// A power of ten times 1, 2 or 5, without what its computation left behind the last digit.
fn rounded(value: f64) -> f64 {
    let scale = 10_f64.powf(value.log10().floor());
    let rounded = (value / scale).round() * scale;
    if rounded >= 1.0 {
        rounded
    } else {
        (rounded * 1e9).round() / 1e9
    }
}

/// A logarithmic axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    /// Where `low` and `high` are drawn.
    ends: (f64, f64),
}

impl Scale {
    pub(super) fn over(
        values: impl Iterator<Item = f64>,
        room: f64,
        ends: (f64, f64),
    ) -> Option<Self> {
        let (mut low, mut high) = (f64::INFINITY, 0.0_f64);
        for value in values.filter(|value| value.is_finite() && *value > 0.0) {
            low = low.min(value);
            high = high.max(value);
        }
        (high > 0.0).then(|| Self {
            low: low / room,
            high: high * room,
            ends,
        })
    }

    pub(super) fn at(&self, value: f64) -> f64 {
        let part = (value / self.low).ln() / (self.high / self.low).ln();
        self.ends.0 + part * (self.ends.1 - self.ends.0)
    }

    /// Places of rules, and whether they have a label.
    pub(super) fn ticks(&self, unit: Unit) -> Vec<(f64, bool)> {
        let mut ticks = Vec::new();
        if unit.is_binary() {
            let (first, last) = (self.low.log2().ceil(), self.high.log2().floor());
            let step = ((last - first + 1.0) / 6.0).ceil().max(1.0);
            let mut power = first;
            while power <= last {
                ticks.push((2_f64.powf(power), true));
                power += step;
            }
            return ticks;
        }
        let decades = (self.high / self.low).log10();
        let mut decade = self.low.log10().floor();
        while decade <= self.high.log10() {
            let is_labelled = decades < 7.0 || decade.rem_euclid(2.0) < 0.5;
            for (digit, labelled) in [
                (1.0, is_labelled),
                (2.0, decades < 2.0),
                (5.0, decades < 2.0),
            ] {
                let value = digit * 10_f64.powf(decade);
                if value >= self.low && value <= self.high {
                    ticks.push((value, labelled));
                }
            }
            decade += 1.0;
        }
        ticks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        assert_eq!(Unit::Micros.tick(0.1), "0.1 µs");
        assert_eq!(Unit::Micros.tick(1e4), "10 ms");
        assert_eq!(Unit::Micros.tick(5e6), "5 s");
        assert_eq!(Unit::Bytes.tick(65536.0), "64 KiB");
        assert_eq!(Unit::GigabytesPerSecond.tick(10_f64.powf(-2.0)), "0.01");
    }
}
