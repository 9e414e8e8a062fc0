//! The folder with the tap and the vendor's library under another name.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use hccl_sys::search::{self, Library};
use muster_comm::config::Environment;
use tempfile::TempDir;

use super::Libraries;
use crate::cmd::library::{self, TAP};
use crate::doctor::System;
use crate::fail::Failure;

/// The name that the tap has to programs.
const NAME: &str = "libhccl.so";
/// The name under which the tap needs the vendor's library.
const REAL: &str = "libhccl.muster-real.so";
/// A part of the vendor's library that the tap has too: two taps in a row make no sense.
const OWN_MARK: &[u8] = b"muster_tap_version";

/// A folder for one run, removed with it.
pub(super) fn scratch() -> Result<TempDir, Failure> {
    let made = tempfile::Builder::new().prefix("muster-tap-").tempdir();
    made.map_err(|error| Failure::resource(format!("no folder for the tap: {error}")))
}

/// Fills the folder; the vendor's library.
pub(super) fn install(dir: &Path, libraries: &Libraries) -> Result<PathBuf, Failure> {
    let tap = library::find(&TAP, libraries.library.as_deref())?;
    let real = real(libraries.hccl.as_deref())?;
    check(dir)?;
    let failed = |path: &Path, error: std::io::Error| {
        Failure::resource(format!("{}: {error}", path.display()))
    };
    fs::create_dir_all(dir).map_err(|error| failed(dir, error))?;
    for name in [NAME, REAL] {
        let path = dir.join(name);
        if path.symlink_metadata().is_ok() {
            fs::remove_file(&path).map_err(|error| failed(&path, error))?;
        }
    }
    let path = dir.join(NAME);
    fs::copy(&tap, &path).map_err(|error| failed(&path, error))?;
    let path = dir.join(REAL);
    symlink(&real, &path).map_err(|error| failed(&path, error))?;
    Ok(real)
}

/// Whether the folder may be filled: it has nothing in it but what this command puts there.
fn check(dir: &Path) -> Result<(), Failure> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Ok(());
    };
    let is_other = |name: &std::ffi::OsString| name != NAME && name != REAL;
    let other = entries
        .flatten()
        .map(|entry| entry.file_name())
        .find(is_other);
    match other {
        None => Ok(()),
        Some(name) => Err(Failure::usage(format!(
            "{} has {} in it; name a folder that is empty, missing, or was made by this command",
            dir.display(),
            name.display()
        ))),
    }
}

/// The vendor's library: a file that is no tap.
fn real(named: Option<&Path>) -> Result<PathBuf, Failure> {
    let places: Vec<PathBuf> = match named {
        Some(path) => vec![path.to_owned()],
        None => {
            let candidates = search::candidates(&System::here(Environment::capture()).places());
            let of_hccl = candidates
                .into_iter()
                .filter(|one| one.library == Library::Hccl);
            of_hccl
                .map(|one| one.path)
                .filter(|path| path.is_absolute())
                .collect()
        }
    };
    let is_it = |path: &&PathBuf| {
        let bytes = fs::read(path).unwrap_or_default();
        bytes.starts_with(b"\x7fELF")
            && !bytes
                .windows(OWN_MARK.len())
                .any(|window| window == OWN_MARK)
    };
    let found = places.iter().find(is_it);
    found
        .and_then(|path| path.canonicalize().ok())
        .ok_or_else(|| {
            let places: Vec<String> = places
                .iter()
                .map(|path| format!("\n  {}", path.display()))
                .collect();
            let message = format!(
                "the vendor's {NAME} is in none of these places:{}",
                places.concat()
            );
            Failure::resource(message)
                .with_help("set ASCEND_HOME_PATH, or name the file with --hccl")
        })
}
