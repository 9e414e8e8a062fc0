//! What a run found, and the ways to show it.
//!
//! The model is the truth; each renderer is a view of it in a file of its own, and none computes a
//! verdict.

pub mod cause;
pub mod csv;
pub mod document;
pub mod format;
pub mod html;
pub mod json;
pub mod junit;
pub mod machine;
pub mod markdown;
pub mod measured;
pub mod origin;
pub mod prometheus;
pub mod schema;
pub mod terminal;
