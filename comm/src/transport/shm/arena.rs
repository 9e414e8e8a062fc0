//! The arena: one memfd for all ranks of a host, and where things lie in it.
//!
//! A rank's region has four parts: a header, a directory, a heap for small blocks, and a large heap. Parts of one kind lie side by
//! side for all ranks. So a rank that looks at the slots of a thousand others needs some hundred pages of page tables, and not two
//! for each of them.
#![expect(
    unsafe_code,
    reason = "maps and addresses memory that several processes share"
)]

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::memfd;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// First bytes of every arena: guards against mapping something else.
const MAGIC: u64 = u64::from_le_bytes(*b"musterA1");
/// Space for the arena's own header, and for each region's.
const HEADER_BYTES: usize = 4096;
/// Where the word lies that says whether the owner of a region sleeps in `poll`: in a line that nobody writes otherwise.
const ASLEEP: usize = 128;
/// Entries of a region's directory: groups, staging and rings that a rank has published and not
/// yet withdrawn. Enough for every group of every kind of a large layout at once.
pub const DIRECTORY_ENTRIES: usize = 8192;
/// Bytes of one directory entry: key, offset, note.
pub(super) const ENTRY_BYTES: usize = 24;
const DIRECTORY_BYTES: usize = (DIRECTORY_ENTRIES * ENTRY_BYTES).next_multiple_of(HEADER_BYTES);
/// Large heaps begin at multiples of this, so that huge pages fit where the kernel gives them.
const HEAP_ALIGN: usize = 2 << 20;
/// Bytes of the heap for small blocks: slots of some groups of any size. What does not fit goes into the large one.
const SMALL_HEAP_BYTES: usize = 128 << 10;
/// Most ranks of one island.
pub const ISLAND_MAX: usize = 4096;
/// Bytes of heap in each region unless configured. Address space only: a page costs memory from
/// the moment it is first written.
pub const HEAP_BYTES_DEFAULT: usize = 16 << 30;
/// Least heap that makes sense: some slots and staging.
pub const HEAP_BYTES_MIN: usize = 16 << 20;
/// Address space that one arena may take. A process has 128 TiB; half of it is left alone.
const ARENA_BYTES_MAX: usize = 64 << 40;

/// Bytes of a page, as the system has them: 4 KiB on x86-64, often 64 KiB on aarch64. With the feature `large-pages` at
/// least 64 KiB.
#[must_use]
pub fn page_bytes() -> usize {
    let least = if cfg!(feature = "large-pages") {
        64 << 10
    } else {
        1
    };
    rustix::param::page_size().max(least)
}

/// The mapping of an island's shared memory in this process.
#[derive(Debug)]
pub struct Arena {
    base: NonNull<u8>,
    bytes: usize,
    ranks: usize,
    heap_bytes: usize,
    file: OwnedFd,
}

// SAFETY: the arena is a plain mapping that lives until drop; all access through it is by raw
// pointers and atomics whose users state their own protocol.
unsafe impl Send for Arena {}
// SAFETY: as above: `base` is never changed after construction and no method hands out references
// to plain data.
unsafe impl Sync for Arena {}

/// Header at the start of the arena, written once by its creator before anybody else maps it.
#[derive(Clone, Copy)]
enum HeaderWord {
    Magic = 0,
    Ranks = 1,
    HeapBytes = 2,
}

/// What the owner of a region leaves behind in it for ranks that outlive its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerMark {
    /// It left the world in good order.
    Left = 1,
    /// It knew of a failure: what it did afterwards may be a consequence.
    Troubled = 2,
}

