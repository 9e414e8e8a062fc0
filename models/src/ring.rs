//! The files of `comm/src/transport/ring` that hold a protocol.

#[path = "../../comm/src/transport/ring/block.rs"]
pub(crate) mod block;
#[expect(dead_code, reason = "models need no figures for people")]
#[path = "../../comm/src/transport/ring/cursor.rs"]
pub(crate) mod cursor;
