//! The commands, one file each: its options and what it does.
//!
//! A command gives back the class of its outcome, or a [`Failure`](crate::fail::Failure) that the
//! top prints. It prints results through [`crate::out`] and nothing else.

pub mod bench;
pub mod compare;
pub mod completions;
pub mod doctor;
pub mod drill;
pub mod dump;
pub mod emu;
pub mod env;
pub mod groups;
mod measure;
pub mod moe;
pub mod plan;
pub mod rank;
pub mod ranktable;
pub mod report;
pub mod rules;
pub mod run;
pub mod saving;
pub mod tune;
mod values;
pub mod verify;
