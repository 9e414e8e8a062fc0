//! A library that the loader has taken in, for good.
//!
//! The vendor's libraries start threads that do not survive unloading, and addresses of their
//! functions are kept: so nothing here is ever unloaded.

#![expect(unsafe_code, reason = "loading a library runs its constructors")]

use std::ffi::{CStr, OsStr, c_char, c_void};
use std::mem::ManuallyDrop;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

/// A loaded library.
#[derive(Debug)]
pub struct Handle {
    raw: *mut c_void,
}

/// The first members of the loader's record of a library, which are the same everywhere.
#[cfg(target_env = "gnu")]
#[repr(C)]
struct LinkMap {
    _base: usize,
    name: *const c_char,
}

impl Handle {
    /// Loads a library and binds all its symbols. The error is what the loader says.
    ///
    /// # Errors
    /// If the loader refuses it.
    pub fn load(path: &Path) -> Result<Self, String> {
        // SAFETY: the constructors of the vendor's libraries may run at any time and in any
        // thread; that the file is the vendor's is what the user says by installing it or setting
        // a variable.
        let loaded = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
        match loaded {
            // LEAK: unloading would pull the code from under threads that it started.
            Ok(library) => Ok(Self {
                raw: library.into_raw(),
            }),
            Err(error) => Err(words_of(&error)),
        }
    }

    /// The address of a symbol, as dlsym finds it: in this library or in those it depends on.
    #[must_use]
    pub fn address(&self, name: &str) -> Option<*mut c_void> {
        // SAFETY: the handle came from `into_raw` and is never closed; neither is this copy.
        let library = ManuallyDrop::new(unsafe { Library::from_raw(self.raw) });
        // SAFETY: the symbol is taken as a bare address; nothing is called or read through it.
        let symbol = unsafe { library.get::<*mut c_void>(name) };
        // A weak symbol without definition is there with address zero: it counts as missing.
        let address = symbol.ok()?.as_raw_ptr();
        (!address.is_null()).then_some(address)
    }

    /// The file that the loader took for this library; other C libraries do not say it.
    #[cfg(not(target_env = "gnu"))]
    pub(crate) fn file(&self) -> Option<PathBuf> {
        None
    }

    /// The file that the loader took for this library.
    #[cfg(target_env = "gnu")]
    pub(crate) fn file(&self) -> Option<PathBuf> {
        let mut map: *const LinkMap = std::ptr::null();
        let place: *mut *const LinkMap = &raw mut map;
        // SAFETY: the handle is that of a library which is never unloaded; for this request
        // dlinfo writes one pointer.
        let failed = unsafe { libc::dlinfo(self.raw, libc::RTLD_DI_LINKMAP, place.cast()) };
        if failed != 0 || map.is_null() {
            return None;
        }
        // SAFETY: dlinfo succeeded: the record is the loader's and lives as long as the library.
        let name = unsafe { (*map).name };
        path_of(name)
    }
}

/// The file that was mapped where this address of a loaded symbol lies.
pub(crate) fn file_of(address: *mut c_void) -> Option<PathBuf> {
    // SAFETY: all members of the struct are numbers and pointers, for which zero is a value.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: dladdr takes any address, and writes the struct that the second argument is.
    let known = unsafe { libc::dladdr(address, &raw mut info) };
    (known != 0).then(|| path_of(info.dli_fname)).flatten()
}

/// A path from a text of the loader about a library, which is never unloaded here.
fn path_of(name: *const c_char) -> Option<PathBuf> {
    if name.is_null() {
        return None;
    }
    // SAFETY: both callers pass a text of the loader, closed with a zero, that lives as long as
    // the library is loaded: until the process ends.
    let name = unsafe { CStr::from_ptr(name) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

/// The loader's own words, which stand behind the error of the crate.
fn words_of(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}
