//! Writing the tree: beside what is there first, then exchanged for it in one step.
//!
//! INSTALL-1: nothing that this command did not make is changed. INSTALL-2: until the link `latest`
//! is exchanged, and that is one step, the former installation is found; a run that is interrupted
//! leaves at most a hidden folder, which the next one removes.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use hccl_sys::version::Version;

use super::tree::{self, Entry};
use crate::fail::Failure;

/// The file by which a folder of ours is known.
const MARK_FILE: &str = "EMULATED";
/// What it says.
const MARK_TEXT: &str = "This is an emulated Ascend toolkit, laid out by `muster emu install`.\n\
    Nothing here drives an NPU, and no result that is obtained over it speaks of hardware.\n";
/// Beginning of the names of folders that are being written.
const STAGING: &str = ".staging-";

/// Installs `library` as CANN `cann` in `dir`; gives the absolute path of `dir`.
pub(super) fn install(dir: &Path, cann: &Version, library: &Path) -> Result<PathBuf, Failure> {
    let root = claim(dir)?;
    let failed = |error: io::Error| {
        Failure::resource(format!("cannot write in {}: {error}", root.display()))
    };
    clean(&root).map_err(failed)?;
    let root_text = root
        .to_str()
        .ok_or_else(|| Failure::usage(format!("{} is not UTF-8", root.display())))?;
    let staging = root.join(format!("{STAGING}{}", std::process::id()));
    let name = tree::version_text(cann);
    for entry in tree::version_folder(cann) {
        write(&staging, &entry, library).map_err(failed)?;
    }
    let folder = exchange(&root, &staging, &name).map_err(failed)?;
    for entry in tree::top(&folder, root_text) {
        write(&root, &entry, library).map_err(failed)?;
    }
    forget_others(&root, &folder).map_err(failed)?;
    Ok(root)
}

