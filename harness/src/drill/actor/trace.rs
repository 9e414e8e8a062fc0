//! At which step a rank is, in a file: the drill reads there what the rank was at when it struck, also of one
//! that was killed. The rank only writes.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use muster_comm::sync::Clock;

use crate::drill::script::Part;

/// The file of a rank.
fn file_of(folder: &Path, rank: u32) -> PathBuf {
    folder.join(format!("at-{rank}"))
}

/// The rank's side.
#[derive(Debug)]
pub(super) struct Trace {
    file: File,
}

impl Trace {
    /// Opens the file of a rank that is to be traced.
    pub(super) fn open(part: &Part, folder: &Path) -> Option<Self> {
        let open = || File::create(file_of(folder, part.rank)).ok();
        let file = part.traced.then(open).flatten()?;
        Some(Self { file })
    }

    /// Notes that a step begins; the number of steps where all are done.
    pub(super) fn note(&self, step: usize) {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&(step as u64).to_le_bytes());
        bytes[8..].copy_from_slice(&Clock::nanos().to_le_bytes());
        // One write: who reads sees both numbers or neither. A full disk costs the drill its truth, and it
        // says so.
        let _ = self.file.write_all_at(&bytes, 0);
    }
}

/// Where a rank is, or was at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// The step.
    pub step: usize,
    /// When it began, by the monotonic clock.
    pub since_ns: u64,
}

impl At {
    /// Reads it; `None` for a rank that has not begun its first step.
    #[must_use]
    pub fn read(folder: &Path, rank: u32) -> Option<Self> {
        let bytes = std::fs::read(file_of(folder, rank)).ok()?;
        let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        Some(Self {
            step: usize::try_from(word(0)?).ok()?,
            since_ns: word(8)?,
        })
    }
}
