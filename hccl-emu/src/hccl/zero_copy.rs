//! Memory that is given to a communicator for zero copy: ranges (Atlas A3), and symmetric windows.
//!
//! Nothing is copied less for it here; calls are checked, remembered and answered as on the product
//! that has them. A window of a peer has no address in this process, and asking for one is refused.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use hccl_sys::types::HcclResult;

use super::call::find_comm;
use super::fail::{Answer, EI0003, Fail, answer};
use super::library::library;
use crate::options::Product;
use crate::runtime::memory::{self, Place};
use crate::runtime::{device, state};

/// Handles of windows begin here: no user address on any system of today.
const WINDOW_HANDLES: usize = 0xE000_2000_0000_0000;

/// A part of the address space that a communicator was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    comm: u64,
    start: usize,
    bytes: usize,
}

impl Range {
    fn holds(&self, start: usize, bytes: usize) -> bool {
        let end = start.saturating_add(bytes);
        self.start <= start && end <= self.start.saturating_add(self.bytes)
    }
}

#[derive(Debug, Default)]
struct Given {
    ranges: Vec<Range>,
    active: Vec<Range>,
    /// Windows by handle.
    windows: HashMap<usize, Range>,
    made: usize,
}

fn given() -> MutexGuard<'static, Given> {
    static BOOKS: OnceLock<Mutex<Given>> = OnceLock::new();
    let books = BOOKS.get_or_init(Mutex::default);
    books.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The communicator's handle, on the one product that has such memory.
fn on_a3(call: &'static str, comm: *const c_void) -> Answer<u64> {
    let library = library(call)?;
    let comm = find_comm(call, library, comm)?;
    if library.product != Product::A3 {
        let text = format!(
            "{call} is not supported on {:?}, only on A3",
            library.product
        );
        return Err(Fail::unsupported(text));
    }
    Ok(comm.handle)
}

fn not_found(call: &str, what: &str, address: *const c_void) -> Fail {
    let text = format!("{call}: {what} at {address:p}");
    Fail::new(HcclResult::HCCL_E_NOT_FOUND, EI0003, text)
}

fn take(list: &mut Vec<Range>, comm: u64, start: usize) -> bool {
    let known = list
        .iter()
        .position(|range| range.comm == comm && range.start == start);
    known.map(|at| list.swap_remove(at)).is_some()
}

/// `HcclCommSetMemoryRange`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclCommSetMemoryRange(
    comm: *mut c_void,
    base: *mut c_void,
    size: usize,
    alignment: usize,
    flags: u64,
) -> HcclResult {
    const CALL: &str = "HcclCommSetMemoryRange";
    answer(CALL, || {
        let comm = on_a3(CALL, comm)?;
        if base.is_null() {
            return Err(Fail::null(CALL, "baseVirPtr"));
        }
        if size == 0 || alignment != 0 || flags != 0 {
            return Err(Fail::para(format!(
                "{CALL}: size is {size}, alignment {alignment}, flags {flags}; allowed: a size above 0, and 0 for both others"
            )));
        }
        let start = base.addr();
        given().ranges.push(Range {
            comm,
            start,
            bytes: size,
        });
        Ok(())
    })
}

/// `HcclCommUnsetMemoryRange`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclCommUnsetMemoryRange(
    comm: *mut c_void,
    base: *mut c_void,
) -> HcclResult {
    const CALL: &str = "HcclCommUnsetMemoryRange";
    answer(CALL, || {
        let comm = on_a3(CALL, comm)?;
        if take(&mut given().ranges, comm, base.addr()) {
            return Ok(());
        }
        Err(not_found(CALL, "no range was set", base))
    })
}

/// `HcclCommActivateCommMemory`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclCommActivateCommMemory(
    comm: *mut c_void,
    address: *mut c_void,
    size: usize,
    _offset: usize,
    _handle: *mut c_void,
    _flags: u64,
) -> HcclResult {
    const CALL: &str = "HcclCommActivateCommMemory";
    answer(CALL, || {
        let comm = on_a3(CALL, comm)?;
        let mut given = given();
        let range = Range {
            comm,
            start: address.addr(),
            bytes: size,
        };
        let inside = |set: &Range| set.comm == comm && set.holds(range.start, range.bytes);
        if !given.ranges.iter().any(inside) {
            let text = format!("{CALL}: {size} bytes at {address:p} lie in no range that was set");
            return Err(Fail::para(text));
        }
        given.active.push(range);
        Ok(())
    })
}

/// `HcclCommDeactivateCommMemory`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclCommDeactivateCommMemory(
    comm: *mut c_void,
    address: *mut c_void,
) -> HcclResult {
    const CALL: &str = "HcclCommDeactivateCommMemory";
    answer(CALL, || {
        let comm = on_a3(CALL, comm)?;
        if take(&mut given().active, comm, address.addr()) {
            return Ok(());
        }
        Err(not_found(CALL, "no memory is active", address))
    })
}

