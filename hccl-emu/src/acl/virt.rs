//! Addresses that get memory later: what clients with growing buffers and zero copy use.

use std::ffi::c_void;
use std::sync::Arc;

use super::abi::{In, Out, exports, null};
use crate::runtime::device;
use crate::runtime::errors::{AclError, RuntimeError};
use crate::runtime::handles::{self, Found};
use crate::runtime::memory::virt::{GRANULE, Physical};
use crate::runtime::state;

/// `aclrtPhysicalMemProp`: what physical memory is asked for.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Properties {
    handle_type: i32,
    allocation_type: i32,
    attribute: i32,
    device: u32,
    location_type: u32,
    reserved: u64,
}

const _: () = assert!(size_of::<Properties>() == 32);

/// `ACL_MEM_LOCATION_TYPE_DEVICE`.
const ON_DEVICE: u32 = 1;

exports! {
    /// The unit of physical memory: 2 MiB.
    fn aclrtMemGetAllocationGranularity(properties: In<Properties>, _option: i32, granule: Out<usize>) {
        properties.get("prop")?;
        granule.set("granularity", GRANULE)
    }

    /// Reserves addresses. A wish for a place and an alignment are not supported, as with the vendor.
    fn aclrtReserveMemAddress(pointer: Out<*mut c_void>, bytes: usize, alignment: usize, wish: *mut c_void, _flags: u64) {
        let place = pointer.check("virPtr")?;
        device::current()?;
        if alignment != 0 || !wish.is_null() {
            let text = format!("alignment is {alignment}, expectPtr is {wish:p}; allowed: 0 and null");
            return Err(RuntimeError::argument(text));
        }
        place.set("virPtr", state().reserved.reserve(bytes)?)
    }

    /// Gives reserved addresses back.
    fn aclrtReleaseMemAddress(pointer: *mut c_void) {
        if pointer.is_null() {
            return Err(null("virPtr"));
        }
        state().reserved.release(pointer)
    }

    /// Takes memory of a device without an address.
    fn aclrtMallocPhysical(handle: Out<*mut c_void>, bytes: usize, properties: In<Properties>, flags: u64) {
        let place = handle.check("handle")?;
        let properties = properties.get("prop")?;
        device::current()?;
        if flags != 0 || properties.handle_type != 0 || properties.location_type != ON_DEVICE {
            let text = format!("flags {flags}, {properties:?}: only memory of a device, without a handle type, is emulated");
            return Err(RuntimeError::new(AclError::RT_FEATURE_NOT_SUPPORT, text));
        }
        let device = state().device(i32::try_from(properties.device).unwrap_or(-1))?;
        device.check_alive()?;
        let taken = Physical::take(&device.memory, bytes)?;
        place.set("handle", handles::pointer(taken.handle))
    }

    /// Ends the handle; the memory goes when nothing maps it any more.
    fn aclrtFreePhysical(handle: *mut c_void) {
        let taken = find(handle)?;
        state().physical.remove(taken.handle);
        Ok(())
    }

    /// Puts memory behind reserved addresses.
    fn aclrtMapMem(pointer: *mut c_void, bytes: usize, offset: usize, handle: *mut c_void, flags: u64) {
        if pointer.is_null() {
            return Err(null("virPtr"));
        }
        if offset != 0 || flags != 0 {
            let text = format!("offset is {offset}, flags {flags}; allowed: 0");
            return Err(RuntimeError::argument(text));
        }
        state().reserved.map(pointer, bytes, find(handle)?)
    }

    /// Takes it away again.
    fn aclrtUnmapMem(pointer: *mut c_void) {
        if pointer.is_null() {
            return Err(null("virPtr"));
        }
        state().reserved.unmap(pointer)
    }

    /// Every mapping can be read and written by its device.
    fn aclrtMemSetAccess(pointer: *mut c_void, _bytes: usize, _access: *const c_void, _count: usize) {
        if pointer.is_null() { Err(null("virPtr")) } else { Ok(()) }
    }
}

fn find(handle: *mut c_void) -> Result<Arc<Physical>, RuntimeError> {
    if handle.is_null() {
        return Err(null("handle"));
    }
    let text = match state().physical.find(handle) {
        Found::Live(physical) => return Ok(physical),
        Found::Gone => "was freed",
        Found::Alien => "is no physical memory",
    };
    Err(RuntimeError::new(
        AclError::RT_INVALID_HANDLE,
        format!("handle {handle:p} {text}"),
    ))
}
