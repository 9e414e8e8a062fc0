//! The file of `comm/src/transport/ring` that holds a protocol.

#[expect(dead_code, reason = "models need no figures for people")]
#[path = "../../comm/src/transport/ring/cursor.rs"]
pub(crate) mod cursor;
