//! Shared memory that exists before a world, and may be given to several.
//!
//! A program that manages memory of its own (an allocator of tensors, the memory of an emulated
//! device) makes it here, carves its buffers out of it, and hands it to the worlds that it joins. Local
//! peers map it at bring-up; a call recognises by address that its buffers lie in it, and then peers
//! read and write them where they are.
//!
//! - SHARED-1: the file's size is sealed before anybody else maps it, and who maps it checks that: so
//!   no mapping can lose its memory while it is used.
//! - SHARED-2: a process maps one file once, however many worlds it belongs to: the pages that it has
//!   touched are known to it under one address.
//! - SHARED-3: the owner lends a part of the memory to a call, with the call's buffers; peers touch
//!   that part from the owner's entry into the call until its end, and nothing else.
#![expect(
    unsafe_code,
    reason = "maps and addresses memory that several processes share"
)]

use std::collections::HashMap;
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use rustix::fs::{FallocateFlags, SealFlags, fallocate, fcntl_get_seals, fstat};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::arena::page_bytes;
use crate::memfd;

/// Address space that one of these may take: what a word that names a place in it can hold.
pub const CAPACITY_MAX: usize = 1 << 46;

/// Memory without a name that other processes can map; see the module's text.
#[derive(Debug)]
pub struct SharedMemory {
    base: NonNull<u8>,
    capacity: usize,
    file: OwnedFd,
}

// SAFETY: a plain mapping that lives until drop; it is used through raw pointers only, whose users
// state their own protocol.
unsafe impl Send for SharedMemory {}
// SAFETY: as above: nothing changes after construction, and no method hands out references.
unsafe impl Sync for SharedMemory {}

/// Why shared memory could not be made or mapped.
#[derive(Debug, thiserror::Error)]
pub enum SharedMemoryError {
    /// More than a mapping can have, or nothing.
    #[error("{capacity} bytes of shared memory, allowed are 1 to {CAPACITY_MAX}")]
    Capacity {
        /// What was asked for.
        capacity: usize,
    },
    /// The kernel refused a step.
    #[error("{step} of {capacity} bytes of shared memory: {source}")]
    System {
        /// The system call.
        step: &'static str,
        /// Size asked for.
        capacity: usize,
        /// The kernel's reason.
        source: io::Error,
    },
    /// What was received is no such memory.
    #[error("the descriptor received is no shared memory of a peer: {0}")]
    Foreign(String),
}

impl SharedMemory {
    /// Makes `capacity` bytes (rounded up to whole pages), all zero. They cost address space; a page
    /// takes memory from the moment it is first written.
    ///
    /// # Errors
    /// A capacity out of range, or the kernel's refusal (a limit on address space or file size).
    pub fn create(capacity: usize) -> Result<Arc<Self>, SharedMemoryError> {
        if capacity == 0 || capacity > CAPACITY_MAX {
            return Err(SharedMemoryError::Capacity { capacity });
        }
        let capacity = capacity.next_multiple_of(page_bytes());
        // SHARED-1.
        let file = memfd::create("muster-memory", capacity).map_err(|refused| {
            SharedMemoryError::System {
                step: refused.step,
                capacity,
                source: refused.source,
            }
        })?;
        Self::known(file)
    }

