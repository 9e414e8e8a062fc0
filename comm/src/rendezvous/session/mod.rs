//! A rank's side: join, learn who is there, and stay reachable.
//!
//! `connect` finds the coordinator and proves both sides, `join` waits for the world, `reader` is
//! the one thread that a session owns. Here is what the rest of the crate uses.
//!
//! - `SESSION-1`: the reader's callback runs on the reader's thread only and in the order in which
//!   the coordinator spoke.
//! - `SESSION-2`: a session that ends without [`Session::leave`] is a death to all others.

mod connect;
mod join;
mod reader;

pub(crate) use connect::resolve;

use std::collections::HashMap;
use std::fmt;
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::card::{Card, DownReason, Hello, ProcessId, millis, within};
use super::endpoint::Endpoint;
use super::error::RendezvousError;
use super::limits::{ANSWER_GRACE, MESSAGE_BYTES_MAX, NAME_BYTES_MAX, SILENCE_MAX};
use super::secret::{Seal, Secret};
use super::wire::{Body, ToCoordinator};
use crate::sync::{AtomicBool, Clock, Deadline, Ordering};
use crate::types::Rank;

/// Pause before a rank introduces itself again.
const AGAIN_PAUSE: Duration = Duration::from_millis(20);

/// Longest time that leaving takes, whatever the coordinator does. It takes no longer than until the coordinator has read the
/// goodbye, and that long it must take: on a starved machine segments come late or again, and a process that ends while the
/// coordinator still tells it of others has the system reset the connection, and with it what was under way.
const LEAVE_MAX: Duration = Duration::from_secs(5);

/// Longest time that one message takes to write; without any progress it is
/// [`SILENCE_MAX`].
const SEND_MAX: Duration = Duration::from_secs(30);

/// What happens to the world after bring-up.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionEvent {
    /// A rank wants everybody to stop.
    Abort {
        /// Who wants it.
        origin: Rank,
        /// What it said.
        bytes: Vec<u8>,
    },
    /// The coordinator is gone, and with it the news of other ranks. The last event of a session.
    CoordinatorLost {
        /// What was seen.
        why: String,
    },
    /// A rank is gone without a goodbye. At most once a rank.
    Down {
        /// Which.
        rank: Rank,
        /// Why.
        reason: DownReason,
    },
    /// A rank said goodbye. At most once a rank.
    Left {
        /// Which.
        rank: Rank,
    },
    /// From the coordinator's owner.
    Message(Vec<u8>),
    /// The coordinator ended the bring-up, or turned this rank away, at this time of day. The error that
    /// joining ends with says why.
    Refused {
        /// Milliseconds since 1970, the same for all ranks that are told the same.
        at_unix_ms: u64,
    },
}

/// Called for every event, on the session's own thread: it should note it and return.
pub type EventHandler = Box<dyn Fn(SessionEvent) + Send>;

/// Takes what the arbiter says and gives the answer, if there is one. Called on the session's own
/// thread.
pub type Watcher = Box<dyn Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync>;

/// A rank's connection to the coordinator of its job. May be used from several threads.
pub struct Session {
    shared: Arc<Shared>,
    roster: Arc<[Card]>,
    server: ProcessId,
    rank: Rank,
}

/// What the session's threads share.
struct Shared {
    endpoint: Endpoint,
    since: Deadline,
    sender: Mutex<Sender>,
    state: Mutex<State>,
    /// Signalled when `state` changes.
    changed: Condvar,
    /// Set before this side closes: the end of the stream is then no news.
    is_closing: AtomicBool,
    /// Who answers the arbiter.
    watcher: OnceLock<Watcher>,
    /// For ending the reader's read from another thread.
    stream: Arc<TcpStream>,
}

struct Sender {
    /// One descriptor for both directions and all threads.
    stream: Arc<TcpStream>,
    seal: Seal,
    /// A frame was written in part: nothing that follows would be understood.
    is_broken: bool,
}

/// What a round brought: everybody's bytes in rank order.
type Outcome = Result<Vec<Vec<u8>>, RendezvousError>;

#[derive(Default)]
struct State {
    /// Rounds that a thread waits in, and their outcome once it is there.
    rounds: HashMap<String, Option<Outcome>>,
    /// Why the reader has ended, if it has.
    over: Option<String>,
    /// The coordinator has answered the goodbye (`RDV-5`).
    is_goodbye_answered: bool,
    /// Why no round can be completed any more.
    no_rounds: Option<RendezvousError>,
    /// When the coordinator says that a round failed last, in milliseconds since 1970.
    failed_unix_ms: Option<u64>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // A thread that panicked here left whole values behind: every change is one assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn gone(&self, why: &str) -> RendezvousError {
        RendezvousError::CoordinatorGone {
            endpoint: self.endpoint.clone(),
            after_ms: millis(self.since.elapsed()),
            why: why.to_owned(),
        }
    }

    fn is_closing(&self) -> bool {
        // SYNC: pairs with the swap in `Session::set_closing`.
        self.is_closing.load(Ordering::Acquire)
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session(rank {} of {})", self.rank, self.roster.len())
    }
}

