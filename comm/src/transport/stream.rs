//! The byte stream: what every transport offers and all that the host engine asks for.
//!
//! A group makes its streams on first use and shares them with no other group, so a slow group
//! never delays another one, and back-pressure needs no protocol: a stream that is full takes
//! nothing.
//!
//! Invariants, held by every implementation and tested by one suite for all of them:
//! - STREAM-1: no call blocks or spins. A call that can do nothing now returns 0.
//! - STREAM-2: bytes arrive in the order in which they were written, each exactly once.
//! - STREAM-3: what was written before a close is readable after it; only then does the reader get
//!   [`LinkError::Closed`]. A reset may lose what is underway.
//! - STREAM-4: an error is final for its direction. A peer that closed takes nothing more, but what
//!   it wrote before can still be read; after any other error both directions fail.

#![expect(
    unsafe_code,
    reason = "memory that a peer may write must not become a slice, so it travels as pointers"
)]

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;

/// Memory that bytes are taken from. It may be memory that another process can write, which is
/// why it is not a slice: it is only ever copied, and what was copied is what counts.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    start: *const u8,
    len: usize,
    memory: PhantomData<&'a [u8]>,
}

impl<'a> Source<'a> {
    /// The `len` bytes from `start` on.
    ///
    /// # Safety
    /// - The bytes are initialised and readable for as long as `'a`.
    /// - Nobody in this process writes them in that time. Another process that does changes what
    ///   is sent, and nothing else.
    #[must_use]
    pub const unsafe fn new(start: *const u8, len: usize) -> Self {
        Self {
            start,
            len,
            memory: PhantomData,
        }
    }

    /// Number of bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where the bytes begin.
    #[must_use]
    pub const fn as_ptr(&self) -> *const u8 {
        self.start
    }

    /// The first `len` bytes, or all of them if there are fewer.
    #[must_use]
    pub fn first(&self, len: usize) -> Self {
        Self {
            len: len.min(self.len),
            ..*self
        }
    }

    /// The bytes from `skip` on; none if there are fewer.
    #[must_use]
    pub fn skip(&self, skip: usize) -> Self {
        let skip = skip.min(self.len);
        Self {
            start: self.start.wrapping_add(skip),
            len: self.len - skip,
            memory: PhantomData,
        }
    }

    /// Copies as many bytes as both sides hold, from the beginning; returns how many.
    pub fn copy_to(&self, target: &mut [u8]) -> usize {
        let len = self.len.min(target.len());
        // SAFETY: `new` was promised that `self.len >= len` bytes are readable here, the slice has
        // at least `len` bytes, and an exclusive slice overlaps no memory that is readable for 'a.
        unsafe { std::ptr::copy_nonoverlapping(self.start, target.as_mut_ptr(), len) };
        len
    }
}

// SAFETY: a Source is a shared borrow of bytes in all but the type; `&[u8]` is Send, and nothing
// here depends on the thread.
unsafe impl Send for Source<'_> {}

impl<'a> From<&'a [u8]> for Source<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        // SAFETY: the slice is initialised, readable and unwritten for 'a.
        unsafe { Self::new(bytes.as_ptr(), bytes.len()) }
    }
}

impl fmt::Debug for Source<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source({} bytes)", self.len)
    }
}

/// Memory that bytes are put into: the twin of [`Source`].
pub struct Target<'a> {
    start: *mut u8,
    len: usize,
    memory: PhantomData<&'a mut [u8]>,
}

impl<'a> Target<'a> {
    /// The `len` bytes from `start` on.
    ///
    /// # Safety
    /// - The bytes are writable for as long as `'a`.
    /// - Nobody else in this process reads or writes them in that time.
    #[must_use]
    pub const unsafe fn new(start: *mut u8, len: usize) -> Self {
        Self {
            start,
            len,
            memory: PhantomData,
        }
    }

    /// Number of bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no room.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where the bytes begin.
    #[must_use]
    pub const fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start
    }

    /// The first `len` bytes, or all of them if there are fewer.
    #[must_use]
    pub fn first(self, len: usize) -> Self {
        Self {
            len: len.min(self.len),
            ..self
        }
    }

    /// Copies as many bytes as both sides hold, to the beginning; returns how many.
    pub fn copy_from(&mut self, source: &[u8]) -> usize {
        let len = self.len.min(source.len());
        // SAFETY: `new` was promised that `self.len >= len` bytes are writable and touched by
        // nobody else, so they do not overlap the slice, which has at least `len` bytes.
        unsafe { std::ptr::copy_nonoverlapping(source.as_ptr(), self.start, len) };
        len
    }
}

// SAFETY: a Target is an exclusive borrow of bytes in all but the type; `&mut [u8]` is Send.
unsafe impl Send for Target<'_> {}

impl<'a> From<&'a mut [u8]> for Target<'a> {
    fn from(bytes: &'a mut [u8]) -> Self {
        // SAFETY: the slice is writable and exclusive for 'a.
        unsafe { Self::new(bytes.as_mut_ptr(), bytes.len()) }
    }
}

