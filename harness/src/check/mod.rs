//! What `verify` asks of the groups of a matrix.
//!
//! `job` is what a rank is told, `cases` the list of questions that every rank derives from it in
//! the same order, `message` what a rank answers, `collect` what the launcher makes of the answers.

pub mod cases;
pub mod collect;
pub mod inject;
pub mod job;
pub mod message;
