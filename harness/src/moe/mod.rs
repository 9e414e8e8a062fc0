//! MoE dispatch and combine as real layers do them: routing first, splits from it, every row checked.
//!
//! `model`, `workload`, `routing`, `file`, `skew`, `data`, `check` and `random` are pure; `layer`,
//! `exchange` and `dispatch` make calls. Nothing here starts processes.

pub mod check;
pub mod data;
pub mod dispatch;
mod document;
pub mod exchange;
pub mod file;
pub mod gather;
mod inside;
pub mod layer;
pub mod measured;
pub mod model;
mod page;
pub mod pool;
pub mod predicted;
pub mod rank;
pub mod report;
pub mod routing;
pub mod skew;
pub mod sweep;
pub mod table;
pub mod workload;
