//! Looks at the boards of a job again and again, and prints the verdict on it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{iter, process};

use muster_comm::error::verdict::Verdict;
use muster_comm::sync::Clock;
use muster_comm::watch::process::Sight;
use muster_comm::watch::tap::board::job_of;
use muster_comm::watch::tap::{BoardFile, Jobs, board_files};
use rustix::process::{Pid, Signal, kill_process};

use super::Limits;
use crate::exit::Exit;
use crate::fail::Failure;
use crate::out;
use crate::world::signals::Interrupts;

/// How often boards are read.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The processes of a job, or of all jobs of this user.
pub(super) struct Watch {
    job: Option<u64>,
    limit: Duration,
    aborts: bool,
    boards: BTreeMap<PathBuf, BoardFile>,
    jobs: BTreeMap<u64, Jobs>,
    told: BTreeMap<u64, Verdict>,
    /// Processes that were watched so far.
    count: usize,
}

impl Watch {
    pub(super) fn new(job: Option<u64>, limit: Duration, aborts: bool) -> Self {
        Self {
            job,
            limit,
            aborts,
            boards: BTreeMap::new(),
            jobs: BTreeMap::new(),
            told: BTreeMap::new(),
            count: 0,
        }
    }

    /// One look at all of them.
    fn look(&mut self) {
        self.find();
        let mut of_job: BTreeMap<u64, Vec<&BoardFile>> = BTreeMap::new();
        for board in self.boards.values() {
            of_job.entry(board.job()).or_default().push(board);
        }
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let wall_ms = u64::try_from(wall.as_millis()).unwrap_or(u64::MAX);
        let limit_ms = u64::try_from(self.limit.as_millis()).unwrap_or(u64::MAX);
        for (job, boards) in of_job {
            let seen: Vec<_> = boards.iter().filter_map(|board| board.look()).collect();
            if self.told.contains_key(&job) {
                continue;
            }
            let judged = self.jobs.entry(job).or_insert_with(|| Jobs::on(&host()));
            if let Some(verdict) = judged.judge(&seen, Clock::nanos(), wall_ms, limit_ms) {
                out::note(&verdict.line());
                if self.aborts {
                    boards.iter().for_each(|board| end(board));
                }
                self.told.insert(job, verdict);
            }
        }
        self.forget();
    }

    /// Opens boards that are new. One of a process that has ended before it was seen is removed.
    fn find(&mut self) {
        for path in board_files() {
            if self.boards.contains_key(&path) {
                continue;
            }
            let Ok(board) = BoardFile::open(&path) else {
                continue;
            };
            if self.job.is_some_and(|job| job != board.job()) {
                continue;
            }
            if board.sight() == Sight::Ended {
                board.remove();
            } else {
                self.boards.insert(path, board);
                self.count += 1;
            }
        }
    }

    /// Forgets jobs of which all processes have ended.
    fn forget(&mut self) {
        let has_ended = |board: &BoardFile| board.sight() == Sight::Ended;
        let living: Vec<u64> = self
            .boards
            .values()
            .filter(|board| !has_ended(board))
            .map(BoardFile::job)
            .collect();
        self.boards.retain(|_, board| {
            let keeps = living.contains(&board.job());
            if !keeps {
                board.remove();
            }
            keeps
        });
        self.jobs.retain(|job, _| living.contains(job));
        if self.job.is_none() {
            self.told.retain(|job, _| living.contains(job));
        }
    }
}

impl Drop for Watch {
    /// What killed processes have left behind goes; boards of living ones stay theirs.
    fn drop(&mut self) {
        let ended = self
            .boards
            .values()
            .filter(|board| board.sight() == Sight::Ended);
        ended.for_each(BoardFile::remove);
    }
}

fn host() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// Asks a process to end, if it is the one of the board.
fn end(board: &BoardFile) {
    if board.sight() != Sight::Ended {
        ask_to_end(board.pid());
    }
}

fn ask_to_end(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // It may end at this moment; a stopped one ends when it goes on.
        let _ = kill_process(pid, Signal::TERM);
        let _ = kill_process(pid, Signal::CONT);
    }
}

/// Runs a command with the tap in this folder, and watches what it starts.
pub(super) fn run(limits: &Limits, folder: &Path, command: &[OsString]) -> Result<Exit, Failure> {
    let Some((program, rest)) = command.split_first() else {
        return Err(Failure::usage("no command to run"));
    };
    let name = format!("{}-{}", process::id(), Clock::nanos());
    let path = muster_comm::config::Environment::capture();
    let path = path
        .text("LD_LIBRARY_PATH")
        .ok()
        .flatten()
        .unwrap_or_default()
        .to_owned();
    let folders =
        iter::once(folder.display().to_string()).chain((!path.is_empty()).then_some(path));
    let path = folders.collect::<Vec<_>>().join(":");
    let child = Command::new(program)
        .args(rest)
        .env("LD_LIBRARY_PATH", path)
        .env("HCCL_SO_PATH", folder.join("libhccl.so"))
        .env("MUSTER_TAP_JOB", &name)
        .spawn();
    let mut child = child
        .map_err(|error| Failure::usage(format!("{} cannot be run: {error}", program.display())))?;
    let mut watch = limits.watch(Some(job_of(&name)));
    let mut is_asked = false;
    let status = loop {
        match child.try_wait() {
            Ok(None) => {
                watch.look();
                // Some of what it started may be unknown to the tap.
                if watch.aborts && !watch.told.is_empty() && !is_asked {
                    is_asked = true;
                    ask_to_end(child.id());
                }
            }
            Ok(Some(status)) => break status,
            Err(error) => {
                return Err(Failure::resource(format!(
                    "waiting for the command: {error}"
                )));
            }
        }
        Clock::pause(LOOK_EVERY);
    };
    watch.look();
    if watch.count == 0 {
        out::note(
            "the tap saw no process that creates a communicator of HCCL; see docs/tap.md for what it cannot see",
        );
    }
    if let Some(verdict) = watch.told.values().next() {
        return Ok(Exit::from(verdict.class));
    }
    Ok(if status.success() {
        Exit::Ok
    } else {
        Exit::FailedCell
    })
}

/// Watches what runs with an installed tap, until Ctrl-C.
pub(super) fn attach(limits: &Limits) -> Result<Exit, Failure> {
    let interrupts = Interrupts::install()?;
    let mut watch = limits.watch(None);
    let mut known = 0;
    while interrupts.count() == 0 {
        watch.look();
        if watch.boards.len() != known {
            known = watch.boards.len();
            out::note(&format!("watching {known} processes"));
        }
        Clock::pause(LOOK_EVERY);
    }
    Ok(Exit::Interrupted)
}
