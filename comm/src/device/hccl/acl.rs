//! The calls of the runtime that this library makes, each checked and with the vendor's words.
//!
//! Handles and addresses of the vendor are kept as numbers: they are never dereferenced here, and
//! numbers may go to any thread.
//!
//! - `ACL-1`: the text of a failed call is fetched at once, on the thread that made it.
//! - `ACL-2`: no call here waits without a limit; those that may block take one.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::{null, null_mut, with_exposed_provenance, with_exposed_provenance_mut};
use std::time::Duration;

use hccl_sys::symbols::{Api, MissingSymbol};
use hccl_sys::types::{
    AclError, AclrtEventRecordedStatus, AclrtEventStatus, AclrtMemAttr, AclrtMemMallocPolicy,
    AclrtMemcpyKind, AclrtStreamStatus,
};

use crate::device::error::DeviceError;
use crate::device::vendor_call::{Handle, Way};

/// Longest text of the vendor that is kept, in bytes: errors travel between ranks.
const DETAIL_BYTES_MAX: usize = 2000;
/// ACL was initialised before: by us, or by somebody else in this process.
const REPEAT_INITIALIZE: i32 = 100_002;
/// A stream did not end in the given time.
const STREAM_SYNC_TIMEOUT: i32 = 507_046;

impl Way {
    fn kind(self) -> AclrtMemcpyKind {
        match self {
            Self::DeviceToDevice => AclrtMemcpyKind::ACL_MEMCPY_DEVICE_TO_DEVICE,
            Self::DeviceToHost => AclrtMemcpyKind::ACL_MEMCPY_DEVICE_TO_HOST,
            Self::HostToDevice => AclrtMemcpyKind::ACL_MEMCPY_HOST_TO_DEVICE,
        }
    }
}

impl From<MissingSymbol> for DeviceError {
    fn from(missing: MissingSymbol) -> Self {
        Self::Missing {
            what: missing.name.to_owned(),
            why: missing.to_string(),
        }
    }
}

/// The runtime's functions.
#[derive(Clone, Debug)]
pub(crate) struct Acl {
    api: Api,
}

pub(crate) fn pointer(handle: Handle) -> *mut c_void {
    with_exposed_provenance_mut(handle)
}

fn const_pointer(handle: Handle) -> *const c_void {
    with_exposed_provenance(handle)
}

impl Acl {
    pub(crate) fn new(api: Api) -> Self {
        Self { api }
    }

    pub(crate) fn api(&self) -> &Api {
        &self.api
    }