/// `HcclCommSymWinRegister`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclCommSymWinRegister(
    comm: *mut c_void,
    address: *mut c_void,
    size: u64,
    window: *mut *mut c_void,
    flag: u32,
) -> HcclResult {
    const CALL: &str = "HcclCommSymWinRegister";
    answer(CALL, || {
        let comm = on_a3(CALL, comm)?;
        if address.is_null() || window.is_null() {
            return Err(Fail::null(CALL, "addr or winHandle"));
        }
        if flag != 1 || size == 0 {
            let text = format!("{CALL}: flag is {flag}, size {size}; allowed: 1, above 0");
            return Err(Fail::para(text));
        }
        let mut given = given();
        given.made += 1;
        // Numbers that are no addresses, as all handles are.
        let handle = WINDOW_HANDLES + given.made * 64;
        let bytes = usize::try_from(size).unwrap_or(usize::MAX);
        let start = address.addr();
        given.windows.insert(handle, Range { comm, start, bytes });
        // SAFETY: the caller passes a place for a handle.
        unsafe { window.write_unaligned(std::ptr::without_provenance_mut(handle)) };
        Ok(())
    })
}

/// `HcclCommSymWinDeregister`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclCommSymWinDeregister(window: *mut c_void) -> HcclResult {
    const CALL: &str = "HcclCommSymWinDeregister";
    answer(CALL, || match given().windows.remove(&window.addr()) {
        Some(_) => Ok(()),
        None => Err(not_found(CALL, "no window was registered", window)),
    })
}

/// `HcclCommSymWinGet`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclCommSymWinGet(
    comm: *mut c_void,
    pointer: *mut c_void,
    size: usize,
    window: *mut *mut c_void,
    offset: *mut usize,
) -> HcclResult {
    const CALL: &str = "HcclCommSymWinGet";
    answer(CALL, || {
        let comm = on_a3(CALL, comm)?;
        if window.is_null() || offset.is_null() {
            return Err(Fail::null(CALL, "winHandle or offset"));
        }
        let start = pointer.addr();
        let given = given();
        let fits = |(_, range): &(&usize, &Range)| range.comm == comm && range.holds(start, size);
        let Some((handle, range)) = given.windows.iter().find(fits) else {
            return Err(not_found(CALL, "no window holds the memory", pointer));
        };
        // SAFETY: the caller passes a place for a handle.
        unsafe { window.write_unaligned(std::ptr::without_provenance_mut(*handle)) };
        // SAFETY: the caller passes a place for an offset.
        unsafe { offset.write_unaligned(start - range.start) };
        Ok(())
    })
}

/// `HcclSymWinGetPeerPointer`: of this rank's own window only.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcclSymWinGetPeerPointer(
    window: *mut c_void,
    offset: usize,
    peer: u32,
    pointer: *mut *mut c_void,
) -> HcclResult {
    const CALL: &str = "HcclSymWinGetPeerPointer";
    answer(CALL, || {
        if pointer.is_null() {
            return Err(Fail::null(CALL, "ptr"));
        }
        let Some(range) = given().windows.get(&window.addr()).copied() else {
            return Err(not_found(CALL, "no window was registered", window));
        };
        let handle = std::ptr::without_provenance(range.comm as usize);
        let comm = find_comm(CALL, library(CALL)?, handle)?;
        if peer >= comm.size() || offset >= range.bytes {
            let text = format!("{CALL}: peer is {peer}, offset {offset}");
            return Err(Fail::para(text));
        }
        if peer != comm.rank {
            let text = format!("{CALL}: the memory of rank {peer} has no address in this process");
            return Err(Fail::unsupported(text));
        }
        let own = std::ptr::without_provenance_mut(range.start + offset);
        // SAFETY: the caller passes a place for a pointer.
        unsafe { pointer.write_unaligned(own) };
        Ok(())
    })
}

/// `HcommMemAlloc`: memory of the current device that windows may be made of.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcommMemAlloc(pointer: *mut *mut c_void, size: u64) -> HcclResult {
    const CALL: &str = "HcommMemAlloc";
    answer(CALL, || {
        if pointer.is_null() {
            return Err(Fail::null(CALL, "ptr"));
        }
        if size == 0 {
            return Err(Fail::para(format!("{CALL}: size is 0")));
        }
        let context = device::current().map_err(|error| Fail::runtime(&error))?;
        let memory = context.device.memory.allocate(size, CALL);
        let memory = memory.map_err(|error| Fail::runtime(&error))?;
        // SAFETY: the caller passes a place for a pointer.
        unsafe { pointer.write_unaligned(memory) };
        Ok(())
    })
}

/// `HcommMemFree`: of memory from `HcommMemAlloc`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn HcommMemFree(pointer: *mut c_void) -> HcclResult {
    const CALL: &str = "HcommMemFree";
    answer(CALL, || {
        if pointer.is_null() {
            return Err(Fail::null(CALL, "ptr"));
        }
        let Place::Device(owner) = memory::locate(pointer) else {
            return Err(not_found(CALL, "no memory of a device", pointer));
        };
        let device = state().devices().get(owner as usize);
        let device = device.ok_or_else(|| not_found(CALL, "no memory", pointer))?;
        let freed = device.memory.free(pointer, CALL);
        freed.map_err(|misuse| Fail::runtime(&misuse.of("ptr")))
    })
}
