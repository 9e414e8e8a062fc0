//! The coordinator: a thread that serves one job's bring-up and then its liveness.
//!
//! This file is its handle. `engine` is the event loop, `membership` with `job` and `rounds` are the rules
//! without I/O, `conn` is one connection, `owner` finds out who has the port.

mod admit;
mod awaited;
mod conn;
mod engine;
mod goodbye;
mod job;
mod listen;
mod lost;
pub(crate) mod membership;
pub(super) mod owner;
mod rounds;
mod serve;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam::channel::{self, Receiver, Sender};

use super::arbiter::Arbiter;
use super::card::{DownReason, within};
use super::error::RendezvousError;
use super::limits::{CONTROL_WORLD_SIZE_MAX, JOB_ID_BYTES_MAX, MESSAGE_BYTES_MAX};
use super::secret::Secret;
use super::wire::build_id;
use crate::sync::{AtomicU64, Clock, Deadline, Ordering};
use crate::types::Rank;

pub use awaited::Stopped;
pub(super) use listen::tune;

/// How often a rank that ends looks whether all others have.
const FINISH_STEP: Duration = Duration::from_millis(1);
/// How often it asks whether to wait on.
const FINISH_ASKED_EVERY: Duration = Duration::from_millis(250);

/// What a coordinator serves.
#[derive(Clone, Debug)]
pub struct CoordinatorOptions {
    /// Where to listen; port 0 takes any free one.
    pub bind: SocketAddr,
    /// What every rank must prove.
    pub secret: Secret,
    /// The job; at most [`JOB_ID_BYTES_MAX`] bytes. Not a secret: whoever belongs to another job is
    /// told its name.
    pub job_id: String,
    /// The attempt of the job (restart count).
    pub attempt: u32,
    /// Ranks of the world; 0 where the first rank that proves the secret says how many.
    pub world_size: u32,
    /// How long ranks may take to arrive.
    pub deadline: Duration,
    /// What every rank must be built from.
    pub build: String,
    /// Whether to stop listening once the world is complete: the port is free from then on, and
    /// who comes late finds nobody instead of being told so.
    pub closes_door: bool,
    /// Whether the owner will call [`Coordinator::rank_down`] for every rank whose process ends.
    /// The coordinator then waits up to [`OWNER_WAIT`](super::limits::OWNER_WAIT) for the reason
    /// before it tells the others.
    pub owner_knows_exits: bool,
    /// Makes the arbiter, where one is wanted: `muster_comm::watch::arbiter::arbiter`. Bring-up then lasts until the ranks are
    /// through their first round, and fails for all of them where one of them cannot come any more.
    pub arbiter: Option<fn() -> Box<dyn Arbiter>>,
}

/// What the owner of a coordinator sees of a process whose rank has not joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absent {
    /// Its host.
    pub host: String,
    /// Its number there.
    pub pid: u32,
    /// Its state, in words.
    pub state: String,
    /// Whether that is one in which it does not run.
    pub is_stopped: bool,
}

impl CoordinatorOptions {
    /// Options for a job on this host: loopback, any port, first attempt, 30 seconds.
    #[must_use]
    pub fn new(secret: Secret, job_id: impl Into<String>, world_size: u32) -> Self {
        /// Time that ranks get to arrive, where nothing else was asked for.
        const DEADLINE: Duration = Duration::from_secs(30);
        Self {
            bind: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
            secret,
            job_id: job_id.into(),
            attempt: 0,
            world_size,
            deadline: DEADLINE,
            build: build_id(),
            closes_door: false,
            owner_knows_exits: false,
            arbiter: None,
        }
    }
}

/// What the coordinator tells its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CoordinatorEvent {
    /// A rank wants everybody to stop; the others have been told.
    Abort {
        /// Who wants it.
        origin: Rank,
        /// What it said.
        bytes: Vec<u8>,
    },
    /// All that a rank said before its process ended has been heard, and what came of it has been told; see
    /// [`Coordinator::drain`].
    Drained {
        /// Which.
        rank: Rank,
    },
    /// Bring-up has failed; every rank that is there has been told the same.
    Failed(RendezvousError),
    /// A rank has joined; others may still be missing.
    Joined {
        /// Which.
        rank: Rank,
    },
    /// A rank said goodbye.
    Left {
        /// Which.
        rank: Rank,
    },
    /// A rank's connection ended without a goodbye. The others are told now, or as soon as the
    /// owner knows more.
    Lost {
        /// Which.
        rank: Rank,
        /// What the connection showed.
        reason: DownReason,
    },
    /// Every rank is there and has the roster.
    Ready,
    /// Connections were refused. At most one such event an address in ten seconds.
    Refused {
        /// From where the last one came.
        address: IpAddr,
        /// Why.
        why: Refusal,
        /// How many from this address since the event before.
        count: u64,
    },
    /// A rank reports to the owner.
    Report {
        /// Which.
        rank: Rank,
        /// What it said.
        bytes: Vec<u8>,
    },
    /// The arbiter has something to say to the owner.
    Watch {
        /// What.
        bytes: Vec<u8>,
    },
}

