//! The family of 64-bit Arm. Its vectors are part of every such CPU, and the compiler uses them
//! for the plain loops; halves are converted in integer arithmetic.
#![expect(
    unsafe_code,
    reason = "code that is compiled for special instructions may only run where they exist"
)]

use super::lane::{Bf16, F16};
use super::select::family;
use super::stream::BaseLines;

family!(
    /// 128-bit vectors.
    Neon, ["neon"], Bf16, F16, BaseLines, Self
);
