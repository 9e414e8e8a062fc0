//! Parts of pages about times: curves with bands, spreads on a common axis, rates, wrong elements.

use maud::{Markup, html};

use super::figures::{Range, range};
use super::parts::{digits, micros, number, tag};
use super::plot::{BANDS_MAX, Point};
use crate::report::document::Mood;
use crate::report::measured::Latency;

/// What a chart of so many curves of times says of its bands.
#[must_use]
pub const fn bands(curves: usize) -> &'static str {
    if curves <= BANDS_MAX {
        "median; bands from min to p90 and p99"
    } else {
        "median; more in the table"
    }
}

/// A point of a curve of times.
#[must_use]
pub const fn point(x: f64, times: &Latency) -> Point {
    Point {
        x,
        y: times.median,
        inner: Some((times.min, times.p90)),
        outer: Some((times.min, times.p99)),
    }
}

/// A rate, or that there is none.
#[must_use]
pub fn rate(rate: Option<f64>) -> String {
    rate.map_or_else(|| "–".to_owned(), digits)
}

/// A cell with a number of wrong elements.
#[must_use]
pub fn wrong_cell(wrong: Option<u64>) -> Markup {
    html! {
        @match wrong {
            None => td.n.soft { "–" },
            Some(0) => td.n { "0" },
            Some(wrong) => td.n { (tag(Mood::Bad, &number(wrong))) },
        }
    }
}

/// The ends of an axis on which these times lie.
pub fn ends<'a>(times: impl Iterator<Item = &'a Latency> + Clone) -> (f64, f64) {
    let least = times.clone().map(|times| times.min);
    let low = least
        .filter(|time| *time > 0.0)
        .fold(f64::INFINITY, f64::min);
    (low, times.map(|times| times.p99).fold(0.0, f64::max))
}

/// From the least time to 99 % of them, with the median.
#[must_use]
pub fn spread(times: &Latency, ends: (f64, f64)) -> Markup {
    let (low, middle, high) = (times.min, times.median, times.p99);
    let words = format!(
        "{} to {}, median {}",
        micros(low),
        micros(high),
        micros(middle)
    );
    range(Range { low, middle, high }, ends, false, &words)
}
