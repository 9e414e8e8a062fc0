//! Why a block holds no ring.

use super::{BLOCK_ALIGN, CAPACITY_MAX, RingStream};

/// Why a block holds no stream for this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// The second side was taken before.
    #[error("the second side of the ring is taken")]
    InUse,
    /// The block has no room for a ring, or far too much.
    #[error(
        "a block of {got} bytes holds no ring, expected {} to {} bytes",
        RingStream::block_bytes(1),
        RingStream::block_bytes(CAPACITY_MAX)
    )]
    Length {
        /// Bytes of the block.
        got: usize,
    },
    /// The block does not begin on a cache line.
    #[error("a block at {address:#x} holds no ring, expected a multiple of {BLOCK_ALIGN}")]
    Misaligned {
        /// Where it begins.
        address: usize,
    },
    /// There is no stream in the block, or not yet.
    #[error("there is no ring in the block yet")]
    NotCreated,
}
