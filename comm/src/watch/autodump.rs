//! Dumps that are written without being asked for: with a verdict, and on SIGUSR1.
//!
//! KEEP-1: only where a folder was named, and two files a rank: a later dump takes the place of the
//! former one.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use signal_hook::consts::SIGUSR1;
use signal_hook::low_level::pipe;

use super::report::{REPORT_VERSION, Report};
use super::{Watch, dump, process};
use crate::error::verdict::Verdict;
use crate::sync::Clock;

/// Writes a rank's dump into `folder`, as `rank-N.json`, and with PyTorch's keys as
/// `rank-N.pytorch.json`.
///
/// # Errors
/// Of the system: no such folder, no room.
pub fn keep(folder: &Path, report: &Report, verdict: Option<&Verdict>) -> io::Result<()> {
    let ours = dump::document(std::slice::from_ref(report), verdict);
    let pytorch = dump::pytorch(report, Clock::wall_ahead_ns());
    for (value, kind) in [(ours, "json"), (pytorch, "pytorch.json")] {
        let name = format!("rank-{}.{kind}", report.rank);
        // A reader never meets half a dump.
        let draft = folder.join(format!(".{name}.{}", std::process::id()));
        let written = std::fs::File::create(&draft)
            .and_then(|mut file| file.write_all(value.to_string().as_bytes()))
            .and_then(|()| std::fs::rename(&draft, folder.join(name)));
        if written.is_err() {
            // Nothing may be left of what could not be finished.
            let _ = std::fs::remove_file(&draft);
            return written;
        }
    }
    Ok(())
}

/// Writes the dump of this process as a rank that has no world, so no groups and no calls: what it is, and the verdict. The folder is
/// made if it is not there.
///
/// # Errors
/// As [`keep`].
pub(crate) fn keep_without_world(
    folder: &Path,
    rank: u32,
    world_size: u32,
    verdict: &Verdict,
) -> io::Result<()> {
    let pid = std::process::id();
    let report = Report {
        version: REPORT_VERSION,
        rank,
        world_size,
        pid,
        wall_ms: Clock::wall_ms(),
        process: process::look(pid),
        environment: process::environment(None),
        ..Report::default()
    };
    std::fs::create_dir_all(folder)?;
    keep(folder, &report, Some(verdict))
}

/// Where dumps of a rank go.
#[derive(Debug)]
pub(super) struct Keeper {
    folder: PathBuf,
}

impl Keeper {
    /// One for this folder, which is made if it is not there.
    pub(super) fn new(folder: PathBuf) -> io::Result<Self> {
        std::fs::create_dir_all(&folder)?;
        Ok(Self { folder })
    }

    pub(super) fn keep(&self, report: &Report, verdict: Option<&Verdict>) -> Result<(), String> {
        keep(&self.folder, report, verdict)
            .map_err(|error| format!("no dump in {}: {error}", self.folder.display()))
    }
}

/// The ranks of this process that write dumps on SIGUSR1.
static LISTENING: Mutex<Vec<Weak<Watch>>> = Mutex::new(Vec::new());
/// Whether the signal is ours.
static CAUGHT: OnceLock<bool> = OnceLock::new();

/// Has SIGUSR1 write the dump of this rank from now on. A process that has no folder for dumps keeps the
/// signal's usual meaning.
pub(super) fn listen(watch: &Arc<Watch>) {
    if *CAUGHT.get_or_init(|| catch().is_ok()) {
        let mut listening = LISTENING.lock().unwrap_or_else(PoisonError::into_inner);
        listening.retain(|watch| watch.strong_count() > 0);
        listening.push(Arc::downgrade(watch));
    }
}

/// A signal becomes a byte in a socket; no code of ours runs in a handler.
fn catch() -> io::Result<()> {
    let (mut reader, writer) = UnixStream::pair()?;
    pipe::register(SIGUSR1, writer)?;
    let wait = move || {
        let mut byte = [0];
        while matches!(reader.read(&mut byte), Ok(1)) {
            let listening = LISTENING.lock().unwrap_or_else(PoisonError::into_inner);
            let watches: Vec<Arc<Watch>> = listening.iter().filter_map(Weak::upgrade).collect();
            drop(listening);
            watches.iter().for_each(|watch| watch.keep(None));
        }
    };
    std::thread::Builder::new()
        .name("muster-dump".to_owned())
        .spawn(wait)
        .map(drop)
}