/// Makes the folder ours, or refuses.
fn claim(dir: &Path) -> Result<PathBuf, Failure> {
    let failed = |error: io::Error| Failure::resource(format!("{}: {error}", dir.display()));
    match fs::read_dir(dir) {
        Ok(mut entries) => {
            let is_ours = dir.join(MARK_FILE).is_file();
            if !is_ours && entries.next().is_some() {
                let message = format!("{} is not empty and not an emulated toolkit", dir.display());
                return Err(Failure::usage(message).with_help("name another folder, or empty it"));
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(dir).map_err(failed)?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return Err(Failure::usage(format!("{} is no folder", dir.display())));
        }
        Err(error) => return Err(failed(error)),
    }
    let root = dir.canonicalize().map_err(failed)?;
    replace_text(&root.join(MARK_FILE), MARK_TEXT).map_err(failed)?;
    Ok(root)
}

/// Removes what an interrupted run left.
fn clean(root: &Path) -> io::Result<()> {
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(STAGING) {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

/// Gives the staged folder a name that is free: that of the version, or one with a number behind.
fn exchange(root: &Path, staging: &Path, name: &str) -> io::Result<String> {
    let names =
        std::iter::once(name.to_owned()).chain((2_u32..).map(|number| format!("{name}.{number}")));
    for name in names {
        let target = root.join(&name);
        if fs::symlink_metadata(&target).is_err() {
            fs::rename(staging, &target)?;
            return Ok(name);
        }
    }
    Err(io::Error::other("no name is free"))
}

/// Removes the folders of former installations; programs that run keep their open library.
fn forget_others(root: &Path, folder: &str) -> io::Result<()> {
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_version = name.contains("-emulated") && entry.file_type()?.is_dir();
        if is_version && name != folder {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

fn write(root: &Path, entry: &Entry, library: &Path) -> io::Result<()> {
    let path = root.join(entry.path());
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    match entry {
        Entry::Text(_, text) => replace_text(&path, text),
        // Copied: a link into a build folder would change, or break, with the next build.
        Entry::Library(_) => fs::copy(library, &path).map(drop),
        Entry::Link(_, target) => {
            let beside = beside(&path);
            let _ = fs::remove_file(&beside);
            symlink(target, &beside)?;
            fs::rename(&beside, &path)
        }
    }
}

fn replace_text(path: &Path, text: &str) -> io::Result<()> {
    let beside = beside(path);
    fs::write(&beside, text)?;
    fs::rename(&beside, path)
}

/// A hidden name in the same folder, from which a file is renamed into its place.
fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{STAGING}{}-{name}", std::process::id()))
}

fn remove(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use hccl_sys::version::{Driver, Toolkit};

    use super::*;
    use crate::exit::Exit;

    fn fake_library(folder: &Path) -> PathBuf {
        let path = folder.join("libmuster_emu.so");
        fs::write(&path, "\x7fELF muster_emu_version").expect("written");
        path
    }

    fn listing(root: &Path) -> BTreeMap<PathBuf, String> {
        let mut found = BTreeMap::new();
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                let kind = fs::symlink_metadata(&path).expect("metadata").file_type();
                let what = if kind.is_symlink() {
                    fs::read_link(&path).expect("a link").display().to_string()
                } else if kind.is_dir() {
                    folders.push(path.clone());
                    "folder".to_owned()
                } else {
                    fs::read_to_string(&path).expect("a text")
                };
                found.insert(path, what);
            }
        }
        found
    }

    #[test]
    fn the_tree_states_its_version_wherever_it_is_looked_for_and_says_emulated() {
        let folder = tempfile::tempdir().expect("a folder");
        let library = fake_library(folder.path());
        for cann in ["8.1.RC1", "8.5.0", "9.1.0-beta.1"] {
            let version: Version = cann.parse().expect("a version");
            let dir = folder.path().join("usr/local/Ascend");
            let root = install(&dir, &version, &library).expect("installed");
            for start in [root.clone(), root.join("latest")] {
                let toolkit = Toolkit::read(&start);
                let stated = toolkit.version().expect("a version");
                assert_eq!(*stated, version, "{}", start.display());
                assert!(stated.is_emulated(), "{stated:?}");
                assert_eq!(toolkit.disagreeing().count(), 0);
                assert!(toolkit.unreadable.is_empty(), "{:?}", toolkit.unreadable);
                for name in [
                    "libhccl.so",
                    "libhcomm.so",
                    "libascendcl.so",
                    "libacl_rt.so",
                ] {
                    let path = start
                        .join("lib64")
                        .join(name)
                        .canonicalize()
                        .expect("a library");
                    assert!(path.ends_with("lib64/libmuster_emu.so"));
                }
            }
            let driver = Driver::read_below(folder.path());
            assert!(driver.version.expect("a version").is_emulated());
            let folders = fs::read_dir(&root).expect("a folder").filter(|entry| {
                let name = entry.as_ref().expect("an entry").file_name();
                name.to_string_lossy().contains("-emulated")
            });
            assert_eq!(folders.count(), 1, "former versions are gone");
        }
    }

    #[test]
    fn installing_again_changes_nothing_but_names_and_leaves_nothing_behind() {
        let folder = tempfile::tempdir().expect("a folder");
        let library = fake_library(folder.path());
        let version: Version = "8.5.0".parse().expect("a version");
        let dir = folder.path().join("a/b");
        let root = install(&dir, &version, &library).expect("installed");
        let first = listing(&root.join("latest").canonicalize().expect("a folder"));
        fs::create_dir(root.join(".staging-1")).expect("left by a killed run");
        install(&dir, &version, &library).expect("installed again");
        let second = listing(&root.join("latest").canonicalize().expect("a folder"));
        assert!(first.values().eq(second.values()));
        assert!(
            listing(&root)
                .keys()
                .all(|path| !path.to_string_lossy().contains("staging"))
        );
    }

    #[test]
    fn a_folder_of_somebody_else_is_refused_and_stays_as_it_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let library = fake_library(folder.path());
        let version: Version = "8.5.0".parse().expect("a version");
        let theirs = folder.path().join("theirs");
        fs::create_dir(&theirs).expect("a folder");
        fs::write(theirs.join("x"), "y").expect("written");
        let before = listing(&theirs);
        let failure = install(&theirs, &version, &library).expect_err("refused");
        assert_eq!(failure.exit, Exit::Usage);
        assert_eq!(listing(&theirs), before);
        let failure = install(&theirs.join("x"), &version, &library).expect_err("a file");
        assert_eq!(failure.exit, Exit::Usage);
    }
}
