//! The library, its functions, and what tests do again and again.

#![expect(non_snake_case, reason = "the vendor's names")]

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

pub(crate) type Pointer = *mut c_void;

/// `ACL_SUCCESS`.
pub(crate) const OK: i32 = 0;
pub(crate) const INVALID_PARAM: i32 = 100_000;
pub(crate) const RT_PARAM: i32 = 107_000;
pub(crate) const H2H: i32 = 0;
pub(crate) const H2D: i32 = 1;
pub(crate) const D2H: i32 = 2;
pub(crate) const D2D: i32 = 3;
pub(crate) const DEFAULT: i32 = 4;

/// The library beside this test's program, where cargo puts it.
pub(crate) fn library() -> PathBuf {
    let program = std::env::current_exe().expect("a program");
    let path = program.with_file_name("libmuster_emu.so");
    assert!(path.is_file(), "{} is not there", path.display());
    path
}

/// Address of a symbol of the library, which stays loaded.
pub(crate) fn symbol(name: &CStr) -> Option<Pointer> {
    static LIBRARY: OnceLock<usize> = OnceLock::new();
    let handle = LIBRARY.get_or_init(|| {
        let path = library()
            .to_str()
            .map(CString::new)
            .expect("UTF-8")
            .expect("no NUL");
        // SAFETY: the library's constructors do nothing but what Rust's runtime needs.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "the library does not load");
        handle.expose_provenance()
    });
    let handle = std::ptr::with_exposed_provenance_mut(*handle);
    // SAFETY: the handle is of a library that stays loaded.
    let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {$(
        pub(crate) fn $name($($argument: $type),*) -> $result {
            let name = CString::new(stringify!($name)).expect("no NUL");
            let address = symbol(&name).expect(stringify!($name));
            // SAFETY: the type is the one of the vendor's headers, as the facts have it.
            let function = unsafe {
                std::mem::transmute::<Pointer, extern "C" fn($($type),*) -> $result>(address)
            };
            function($($argument),*)
        }
    )*};
}

