//! MoE dispatch and combine as real layers do them: routing first, splits from it, every row checked.
//!
//! `model`, `workload`, `routing`, `skew` and `random` are pure. Nothing here starts processes.

pub mod file;
pub mod model;
mod random;
pub mod routing;
pub mod skew;
pub mod workload;
