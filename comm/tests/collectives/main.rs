//! Conformance of the collectives: every call, on every way it can take, against the reference.
//!
//! Expected values come from `collective::reference` only, and `perform` is the only caller of the
//! collectives under test. A world is made by `support::ranks`, whose `Setup` says what links the
//! ranks and which algorithms they take; every wait is bounded there.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a variant that a test does not know fails it"
)]
#![expect(
    clippy::cast_possible_truncation,
    reason = "ranks and counts of tests are small"
)]
#![expect(
    unsafe_code,
    reason = "views of raw memory are made as C callers make them"
)]

mod algorithms;
mod any;
mod arguments;
mod check;
mod fates;
mod groups;
mod left_out;
mod matrix;
mod mismatches;
mod numbers;
mod objects;
mod perform;
mod points;
mod programs;
mod support;
mod views;
mod ways;
mod works;