/// Why an arena could not be made or mapped.
#[derive(Debug, thiserror::Error)]
pub enum ArenaError {
    /// The kernel refused a step.
    #[error("{step} of {bytes} bytes of shared memory: {source}")]
    System {
        /// The system call.
        step: &'static str,
        /// Size asked for.
        bytes: usize,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The file is not an arena of this job.
    #[error("the shared memory received is not an arena: {0}")]
    Foreign(String),
    /// More ranks than one island may have, or none.
    #[error("{ranks} ranks on one host, allowed are 1 to {ISLAND_MAX}")]
    Ranks {
        /// What was asked for.
        ranks: usize,
    },
}

impl Arena {
    /// Makes the arena of an island of `ranks` ranks, each with about `heap_bytes` of heap (cut
    /// where the address space of the process could not hold all of it).
    ///
    /// # Errors
    /// The kernel's refusal, or a number of ranks out of range.
    pub fn create(ranks: usize, heap_bytes: usize) -> Result<Self, ArenaError> {
        if ranks == 0 || ranks > ISLAND_MAX {
            return Err(ArenaError::Ranks { ranks });
        }
        let fair_share = ARENA_BYTES_MAX / ranks;
        let mut heap_bytes = heap_bytes
            .clamp(HEAP_BYTES_MIN, fair_share)
            .next_multiple_of(page_bytes());
        loop {
            match Self::create_exactly(ranks, heap_bytes) {
                // A limit on address space or file size (ulimit -v, -f): a smaller heap still
                // serves, and a buffer that does not fit is refused by name later.
                Err(ArenaError::System { .. }) if heap_bytes / 4 >= HEAP_BYTES_MIN => {
                    heap_bytes /= 4;
                }
                result => return result,
            }
        }
    }

    fn create_exactly(ranks: usize, heap_bytes: usize) -> Result<Self, ArenaError> {
        let bytes = arena_bytes(ranks, heap_bytes);
        let file = memfd::create("muster-arena", bytes).map_err(|refused| ArenaError::System {
            step: refused.step,
            bytes,
            source: refused.source,
        })?;
        let arena = Self::map(file, bytes, ranks, heap_bytes)?;
        arena
            .header(HeaderWord::Ranks)
            .store(ranks as u64, Ordering::Relaxed);
        arena
            .header(HeaderWord::HeapBytes)
            .store(heap_bytes as u64, Ordering::Relaxed);
        // Relaxed: the descriptor travels through a socket before anybody reads this.
        arena
            .header(HeaderWord::Magic)
            .store(MAGIC, Ordering::Relaxed);
        Ok(arena)
    }

    /// Maps an arena received from its creator.
    ///
    /// # Errors
    /// The kernel's refusal, or a file that is not an arena for `ranks` ranks.
    pub fn attach(file: OwnedFd, ranks: usize) -> Result<Self, ArenaError> {
        let stat = rustix::fs::fstat(&file).map_err(|errno| ArenaError::System {
            step: "fstat",
            bytes: 0,
            source: errno.into(),
        })?;
        let bytes = usize::try_from(stat.st_size).unwrap_or(0);
        if bytes < arena_bytes(1, HEAP_BYTES_MIN) {
            return Err(ArenaError::Foreign(format!("it has {bytes} bytes")));
        }
        let mut arena = Self::map(file, bytes, ranks, 0)?;
        let word = |word| arena.header(word).load(Ordering::Relaxed);
        if word(HeaderWord::Magic) != MAGIC {
            return Err(ArenaError::Foreign(
                "its first bytes are not the mark of one".to_owned(),
            ));
        }
        let heap_bytes = crate::types::index(word(HeaderWord::HeapBytes));
        let declared = crate::types::index(word(HeaderWord::Ranks));
        if declared != ranks || heap_bytes > bytes || arena_bytes(ranks, heap_bytes) != bytes {
            return Err(ArenaError::Foreign(format!(
                "it was made for {declared} ranks with {heap_bytes} bytes of heap each and has \
                 {bytes} bytes, want {ranks} ranks"
            )));
        }
        arena.heap_bytes = heap_bytes;
        Ok(arena)
    }

