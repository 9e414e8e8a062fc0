//! Drills: faults that are done to real ranks on purpose, and what the survivors say of them.
//!
//! `catalogue` says what is done and what must be said; `actor` is the rank that plays its part, in a
//! process of its own; `stage` starts the processes and hears what they print; `deed` does from outside
//! what is done from outside; `grade` compares what was said with what was done. `model` is the result,
//! for printing (`table`) and for reports.
//!
//! - DRILL-1: what was done is known to the drill alone. Ranks and launcher are told their own steps and
//!   nothing else, so the verdict is theirs; it is compared when all of them have ended.
//! - DRILL-2: a drill that could not be carried out is skipped with its reason, or has failed. It never
//!   counts as passed.
//! - DRILL-3: whatever a drill starts or makes carries its mark and ends with it.

pub mod actor;
pub mod catalogue;
pub mod cgroup;
pub mod clean;
mod document;
pub mod grade;
pub mod injection;
pub mod model;
pub mod network;
mod page;
pub mod plan;
pub mod process_group;
pub mod random;
pub mod script;
pub mod suite;
pub mod table;
pub mod told;
pub mod wire;
