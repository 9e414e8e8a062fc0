//! Memory: taking, freeing, filling, asking.

use std::ffi::c_void;

use super::abi::{Address, Out, exports, null};
use super::stream::of;
use crate::runtime::device;
use crate::runtime::errors::{AclError, RuntimeError};
use crate::runtime::memory::{self, Access, Misuse, Place};
use crate::runtime::state;
use crate::runtime::stream::TaskContext;

/// Policies of `aclrtMalloc`; bits for the kind of memory may be added.
const POLICIES: u32 = 0x1FFF;
/// Memory attributes of `aclrtGetMemInfo` that mean the device's memory.
const ATTRIBUTES: std::ops::RangeInclusive<i32> = 0..=11;

exports! {
    /// Takes device memory of the current device.
    fn aclrtMalloc(pointer: Out<*mut c_void>, bytes: usize, policy: u32) {
        allocate(pointer, bytes, policy, "aclrtMalloc")
    }

    /// The same without spare bytes behind it; here they are always there.
    fn aclrtMallocAlign32(pointer: Out<*mut c_void>, bytes: usize, policy: u32) {
        allocate(pointer, bytes, policy, "aclrtMallocAlign32")
    }

    /// The same, cached; here that makes no difference.
    fn aclrtMallocCached(pointer: Out<*mut c_void>, bytes: usize, policy: u32) {
        allocate(pointer, bytes, policy, "aclrtMallocCached")
    }

    /// The same; attributes are not looked at.
    fn aclrtMallocWithCfg(pointer: Out<*mut c_void>, bytes: usize, policy: u32, _config: *const c_void) {
        allocate(pointer, bytes, policy, "aclrtMallocWithCfg")
    }

    /// The same; attributes are not looked at.
    fn aclrtMallocForTaskScheduler(pointer: Out<*mut c_void>, bytes: usize, policy: u32, _config: *const c_void) {
        allocate(pointer, bytes, policy, "aclrtMallocForTaskScheduler")
    }

    /// Frees device memory at once, whatever still uses it.
    fn aclrtFree(pointer: *mut c_void) {
        free(pointer, "aclrtFree")
    }

    /// Frees device memory after the tasks of the context have ended.
    fn aclrtFreeWithDevSync(pointer: *mut c_void) {
        if pointer.is_null() {
            return Err(null("devPtr"));
        }
        super::device::settle()?;
        free(pointer, "aclrtFreeWithDevSync")
    }

    /// Takes pinned host memory.
    fn aclrtMallocHost(pointer: Out<*mut c_void>, bytes: usize) {
        allocate_host(pointer, bytes)
    }

    /// The same; attributes are not looked at.
    fn aclrtMallocHostWithCfg(pointer: Out<*mut c_void>, bytes: u64, _config: *const c_void) {
        allocate_host(pointer, bytes as usize)
    }

    /// Frees pinned host memory.
    fn aclrtFreeHost(pointer: *mut c_void) {
        free_host(pointer)
    }

    /// The same after the tasks of the context have ended.
    fn aclrtFreeHostWithDevSync(pointer: *mut c_void) {
        if pointer.is_null() {
            return Err(null("hostPtr"));
        }
        super::device::settle()?;
        free_host(pointer)
    }

    /// How much memory the current device has, and how much of it is free.
    fn aclrtGetMemInfo(attribute: i32, free: Out<usize>, total: Out<usize>) {
        let (free, total) = (free.check("free")?, total.check("total")?);
        let context = device::current()?;
        if !ATTRIBUTES.contains(&attribute) {
            let text = format!("attribute {attribute}; allowed: 0 to 11");
            return Err(RuntimeError::new(AclError::INVALID_PARAM, text));
        }
        let info = context.device.memory.info()?;
        free.set("free", info.free as usize)?;
        total.set("total", info.total as usize)
    }

    /// Fills device memory, or host memory that the runtime gave out.
    fn aclrtMemset(pointer: *mut c_void, room: usize, value: i32, bytes: usize) {
        device::current()?;
        if bytes == 0 {
            return Ok(());
        }
        Fill::new(pointer, room, value, bytes)?.run(AclError::RT_PARAM_INVALID)
    }

    /// The same as a task.
    fn aclrtMemsetAsync(pointer: *mut c_void, room: usize, value: i32, bytes: usize, stream: *mut c_void) {
        let stream = of(stream)?;
        if bytes == 0 {
            return Ok(());
        }
        let fill = Fill::new(pointer, room, value, bytes)?;
        let work = move |_: &TaskContext| fill.run(AclError::RT_DEVICE_MEM_ERROR);
        stream.enqueue("aclrtMemsetAsync", Box::new(work)).map(drop)
    }

    /// Caches are coherent here.
    fn aclrtMemFlush(pointer: *mut c_void, bytes: usize) {
        check(pointer, bytes)
    }

    /// Caches are coherent here.
    fn aclrtMemInvalidate(pointer: *mut c_void, bytes: usize) {
        check(pointer, bytes)
    }

    /// Start and length of the allocation that an address of a device lies in.
    fn aclrtMemGetAddressRange(pointer: *mut c_void, start: Out<*mut c_void>, bytes: Out<usize>) {
        device::current()?;
        let found = state()
            .devices()
            .iter()
            .find_map(|device| device.memory.allocation_at(pointer));
        let missing = || RuntimeError::argument(format!("{pointer:p} lies in no allocation of a device"));
        let (from, length) = found.ok_or_else(missing)?;
        if !start.absent() {
            start.set("pbase", from)?;
        }
        if bytes.absent() { Ok(()) } else { bytes.set("psize", length as usize) }
    }

    /// Where an address lies: a device, host memory of the runtime, or unknown.
    fn aclrtPointerGetAttributes(pointer: *const c_void, attributes: Out<PointerAttributes>) {
        if pointer.is_null() {
            return Err(null("ptr"));
        }
        let (id, kind) = match memory::locate(pointer) {
            Place::Device(device) => (device, 1),
            Place::Pinned => (0, 0),
            Place::Pageable => (0, 2),
        };
        attributes.set("attributes", PointerAttributes { id, kind, page_bytes: 4096, reserved: [0; 4] })
    }
}

