//! The two mappings of a device's memory: addresses for clients, and real memory behind them.

use std::ffi::c_void;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use super::super::errors::{AclError, RuntimeError};

/// Size of a page: what can be given back to the system.
pub const PAGE: u64 = 4096;

/// Reserved addresses of equal length: `client` without access rights, `real` with memory behind.
#[derive(Debug)]
pub struct Backing {
    client: NonNull<c_void>,
    real: NonNull<c_void>,
    bytes: usize,
    file: OwnedFd,
}

// SAFETY: the pointers are addresses of mappings that live as long as the value and are never
// turned into references; who may read or write what is behind them is the matter of `Space`.
unsafe impl Send for Backing {}
// SAFETY: see `Send`; no method changes the value.
unsafe impl Sync for Backing {}

impl Backing {
    /// Reserves `wanted` bytes of addresses twice, or half as many, and so on down to `least`.
    ///
    /// Nothing is committed: pages come into being when they are written.
    ///
    /// # Errors
    /// If not even `least` can be had.
    pub fn reserve(wanted: u64, least: u64) -> Result<Self, RuntimeError> {
        let mut bytes = wanted.next_multiple_of(PAGE);
        loop {
            match Self::exactly(bytes) {
                Ok(backing) => return Ok(backing),
                Err(error) if bytes / 2 < least => {
                    return Err(RuntimeError::new(
                        AclError::RT_MEMORY_ALLOCATION,
                        format!("{bytes} bytes of address space for a device: {error}"),
                    ));
                }
                Err(_) => bytes = (bytes / 2).next_multiple_of(PAGE),
            }
        }
    }

    fn exactly(bytes: u64) -> rustix::io::Result<Self> {
        let length = usize::try_from(bytes).map_err(|_| rustix::io::Errno::NOMEM)?;
        let file = memfd_create("muster-emu-device", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, bytes)?;
        let none = std::ptr::null_mut();
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh mapping at a place of the kernel's choice; nothing else uses it.
        let client = unsafe { mmap_anonymous(none, length, ProtFlags::empty(), flags) }?;
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: as above; the file is our own and has this length.
        let real = match unsafe { mmap(none, length, rights, flags, &file, 0) } {
            Ok(real) => real,
            Err(error) => {
                // SAFETY: the mapping was made just now and nobody knows of it.
                let _ = unsafe { munmap(client, length) };
                return Err(error);
            }
        };
        let (Some(client), Some(real)) = (NonNull::new(client), NonNull::new(real)) else {
            return Err(rustix::io::Errno::NOMEM);
        };
        Ok(Self {
            client,
            real,
            bytes: length,
            file,
        })
    }

    /// Length of either mapping.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The file behind the real mapping; offsets in it are those of the mapping.
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The address that a client gets for `offset`.
    #[must_use]
    pub fn client_at(&self, offset: u64) -> *mut c_void {
        assert!(offset < self.bytes as u64);
        self.client.as_ptr().wrapping_byte_add(offset as usize)
    }

    /// The offset of a client's address, if it is one of this device.
    #[must_use]
    pub fn client_offset(&self, pointer: *const c_void) -> Option<u64> {
        let offset = pointer.addr().checked_sub(self.client.as_ptr().addr())?;
        (offset < self.bytes).then_some(offset as u64)
    }

    /// The real address of `offset`.
    #[must_use]
    pub fn real_at(&self, offset: u64) -> *mut u8 {
        assert!(offset < self.bytes as u64);
        let base = self.real.as_ptr().cast::<u8>();
        base.wrapping_add(offset as usize)
    }

    /// Writes `byte` to all of a range.
    pub fn fill(&self, offset: u64, bytes: u64, byte: u8) {
        assert!(
            offset
                .checked_add(bytes)
                .is_some_and(|end| end <= self.bytes as u64)
        );
        if bytes > 0 {
            let start = self.real_at(offset);
            // SAFETY: the range lies in the real mapping, which is writable and stays mapped;
            // nothing in it is borrowed by reference.
            unsafe { start.write_bytes(byte, bytes as usize) };
        }
    }

    /// Gives the whole pages of a range back to the system; they read as zeros until written.
    pub fn punch(&self, offset: u64, bytes: u64) {
        let start = offset.next_multiple_of(PAGE);
        let end = (offset + bytes) / PAGE * PAGE;
        if start < end {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // Where that cannot be done, the pages stay as they are: nothing depends on it.
            let _ = fallocate(&self.file, flags, start, end - start);
        }
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        for mapping in [self.client, self.real] {
            // SAFETY: both mappings are ours, of this length, and go with the value.
            let _ = unsafe { munmap(mapping.as_ptr(), self.bytes) };
        }
    }
}
