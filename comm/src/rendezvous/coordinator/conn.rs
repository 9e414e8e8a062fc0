//! One connection of the coordinator: its bytes in both directions and how far it has come.
//!
//! Never blocks. Knows frames and seals; not what messages mean.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, Write};
use std::net::{IpAddr, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use rustix::net::{SendAncillaryBuffer, SendFlags, send, sendmsg};

use crate::rendezvous::limits::{HANDSHAKE_FRAME_BYTES_MAX, JOINER_FRAME_BYTES_MAX};
use crate::rendezvous::secret::{Seal, Transcript};
use crate::rendezvous::wire::{Body, HEAD_BYTES, Inbox, WireError};
use crate::strangers::Stranger;
use crate::types::Rank;

/// How far a connection has come.
pub(super) enum Stage {
    /// Nothing was said yet.
    Opening,
    /// The challenge is out; the joiner's proof is to come.
    Proving(Box<Proving>),
    /// The secret is proved; the introduction is to come.
    Introducing,
    /// A rank of the job.
    Joined(Rank),
    /// Told why it is not wanted; what it still says is not read.
    Draining,
}

/// What the joiner's proof is checked against.
pub(super) struct Proving {
    pub(super) transcript: Transcript,
    pub(super) attempt: u32,
    pub(super) job_id: String,
}

/// The seals of both directions, once the secret is proved.
pub(super) struct Seals {
    pub(super) read: Seal,
    pub(super) write: Seal,
}

/// One connection.
pub(super) struct Conn {
    /// As long as the secret is not proved. The first field: it is dropped before the stream.
    stranger: Option<Stranger>,
    pub(super) stream: TcpStream,
    pub(super) address: IpAddr,
    pub(super) stage: Stage,
    pub(super) seals: Option<Box<Seals>>,
    /// When the connection is dropped, if it has not come further by then.
    pub(super) until: Option<Instant>,
    /// Whether the poller watches for room to write.
    pub(super) is_write_watched: bool,
    inbox: Inbox,
    outbox: Outbox,
}

/// What one read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// Something.
    Some,
    /// Nothing for now.
    Nothing,
    /// The end of the stream.
    End,
}

impl Conn {
    pub(super) fn new(stream: TcpStream, address: IpAddr, until: Instant) -> Self {
        Self {
            stream,
            address,
            stage: Stage::Opening,
            seals: None,
            until: Some(until),
            stranger: Some(Stranger::new()),
            is_write_watched: false,
            inbox: Inbox::default(),
            outbox: Outbox::default(),
        }
    }

    /// The secret is proved.
    pub(super) fn let_in(&mut self, seals: Seals) {
        self.seals = Some(Box::new(seals));
        self.stage = Stage::Introducing;
        self.stranger = None;
    }

    /// Whether the secret is still to be proved.
    pub(super) fn is_stranger(&self) -> bool {
        matches!(self.stage, Stage::Opening | Stage::Proving(_))
    }

    /// Takes one read's worth of bytes; of strangers no more than the longest honest frame.
    pub(super) fn read(&mut self, scratch: &mut [u8]) -> io::Result<Read> {
        let room = match self.stage {
            Stage::Opening | Stage::Proving(_) => HANDSHAKE_FRAME_BYTES_MAX,
            Stage::Draining | Stage::Introducing | Stage::Joined(_) => scratch.len(),
        };
        loop {
            return match self.inbox.fill(&mut self.stream, &mut scratch[..room]) {
                Ok(0) => Ok(Read::End),
                Ok(_) => Ok(Read::Some),
                Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Read::Nothing),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
        }
    }

    /// The next frame that is complete.
    pub(super) fn frame(&mut self) -> Result<Option<Vec<u8>>, WireError> {
        match (&self.stage, &mut self.seals) {
            (Stage::Draining, _) => {
                self.inbox = Inbox::default();
                Ok(None)
            }
            (_, Some(seals)) => self.inbox.sealed(&mut seals.read, JOINER_FRAME_BYTES_MAX),
            (_, None) => self.inbox.plain(),
        }
    }

    /// Queues a frame of the handshake.
    pub(super) fn queue_plain(&mut self, frame: Vec<u8>) {
        self.outbox.push([0; HEAD_BYTES], 0, frame.into());
    }

    /// Queues a sealed frame. Nothing happens before the secret is proved.
    pub(super) fn queue(&mut self, body: &Body) {
        if let Some(seals) = &mut self.seals {
            let head = body.head(&mut seals.write);
            self.outbox.push(head, HEAD_BYTES, Arc::clone(&body.bytes));
        }
    }

    /// Bytes that wait to be written.
    pub(super) fn queued_bytes(&self) -> usize {
        self.outbox.bytes
    }

    /// Writes what the socket takes. Says whether everything is written.
    pub(super) fn flush(&mut self) -> io::Result<bool> {
        self.outbox.flush(&mut Quiet(&self.stream))
    }
}

/// Writes to a stream whose other end may be gone: an error, and never SIGPIPE, which ends a program that is
/// not Rust's (the library may be loaded by one).
struct Quiet<'a>(&'a TcpStream);