    fn map(
        file: OwnedFd,
        bytes: usize,
        ranks: usize,
        heap_bytes: usize,
    ) -> Result<Self, ArenaError> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let base = unsafe { mmap(std::ptr::null_mut::<c_void>(), bytes, prot, flags, &file, 0) }
            .map_err(|errno| ArenaError::System {
                step: "mmap",
                bytes,
                source: errno.into(),
            })?;
        let base = NonNull::new(base.cast::<u8>()).ok_or_else(|| ArenaError::System {
            step: "mmap",
            bytes,
            source: io::ErrorKind::InvalidData.into(),
        })?;
        Ok(Self {
            base,
            bytes,
            ranks,
            heap_bytes,
            file,
        })
    }

    /// Number of regions.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Bytes of heap in each region.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.heap_bytes
    }

    /// The descriptor to hand to peers.
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Marks the region `local`, which belongs to the caller. The mark stays.
    pub fn set_owner_mark(&self, local: usize, mark: OwnerMark) {
        // SYNC: pairs with the Acquire in `has_owner_mark`: the mark comes before all that its owner does next.
        self.word(self.region_offset(local))
            .fetch_or(mark as u64, Ordering::AcqRel);
    }

    /// Whether the owner of region `local` has marked it with any of these.
    #[must_use]
    pub fn has_owner_mark(&self, local: usize, marks: &[OwnerMark]) -> bool {
        // SYNC: pairs with `set_owner_mark`.
        let found = self.word(self.region_offset(local)).load(Ordering::Acquire);
        marks.iter().any(|mark| found & *mark as u64 != 0)
    }

    /// The word of region `local` that says whether its owner sleeps in `poll`; see `doorbell`.
    #[must_use]
    pub fn asleep_word(&self, local: usize) -> &AtomicU32 {
        self.word32(self.region_offset(local) + ASLEEP)
    }

    /// Offset of the large heap of region `local`.
    #[must_use]
    pub fn heap_offset(&self, local: usize) -> usize {
        self.check(local);
        heaps_start(self.ranks) + local * heap_stride(self.heap_bytes)
    }

    /// Offsets and lengths of the two heaps of region `local`: that for small blocks, and the large one.
    #[must_use]
    pub fn heap_ranges(&self, local: usize) -> [(usize, usize); 2] {
        let small = small_heaps_start(self.ranks) + local * SMALL_HEAP_BYTES;
        [
            (small, SMALL_HEAP_BYTES),
            (self.heap_offset(local), self.heap_bytes),
        ]
    }

    /// Whether `len` bytes at `offset` lie in a heap of region `local`: the check that every
    /// offset read from shared memory goes through.
    #[must_use]
    pub fn heap_holds(&self, local: usize, offset: usize, len: usize) -> bool {
        let holds = |(start, bytes): (usize, usize)| {
            offset >= start && len <= bytes && offset - start <= bytes - len
        };
        self.heap_ranges(local).into_iter().any(holds)
    }

    /// Whether `len` bytes at `offset` lie in a heap of one region, whosever it is.
    #[must_use]
    pub fn in_some_heap(&self, offset: usize, len: usize) -> bool {
        let large = heaps_start(self.ranks);
        let local = match offset.checked_sub(large) {
            Some(within) => within / heap_stride(self.heap_bytes),
            None => offset.saturating_sub(small_heaps_start(self.ranks)) / SMALL_HEAP_BYTES,
        };
        local < self.ranks && self.heap_holds(local, offset, len)
    }

    /// Address of a byte of the arena.
    ///
    /// # Panics
    /// If `offset + len` leaves the arena: offsets of peers are checked before (SHM-1).
    #[must_use]
    pub fn at(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(
            len <= self.bytes && offset <= self.bytes - len,
            "offset {offset} + {len}"
        );
        // SAFETY: `offset` lies within the mapping, checked above.
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// Offset of an address of this mapping, or `None` for memory outside of it.
    #[must_use]
    pub fn offset_of(&self, ptr: *const u8, len: usize) -> Option<usize> {
        let offset = (ptr as usize).checked_sub(self.base.as_ptr() as usize)?;
        (len <= self.bytes && offset <= self.bytes - len).then_some(offset)
    }

    /// The atomic word at `offset`.
    ///
    /// # Panics
    /// If `offset` is not a multiple of eight or leaves the arena.
    #[must_use]
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8), "word at {offset}");
        #[expect(
            clippy::cast_ptr_alignment,
            reason = "asserted above: regions are page aligned"
        )]
        let ptr = self.at(offset, 8).cast::<AtomicU64>();
        debug_assert!(ptr.is_aligned());
        // SAFETY: in bounds and aligned (the mapping is page aligned); the memory is valid for as
        // long as `self`, starts as zeroes and is only ever accessed as an atomic.
        unsafe { &*ptr }
    }

    /// The `N` atomic words from `offset` on.
    ///
    /// # Panics
    /// If `offset` is not a multiple of eight or the last of them leaves the arena.
    #[must_use]
    #[inline]
    pub fn words<const N: usize>(&self, offset: usize) -> [&AtomicU64; N] {
        assert!(offset.is_multiple_of(8), "words at {offset}");
        let ptr = self.at(offset, N * 8).cast::<[AtomicU64; N]>();
        debug_assert!(ptr.is_aligned());
        // SAFETY: in bounds and aligned (asserted above: the mapping is page aligned), and only ever accessed as atomics.
        let words: &[AtomicU64; N] = unsafe { &*ptr };
        words.each_ref()
    }

    /// The 32-bit atomic at `offset`, as the kernel's futex wants it.
    ///
    /// # Panics
    /// If `offset` is not a multiple of four or leaves the arena.
    #[must_use]
    pub fn word32(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4), "word at {offset}");
        #[expect(
            clippy::cast_ptr_alignment,
            reason = "asserted above: regions are page aligned"
        )]
        let ptr = self.at(offset, 4).cast::<AtomicU32>();
        debug_assert!(ptr.is_aligned());
        // SAFETY: in bounds and aligned; valid for as long as `self`, starts as zeroes, and is only
        // ever accessed as this atomic.
        unsafe { &*ptr }
    }

    pub(super) fn directory_offset(&self, local: usize) -> usize {
        self.check(local);
        directories_start(self.ranks) + local * DIRECTORY_BYTES
    }

    /// Where the header of a region lies: behind that of the arena.
    fn region_offset(&self, local: usize) -> usize {
        self.check(local);
        (local + 1) * HEADER_BYTES
    }

    fn check(&self, local: usize) {
        assert!(local < self.ranks, "region {local} of {}", self.ranks);
    }

    fn header(&self, word: HeaderWord) -> &AtomicU64 {
        self.word(word as usize * 8)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this length, and every user of its memory
        // holds an `Arc` of the arena.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast::<c_void>(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

fn directories_start(ranks: usize) -> usize {
    (ranks + 1) * HEADER_BYTES
}

fn small_heaps_start(ranks: usize) -> usize {
    (directories_start(ranks) + ranks * DIRECTORY_BYTES).next_multiple_of(SMALL_HEAP_BYTES)
}

/// Beyond the end of the small heaps, so that no block is joined with one of theirs.
fn heaps_start(ranks: usize) -> usize {
    (small_heaps_start(ranks) + ranks * SMALL_HEAP_BYTES + 1).next_multiple_of(HEAP_ALIGN)
}

fn heap_stride(heap_bytes: usize) -> usize {
    heap_bytes.next_multiple_of(HEAP_ALIGN)
}

fn arena_bytes(ranks: usize, heap_bytes: usize) -> usize {
    // Saturating: a damaged header must lead to a refusal, not to an overflow.
    heap_stride(heap_bytes.min(ARENA_BYTES_MAX))
        .saturating_mul(ranks)
        .saturating_add(heaps_start(ranks))
}

const _: () = assert!(HEADER_BYTES >= ASLEEP + 64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attached_arena_shows_what_its_creator_wrote() {
        let mine = Arena::create(3, HEAP_BYTES_MIN).unwrap();
        let theirs = Arena::attach(mine.file().try_clone_to_owned().unwrap(), 3).unwrap();
        for local in 0..3 {
            let offset = mine.heap_offset(local);
            mine.word(offset).store(7 + local as u64, Ordering::Release);
            assert_eq!(
                theirs.word(offset).load(Ordering::Acquire),
                7 + local as u64
            );
        }
    }

    #[test]
    fn the_parts_of_all_regions_lie_apart_and_only_heaps_are_heaps() {
        for ranks in [1, 2, 7, 64] {
            let arena = Arena::create(ranks, HEAP_BYTES_MIN).unwrap();
            let mut parts = vec![(0, HEADER_BYTES)];
            for local in 0..ranks {
                parts.push((arena.region_offset(local), HEADER_BYTES));
                parts.push((arena.directory_offset(local), DIRECTORY_BYTES));
                for (start, bytes) in arena.heap_ranges(local) {
                    parts.push((start, bytes));
                    assert!(
                        arena.in_some_heap(start, bytes) && arena.heap_holds(local, start, bytes)
                    );
                    assert!(!arena.heap_holds(local, start, bytes + 1));
                    assert!(
                        !arena.heap_holds((local + 1) % (ranks + 1) % ranks, start, 1)
                            || ranks == 1
                    );
                }
                for part in [arena.region_offset(local), arena.directory_offset(local)] {
                    assert!(!arena.in_some_heap(part, 1));
                }
            }
            parts.sort_unstable();
            let end = parts.last().map_or(0, |(start, bytes)| start + bytes);
            assert!(
                parts
                    .windows(2)
                    .all(|pair| pair[0].0 + pair[0].1 <= pair[1].0)
            );
            assert!(end <= arena.bytes && !arena.in_some_heap(end, 1));
        }
    }

    #[test]
    fn a_mark_of_an_owner_stays_and_is_on_no_other_region() {
        let arena = Arena::create(2, HEAP_BYTES_MIN).unwrap();
        let (left, troubled) = ([OwnerMark::Left], [OwnerMark::Troubled]);
        assert!(!arena.has_owner_mark(1, &[OwnerMark::Left, OwnerMark::Troubled]));
        arena.set_owner_mark(1, OwnerMark::Troubled);
        assert!(arena.has_owner_mark(1, &troubled) && !arena.has_owner_mark(1, &left));
        arena.set_owner_mark(1, OwnerMark::Left);
        assert!(arena.has_owner_mark(1, &troubled) && arena.has_owner_mark(1, &left));
        assert!(!arena.has_owner_mark(0, &left) && !arena.has_owner_mark(0, &troubled));
    }

    #[test]
    fn an_arena_for_another_number_of_ranks_is_refused() {
        let mine = Arena::create(3, HEAP_BYTES_MIN).unwrap();
        let file = mine.file().try_clone_to_owned().unwrap();
        let error = Arena::attach(file, 2).expect_err("made for three");
        assert!(matches!(error, ArenaError::Foreign(_)), "{error}");
        let other = memfd::create("other", 0).unwrap();
        let error = Arena::attach(other, 1).expect_err("an empty file");
        assert!(matches!(error, ArenaError::Foreign(_)), "{error}");
    }

    #[test]
    fn only_offsets_inside_the_owners_heap_pass() {
        let arena = Arena::create(2, HEAP_BYTES_MIN).unwrap();
        let start = arena.heap_offset(1);
        let bytes = arena.heap_bytes();
        assert!(arena.heap_holds(1, start, bytes));
        assert!(!arena.heap_holds(1, start, bytes + 1));
        assert!(!arena.heap_holds(1, start - 1, 1));
        assert!(!arena.heap_holds(0, start, 1));
        assert!(!arena.heap_holds(1, usize::MAX, 2));
    }

    #[test]
    fn a_default_heap_costs_address_space_and_no_memory() {
        let arena = Arena::create(16, HEAP_BYTES_DEFAULT).unwrap();
        assert!(arena.heap_bytes() >= HEAP_BYTES_MIN);
        let stat = rustix::fs::fstat(arena.file()).unwrap();
        assert!(
            stat.st_blocks * 512 < 1 << 20,
            "{} blocks in use",
            stat.st_blocks
        );
    }
}
