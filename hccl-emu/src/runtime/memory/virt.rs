//! Addresses that are reserved first and get memory later (`aclrtReserveMemAddress`).
//!
//! A reserved range is address space without rights, like all device addresses. What is mapped into
//! it is physical memory: an allocation of a device that has a handle instead of an address.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::{Access, Memory, Misuse};
use crate::runtime::errors::{AclError, RuntimeError};
use crate::runtime::state::state;

/// Unit of physical memory and of mappings, as the vendor's huge pages.
pub const GRANULE: usize = 2 << 20;

/// Physical memory: it lasts as long as its handle or a mapping of it.
#[derive(Debug)]
pub struct Physical {
    /// What the client holds.
    pub handle: u64,
    /// The device.
    pub device: u32,
    /// Its length.
    pub bytes: usize,
    start: usize,
}

impl Drop for Physical {
    fn drop(&mut self) {
        let device = state().devices().get(self.device as usize);
        if let Some(device) = device {
            let start = std::ptr::without_provenance(self.start);
            // After a reset of the device it is freed already, and nothing else can be wrong.
            let _ = device.memory.free(start, "aclrtFreePhysical");
        }
    }
}

impl Physical {
    /// Takes `bytes` of `memory`.
    ///
    /// # Errors
    /// If they are no multiple of the granule, or less is free.
    pub fn take(memory: &Memory, bytes: usize) -> Result<Arc<Self>, RuntimeError> {
        if bytes == 0 || !bytes.is_multiple_of(GRANULE) {
            return Err(RuntimeError::argument(format!(
                "size is {bytes}; allowed: multiples of {GRANULE}"
            )));
        }
        let start = memory.allocate_exactly(bytes as u64, "aclrtMallocPhysical")?;
        Ok(state().physical.insert(|handle| {
            Arc::new(Self {
                handle,
                device: memory.device,
                bytes,
                start: start.addr(),
            })
        }))
    }
}

#[derive(Debug)]
struct Mapped {
    bytes: usize,
    physical: Arc<Physical>,
}

#[derive(Debug, Default)]
struct Reserved {
    bytes: usize,
    /// By offset.
    mapped: BTreeMap<usize, Mapped>,
}

/// All reserved ranges of the process, by start.
#[derive(Debug, Default)]
pub struct Virtual {
    ranges: Mutex<BTreeMap<usize, Reserved>>,
}

impl Virtual {
    /// Reserves `bytes`.
    ///
    /// # Errors
    /// If they are no multiple of the granule, or the process has no room.
    pub fn reserve(&self, bytes: usize) -> Result<*mut c_void, RuntimeError> {
        if bytes == 0 || !bytes.is_multiple_of(GRANULE) {
            return Err(RuntimeError::argument(format!(
                "size is {bytes}; allowed: multiples of {GRANULE}"
            )));
        }
        let failed = |error| {
            RuntimeError::new(
                AclError::RT_MEMORY_ALLOCATION,
                format!("{bytes} bytes of address space: {error}"),
            )
        };
        let none = std::ptr::null_mut();
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let room = bytes
            .checked_add(GRANULE)
            .ok_or_else(|| failed(rustix::io::Errno::NOMEM))?;
        // SAFETY: a fresh mapping at a place of the kernel's choice; nothing else uses it.
        let start = unsafe { mmap_anonymous(none, room, ProtFlags::empty(), flags) };
        let start = start.map_err(failed)?;
        // The surplus stays reserved: it is released with the range.
        let aligned =
            start.wrapping_byte_add(start.addr().next_multiple_of(GRANULE) - start.addr());
        if let Some(surplus) = NonNull::new(start)
            && aligned != start
        {
            // SAFETY: the pages in front of the aligned start were mapped just now and are unused.
            let _ = unsafe { munmap(surplus.as_ptr(), aligned.addr() - start.addr()) };
        }
        let tail = GRANULE - (aligned.addr() - start.addr());
        // SAFETY: the pages behind the range were mapped just now and are unused.
        let _ = unsafe { munmap(aligned.wrapping_byte_add(bytes), tail) };
        let range = Reserved {
            bytes,
            mapped: BTreeMap::new(),
        };
        self.ranges().insert(aligned.addr(), range);
        Ok(aligned)
    }

    /// Gives a range back.
    ///
    /// # Errors
    /// If `pointer` is not its start, or something is still mapped into it.
    pub fn release(&self, pointer: *mut c_void) -> Result<(), RuntimeError> {
        let mut ranges = self.ranges();
        let range = ranges.get(&pointer.addr()).ok_or_else(|| {
            RuntimeError::argument(format!("{pointer:p} is not the start of a reserved range"))
        })?;
        if !range.mapped.is_empty() {
            return Err(RuntimeError::argument(format!(
                "{} mappings are still in the range at {pointer:p}",
                range.mapped.len()
            )));
        }
        let bytes = range.bytes;
        let start = std::ptr::without_provenance_mut(pointer.addr());
        ranges.remove(&pointer.addr());
        // SAFETY: the range was reserved by `reserve` with this length, and left the list just now.
        let _ = unsafe { munmap(start, bytes) };
        Ok(())
    }

