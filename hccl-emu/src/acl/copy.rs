//! Copies between host and devices: kinds are checked against what the addresses really are.

use std::ffi::c_void;

use super::abi::{Address, exports, null};
use super::stream::of;
use crate::runtime::device;
use crate::runtime::errors::{AclError, RuntimeError};
use crate::runtime::memory::{self, Access, Place};
use crate::runtime::state;
use crate::runtime::stream::{Stream, TaskContext};

/// Where the two sides of a kind lie, as (destination is a device, source is a device).
const KINDS: [(&str, bool, bool); 4] = [
    ("ACL_MEMCPY_HOST_TO_HOST", false, false),
    ("ACL_MEMCPY_HOST_TO_DEVICE", true, false),
    ("ACL_MEMCPY_DEVICE_TO_HOST", false, true),
    ("ACL_MEMCPY_DEVICE_TO_DEVICE", true, true),
];
/// The kind that is derived from the addresses.
const DEFAULT: i32 = 4;

exports! {
    /// Copies now. It does not wait for streams.
    fn aclrtMemcpy(target: *mut c_void, room: usize, source: *const c_void, bytes: usize, kind: i32) {
        device::current()?;
        match Copy::new(target, room, source, bytes, kind)? {
            Some(copy) => copy.run(AclError::RT_PARAM_INVALID),
            None => Ok(()),
        }
    }

    /// Copies as a task. With ordinary host memory it returns when the task has ended.
    fn aclrtMemcpyAsync(target: *mut c_void, room: usize, source: *const c_void, bytes: usize, kind: i32, stream: *mut c_void) {
        let stream = of(stream)?;
        match Copy::new(target, room, source, bytes, kind)? {
            Some(copy) => copy.enqueue(&stream, "aclrtMemcpyAsync"),
            None => Ok(()),
        }
    }

    /// As [`aclrtMemcpyAsync`], but host memory must be pinned.
    fn aclrtMemcpyAsyncWithCondition(target: *mut c_void, room: usize, source: *const c_void, bytes: usize, kind: i32, stream: *mut c_void) {
        let stream = of(stream)?;
        let Some(copy) = Copy::new(target, room, source, bytes, kind)? else {
            return Ok(());
        };
        if copy.touches_pageable() {
            return Err(RuntimeError::argument("ordinary host memory: pinned memory is needed"));
        }
        copy.enqueue(&stream, "aclrtMemcpyAsyncWithCondition")
    }

    /// Copies rows now.
    fn aclrtMemcpy2d(target: *mut c_void, target_pitch: usize, source: *const c_void, source_pitch: usize, width: usize, height: usize, kind: i32) {
        device::current()?;
        match Copy::rows(target, target_pitch, source, source_pitch, width, height, kind)? {
            Some(copy) => copy.run(AclError::RT_PARAM_INVALID),
            None => Ok(()),
        }
    }

    /// Copies rows as a task.
    fn aclrtMemcpy2dAsync(target: *mut c_void, target_pitch: usize, source: *const c_void, source_pitch: usize, width: usize, height: usize, kind: i32, stream: *mut c_void) {
        let stream = of(stream)?;
        match Copy::rows(target, target_pitch, source, source_pitch, width, height, kind)? {
            Some(copy) => copy.enqueue(&stream, "aclrtMemcpy2dAsync"),
            None => Ok(()),
        }
    }
}

/// One side of a copy.
#[derive(Clone, Copy, Debug)]
struct Side {
    what: &'static str,
    address: Address,
    place: Place,
    pitch: usize,
}

/// A copy of rows that was checked; a plain copy is one row.
#[derive(Clone, Copy, Debug)]
struct Copy {
    target: Side,
    source: Side,
    width: usize,
    height: usize,
}

impl Copy {
    fn new(
        target: *mut c_void,
        room: usize,
        source: *const c_void,
        bytes: usize,
        kind: i32,
    ) -> Result<Option<Self>, RuntimeError> {
        if bytes > room {
            let text = format!("count is {bytes}, destMax is {room}");
            return Err(RuntimeError::argument(text));
        }
        Self::rows(target, bytes, source, bytes, bytes, 1, kind)
    }

    fn rows(
        target: *mut c_void,
        target_pitch: usize,
        source: *const c_void,
        source_pitch: usize,
        width: usize,
        height: usize,
        kind: i32,
    ) -> Result<Option<Self>, RuntimeError> {
        if width == 0 || height == 0 {
            return Ok(None);
        }
        if width > target_pitch || width > source_pitch {
            let text = format!("width is {width}, dpitch {target_pitch}, spitch {source_pitch}");
            return Err(RuntimeError::new(AclError::INVALID_PARAM, text));
        }
        let copy = Self {
            target: Side::new("dst", target, target_pitch)?,
            source: Side::new("src", source, source_pitch)?,
            width,
            height,
        };
        copy.check_kind(kind)?;
        copy.check_peers()?;
        for side in [copy.target, copy.source] {
            side.verify(copy.span(side.pitch)?)?;
        }
        Ok(Some(copy))
    }

