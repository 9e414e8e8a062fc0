//! Device memory: addresses that host code cannot use, and checks at every use.
//!
//! A device's memory is two mappings of one length. The *client* range has no access rights: its
//! addresses are the pointers that clients get, so host code that follows one faults, as it does
//! with a real device. The *backing* is real, shared memory, and only the emulator knows where it
//! lies. Offset `n` of one is offset `n` of the other.
//!
//! - MEM-1: a client pointer becomes an address only by [`Memory::resolve`], which proves that the
//!   whole range lies in one live allocation, at the moment of use and not of the call.
//! - MEM-2: the backing stays mapped until the process ends. A task that uses memory which is freed
//!   meanwhile reads poison or zeros; it never faults.
//! - MEM-3: what was never written reads as poison: a byte that the user can choose, and otherwise
//!   0xFF, a NaN in every floating-point type. It is written when a page is first used, so that memory
//!   which is only reserved costs nothing.
//! - MEM-4: addresses of freed memory are not given out again for a while (`Quarantine`), so that
//!   its later use is noticed.

pub mod backing;
pub mod fresh;
pub mod host;
pub mod misuse;
pub mod ranges;
pub mod space;
pub mod virt;

use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

pub use misuse::Misuse;
pub use space::{Info, Space};

use super::errors::{AclError, RuntimeError};
use super::state::state;
use crate::options::Bounds;

/// Address space of a device in units of its memory: the rest lets freed addresses rest.
const SPAN: u64 = 2;
/// Least address space that is worth having, where the limit of the process is low.
const SPAN_MIN: u64 = 64 << 20;

/// What a range is going to be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It is read, or read and written.
    Read,
    /// All of it is overwritten before anything of it is read.
    Write,
}

/// What the user chose about device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// What every byte holds that was never written.
    pub poison: u8,
    /// Where allocations end.
    pub bounds: Bounds,
}

/// The memory of one device.
#[derive(Debug)]
pub struct Memory {
    device: u32,
    rules: Rules,
    bytes: u64,
    open: OnceLock<Result<Open, RuntimeError>>,
}

#[derive(Debug)]
struct Open {
    backing: backing::Backing,
    space: Mutex<Space>,
}

/// Memory that is taken from the device's total without an address, until it is dropped.
#[derive(Debug)]
pub struct Charge {
    device: u32,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(device) = state().devices().get(self.device as usize)
            && let Some(open) = device.memory.opened()
        {
            open.space().charged -= self.bytes;
        }
    }
}

impl Memory {
    /// Memory of `bytes`, which takes no address space yet.
    #[must_use]
    pub fn new(device: u32, bytes: u64, rules: Rules) -> Self {
        Self {
            device,
            rules,
            bytes,
            open: OnceLock::new(),
        }
    }

    /// Reserves the addresses, once. Where the process may not have that many, the device gets as
    /// much memory as fits.
    ///
    /// # Errors
    /// If not even 64 MiB can be had.
    pub fn open(&self) -> Result<(), RuntimeError> {
        let reserve = || {
            let backing = backing::Backing::reserve(self.bytes * SPAN, SPAN_MIN)?;
            let span = backing.bytes() as u64;
            let space = Space::new(self.device, self.rules, self.bytes.min(span), span);
            Ok(Open {
                backing,
                space: Mutex::new(space),
            })
        };
        self.open
            .get_or_init(reserve)
            .as_ref()
            .map(|_| ())
            .map_err(Clone::clone)
    }

    /// Takes `bytes` of memory, aligned to 64 bytes at least; `call` is named when it is misused.
    ///
    /// # Errors
    /// `RT_MEMORY_ALLOCATION` if less is free; `RT_PARAM_INVALID` for 0 bytes.
    pub fn allocate(&self, bytes: u64, call: &'static str) -> Result<*mut c_void, RuntimeError> {
        if bytes == 0 {
            return Err(RuntimeError::argument(format!("{call} of 0 bytes")));
        }
        let open = self.require()?;
        let offset = open.space().allocate(bytes, call, &open.backing)?;
        Ok(open.backing.client_at(offset))
    }

    /// As [`Self::allocate`] without rounding and spare bytes, so that pieces lie in a row.
    ///
    /// # Errors
    /// As [`Self::allocate`].
    pub fn allocate_exactly(
        &self,
        bytes: u64,
        call: &'static str,
    ) -> Result<*mut c_void, RuntimeError> {
        let open = self.require()?;
        let offset =
            open.space()
                .allocate_span(bytes, bytes, virt::GRANULE as u64, call, &open.backing)?;
        Ok(open.backing.client_at(offset))
    }

    /// Frees what `pointer` is the start of.
    ///
    /// # Errors
    /// [`Misuse`] if it is none.
    pub fn free(&self, pointer: *const c_void, call: &'static str) -> Result<(), Misuse> {
        let open = self.opened().ok_or(Misuse::Unopened)?;
        let offset = open
            .backing
            .client_offset(pointer)
            .ok_or(Misuse::Unopened)?;
        open.space().free(offset, call, &open.backing)
    }

    /// Frees everything.
    pub fn free_all(&self, call: &'static str) {
        if let Some(open) = self.opened() {
            open.space().free_all(call, &open.backing);
        }
    }

    /// Whether `pointer` is an address of this device, allocated or not.
    #[must_use]
    pub fn owns(&self, pointer: *const c_void) -> bool {
        self.opened()
            .is_some_and(|open| open.backing.client_offset(pointer).is_some())
    }

