//! The coordinator's event loop: sockets, time and the owner's commands on one side, the `membership` on the
//! other. One thread, no locks, nothing blocks but the poll itself.
//!
//! - `ENGINE-1`: a connection that is over gets an entry in `ended`, and nothing it says after that
//!   is served. Connections are removed in one place (`settle`), so that telling others about a loss
//!   cannot recurse.
//! - `ENGINE-2`: bytes are read before a death is believed: a goodbye that is already here wins.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Shutdown, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender};
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};

use super::conn::{Conn, Read, Stage};
use super::goodbye::Ended;
use super::job::Phase;
use super::membership::{Membership, Rules};
use super::{Command, CoordinatorEvent, CoordinatorOptions, Counters, resource};
use crate::host_load::HostLoad;
use crate::rendezvous::arbiter::Eyes;
use crate::rendezvous::card::{DownReason, millis};
use crate::rendezvous::error::RendezvousError;
use crate::rendezvous::limits::{DRAIN_MAX, HANDSHAKE_WAIT, PROGRESS_EVERY, QUEUE_BYTES_MAX};
use crate::rendezvous::secret::Secret;
use crate::rendezvous::wire::{Body, ToSession};
use crate::sync::{Clock, Deadline};
use crate::types::Rank;

const LISTENER: u64 = 0;
const WAKE: u64 = 1;
const FIRST_CONN: u64 = 2;

/// Bytes of one read.
const SCRATCH_BYTES: usize = 64 * 1024;
/// Reads of one connection before the others get their turn.
const READS_PER_TURN: usize = 16;
/// Turns that a rank which is known to be dead gets for what it said last: 64 MiB in all, more
/// than a socket holds.
const LAST_TURNS: usize = 64;
/// Connections accepted before those that are there get their turn.
const ACCEPTS_PER_TURN: usize = 64;
/// Events taken from the poller at a time.
const EVENTS_PER_TURN: usize = 256;
/// Pause between looks at the clock while something may expire.
const TICK: Duration = Duration::from_millis(10);

/// The poller, watching the listener and a counter that wakes it.
pub(super) fn poller(listener: &TcpListener) -> Result<(OwnedFd, OwnedFd), RendezvousError> {
    let open = || -> rustix::io::Result<(OwnedFd, OwnedFd)> {
        let poller = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let readable = epoll::EventFlags::IN;
        epoll::add(
            &poller,
            listener,
            epoll::EventData::new_u64(LISTENER),
            readable,
        )?;
        epoll::add(&poller, &wake, epoll::EventData::new_u64(WAKE), readable)?;
        Ok((poller, wake))
    };
    open().map_err(|error| resource("cannot watch the coordinator's socket", &error))
}

/// What connects the loop to the world.
pub(super) struct Channels {
    pub(super) poller: OwnedFd,
    /// `None` once it was closed because the world is complete.
    pub(super) listener: Option<TcpListener>,
    pub(super) wake: Arc<OwnedFd>,
    pub(super) commands: Receiver<Command>,
    pub(super) events: Sender<CoordinatorEvent>,
    pub(super) counters: Arc<Counters>,
}

/// The loop's state. What it does with frames is in `serve`, with strangers in `admit`.
pub(super) struct Engine {
    pub(super) io: Channels,
    pub(super) secret: Secret,
    pub(super) membership: Membership,
    pub(super) conns: BTreeMap<u64, Conn>,
    /// Connections that have said nothing complete, oldest first.
    pub(super) silent: BTreeSet<u64>,
    /// Connections that owe a proof, oldest first.
    pub(super) unproved: BTreeSet<u64>,
    pub(super) strangers_max: usize,
    pub(super) notices: super::admit::Notices,
    /// How to reach the processes of ranks.
    pub(super) eyes: Option<Eyes>,
    /// Connections that are over, and how (`ENGINE-1`).
    pub(super) ended: BTreeMap<u64, Ended>,
    arrival: Deadline,
    next_token: u64,
    /// Accepting pauses until then: the process is out of descriptors.
    accept_after: Option<Instant>,
    scratch: Vec<u8>,
    /// Ranks whose connections have been read to the end, which the owner is to be told.
    undrained: Vec<Rank>,
    stop_by: Option<Instant>,
    /// Stop once no rank is left, or then.
    finish_by: Option<Deadline>,
}

