//! One side's place in one ring: what it has done, how far the other side is, and when who sees what.
//!
//! It counts, and touches no data. A model checker runs this file, so it needs nothing but atomics.
//!
//! - RING-1: `tail <= head <= tail + capacity`, and both only grow. A peer's index that breaks
//!   this is [`PeerError::Corrupt`] and never becomes an address.
//! - RING-2: a side never reads its own index or place back from shared memory.
//! - RING-3: `head` is published after the bytes, `tail` after they were copied out, and `closed`
//!   after the last `head`.

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// A side's state: at work.
pub(crate) const OPEN: u32 = 0;
/// A side's state: nothing follows what was written.
pub(crate) const CLOSED: u32 = 1;
/// A side's state: torn down.
pub(crate) const RESET: u32 = 2;

/// What one side tells of one ring; only it writes there.
#[derive(Clone, Copy)]
pub(crate) struct Told<'a> {
    /// Units ever written (by the writer) or read (by the reader).
    pub(crate) index: &'a AtomicU64,
    /// [`OPEN`], [`CLOSED`] or [`RESET`].
    pub(crate) state: &'a AtomicU32,
}

/// What is wrong with the peer's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerError {
    /// A number that cannot be: what it is, and between which it must lie.
    Corrupt {
        what: &'static str,
        got: u64,
        low: u64,
        high: u64,
    },
    /// It tore the link down.
    Reset,
}

/// One side's place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor {
    capacity: usize,
    /// My index; shared memory only ever gets a copy.
    index: u64,
    /// `index` modulo the capacity, kept by adding so that no byte costs a division.
    place: usize,
    /// The peer's index when it was last looked at.
    seen: u64,
}

impl Told<'_> {
    /// Says that this side is done; a reset is never taken back.
    pub(crate) fn leave(self, state: u32) {
        // SYNC: Release pairs with the Acquire load in `state`: the last index comes first.
        self.state.store(state, Ordering::Release);
    }

    /// The peer's state. Read before its index: what it wrote before closing is then seen.
    pub(crate) fn state(self) -> Result<u32, PeerError> {
        // SYNC: Acquire pairs with the Release store in `leave`.
        match self.state.load(Ordering::Acquire) {
            RESET => Err(PeerError::Reset),
            state @ (OPEN | CLOSED) => Ok(state),
            garbage => Err(PeerError::Corrupt {
                what: "state",
                got: u64::from(garbage),
                low: u64::from(OPEN),
                high: u64::from(RESET),
            }),
        }
    }

    /// Says that this side reads no more. It looks once more after that: then it finds the last message, or the sender
    /// finds that it is lost.
    pub(crate) fn stop_reading(self) {
        self.leave(CLOSED);
        // SYNC: pairs with the fence in `has_lost`.
        fence(Ordering::SeqCst);
    }
}

impl Cursor {
    /// At the beginning of a ring of so many units, which are not none.
    pub(crate) const fn new(capacity: usize) -> Self {
        Self {
            capacity,
            index: 0,
            place: 0,
            seen: 0,
        }
    }

    pub(crate) const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Units that this side has written or read.
    pub(crate) const fn index(&self) -> u64 {
        self.index
    }

    /// Where this side goes on, and how many of `len` units lie there in one run.
    pub(crate) fn run(&self, len: usize) -> (usize, usize) {
        debug_assert!(self.place < self.capacity);
        (self.place, len.min(self.capacity - self.place))
    }

    /// For the writer: how many of `len` units have room.
    pub(crate) fn room(&mut self, reader: Told<'_>, len: usize) -> Result<usize, PeerError> {
        if self.capacity as u64 - (self.index - self.seen) < len as u64 {
            self.look("tail", reader, self.index)?;
        }
        let used = crate::types::index(self.index - self.seen);
        Ok(len.min(self.capacity - used))
    }

    /// For the reader, who wants `len` units: how many are there at least.
    pub(crate) fn there(&mut self, writer: Told<'_>, len: usize) -> Result<usize, PeerError> {
        if self.seen - self.index < len as u64 {
            self.look("head", writer, self.index + self.capacity as u64)?;
        }
        Ok(crate::types::index(self.seen - self.index))
    }

    /// For the reader: whether the writer may have seen a full ring before the last `len` units were read. Behind a fence.
    pub(crate) fn was_full(&self, writer: Told<'_>, len: usize) -> bool {
        // Relaxed: ordered by the fence, with that of the writer before it looked for the last time.
        let written = writer.index.load(Ordering::Relaxed);
        written.wrapping_sub(self.index - len as u64) >= self.capacity as u64
    }

    /// Publishes that `len` more units are done, which lie in one run.
    pub(crate) fn advance(&mut self, mine: Told<'_>, len: usize) {
        self.index += len as u64;
        self.place += len;
        if self.place >= self.capacity {
            self.place -= self.capacity;
        }
        // SYNC: Release pairs with the Acquire load in `look` of the peer.
        mine.index.store(self.index, Ordering::Release);
    }

    /// For the writer: whether what it wrote is certain never to be read.
    pub(crate) fn has_lost(&self, reader: Told<'_>) -> bool {
        // SYNC: pairs with the fence in `stop_reading`.
        fence(Ordering::SeqCst);
        reader.state() == Ok(CLOSED)
            // Relaxed: a count, and nothing is read by it.
            && reader.index.load(Ordering::Relaxed) != self.index
    }

    /// Looks at the peer's index, which must lie between what was seen last and `high`.
    fn look(&mut self, what: &'static str, peer: Told<'_>, high: u64) -> Result<(), PeerError> {
        // SYNC: Acquire pairs with the Release store in `advance` of the peer: it makes its units
        // (or the end of its copying) visible.
        let got = peer.index.load(Ordering::Acquire);
        if got < self.seen || got > high {
            return Err(PeerError::Corrupt {
                what,
                got,
                low: self.seen,
                high,
            });
        }
        self.seen = got;
        Ok(())
    }
}
