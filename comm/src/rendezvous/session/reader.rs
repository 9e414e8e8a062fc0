//! The session's own thread: reads what the coordinator says and passes it on.

use std::cell::Cell;
use std::io::ErrorKind;
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use super::join::{SCRATCH_BYTES, World};
use super::{EventHandler, Outcome, Session, SessionEvent, Shared, State};
use crate::rendezvous::endpoint::Endpoint;
use crate::rendezvous::error::RendezvousError;
use crate::rendezvous::limits::COORDINATOR_FRAME_BYTES_MAX;
use crate::rendezvous::secret::Seal;
use crate::rendezvous::wire::{Body, Inbox, Part, ToCoordinator, ToSession, decode};
use crate::sync::{AtomicBool, Deadline};

thread_local! {
    static IS_READER: Cell<bool> = const { Cell::new(false) };
}

/// Whether this is the thread of some session: it must not wait for itself.
pub(super) fn is_current() -> bool {
    IS_READER.get()
}

/// Starts the thread and makes the session.
pub(super) fn start(
    world: World,
    endpoint: &Endpoint,
    on_event: EventHandler,
) -> Result<Session, RendezvousError> {
    let failed = |what: &str, error: std::io::Error| RendezvousError::Resource {
        what: what.to_owned(),
        why: error.to_string(),
    };
    let stream = Arc::clone(&world.sender.stream);
    // From here on a read ends when the connection does; both ends see to that.
    stream
        .set_read_timeout(None)
        .map_err(|error| failed("cannot set up the session's socket", error))?;
    let shared = Arc::new(Shared {
        endpoint: endpoint.clone(),
        since: Deadline::after(Duration::MAX),
        sender: Mutex::new(world.sender),
        state: Mutex::new(State::default()),
        changed: Condvar::new(),
        is_closing: AtomicBool::new(false),
        watcher: OnceLock::new(),
        stream: Arc::clone(&stream),
    });
    let reader = Reader {
        shared: Arc::clone(&shared),
        stream,
        inbox: world.inbox,
        seal: world.read,
        on_event,
    };
    std::thread::Builder::new()
        .name("muster-session".to_owned())
        .spawn(move || reader.run())
        .map_err(|error| failed("cannot start the session's thread", error))?;
    Ok(Session {
        shared,
        roster: world.roster.into(),
        server: world.server,
        rank: world.rank,
    })
}

struct Reader {
    shared: Arc<Shared>,
    stream: Arc<TcpStream>,
    inbox: Inbox,
    seal: Seal,
    on_event: EventHandler,
}

/// Notes that the reader has ended, also if the callback panicked: waiting calls must not wait for
/// a thread that is gone.
struct Over<'a> {
    shared: &'a Shared,
    why: String,
}

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.shared.state().over = Some(std::mem::take(&mut self.why));
        self.shared.changed.notify_all();
    }
}

impl Reader {
    fn run(mut self) {
        IS_READER.set(true);
        let shared = Arc::clone(&self.shared);
        let mut over = Over {
            shared: &shared,
            why: "the session's event handler panicked".to_owned(),
        };
        let why = self.read();
        over.why.clone_from(&why);
        drop(over);
        if !self.shared.is_closing() {
            (self.on_event)(SessionEvent::CoordinatorLost { why });
        }
    }

    /// Reads until the end, and says what it was.
    fn read(&mut self) -> String {
        let mut scratch = vec![0; SCRATCH_BYTES];
        loop {
            loop {
                let frame = self
                    .inbox
                    .sealed(&mut self.seal, COORDINATOR_FRAME_BYTES_MAX);
                match frame {
                    Ok(None) => break,
                    Ok(Some(body)) => {
                        if let Err(why) = self.dispatch(&body) {
                            return why;
                        }
                    }
                    Err(error) => return error.to_string(),
                }
            }
            match self.inbox.fill(&mut &*self.stream, &mut scratch) {
                Ok(0) => return "it closed the connection".to_owned(),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.to_string(),
            }
        }
    }

    fn dispatch(&self, body: &[u8]) -> Result<(), String> {
        let message: ToSession =
            decode("message of the coordinator", body).map_err(|error| error.to_string())?;
        match message {
            ToSession::Abort { origin, bytes } => {
                (self.on_event)(SessionEvent::Abort { origin, bytes });
            }
            ToSession::Down { rank, reason } => {
                (self.on_event)(SessionEvent::Down { rank, reason });
            }
            ToSession::Failed { error, .. } => return Err(error.to_string()),
            ToSession::Goodbye => self.shared.state().is_goodbye_answered = true,
            ToSession::Left { ranks } => {
                for rank in ranks {
                    (self.on_event)(SessionEvent::Left { rank });
                }
            }
            ToSession::Message { bytes } => (self.on_event)(SessionEvent::Message(bytes)),
            // One that crossed the roster on its way.
            ToSession::Progress { .. } => {}
            ToSession::Roster { .. } => return Err("it sent a second roster".to_owned()),
            ToSession::Round { round, parts } => {
                let parts = parts.into_iter().map(|Part(bytes)| bytes).collect();
                self.finish(&round, Ok(parts));
            }
            ToSession::RoundFailed {
                round,
                error,
                at_unix_ms,
            } => {
                self.shared.state().failed_unix_ms = Some(at_unix_ms);
                self.finish(&round, Err(error));
            }
            ToSession::Over { error, at_unix_ms } => self.end_rounds(&error, at_unix_ms),
            ToSession::Watch { bytes } => self.answer(&bytes),
        }
        Ok(())
    }

    /// Hands the arbiter's words to the watcher, and its answer back.
    fn answer(&self, bytes: &[u8]) {
        let Some(watcher) = self.shared.watcher.get() else {
            return;
        };
        let Some(bytes) = watcher(bytes) else {
            return;
        };
        let body = Body::new(&ToCoordinator::Watch { bytes });
        let sender = self.shared.sender.lock();
        // Where it cannot be sent the coordinator is gone, which the next read shows.
        let _ = sender.unwrap_or_else(PoisonError::into_inner).send(&body);
    }

    /// No round can be completed any more.
    fn end_rounds(&self, error: &RendezvousError, at_unix_ms: u64) {
        let mut state = self.shared.state();
        state.failed_unix_ms = Some(at_unix_ms);
        state.no_rounds = Some(error.clone());
        for slot in state.rounds.values_mut() {
            slot.get_or_insert_with(|| Err(error.clone()));
        }
        drop(state);
        self.shared.changed.notify_all();
    }

    fn finish(&self, round: &str, outcome: Outcome) {
        if let Some(slot) = self.shared.state().rounds.get_mut(round) {
            *slot = Some(outcome);
            self.shared.changed.notify_all();
        }
    }
}
