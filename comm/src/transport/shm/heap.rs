//! The allocator of one region's heaps: that for small blocks, and the large one.
//!
//! Its books lie in the owner's private memory: peers learn offsets only through the directory and
//! through slots. First fit over a list of free ranges, with neighbours joined; blocks are few (a
//! slot and staging for each group in use, users' buffers), so that is fast enough. Large returned
//! blocks give their pages back to the system.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::arena::{Arena, page_bytes};
use crate::sync::{AtomicBool, Ordering};

/// Alignment of every block: two cache lines, for the adjacent-line prefetcher.
pub const BLOCK_ALIGN: usize = 128;
/// Blocks of at least this many bytes are page aligned, and give their pages back when returned.
const PAGES_FROM: usize = 64 << 10;

/// The heap of the region that belongs to this rank.
#[derive(Debug)]
pub struct Heap {
    arena: Arc<Arena>,
    /// Free ranges by offset; never empty-length, never adjacent.
    free: Mutex<BTreeMap<usize, usize>>,
    /// Blocks of whole pages lie from here on.
    large_from: usize,
    /// See [`Heap::close`].
    closed: AtomicBool,
    /// See [`Heap::distrust_users`].
    distrusted: AtomicBool,
}

/// The heap has no free range that is long enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no {bytes} bytes free in this rank's shared region of {heap_bytes} bytes (longest free range {longest})"
)]
pub struct HeapFull {
    /// What was asked for.
    pub bytes: usize,
    /// Longest free range.
    pub longest: usize,
    /// The whole heap.
    pub heap_bytes: usize,
}

/// A block of the heap; returned to it when dropped.
#[derive(Debug)]
pub struct Block {
    heap: Arc<Heap>,
    offset: usize,
    bytes: usize,
}

impl Heap {
    /// The heap of region `local`, all of it free.
    #[must_use]
    pub fn new(arena: Arc<Arena>, local: usize) -> Self {
        let ranges = arena.heap_ranges(local).into_iter();
        let free = ranges.filter(|(_, bytes)| *bytes > 0).collect();
        Self {
            large_from: arena.heap_offset(local),
            arena,
            free: Mutex::new(free),
            closed: AtomicBool::new(false),
            distrusted: AtomicBool::new(false),
        }
    }

    /// The rank ends. Blocks that are dropped from now on keep what is in them, since peers may
    /// still read what this rank gave last; the memory goes with the file of the arena.
    pub fn close(&self) {
        // Relaxed: set and read while the one owner of the world is dropped.
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Takes `bytes` bytes (at least one), zeroed where never used before.
    ///
    /// # Errors
    /// [`HeapFull`], which says what would fit.
    pub fn take(self: &Arc<Self>, bytes: usize) -> Result<Block, HeapFull> {
        let align = if bytes >= PAGES_FROM {
            page_bytes()
        } else {
            BLOCK_ALIGN
        };
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let full = |free: &BTreeMap<usize, usize>| HeapFull {
            bytes,
            longest: free.values().copied().max().unwrap_or(0),
            heap_bytes: self.arena.heap_bytes(),
        };
        if bytes > self.arena.heap_bytes() {
            return Err(full(&free));
        }
        let bytes = bytes.max(1).next_multiple_of(align);
        let from = if bytes >= PAGES_FROM {
            self.large_from
        } else {
            0
        };
        let fit = free.range(from..).find_map(|(&start, &len)| {
            let offset = start.next_multiple_of(align);
            (offset - start + bytes <= len).then_some((start, len, offset))
        });
        let Some((start, len, offset)) = fit else {
            return Err(full(&free));
        };
        free.remove(&start);
        if offset > start {
            free.insert(start, offset - start);
        }
        let rest = start + len - (offset + bytes);
        if rest > 0 {
            free.insert(offset + bytes, rest);
        }
        Ok(Block {
            heap: Arc::clone(self),
            offset,
            bytes,
        })
    }

    /// A call over users' blocks ended while a peer may still be at work on them: what users return
    /// from now on gives its pages back and is not used again.
    pub fn distrust_users(&self) {
        // Relaxed: a user returns a block after the call that led here, on the same thread or ordered
        // by whatever handed the block over.
        self.distrusted.store(true, Ordering::Relaxed);
    }

    /// Whether [`Heap::distrust_users`] was called.
    #[must_use]
    pub fn distrusts_users(&self) -> bool {
        // Relaxed: see `distrust_users`.
        self.distrusted.load(Ordering::Relaxed)
    }

    fn is_closed(&self) -> bool {
        // Relaxed: see `close`.
        self.closed.load(Ordering::Relaxed)
    }

    fn put_back(&self, mut offset: usize, mut bytes: usize) {
        if self.is_closed() || bytes == 0 {
            return;
        }
        if bytes >= PAGES_FROM {
            let _ = self.give_pages_back(offset, bytes);
        }
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((&before, &len)) = free.range(..offset).next_back()
            && before + len == offset
        {
            free.remove(&before);
            offset = before;
            bytes += len;
        }
        if let Some(&len) = free.get(&(offset + bytes)) {
            free.remove(&(offset + bytes));
            bytes += len;
        }
        free.insert(offset, bytes);
    }

    /// Without it the pages stay ours and are reused: `false` says so.
    fn give_pages_back(&self, offset: usize, bytes: usize) -> bool {
        use rustix::fs::{FallocateFlags, fallocate};
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(self.arena.file(), flags, offset as u64, bytes as u64).is_ok()
    }
}

impl Block {
    /// Offset in the arena.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Usable bytes: at least what was asked for.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the block stays as it is when it is dropped: see [`Heap::close`].
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.heap.is_closed()
    }

