//! The connector's side of a link: a connection that is made, and the handshake over it, step by step and without a wait.
//!
//! - CONNECT-1: nothing here blocks, so a rank that makes a link hears of the fate of its peer meanwhile: a stopped process
//!   accepts connections, and says nothing.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::hello::{
    ANSWER_BYTES, HELLO_BYTES, Hello, Key, LinkName, NONCE_BYTES, PROOF_BYTES, Refusal, Role,
    SECRET_BYTES, STATUS_BYTES,
};
use super::{TcpError, TcpLink};
use crate::sync::{Clock, Deadline};
use crate::transport::poll::{Interest, wait_until_ready};

/// Attempts after the first, when a listener drops the connection: some three seconds in all. A
/// listener that still does so then is none of ours.
const RETRIES_MAX: u32 = 40;
/// Pause before the first of them; each is longer by this.
const RETRY_PAUSE: Duration = Duration::from_millis(5);
/// Longest pause.
const RETRY_PAUSE_MAX: Duration = Duration::from_millis(100);

/// A link to the rank that listens at an address, in the making.
#[derive(Debug)]
pub struct Connector {
    addr: SocketAddr,
    name: LinkName,
    key: Key,
    hello: [u8; HELLO_BYTES],
    step: Step,
    retries: u32,
}

/// How far it has come.
#[derive(Debug)]
enum Step {
    /// There is no connection before this time.
    Pauses(Instant),
    /// It is being made.
    Connects(TcpStream),
    /// These bytes are to be sent, from this one on, and so many are to be read after that.
    Sends(TcpStream, Vec<u8>, usize, usize),
    /// An answer of this length is read; so much of it is there.
    Reads(TcpStream, Vec<u8>, usize),
}

/// How an attempt failed.
#[derive(Debug)]
enum Failure {
    /// The connection ended within the handshake.
    Dropped(io::ErrorKind),
    Final(TcpError),
}

/// What is next.
enum Next {
    Step(Step),
    /// Nothing before the connection is ready, or the pause is over.
    Wait(Step),
    Done(TcpLink),
}

impl Connector {
    /// A link of this name to the rank that listens at `addr`.
    #[must_use]
    pub fn new(addr: SocketAddr, name: LinkName, secret: &[u8; SECRET_BYTES]) -> Self {
        Self {
            addr,
            name,
            key: Key::new(secret),
            hello: [0; HELLO_BYTES],
            step: Step::Pauses(Clock::now()),
            retries: 0,
        }
    }

    /// Goes on as far as it can without a wait; the link where it is made.
    ///
    /// # Errors
    /// [`TcpError`]: nobody there, somebody else, or a refusal.
    pub fn poll(&mut self) -> Result<Option<TcpLink>, TcpError> {
        loop {
            let now = Clock::now();
            let step = std::mem::replace(&mut self.step, Step::Pauses(now));
            match self.go_on(step, now) {
                Ok(Next::Step(step)) => self.step = step,
                Ok(Next::Wait(step)) => {
                    self.step = step;
                    return Ok(None);
                }
                Ok(Next::Done(link)) => return Ok(Some(link)),
                // A listener under a flood of strangers drops whom it knows least.
                Err(Failure::Dropped(error)) => {
                    self.retries += 1;
                    if self.retries > RETRIES_MAX {
                        let addr = self.addr;
                        return Err(TcpError::Connect { addr, error });
                    }
                    let pause = (RETRY_PAUSE * self.retries).min(RETRY_PAUSE_MAX);
                    self.step = Step::Pauses(now + pause);
                }
                Err(Failure::Final(error)) => return Err(error),
            }
        }
    }

    /// Waits until [`Self::poll`] may come further, for so long at most.
    pub fn rest(&self, time: Duration) {
        let interest = match &self.step {
            Step::Pauses(until) => {
                let left = until.saturating_duration_since(Clock::now());
                return Clock::pause(left.min(time));
            }
            Step::Connects(socket) | Step::Sends(socket, ..) => (socket, true),
            Step::Reads(socket, ..) => (socket, false),
        };
        let (socket, write) = interest;
        let interest = Interest {
            descriptor: socket.as_fd(),
            write,
        };
        if wait_until_ready(std::iter::once(interest), Deadline::after(time)).is_err() {
            Clock::pause(time.min(RETRY_PAUSE));
        }
    }

