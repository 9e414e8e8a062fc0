//! The order string: which axis changes fastest with the rank number.
//!
//! Read as Megatron reads it, in its sequence of checks, so that a string which is refused here for
//! one reason is refused there for the same. Two things are stricter: an axis named twice is
//! always refused (Megatron loses ranks over it), and no string can panic.

use crate::types::closest;

use super::axis::{Axis, Param, Part, Sizes};
use super::error::LayoutError;

/// Megatron's default order.
pub const DEFAULT_ORDER: &str = "tp-cp-ep-dp-pp";

/// Longest piece of an order string that a message repeats. A legal order has 14 characters.
const SHOWN_CHARS: usize = 40;

/// All five axes: those of the string as it lists them, then those it leaves out (at size 1 only).
pub(super) fn complete(order: &str, part: Part, sizes: &Sizes) -> Result<[Axis; 5], LayoutError> {
    let lower = order.to_ascii_lowercase();
    // Megatron looks for the bare letters anywhere in the string ("ddp" holds "dp"), and trips over
    // the malformed word afterwards. Searching likewise gives the same first reason.
    let left_out = |axis: &Axis| !lower.contains(axis.name());
    let missing: Vec<_> = Axis::AS_CHECKED
        .into_iter()
        .filter(|axis| left_out(axis) && sizes.of(*axis) != 1)
        .map(|axis| (Param::of(axis, part), sizes.of(axis)))
        .collect();
    if !missing.is_empty() {
        return Err(LayoutError::OrderMissesAxis {
            order: shown(order),
            part,
            missing,
        });
    }
    let mut axes: Vec<Axis> = Vec::with_capacity(Axis::ALL.len());
    for word in lower.split('-') {
        let Some(axis) = Axis::from_name(word) else {
            return Err(unknown(order, word));
        };
        if axes.contains(&axis) {
            return Err(LayoutError::OrderAxisTwice {
                order: shown(order),
                axis,
            });
        }
        axes.push(axis);
    }
    axes.extend(Axis::AS_CHECKED.into_iter().filter(left_out));
    axes.as_slice()
        .try_into()
        .map_err(|_| unknown(order, &lower))
}

/// Whether Megatron sees `pp` as the last axis: a case-sensitive look at the end of the string.
pub(super) fn ends_with_pp(order: &str) -> bool {
    order.ends_with("pp")
}

/// The order as a message repeats it: short, and without control characters.
pub(super) fn shown(order: &str) -> String {
    let mut text: String = order
        .chars()
        .take(SHOWN_CHARS)
        .flat_map(char::escape_debug)
        .collect();
    if order.chars().nth(SHOWN_CHARS).is_some() {
        text.push('…');
    }
    text
}

fn unknown(order: &str, word: &str) -> LayoutError {
    let names = Axis::ALL.iter().map(|axis| axis.name());
    LayoutError::OrderUnknownAxis {
        order: shown(order),
        word: shown(word),
        suggestion: closest(word.trim(), names),
    }
}