impl Session {
    /// Finds the coordinator, proves the secret to it and has it prove it too, introduces this rank
    /// and waits for all others. The coordinator may start later than its ranks, and its name may
    /// take a while to resolve: both are retried until `deadline`.
    ///
    /// `on_event` is called from then on, on a thread that the session owns.
    ///
    /// # Errors
    /// Every [`RendezvousError`] that bring-up knows; the same on every rank that has joined where
    /// the job itself is at fault. Returns at the latest shortly after `deadline`.
    pub fn join(
        endpoint: &Endpoint,
        secret: &Secret,
        hello: Hello,
        deadline: Deadline,
        on_event: EventHandler,
    ) -> Result<Self, RendezvousError> {
        hello.check()?;
        loop {
            let link = connect::connect(endpoint, secret, &hello, deadline)?;
            match join::join(link, endpoint, &hello, deadline, &*on_event) {
                Ok(world) => return reader::start(world, endpoint, on_event),
                // It cuts off who is slow, as this rank is where it gets no processor.
                Err(failed) if failed.is_unheard && connect::is_served(endpoint, deadline) => {
                    Clock::pause(AGAIN_PAUSE);
                }
                Err(failed) => return Err(failed.error),
            }
        }
    }

    /// This rank.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// The cards of all ranks, in rank order.
    #[must_use]
    pub fn roster(&self) -> &[Card] {
        &self.roster
    }

    /// The process that serves the rendezvous and judges there; unknown where nobody does.
    #[must_use]
    pub fn server(&self) -> ProcessId {
        self.server
    }

    /// A world-wide round: every rank gives `bytes` under the same name, and gets the bytes of all
    /// ranks in rank order. A name may be used again once its round is complete.
    ///
    /// # Errors
    /// [`RendezvousError::RoundMissing`] names the ranks that did not come before `deadline`;
    /// [`RendezvousError::RankDown`] and [`RendezvousError::RankLeft`] if one cannot come any more;
    /// [`RendezvousError::TooLarge`] beyond [`MESSAGE_BYTES_MAX`], before anything is sent.
    pub fn gather(
        &self,
        round: &str,
        bytes: Vec<u8>,
        deadline: Deadline,
    ) -> Result<Vec<Vec<u8>>, RendezvousError> {
        within("name of a round", round.len(), NAME_BYTES_MAX)?;
        within("part of a round", bytes.len(), MESSAGE_BYTES_MAX)?;
        self.begin_round(round)?;
        let sent = self.send(&ToCoordinator::Part {
            round: round.to_owned(),
            budget_ms: millis(deadline.left()),
            bytes,
        });
        if let Err(error) = sent {
            self.shared.state().rounds.remove(round);
            return Err(error);
        }
        self.end_round(round, deadline)
    }

    fn begin_round(&self, round: &str) -> Result<(), RendezvousError> {
        let mut state = self.shared.state();
        if let Some(why) = &state.over {
            return Err(self.over(why));
        }
        if let Some(error) = &state.no_rounds {
            return Err(error.clone());
        }
        if state.rounds.contains_key(round) {
            return Err(RendezvousError::RoundMisused {
                round: round.to_owned(),
                why: "another thread of this rank is in it".to_owned(),
            });
        }
        state.rounds.insert(round.to_owned(), None);
        Ok(())
    }