impl fmt::Debug for Target<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({} bytes)", self.len)
    }
}

/// One ordered, reliable, bidirectional byte stream between this rank and one peer, for one group.
///
/// Dropping a stream closes it: the peer can still read what was written before.
pub trait Stream: Send + fmt::Debug {
    /// Takes bytes from the beginning of `source`; returns how many, 0 if there is no room now.
    ///
    /// # Errors
    /// [`LinkError`] once the link is gone or the peer has closed; later calls fail too.
    fn write_from(&mut self, source: Source<'_>) -> Result<usize, LinkError>;

    /// Puts bytes at the beginning of `target`; returns how many, 0 if there are none now.
    ///
    /// # Errors
    /// [`LinkError::Closed`] once everything that the peer wrote before it closed has been read;
    /// other [`LinkError`]s at once.
    fn read_into(&mut self, target: Target<'_>) -> Result<usize, LinkError>;

    /// What the stream runs over.
    fn kind(&self) -> LinkKind;

    /// Tears the link down at once: what is underway may be lost, and the peer gets
    /// [`LinkError::Reset`] instead of waiting. Later calls on this side fail too.
    fn reset(&mut self);

    /// This side takes in nothing more than what is here: what the peer sends from now on it knows as lost.
    fn stop_reading(&mut self) {}

    /// Whether the peer has closed and is known to have left bytes unread that were sent to it, as far as the stream
    /// itself shows it.
    fn has_lost(&self) -> bool {
        false
    }

    /// The descriptor whose readiness tells that a read, or a write, may do something again, where
    /// there is one. After a call that returned 0, waiting for it to become readable (or writable)
    /// misses nothing.
    fn descriptor(&self, write: bool) -> Option<BorrowedFd<'_>> {
        let _ = write;
        None
    }

    /// [`Stream::write_from`] for ordinary memory.
    ///
    /// # Errors
    /// As [`Stream::write_from`].
    fn try_write(&mut self, source: &[u8]) -> Result<usize, LinkError> {
        self.write_from(source.into())
    }

    /// [`Stream::read_into`] for ordinary memory.
    ///
    /// # Errors
    /// As [`Stream::read_into`].
    fn try_read(&mut self, target: &mut [u8]) -> Result<usize, LinkError> {
        self.read_into(target.into())
    }
}

/// What a stream runs over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkKind {
    /// A ring of bytes in shared memory.
    Shm,
    /// The simulated network.
    Sim,
    /// A TCP connection.
    Tcp,
}

impl LinkKind {
    /// The word used in messages and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::Sim => "sim",
            Self::Tcp => "tcp",
        }
    }

    /// Whether bytes can be under way where neither end sees them.
    #[must_use]
    pub const fn is_network(self) -> bool {
        match self {
            Self::Shm => false,
            Self::Sim | Self::Tcp => true,
        }
    }
}

impl fmt::Display for LinkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Why a stream carries no more bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The peer closed its end, and everything it wrote before has been read.
    #[error("the peer closed the link")]
    Closed,
    /// What the peer left in shared memory cannot have come from a working peer.
    #[error("the link's shared state is corrupt: {what} is {got}, expected {low} to {high}")]
    Corrupt {
        /// Which number is out of its range.
        what: &'static str,
        /// Its value.
        got: u64,
        /// The least value it can have.
        low: u64,
        /// The greatest value it can have.
        high: u64,
    },
    /// The operating system reported an error.
    #[error("the link failed: {0}")]
    Io(io::ErrorKind),
    /// The link was torn down; bytes underway may be lost.
    #[error("the link was reset")]
    Reset,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_never_reaches_past_its_end() {
        let bytes = [1u8, 2, 3];
        let source = Source::from(&bytes[..]);
        let mut target = [0u8; 5];
        assert_eq!(source.copy_to(&mut target), 3);
        assert_eq!(target, [1, 2, 3, 0, 0]);
        assert_eq!(source.skip(2).len(), 1);
        assert_eq!(source.skip(2).copy_to(&mut target), 1);
        assert_eq!(target[0], 3);
        assert!(source.skip(4).is_empty());
        assert_eq!(source.first(9).len(), 3);
    }

    #[test]
    fn a_target_takes_no_more_than_it_holds() {
        let mut bytes = [0u8; 3];
        let mut target = Target::from(&mut bytes[..]).first(2);
        assert_eq!(target.len(), 2);
        assert_eq!(target.copy_from(&[7, 8, 9]), 2);
        assert_eq!(bytes, [7, 8, 0]);
    }

    #[test]
    fn link_errors_say_both_what_is_and_what_was_expected() {
        let error = LinkError::Corrupt {
            what: "head",
            got: 9,
            low: 1,
            high: 5,
        };
        assert_eq!(
            error.to_string(),
            "the link's shared state is corrupt: head is 9, expected 1 to 5"
        );
    }
}