/// Why a connection was refused without any effect on the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// More strangers came than there are places, and it was the oldest.
    Crowded,
    /// A rank of this job, but too late or with a card that cannot be.
    Job,
    /// What it said is not the control protocol.
    Malformed,
    /// A rank of another attempt.
    OtherAttempt,
    /// A rank of another job.
    OtherJob,
    /// It said too little for too long.
    Slow,
    /// It could not prove the secret.
    WrongSecret,
}

/// How many connections were refused so far, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// See [`Refusal::Crowded`].
    pub crowded: u64,
    /// See [`Refusal::Job`].
    pub job: u64,
    /// See [`Refusal::Malformed`].
    pub malformed: u64,
    /// See [`Refusal::OtherAttempt`].
    pub other_attempt: u64,
    /// See [`Refusal::OtherJob`].
    pub other_job: u64,
    /// See [`Refusal::Slow`].
    pub slow: u64,
    /// See [`Refusal::WrongSecret`].
    pub wrong_secret: u64,
    /// Connections that were closed by the other side before they said anything complete.
    pub hung_up: u64,
    /// Reports that were dropped because the owner did not take them.
    pub reports_dropped: u64,
}

/// The thread's counters; each is written by the coordinator's thread only.
#[derive(Debug, Default)]
struct Counters {
    crowded: AtomicU64,
    job: AtomicU64,
    malformed: AtomicU64,
    other_attempt: AtomicU64,
    other_job: AtomicU64,
    slow: AtomicU64,
    wrong_secret: AtomicU64,
    hung_up: AtomicU64,
    reports_dropped: AtomicU64,
    /// Bytes of reports that the owner has not taken yet.
    reports_bytes: AtomicU64,
}

impl Counters {
    fn of(&self, why: Refusal) -> &AtomicU64 {
        match why {
            Refusal::Crowded => &self.crowded,
            Refusal::Job => &self.job,
            Refusal::Malformed => &self.malformed,
            Refusal::OtherAttempt => &self.other_attempt,
            Refusal::OtherJob => &self.other_job,
            Refusal::Slow => &self.slow,
            Refusal::WrongSecret => &self.wrong_secret,
        }
    }
}

enum Command {
    Drain(Rank),
    Absent(Rank, Absent),
    Broadcast(Vec<u8>),
    Finish(Deadline),
    RankDown(Rank, DownReason),
    Shutdown,
}

/// The events of a coordinator, in order. Clones share one queue: each event is taken once.
#[derive(Clone)]
pub struct CoordinatorEvents {
    queue: Receiver<CoordinatorEvent>,
    counters: Arc<Counters>,
}

impl fmt::Debug for CoordinatorEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CoordinatorEvents({} waiting)", self.queue.len())
    }
}

impl CoordinatorEvents {
    /// The next event, or nothing if none comes before `deadline` or the coordinator has ended.
    #[must_use]
    pub fn next(&self, deadline: Deadline) -> Option<CoordinatorEvent> {
        self.taken(self.queue.recv_timeout(deadline.left()).ok()?)
    }

    /// The next event if one is there already.
    #[must_use]
    pub fn try_next(&self) -> Option<CoordinatorEvent> {
        self.taken(self.queue.try_recv().ok()?)
    }

    #[expect(clippy::unnecessary_wraps, reason = "both callers return an option")]
    fn taken(&self, event: CoordinatorEvent) -> Option<CoordinatorEvent> {
        if let CoordinatorEvent::Report { bytes, .. } = &event {
            let bytes = bytes.len() as u64;
            // Relaxed: a budget; the channel orders the report itself.
            self.counters
                .reports_bytes
                .fetch_sub(bytes, Ordering::Relaxed);
        }
        Some(event)
    }
}

/// The handle of a running coordinator. Dropping it ends the coordinator: sessions that are still
/// open see it go.
pub struct Coordinator {
    address: SocketAddr,
    commands: Sender<Command>,
    wake: Arc<OwnedFd>,
    events: CoordinatorEvents,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Coordinator({})", self.address)
    }
}

