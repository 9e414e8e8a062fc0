//! What a litmus test of memory comes to: for people, and as a code.

use muster_comm::collective::{LitmusCounts, LitmusError};

use crate::exit::Exit;
use crate::report::html::parts::number;

/// What was done without a mistake.
pub(super) fn in_words(counts: &LitmusCounts) -> String {
    format!(
        "in order: {} entries, {} revoked buffers, {} wake-ups, {} bytes through rings",
        number(counts.entries),
        number(counts.buffers),
        number(counts.wakes),
        number(counts.ring_bytes)
    )
}

/// The class of what is wrong.
pub(super) const fn exit(error: &LitmusError) -> Exit {
    match error {
        LitmusError::Wrong(_) => Exit::Data,
        LitmusError::Alone(_) => Exit::PeerDead,
        LitmusError::Unfit => Exit::Internal,
        LitmusError::Memory(_) => Exit::Resource,
    }
}
