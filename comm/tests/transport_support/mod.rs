//! What the tests of streams and of message runs share: links of every kind, element values that
//! are exact in every type, and a naive reference for every collective.

#![expect(
    unsafe_code,
    reason = "rings live in raw memory, and runs work on raw buffers"
)]
#![allow(
    dead_code,
    clippy::allow_attributes,
    reason = "each test binary uses a part of it"
)]

pub(crate) mod expected;
pub(crate) mod job;
pub(crate) mod links;

/// The seed of this run of the tests: `MUSTER_SEED`, or a fixed one.
pub(crate) fn seed() -> u64 {
    option_env!("MUSTER_SEED").map_or(0x5eed, |text| text.parse().expect("a number"))
}

/// Scrambles a number: the tests' own source of patterns.
pub(crate) fn scramble(value: u64) -> u64 {
    let value = (value ^ (value >> 31)).wrapping_mul(0x7fb5_d329_728e_a185);
    let value = (value ^ (value >> 27)).wrapping_mul(0x81da_def4_bc2d_d44d);
    value ^ (value >> 33)
}
