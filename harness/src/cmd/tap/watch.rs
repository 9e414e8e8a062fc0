//! Looks at the boards of a job again and again, and prints the verdict on it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{process, thread};

use crossbeam::channel::{Receiver, Sender, unbounded};
use muster_comm::config::Environment;
use muster_comm::error::verdict::Class;
use muster_comm::rendezvous::{DownReason, ProcessId};
use muster_comm::sync::{Clock, Deadline};
use muster_comm::watch::process::{Sight, how_it_ended};
use muster_comm::watch::tap::board::job_of;
use muster_comm::watch::tap::{BoardFile, End, Jobs, board_files, ranks_of};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::act::{Member, ask_to_end, pid_of, tell};
use super::recording::Recording;
use super::{Limits, OnVerdict, exec};
use crate::exit::Exit;
use crate::fail::Failure;
use crate::out;
use crate::world::signals::Interrupts;

/// How often new boards are looked for: a process that ends before that is not seen.
const FIND_EVERY: Duration = Duration::from_millis(20);
/// How often boards are read.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Ends that were seen, each with the path of the board.
type Ends = (Sender<(PathBuf, End)>, Receiver<(PathBuf, End)>);

/// How often at most it is looked whether all ends have come in, once the command has ended.
const LAST_LOOKS: u32 = 20;
const LAST_LOOK: Duration = Duration::from_millis(50);

/// A process with a board.
struct Watched {
    board: BoardFile,
    /// How it ended; unknown from the start where that cannot be awaited.
    end: Option<End>,
}

impl Watched {
    /// Whether it has ended, and all is known of that.
    fn has_ended(&self) -> bool {
        self.end.is_some() && self.board.sight() == Sight::Ended
    }

    fn is_ending(&self) -> bool {
        self.end.is_none() && self.board.sight() == Sight::Ended
    }
}

/// The processes of a job, or of all jobs of this user.
pub(super) struct Watch {
    job: Option<u64>,
    limit: Duration,
    actions: Vec<OnVerdict>,
    boards: BTreeMap<PathBuf, Watched>,
    jobs: BTreeMap<u64, Jobs>,
    /// Jobs that have had their verdict.
    told: BTreeSet<u64>,
    /// The class of the first verdict.
    first: Option<Class>,
    /// Boards of other jobs.
    others: BTreeSet<PathBuf>,
    /// Processes that were watched so far.
    count: usize,
    /// Ends of processes, as they are seen.
    ends: Ends,
    recording: Option<Recording>,
}

impl Watch {
    pub(super) fn new(
        job: Option<u64>,
        limit: Duration,
        actions: Vec<OnVerdict>,
        recording: Option<Recording>,
    ) -> Self {
        Self {
            job,
            limit,
            actions,
            boards: BTreeMap::new(),
            jobs: BTreeMap::new(),
            told: BTreeSet::new(),
            first: None,
            others: BTreeSet::new(),
            count: 0,
            ends: unbounded(),
            recording,
        }
    }

    /// One look at all of them. `is_over` says that the command has ended, and whatever it started ends with it.
    fn look(&mut self, is_over: bool) {
        let mut of_job: BTreeMap<u64, Vec<&Watched>> = BTreeMap::new();
        for one in self.boards.values() {
            of_job.entry(one.board.job()).or_default().push(one);
        }
        let limit_ms = u64::try_from(self.limit.as_millis()).unwrap_or(u64::MAX);
        for (job, all) in of_job {
            if self.told.contains(&job) {
                continue;
            }
            let looks = all.iter().copied().filter_map(|one| {
                let seen = one.board.look(one.end.clone())?;
                Some((seen, &one.board))
            });
            let (seen, boards): (Vec<_>, Vec<_>) = looks.unzip();
            let judged = self.jobs.entry(job).or_insert_with(|| Jobs::on(&host()));
            let now_ns = Clock::nanos();
            let mut verdict = judged.judge(&seen, now_ns, Clock::wall_ms(), limit_ms);
            if verdict.is_none() && (is_over || all.iter().all(|one| one.has_ended())) {
                verdict = judged.ended(&seen, now_ns, Clock::wall_ms());
            }
            if let Some(line) = judged.suspected() {
                out::note(&line);
            }
            if let Some(mut verdict) = verdict {
                let ranks = ranks_of(&seen).into_iter().zip(boards);
                let members: Vec<_> = ranks.map(|(rank, board)| Member { rank, board }).collect();
                tell(&mut verdict, &members, judged.reports(), &self.actions);
                self.first.get_or_insert(verdict.class);
                self.told.insert(job);
            }
        }
        self.forget();
    }

    /// Waits for this long, and takes note of processes that begin and end meanwhile.
    fn wait(&mut self, time: Duration) {
        let until = Deadline::after(time);
        while !until.passed() {
            Clock::pause(FIND_EVERY.min(until.left()));
            self.find();
            self.record();
            for (path, end) in self.ends.1.try_iter() {
                if let Some(one) = self.boards.get_mut(&path) {
                    one.end = Some(end);
                }
            }
        }
    }

    /// Writes the calls since the last time.
    fn record(&mut self) {
        if let Some(recording) = &mut self.recording {
            recording.look(self.boards.values().map(|one| &one.board));
        }
    }

    /// Waits until all is known of processes that have ended.
    fn await_ends(&mut self) {
        for _ in 0..LAST_LOOKS {
            self.wait(LAST_LOOK);
            if !self.boards.values().any(Watched::is_ending) {
                break;
            }
        }
    }

