//! Bytes between two ranks, and nothing else.
//!
//! Ranks of one host share memory: [`shm`]. Everything else goes over [`Stream`]s: ordered,
//! reliable byte streams between this rank and one peer, for one group. There are three kinds,
//! [`ring`] (in shared memory), [`tcp`] and [`sim`] (a seeded network with virtual time), and one
//! suite of tests that all of them pass. [`frame`] is what the host engine puts on a stream in
//! front of each message.
//!
//! Nothing here knows element types, collectives or algorithms. A stream never waits: the caller
//! owns the waiting and its deadline. (Making a TCP stream waits, with a deadline.)

pub mod frame;
pub mod poll;
pub mod ring;
pub mod shm;
pub mod sim;
pub mod stream;
pub mod tcp;

pub use frame::{CallTag, Frame, FrameError, FrameKind, TagField};
pub use stream::{LinkError, LinkKind, Source, Stream, Target};
