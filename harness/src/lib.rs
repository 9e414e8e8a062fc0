//! The tool: commands, checks and reports of `muster`.
//!
//! `cmd` holds a file a command, `world` starts or joins ranks, `check` says what is asked of a
//! group, `report` holds what came out and the ways to show it. Nothing here moves data between
//! ranks: that is the library's work.

pub mod backend;
pub mod baseline;
pub mod bench;
pub mod check;
pub mod cli;
pub mod cmd;
pub mod compare;
pub mod diagnosis;
pub mod doctor;
pub mod drill;
pub mod exit;
pub mod explanation;
pub mod fail;
pub mod live;
pub mod moe;
pub mod out;
pub mod predict;
pub mod progress;
pub mod random;
pub mod replay;
pub mod report;
pub mod results;
pub mod run;
pub mod stats;
pub mod topology;
pub mod validation;
pub mod verify;
pub mod world;

/// The program that wrote a report.
pub const TOOL: &str = concat!("muster ", env!("CARGO_PKG_VERSION"));