/// `aclrtPtrAttributes`: kind 0 is the host, 1 a device, 2 unregistered.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct PointerAttributes {
    id: u32,
    kind: u32,
    page_bytes: u32,
    reserved: [u32; 4],
}

/// A fill that was checked.
struct Fill {
    place: Address,
    device: Option<u32>,
    value: u8,
    bytes: usize,
}

impl Fill {
    fn new(
        pointer: *mut c_void,
        room: usize,
        value: i32,
        bytes: usize,
    ) -> Result<Self, RuntimeError> {
        if pointer.is_null() {
            return Err(null("devPtr"));
        }
        if bytes > room {
            return Err(RuntimeError::argument(format!(
                "count is {bytes}, maxCount is {room}"
            )));
        }
        let device = match memory::locate(pointer) {
            Place::Device(device) => {
                memory::verify(pointer, bytes as u64).map_err(|misuse| misuse.of("devPtr"))?;
                Some(device)
            }
            Place::Pinned => None,
            Place::Pageable => {
                let misuse = Misuse::Host {
                    address: pointer.addr(),
                    pinned: false,
                };
                return Err(misuse.of("devPtr"));
            }
        };
        Ok(Self {
            place: Address(pointer),
            device,
            value: value.to_le_bytes()[0],
            bytes,
        })
    }

    fn run(&self, code: AclError) -> Result<(), RuntimeError> {
        let start = match self.device {
            Some(device) => memory::resolve(device, self.place.0, self.bytes as u64, Access::Write)
                .map_err(|misuse| RuntimeError {
                    code,
                    ..misuse.of("devPtr")
                })?,
            None => self.place.0.cast::<u8>(),
        };
        // SAFETY: device memory was resolved just now and stays mapped; pinned host memory is the
        // caller's, who promises `bytes` of it as with any C function.
        unsafe { start.write_bytes(self.value, self.bytes) };
        Ok(())
    }
}

fn allocate(
    pointer: Out<*mut c_void>,
    bytes: usize,
    policy: u32,
    call: &'static str,
) -> Result<(), RuntimeError> {
    let place = pointer.check("devPtr")?;
    let context = device::current()?;
    if bytes == 0 {
        return Err(RuntimeError::new(AclError::INVALID_PARAM, "size is 0"));
    }
    if policy & !POLICIES != 0 {
        let text = format!("policy is {policy:#x}");
        return Err(RuntimeError::argument(text));
    }
    context.device.check_alive()?;
    place.set(
        "devPtr",
        context.device.memory.allocate(bytes as u64, call)?,
    )
}

fn free(pointer: *mut c_void, call: &'static str) -> Result<(), RuntimeError> {
    if pointer.is_null() {
        return Err(null("devPtr"));
    }
    device::current()?;
    match memory::locate(pointer) {
        Place::Device(owner) => {
            let device = state().device(i32::try_from(owner).unwrap_or(-1))?;
            let freed = device.memory.free(pointer, call);
            freed.map_err(|misuse| misuse.of("devPtr"))
        }
        place @ (Place::Pinned | Place::Pageable) => {
            let misuse = Misuse::Host {
                address: pointer.addr(),
                pinned: place == Place::Pinned,
            };
            Err(misuse.of("devPtr"))
        }
    }
}

fn allocate_host(pointer: Out<*mut c_void>, bytes: usize) -> Result<(), RuntimeError> {
    let place = pointer.check("hostPtr")?;
    device::current()?;
    if bytes == 0 {
        return Err(RuntimeError::new(AclError::INVALID_PARAM, "size is 0"));
    }
    place.set("hostPtr", state().host.allocate(bytes)?)
}

fn free_host(pointer: *mut c_void) -> Result<(), RuntimeError> {
    if pointer.is_null() {
        return Err(null("hostPtr"));
    }
    device::current()?;
    state().host.free(pointer)
}

fn check(pointer: *mut c_void, bytes: usize) -> Result<(), RuntimeError> {
    device::current()?;
    if bytes == 0 {
        return Err(RuntimeError::new(AclError::INVALID_PARAM, "size is 0"));
    }
    memory::verify(pointer, bytes as u64).map_err(|misuse| misuse.of("devPtr"))
}
