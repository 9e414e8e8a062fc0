//! The two mappings of a device's memory: addresses for clients, and real memory behind them.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use muster_comm::transport::shm::arena::page_bytes;
use muster_comm::transport::shm::memory::SharedMemory;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::super::errors::{AclError, RuntimeError};

/// Size of a page: what can be given back to the system.
#[must_use]
pub fn page() -> u64 {
    page_bytes() as u64
}

/// Reserved addresses of equal length: `client` without access rights, `real` with memory behind.
#[derive(Debug)]
pub struct Backing {
    client: NonNull<c_void>,
    real: Arc<SharedMemory>,
}

// SAFETY: `client` is the address of a mapping that lives as long as the value; it is never followed
// and never turned into a reference.
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
        let mut bytes = wanted.next_multiple_of(page());
        loop {
            match Self::exactly(bytes as usize) {
                Ok(backing) => return Ok(backing),
                Err(text) if bytes / 2 < least => {
                    let text = format!("{bytes} bytes of address space for a device: {text}");
                    return Err(RuntimeError::new(AclError::RT_MEMORY_ALLOCATION, text));
                }
                Err(_) => bytes = (bytes / 2).next_multiple_of(page()),
            }
        }
    }

    fn exactly(bytes: usize) -> Result<Self, String> {
        let real = SharedMemory::create(bytes).map_err(|error| error.to_string())?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let none = std::ptr::null_mut();
        // SAFETY: a fresh mapping at a place of the kernel's choice; nothing else uses it.
        let client = unsafe { mmap_anonymous(none, real.capacity(), ProtFlags::empty(), flags) };
        let client = client.map_err(|error| error.to_string())?;
        let client = NonNull::new(client).ok_or_else(|| "mapped at zero".to_owned())?;
        Ok(Self { client, real })
    }

    /// Length of either mapping.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.real.capacity()
    }

    /// The real memory, for worlds that pass it between processes: offsets are the same.
    #[must_use]
    pub fn shared(&self) -> &Arc<SharedMemory> {
        &self.real
    }

    /// The address that a client gets for `offset`.
    #[must_use]
    pub fn client_at(&self, offset: u64) -> *mut c_void {
        assert!(offset < self.bytes() as u64);
        self.client.as_ptr().wrapping_byte_add(offset as usize)
    }

    /// The offset of a client's address, if it is one of this device.
    #[must_use]
    pub fn client_offset(&self, pointer: *const c_void) -> Option<u64> {
        let offset = pointer.addr().checked_sub(self.client.as_ptr().addr())?;
        (offset < self.bytes()).then_some(offset as u64)
    }

    /// The real address of `offset`.
    #[must_use]
    pub fn real_at(&self, offset: u64) -> *mut u8 {
        assert!(offset < self.bytes() as u64);
        self.real.as_ptr().wrapping_add(offset as usize)
    }

    /// Writes `byte` to all of a range.
    pub fn fill(&self, offset: u64, bytes: u64, byte: u8) {
        assert!(
            offset
                .checked_add(bytes)
                .is_some_and(|end| end <= self.bytes() as u64)
        );
        if bytes > 0 {
            let start = self.real_at(offset);
            // SAFETY: the range lies in the real mapping, which is writable and stays mapped;
            // nothing in it is borrowed by reference.
            unsafe { start.write_bytes(byte, bytes as usize) };
        }
    }

    /// Bytes of real memory that the mapping takes at present.
    #[must_use]
    pub fn committed(&self) -> u64 {
        self.real.committed()
    }

    /// Gives the whole pages of a range back to the system; they read as zeros until written.
    pub fn punch(&self, offset: u64, bytes: u64) {
        // Where that cannot be done, the pages stay as they are: nothing depends on it.
        let _ = self.real.discard(offset as usize, bytes as usize);
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, of this length, and goes with the value.
        let _ = unsafe { munmap(self.client.as_ptr(), self.bytes()) };
    }
}
