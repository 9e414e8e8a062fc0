//! Records the HCCL calls of an unmodified program in a board in shared memory, which `muster tap` reads.
//!
//! The library lies as `libhccl.so` and `libhcomm.so` in a folder in front of the vendor's, and needs the vendor's under the
//! names `libhccl.muster-real.so` and `libhcomm.muster-real.so`: every name that it does not have is found there. It reports
//! nothing by itself.

mod exports;
mod python;
mod real;
mod record;
mod shared;
mod streams;

/// Version of the tap, as text. No other library has a function of this name.
#[expect(unsafe_code, reason = "a name that the tool looks for")]
#[unsafe(no_mangle)]
pub extern "C" fn muster_tap_version() -> *const std::ffi::c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
