//! The emulated runtime: devices, memory, streams, events, and one state for the whole process.
//!
//! - [`state()`]: the state, made at the first call and never taken down.
//! - [`device`]: devices, contexts, and which of them is current in the calling thread.
//! - [`memory`]: device memory that host code cannot touch, and that is checked at every use.
//! - [`stream`]: ordered queues of tasks, each with a worker thread. - [`task`]: what runs in them, and
//!   how it is told to end. - [`event`]: marks in them.
//! - [`callback`]: functions of the host in streams. - [`installed`]: the tree of this library.
//! - [`errors`]: codes, and the texts of `aclGetRecentErrMsg`. - [`notice`]: what is printed.
//!
//! Invariants:
//! - EMU-1: handles are numbers that are never used twice and never dereferenced, so a handle that
//!   was destroyed, or never was one, is told from a live one.
//! - EMU-2: nothing here waits without a way out: a task is told to end when its stream is aborted
//!   or destroyed, and no thread of ours keeps a process from exiting.
//! - EMU-3: every text that a client can read says `emulated`.
//!
//! It must not know collectives: those are tasks on streams like any other.

pub mod callback;
pub mod device;
pub mod errors;
pub mod event;
pub mod handles;
pub mod installed;
pub mod memory;
pub mod notice;
pub mod operator;
pub mod state;
pub mod stream;
pub mod system_options;
pub mod task;

pub use errors::{AclError, RuntimeError};
pub use state::{State, state};