functions! {
    aclInit(config: *const c_char) -> i32;
    aclFinalize() -> i32;
    aclFinalizeReference(left: *mut u64) -> i32;
    aclGetRecentErrMsg() -> *const c_char;
    aclrtPeekAtLastError(level: i32) -> i32;
    aclrtGetLastError(level: i32) -> i32;
    aclrtGetSocName() -> *const c_char;
    muster_emu_version() -> *const c_char;
    aclsysGetVersionStr(package: *const c_char, text: *mut c_char) -> i32;
    aclsysGetVersionNum(package: *const c_char, number: *mut i32) -> i32;
    aclGetCannAttribute(feature: i32, value: *mut i32) -> i32;
    aclGetCannAttributeList(list: *mut *const i32, count: *mut usize) -> i32;
    aclGetDeviceCapability(device: u32, asked: i32, value: *mut i64) -> i32;
    aclmdlRICaptureGetInfo(stream: Pointer, status: *mut i32, model: *mut Pointer) -> i32;
    aclrtSetSysParamOpt(option: i32, value: i64) -> i32;
    aclrtGetSysParamOpt(option: i32, value: *mut i64) -> i32;
    aclrtCtxSetSysParamOpt(option: i32, value: i64) -> i32;
    aclrtCtxGetSysParamOpt(option: i32, value: *mut i64) -> i32;
    aclrtGetDeviceCount(count: *mut u32) -> i32;
    aclrtSetDevice(device: i32) -> i32;
    aclrtGetDevice(device: *mut i32) -> i32;
    aclrtResetDevice(device: i32) -> i32;
    aclrtResetDeviceForce(device: i32) -> i32;
    aclrtDeviceTaskAbort(device: i32, milliseconds: u32) -> i32;
    aclrtDeviceEnablePeerAccess(peer: i32, flags: u32) -> i32;
    aclrtDeviceCanAccessPeer(can: *mut i32, device: i32, peer: i32) -> i32;
    aclrtSynchronizeDeviceWithTimeout(milliseconds: i32) -> i32;
    aclrtCreateContext(context: *mut Pointer, device: i32) -> i32;
    aclrtDestroyContext(context: Pointer) -> i32;
    aclrtSetCurrentContext(context: Pointer) -> i32;
    aclrtGetCurrentContext(context: *mut Pointer) -> i32;
    aclrtMalloc(pointer: *mut Pointer, bytes: usize, policy: i32) -> i32;
    aclrtFree(pointer: Pointer) -> i32;
    aclrtMallocHost(pointer: *mut Pointer, bytes: usize) -> i32;
    aclrtFreeHost(pointer: Pointer) -> i32;
    aclrtGetMemInfo(attribute: i32, free: *mut usize, total: *mut usize) -> i32;
    aclrtMemset(pointer: Pointer, room: usize, value: i32, bytes: usize) -> i32;
    aclrtMemsetAsync(pointer: Pointer, room: usize, value: i32, bytes: usize, stream: Pointer) -> i32;
    aclrtMemcpy(to: Pointer, room: usize, from: *const c_void, bytes: usize, kind: i32) -> i32;
    aclrtMemcpyAsync(to: Pointer, room: usize, from: *const c_void, bytes: usize, kind: i32, stream: Pointer) -> i32;
    aclrtMemcpy2d(to: Pointer, to_pitch: usize, from: *const c_void, from_pitch: usize, width: usize, height: usize, kind: i32) -> i32;
    aclrtCreateStream(stream: *mut Pointer) -> i32;
    aclrtDestroyStream(stream: Pointer) -> i32;
    aclrtDestroyStreamForce(stream: Pointer) -> i32;
    aclrtSynchronizeStream(stream: Pointer) -> i32;
    aclrtSynchronizeStreamWithTimeout(stream: Pointer, milliseconds: i32) -> i32;
    aclrtStreamQuery(stream: Pointer, status: *mut i32) -> i32;
    aclrtStreamAbort(stream: Pointer) -> i32;
    aclrtSetStreamFailureMode(stream: Pointer, mode: u64) -> i32;
    aclrtCreateEvent(event: *mut Pointer) -> i32;
    aclrtCreateEventWithFlag(event: *mut Pointer, flags: u32) -> i32;
    aclrtCreateEventExWithFlag(event: *mut Pointer, flags: u32) -> i32;
    aclrtDestroyEvent(event: Pointer) -> i32;
    aclrtRecordEvent(event: Pointer, stream: Pointer) -> i32;
    aclrtResetEvent(event: Pointer, stream: Pointer) -> i32;
    aclrtStreamWaitEvent(stream: Pointer, event: Pointer) -> i32;
    aclrtStreamWaitEventWithTimeout(stream: Pointer, event: Pointer, milliseconds: i32) -> i32;
    aclrtSynchronizeEvent(event: Pointer) -> i32;
    aclrtSynchronizeEventWithTimeout(event: Pointer, milliseconds: i32) -> i32;
    aclrtQueryEvent(event: Pointer, status: *mut i32) -> i32;
    aclrtQueryEventStatus(event: Pointer, status: *mut i32) -> i32;
    aclrtQueryEventWaitStatus(event: Pointer, status: *mut i32) -> i32;
    aclrtEventElapsedTime(milliseconds: *mut f32, start: Pointer, end: Pointer) -> i32;
    aclrtLaunchHostFunc(stream: Pointer, function: extern "C" fn(Pointer), data: Pointer) -> i32;
    aclrtLaunchCallback(function: extern "C" fn(Pointer), data: Pointer, block: i32, stream: Pointer) -> i32;
    aclrtSubscribeReport(thread: u64, stream: Pointer) -> i32;
    aclrtUnSubscribeReport(thread: u64, stream: Pointer) -> i32;
    aclrtProcessReport(milliseconds: i32) -> i32;
    aclrtMemGetAllocationGranularity(properties: *const Physical, option: i32, granule: *mut usize) -> i32;
    aclrtReserveMemAddress(pointer: *mut Pointer, bytes: usize, alignment: usize, wish: Pointer, flags: u64) -> i32;
    aclrtReleaseMemAddress(pointer: Pointer) -> i32;
    aclrtMallocPhysical(handle: *mut Pointer, bytes: usize, properties: *const Physical, flags: u64) -> i32;
    aclrtFreePhysical(handle: Pointer) -> i32;
    aclrtMapMem(pointer: Pointer, bytes: usize, offset: usize, handle: Pointer, flags: u64) -> i32;
    aclrtUnmapMem(pointer: Pointer) -> i32;
}

