//! What `verify` asks of the groups of a matrix.
//!
//! `job` is what a rank is told, `cases` the list of questions that every rank derives from it in
//! the same order, `message` what a rank answers, `collect` what the launcher makes of the answers.
//! Each other file is one check: it asks a group something and says what was wrong with the answer.

pub mod cases;
pub mod collect;
pub mod flight;
pub mod inject;
pub mod job;
pub mod lifecycle;
pub mod membership;
pub mod message;
pub mod numbers;
pub mod objects;
mod reductions;
pub mod subject;
