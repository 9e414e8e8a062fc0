//! Everything that a client may name and the emulator does not do.
//!
//! A program that was linked with `-z now` starts only if every name that it mentions exists, used
//! or not. So each function of each generation of CANN that the facts know is here unless it is
//! emulated: it returns the vendor's code for "not supported", leaves a line that names it and says
//! emulated, and touches none of its arguments. `tests/exports.rs` compares names with the facts.

use crate::runtime::errors::{self, AclError, Label, RuntimeError};

mod acl;
mod hccl;

/// The refusal of a call: a line in the calling thread, and the code.
fn refuse(call: &str, code: AclError) -> i32 {
    let error = RuntimeError {
        code,
        label: Label::UNSUPPORTED,
        text: format!("{call} is not emulated"),
    };
    errors::fail(&error).0
}

/// Declares functions that refuse: with a code, or, by what they return, null, zero or nothing.
///
/// They are declared without arguments: a C caller's are then ignored, on every platform of ours.
macro_rules! unsupported {
    (codes $code:expr; $($name:ident),* $(,)?) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> i32 {
            super::refuse(stringify!($name), $code)
        }
    )*};
    (pointers; $($name:ident),* $(,)?) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> *mut std::ffi::c_void {
            super::refuse(stringify!($name), AclError::API_NOT_SUPPORT);
            std::ptr::null_mut()
        }
    )*};
    (numbers; $($name:ident),* $(,)?) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> u64 {
            super::refuse(stringify!($name), AclError::API_NOT_SUPPORT);
            0
        }
    )*};
    (nothing; $($name:ident),* $(,)?) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() {
            super::refuse(stringify!($name), AclError::API_NOT_SUPPORT);
        }
    )*};
}

use unsupported;
