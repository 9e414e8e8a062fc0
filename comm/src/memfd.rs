//! Files without a name, in memory, whose size never changes.
//!
//! A process whose limit on file size (`RLIMIT_FSIZE`) is too small is killed by SIGXFSZ where it makes a file
//! larger than that. So the limit is looked at first, and named.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::process::{Resource, getrlimit};

/// Why there is no such file.
#[derive(Debug)]
pub(crate) struct Refused {
    /// The system call.
    pub(crate) step: &'static str,
    /// The system's reason.
    pub(crate) source: io::Error,
}

/// Makes a file of this many bytes, all zero. Its size is sealed: nobody can cut it under a mapping and so raise
/// SIGBUS.
pub(crate) fn create(name: &str, bytes: usize) -> Result<OwnedFd, Refused> {
    let refused = |step| {
        move |errno: rustix::io::Errno| Refused {
            step,
            source: errno.into(),
        }
    };
    if let Some(limit) = getrlimit(Resource::Fsize)
        .current
        .filter(|limit| *limit < bytes as u64)
    {
        let why = format!(
            "file too large: the limit on file size (RLIMIT_FSIZE, ulimit -f) is {limit} bytes"
        );
        return Err(Refused {
            step: "ftruncate",
            source: io::Error::new(io::ErrorKind::FileTooLarge, why),
        });
    }
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create(name, flags).map_err(refused("memfd_create"))?;
    ftruncate(&file, bytes as u64).map_err(refused("ftruncate"))?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
        .map_err(refused("seal"))?;
    Ok(file)
}

impl From<Refused> for io::Error {
    fn from(refused: Refused) -> Self {
        refused.source
    }
}