    /// The vendor's latest words on this thread, cut to a bound; reading them clears them.
    pub(crate) fn recent_words(&self) -> String {
        let Ok(function) = self.api.acl().aclGetRecentErrMsg() else {
            return String::new();
        };
        // SAFETY: takes nothing and returns a text of the library or null.
        let text = unsafe { function() };
        if text.is_null() {
            return String::new();
        }
        // SAFETY: closed with a zero, and the library's until the next read on this thread.
        let text = unsafe { CStr::from_ptr(text) };
        let text = text.to_string_lossy();
        let mut end = text.len().min(DETAIL_BYTES_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text[..end].trim().to_owned()
    }

    fn check(&self, call: &'static str, code: AclError) -> Result<(), DeviceError> {
        if code.0 == 0 {
            return Ok(());
        }
        Err(DeviceError::Vendor {
            call,
            code: code.0,
            detail: self.recent_words(),
        })
    }

    /// Initialises ACL for this process; a second time is no error.
    pub(crate) fn init(&self) -> Result<(), DeviceError> {
        let function = self.api.acl().aclInit()?;
        // SAFETY: null stands for no configuration file.
        let code = unsafe { function(null()) };
        if code.0 == REPEAT_INITIALIZE {
            return Ok(());
        }
        self.check("aclInit", code)
    }

    pub(crate) fn device_count(&self) -> Result<u32, DeviceError> {
        let function = self.api.acl().aclrtGetDeviceCount()?;
        let mut count = 0;
        // SAFETY: writes one number.
        let code = unsafe { function(&raw mut count) };
        self.check("aclrtGetDeviceCount", code).map(|()| count)
    }

    pub(crate) fn set_device(&self, logical: i32) -> Result<(), DeviceError> {
        let function = self.api.acl().aclrtSetDevice()?;
        // SAFETY: takes a number, which the runtime checks.
        let code = unsafe { function(logical) };
        self.check("aclrtSetDevice", code)
    }

    /// The device of this thread; `None` where none was set.
    pub(crate) fn current_device(&self) -> Result<Option<i32>, DeviceError> {
        let function = self.api.acl().aclrtGetDevice()?;
        let mut logical = 0;
        // SAFETY: writes one number.
        let code = unsafe { function(&raw mut logical) };
        if code.0 != 0 {
            // Its words would stand in those of a later error.
            let _ = self.recent_words();
            return Ok(None);
        }
        Ok(Some(logical))
    }

    pub(crate) fn soc_name(&self) -> Result<String, DeviceError> {
        let function = self.api.acl().aclrtGetSocName()?;
        // SAFETY: takes nothing and returns a text of the library or null.
        let name: *const c_char = unsafe { function() };
        if name.is_null() {
            return Err(DeviceError::Vendor {
                call: "aclrtGetSocName",
                code: 0,
                detail: self.recent_words(),
            });
        }
        // SAFETY: closed with a zero, and the library's for ever.
        let name = unsafe { CStr::from_ptr(name) };
        Ok(name.to_string_lossy().into_owned())
    }

    /// Free and total bytes of the current device's memory.
    pub(crate) fn memory(&self) -> Result<(u64, u64), DeviceError> {
        let function = self.api.acl().aclrtGetMemInfo()?;
        let (mut free, mut total) = (0_usize, 0_usize);
        // SAFETY: writes two numbers.
        let code = unsafe { function(AclrtMemAttr::ACL_HBM_MEM, &raw mut free, &raw mut total) };
        self.check("aclrtGetMemInfo", code)
            .map(|()| (free as u64, total as u64))
    }

    /// The physical number of a logical device, where this version can tell.
    pub(crate) fn physical_id(&self, logical: i32) -> Result<i32, DeviceError> {
        let function = self.api.acl().aclrtGetPhyDevIdByLogicDevId()?;
        let mut physical = 0;
        // SAFETY: writes one number.
        let code = unsafe { function(logical, &raw mut physical) };
        self.check("aclrtGetPhyDevIdByLogicDevId", code)
            .map(|()| physical)
    }

    /// `bytes` is above zero.
    pub(crate) fn malloc(&self, bytes: usize) -> Result<Handle, DeviceError> {
        let function = self.api.acl().aclrtMalloc()?;
        let mut address = null_mut();
        let policy = AclrtMemMallocPolicy::ACL_MEM_MALLOC_HUGE_FIRST;
        // SAFETY: writes one address, of memory that is this library's until it is freed.
        let code = unsafe { function(&raw mut address, bytes, policy) };
        self.check("aclrtMalloc", code)
            .map(|()| address.expose_provenance())
    }

    /// # Safety
    /// - The address came from [`Acl::malloc`] and was not freed.
    /// - Nothing on the device uses the memory any more.
    pub(crate) unsafe fn free(&self, address: Handle) -> Result<(), DeviceError> {
        let function = self.api.acl().aclrtFree()?;
        // SAFETY: the caller's promise.
        let code = unsafe { function(pointer(address)) };
        self.check("aclrtFree", code)
    }

    /// Copies and waits for the copy, not for anything else.
    ///
    /// # Safety
    /// - Both ranges of `bytes` bytes are valid on their side for the whole call.
    pub(crate) unsafe fn copy(
        &self,
        target: Handle,
        source: Handle,
        bytes: usize,
        way: Way,
    ) -> Result<(), DeviceError> {
        let function = self.api.acl().aclrtMemcpy()?;
        let (target, source) = (pointer(target), const_pointer(source));
        // SAFETY: the caller's promise; the target has room for exactly `bytes`.
        let code = unsafe { function(target, bytes, source, bytes, way.kind()) };
        self.check("aclrtMemcpy", code)
    }

    /// Enqueues a copy.
    ///
    /// # Safety
    /// - Both ranges of `bytes` bytes stay valid until the stream has gone past the copy.
    /// - The stream is alive, and its device is current in this thread.
    pub(crate) unsafe fn copy_async(
        &self,
        target: Handle,
        source: Handle,
        bytes: usize,
        way: Way,
        stream: Handle,
    ) -> Result<(), DeviceError> {
        let function = self.api.acl().aclrtMemcpyAsync()?;
        let (target, source) = (pointer(target), const_pointer(source));
        // SAFETY: the caller's promise.
        let code = unsafe { function(target, bytes, source, bytes, way.kind(), pointer(stream)) };
        self.check("aclrtMemcpyAsync", code)
    }

    /// Fills device memory and waits for it.
    ///
    /// # Safety
    /// - `bytes` bytes from `address` on are device memory of ours.
    pub(crate) unsafe fn fill(
        &self,
        address: Handle,
        value: u8,
        bytes: usize,
    ) -> Result<(), DeviceError> {
        let function = self.api.acl().aclrtMemset()?;
        // SAFETY: the caller's promise.
        let code = unsafe { function(pointer(address), bytes, i32::from(value), bytes) };
        self.check("aclrtMemset", code)
    }

    /// A new stream of the current device, which stops at its first failed task where the runtime
    /// knows how.
    pub(crate) fn create_stream(&self) -> Result<Handle, DeviceError> {
        let function = self.api.acl().aclrtCreateStream()?;
        let mut stream = null_mut();
        // SAFETY: writes one handle.
        let code = unsafe { function(&raw mut stream) };
        self.check("aclrtCreateStream", code)?;
        if let Ok(function) = self.api.acl().aclrtSetStreamFailureMode() {
            /// Later tasks are not run on what a failed one left behind.
            const STOP_ON_FAILURE: u64 = 1;
            // SAFETY: the stream was just made. Products that do not know the mode refuse it,
            // which costs nothing but the earlier end.
            let _ = unsafe { function(stream, STOP_ON_FAILURE) };
        }
        Ok(stream.expose_provenance())
    }

    /// # Safety
    /// - The stream is alive and nobody uses it during or after the call.
    /// - Its device is current in this thread; without `by_force` it has no work left.
    pub(crate) unsafe fn destroy_stream(
        &self,
        stream: Handle,
        by_force: bool,
    ) -> Result<(), DeviceError> {
        if by_force {
            let function = self.api.acl().aclrtDestroyStreamForce()?;
            // SAFETY: the caller's promise.
            let code = unsafe { function(pointer(stream)) };
            return self.check("aclrtDestroyStreamForce", code);
        }
        let function = self.api.acl().aclrtDestroyStream()?;
        // SAFETY: the caller's promise.
        let code = unsafe { function(pointer(stream)) };
        self.check("aclrtDestroyStream", code)
    }

    /// Drops the tasks of a stream.
    ///
    /// # Safety
    /// - The stream is alive.
    pub(crate) unsafe fn abort_stream(&self, stream: Handle) -> Result<(), DeviceError> {
        let function = self.api.acl().aclrtStreamAbort()?;
        // SAFETY: the caller's promise.
        let code = unsafe { function(pointer(stream)) };
        self.check("aclrtStreamAbort", code)
    }

    /// Waits at most this long for a stream to run empty; says whether it did. Errors of tasks come
    /// out here.
    ///
    /// # Safety
    /// - The stream is alive, and its device is current in this thread.
    pub(crate) unsafe fn await_stream(
        &self,
        stream: Handle,
        time: Duration,
    ) -> Result<bool, DeviceError> {
        let Ok(function) = self.api.acl().aclrtSynchronizeStreamWithTimeout() else {
            // SAFETY: the caller's promise is the same.
            return unsafe { self.await_stream_by_query(stream, time) };
        };
        let millis = i32::try_from(time.as_millis()).unwrap_or(i32::MAX).max(1);
        // SAFETY: the caller's promise.
        let code = unsafe { function(pointer(stream), millis) };
        if code.0 == STREAM_SYNC_TIMEOUT {
            // The words about it are of no use to anybody.
            let _ = self.recent_words();
            return Ok(false);
        }
        self.check("aclrtSynchronizeStreamWithTimeout", code)
            .map(|()| true)
    }

    /// The same for versions without a time limit: asks until it is empty, and only then waits.
    ///
    /// # Safety
    /// - As [`Acl::await_stream`].
    unsafe fn await_stream_by_query(
        &self,
        stream: Handle,
        time: Duration,
    ) -> Result<bool, DeviceError> {
        /// Between two questions.
        const PAUSE: Duration = Duration::from_micros(200);
        let query = self.api.acl().aclrtStreamQuery()?;
        let deadline = crate::sync::Deadline::after(time);
        loop {
            let mut status = AclrtStreamStatus(1);
            // SAFETY: the caller's promise; writes one number.
            let code = unsafe { query(pointer(stream), &raw mut status) };
            self.check("aclrtStreamQuery", code)?;
            if status.is_complete() == Some(true) {
                let wait = self.api.acl().aclrtSynchronizeStream()?;
                // SAFETY: the caller's promise; the stream is empty, so this returns at once.
                let code = unsafe { wait(pointer(stream)) };
                return self.check("aclrtSynchronizeStream", code).map(|()| true);
            }
            if deadline.passed() {
                return Ok(false);
            }
            crate::sync::Clock::pause(PAUSE);
        }
    }

    pub(crate) fn create_event(&self) -> Result<Handle, DeviceError> {
        let function = self.api.acl().aclrtCreateEvent()?;
        let mut event = null_mut();
        // SAFETY: writes one handle.
        let code = unsafe { function(&raw mut event) };
        self.check("aclrtCreateEvent", code)
            .map(|()| event.expose_provenance())
    }

    /// # Safety
    /// - The event is alive and nobody uses it during or after the call.
    pub(crate) unsafe fn destroy_event(&self, event: Handle) -> Result<(), DeviceError> {
        let function = self.api.acl().aclrtDestroyEvent()?;
        // SAFETY: the caller's promise.
        let code = unsafe { function(pointer(event)) };
        self.check("aclrtDestroyEvent", code)
    }

    /// # Safety
    /// - Both are alive and of the device that is current in this thread.
    pub(crate) unsafe fn record_event(
        &self,
        event: Handle,
        stream: Handle,
    ) -> Result<(), DeviceError> {
        let function = self.api.acl().aclrtRecordEvent()?;
        // SAFETY: the caller's promise.
        let code = unsafe { function(pointer(event), pointer(stream)) };
        self.check("aclrtRecordEvent", code)
    }

    /// Makes a stream wait for an event before later tasks.
    ///
    /// # Safety
    /// - Both are alive, and the event until the stream has gone past it.
    pub(crate) unsafe fn await_event_on(
        &self,
        stream: Handle,
        event: Handle,
    ) -> Result<(), DeviceError> {
        let function = self.api.acl().aclrtStreamWaitEvent()?;
        // SAFETY: the caller's promise.
        let code = unsafe { function(pointer(stream), pointer(event)) };
        self.check("aclrtStreamWaitEvent", code)
    }

    /// Whether a recorded event has come. The older and the newer question answer with opposite
    /// numbers; each is decoded by its own type.
    ///
    /// # Safety
    /// - The event is alive and was recorded.
    pub(crate) unsafe fn has_come(&self, event: Handle) -> Result<bool, DeviceError> {
        if let Ok(function) = self.api.acl().aclrtQueryEventStatus() {
            let mut status = AclrtEventRecordedStatus(0);
            // SAFETY: the caller's promise; writes one number.
            let code = unsafe { function(pointer(event), &raw mut status) };
            return self
                .check("aclrtQueryEventStatus", code)
                .map(|()| status.is_complete() == Some(true));
        }
        let function = self.api.acl().aclrtQueryEvent()?;
        let mut status = AclrtEventStatus(1);
        // SAFETY: the caller's promise; writes one number.
        let code = unsafe { function(pointer(event), &raw mut status) };
        self.check("aclrtQueryEvent", code)
            .map(|()| status.is_complete() == Some(true))
    }

    /// Milliseconds between two events that have come.
    ///
    /// # Safety
    /// - Both are alive and have come.
    pub(crate) unsafe fn elapsed_ms(&self, start: Handle, end: Handle) -> Result<f32, DeviceError> {
        let function = self.api.acl().aclrtEventElapsedTime()?;
        let mut millis = 0.0_f32;
        // SAFETY: the caller's promise; writes one number.
        let code = unsafe { function(&raw mut millis, pointer(start), pointer(end)) };
        self.check("aclrtEventElapsedTime", code).map(|()| millis)
    }
}