    /// Address in this process.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.heap.arena.at(self.offset, self.bytes)
    }

    /// The heap that the block comes from.
    #[must_use]
    pub fn heap(&self) -> &Arc<Heap> {
        &self.heap
    }

    /// Gives the block up for good: nobody is handed its bytes again.
    pub(super) fn abandon(mut self) {
        self.bytes = 0;
    }

    /// Makes all bytes zero where that costs no memory: `false` where it would.
    pub(super) fn discard(&self) -> bool {
        self.bytes >= PAGES_FROM && self.heap.give_pages_back(self.offset, self.bytes)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.heap.put_back(self.offset, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::shm::arena::HEAP_BYTES_MIN;
    use proptest::prelude::*;

    fn heap() -> Arc<Heap> {
        let arena = Arc::new(Arena::create(1, HEAP_BYTES_MIN).unwrap());
        Arc::new(Heap::new(arena, 0))
    }

    #[test]
    fn a_block_too_large_is_refused_with_what_would_fit() {
        let heap = heap();
        let kept = heap.take(HEAP_BYTES_MIN / 2).unwrap();
        let error = heap.take(HEAP_BYTES_MIN).expect_err("half is taken");
        assert_eq!(error.bytes, HEAP_BYTES_MIN);
        assert!(error.longest <= HEAP_BYTES_MIN / 2);
        drop(kept);
        assert!(heap.take(HEAP_BYTES_MIN - page_bytes()).is_ok());
        assert!(heap.take(usize::MAX).is_err());
    }

    #[test]
    fn small_blocks_lie_in_the_small_heap_while_it_has_room() {
        let heap = heap();
        let [(small, bytes), (large, _)] = heap.arena.heap_ranges(0);
        let count = bytes / BLOCK_ALIGN;
        let blocks: Vec<Block> = (0..=count).map(|_| heap.take(1).unwrap()).collect();
        assert_eq!((blocks[0].offset(), blocks[count].offset()), (small, large));
        drop(blocks);
        assert_eq!(heap.take(PAGES_FROM).unwrap().offset(), large);
        let most = PAGES_FROM - BLOCK_ALIGN;
        assert_eq!(heap.take(most).unwrap().offset(), small);
    }

    #[test]
    fn a_closed_heap_leaves_what_its_blocks_hold() {
        let heap = heap();
        let block = heap.take(2 * PAGES_FROM).unwrap();
        let word = block.offset() + page_bytes();
        heap.arena.word(word).store(7, Ordering::Relaxed);
        heap.close();
        drop(block);
        assert_eq!(heap.arena.word(word).load(Ordering::Relaxed), 7);
    }

    proptest! {
        #[test]
        fn blocks_never_overlap_and_all_memory_comes_back(
            steps in prop::collection::vec((any::<bool>(), 0usize..300_000), 1..120)
        ) {
            let heap = heap();
            let whole = heap.free.lock().unwrap().clone();
            let mut blocks: Vec<Block> = Vec::new();
            for (take, number) in steps {
                if take {
                    if let Ok(block) = heap.take(number) {
                        prop_assert!(block.bytes() >= number);
                        prop_assert!(block.offset().is_multiple_of(BLOCK_ALIGN));
                        for other in &blocks {
                            prop_assert!(
                                block.offset() + block.bytes() <= other.offset()
                                    || other.offset() + other.bytes() <= block.offset()
                            );
                        }
                        blocks.push(block);
                    }
                } else if !blocks.is_empty() {
                    blocks.swap_remove(number % blocks.len());
                }
            }
            drop(blocks);
            prop_assert_eq!(&*heap.free.lock().unwrap(), &whole);
        }
    }
}
