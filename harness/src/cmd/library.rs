//! Where the libraries are that were built together with this program: the emulator and the tap.
//!
//! They are files of their own: a program cannot be loaded as a library, and the emulator inside the program would make that
//! larger by 3 MB packed, 7 MB unpacked.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::fail::Failure;

/// A library.
#[derive(Debug)]
pub(super) struct Library {
    /// Name that cargo gives it.
    pub(super) file: &'static str,
    /// A symbol that no other library has.
    mark: &'static str,
    /// What it is, in words.
    what: &'static str,
    /// The package that it is built from.
    package: &'static str,
}

/// The emulator.
pub(super) const EMULATOR: Library = Library {
    file: "libmuster_emu.so",
    mark: "muster_emu_version",
    what: "the emulator's library",
    package: "muster-emu",
};
/// The tap.
pub(super) const TAP: Library = Library {
    file: "libmuster_tap.so",
    mark: "muster_tap_version",
    what: "the tap's library",
    package: "muster-tap",
};

/// Finds a library: `named`, else beside this program.
///
/// # Errors
/// A failure of class RESOURCE that lists the places, or says what is wrong with the file.
pub(super) fn find(library: &Library, named: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(path) = named {
        return checked(library, path.to_owned());
    }
    let Library {
        file,
        what,
        package,
        ..
    } = library;
    let program = std::env::current_exe()
        .and_then(|path| path.canonicalize())
        .map_err(|error| Failure::resource(format!("this program's own path: {error}")))?;
    let folder = program.parent().unwrap_or_else(|| Path::new("/"));
    let places = places(library, folder);
    let found = places
        .iter()
        .find(|path| path.is_file() && may_be_taken(path, &program));
    match found {
        Some(path) => checked(library, path.clone()),
        None => {
            let list: Vec<String> = places
                .iter()
                .map(|path| format!("\n  {}", path.display()))
                .collect();
            let message = format!(
                "{what}, {file}, is in none of these places:{}",
                list.concat()
            );
            Err(Failure::resource(message).with_help(format!(
                "copy {file} from target/release/deps of the clone in which this program was built to {}, \
                 or name it with --library; `cargo build --release -p {package}` builds it",
                folder.display()
            )))
        }
    }
}

/// Where cargo puts libraries that the program depends on, beside it, where packages do, and where the program was built.
fn places(library: &Library, folder: &Path) -> Vec<PathBuf> {
    let above = folder.parent().unwrap_or(folder);
    let mut folders = vec![
        // Before its own folder: cargo renews this one with the program, and the other only when it is asked to.
        folder.join("deps"),
        folder.to_owned(),
        above.join("lib"),
        above.join("lib/muster"),
    ];
    let built = option_env!("BUILD_DEPS_OF_MUSTER").map(PathBuf::from);
    folders.extend(built.filter(|built| !folders.contains(built)));
    folders
        .iter()
        .map(|folder| folder.join(library.file))
        .collect()
}

/// Whether a library may belong to a program. The folder in which that was built may be anybody's on another host: only a file
/// of the program's owner is taken from there.
fn may_be_taken(library: &Path, program: &Path) -> bool {
    let owner = |path: &Path| std::fs::metadata(path).ok().map(|file| file.uid());
    let is_where_built = library.parent() == option_env!("BUILD_DEPS_OF_MUSTER").map(Path::new);
    !is_where_built || owner(library) == owner(program)
}

/// The file, if it is the library.
fn checked(library: &Library, path: PathBuf) -> Result<PathBuf, Failure> {
    let bytes = std::fs::read(&path)
        .map_err(|error| Failure::resource(format!("{}: {error}", path.display())))?;
    let is_library = bytes.starts_with(b"\x7fELF");
    let mark = library.mark.as_bytes();
    let is_ours = bytes.windows(mark.len()).any(|window| window == mark);
    if is_library && is_ours {
        return Ok(path);
    }
    let message = format!("{} is not {}", path.display(), library.what);
    Err(Failure::resource(message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    #[test]
    fn a_file_that_is_no_emulator_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(EMULATOR.file);
        std::fs::write(&path, "\x7fELF and nothing else").expect("written");
        let failure = find(&EMULATOR, Some(&path)).expect_err("not ours");
        assert_eq!(failure.exit, Exit::Resource);
        let missing = find(&EMULATOR, Some(&folder.path().join("no"))).expect_err("not there");
        assert_eq!(missing.exit, Exit::Resource);
    }

    #[test]
    fn from_the_folder_of_the_build_only_a_file_of_the_programs_owner_is_taken() {
        let program = std::env::current_exe().expect("a program");
        let built = program.with_file_name(EMULATOR.file);
        assert!(may_be_taken(&program, &program));
        // A file of root's.
        let theirs = Path::new("/proc/version");
        let is_ours = std::fs::metadata(&program).expect("metadata").uid() == 0;
        assert_eq!(may_be_taken(&program, theirs), is_ours);
        assert!(may_be_taken(
            Path::new("/opt/lib").join(EMULATOR.file).as_path(),
            theirs
        ));
        assert!(!may_be_taken(&built.with_file_name("missing"), theirs));
    }

    #[test]
    fn the_library_is_looked_for_beside_the_program_and_where_it_was_built_last() {
        let places = places(&EMULATOR, Path::new("/opt/bin"));
        // Of a build, the one that was built with the program.
        assert_eq!(places[0], Path::new("/opt/bin/deps").join(EMULATOR.file));
        assert_eq!(places[1], Path::new("/opt/bin").join(EMULATOR.file));
        assert!(places.contains(&Path::new("/opt/lib/muster").join(EMULATOR.file)));
        let built = places.last().and_then(|path| path.parent());
        let program = std::env::current_exe().expect("a program");
        assert_eq!(built, program.parent(), "tests are built in deps");
    }
}
