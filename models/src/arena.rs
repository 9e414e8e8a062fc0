//! An arena for models: words and payloads that come to be when they are first used. To make a word is an
//! access of its own to loom, so a model makes those that its threads share before it starts them.
#![expect(
    unsafe_code,
    reason = "payloads are plain memory; loom tells who touches them at once"
)]

use std::os::fd::BorrowedFd;
use std::sync::OnceLock;

use loom::cell::UnsafeCell;

use crate::sync::{AtomicU32, AtomicU64};

/// Entries of a directory: more than any model publishes.
pub const DIRECTORY_ENTRIES: usize = 4;
/// As in the arena of `comm`.
pub const ENTRY_BYTES: usize = 24;
/// As in the arena of `comm`.
pub const ISLAND_MAX: usize = 4096;
/// Bytes of the heap: two slots.
pub const HEAP_BYTES_MIN: usize = 68 << 10;

/// Words that are made together.
const CHUNK: usize = 64;
const DIRECTORY_BYTES: usize = DIRECTORY_ENTRIES * ENTRY_BYTES;
const REGION_BYTES: usize = DIRECTORY_BYTES + HEAP_BYTES_MIN;
/// So that offset 0 lies nowhere.
const START: usize = 4096;
const _: () = assert!(DIRECTORY_BYTES.is_multiple_of(8));

/// Some things, each made when it is first used.
type Chunk<T> = Box<[OnceLock<T>]>;

/// Things by their offset.
#[derive(Debug)]
struct Sparse<T>(Box<[OnceLock<Chunk<T>>]>);

impl<T> Sparse<T> {
    fn new(places: usize) -> Self {
        Self(
            (0..places.div_ceil(CHUNK))
                .map(|_| OnceLock::new())
                .collect(),
        )
    }

    fn at(&self, place: usize, make: impl FnOnce() -> T) -> &T {
        let chunk = || (0..CHUNK).map(|_| OnceLock::new()).collect();
        self.0[place / CHUNK].get_or_init(chunk)[place % CHUNK].get_or_init(make)
    }
}

/// Plain memory of which loom knows who reads and who writes it.
#[derive(Debug)]
struct Payload(UnsafeCell<u64>);

// SAFETY: loom refuses runs in which threads touch it at once.
unsafe impl Sync for Payload {}
// SAFETY: as above.
unsafe impl Send for Payload {}

/// Stands in for the arena of `comm`.
#[derive(Debug)]
pub struct Arena {
    ranks: usize,
    words: Sparse<AtomicU64>,
    halves: Sparse<AtomicU32>,
    payloads: Sparse<Payload>,
}

impl Arena {
    /// An arena for this many ranks.
    #[must_use]
    pub fn new(ranks: usize) -> Self {
        let bytes = START + ranks * REGION_BYTES;
        let arena = Self {
            ranks,
            words: Sparse::new(bytes / 8),
            halves: Sparse::new(bytes / 4),
            payloads: Sparse::new(bytes / 8),
        };
        for local in 0..ranks {
            arena.make(arena.directory_offset(local), DIRECTORY_BYTES);
        }
        arena
    }

    /// Makes the words of a range.
    pub fn make(&self, offset: usize, bytes: usize) {
        for word in (offset..offset + bytes).step_by(8) {
            let _ = self.word(word);
        }
    }

    /// Bytes of heap in each region.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        HEAP_BYTES_MIN
    }

    /// Models give no pages back.
    ///
    /// # Panics
    /// Always.
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        unreachable!("no block of a model is that large")
    }

    /// Offset of the heap of a region.
    #[must_use]
    pub fn heap_offset(&self, local: usize) -> usize {
        (self.directory_offset(local) + DIRECTORY_BYTES).next_multiple_of(128)
    }

    /// The heap for small blocks, which has no bytes here, and the large one.
    #[must_use]
    pub fn heap_ranges(&self, local: usize) -> [(usize, usize); 2] {
        [(0, 0), (self.heap_offset(local), HEAP_BYTES_MIN)]
    }

    /// Whether these bytes lie in that heap.
    #[must_use]
    pub fn heap_holds(&self, local: usize, offset: usize, len: usize) -> bool {
        let start = self.heap_offset(local);
        offset >= start && offset + len <= start + HEAP_BYTES_MIN
    }

    /// Offset of the directory of a region.
    #[must_use]
    pub fn directory_offset(&self, local: usize) -> usize {
        assert!(local < self.ranks, "region {local} of {}", self.ranks);
        START + local * REGION_BYTES
    }

    /// An address that [`Arena::put`] and [`Arena::take`] understand.
    #[must_use]
    pub fn at(&self, offset: usize, _len: usize) -> *mut u8 {
        std::ptr::without_provenance_mut(offset)
    }

    /// The word at `offset`.
    #[must_use]
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8), "word at {offset}");
        self.words.at(offset / 8, || AtomicU64::new(0))
    }

    /// The words from `offset` on.
    #[must_use]
    pub fn words<const N: usize>(&self, offset: usize) -> [&AtomicU64; N] {
        std::array::from_fn(|i| self.word(offset + i * 8))
    }

    /// The half of a word at `offset`.
    #[must_use]
    pub fn word32(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4), "half a word at {offset}");
        self.halves.at(offset / 4, || AtomicU32::new(0))
    }

    /// Writes plain memory.
    pub fn put(&self, at: *mut u8, value: u64) {
        // SAFETY: loom has checked that nobody else touches it.
        self.payload(at).0.with_mut(|cell| unsafe { *cell = value });
    }

    /// Reads plain memory.
    #[must_use]
    pub fn take(&self, at: *const u8) -> u64 {
        // SAFETY: loom has checked that nobody writes it.
        self.payload(at).0.with(|cell| unsafe { *cell })
    }

    fn payload(&self, at: *const u8) -> &Payload {
        self.payloads
            .at(at.addr() / 8, || Payload(UnsafeCell::new(0)))
    }
}

/// Bytes of a page: nothing is given back here.
#[must_use]
pub fn page_bytes() -> usize {
    4096
}