impl Engine {
    pub(super) fn new(options: CoordinatorOptions, strangers_max: usize, io: Channels) -> Self {
        let arbiter = options.arbiter.map(|make| make());
        let eyes = arbiter.as_ref().and_then(|arbiter| arbiter.eyes());
        let rules = Rules {
            owner_knows_exits: options.owner_knows_exits,
            arbiter,
            closes_door: options.closes_door,
            arrival_ms: millis(options.deadline),
            look: eyes.map(|eyes| eyes.stopped),
            load: HostLoad::now,
            epoch_unix_ms: Clock::wall_ms(),
        };
        Self {
            io,
            secret: options.secret,
            membership: Membership::new(
                (options.job_id, options.attempt),
                options.build,
                options.world_size,
                rules,
            ),
            conns: BTreeMap::new(),
            silent: BTreeSet::new(),
            unproved: BTreeSet::new(),
            strangers_max,
            notices: super::admit::Notices::default(),
            eyes,
            ended: BTreeMap::new(),
            arrival: Deadline::after(options.deadline),
            next_token: FIRST_CONN,
            accept_after: None,
            scratch: vec![0; SCRATCH_BYTES],
            undrained: Vec::new(),
            stop_by: None,
            finish_by: None,
        }
    }

    /// Runs until the owner ends it.
    pub(super) fn run(mut self) {
        let mut events = Vec::with_capacity(EVENTS_PER_TURN);
        loop {
            let timeout = Timespec {
                tv_sec: 0,
                tv_nsec: i64::from(self.patience().subsec_nanos()),
            };
            let buffer = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.io.poller, buffer, Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                // The poller itself is broken: the sessions see us go, which is the truth.
                Err(_) => return,
            }
            for event in events.drain(..) {
                match event.data.u64() {
                    LISTENER => self.accept(),
                    WAKE => self.rest(),
                    token => self.turn(token, event.flags),
                }
                self.settle();
            }
            self.obey();
            self.settle();
            self.tick();
            self.membership.tell_left();
            self.carry_out();
            self.settle();
            if self.is_over() {
                return;
            }
        }
    }

    /// How long the poll may sleep; below one second.
    fn patience(&self) -> Duration {
        let is_hurried = !self.silent.is_empty()
            || !self.unproved.is_empty()
            || self.membership.is_busy()
            || self.accept_after.is_some()
            || self.stop_by.is_some()
            || self.finish_by.is_some()
            || self.conns.values().any(|conn| conn.until.is_some());
        if is_hurried {
            return TICK;
        }
        match self.membership.job.phase() {
            Phase::Gathering => self
                .arrival
                .left()
                .clamp(Duration::from_millis(1), PROGRESS_EVERY),
            Phase::Ready { .. } | Phase::Failed(_) => PROGRESS_EVERY,
        }
    }

    /// Milliseconds since the coordinator started.
    pub(super) fn now_ms(&self) -> u64 {
        millis(self.arrival.elapsed())
    }

    fn rest(&self) {
        let mut count = [0; 8];
        // Nonblocking; empty means that an earlier turn took it.
        let _ = rustix::io::read(&self.io.wake, &mut count);
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(listener) = &self.io.listener else {
                return;
            };
            match listener.accept() {
                Ok((stream, address)) => self.welcome(stream, address.ip()),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(error) if super::listen::is_out_of_descriptors(&error) => {
                    if !self.evict_oldest() {
                        self.pause_accepting();
                        return;
                    }
                    self.settle();
                }
                // A connection that was gone before it was accepted, or the like: the next one.
                Err(_) => {}
            }
        }
    }

    /// Stops listening for a moment; otherwise the poller would report the same connection for
    /// ever.
    fn pause_accepting(&mut self) {
        let Some(listener) = &self.io.listener else {
            return;
        };
        if epoll::delete(&self.io.poller, listener).is_ok() {
            self.accept_after = Some(Clock::now() + TICK);
        }
    }

    /// Stops listening for good, and turns those away who are still strangers.
    pub(super) fn close_door(&mut self) {
        if let Some(listener) = self.io.listener.take() {
            // Fails only where accepting pauses and it is not watched.
            let _ = epoll::delete(&self.io.poller, &listener);
        }
        self.accept_after = None;
        while self.evict_oldest() {}
    }

    fn resume_accepting(&mut self, now: Instant) {
        if self.accept_after.is_none_or(|after| now < after) {
            return;
        }
        let Some(listener) = &self.io.listener else {
            return;
        };
        let data = epoll::EventData::new_u64(LISTENER);
        if epoll::add(&self.io.poller, listener, data, epoll::EventFlags::IN).is_ok() {
            self.accept_after = None;
        }
    }

    fn welcome(&mut self, stream: std::net::TcpStream, address: std::net::IpAddr) {
        if stream.set_nonblocking(true).is_err() || super::listen::tune(&stream).is_err() {
            return;
        }
        if self.silent.len() + self.unproved.len()
            >= self.strangers_max + self.membership.job.missing_count()
        {
            self.evict_oldest();
        }
        let token = self.next_token;
        self.next_token += 1;
        let data = epoll::EventData::new_u64(token);
        if epoll::add(&self.io.poller, &stream, data, epoll::EventFlags::IN).is_ok() {
            let until = Clock::now() + HANDSHAKE_WAIT;
            self.conns.insert(token, Conn::new(stream, address, until));
            self.silent.insert(token);
        }
    }

    /// One connection's turn.
    fn turn(&mut self, token: u64, flags: epoll::EventFlags) {
        if flags.contains(epoll::EventFlags::OUT) {
            self.flush(token);
        }
        let readable = epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
        if flags.intersects(readable) {
            self.take_in(token);
        }
    }

    /// Reads what is there, up to a fair share, and does what it says. Says whether more may be
    /// there.
    fn take_in(&mut self, token: u64) -> bool {
        for _ in 0..READS_PER_TURN {
            if self.ended.contains_key(&token) {
                return false;
            }
            let Some(conn) = self.conns.get_mut(&token) else {
                return false;
            };
            match conn.read(&mut self.scratch) {
                Ok(Read::Some) => self.frames(token),
                Ok(Read::Nothing) => return false,
                Ok(Read::End) => {
                    self.end_of_stream(token);
                    return false;
                }
                Err(error) => {
                    self.end(token, Ended::Lost(broken_off(&error)));
                    return false;
                }
            }
        }
        true
    }

    /// Reads everything that is there, however much.
    pub(super) fn take_in_rest(&mut self, token: u64) {
        for _ in 0..LAST_TURNS {
            if !self.take_in(token) {
                return;
            }
        }
    }

    fn frames(&mut self, token: u64) {
        while !self.ended.contains_key(&token) {
            let Some(conn) = self.conns.get_mut(&token) else {
                return;
            };
            match conn.frame() {
                Ok(None) => return,
                Ok(Some(body)) => self.serve(token, body),
                Err(error) => {
                    self.malformed(token, &error.to_string());
                    return;
                }
            }
        }
    }

    fn end_of_stream(&mut self, token: u64) {
        let Some(conn) = self.conns.get(&token) else {
            return;
        };
        if conn.is_stranger() {
            self.count(&self.io.counters.hung_up);
        }
        // Also in the middle of a frame: a rank that is killed while it writes breaks no rule.
        self.end(token, Ended::Lost(DownReason::HungUp));
    }

    /// Writes what a connection takes, and watches for room if that was not everything.
    pub(super) fn flush(&mut self, token: u64) {
        let Some(conn) = self.conns.get_mut(&token) else {
            return;
        };
        let is_written = match conn.flush() {
            Ok(is_written) => is_written,
            Err(error) => {
                self.end(token, Ended::Unread(broken_off(&error)));
                return;
            }
        };
        if is_written && matches!(conn.stage, Stage::Draining) {
            // The joiner reads what it was told, then the end; it closes, and we see that.
            let _ = conn.stream.shutdown(Shutdown::Write);
        }
        if is_written == conn.is_write_watched {
            conn.is_write_watched = !is_written;
            let mut flags = epoll::EventFlags::IN;
            flags.set(epoll::EventFlags::OUT, !is_written);
            let data = epoll::EventData::new_u64(token);
            // Fails only for a connection that is not watched, and all are.
            let _ = epoll::modify(&self.io.poller, &conn.stream, data, flags);
        }
        let queued = conn.queued_bytes();
        if queued > QUEUE_BYTES_MAX {
            let reason = DownReason::NotReading {
                bytes_queued: queued as u64,
            };
            self.end(token, Ended::Lost(reason));
        }
    }

    /// Sends one frame to one connection.
    pub(super) fn tell(&mut self, token: u64, body: &Body) {
        if let Some(conn) = self.conns.get_mut(&token) {
            conn.queue(body);
            self.flush(token);
        }
    }

    fn obey(&mut self) {
        while let Ok(command) = self.io.commands.try_recv() {
            match command {
                Command::Absent(rank, absent) => {
                    self.membership.see_absent(rank, absent, self.now_ms());
                    self.carry_out();
                }
                Command::Drain(rank) => {
                    if let Some(token) = self.membership.token(rank) {
                        self.take_in_rest(token);
                    }
                    self.undrained.push(rank);
                }
                Command::Broadcast(bytes) => {
                    self.membership
                        .tell_all(&ToSession::Message { bytes }, None);
                    self.carry_out();
                }
                Command::Finish(deadline) => self.finish_by = Some(deadline),
                Command::RankDown(rank, reason) => self.obey_rank_down(rank, reason),
                Command::Shutdown => self.finish_by = Some(Deadline::after(Duration::ZERO)),
            }
            self.settle();
        }
    }

    fn tick(&mut self) {
        let now = Clock::now();
        self.resume_accepting(now);
        self.expire_connections(now);
        let is_finished = |finish_by: Deadline| finish_by.passed() || self.membership.is_deserted();
        if self.stop_by.is_none() && self.finish_by.is_some_and(is_finished) {
            self.stop_by = Some(now + DRAIN_MAX);
        }
        self.membership.tick(self.now_ms());
        self.carry_out();
        if !self.membership.is_judging_the_last() {
            for rank in std::mem::take(&mut self.undrained) {
                self.emit(CoordinatorEvent::Drained { rank });
            }
        }
    }

    fn expire_connections(&mut self, now: Instant) {
        let is_due = |conn: &Conn| conn.until.is_some_and(|until| until <= now);
        let due: Vec<u64> = self
            .conns
            .iter()
            .filter(|(_, conn)| is_due(conn))
            .map(|(token, _)| *token)
            .collect();
        for token in due {
            self.too_slow(token);
        }
    }

    fn is_over(&self) -> bool {
        let is_written = || self.conns.values().all(|conn| conn.queued_bytes() == 0);
        self.stop_by
            .is_some_and(|stop_by| stop_by <= Clock::now() || is_written())
    }

    /// Tells the owner. Fails only once the owner is gone, and then nobody asks.
    pub(super) fn emit(&self, event: CoordinatorEvent) {
        let _ = self.io.events.send(event);
    }
}

/// What an error on a rank's connection says about the rank.
fn broken_off(error: &std::io::Error) -> DownReason {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    let why = error.to_string();
    if matches!(
        error.kind(),
        BrokenPipe | ConnectionAborted | ConnectionReset
    ) {
        return DownReason::Disconnected { why };
    }
    DownReason::Unreachable { why }
}
