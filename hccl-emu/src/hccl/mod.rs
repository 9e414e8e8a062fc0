//! The emulation of HCCL: communicators over worlds of the host backend, operators as tasks of
//! streams.
//!
//! - `exports_*`, [`operators`]: the C interface; they only translate.
//! - [`library`]: what is shared in the process. [`settings`]: the variables, pure.
//! - [`init`], [`rank_table`], [`root_info`], [`meeting`], [`network`]: how ranks come together.
//! - [`comm`], [`life`], [`config`], [`states`]: what a communicator is, how it is configured and
//!   ended, and who is told.
//! - [`call`], [`limits`]: the checks of an operator. [`submit`]: to a stream or a group.
//! - [`job`], [`task`], [`float_mode`]: what it does, and what its failure is called. [`spoil`]: a wrong
//!   result on purpose. [`fail`]: codes and texts.
//!
//! It must not know how devices, memory and streams are made; it uses [`crate::runtime`] for them,
//! and `muster-comm` for everything between ranks.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "of errors and kinds only some are told apart; the last arm says what the others are"
)]

mod call;
mod comm;
mod config;
mod exports_config;
mod exports_init;
mod exports_life;
mod fail;
mod float_mode;
mod init;
mod job;
mod library;
mod life;
mod limits;
mod meeting;
mod network;
mod operator;
mod operators;
mod rank_table;
mod root_info;
mod settings;
mod spoil;
mod states;
mod submit;
mod task;
mod zero_copy;
