//! What `verify` asks of the groups of a matrix.
//!
//! `cases` is the list of questions that every rank derives from its job in the same order, `message` what a rank answers, `collect` what the launcher makes of the answers.
//! `call_args` is the call that a check makes, `subject` the group that it makes it on. Each other file is one check: it asks a group something and says what was wrong with the answer.

pub mod call_args;
pub mod cases;
pub mod collect;
pub mod flight;
pub mod inject;
pub mod lifecycle;
pub mod membership;
pub mod message;
pub mod numbers;
pub mod objects;
mod reductions;
pub mod subject;
