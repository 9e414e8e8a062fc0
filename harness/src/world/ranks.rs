//! The processes of one world: started together, ended together.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam::channel::{Receiver, Sender, unbounded};
use muster_comm::rendezvous::DownReason;
use muster_comm::sync::Deadline;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::fail::Failure;
use crate::world::capture::Capture;
use crate::world::echo::Printer;
use crate::world::ended::Ended;
use crate::world::oom::Kills;
use crate::world::signals::Interrupts;
use crate::world::watch::{self, Watched};

/// Longest wait for processes that were sent SIGKILL. Only one that hangs in the kernel needs it.
const KILL_BOUND: Duration = Duration::from_secs(3);

/// What happened to a world's processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A rank's process ended.
    Ended {
        /// Which one.
        rank: u32,
        /// How.
        how: Ended,
    },
    /// Somebody asked the launcher to stop.
    Interrupted,
}

/// What to start.
#[derive(Debug)]
pub struct Spawn<'a> {
    /// The program of every rank.
    pub program: &'a Path,
    /// Its arguments.
    pub args: &'a [OsString],
    /// Number of ranks.
    pub world_size: u32,
    /// Variables that all ranks get besides those that say who they are.
    pub env: &'a [(String, String)],
    /// The job secret; reaches ranks through a pipe, never through argv or the environment.
    pub secret: &'a [u8],
    /// Who prints what ranks print while they run, where somebody does.
    pub printer: Option<&'a Printer>,
    /// Whether ranks also get the variables that programs made for torchrun look at.
    pub torch: bool,
}

/// One rank's process.
#[derive(Debug)]
pub struct RankProcess {
    rank: u32,
    pid: Pid,
    pidfd: Arc<OwnedFd>,
    capture: Arc<Mutex<Capture>>,
    out_of_memory: Arc<Mutex<Option<String>>>,
    ended: Option<Ended>,
}

impl RankProcess {
    /// Its rank.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Its process id, for messages; signals go through the pidfd.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// How it ended, once it has.
    #[must_use]
    pub fn ended(&self) -> Option<Ended> {
        self.ended
    }