    /// Maps what a peer has made.
    ///
    /// # Errors
    /// A file that could change its size, or the kernel's refusal.
    pub(crate) fn attach(file: OwnedFd) -> Result<Arc<Self>, SharedMemoryError> {
        let seals = fcntl_get_seals(&file)
            .map_err(|_| SharedMemoryError::Foreign("it cannot be sealed".to_owned()))?;
        if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
            let what = "its size is not sealed".to_owned();
            return Err(SharedMemoryError::Foreign(what));
        }
        Self::known(file)
    }

    /// The mapping of this file in this process, made where there is none (SHARED-2).
    fn known(file: OwnedFd) -> Result<Arc<Self>, SharedMemoryError> {
        /// Mappings by device and number of the file.
        type Mapped = HashMap<(u64, u64), Weak<SharedMemory>>;
        static MAPPED: OnceLock<Mutex<Mapped>> = OnceLock::new();
        let stat = fstat(&file).map_err(failure("fstat", 0))?;
        let inode = (stat.st_dev, stat.st_ino);
        let capacity = usize::try_from(stat.st_size).unwrap_or(0);
        if capacity == 0 || capacity > CAPACITY_MAX {
            return Err(SharedMemoryError::Capacity { capacity });
        }
        let mut mapped = MAPPED
            .get_or_init(Mutex::default)
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        mapped.retain(|_, memory| memory.strong_count() > 0);
        if let Some(memory) = mapped.get(&inode).and_then(Weak::upgrade) {
            return Ok(memory);
        }
        let memory = Arc::new(Self::map(file, capacity)?);
        mapped.insert(inode, Arc::downgrade(&memory));
        Ok(memory)
    }

    fn map(file: OwnedFd, capacity: usize) -> Result<Self, SharedMemoryError> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        let nowhere = std::ptr::null_mut::<c_void>();
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let base = unsafe { mmap(nowhere, capacity, prot, flags, &file, 0) }
            .map_err(failure("mmap", capacity))?;
        let base = NonNull::new(base.cast::<u8>())
            .ok_or_else(|| SharedMemoryError::Foreign("it was mapped at zero".to_owned()))?;
        Ok(Self {
            base,
            capacity,
            file,
        })
    }

    /// Address of the first byte in this process; page aligned. The same in all worlds of the process.
    ///
    /// Who forms references to this memory sees to it that nobody writes what they cover meanwhile; a
    /// peer does so only within calls that were given the memory as a buffer (SHARED-3).
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Number of bytes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Where `len` bytes at `ptr` begin in this memory, if they all lie in it.
    #[must_use]
    pub fn offset_of(&self, ptr: *const u8, len: usize) -> Option<usize> {
        let offset = ptr.addr().checked_sub(self.base.as_ptr().addr())?;
        self.holds(offset, len).then_some(offset)
    }

    /// Whether `len` bytes at `offset` lie inside: the check of every offset that a peer names.
    #[must_use]
    pub fn holds(&self, offset: usize, len: usize) -> bool {
        len <= self.capacity && offset <= self.capacity - len
    }

    /// Gives the memory behind the whole pages among `len` bytes at `offset` back to the system; they
    /// read as zero afterwards, here and at the peers. To be called when no call uses them.
    ///
    /// # Errors
    /// The kernel's refusal; the memory is as it was then.
    ///
    /// # Panics
    /// If the bytes do not lie inside.
    pub fn discard(&self, offset: usize, len: usize) -> io::Result<()> {
        assert!(self.holds(offset, len), "{offset} + {len} bytes");
        let page = page_bytes();
        let start = offset.next_multiple_of(page);
        let end = (offset + len) / page * page;
        if start >= end {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&self.file, flags, start as u64, (end - start) as u64)?;
        Ok(())
    }

    /// Bytes that the memory takes at present.
    #[must_use]
    pub fn committed(&self) -> u64 {
        fstat(&self.file).map_or(0, |stat| u64::try_from(stat.st_blocks).unwrap_or(0) * 512)
    }

    /// The descriptor to hand to peers.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length; every user of its memory holds an `Arc` of this.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast::<c_void>(), self.capacity) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

fn failure(
    step: &'static str,
    capacity: usize,
) -> impl FnOnce(rustix::io::Errno) -> SharedMemoryError {
    move |errno| SharedMemoryError::System {
        step,
        capacity,
        source: errno.into(),
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    #[test]
    fn memory_is_sparse_and_given_back() {
        let memory = SharedMemory::create(64 << 30).unwrap();
        assert!(memory.committed() < 1 << 20, "{}", memory.committed());
        let at = 5 << 30;
        // SAFETY: inside the capacity, and only this test knows the memory.
        unsafe {
            memory
                .as_ptr()
                .wrapping_add(at)
                .write_bytes(7, 3 * page_bytes());
        };
        assert!(memory.committed() >= 3 * page_bytes() as u64);
        memory.discard(at + 1, 3 * page_bytes() - 1).unwrap();
        // SAFETY: as above.
        let seen =
            [0, page_bytes()].map(|more| unsafe { memory.as_ptr().wrapping_add(at + more).read() });
        assert_eq!(seen, [7, 0]);
    }

    #[test]
    fn a_process_maps_one_file_once() {
        let memory = SharedMemory::create(page_bytes()).unwrap();
        let again = SharedMemory::attach(memory.file().try_clone_to_owned().unwrap()).unwrap();
        assert!(Arc::ptr_eq(&memory, &again));
    }

    #[test]
    fn a_file_whose_size_may_change_is_refused() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let open = memfd_create("open", flags).unwrap();
        ftruncate(&open, 1 << 20).unwrap();
        let error = SharedMemory::attach(open).expect_err("no seals");
        assert!(matches!(error, SharedMemoryError::Foreign(_)), "{error}");
        assert!(SharedMemory::create(0).is_err());
        assert!(SharedMemory::create(usize::MAX).is_err());
    }

    #[test]
    fn only_what_lies_wholly_inside_has_an_offset() {
        let memory = SharedMemory::create(2 * page_bytes()).unwrap();
        let base = memory.as_ptr().cast_const();
        assert_eq!(memory.offset_of(base, 2 * page_bytes()), Some(0));
        assert_eq!(memory.offset_of(base.wrapping_add(8), 8), Some(8));
        assert_eq!(
            memory.offset_of(base.wrapping_add(8), 2 * page_bytes()),
            None
        );
        assert_eq!(memory.offset_of(base.wrapping_sub(8), 8), None);
        assert!(!memory.holds(usize::MAX, 2));
    }
}