    /// Puts memory behind a part of a range.
    ///
    /// # Errors
    /// If the part is not in one range, not aligned, taken, or longer than the memory.
    pub fn map(
        &self,
        pointer: *mut c_void,
        bytes: usize,
        physical: Arc<Physical>,
    ) -> Result<(), RuntimeError> {
        let mut ranges = self.ranges();
        let (start, range) = around(&mut ranges, pointer.addr()).ok_or_else(|| {
            RuntimeError::argument(format!("{pointer:p} is in no reserved range"))
        })?;
        let offset = pointer.addr() - start;
        let fits = bytes > 0
            && bytes.is_multiple_of(GRANULE)
            && offset.is_multiple_of(GRANULE)
            && bytes <= physical.bytes
            && offset
                .checked_add(bytes)
                .is_some_and(|end| end <= range.bytes);
        if !fits {
            return Err(RuntimeError::argument(format!(
                "{bytes} bytes at offset {offset} of a range of {} bytes, from memory of {} bytes: sizes are multiples of {GRANULE}",
                range.bytes, physical.bytes
            )));
        }
        let before = range.mapped.range(..offset + bytes).next_back();
        if before.is_some_and(|(from, mapped)| from + mapped.bytes > offset) {
            return Err(RuntimeError::argument(format!(
                "something is already mapped at {pointer:p}"
            )));
        }
        range.mapped.insert(offset, Mapped { bytes, physical });
        Ok(())
    }

    /// Takes the memory away that was mapped at `pointer`.
    ///
    /// # Errors
    /// If `pointer` is not the start of a mapping.
    pub fn unmap(&self, pointer: *mut c_void) -> Result<(), RuntimeError> {
        let mut ranges = self.ranges();
        let found = around(&mut ranges, pointer.addr())
            .and_then(|(start, range)| range.mapped.remove(&(pointer.addr() - start)));
        drop(ranges);
        // The memory itself goes without the lock, with its last owner.
        found.map(drop).ok_or_else(|| {
            RuntimeError::argument(format!("{pointer:p} is not the start of a mapping"))
        })
    }

    /// The device whose memory is mapped at `pointer`, if it is in a reserved range.
    pub(super) fn device_at(&self, pointer: *const c_void) -> Option<u32> {
        let mut ranges = self.ranges();
        let (start, range) = around(&mut ranges, pointer.addr())?;
        let offset = pointer.addr() - start;
        let (from, mapped) = range.mapped.range(..=offset).next_back()?;
        (offset - from < mapped.bytes).then_some(mapped.physical.device)
    }

    /// The device addresses behind a part of a range, if all of it is mapped to memory in a row.
    pub(super) fn behind(
        &self,
        pointer: *const c_void,
        bytes: u64,
    ) -> Option<Result<Piece, Misuse>> {
        let mut ranges = self.ranges();
        let (start, range) = around(&mut ranges, pointer.addr())?;
        let offset = pointer.addr() - start;
        Some(range.pieces(offset, bytes as usize))
    }

    fn ranges(&self) -> MutexGuard<'_, BTreeMap<usize, Reserved>> {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Device addresses in a row, and where one allocation ends and the next begins.
#[derive(Debug)]
pub(super) struct Piece {
    /// The device.
    pub(super) device: u32,
    /// Parts in order: address, length.
    pub(super) parts: Vec<(usize, usize)>,
}

impl Reserved {
    fn pieces(&self, offset: usize, bytes: usize) -> Result<Piece, Misuse> {
        let mut parts: Vec<(usize, usize)> = Vec::new();
        let mut device = None;
        let (mut at, end) = (offset, offset.saturating_add(bytes.max(1)));
        while at < end {
            let before = self.mapped.range(..=at).next_back();
            let Some((from, mapped)) = before.filter(|(from, mapped)| at - *from < mapped.bytes)
            else {
                return Err(Misuse::Unmapped { offset: at });
            };
            let address = mapped.physical.start + (at - from);
            let length = (mapped.bytes - (at - from)).min(end - at);
            let in_a_row = parts
                .last()
                .is_none_or(|(last, length)| last + length == address);
            if !in_a_row || device.is_some_and(|device| device != mapped.physical.device) {
                return Err(Misuse::Scattered { offset: at });
            }
            device = Some(mapped.physical.device);
            parts.push((address, length));
            at += length;
        }
        let device = device.ok_or(Misuse::Unmapped { offset })?;
        Ok(Piece { device, parts })
    }
}

/// The range that holds `address`.
fn around(
    ranges: &mut BTreeMap<usize, Reserved>,
    address: usize,
) -> Option<(usize, &mut Reserved)> {
    let (start, range) = ranges.range_mut(..=address).next_back()?;
    (address - start < range.bytes).then_some((*start, range))
}

/// As [`super::resolve`] for an address in a reserved range.
pub(super) fn resolve(piece: &Piece, access: Access) -> Result<*mut u8, Misuse> {
    let device = state().devices().get(piece.device as usize);
    let memory = &device.ok_or(Misuse::Unopened)?.memory;
    let mut first = None;
    for (address, length) in &piece.parts {
        let pointer = std::ptr::without_provenance(*address);
        let real = memory.resolve(pointer, *length as u64, access)?;
        first.get_or_insert(real);
    }
    first.ok_or(Misuse::Unopened)
}
