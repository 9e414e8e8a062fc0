//! The vendor's functions, which the tap's stand in front of.
//!
//! REAL-1: nothing is looked up before a program calls the tap: not while libraries are loaded.

#![expect(unsafe_code, reason = "the dynamic linker")]

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The name under which the vendor's HCCL lies beside the tap.
const REAL_HCCL: &CStr = c"libhccl.muster-real.so";
/// The vendor's runtime, where the program has loaded it.
const RUNTIME: &CStr = c"libascendcl.so";

/// A function, looked up at its first use.
#[derive(Debug)]
pub(crate) struct Function {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Function {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self {
            name,
            found: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// The vendor's function of this name; null where there is none. `own` is the tap's.
    pub(crate) fn hccl(&self, own: *const c_void) -> *mut c_void {
        self.find(|name| {
            // SAFETY: the name is a C string.
            let next = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
            if !next.is_null() && !ptr::eq(next, own) {
                return next;
            }
            within(REAL_HCCL, name)
        })
    }

    /// A function of the vendor's runtime; null where the program has none.
    pub(crate) fn runtime(&self) -> *mut c_void {
        self.find(|name| {
            let found = of_program(name);
            if found.is_null() {
                within(RUNTIME, name)
            } else {
                found
            }
        })
    }

    fn find(&self, look: impl FnOnce(&CStr) -> *mut c_void) -> *mut c_void {
        // Relaxed: an address of code, which all threads find alike.
        let known = self.found.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        let found = look(self.name);
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

/// A function that the program has, itself or in a library that it is linked with; null where it has none.
pub(crate) fn of_program(name: &CStr) -> *mut c_void {
    // SAFETY: the name is a C string.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// A function of a library that is loaded, or of the vendor's beside the tap.
fn within(library: &CStr, name: &CStr) -> *mut c_void {
    // SAFETY: the name is a C string; a library that is loaded is not loaded again.
    let handle = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: the handle was just opened and stays so.
    unsafe { libc::dlsym(handle, name.as_ptr()) }
}
