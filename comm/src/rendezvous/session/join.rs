//! From the handshake to the roster: introduce this rank, then wait for all others.

use std::io::ErrorKind;

use super::connect::{Link, Silence, read_before};
use super::{Sender, SessionEvent};
use crate::host_load::HostLoad;
use crate::rendezvous::card::{Card, Hello, ProcessId, millis};
use crate::rendezvous::endpoint::Endpoint;
use crate::rendezvous::error::RendezvousError;
use crate::rendezvous::limits::{ANSWER_GRACE, COORDINATOR_FRAME_BYTES_MAX};
use crate::rendezvous::presence::{Absence, late};
use crate::rendezvous::secret::Seal;
use crate::rendezvous::wire::{
    Body, Inbox, Introduction, PROTOCOL, ToCoordinator, ToSession, decode, encode_introduction,
};
use crate::sync::Deadline;
use crate::types::Rank;

/// Bytes of one read.
pub(super) const SCRATCH_BYTES: usize = 64 * 1024;

/// The complete world, and the connection on which it was announced.
pub(super) struct World {
    pub(super) rank: Rank,
    pub(super) roster: Vec<Card>,
    /// The process that serves the rendezvous.
    pub(super) server: ProcessId,
    pub(super) sender: Sender,
    pub(super) inbox: Inbox,
    pub(super) read: Seal,
}

/// Why there is no world.
pub(super) struct Failed {
    pub(super) error: RendezvousError,
    /// The connection ended before the coordinator said anything.
    pub(super) is_unheard: bool,
}

/// The wait for the others.
struct Wait<'a> {
    endpoint: &'a Endpoint,
    world_size: u32,
    deadline: Deadline,
    since: Deadline,
    sender: Sender,
    inbox: Inbox,
    read: Seal,
    missing: Vec<Rank>,
    missing_more: u32,
    /// Begun when other ranks were missing than before, for the last time.
    changed: Deadline,
    has_heard: bool,
    /// Set once our own time is up: until then the coordinator may say who is missing.
    grace: Option<Deadline>,
}

/// Introduces this rank and waits for the roster.
pub(super) fn join(
    link: Link,
    endpoint: &Endpoint,
    hello: &Hello,
    deadline: Deadline,
    on_event: &dyn Fn(SessionEvent),
) -> Result<World, Failed> {
    let introduction = Introduction {
        protocol: PROTOCOL,
        build: hello.build.clone(),
        rank: hello.rank,
        world_size: hello.world_size,
        source: hello.source.clone(),
        host: hello.card.host.clone(),
        pid: hello.card.process.pid,
    };
    let mut wait = Wait {
        endpoint,
        world_size: u32::try_from(hello.world_size).unwrap_or(0),
        deadline,
        since: Deadline::after(deadline.left()),
        sender: Sender::new(link.stream, link.write),
        inbox: link.inbox,
        read: link.read,
        missing: Vec::new(),
        missing_more: 0,
        changed: Deadline::after(deadline.left()),
        has_heard: false,
        grace: None,
    };
    let body = encode_introduction(&introduction, &hello.card);
    let sent = wait.sender.send(&body).map_err(|why| wait.gone(&why));
    let roster = sent.and_then(|()| wait.roster(on_event));
    let is_unheard = !wait.has_heard;
    let world = roster.and_then(|(roster, server)| wait.world(hello, roster, server));
    world.map_err(|error| Failed {
        is_unheard: is_unheard && matches!(error, RendezvousError::CoordinatorGone { .. }),
        error,
    })
}