    /// Runs `look` over what it printed so far.
    pub fn output<R>(&self, look: impl FnOnce(&Capture) -> R) -> R {
        look(&self.capture.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Its end, as the others are told of it.
    #[must_use]
    pub fn down_reason(&self, how: Ended) -> DownReason {
        let memory = self
            .out_of_memory
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        match (self.output(Capture::panic_text), how) {
            (Some(text), _) => DownReason::Panicked { text },
            (None, Ended::Exited(code)) => DownReason::Exited { code },
            (None, Ended::Signaled(signal)) => match memory {
                Some(evidence) => DownReason::OutOfMemory { evidence },
                None => DownReason::Killed { signal },
            },
            (None, Ended::Lost) => DownReason::HungUp,
        }
    }

    fn signal(&self, signal: Signal) {
        if self.ended.is_none() {
            // A process that is gone already needs no signal.
            let _ = pidfd_send_signal(&self.pidfd, signal);
        }
    }
}

/// The processes of a world, and one queue for everything that happens to them. Others may put
/// events of their own kind `E` into the same queue. Dropping it kills and reaps what still runs.
#[derive(Debug)]
pub struct Ranks<E> {
    processes: Vec<RankProcess>,
    events: Receiver<E>,
    sender: Sender<E>,
    watcher: Option<JoinHandle<()>>,
    /// Dropped to end the watcher.
    stop: Option<OwnedFd>,
}

impl<E: From<Event> + Send + 'static> Ranks<E> {
    /// Starts every rank. Call it on a thread that outlives the ranks (WORLD-1).
    ///
    /// # Errors
    /// A failure of class RESOURCE that names the rank which could not be started; those that had
    /// been are killed.
    pub fn start(spawn: &Spawn<'_>, interrupts: Option<Arc<Interrupts>>) -> Result<Self, Failure> {
        let mut ranks = Self::empty();
        let kills = Kills::from_now();
        let mut watched = Vec::new();
        for rank in 0..spawn.world_size {
            match start_one(spawn, rank) {
                Ok((process, output)) => {
                    watched.push(Watched {
                        rank,
                        pidfd: Some(Arc::clone(&process.pidfd)),
                        output: Some(output),
                        capture: Arc::clone(&process.capture),
                        out_of_memory: Arc::clone(&process.out_of_memory),
                        group: process.pid,
                        echo: spawn.printer.and_then(|printer| printer.echo(rank)),
                    });
                    ranks.processes.push(process);
                }
                Err(error) => {
                    // Those already started are watched, so that dropping `ranks` reaps them.
                    ranks.watch(watched, kills, interrupts)?;
                    return Err(Failure::resource(format!(
                        "rank {rank} of {} cannot be started: {error}",
                        spawn.world_size
                    ))
                    .with_help("look at the limits on processes, memory and descriptors (ulimit -a, pids.max)"));
                }
            }
        }
        ranks.watch(watched, kills, interrupts)?;
        Ok(ranks)
    }

    /// A queue for a world whose processes are another launcher's: requests to stop come through it, and what others put
    /// into it.
    ///
    /// # Errors
    /// A failure of class RESOURCE where the watcher cannot be started.
    pub fn of_others(interrupts: Arc<Interrupts>) -> Result<Self, Failure> {
        let mut ranks = Self::empty();
        ranks.watch(Vec::new(), Kills::from_now(), Some(interrupts))?;
        Ok(ranks)
    }

    fn empty() -> Self {
        let (sender, events) = unbounded();
        Self {
            processes: Vec::new(),
            events,
            sender,
            watcher: None,
            stop: None,
        }
    }

    fn watch(
        &mut self,
        watched: Vec<Watched>,
        kills: Kills,
        interrupts: Option<Arc<Interrupts>>,
    ) -> Result<(), Failure> {
        let failed = |error: std::io::Error| {
            Failure::resource(format!(
                "the watcher of the ranks cannot be started: {error}"
            ))
        };
        let (stopped, stop) =
            pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
        let sender = self.sender.clone();
        let watcher = std::thread::Builder::new()
            .name("muster-watch".to_owned())
            .spawn(move || watch::run(watched, kills, interrupts.as_deref(), &stopped, &sender))
            .map_err(failed)?;
        self.watcher = Some(watcher);
        self.stop = Some(stop);
        Ok(())
    }

    /// The processes, by rank.
    #[must_use]
    pub fn processes(&self) -> &[RankProcess] {
        &self.processes
    }

    /// A way for others to put events into the queue.
    #[must_use]
    pub fn sender(&self) -> Sender<E> {
        self.sender.clone()
    }

    /// Whether every process has ended and been reaped.
    #[must_use]
    pub fn all_ended(&self) -> bool {
        self.processes.iter().all(|process| process.ended.is_some())
    }

    /// Notes the end of a process; the reader of the queue calls it for each [`Event::Ended`].
    pub fn note_end(&mut self, rank: u32, how: Ended) {
        if let Some(process) = self
            .processes
            .iter_mut()
            .find(|process| process.rank == rank)
        {
            process.ended = Some(how);
        }
    }

    /// The next event, or `None` once the deadline has passed.
    pub fn next(&self, deadline: Deadline) -> Option<E> {
        // `self` holds a sender, so the queue cannot be closed: an error means that time is up.
        self.events.recv_timeout(deadline.left()).ok()
    }

    /// Sends a signal to every rank that still runs.
    pub fn signal_all(&self, signal: Signal) {
        for process in &self.processes {
            process.signal(signal);
        }
    }

    /// Sends SIGKILL to one rank.
    pub fn kill(&self, rank: u32) {
        if let Some(process) = self.processes.iter().find(|process| process.rank == rank) {
            process.signal(Signal::KILL);
        }
    }
}

impl<E> Ranks<E> {
    /// Kills what still runs and waits, within a bound, until the watcher has reaped it.
    fn kill_and_reap(&mut self) {
        for process in &self.processes {
            process.signal(Signal::KILL);
        }
        let deadline = Deadline::after(KILL_BOUND);
        let Some(watcher) = self.watcher.take() else {
            return;
        };
        // The watcher ends by itself once everything is reaped and every pipe is closed; a process
        // that a rank left behind may hold a pipe open, hence the bound and the stop.
        let reaped = |process: &RankProcess| process.ended.is_some() || has_ended(&process.pidfd);
        while !watcher.is_finished() && !deadline.passed() && !self.processes.iter().all(reaped) {
            muster_comm::sync::Clock::pause(Duration::from_millis(1));
        }
        self.stop = None;
        // It returns at once now. A watcher that panicked has said so on stderr.
        let _ = watcher.join();
        for process in &self.processes {
            reap_quietly(&process.pidfd);
        }
    }
}

impl<E> Drop for Ranks<E> {
    fn drop(&mut self) {
        self.kill_and_reap();
    }
}

/// Whether the process behind `pidfd` has ended, reaped or not.
fn has_ended(pidfd: &OwnedFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut fds, Some(&at_once)).is_ok_and(|ready| ready > 0)
}

