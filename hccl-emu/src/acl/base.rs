//! What is asked before anything else: errors, and the name of the emulator.

use std::ffi::c_char;

use crate::runtime::errors;

/// Text of [`muster_emu_version`].
const VERSION: &str = concat!("muster-emu ", env!("CARGO_PKG_VERSION"), "\0");

/// `muster-emu VERSION`: a symbol that only the emulator has.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn muster_emu_version() -> *const c_char {
    VERSION.as_ptr().cast()
}

/// The lines of the calling thread's errors since the last call, latest first; null if none.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn aclGetRecentErrMsg() -> *const c_char {
    errors::take_recent()
}

/// Counts a user of the device and makes it current in the calling thread.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn aclrtSetDevice(device: i32) -> i32 {
    super::guard::guard("aclrtSetDevice", || {
        crate::runtime::state().device(device)?.set()
    })
    .0
}
