//! The vendor's functions, which the tap's stand in front of.
//!
//! REAL-1: nothing is looked up before a program calls the tap: not while libraries are loaded.

#![expect(unsafe_code, reason = "the dynamic linker")]

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The names under which the vendor's HCCL lies beside the tap; before CANN 8.5 both are one file.
const REAL_HCCL: [&CStr; 2] = [c"libhccl.muster-real.so", c"libhcomm.muster-real.so"];
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

    /// The vendor's function of this name; null where there is none.
    pub(crate) fn hccl(&self) -> *mut c_void {
        self.find(|name| {
            // SAFETY: the name is a C string.
            let next = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
            let beside = REAL_HCCL.iter().map(|library| within(library, name));
            // The vendor's libraries need the tap by its second name, and so it may be found there.
            let is_real = |found: &*mut c_void| !found.is_null() && !is_own(*found);
            let mut found = [next].into_iter().chain(beside);
            found.find(is_real).unwrap_or(ptr::null_mut())
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

/// Whether an address lies in the tap. Addresses of exports do not tell: the program may have others of the same name in front.
fn is_own(address: *const c_void) -> bool {
    let base = |address: *const c_void| {
        // SAFETY: plain data, for which zeros are allowed.
        let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
        // SAFETY: any address may be asked for; the result is written to `found`.
        let is_known = unsafe { libc::dladdr(address, &raw mut found) } != 0;
        is_known.then_some(found.dli_fbase)
    };
    base(address) == base(is_own as *const c_void)
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
