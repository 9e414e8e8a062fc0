//! The files of `comm/src/watch` that hold a protocol.

#[path = "../../comm/src/watch/board/publish.rs"]
pub(crate) mod publish;
#[path = "../../comm/src/watch/tap/publish.rs"]
pub mod tap;
