//! The file of `comm/src/watch/board` that holds a protocol.

#[path = "../../comm/src/watch/board/publish.rs"]
pub(crate) mod publish;
