//! Where the emulator's library is that was built together with this program.

use std::path::{Path, PathBuf};

use crate::fail::Failure;

/// Name that cargo gives it.
pub(super) const FILE: &str = "libmuster_emu.so";
/// A symbol that only the emulator has.
const MARK: &[u8] = b"muster_emu_version";

/// Finds the library: `named`, else beside this program.
///
/// # Errors
/// A failure of class RESOURCE that lists the places, or says what is wrong with the file.
pub(super) fn find(named: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(path) = named {
        return checked(path.to_owned());
    }
    let program = std::env::current_exe()
        .and_then(|path| path.canonicalize())
        .map_err(|error| Failure::resource(format!("this program's own path: {error}")))?;
    let folder = program.parent().unwrap_or_else(|| Path::new("/"));
    let places = places(folder);
    match places.iter().find(|path| path.is_file()) {
        Some(path) => checked(path.clone()),
        None => {
            let list: Vec<String> = places
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            let message = format!("the emulator's library was not found: {}", list.join(", "));
            Err(Failure::resource(message).with_help(
                "copy it beside this program from where that was built (target/release/deps), name it with --library, \
                 or build it with `cargo build --release -p muster-emu`",
            ))
        }
    }
}

/// Beside the program, where cargo puts libraries that it depends on, and where packages do.
fn places(folder: &Path) -> Vec<PathBuf> {
    let folders = [
        folder.to_owned(),
        folder.join("deps"),
        folder.join("../lib"),
        folder.join("../lib/muster"),
    ];
    folders.iter().map(|folder| folder.join(FILE)).collect()
}

/// The file, if it is the emulator.
fn checked(path: PathBuf) -> Result<PathBuf, Failure> {
    let bytes = std::fs::read(&path)
        .map_err(|error| Failure::resource(format!("{}: {error}", path.display())))?;
    let is_library = bytes.starts_with(b"\x7fELF");
    let is_ours = bytes.windows(MARK.len()).any(|window| window == MARK);
    if is_library && is_ours {
        return Ok(path);
    }
    let message = format!("{} is not the emulator's library", path.display());
    Err(Failure::resource(message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    #[test]
    fn a_file_that_is_no_emulator_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(FILE);
        std::fs::write(&path, "\x7fELF and nothing else").expect("written");
        let failure = find(Some(&path)).expect_err("not ours");
        assert_eq!(failure.exit, Exit::Resource);
        let missing = find(Some(&folder.path().join("no"))).expect_err("not there");
        assert_eq!(missing.exit, Exit::Resource);
    }
}
