//! The first element in which a buffer is not what it must be, in words.

use std::fmt;

use super::Value;
use crate::types::DType;

/// Where a buffer differs from what it must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The first element that differs.
    pub index: usize,
    /// What it must be, as a number.
    pub expected: String,
    /// What it is, as a number.
    pub got: String,
    /// How many elements differ in all, missing and surplus ones included.
    pub differing: usize,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let differ = match self.differing {
            1 => "element differs",
            _ => "elements differ",
        };
        write!(
            f,
            "element {}: expected {}, got {} ({} {differ})",
            self.index, self.expected, self.got, self.differing
        )
    }
}

/// The first element in which `got` is not `expected`, or `None` where the two agree.
///
/// Elements agree if their bits do or if both are NaN. A buffer that is too short or too long
/// differs at the first element that only one of the two has.
#[must_use]
pub fn first_difference(dtype: DType, expected: &[u8], got: &[u8]) -> Option<Difference> {
    if expected == got {
        return None;
    }
    let count = |buffer: &[u8]| buffer.len().div_ceil(dtype.size());
    let differs = |index: &usize| {
        !agree(
            dtype,
            element(dtype, expected, *index),
            element(dtype, got, *index),
        )
    };
    let all = 0..count(expected).max(count(got));
    let index = all.clone().find(differs)?;
    Some(Difference {
        index,
        expected: in_words(dtype, element(dtype, expected, index)),
        got: in_words(dtype, element(dtype, got, index)),
        differing: all.filter(differs).count(),
    })
}

/// The bytes of element `index`: fewer than its size where the buffer ends before.
fn element(dtype: DType, buffer: &[u8], index: usize) -> &[u8] {
    let start = buffer.len().min(index * dtype.size());
    let end = buffer.len().min(start + dtype.size());
    &buffer[start..end]
}

fn agree(dtype: DType, expected: &[u8], got: &[u8]) -> bool {
    if expected == got {
        return true;
    }
    let whole = expected.len() == dtype.size() && got.len() == dtype.size();
    whole && is_nan(dtype, expected) && is_nan(dtype, got)
}

fn is_nan(dtype: DType, bytes: &[u8]) -> bool {
    match Value::read(dtype, bytes, 0) {
        Value::Single(value) => value.is_nan(),
        Value::Double(value) => value.is_nan(),
        Value::Integer(_) => false,
    }
}

fn in_words(dtype: DType, bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "nothing".to_owned();
    }
    if bytes.len() < dtype.size() {
        return format!("{} of {} bytes", bytes.len(), dtype.size());
    }
    match Value::read(dtype, bytes, 0) {
        Value::Single(value) => in_digits(value, value.abs().into()),
        Value::Double(value) => in_digits(value, value.abs()),
        Value::Integer(value) => value.to_string(),
    }
}

/// A float in as few digits as tell it from its neighbours; very large and very small ones with an
/// exponent, so that no line of a report holds three hundred zeros.
fn in_digits<T: fmt::Display + fmt::LowerExp>(value: T, magnitude: f64) -> String {
    /// Magnitudes that read well without an exponent.
    const PLAIN: std::ops::Range<f64> = 1e-4..1e9;
    if magnitude == 0.0 || !magnitude.is_finite() || PLAIN.contains(&magnitude) {
        value.to_string()
    } else {
        format!("{value:e}")
    }
}