/// `aclrtPhysicalMemProp`.
#[repr(C)]
pub(crate) struct Physical {
    pub(crate) handle_type: i32,
    pub(crate) allocation_type: i32,
    pub(crate) attribute: i32,
    pub(crate) device: u32,
    pub(crate) location_type: u32,
    pub(crate) reserved: u64,
}

/// Takes the lines of the calling thread; empty if there are none.
pub(crate) fn recent() -> String {
    let text = aclGetRecentErrMsg();
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the text stays until the next reading in this thread.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}

/// That a call failed with `code`, and that its line has these words and says emulated.
#[track_caller]
pub(crate) fn refused(got: i32, code: i32, words: &[&str]) {
    assert_eq!(got, code);
    let text = recent();
    assert!(text.contains("emulated"), "{text}");
    for word in words {
        assert!(text.contains(word), "{word:?} is missing from {text}");
    }
}

#[track_caller]
pub(crate) fn ok(got: i32) {
    assert_eq!(got, OK, "{}", recent());
}

/// The device for this test alone: other tests that use it wait.
pub(crate) fn own(device: i32) -> MutexGuard<'static, ()> {
    static DEVICES: [Mutex<()>; 16] = [const { Mutex::new(()) }; 16];
    let place = usize::try_from(device).expect("a device");
    DEVICES[place]
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

/// Makes a device current, and frees everything on it at the end.
pub(crate) struct Device {
    number: i32,
    _own: MutexGuard<'static, ()>,
}

impl Device {
    #[track_caller]
    pub(crate) fn set(number: i32) -> Self {
        let own = own(number);
        ok(aclrtSetDevice(number));
        Self { number, _own: own }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        aclrtResetDeviceForce(self.number);
    }
}

#[track_caller]
pub(crate) fn malloc(bytes: usize) -> Pointer {
    let mut pointer = std::ptr::null_mut();
    ok(aclrtMalloc(&raw mut pointer, bytes, 0));
    pointer
}

#[track_caller]
pub(crate) fn stream() -> Pointer {
    let mut stream = std::ptr::null_mut();
    ok(aclrtCreateStream(&raw mut stream));
    stream
}

#[track_caller]
pub(crate) fn event() -> Pointer {
    let mut event = std::ptr::null_mut();
    ok(aclrtCreateEvent(&raw mut event));
    event
}

/// `bytes` from device memory.
#[track_caller]
pub(crate) fn read(from: Pointer, bytes: usize) -> Vec<u8> {
    let mut host = vec![0; bytes];
    ok(aclrtMemcpy(
        host.as_mut_ptr().cast(),
        bytes,
        from,
        bytes,
        D2H,
    ));
    host
}

#[track_caller]
pub(crate) fn write(to: Pointer, bytes: &[u8]) {
    ok(aclrtMemcpy(
        to,
        bytes.len(),
        bytes.as_ptr().cast(),
        bytes.len(),
        H2D,
    ));
}

/// A task that waits in a stream until the test opens it.
pub(crate) struct Gate {
    open: Sender<()>,
    reached: Receiver<()>,
}

struct Closed {
    open: Receiver<()>,
    reached: Sender<()>,
}

extern "C" fn wait_at_gate(data: Pointer) {
    // SAFETY: `data` comes from `Gate::close`, which gave the box away once.
    let closed = unsafe { Box::from_raw(data.cast::<Closed>()) };
    let _ = closed.reached.send(());
    let _ = closed.open.recv();
}

impl Gate {
    /// Puts a closed gate into `stream`.
    pub(crate) fn close(stream: Pointer) -> Self {
        let (open, opened) = channel();
        let (reached, wait) = channel();
        let closed = Box::new(Closed {
            open: opened,
            reached,
        });
        ok(aclrtLaunchHostFunc(
            stream,
            wait_at_gate,
            Box::into_raw(closed).cast(),
        ));
        Self {
            open,
            reached: wait,
        }
    }

    /// Waits until the stream stands at the gate.
    pub(crate) fn await_reached(&self) {
        self.reached.recv().expect("the stream comes to the gate");
    }

    pub(crate) fn open(self) {
        drop(self.open);
    }
}
