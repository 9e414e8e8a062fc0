//! Algorithms as plans.

pub mod plan;
