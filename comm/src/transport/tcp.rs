//! A byte stream over a TCP connection, and how two ranks come to have one.
//!
//! Of a pair of ranks the lower one connects and the higher one accepts: [`connect`],
//! [`Listener::take`]. Connecting depends on the peer's [`Listener`] only, never on the peer's own
//! thread, so ranks may make their links in any order without a deadlock. No stranger gets a link:
//! both sides prove that they know the job's secret (see `hello.rs`).
//!
//! The stream itself never waits. A thread that has nothing else to do waits for descriptors
//! ([`poll`](super::poll)).
//!
//! - TCP-1: what a stranger sends costs that connection, and nobody else anything.
//! - TCP-2: a link is in non-blocking mode and sends small messages at once (no Nagle delay).

#![expect(
    unsafe_code,
    reason = "send and recv take raw pointers here, because a buffer may be shared with peers"
)]

mod bundle;
mod connector;
mod hello;
mod listener;

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

pub use self::bundle::{Bundle, LANES_MAX};
pub use self::connector::{Connector, connect};
pub use self::hello::{LinkName, Refusal, SECRET_BYTES};
pub use self::listener::{Listener, ParkedKey};
use super::stream::{LinkError, LinkKind, Source, Stream, Target};

/// Bytes that a link reads ahead: the frame and the payload of a small message in one system call.
const INBOX_BYTES: usize = 16 * 1024;

/// One end of a connection between two ranks that trust each other.
pub struct TcpLink {
    /// Gone after a reset.
    socket: Option<TcpStream>,
    /// Bytes read ahead: `inbox[taken..filled]`.
    inbox: Box<[u8]>,
    taken: usize,
    filled: usize,
    /// Connections of the stream that this one is part of, as the connector said.
    lanes: u8,
    /// The first error that ends both directions.
    dead: Option<LinkError>,
}

impl TcpLink {
    /// A link over a connection whose handshake is through.
    fn new(socket: TcpStream) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket: Some(socket),
            inbox: vec![0; INBOX_BYTES].into_boxed_slice(),
            taken: 0,
            filled: 0,
            lanes: 1,
            dead: None,
        })
    }

    /// Connections of the stream that this one is part of.
    #[must_use]
    pub fn lanes(&self) -> u8 {
        self.lanes
    }

    /// Two connected links of one process, without listener and handshake. For ranks that are
    /// threads, and for tests.
    ///
    /// # Errors
    /// Whatever the system says to two sockets on the loopback interface.
    pub fn pair() -> io::Result<(Self, Self)> {
        let listener = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0))?;
        let near = TcpStream::connect(listener.local_addr()?)?;
        // Somebody else on this host might have connected in between.
        loop {
            let (far, from) = listener.accept()?;
            if from == near.local_addr()? {
                return Ok((Self::new(near)?, Self::new(far)?));
            }
        }
    }

    /// Whether the peer has closed, as far as can be told without taking bytes.
    fn is_stale(&self) -> bool {
        let Some(socket) = &self.socket else {
            return true;
        };
        match socket.peek(&mut [0]) {
            Ok(len) => len == 0,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }

    /// One `recv` into `target`, which is not empty.
    fn recv(socket: &TcpStream, mut target: Target<'_>) -> Result<usize, LinkError> {
        loop {
            // SAFETY: the target is writable for its length and nobody else in this process
            // touches it; the kernel writes within that length.
            let got = unsafe {
                libc::recv(
                    socket.as_raw_fd(),
                    target.as_mut_ptr().cast(),
                    target.len(),
                    0,
                )
            };
            match usize::try_from(got) {
                Ok(0) => return Err(LinkError::Closed),
                Ok(len) => return Ok(len),
                Err(_) => match link_error(&io::Error::last_os_error()) {
                    Ok(again) if again => {}
                    Ok(_) => return Ok(0),
                    Err(error) => return Err(error),
                },
            }
        }
    }

    /// One `send` from `source`, which is not empty.
    fn send(socket: &TcpStream, source: Source<'_>) -> Result<usize, LinkError> {
        loop {
            // SAFETY: the source is readable for its length, and the kernel only reads. The flag
            // keeps a closed peer from raising SIGPIPE.
            let sent = unsafe {
                libc::send(
                    socket.as_raw_fd(),
                    source.as_ptr().cast(),
                    source.len(),
                    libc::MSG_NOSIGNAL,
                )
            };
            match usize::try_from(sent) {
                Ok(len) => return Ok(len),
                Err(_) => match link_error(&io::Error::last_os_error()) {
                    Ok(again) if again => {}
                    Ok(_) => return Ok(0),
                    Err(error) => return Err(error),
                },
            }
        }
    }

    /// Serves `target` from the inbox.
    fn unload(&mut self, mut target: Target<'_>) -> usize {
        let len = target.copy_from(&self.inbox[self.taken..self.filled]);
        self.taken += len;
        len
    }
}