/// Takes the exit status if nobody has (WORLD-2); an error means that somebody had.
fn reap_quietly(pidfd: &OwnedFd) {
    use std::os::fd::AsFd;

    use rustix::process::{WaitId, WaitIdOptions, waitid};
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    let _ = waitid(WaitId::PidFd(pidfd.as_fd()), options);
}

fn start_one(spawn: &Spawn<'_>, rank: u32) -> std::io::Result<(RankProcess, File)> {
    // The secret fits the pipe's buffer, so it can be written before anybody reads.
    let (secret_reader, secret_writer) = pipe_with(PipeFlags::CLOEXEC)?;
    File::from(secret_writer).write_all(spawn.secret)?;
    let (output, output_writer) = pipe_with(PipeFlags::CLOEXEC)?;
    let output_twin = output_writer.try_clone()?;
    let mut command = Command::new(spawn.program);
    command
        .args(spawn.args)
        .envs(spawn.env.iter().map(|(name, value)| (name, value)))
        .envs(identity(rank, spawn.world_size, spawn.torch))
        .env("MUSTER_SECRET_FD", secret_reader.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::from(output_writer))
        .stderr(Stdio::from(output_twin))
        // Ctrl-C on the terminal reaches the launcher alone, which then ends the ranks in order.
        .process_group(0);
    let flags = fcntl_getfl(&output)?;
    fcntl_setfl(&output, flags | OFlags::NONBLOCK)?;
    // Inheritable for this one start; nothing else in the launcher starts processes.
    fcntl_setfd(&secret_reader, FdFlags::empty())?;
    let spawned = command.spawn();
    drop(secret_reader);
    let mut child = spawned?;
    // Our copies of the write ends close here, so that the pipe ends with the rank.
    drop(command);
    let pid = Pid::from_child(&child);
    let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => pidfd,
        Err(error) => {
            // Nobody could watch it, so it must not stay.
            child.kill()?;
            child.wait()?;
            return Err(error.into());
        }
    };
    let process = RankProcess {
        rank,
        pid,
        pidfd: Arc::new(pidfd),
        capture: Arc::default(),
        out_of_memory: Arc::default(),
        ended: None,
    };
    Ok((process, File::from(output)))
}

/// The variables that tell a rank who it is, and the same in the words of torchrun.
fn identity(
    rank: u32,
    world_size: u32,
    torch: bool,
) -> impl Iterator<Item = (&'static str, String)> {
    let rows = [
        ("MUSTER_RANK", "RANK", rank),
        ("MUSTER_WORLD_SIZE", "WORLD_SIZE", world_size),
        ("MUSTER_LOCAL_RANK", "LOCAL_RANK", rank),
        ("MUSTER_LOCAL_WORLD_SIZE", "LOCAL_WORLD_SIZE", world_size),
        ("MUSTER_NODE_RANK", "GROUP_RANK", 0),
        ("MUSTER_NNODES", "GROUP_WORLD_SIZE", 1),
    ];
    let names = move |(ours, theirs, value): (_, _, u32)| {
        let theirs = torch.then(|| (theirs, value.to_string()));
        std::iter::once((ours, value.to_string())).chain(theirs)
    };
    rows.into_iter().flat_map(names)
}

/// The program of this process, to be started again for each rank.
#[must_use]
pub fn own_program() -> PathBuf {
    // A binary that was replaced while it ran is reachable through /proc only.
    std::env::current_exe()
        .ok()
        .filter(|path| path.exists())
        .unwrap_or_else(|| PathBuf::from("/proc/self/exe"))
}

#[cfg(test)]
mod tests;