impl Write for Quiet<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut nothing = SendAncillaryBuffer::default();
        Ok(sendmsg(self.0, parts, &mut nothing, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Frames that wait to be written. Bodies are shared: a roster for a thousand ranks exists once.
#[derive(Default)]
struct Outbox {
    chunks: VecDeque<Chunk>,
    /// Bytes of the first chunk that are written.
    sent: usize,
    bytes: usize,
}

struct Chunk {
    head: [u8; HEAD_BYTES],
    head_bytes: usize,
    body: Arc<[u8]>,
}

impl Outbox {
    fn push(&mut self, head: [u8; HEAD_BYTES], head_bytes: usize, body: Arc<[u8]>) {
        self.bytes += head_bytes + body.len();
        self.chunks.push_back(Chunk {
            head,
            head_bytes,
            body,
        });
    }

    fn flush(&mut self, target: &mut impl Write) -> io::Result<bool> {
        while let Some(chunk) = self.chunks.front() {
            let head = &chunk.head[self.sent.min(chunk.head_bytes)..chunk.head_bytes];
            let body = &chunk.body[self.sent.saturating_sub(chunk.head_bytes)..];
            match target.write_vectored(&[IoSlice::new(head), IoSlice::new(body)]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.bytes -= count;
                    self.sent += count;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if self.sent == chunk.head_bytes + chunk.body.len() {
                self.chunks.pop_front();
                self.sent = 0;
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    #![expect(unsafe_code, reason = "blocks a signal and looks whether it came")]

    use std::mem::MaybeUninit;
    use std::net::TcpListener;

    use super::*;
    use crate::sync::Deadline;

    /// Takes a few bytes a call, and every third call none.
    struct Trickle {
        taken: Vec<u8>,
        calls: usize,
    }

    impl Write for Trickle {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.calls += 1;
            if self.calls.is_multiple_of(3) {
                return Err(ErrorKind::WouldBlock.into());
            }
            let count = bytes.len().min(3);
            self.taken.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_outbox_writes_everything_once_and_in_order_however_little_is_taken() {
        let mut outbox = Outbox::default();
        let mut expected = Vec::new();
        for (at, length) in [(1, 0), (2, 7), (3, 1)] {
            outbox.push([at; HEAD_BYTES], HEAD_BYTES, vec![at; length].into());
            expected.extend(vec![at; HEAD_BYTES + length]);
        }
        outbox.push([9; HEAD_BYTES], 0, vec![4; 5].into());
        expected.extend([4; 5]);
        assert_eq!(outbox.bytes, expected.len());
        let mut target = Trickle {
            taken: Vec::new(),
            calls: 0,
        };
        let rounds = (0..1000)
            .take_while(|_| !outbox.flush(&mut target).unwrap())
            .count();
        assert!(rounds > 5);
        assert_eq!(target.taken, expected);
        assert_eq!(outbox.bytes, 0);
    }

    /// Whether SIGPIPE came while this thread did something. It is blocked meanwhile: a blocked signal stays
    /// pending even where it is ignored, as in every program of Rust.
    fn raises_sigpipe(act: impl FnOnce()) -> bool {
        let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
        let mut pending = MaybeUninit::<libc::sigset_t>::zeroed();
        let (place, came) = (set.as_mut_ptr(), pending.as_mut_ptr());
        let none = std::ptr::null_mut();
        // SAFETY: `place` has room for a set of signals.
        let emptied = unsafe { libc::sigemptyset(place) };
        // SAFETY: as above, and it is a set now.
        let added = unsafe { libc::sigaddset(place, libc::SIGPIPE) };
        // SAFETY: it changes this thread alone, and is undone below.
        let blocked = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, place, none) };
        act();
        // SAFETY: `came` has room for a set of signals.
        let looked = unsafe { libc::sigpending(came) };
        // SAFETY: `sigpending` made it a set.
        let has_come = unsafe { libc::sigismember(came, libc::SIGPIPE) } == 1;
        // SAFETY: as for the first change.
        let undone = unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, place, none) };
        assert_eq!([emptied, added, blocked, looked, undone], [0; 5]);
        has_come
    }

    #[test]
    fn a_rank_that_is_gone_is_an_error_and_no_signal() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        drop(listener.accept().unwrap());
        let mut conn = Conn::new(stream, [127, 0, 0, 1].into(), crate::sync::Clock::now());
        let patience = Deadline::after(std::time::Duration::from_secs(20));
        let write_until_it_fails = || {
            // What is written first is answered by a reset; then there is nobody to write to.
            loop {
                conn.outbox
                    .push([0; HEAD_BYTES], HEAD_BYTES, vec![1; 9].into());
                match conn.flush() {
                    Err(error) if error.kind() == ErrorKind::BrokenPipe => return,
                    Ok(_) | Err(_) => assert!(!patience.passed(), "nobody reads, and no error"),
                }
            }
        };
        assert!(!raises_sigpipe(write_until_it_fails));
    }
}