    /// The real address behind `bytes` from `pointer`, after proving that they lie in one live
    /// allocation (`MEM-1`). It may be used until the allocation is freed; after that it is still
    /// mapped, and holds poison.
    ///
    /// # Errors
    /// What is wrong with the range.
    pub fn resolve(
        &self,
        pointer: *const c_void,
        bytes: u64,
        access: Access,
    ) -> Result<*mut u8, Misuse> {
        let open = self.opened().ok_or(Misuse::Unopened)?;
        let offset = open
            .backing
            .client_offset(pointer)
            .ok_or(Misuse::Unopened)?;
        open.space().check(offset, bytes, access, &open.backing)?;
        Ok(open.backing.real_at(offset))
    }

    /// Proves the same as [`Self::resolve`] without using the memory.
    ///
    /// # Errors
    /// What is wrong with the range.
    pub fn verify(&self, pointer: *const c_void, bytes: u64) -> Result<(), Misuse> {
        let open = self.opened().ok_or(Misuse::Unopened)?;
        let offset = open
            .backing
            .client_offset(pointer)
            .ok_or(Misuse::Unopened)?;
        open.space().verify(offset, bytes)
    }

    /// Start, length and number of the live allocation that holds `pointer`.
    #[must_use]
    pub fn allocation_at(&self, pointer: *const c_void) -> Option<(*mut c_void, u64)> {
        let open = self.opened()?;
        let offset = open.backing.client_offset(pointer)?;
        let (start, bytes) = open.space().allocation_at(offset)?;
        Some((open.backing.client_at(start), bytes))
    }

    /// Takes `bytes` from what is free, for something that needs no address.
    ///
    /// # Errors
    /// `RT_MEMORY_ALLOCATION` if less is free.
    pub fn charge(&self, bytes: u64, what: &'static str) -> Result<Charge, RuntimeError> {
        self.require()?.space().charge(bytes, what)?;
        Ok(Charge {
            device: self.device,
            bytes,
        })
    }

    /// How much memory there is and how much of it is free.
    ///
    /// # Errors
    /// If the device could not be opened.
    pub fn info(&self) -> Result<Info, RuntimeError> {
        Ok(self.require()?.space().info())
    }

    /// The real memory of the device, for worlds that pass it between processes.
    ///
    /// # Errors
    /// If the device could not be opened.
    pub fn backing(&self) -> Result<&backing::Backing, RuntimeError> {
        Ok(&self.require()?.backing)
    }

    fn require(&self) -> Result<&Open, RuntimeError> {
        self.open()?;
        self.opened().ok_or_else(|| {
            RuntimeError::new(AclError::RT_CONTEXT_NULL, "the device has no memory yet")
        })
    }

    fn opened(&self) -> Option<&Open> {
        self.open.get()?.as_ref().ok()
    }
}

impl Open {
    fn space(&self) -> MutexGuard<'_, Space> {
        self.space.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Memory of the device with this logical number, allocated or not.
    Device(u32),
    /// Host memory that the runtime gave out: it is pinned.
    Pinned,
    /// Any other address: host memory, if it is anything.
    Pageable,
}

/// Says what `pointer` is.
#[must_use]
pub fn locate(pointer: *const c_void) -> Place {
    let state = state();
    let device = state
        .devices()
        .iter()
        .find(|device| device.memory.owns(pointer));
    if let Some(device) = device {
        return Place::Device(device.logical);
    }
    match state.reserved.device_at(pointer) {
        Some(device) => Place::Device(device),
        None if state.host.holds(pointer) => Place::Pinned,
        None => Place::Pageable,
    }
}

/// As [`Memory::resolve`] for a buffer that must lie on the device `logical`; other places are named.
///
/// # Errors
/// What is wrong with the range.
pub fn resolve(
    logical: u32,
    pointer: *const c_void,
    bytes: u64,
    access: Access,
) -> Result<*mut u8, Misuse> {
    if pointer.is_null() {
        return Err(Misuse::Null);
    }
    match locate(pointer) {
        Place::Device(owner) if owner == logical => {
            if let Some(behind) = state().reserved.behind(pointer, bytes) {
                return virt::resolve(&behind?, access);
            }
            let device = state().devices().get(logical as usize);
            device
                .ok_or(Misuse::Unopened)?
                .memory
                .resolve(pointer, bytes, access)
        }
        Place::Device(owner) => Err(Misuse::OtherDevice {
            address: pointer.addr(),
            owner,
            wanted: logical,
        }),
        Place::Pinned => Err(Misuse::Host {
            address: pointer.addr(),
            pinned: true,
        }),
        Place::Pageable => Err(Misuse::Host {
            address: pointer.addr(),
            pinned: false,
        }),
    }
}

/// Proves that `bytes` from `pointer` are device memory that can be used, of whatever device.
///
/// # Errors
/// What is wrong with the range.
pub fn verify(pointer: *const c_void, bytes: u64) -> Result<(), Misuse> {
    let state = state();
    if let Some(behind) = state.reserved.behind(pointer, bytes) {
        return behind.map(drop);
    }
    let owner = state
        .devices()
        .iter()
        .find(|device| device.memory.owns(pointer));
    match owner {
        Some(device) => device.memory.verify(pointer, bytes),
        None => Err(Misuse::Host {
            address: pointer.addr(),
            pinned: state.host.holds(pointer),
        }),
    }
}
