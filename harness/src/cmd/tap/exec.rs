//! A command in which the tap goes before the vendor's library, however that is found.

use std::ffi::OsString;
use std::iter;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use muster_comm::config::{self, Environment};

use super::install::NAMES;
use crate::exit::Exit;
use crate::fail::Failure;

/// A program that every system has, and that does nothing.
const PROBE: &str = "true";

/// A variable with lists, with `first` in front of what it holds.
fn in_front(environment: &Environment, name: &str, first: &Path) -> String {
    let before = environment.text(name).ok().flatten();
    let before = before.filter(|list| !list.is_empty()).map(str::to_owned);
    let list: Vec<String> = iter::once(first.display().to_string())
        .chain(before)
        .collect();
    list.join(":")
}

/// The variables by which a command finds the tap of a folder in HCCL's place.
pub(super) fn variables(environment: &Environment, folder: &Path) -> [(&'static str, String); 3] {
    let library = folder.join(NAMES[0]);
    [
        (
            "LD_LIBRARY_PATH",
            in_front(environment, "LD_LIBRARY_PATH", folder),
        ),
        ("HCCL_SO_PATH", library.display().to_string()),
        ("MUSTER_TAP_DIR", folder.display().to_string()),
    ]
}

/// Replaces this program by the command; comes back where it cannot.
pub(super) fn exec(folder: Option<&Path>, command: &[OsString]) -> Result<Exit, Failure> {
    let environment = Environment::capture();
    let folder = match folder {
        Some(folder) => folder.to_owned(),
        None => known_folder(&environment)?,
    };
    let folder = folder
        .canonicalize()
        .map_err(|error| Failure::usage(format!("{}: {error}", folder.display())))?;
    let library = folder.join(NAMES[0]);
    let preload = in_front(&environment, "LD_PRELOAD", &library);
    check(&library, &preload)?;
    let (program, rest) = command
        .split_first()
        .ok_or_else(|| Failure::usage("no command to run"))?;
    let error = Command::new(program)
        .args(rest)
        .envs(variables(&environment, &folder))
        .env("LD_PRELOAD", preload)
        .exec();
    let message = format!("{} cannot be run: {error}", program.display());
    Err(Failure::usage(message))
}

/// The folder of the `muster tap run` that this runs under.
fn known_folder(environment: &Environment) -> Result<PathBuf, Failure> {
    let known = environment.read(&config::TAP_DIR).ok().flatten();
    known.ok_or_else(|| {
        Failure::usage("which tap? this does not run under `muster tap run`")
            .with_help("name a folder that `muster tap install` made with --dir")
    })
}

/// Whether the tap loads: where a library is missing that it needs, no program at all would start.
fn check(library: &Path, preload: &str) -> Result<(), Failure> {
    let tried = Command::new(PROBE).env("LD_PRELOAD", preload).output();
    let tried = tried.map_err(|error| Failure::resource(format!("{PROBE}: {error}")))?;
    let said = String::from_utf8_lossy(&tried.stderr);
    let is_refused = said.contains(&*library.to_string_lossy());
    if tried.status.success() && !is_refused {
        return Ok(());
    }
    let said = said.lines().next().unwrap_or("no reason was given");
    let message = format!("{} does not load: {said}", library.display());
    Err(Failure::resource(message).with_help("source the vendor's set_env.sh before"))
}
