//! Files, written whole or not at all.
//!
//! FILE-1: until all of a text is on the disk, a file of the name stays as it was; what could not be
//! finished is removed.
//! FILE-2: only plain files are replaced. What is something else, such as a device or a pipe, is
//! written to as it is.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};

use crate::fail::Failure;

/// Names beside a file that are tried before giving up.
const NAMES_MAX: u32 = 16;

/// Makes sure that a file can be written to this place, before hours of work end in an error.
///
/// # Errors
/// A failure of class USAGE where its folder takes no files.
pub fn can_save(path: &Path) -> Result<(), Failure> {
    let try_it = || match place(path)? {
        Place::Plain(path) => {
            let (_, beside) = beside(&path)?;
            fs::remove_file(beside)
        }
        Place::Other => OpenOptions::new().write(true).open(path).map(drop),
    };
    try_it().map_err(|error| {
        Failure::usage(format!("{} cannot be written: {error}", path.display()))
            .with_help("name a file in a folder that exists and takes files")
    })
}

/// Writes a file whole: until all of it is on the disk, an old file of the name stays as it is.
///
/// # Errors
/// A failure of class RESOURCE where it cannot be written; nothing of it is left then.
pub fn save(path: &Path, text: &str) -> Result<(), Failure> {
    errors_instead_of_signals();
    let write = || match place(path)? {
        Place::Plain(path) => replace(&path, text),
        Place::Other => OpenOptions::new()
            .write(true)
            .open(path)?
            .write_all(text.as_bytes()),
    };
    write().map_err(|error| {
        let message = format!("{} cannot be written: {error}", path.display());
        Failure::resource(message).with_help("an older file of that name is as it was")
    })
}

/// What stands at a path.
enum Place {
    /// A plain file, or nothing yet; links are followed.
    Plain(PathBuf),
    /// A device, a pipe or a socket (FILE-2).
    Other,
}

fn place(path: &Path) -> io::Result<Place> {
    match fs::metadata(path) {
        Ok(found) if found.is_file() => fs::canonicalize(path).map(Place::Plain),
        Ok(found) if found.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(_) => Ok(Place::Other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Place::Plain(path.to_owned())),
        Err(error) => Err(error),
    }
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let (mut file, beside) = beside(path)?;
    let mut write = || {
        if let Ok(old) = fs::metadata(path) {
            file.set_permissions(old.permissions())?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, path)
    };
    let written = write();
    if written.is_err() {
        // Whatever was wrong, half a file helps nobody (FILE-1).
        let _ = fs::remove_file(&beside);
    } else if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        // The new name outlives a power cut where the file system lets folders be written out.
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
    }
    written
}

/// A new file in the folder of `path`, and its name. It is never one that was there.
fn beside(path: &Path) -> io::Result<(File, PathBuf)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    let mut last = io::ErrorKind::AlreadyExists.into();
    for number in 0..NAMES_MAX {
        let name = format!(
            ".{}.{}.{number}",
            name.to_string_lossy(),
            std::process::id()
        );
        let beside = path.with_file_name(name);
        match File::create_new(&beside) {
            Ok(file) => return Ok((file, beside)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// A file that grows above the limit of the process is an error like any other, not a signal that
/// ends it and leaves half a file.
fn errors_instead_of_signals() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Where this cannot be had, the signal ends the program as before.
        let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    });
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("a folder");
        let name = |entry: io::Result<fs::DirEntry>| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        };
        let mut names: Vec<String> = entries.map(name).collect();
        names.sort();
        names
    }

    #[test]
    fn an_old_file_is_replaced_with_its_permissions_and_through_links() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, link) = (folder.path().join("a.json"), folder.path().join("link"));
        save(&file, "one").expect("written");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("set");
        symlink("a.json", &link).expect("linked");
        can_save(&link).expect("can be written");
        save(&link, "two").expect("written");
        assert_eq!(fs::read_to_string(&file).expect("read"), "two");
        let mode = fs::metadata(&file).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
        assert_eq!(names(folder.path()), ["a.json", "link"]);
    }

    #[test]
    fn devices_are_written_to_and_never_replaced() {
        save(Path::new("/dev/null"), "text").expect("written");
        let found = fs::metadata("/dev/null").expect("there");
        assert!(!found.is_file(), "/dev/null was replaced");
        let failure = save(Path::new("/dev/full"), "text").expect_err("full");
        assert_eq!(failure.exit, crate::exit::Exit::Resource);
        can_save(Path::new("/dev/full")).expect("takes writers");
    }

    #[test]
    fn places_that_take_no_file_are_refused_before_the_work() {
        let folder = tempfile::tempdir().expect("a folder");
        for bad in [
            folder.path(),
            &folder.path().join("none/a"),
            Path::new(""),
            Path::new("/"),
        ] {
            let failure = can_save(bad).expect_err("refused");
            assert_eq!(failure.exit, crate::exit::Exit::Usage, "{}", bad.display());
        }
        assert_eq!(names(folder.path()).len(), 0);
    }
}
