//! Shared memory between the ranks of one host.
//!
//! One memfd, the *arena*, holds a region for every rank of the host (an *island*). A region is
//! written mostly by its owner: a directory of what it has published, and a heap from which slots,
//! staging, message rings and users' buffers are taken. The file has no name, so nothing ever lies
//! in a directory, and the kernel frees it when the last rank is gone, however it went.
//!
//! - `arena`: the mapping and its layout. - `directory`: how a peer finds what a rank published.
//! - `heap`: the owner's allocator. - `slot`: a rank's side of one group: entry, payload, progress.
//! - `wait`: how a rank waits for memory to change. - `bell`: how it is woken. - `doorbell`, `wakers`: how it is woken in `poll`.
//! - `region`: a user's block of the heap. - `memory`: shared memory that is older than the world.
//! - `tree`: which members of a large group look at each other.
//! - `spaces`: what all ranks can reach, and how a place in it is named. - `peer_memory`: reads of other processes.
//!
//! Invariants:
//! - SHM-1: what lies in a region is never borrowed as a Rust reference to plain data, only through
//!   raw pointers and atomics; offsets and lengths read from it are checked before they are used.
//! - SHM-2: only the owner of a region takes and returns its heap memory, so the allocator's books
//!   are private to its process.
//! - SHM-3: a block is returned to the heap only when no peer can still read it (see `slot`).
//! - SHM-4: a user's block is the exception to SHM-1: its owner borrows it as plain memory. Peers touch
//!   it only while a call of the owner has it (see `slot`, SLOT-5).

pub mod arena;
pub mod bell;
pub mod directory;
pub mod doorbell;
pub mod heap;
pub mod memory;
pub mod peer_memory;
pub mod region;
pub mod slot;
pub mod spaces;
pub mod tree;
pub mod wait;
pub mod wakers;