    /// Bytes from the first to the last byte of a side.
    fn span(&self, pitch: usize) -> Result<u64, RuntimeError> {
        let rows = (pitch as u64).checked_mul(self.height as u64 - 1);
        rows.and_then(|rows| rows.checked_add(self.width as u64))
            .ok_or_else(|| RuntimeError::argument("pitch times height overflows"))
    }

    fn check_kind(&self, kind: i32) -> Result<(), RuntimeError> {
        if kind == DEFAULT {
            return Ok(());
        }
        let known = usize::try_from(kind).ok().and_then(|kind| KINDS.get(kind));
        let Some((name, target, source)) = known else {
            let text = format!("kind is {kind}; allowed: 0 to 4");
            return Err(RuntimeError::new(AclError::INVALID_PARAM, text));
        };
        for (side, wanted) in [(self.target, *target), (self.source, *source)] {
            if side.is_device() != wanted {
                let (is, needed) = if wanted {
                    ("host memory", "device memory")
                } else {
                    ("device memory", "host memory")
                };
                return Err(RuntimeError::argument(format!(
                    "{} {:p} is {is}, but {name} needs {needed} there",
                    side.what, side.address.0
                )));
            }
        }
        Ok(())
    }

    /// Between two devices the current one must have been let to reach the other.
    fn check_peers(&self) -> Result<(), RuntimeError> {
        let (Place::Device(to), Place::Device(from)) = (self.target.place, self.source.place)
        else {
            return Ok(());
        };
        let reaches = |device: u32, peer: u32| {
            let devices = state().devices();
            let found = devices.get(device as usize);
            found.is_some_and(|device| device.reaches(peer))
        };
        if reaches(to, from) || reaches(from, to) {
            return Ok(());
        }
        Err(RuntimeError::argument(format!(
            "from device {from} to device {to} without aclrtDeviceEnablePeerAccess"
        )))
    }

    fn touches_pageable(&self) -> bool {
        [self.target, self.source]
            .iter()
            .any(|side| side.place == Place::Pageable)
    }

    fn enqueue(self, stream: &Stream, call: &'static str) -> Result<(), RuntimeError> {
        if !self.target.is_device() && !self.source.is_device() {
            return Err(RuntimeError::new(
                AclError::RT_FEATURE_NOT_SUPPORT,
                "an asynchronous copy from host to host",
            ));
        }
        let work = move |_: &TaskContext| self.run(AclError::RT_DEVICE_MEM_ERROR);
        let number = stream.enqueue(call, Box::new(work))?;
        if self.touches_pageable() {
            stream.await_task(number)?;
        }
        Ok(())
    }

    /// Copies, after looking at the addresses again: much may have been freed since the call.
    fn run(&self, code: AclError) -> Result<(), RuntimeError> {
        let again = |error: RuntimeError| RuntimeError { code, ..error };
        let source = self
            .source
            .real(self.span(self.source.pitch)?, Access::Read)
            .map_err(again)?;
        let whole = self.height == 1 || self.target.pitch == self.width;
        let access = if whole { Access::Write } else { Access::Read };
        let target = self
            .target
            .real(self.span(self.target.pitch)?, access)
            .map_err(again)?;
        for row in 0..self.height {
            let from = source.wrapping_add(row * self.source.pitch);
            let to = target.wrapping_add(row * self.target.pitch);
            // SAFETY: each side is device memory that was resolved just now and stays mapped, or
            // host memory for which the caller promises this many bytes until the copy has ended.
            unsafe { std::ptr::copy(from, to, self.width) };
        }
        Ok(())
    }
}

impl Side {
    fn new(what: &'static str, address: *const c_void, pitch: usize) -> Result<Self, RuntimeError> {
        if address.is_null() {
            return Err(null(what));
        }
        Ok(Self {
            what,
            address: Address::of(address),
            place: memory::locate(address),
            pitch,
        })
    }

    fn is_device(self) -> bool {
        matches!(self.place, Place::Device(_))
    }

    fn verify(self, bytes: u64) -> Result<(), RuntimeError> {
        if !self.is_device() {
            return Ok(());
        }
        memory::verify(self.address.0, bytes).map_err(|misuse| misuse.of(self.what))
    }

    fn real(self, bytes: u64, access: Access) -> Result<*mut u8, RuntimeError> {
        match self.place {
            Place::Device(device) => memory::resolve(device, self.address.0, bytes, access)
                .map_err(|misuse| misuse.of(self.what)),
            Place::Pinned | Place::Pageable => Ok(self.address.0.cast()),
        }
    }
}
