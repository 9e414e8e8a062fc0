//! The folder with the tap and the vendor's library under another name.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Display;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use hccl_sys::search::{self, Library};
use muster_comm::config::Environment;
use tempfile::TempDir;

use super::{Libraries, symbols};
use crate::cmd::library::{self, TAP};
use crate::doctor::System;
use crate::fail::Failure;

/// The names that the tap has to programs: from CANN 8.5 on some open the second library by its name.
pub(super) const NAMES: [&str; 2] = ["libhccl.so", "libhcomm.so"];
/// The names under which the tap needs the vendor's libraries.
const REAL: [&str; 2] = ["libhccl.muster-real.so", "libhcomm.muster-real.so"];
/// How the functions begin that the tap stands in front of.
const PREFIX: &str = "Hccl";
/// A part of the vendor's library that the tap has too: two taps in a row make no sense.
const OWN_MARK: &[u8] = b"muster_tap_version";

/// A folder for one run, removed with it.
pub(super) fn scratch() -> Result<TempDir, Failure> {
    let made = tempfile::Builder::new().prefix("muster-tap-").tempdir();
    made.map_err(|error| Failure::resource(format!("no folder for the tap: {error}")))
}

/// Fills the folder; gives back the vendor's library.
pub(super) fn install(dir: &Path, libraries: &Libraries) -> Result<PathBuf, Failure> {
    let tap = library::find(&TAP, libraries.library.as_deref())?;
    let found = real(libraries.hccl.as_deref())?;
    let hccl = found
        .canonicalize()
        .map_err(|error| failed(&found, error))?;
    let beside = [
        found.with_file_name(NAMES[1]),
        hccl.with_file_name(NAMES[1]),
    ];
    let hcomm = beside.iter().find_map(|path| path.canonicalize().ok());
    // Before CANN 8.5 one library is both.
    let real = [hccl.clone(), hcomm.unwrap_or_else(|| hccl.clone())];
    let tap = without_what_is_lacking(&tap, &real)?;
    check(dir)?;
    fs::create_dir_all(dir).map_err(|error| failed(dir, error))?;
    for name in NAMES.iter().chain(&REAL) {
        let path = dir.join(name);
        if path.symlink_metadata().is_ok() {
            fs::remove_file(&path).map_err(|error| failed(&path, error))?;
        }
    }
    let path = dir.join(NAMES[0]);
    fs::write(&path, tap).map_err(|error| failed(&path, error))?;
    let links = REAL.iter().zip(real.iter().map(PathBuf::as_path));
    // One file, so that the loader takes both for one library.
    for (name, file) in links.chain([(&NAMES[1], Path::new(NAMES[0]))]) {
        let path = dir.join(name);
        symlink(file, &path).map_err(|error| failed(&path, error))?;
    }
    Ok(hccl)
}

fn failed(path: &Path, error: impl Display) -> Failure {
    Failure::resource(format!("{}: {error}", path.display()))
}

/// The tap's library without the functions that the vendor's libraries do not have: programs ask whether they are there.
fn without_what_is_lacking(tap: &Path, real: &[PathBuf]) -> Result<Vec<u8>, Failure> {
    let mut theirs = BTreeSet::new();
    for path in real {
        let bytes = fs::read(path).map_err(|error| failed(path, error))?;
        let names = symbols::defined(&bytes).map_err(|error| failed(path, error))?;
        theirs.extend(names.into_keys());
    }
    let mut bytes = fs::read(tap).map_err(|error| failed(tap, error))?;
    let is_lacking = |name: &str| name.starts_with(PREFIX) && !theirs.contains(name);
    symbols::hide(&mut bytes, is_lacking).map_err(|error| failed(tap, error))?;
    Ok(bytes)
}

/// Whether the folder may be filled: it has nothing in it but what this command puts there.
fn check(dir: &Path) -> Result<(), Failure> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Ok(());
    };
    let is_other = |name: &OsString| !NAMES.iter().chain(&REAL).any(|own| name == own);
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
    found.cloned().ok_or_else(|| {
        let places: Vec<String> = places
            .iter()
            .map(|path| format!("\n  {}", path.display()))
            .collect();
        let message = format!(
            "the vendor's {} is in none of these places:{}",
            NAMES[0],
            places.concat()
        );
        Failure::resource(message).with_help("set ASCEND_HOME_PATH, or name the file with --hccl")
    })
}