    /// Opens boards that are new. One of a process that has ended before it was seen is removed.
    fn find(&mut self) {
        for path in board_files() {
            if self.boards.contains_key(&path) || self.others.contains(&path) {
                continue;
            }
            let Ok(board) = BoardFile::open(&path) else {
                continue;
            };
            if self.job.is_some_and(|job| job != board.job()) {
                if board.is_made() {
                    self.others.insert(path);
                }
                continue;
            }
            let pidfd =
                pid_of(&board.process()).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
            // After that, so that the descriptor is certainly its.
            if board.sight() == Sight::Ended {
                board.remove();
                continue;
            }
            let sender = self.ends.0.clone();
            let is_awaited =
                pidfd.is_some_and(|pidfd| await_end(pidfd, board.process(), path.clone(), sender));
            let end = (!is_awaited).then_some(End {
                how: DownReason::Ended,
                seen_ns: 0,
            });
            self.boards.insert(path, Watched { board, end });
            self.count += 1;
        }
    }

    /// Forgets jobs of which all processes have ended.
    fn forget(&mut self) {
        self.record();
        let living = self.boards.values().filter(|one| !one.has_ended());
        let living: Vec<u64> = living.map(|one| one.board.job()).collect();
        self.boards.retain(|_, one| {
            let keeps = living.contains(&one.board.job());
            if !keeps {
                one.board.remove();
            }
            keeps
        });
        self.jobs.retain(|job, _| living.contains(job));
        self.told.retain(|job| living.contains(job));
    }
}

impl Drop for Watch {
    /// What killed processes have left behind goes; boards of living ones stay theirs.
    fn drop(&mut self) {
        let boards = self.boards.values().map(|one| &one.board);
        let ended = boards.filter(|board| board.sight() == Sight::Ended);
        ended.for_each(BoardFile::remove);
    }
}

fn host() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// Waits on a thread of its own for the end of a process: how it ended can be seen only until its parent asks.
/// Says whether it does.
fn await_end(
    pidfd: OwnedFd,
    process: ProcessId,
    path: PathBuf,
    ends: Sender<(PathBuf, End)>,
) -> bool {
    let waits = move || {
        let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
        // Interrupted, it asks again.
        while poll(&mut fds, None).is_err() {}
        let (how, seen_ns) = (how_it_ended(&process), Clock::nanos());
        // Nobody wants to know once the watch is over.
        let _ = ends.send((path, End { how, seen_ns }));
    };
    let thread = thread::Builder::new().name("end".to_owned());
    thread.spawn(waits).is_ok()
}

/// Runs a command with the tap in this folder, and watches what it starts.
pub(super) fn run(limits: &Limits, folder: &Path, command: &[OsString]) -> Result<Exit, Failure> {
    let Some((program, rest)) = command.split_first() else {
        return Err(Failure::usage("no command to run"));
    };
    let name = format!("{}-{}", process::id(), Clock::nanos());
    // Before there is a child that would be left behind.
    let interrupts = Interrupts::of(&[SIGINT])?;
    let requests = Interrupts::of(&[SIGTERM, SIGHUP])?;
    let child = Command::new(program)
        .args(rest)
        .envs(exec::variables(&Environment::capture(), folder))
        .env("MUSTER_TAP_JOB", &name)
        .spawn();
    let mut child = child
        .map_err(|error| Failure::usage(format!("{} cannot be run: {error}", program.display())))?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| Failure::resource("the command has no process number"))?;
    let mut watch = limits.watch(Some(job_of(&name)));
    let mut is_asked = false;
    let status = loop {
        match child.try_wait() {
            Ok(None) => {
                // From a terminal the command gets SIGINT itself.
                if requests.take_new() > 0 {
                    ask_to_end(pid);
                }
                // Whoever ends now was asked to.
                if interrupts.count() + requests.count() == 0 {
                    watch.look(false);
                }
                // Some of what it started may be unknown to the tap.
                if watch.actions.contains(&OnVerdict::Abort) && watch.first.is_some() && !is_asked {
                    is_asked = true;
                    ask_to_end(pid);
                }
            }
            Ok(Some(status)) => break status,
            Err(error) => {
                return Err(Failure::resource(format!(
                    "waiting for the command: {error}"
                )));
            }
        }
        watch.wait(LOOK_EVERY);
    };
    watch.await_ends();
    watch.record();
    if let Some(recording) = &watch.recording {
        recording.tell();
    }
    if interrupts.count() + requests.count() > 0 {
        return Ok(Exit::Interrupted);
    }
    watch.look(true);
    if watch.count == 0 {
        out::note(
            "the tap saw no process that creates a communicator of HCCL; see docs/tap.md for what it cannot see",
        );
    }
    if let Some(class) = watch.first {
        return Ok(Exit::from(class));
    }
    Ok(if status.success() {
        Exit::Ok
    } else {
        Exit::FailedCell
    })
}

/// Watches what runs with an installed tap, until Ctrl-C.
pub(super) fn attach(limits: &Limits, job: Option<&str>) -> Result<Exit, Failure> {
    let interrupts = Interrupts::install()?;
    let mut watch = limits.watch(job.map(job_of));
    let mut known = 0;
    while interrupts.count() == 0 {
        watch.look(false);
        if watch.boards.len() != known {
            known = watch.boards.len();
            out::note(&format!("watching {known} processes"));
        }
        watch.wait(LOOK_EVERY);
    }
    if let Some(recording) = &watch.recording {
        recording.tell();
    }
    Ok(Exit::Interrupted)
}
