//! Programs that call HCCL without muster: what the tap in front of the vendor's library has recorded of them, and what that
//! means.
//!
//! A call on a device waits where its members' devices have not come to it: they did not enqueue it, or an earlier call on
//! the same stream waits. So a stream is to the judge what a thread is among calls on the host, and the same judge names who
//! holds up the others.

mod ask;
pub mod board;
mod devices;
mod ends;
mod files;
pub mod publish;
mod scene;
mod snapshot;
mod tape;
#[cfg(test)]
mod tests;
mod view;

pub use self::ends::End;
pub use self::files::{BoardFile, board_files};
pub use self::scene::{Jobs, Watched, ranks_of};
pub use self::snapshot::{Call, DeviceError, Group, Process, read};
pub use self::tape::{Tape, Taped};
