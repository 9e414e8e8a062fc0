//! Finding the coordinator, and the handshake with it.
//!
//! Everything here either succeeds, fails for good, or is tried again until the deadline: a name
//! that does not resolve yet, a port where nobody listens yet, a coordinator that closed because
//! it was crowded.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use crate::rendezvous::card::{Hello, millis};
use crate::rendezvous::coordinator::{owner, tune};
use crate::rendezvous::endpoint::Endpoint;
use crate::rendezvous::error::RendezvousError;
use crate::rendezvous::limits::SILENCE_MAX;
use crate::rendezvous::secret::{Seal, Secret, Transcript, random_bytes};
use crate::rendezvous::wire::{
    Admission, Inbox, Opening, WireError, decode_challenge, plain_frame,
};
use crate::sync::{Clock, Deadline};
use crossbeam::channel;

/// First pause between two tries; it doubles up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(2);
/// Longest pause between two tries.
const PAUSE_MAX: Duration = Duration::from_millis(100);
/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 16;
/// Bytes of a stranger's answer that a message shows.
const SAID_BYTES_MAX: usize = 64;

/// A connection on which both sides have proved the secret.
pub(super) struct Link {
    pub(super) stream: TcpStream,
    pub(super) inbox: Inbox,
    pub(super) read: Seal,
    pub(super) write: Seal,
}

/// Why a try did not lead to a link.
enum Miss {
    /// It never will.
    Fatal(RendezvousError),
    /// The name does not resolve.
    Name(String),
    /// Nobody there, or gone before the handshake was over.
    Peer(String),
}

impl Miss {
    fn peer(error: &io::Error) -> Self {
        Self::Peer(error.to_string())
    }
}

/// Connects and proves both sides; tries again until `deadline`.
pub(super) fn connect(
    endpoint: &Endpoint,
    secret: &Secret,
    hello: &Hello,
    deadline: Deadline,
) -> Result<Link, RendezvousError> {
    again_until(endpoint, deadline, || {
        attempt(endpoint, secret, hello, deadline)
    })
}

/// Whether somebody listens at an endpoint, and there is time left.
pub(super) fn is_served(endpoint: &Endpoint, deadline: Deadline) -> bool {
    let addresses = addresses(endpoint, deadline).unwrap_or_default();
    let mut addresses = addresses.into_iter();
    !deadline.passed() && addresses.any(|address| reach(address, deadline).is_ok())
}

/// The addresses of an endpoint; tries again until `deadline`.
pub(crate) fn resolve(
    endpoint: &Endpoint,
    deadline: Deadline,
) -> Result<Vec<SocketAddr>, RendezvousError> {
    again_until(endpoint, deadline, || addresses(endpoint, deadline))
}