/// What a failed call means: try again at once, nothing to do now, or the end of the link.
fn link_error(error: &io::Error) -> Result<bool, LinkError> {
    let raw = error.raw_os_error();
    if raw == Some(libc::EAGAIN) || raw == Some(libc::EWOULDBLOCK) {
        return Ok(false);
    }
    match raw {
        Some(libc::EINTR) => Ok(true),
        Some(libc::EPIPE) => Err(LinkError::Closed),
        Some(libc::ECONNRESET | libc::ECONNABORTED) => Err(LinkError::Reset),
        Some(_) | None => Err(LinkError::Io(error.kind())),
    }
}

impl Stream for TcpLink {
    fn write_from(&mut self, source: Source<'_>) -> Result<usize, LinkError> {
        if let Some(error) = self.dead {
            return Err(error);
        }
        let Some(socket) = &self.socket else {
            return Err(LinkError::Reset);
        };
        if source.is_empty() {
            return Ok(0);
        }
        let result = Self::send(socket, source);
        // What the peer wrote before it closed is still to be read.
        if let Err(error) = result
            && error != LinkError::Closed
        {
            self.dead = Some(error);
        }
        result
    }

    fn read_into(&mut self, target: Target<'_>) -> Result<usize, LinkError> {
        if self.taken < self.filled {
            return Ok(self.unload(target));
        }
        if let Some(error) = self.dead {
            return Err(error);
        }
        let Some(socket) = &self.socket else {
            return Err(LinkError::Reset);
        };
        // To the kernel an empty target and a closed peer look alike.
        if target.is_empty() {
            return Ok(0);
        }
        let direct = target.len() >= self.inbox.len();
        let result = if direct {
            Self::recv(socket, target)
        } else {
            Self::recv(socket, Target::from(&mut self.inbox[..])).map(|len| {
                (self.taken, self.filled) = (0, len);
                self.unload(target)
            })
        };
        if let Err(error) = result {
            self.dead = Some(error);
        }
        result
    }

    fn kind(&self) -> LinkKind {
        LinkKind::Tcp
    }

    fn reset(&mut self) {
        self.dead = Some(LinkError::Reset);
        (self.taken, self.filled) = (0, 0);
        if let Some(socket) = self.socket.take() {
            // Without lingering, closing sends a reset. If it cannot be set the peer sees a close.
            let _ = socket2::SockRef::from(&socket).set_linger(Some(std::time::Duration::ZERO));
        }
    }

    fn descriptor(&self, _write: bool) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }
}

impl fmt::Debug for TcpLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpLink")
            .field("socket", &self.socket)
            .field("read_ahead", &(self.filled - self.taken))
            .field("dead", &self.dead)
            .finish()
    }
}

/// Why there is no link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TcpError {
    /// The listener cannot be set up.
    #[error("cannot listen on {addr}: {error}")]
    Bind {
        /// Where.
        addr: SocketAddr,
        /// What the system says.
        error: io::ErrorKind,
    },
    /// The connection failed before or during the handshake.
    #[error("cannot connect to {addr}: {error}")]
    Connect {
        /// Where.
        addr: SocketAddr,
        /// What the system says.
        error: io::ErrorKind,
    },
    /// What listens there does not know the job's secret, or speaks something else.
    #[error("{addr} is no rank of this job: it did not prove the job's secret")]
    Impostor {
        /// Where.
        addr: SocketAddr,
    },
    /// The peer refused the link.
    #[error("{addr} refused the link: {reason}")]
    Refused {
        /// Where.
        addr: SocketAddr,
        /// Why.
        reason: Refusal,
    },
    /// A system call failed that does not depend on a peer.
    #[error("{what} failed: {error}")]
    System {
        /// The call.
        what: &'static str,
        /// What the system says.
        error: io::ErrorKind,
    },
    /// The time was up.
    #[error("{what} took longer than {budget:?}")]
    TimedOut {
        /// What was waited for.
        what: &'static str,
        /// The time that was given.
        budget: std::time::Duration,
    },
}
