//! A block of the region's heap that belongs to the user of the library.
//!
//! Its owner borrows it as plain bytes (SHM-4). It outlives the world where the owner keeps it, since
//! it holds the arena; peers that still map the arena do not touch it then.
//!
//! - REGION-1: where a call ended while a peer might still be at work on the owner's blocks, a block
//!   that is returned later gives its pages back but is never handed out again.
#![expect(unsafe_code, reason = "lends mapped memory as slices")]

use std::ptr::NonNull;
use std::sync::Arc;

use super::heap::{Block, Heap, HeapFull};

/// Blocks of at least this many bytes ask for huge pages.
const HUGE_FROM: usize = 2 << 20;

/// Bytes that peers can reach, zeroed.
#[derive(Debug)]
pub struct RegionBytes {
    base: NonNull<u8>,
    len: usize,
    /// `None` only while it is dropped.
    block: Option<Block>,
}

// SAFETY: `base` is the address of `block`, which this owns; it is reached through `&self` and
// `&mut self` only, as a `Vec<u8>` would be.
unsafe impl Send for RegionBytes {}
// SAFETY: as above.
unsafe impl Sync for RegionBytes {}

impl RegionBytes {
    /// Takes `len` bytes of a heap, at least 128-byte aligned (page aligned from 64 KiB on). Large
    /// blocks take memory as they are written.
    ///
    /// # Errors
    /// [`HeapFull`], which says what would fit.
    ///
    /// # Panics
    /// Never in practice: a block has an address.
    pub fn take(heap: &Arc<Heap>, len: usize) -> Result<Self, HeapFull> {
        let block = heap.take(len)?;
        let base = NonNull::new(block.as_ptr()).expect("a mapping does not begin at zero");
        if !block.discard() {
            // SAFETY: the block is ours alone, and holds at least `len` bytes.
            unsafe { base.as_ptr().write_bytes(0, len) };
        }
        if len >= HUGE_FROM {
            let advice = rustix::mm::Advice::LinuxHugepage;
            // SAFETY: the range is mapped; the advice changes no content. Kernels that give no huge
            // pages to shared memory refuse, and small ones serve.
            let _ = unsafe { rustix::mm::madvise(base.as_ptr().cast(), block.bytes(), advice) };
        }
        Ok(Self {
            base,
            len,
            block: Some(block),
        })
    }

    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the block holds `len` bytes, initialised by `take`, for as long as `self`; nobody
        // writes them while they are borrowed: peers only within calls that borrow them mutably.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }

    /// The bytes, for writing.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`; `self` is borrowed mutably, so that no call has the bytes.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

impl Drop for RegionBytes {
    fn drop(&mut self) {
        let Some(block) = self.block.take() else {
            return;
        };
        if block.heap().distrusts_users() {
            // REGION-1. What a late peer writes goes to new pages of the file and is never read.
            let _ = block.discard();
            // LEAK: address space of the region, until the arena goes.
            block.abandon();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::shm::arena::{Arena, HEAP_BYTES_MIN};

    fn heap() -> Arc<Heap> {
        let arena = Arc::new(Arena::create(1, HEAP_BYTES_MIN).unwrap());
        Arc::new(Heap::new(arena, 0))
    }

    #[test]
    fn what_is_taken_is_zero_however_it_was_used_before() {
        let heap = heap();
        for len in [1, 1000, 70_000, 3 << 20] {
            for _ in 0..3 {
                let mut bytes = RegionBytes::take(&heap, len).unwrap();
                assert!(bytes.as_slice().iter().all(|byte| *byte == 0));
                assert!(bytes.as_slice().as_ptr().addr().is_multiple_of(128));
                bytes.as_mut_slice().fill(9);
            }
        }
    }

    #[test]
    fn a_block_that_a_peer_may_still_write_is_not_handed_out_again() {
        let heap = heap();
        let first = RegionBytes::take(&heap, 1 << 20).unwrap();
        let at = first.as_slice().as_ptr();
        heap.distrust_users();
        drop(first);
        let second = RegionBytes::take(&heap, 1 << 20).unwrap();
        assert_ne!(second.as_slice().as_ptr(), at);
    }
}