impl Wait<'_> {
    /// The world of this roster.
    fn world(
        self,
        hello: &Hello,
        roster: Vec<Card>,
        server: ProcessId,
    ) -> Result<World, RendezvousError> {
        let rank = usize::try_from(hello.rank)
            .ok()
            .filter(|rank| *rank < roster.len());
        let (Some(rank), true) = (rank, roster.len() == self.world_size as usize) else {
            return Err(self.broken("a roster of another world"));
        };
        Ok(World {
            rank: Rank::from_index(rank),
            roster,
            server,
            sender: self.sender,
            inbox: self.inbox,
            read: self.read,
        })
    }

    fn roster(
        &mut self,
        on_event: &dyn Fn(SessionEvent),
    ) -> Result<(Vec<Card>, ProcessId), RendezvousError> {
        loop {
            let body = self.hear()?;
            self.has_heard = true;
            let message = decode("message of the coordinator", &body);
            match message.map_err(|error| self.broken(&error.to_string()))? {
                ToSession::Failed { error, at_unix_ms } => {
                    on_event(SessionEvent::Refused { at_unix_ms });
                    return Err(error);
                }
                ToSession::Message { bytes } => on_event(SessionEvent::Message(bytes)),
                ToSession::Progress {
                    missing,
                    missing_more,
                } => {
                    if (&self.missing, self.missing_more) != (&missing, missing_more) {
                        self.changed = Deadline::after(self.deadline.left());
                    }
                    self.missing = missing;
                    self.missing_more = missing_more;
                }
                ToSession::Roster { cards, server } => return Ok((cards, server)),
                ToSession::Abort { .. }
                | ToSession::Down { .. }
                | ToSession::Goodbye
                | ToSession::Left { .. }
                | ToSession::Over { .. }
                | ToSession::Round { .. }
                | ToSession::RoundFailed { .. }
                | ToSession::Watch { .. } => {
                    return Err(self.broken("news of a world that is not complete"));
                }
            }
        }
    }

    /// The next frame. The coordinator speaks twice a second while ranks are missing.
    fn hear(&mut self) -> Result<Vec<u8>, RendezvousError> {
        let mut scratch = vec![0; SCRATCH_BYTES];
        let mut silence = Silence::begin();
        loop {
            let frame = self
                .inbox
                .sealed(&mut self.read, COORDINATOR_FRAME_BYTES_MAX);
            if let Some(body) = frame.map_err(|error| self.broken(&error.to_string()))? {
                return Ok(body);
            }
            let patience = silence.patience(self.grace.unwrap_or(self.deadline));
            match read_before(&self.sender.stream, &mut self.inbox, &mut scratch, patience) {
                Ok(0) => return Err(self.gone("it closed the connection")),
                Ok(_) => silence = Silence::begin(),
                Err(error) if error.kind() == ErrorKind::TimedOut => {
                    if silence.is_of_stopped(&self.sender.stream) {
                        return Err(silence.error(self.endpoint));
                    }
                    match self.grace {
                        Some(grace) if grace.passed() && silence.is_long() => {
                            return Err(silence.error(self.endpoint));
                        }
                        Some(grace) if grace.passed() => return Err(self.absence()),
                        None if self.deadline.passed() => self.give_up(),
                        Some(_) | None => {}
                    }
                }
                Err(error) => return Err(self.gone(&error.to_string())),
            }
        }
    }

    /// Our own time is up: the coordinator is told, and knows best who is missing.
    fn give_up(&mut self) {
        // If it cannot be told, it sees the connection end.
        let _ = self.sender.send(&Body::new(&ToCoordinator::GiveUp));
        self.grace = Some(Deadline::after(ANSWER_GRACE));
    }

    /// Who is missing by what the coordinator said last, which may be half a second ago.
    fn absence(&mut self) -> RendezvousError {
        let waited_ms = millis(self.deadline.elapsed());
        RendezvousError::Missing {
            absence: Box::new(Absence {
                world_size: self.world_size,
                waited_ms,
                missing: std::mem::take(&mut self.missing),
                missing_more: self.missing_more,
                present: Vec::new(),
                seen: Vec::new(),
                late: late(HostLoad::now(), waited_ms, millis(self.changed.elapsed())),
            }),
        }
    }

    fn gone(&self, why: &str) -> RendezvousError {
        RendezvousError::CoordinatorGone {
            endpoint: self.endpoint.clone(),
            after_ms: millis(self.since.elapsed()),
            why: why.to_owned(),
        }
    }

    fn broken(&self, what: &str) -> RendezvousError {
        RendezvousError::ProtocolBroken {
            who: format!("the coordinator at {}", self.endpoint),
            what: what.to_owned(),
        }
    }
}
