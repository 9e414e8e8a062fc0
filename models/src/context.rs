//! The files of `comm/src/context` that hold a protocol.

#[path = "../../comm/src/context/buffer_pool.rs"]
pub(crate) mod buffer_pool;
#[path = "../../comm/src/context/epoch.rs"]
pub(crate) mod epoch;