/// Tries until one try succeeds or fails for good, or the time is up. A try that the deadline has cut short tells
/// nothing: the reason is that of the one before.
fn again_until<T>(
    endpoint: &Endpoint,
    deadline: Deadline,
    attempt: impl Fn() -> Result<T, Miss>,
) -> Result<T, RendezvousError> {
    let mut pause = PAUSE_MIN;
    let mut tries = 0;
    let mut before = None;
    loop {
        tries += 1;
        let miss = match attempt() {
            Ok(found) => return Ok(found),
            Err(Miss::Fatal(error)) => return Err(error),
            Err(miss) => miss,
        };
        if deadline.passed() {
            let why = before.unwrap_or(miss);
            return Err(give_up(endpoint, why, deadline, tries));
        }
        before = Some(miss);
        Clock::pause(pause.min(deadline.left()));
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

fn give_up(endpoint: &Endpoint, miss: Miss, deadline: Deadline, tries: u32) -> RendezvousError {
    let waited_ms = millis(deadline.elapsed());
    match miss {
        Miss::Fatal(error) => error,
        Miss::Name(why) => RendezvousError::NameUnresolved {
            host: endpoint.host().to_owned(),
            why,
            waited_ms,
            tries,
        },
        Miss::Peer(why) => RendezvousError::Unreachable {
            endpoint: endpoint.clone(),
            why,
            waited_ms,
            tries,
        },
    }
}

fn attempt(
    endpoint: &Endpoint,
    secret: &Secret,
    hello: &Hello,
    deadline: Deadline,
) -> Result<Link, Miss> {
    let addresses = addresses(endpoint, deadline)?;
    let mut last = Miss::Peer("the name has no addresses".to_owned());
    for address in addresses {
        match reach(address, deadline) {
            Ok(stream) => return Handshake::new(endpoint, stream, deadline).run(secret, hello),
            Err(error) => last = Miss::peer(&error),
        }
        if deadline.passed() {
            break;
        }
    }
    Err(last)
}

fn reach(address: SocketAddr, deadline: Deadline) -> io::Result<TcpStream> {
    let patience = deadline
        .left()
        .min(SILENCE_MAX)
        .max(Duration::from_millis(1));
    let stream = TcpStream::connect_timeout(&address, patience)?;
    // On one host, a port where nobody listens can be given to the connecting socket itself, which
    // then talks to itself.
    if stream.local_addr()? == stream.peer_addr()? {
        return Err(ErrorKind::ConnectionRefused.into());
    }
    tune(&stream)?;
    stream.set_write_timeout(Some(SILENCE_MAX))?;
    Ok(stream)
}

/// The endpoint's addresses. A resolver may block for as long as it likes: it gets a thread of its
/// own, which outlives the deadline if it must.
fn addresses(endpoint: &Endpoint, deadline: Deadline) -> Result<Vec<SocketAddr>, Miss> {
    if let Some(address) = endpoint.literal() {
        return Ok(vec![address]);
    }
    let (sender, answer) = channel::unbounded();
    let (host, port) = (endpoint.host().to_owned(), endpoint.port());
    std::thread::Builder::new()
        .name("muster-resolve".to_owned())
        .spawn(move || {
            let found = (host.as_str(), port).to_socket_addrs();
            let found = found.map(|addresses| addresses.take(ADDRESSES_MAX).collect());
            // Fails only if nobody waits any more.
            let _ = sender.send(found);
        })
        .map_err(|error| Miss::Name(error.to_string()))?;
    match answer.recv_timeout(deadline.left()) {
        Ok(Ok(addresses)) => Ok(addresses),
        Ok(Err(error)) => Err(Miss::Name(error.to_string())),
        Err(_) => Err(Miss::Name("the resolver does not answer".to_owned())),
    }
}

/// One handshake on one connection.
struct Handshake<'a> {
    endpoint: &'a Endpoint,
    stream: TcpStream,
    inbox: Inbox,
    deadline: Deadline,
}

impl<'a> Handshake<'a> {
    fn new(endpoint: &'a Endpoint, stream: TcpStream, deadline: Deadline) -> Self {
        Self {
            endpoint,
            stream,
            inbox: Inbox::default(),
            deadline,
        }
    }

    fn run(mut self, secret: &Secret, hello: &Hello) -> Result<Link, Miss> {
        let nonce = random_bytes().map_err(|error| {
            Miss::Fatal(RendezvousError::Resource {
                what: "no random bytes".to_owned(),
                why: error.to_string(),
            })
        })?;
        let opening = Opening {
            nonce,
            attempt: hello.attempt,
            job_id: hello.job_id.clone(),
        }
        .encode();
        self.say(&opening)?;
        let challenge = self.hear()?;
        let Some(challenge) = decode_challenge(&challenge) else {
            return Err(self.stranger(&challenge));
        };
        let transcript = Transcript::new(secret, &opening, &challenge);
        self.say(transcript.joiner_proof().as_bytes())?;
        let admission = self.hear()?;
        match Admission::decode(&admission) {
            Some(Admission::Welcome(proof)) if transcript.coordinator_is_proved(&proof) => {
                Ok(Link {
                    stream: self.stream,
                    inbox: self.inbox,
                    read: transcript.coordinator_seal(),
                    write: transcript.joiner_seal(),
                })
            }
            Some(Admission::Welcome(_)) => Err(Miss::Fatal(RendezvousError::Impostor {
                endpoint: self.endpoint.clone(),
            })),
            Some(Admission::Refused { attempt, job_id }) => {
                Err(Miss::Fatal(self.refused(attempt, job_id, hello)))
            }
            None => Err(self.stranger(&admission)),
        }
    }

    /// Why we are not wanted, from what the coordinator serves.
    fn refused(&self, attempt: u32, job_id: String, hello: &Hello) -> RendezvousError {
        if job_id != hello.job_id {
            return RendezvousError::ForeignJob {
                given: hello.job_id.clone(),
                wanted: job_id,
            };
        }
        if attempt != hello.attempt {
            return RendezvousError::Attempt {
                job_id,
                given: hello.attempt,
                wanted: attempt,
            };
        }
        RendezvousError::WrongSecret {
            endpoint: self.endpoint.clone(),
            job_id,
        }
    }

    fn say(&self, body: &[u8]) -> Result<(), Miss> {
        super::write(&self.stream, &plain_frame(body), self.deadline).map_err(Miss::Peer)
    }

    /// The next frame.
    fn hear(&mut self) -> Result<Vec<u8>, Miss> {
        let mut silence = Silence::begin();
        let mut scratch = [0; 1024];
        loop {
            match self.inbox.plain() {
                Ok(Some(body)) => return Ok(body),
                Ok(None) => {}
                Err(WireError::TooLong { .. } | WireError::Tag | WireError::Malformed(_)) => {
                    let said = self.inbox.pending().to_vec();
                    return Err(self.stranger(&said));
                }
            }
            let patience = silence.patience(self.deadline);
            match read_before(&self.stream, &mut self.inbox, &mut scratch, patience) {
                Ok(0) => {
                    let why = "it closed the connection during the handshake";
                    return Err(Miss::Peer(why.to_owned()));
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::TimedOut => {
                    if self.deadline.passed() || silence.is_of_stopped(&self.stream) {
                        return Err(Miss::Fatal(silence.error(self.endpoint)));
                    }
                }
                Err(error) => return Err(Miss::peer(&error)),
            }
        }
    }

    fn stranger(&self, said: &[u8]) -> Miss {
        let said = &said[..said.len().min(SAID_BYTES_MAX)];
        Miss::Fatal(RendezvousError::NotACoordinator {
            endpoint: self.endpoint.clone(),
            said: String::from_utf8_lossy(said).into_owned(),
        })
    }
}

/// A coordinator that says nothing. That proves nothing about it: it may get no processor. Only one whose process is seen to be
/// stopped is not waited for.
pub(super) struct Silence {
    since: Deadline,
    /// When its process is looked at again. A look reads a file for each descriptor of the host.
    look: Deadline,
}

impl Silence {
    /// It spoke now.
    pub(super) fn begin() -> Self {
        Self {
            since: Deadline::after(SILENCE_MAX),
            look: Deadline::after(SILENCE_MAX),
        }
    }

    /// The time to wait for the next word.
    pub(super) fn patience(&self, deadline: Deadline) -> Deadline {
        Deadline::after(deadline.left().min(self.look.left()))
    }

    /// Whether it has been silent for longer than one that runs.
    pub(super) fn is_long(&self) -> bool {
        self.since.passed()
    }

    /// Whether the process at the other end is seen to be stopped, where it is time to look.
    pub(super) fn is_of_stopped(&mut self, stream: &TcpStream) -> bool {
        if !self.look.passed() {
            return false;
        }
        self.look = Deadline::after(self.since.elapsed().max(SILENCE_MAX));
        let (Ok(own), Ok(peer)) = (stream.local_addr(), stream.peer_addr()) else {
            return false;
        };
        own.ip() == peer.ip() && owner::is_stopped(peer.port())
    }

    /// What is said of it.
    pub(super) fn error(&self, endpoint: &Endpoint) -> RendezvousError {
        RendezvousError::Silent {
            endpoint: endpoint.clone(),
            waited_ms: millis(self.since.elapsed()),
        }
    }
}

/// One read that ends at `deadline`, with [`ErrorKind::TimedOut`].
pub(super) fn read_before(
    mut stream: &TcpStream,
    inbox: &mut Inbox,
    scratch: &mut [u8],
    deadline: Deadline,
) -> io::Result<usize> {
    loop {
        if deadline.passed() {
            return Err(ErrorKind::TimedOut.into());
        }
        // The system takes no zero here, and rounds to its own ticks.
        let patience = deadline.left().max(Duration::from_millis(1));
        stream.set_read_timeout(Some(patience))?;
        match inbox.fill(&mut stream, scratch) {
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) => {}
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_try_that_the_deadline_cuts_short_does_not_hide_the_reason() {
        let endpoint: Endpoint = "node-7:46004".parse().unwrap();
        let deadline = Deadline::after(Duration::from_millis(30));
        let tries = Cell::new(0);
        let error = again_until::<()>(&endpoint, deadline, || {
            tries.set(tries.get() + 1);
            if tries.get() < 3 {
                return Err(Miss::Peer("connection refused".to_owned()));
            }
            Clock::pause(deadline.left() + Duration::from_millis(1));
            Err(Miss::Name("the resolver does not answer".to_owned()))
        });
        let RendezvousError::Unreachable { why, tries, .. } = error.unwrap_err() else {
            panic!("the name was resolved");
        };
        assert_eq!((why.as_str(), tries), ("connection refused", 3));
    }
}
