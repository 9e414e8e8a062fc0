//! The files of `comm/src/transport/shm` that hold a protocol.

pub use crate::arena;

#[path = "../../comm/src/transport/shm/bell.rs"]
pub mod bell;
#[path = "../../comm/src/transport/shm/directory.rs"]
pub mod directory;
#[path = "../../comm/src/transport/shm/doorbell.rs"]
pub mod doorbell;
#[expect(dead_code, reason = "models have no users' blocks")]
#[path = "../../comm/src/transport/shm/heap.rs"]
pub mod heap;
#[path = "../../comm/src/transport/shm/slot.rs"]
pub mod slot;
#[path = "../../comm/src/transport/shm/tree.rs"]
pub mod tree;
#[path = "../../comm/src/transport/shm/wait.rs"]
pub mod wait;