impl Coordinator {
    /// Listens and starts the thread. Ranks may join from the moment this returns.
    ///
    /// # Errors
    /// [`RendezvousError::PortTaken`] and [`RendezvousError::Bind`] if it cannot listen there,
    /// [`RendezvousError::Descriptors`] and [`RendezvousError::Resource`] if the process may not
    /// have what a world of this size needs, [`RendezvousError::WorldRange`] and
    /// [`RendezvousError::TooLarge`] for options outside their limits.
    pub fn start(options: CoordinatorOptions) -> Result<Self, RendezvousError> {
        if options.world_size > CONTROL_WORLD_SIZE_MAX {
            return Err(RendezvousError::WorldRange {
                given: options.world_size,
                max: CONTROL_WORLD_SIZE_MAX,
            });
        }
        within("job id", options.job_id.len(), JOB_ID_BYTES_MAX)?;
        let strangers_max = listen::strangers_allowed(options.world_size)?;
        let (listener, address) = listen::listen(options.bind)?;
        let counters = Arc::new(Counters::default());
        let (commands, command_queue) = channel::unbounded();
        let (event_sender, event_queue) = channel::unbounded();
        let (poller, wake) = engine::poller(&listener)?;
        let wake = Arc::new(wake);
        let engine = engine::Engine::new(
            options,
            strangers_max,
            engine::Channels {
                poller,
                listener: Some(listener),
                wake: Arc::clone(&wake),
                commands: command_queue,
                events: event_sender,
                counters: Arc::clone(&counters),
            },
        );
        let thread = std::thread::Builder::new()
            .name("muster-coord".to_owned())
            .spawn(move || engine.run())
            .map_err(|error| resource("cannot start the coordinator's thread", &error))?;
        Ok(Self {
            address,
            commands,
            wake,
            events: CoordinatorEvents {
                queue: event_queue,
                counters,
            },
            thread: Some(thread),
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The queue of events. The owner should keep taking from it.
    #[must_use]
    pub fn events(&self) -> CoordinatorEvents {
        self.events.clone()
    }

    /// How many connections were refused so far.
    #[must_use]
    pub fn refusals(&self) -> Refusals {
        let counters = &self.events.counters;
        // Relaxed: independent statistics that order nothing.
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Refusals {
            crowded: count(&counters.crowded),
            job: count(&counters.job),
            malformed: count(&counters.malformed),
            other_attempt: count(&counters.other_attempt),
            other_job: count(&counters.other_job),
            slow: count(&counters.slow),
            wrong_secret: count(&counters.wrong_secret),
            hung_up: count(&counters.hung_up),
            reports_dropped: count(&counters.reports_dropped),
        }
    }

    /// The owner knows that the process of `rank` has ended, and how. All others are told at once,
    /// unless the rank had said goodbye or they have been told already. Before the world is
    /// complete this ends the bring-up.
    pub fn rank_down(&self, rank: Rank, reason: DownReason) {
        self.command(Command::RankDown(rank, reason));
    }

    /// The process of `rank` has ended: when all that it said has been heard, [`CoordinatorEvent::Drained`] says so.
    pub fn drain(&self, rank: Rank) {
        self.command(Command::Drain(rank));
    }

    /// The owner sees this of the process of a rank that has not joined. One that it has seen stopped for a second ends
    /// bring-up.
    pub fn rank_absent(&self, rank: Rank, absent: Absent) {
        self.command(Command::Absent(rank, absent));
    }

    /// Sends `bytes` to every rank that is there.
    ///
    /// # Errors
    /// [`RendezvousError::TooLarge`] beyond [`MESSAGE_BYTES_MAX`].
    pub fn broadcast(&self, bytes: Vec<u8>) -> Result<(), RendezvousError> {
        within("broadcast", bytes.len(), MESSAGE_BYTES_MAX)?;
        self.command(Command::Broadcast(bytes));
        Ok(())
    }

    /// Ends the coordinator: what it has to say is written (for a quarter of a second at most),
    /// every connection is closed, and the port is free when this returns.
    pub fn shutdown(mut self) {
        self.stop();
    }

    /// Waits until every rank has left or is down, then ends as [`Self::shutdown`] does; at
    /// `deadline` in any case. For a coordinator in rank 0: the others may still be saying goodbye
    /// when rank 0 has done so.
    pub fn finish(mut self, deadline: Deadline) {
        self.end(Command::Finish(deadline));
    }

    /// Waits until every rank has left or is down, then ends as [`Self::shutdown`] does; or once `is_over` says so, which is
    /// asked four times a second.
    pub(crate) fn finish_until(mut self, mut is_over: impl FnMut() -> bool) {
        let Some(thread) = &self.thread else {
            return;
        };
        self.command(Command::Finish(Deadline::after(Duration::MAX)));
        let mut asked = Deadline::after(FINISH_ASKED_EVERY);
        while !thread.is_finished() {
            Clock::pause(FINISH_STEP);
            if asked.passed() {
                if is_over() {
                    return self.stop();
                }
                asked = Deadline::after(FINISH_ASKED_EVERY);
            }
        }
        if let Some(thread) = self.thread.take() {
            // As in `end`.
            let _ = thread.join();
        }
    }

    fn stop(&mut self) {
        self.end(Command::Shutdown);
    }

    fn end(&mut self, command: Command) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        self.command(command);
        // The loop ends within DRAIN_MAX of the command or of its deadline. A panic in it was reported by the hook;
        // there is nothing to add here, and a destructor does not panic.
        let _ = thread.join();
    }

    fn command(&self, command: Command) {
        // Fails only if the thread has ended, and then there is nobody left to tell.
        let _ = self.commands.send(command);
        // Fails only if the counter is full, and then the thread is awake already.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.stop();
    }
}

fn resource(what: &str, why: &dyn fmt::Display) -> RendezvousError {
    RendezvousError::Resource {
        what: what.to_owned(),
        why: why.to_string(),
    }
}
