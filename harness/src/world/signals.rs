//! Ctrl-C and its relatives, as something that a loop can wait for.
//!
//! A signal becomes a byte in a socket; no code of ours runs in a handler.

use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

use crate::fail::Failure;

/// Requests to stop that arrived so far. Made once by a command that starts or joins ranks.
#[derive(Debug)]
pub struct Interrupts {
    reader: UnixStream,
    seen: Mutex<usize>,
}

impl Interrupts {
    /// Takes over SIGINT, SIGTERM and SIGHUP for the rest of the process.
    ///
    /// # Errors
    /// A failure of class RESOURCE where the socket cannot be made.
    pub fn install() -> Result<Self, Failure> {
        Self::of(&[SIGINT, SIGTERM, SIGHUP])
    }

    /// Takes over these signals for the rest of the process.
    ///
    /// # Errors
    /// As [`Self::install`].
    pub fn of(signals: &[i32]) -> Result<Self, Failure> {
        let broken =
            |error: std::io::Error| Failure::resource(format!("signals cannot be caught: {error}"));
        let (reader, writer) = UnixStream::pair().map_err(broken)?;
        reader.set_nonblocking(true).map_err(broken)?;
        for signal in signals {
            let writer = writer.try_clone().map_err(broken)?;
            pipe::register(*signal, writer).map_err(broken)?;
        }
        Ok(Self {
            reader,
            seen: Mutex::new(0),
        })
    }

    /// How many requests to stop have arrived since the start.
    #[must_use]
    pub fn count(&self) -> usize {
        let fresh = self.take_new();
        let seen = *self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        // What this very call took is counted already.
        seen.max(fresh)
    }

    /// How many arrived since somebody last asked.
    #[must_use]
    pub fn take_new(&self) -> usize {
        let mut bytes = [0_u8; 64];
        let mut fresh = 0;
        loop {
            match (&self.reader).read(&mut bytes) {
                Ok(0) => break,
                Ok(count) => fresh += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) += fresh;
        fresh
    }
}

impl AsFd for Interrupts {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}