    fn go_on(&mut self, step: Step, now: Instant) -> Result<Next, Failure> {
        let next = match step {
            Step::Pauses(until) if until > now => Next::Wait(Step::Pauses(until)),
            Step::Pauses(_) => Next::Step(Step::Connects(self.begin()?)),
            Step::Connects(socket) => match self.is_connected(&socket)? {
                false => Next::Wait(Step::Connects(socket)),
                true => {
                    self.hello = self.greeting()?;
                    Next::Step(Step::Sends(socket, self.hello.to_vec(), 0, ANSWER_BYTES))
                }
            },
            Step::Sends(mut socket, bytes, sent, answer) => match socket.write(&bytes[sent..]) {
                Ok(len) if sent + len == bytes.len() => {
                    Next::Step(Step::Reads(socket, vec![0; answer], 0))
                }
                Ok(len) => Next::Step(Step::Sends(socket, bytes, sent + len, answer)),
                Err(error) if is_later(&error) => {
                    Next::Wait(Step::Sends(socket, bytes, sent, answer))
                }
                Err(error) => return Err(self.failure(&error)),
            },
            Step::Reads(mut socket, mut bytes, read) => match socket.read(&mut bytes[read..]) {
                Ok(0) => return Err(Failure::Dropped(io::ErrorKind::UnexpectedEof)),
                Ok(len) if read + len == bytes.len() => self.hear(socket, &bytes)?,
                Ok(len) => Next::Step(Step::Reads(socket, bytes, read + len)),
                Err(error) if is_later(&error) => Next::Wait(Step::Reads(socket, bytes, read)),
                Err(error) => return Err(self.failure(&error)),
            },
        };
        Ok(next)
    }

    /// Begins to connect.
    fn begin(&self) -> Result<TcpStream, Failure> {
        let family = match self.addr {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)
            .map_err(|error| self.failure(&error.into()))?;
        match rustix::net::connect(&socket, &self.addr) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS | rustix::io::Errno::INTR) => {}
            Err(error) => return Err(self.failure(&error.into())),
        }
        Ok(TcpStream::from(socket))
    }

    fn is_connected(&self, socket: &TcpStream) -> Result<bool, Failure> {
        let failure = |error: &io::Error| self.failure(error);
        if let Some(error) = socket.take_error().map_err(|error| failure(&error))? {
            return Err(failure(&error));
        }
        match socket.peer_addr() {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotConnected => return Ok(false),
            Err(error) => return Err(failure(&error)),
        }
        socket.set_nodelay(true).map_err(|error| failure(&error))?;
        Ok(true)
    }

    fn greeting(&self) -> Result<[u8; HELLO_BYTES], Failure> {
        Hello::of(self.name)
            .map(bytemuck::cast)
            .map_err(|error| self.failure(&error))
    }

    /// What the listener has said: its answer, or the verdict after that.
    fn hear(&self, socket: TcpStream, said: &[u8]) -> Result<Next, Failure> {
        let (status, rest) = said.split_at(STATUS_BYTES);
        self.consent(status)?;
        if rest.is_empty() {
            let mut link = TcpLink::new(socket).map_err(|error| self.failure(&error))?;
            link.lanes = self.name.lanes;
            return Ok(Next::Done(link));
        }
        let (nonce, proof) = rest.split_at(NONCE_BYTES);
        let nonce: [u8; NONCE_BYTES] = bytemuck::pod_read_unaligned(nonce);
        let proof: [u8; PROOF_BYTES] = bytemuck::pod_read_unaligned(proof);
        if self.key.mac(Role::Acceptor, &self.hello, &nonce) != proof {
            let addr = self.addr;
            return Err(Failure::Final(TcpError::Impostor { addr }));
        }
        let proof = self.key.mac(Role::Connector, &self.hello, &nonce);
        let proof = proof.as_bytes().to_vec();
        Ok(Next::Step(Step::Sends(socket, proof, 0, STATUS_BYTES)))
    }

    /// Whether a status says yes.
    fn consent(&self, status: &[u8]) -> Result<(), Failure> {
        let addr = self.addr;
        let code = u32::from_le_bytes(bytemuck::pod_read_unaligned(status));
        if code == 0 {
            return Ok(());
        }
        let refused = |reason| TcpError::Refused { addr, reason };
        let error = Refusal::from_code(code).map_or(TcpError::Impostor { addr }, refused);
        Err(Failure::Final(error))
    }

    fn failure(&self, error: &io::Error) -> Failure {
        let (addr, error) = (self.addr, error.kind());
        let is_dropped = matches!(
            error,
            io::ErrorKind::UnexpectedEof
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::ConnectionAborted
                | io::ErrorKind::BrokenPipe
        );
        if is_dropped {
            Failure::Dropped(error)
        } else {
            Failure::Final(TcpError::Connect { addr, error })
        }
    }
}

fn is_later(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

/// Makes a link to the rank that listens at `addr`, and waits for that.
///
/// # Errors
/// As [`Connector::poll`], and where the deadline has passed.
pub fn connect(
    addr: SocketAddr,
    name: LinkName,
    secret: &[u8; SECRET_BYTES],
    deadline: Deadline,
) -> Result<TcpLink, TcpError> {
    let mut connector = Connector::new(addr, name, secret);
    loop {
        if let Some(link) = connector.poll()? {
            return Ok(link);
        }
        if deadline.passed() {
            return Err(TcpError::TimedOut {
                what: "connecting to a peer",
                budget: deadline.budget(),
            });
        }
        connector.rest(deadline.left());
    }
}
