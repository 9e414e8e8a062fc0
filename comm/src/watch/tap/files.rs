//! The boards of this user's processes on this host.

#![expect(unsafe_code, reason = "the memory of a board")]

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::{io, ptr};

use rustix::fs::OFlags;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::ask::stack_of;
use super::board::{Board, MAGIC, PREFIX};
use super::ends::End;
use super::scene::Watched;
use super::snapshot::{read, read_groups};
use super::tape::{Tape, Taped};
use crate::rendezvous::ProcessId;
use crate::sync::Ordering;
use crate::watch::process::{Sight, look_at, own};

/// Where boards lie.
const FOLDER: &str = "/dev/shm";

/// A board of a process, as long as this lives also after the process removed it.
#[derive(Debug)]
pub struct BoardFile {
    path: PathBuf,
    started_ticks: u64,
    memory: *const Board,
}

// SAFETY: a board is atomics, in memory that stays mapped as long as the value lives.
unsafe impl Send for BoardFile {}

/// The files of boards of this user.
#[must_use]
pub fn board_files() -> Vec<PathBuf> {
    let user = rustix::process::getuid().as_raw();
    let head = format!("{PREFIX}{user}-");
    let entries = fs::read_dir(FOLDER).into_iter().flatten().flatten();
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(&head))
    };
    entries.map(|entry| entry.path()).filter(is_ours).collect()
}

impl BoardFile {
    /// Opens a board.
    ///
    /// # Errors
    /// Where the file is none of this user, cannot be mapped, or is too short for this version: it may be just in the making.
    pub fn open(path: &Path) -> io::Result<Self> {
        let other = || io::Error::new(io::ErrorKind::InvalidData, "no board of this user");
        let name = path.file_name().and_then(|name| name.to_str());
        let started_ticks = name
            .and_then(|name| name.rsplit('-').next()?.parse().ok())
            .ok_or_else(other)?;
        let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::CLOEXEC).bits()).unwrap_or(0);
        let file: File = OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(path)?;
        let about = file.metadata()?;
        let bytes = size_of::<Board>();
        let is_ours = about.is_file()
            && about.uid() == rustix::process::getuid().as_raw()
            && about.len() >= bytes as u64;
        if !is_ours {
            return Err(other());
        }
        // SAFETY: a new mapping.
        let memory = unsafe {
            mmap(
                ptr::null_mut(),
                bytes,
                ProtFlags::READ,
                MapFlags::SHARED,
                &file,
                0,
            )
        }?;
        Ok(Self {
            path: path.to_owned(),
            started_ticks,
            memory: memory.cast(),
        })
    }

    fn board(&self) -> &Board {
        // SAFETY: the mapping has this size and stays as long as `self`; all of a board is atomic.
        unsafe { &*self.memory }
    }

    /// The job that the process says it belongs to.
    #[must_use]
    pub fn job(&self) -> u64 {
        // Relaxed: written before the board is valid.
        self.board().job.load(Ordering::Relaxed)
    }

    /// Whether the process has finished making it; until then its job is not known.
    #[must_use]
    pub fn is_made(&self) -> bool {
        // Acquire: what was written before it is there.
        self.board().magic.load(Ordering::Acquire) == MAGIC
    }

    /// Looks at the board and the process; `None` where the board is of another version. `end` is what was seen of its end.
    #[must_use]
    pub fn look(&self, end: Option<End>) -> Option<Watched> {
        let sight = self.sight();
        Some(Watched {
            process: read(self.board())?,
            has_exited: !self.path.exists(),
            sight,
            end,
        })
    }

    /// What the process says of itself and its communicators, without their calls.
    #[must_use]
    pub fn groups(&self) -> Option<super::Process> {
        read_groups(self.board())
    }

    /// The calls since the last look at the tape, for recordings.
    #[must_use]
    pub fn wind(&self, tape: &mut Tape, now_ns: u64, is_over: bool) -> Vec<Taped> {
        tape.wind(self.board(), now_ns, is_over)
    }

    /// Where the main thread of the process is, if it is a Python program that can be asked: functions, the innermost first.
    #[must_use]
    pub fn python_stack(&self) -> Vec<String> {
        stack_of(self.board(), &self.process())
    }

    /// What a look at the process shows.
    #[must_use]
    pub fn sight(&self) -> Sight {
        look_at(&self.process())
    }

    /// Which process it is.
    #[must_use]
    pub fn process(&self) -> ProcessId {
        // Relaxed: as above.
        let namespace = self.board().namespace.load(Ordering::Relaxed);
        ProcessId {
            namespace,
            pid: self.board().pid.load(Ordering::Relaxed),
            started_ticks: self.started_ticks,
            ..own()
        }
    }

    /// Removes the file of a process that has ended.
    pub fn remove(&self) {
        // The process may have removed it itself.
        let _ = fs::remove_file(&self.path);
    }

    /// Where it lies.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for BoardFile {
    fn drop(&mut self) {
        // SAFETY: the mapping is of this size, and nobody has a reference into it any more.
        let unmapped = unsafe { munmap(self.memory.cast_mut().cast(), size_of::<Board>()) };
        debug_assert!(unmapped.is_ok(), "a mapping of ours");
    }
}

/// A board of nobody, for tests.
#[cfg(test)]
pub(super) fn blank() -> Box<Board> {
    // SAFETY: zeroes are a board: all of it is atomic numbers.
    unsafe { Box::<Board>::new_zeroed().assume_init() }
}
