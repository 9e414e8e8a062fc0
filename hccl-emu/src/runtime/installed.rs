//! What the installed tree that this library lies in says about itself.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The file of a toolkit that names its version.
pub const INSTALL_INFO: &str = "ascend_toolkit_install.info";

/// The CANN version of the tree, if the library lies in one.
#[must_use]
pub fn cann() -> Option<String> {
    let library = own_path()?.canonicalize().ok()?;
    let root = library.parent()?.parent()?;
    let text = std::fs::read_to_string(root.join(INSTALL_INFO)).ok()?;
    let version = text
        .lines()
        .find_map(|line| line.strip_prefix("version="))?;
    Some(version.trim().trim_end_matches("-emulated").to_owned())
}

/// Where the loader found this library; for the tool's own binary: the tool.
fn own_path() -> Option<PathBuf> {
    let own = (own_path as *const ()).cast::<libc::c_void>();
    // SAFETY: all-zero is a valid `Dl_info`: null pointers.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: `own` is an address of this object, and `info` is a live local.
    let found = unsafe { libc::dladdr(own, &raw mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader keeps the name as long as the object is loaded, which it is while it runs.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(Path::new(OsStr::from_bytes(name.to_bytes())).to_owned())
}
