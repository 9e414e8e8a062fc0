//! The memory of a board: words in a file without a name, so that another process of the same user
//! can read them through `/proc` while every thread of this one is stuck.
#![expect(unsafe_code, reason = "maps memory that other processes may read")]

use std::ffi::c_void;
use std::io;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::memfd;
use crate::sync::AtomicU64;

/// Name of the file, as `/proc/PID/fd` shows it.
pub(super) const FILE_NAME: &str = "muster-board";

/// Shared words, all zero at first.
#[derive(Debug)]
pub(super) struct Memory {
    base: NonNull<AtomicU64>,
    words: usize,
    /// Kept open for readers; `None` where the board is for this process only.
    _file: Option<OwnedFd>,
}

// SAFETY: `base` points to a mapping that lives until drop; it is only ever seen as a slice of
// atomics, which any thread may use.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps this many words. `readable` keeps the file, so that other processes find it.
    pub(super) fn create(words: usize, readable: bool) -> io::Result<Self> {
        let bytes = words * size_of::<AtomicU64>();
        let file = memfd::create(FILE_NAME, bytes)?;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let base = unsafe {
            mmap(
                std::ptr::null_mut::<c_void>(),
                bytes,
                prot,
                MapFlags::SHARED,
                &file,
                0,
            )
        }?;
        let base = NonNull::new(base.cast::<AtomicU64>())
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        Ok(Self {
            base,
            words,
            _file: readable.then_some(file),
        })
    }
}

impl Deref for Memory {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: the mapping holds `words` words, is page aligned, began as zeroes, lives as long
        // as `self`, and everybody who writes to it does so through these atomics.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.words) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let bytes = self.words * size_of::<AtomicU64>();
        // SAFETY: the mapping was made by `create` with this length, and borrows of it have ended.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast::<c_void>(), bytes) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}