    fn end_round(&self, round: &str, deadline: Deadline) -> Outcome {
        let mut state = self.shared.state();
        loop {
            if let Some(Some(outcome)) = state.rounds.get_mut(round).map(Option::take) {
                state.rounds.remove(round);
                return outcome;
            }
            if let Some(why) = state.over.clone() {
                state.rounds.remove(round);
                return Err(self.over(&why));
            }
            let late = deadline.elapsed().saturating_sub(deadline.budget());
            if deadline.passed() && late >= ANSWER_GRACE {
                state.rounds.remove(round);
                return Err(RendezvousError::Silent {
                    endpoint: self.shared.endpoint.clone(),
                    waited_ms: millis(deadline.elapsed()),
                });
            }
            let pause = deadline.left() + ANSWER_GRACE.saturating_sub(late);
            let waited = self.shared.changed.wait_timeout(state, pause);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether the coordinator has said that no round can be completed any more: what is done for the next one is in vain.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.shared.state().no_rounds.is_some()
    }

    /// When the last round failed that has, in milliseconds since 1970: the same for all ranks that it failed for.
    #[must_use]
    pub fn failed_unix_ms(&self) -> Option<u64> {
        self.shared.state().failed_unix_ms
    }

    /// Sends bytes to the coordinator's owner.
    ///
    /// # Errors
    /// [`RendezvousError::TooLarge`] beyond [`MESSAGE_BYTES_MAX`], and
    /// [`RendezvousError::CoordinatorGone`].
    pub fn report(&self, bytes: Vec<u8>) -> Result<(), RendezvousError> {
        within("report", bytes.len(), MESSAGE_BYTES_MAX)?;
        self.send(&ToCoordinator::Report { bytes })
    }

    /// Sets who answers the coordinator's arbiter; the first one stays.
    pub fn set_watcher(&self, watcher: Watcher) {
        // The first one stays.
        let _ = self.shared.watcher.set(watcher);
    }

    /// Says something to the coordinator's arbiter.
    ///
    /// # Errors
    /// As [`Self::report`].
    pub fn watch(&self, bytes: Vec<u8>) -> Result<(), RendezvousError> {
        within("word to the arbiter", bytes.len(), MESSAGE_BYTES_MAX)?;
        self.send(&ToCoordinator::Watch { bytes })
    }

    /// Asks every other rank to stop, with these bytes as the reason.
    ///
    /// # Errors
    /// As [`Self::report`].
    pub fn abort(&self, bytes: Vec<u8>) -> Result<(), RendezvousError> {
        within("abort", bytes.len(), MESSAGE_BYTES_MAX)?;
        self.send(&ToCoordinator::Abort { bytes })
    }

    /// Says goodbye and closes, when the coordinator has read that; it waits five seconds for it at most. The others see this
    /// rank leave, not die. Returns whether they know: `false` where the coordinator is gone. May be called more than once.
    pub fn leave(&self) -> bool {
        // Before the goodbye: the coordinator may answer it by closing before this thread runs on.
        if !self.set_closing() {
            // If it cannot be said, the coordinator is gone, and there is nobody to say it to.
            if self.say(&ToCoordinator::Bye).is_ok() {
                self.await_end();
            }
            self.cut();
        }
        self.shared.state().is_goodbye_answered
    }

    /// From now on the end of the stream is no news. Says whether it was so already.
    fn set_closing(&self) -> bool {
        // SYNC: pairs with the load in `Shared::is_closing`.
        self.shared.is_closing.swap(true, Ordering::AcqRel)
    }

    /// Gives the coordinator a moment to close first: then it has read everything that was said.
    fn await_end(&self) {
        if reader::is_current() {
            return;
        }
        let deadline = Deadline::after(LEAVE_MAX);
        let mut state = self.shared.state();
        while state.over.is_none() && !deadline.passed() {
            let waited = self.shared.changed.wait_timeout(state, deadline.left());
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Ends the connection, and with it the reader.
    fn cut(&self) {
        // Fails only if the connection is closed already.
        let _ = self.shared.stream.shutdown(Shutdown::Both);
    }

    fn over(&self, why: &str) -> RendezvousError {
        match self.shared.is_closing() {
            true => RendezvousError::SessionClosed,
            false => self.shared.gone(why),
        }
    }

    fn send(&self, message: &ToCoordinator) -> Result<(), RendezvousError> {
        if self.shared.is_closing() {
            return Err(RendezvousError::SessionClosed);
        }
        self.say(message)
    }

    fn say(&self, message: &ToCoordinator) -> Result<(), RendezvousError> {
        let body = Body::new(message);
        let sender = self.shared.sender.lock();
        let mut sender = sender.unwrap_or_else(PoisonError::into_inner);
        sender.send(&body).map_err(|why| self.over(&why))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.set_closing() {
            self.cut();
        }
    }
}

impl Sender {
    fn new(stream: TcpStream, seal: Seal) -> Self {
        Self {
            stream: Arc::new(stream),
            seal,
            is_broken: false,
        }
    }

    /// Writes one frame whole, or says why not.
    fn send(&mut self, body: &Body) -> Result<(), String> {
        if self.is_broken {
            return Err("an earlier message could not be written".to_owned());
        }
        // A panic or an error on the way leaves half a frame behind.
        self.is_broken = true;
        let head = body.head(&mut self.seal);
        let deadline = Deadline::after(SEND_MAX);
        write(&self.stream, &head, deadline)?;
        write(&self.stream, &body.bytes, deadline)?;
        self.is_broken = false;
        Ok(())
    }
}

/// Writes all of `bytes`; a single write that makes no progress for [`SILENCE_MAX`] fails, by the
/// stream's own time limit.
fn write(mut stream: &TcpStream, mut bytes: &[u8], deadline: Deadline) -> Result<(), String> {
    use std::io::ErrorKind;
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(0) => return Err("the connection takes nothing".to_owned()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return Err(format!("it does not read ({} s)", SILENCE_MAX.as_secs()));
            }
            Err(error) => return Err(error.to_string()),
        }
        if deadline.passed() && !bytes.is_empty() {
            return Err(format!("it reads too slowly ({} s)", SEND_MAX.as_secs()));
        }
    }
    Ok(())
}
