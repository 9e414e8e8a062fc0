//! What a run found, and the ways to show it.
//!
//! The model is the truth; each renderer is a view of it in a file of its own, and none computes a
//! verdict.

pub mod doctor;
pub mod json;
pub mod model;
pub mod table;
