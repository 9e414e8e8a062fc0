//! How the result of each command is reported: an implementation of
//! [`Document`](super::document::Document) a file, and the sections of its page beside it.

pub(super) mod bench;
pub(super) mod compare;
pub(super) mod drill;
mod measured;
pub(super) mod moe;
pub(super) mod verify;
