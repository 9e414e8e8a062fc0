//! A byte stream over a block of shared memory: two rings, one for each direction.
//!
//! The block belongs to the caller (a piece of a rank's region, or of the heap in tests). One side
//! creates the stream in it, the other attaches to it. This file knows nothing about regions,
//! descriptors or waking a peer that sleeps.
//!
//! ```text
//! block: [header 0][header 1][capacity bytes of ring 0][capacity bytes of ring 1]
//!        the creator writes ring 0 and reads ring 1
//! ```
//!
//! `head` counts the bytes ever written, `tail` the bytes ever read; they lie on lines of their
//! own, since each is written by one side. A capacity need not be a power of two.
//!
//! RING-1 to 3 stand in `cursor`, which says who publishes what when; `block` says who may use the memory.

#![expect(
    unsafe_code,
    reason = "shared memory is reached through raw pointers and atomics, never through slices"
)]

mod block;
pub(crate) mod cursor;
mod error;

use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use self::cursor::{CLOSED, Cursor, OPEN, PeerError, RESET, Told};
pub use self::error::RingError;
use super::stream::{LinkError, LinkKind, Source, Stream, Target};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Alignment that a block must have: a cache line.
pub const BLOCK_ALIGN: usize = 64;

/// Largest capacity of one direction. More than any cache holds only makes messages colder.
pub const CAPACITY_MAX: usize = 1 << 30;

/// What one side writes about one ring.
///
/// 128 bytes apart rather than 64: processors fetch lines in pairs.
#[repr(C, align(64))]
struct End {
    /// Bytes ever written (the writer's end) or read (the reader's end).
    index: AtomicU64,
    /// `OPEN`, `CLOSED` or `RESET`.
    state: AtomicU32,
    padding: [u8; 116],
}

/// The shared part of one ring.
#[repr(C, align(64))]
struct Header {
    /// The state of the block; of ring 0 only.
    block: AtomicU32,
    padding: [u8; 124],
    /// Written by the writer only.
    writer: End,
    /// Written by the reader only.
    reader: End,
}

const _: () = assert!(size_of::<End>() == 128);
const _: () = assert!(size_of::<Header>() == 384);
const _: () = assert!(align_of::<Header>() == BLOCK_ALIGN);

/// Bytes of a block that are not ring.
const HEADERS: usize = 2 * size_of::<Header>();

/// One side's view of one ring: the places in shared memory and the numbers it trusts.
struct Half {
    /// Written by me.
    mine: NonNull<End>,
    /// Written by the peer.
    theirs: NonNull<End>,
    data: NonNull<u8>,
    cursor: Cursor,
}

/// What a side tells of a ring.
fn told(end: &NonNull<End>) -> Told<'_> {
    // SAFETY: `RingStream` keeps the block alive, and the header was initialised before the Half was made; an End
    // consists of atomics and padding, so sharing it is sound, and whatever the peer stores into an atomic is a valid value.
    let end = unsafe { end.as_ref() };
    Told {
        index: &end.index,
        state: &end.state,
    }
}

impl Half {
    /// The longest run of ring bytes from my place on that holds at most `len`, as an address.
    fn run(&self, len: usize) -> (NonNull<u8>, usize) {
        let (place, len) = self.cursor.run(len);
        // SAFETY: the place is less than the capacity, and the ring has so many bytes in one allocation.
        let start = unsafe { self.data.add(place) };
        (start, len)
    }

    fn advance(&mut self, len: usize) {
        self.cursor.advance(told(&self.mine), len);
    }

    /// Copies from `source` into the ring as much as fits.
    fn put(&mut self, source: Source<'_>) -> Result<usize, LinkError> {
        if told(&self.theirs).state()? == CLOSED {
            return Err(LinkError::Closed);
        }
        let len = self.cursor.room(told(&self.theirs), source.len())?;
        let mut done = 0;
        while done < len {
            let (start, run) = self.run(len - done);
            let piece = source.skip(done).first(run);
            // SAFETY: `run` bytes of the ring begin at `start`; RING-1 was checked, so they lie in
            // the free part, which the peer does not touch until `advance` publishes them; the
            // source is readable and, being somebody else's memory, does not overlap the ring.
            unsafe { std::ptr::copy_nonoverlapping(piece.as_ptr(), start.as_ptr(), piece.len()) };
            self.advance(piece.len());
            done += piece.len();
        }
        Ok(done)
    }

    /// Copies from the ring into `target` as much as there is.
    fn take(&mut self, mut target: Target<'_>) -> Result<usize, LinkError> {
        // The state first: what was written before the peer closed is then seen.
        let state = told(&self.theirs).state()?;
        let there = self.cursor.there(told(&self.theirs), target.len())?;
        if there == 0 && state == CLOSED {
            return Err(LinkError::Closed);
        }
        let len = there.min(target.len());
        let mut done = 0;
        while done < len {
            let (start, run) = self.run(len - done);
            let place = target.as_mut_ptr().wrapping_add(done);
            // SAFETY: RING-1 was checked, so `run` published bytes begin at `start` and the peer
            // does not touch them until `advance` frees them; `done + run <= target.len()`, so the
            // target is writable there, and it does not overlap the ring.
            unsafe { std::ptr::copy_nonoverlapping(start.as_ptr(), place, run) };
            self.advance(run);
            done += run;
        }
        Ok(done)
    }
}

/// What keeps a block mapped: dropped with the stream, after its last access.
pub type Keep = Arc<dyn Any + Send + Sync>;

/// One side of a stream over shared memory.
pub struct RingStream {
    send: Half,
    recv: Half,
    /// The first error; it is final.
    dead: Option<LinkError>,
    /// Whether this side tore the link down.
    torn: bool,
    _keep: Keep,
}

// SAFETY: the pointers lead into the block, which `_keep` (Send) holds in place; each side is used
// by one thread at a time through `&mut self`, and the sides meet in atomics only.
unsafe impl Send for RingStream {}

impl RingStream {
    /// Bytes of a block whose rings hold `capacity` bytes each.
    #[must_use]
    pub const fn block_bytes(capacity: usize) -> usize {
        HEADERS + 2 * capacity
    }

    /// Makes the stream in a block and takes its first side. The capacity is what the block holds.
    ///
    /// # Safety
    /// - `block` leads to `len` bytes, readable and writable until `keep` is dropped.
    /// - Nobody else touches the block before the other side attaches, and from then on only it.
    ///
    /// # Errors
    /// [`RingError`] if the block is misaligned, too small or too large.
    pub unsafe fn create(block: *mut u8, len: usize, keep: Keep) -> Result<Self, RingError> {
        let (headers, capacity) = headers_of(block, len)?;
        for ring in 0..2 {
            // SAFETY: `headers_of` checked that the block is aligned and holds two headers.
            let header = unsafe { headers.add(ring) };
            let fresh = Header {
                block: AtomicU32::new(0),
                padding: [0; 124],
                writer: End::new(),
                reader: End::new(),
            };
            // SAFETY: the caller gives us these bytes; nobody looks at them before the block is open.
            unsafe { header.write(fresh) };
        }
        // SAFETY: the header was written just now.
        let header = unsafe { headers.as_ref() };
        block::open(&header.block);
        Ok(Self::side(headers, capacity, false, keep))
    }

    /// Takes the second side of a stream that the peer made in this block.
    ///
    /// # Safety
    /// - `block` leads to `len` bytes, readable and writable until `keep` is dropped.
    /// - They are the bytes that the peer created the stream in, or have never held a stream and
    ///   are initialised.
    ///
    /// # Errors
    /// [`RingError::NotCreated`] if there is no stream yet, [`RingError::InUse`] if its second
    /// side was taken before, others if the block is misaligned, too small or too large.
    pub unsafe fn attach(block: *mut u8, len: usize, keep: Keep) -> Result<Self, RingError> {
        let (headers, capacity) = headers_of(block, len)?;
        // SAFETY: aligned and large enough (`headers_of`), initialised (the caller), all atomics
        // and padding.
        let header = unsafe { headers.as_ref() };
        match block::attach(&header.block) {
            Ok(()) => Ok(Self::side(headers, capacity, true, keep)),
            Err(block::ATTACHED) => Err(RingError::InUse),
            Err(_) => Err(RingError::NotCreated),
        }
    }

    /// Whether the creator of a block, whose own side is closed, may use its memory for something
    /// else: the other side has closed too, or was never taken and now never can be. A ring that
    /// holds bytes waits for its other side, since they were sent.
    ///
    /// # Safety
    /// As for [`RingStream::attach`]; and the caller made the stream in this block.
    #[must_use]
    pub unsafe fn is_over(block: *mut u8, len: usize) -> bool {
        let Ok((headers, _)) = headers_of(block, len) else {
            return true;
        };
        // SAFETY: aligned and large enough (`headers_of`), initialised by `create`.
        let first = unsafe { headers.as_ref() };
        // SAFETY: the block holds two headers.
        let second = unsafe { headers.add(1) };
        // SAFETY: initialised by `create`, as the first.
        let second = unsafe { second.as_ref() };
        let ends = [&first.writer, &first.reader, &second.writer, &second.reader];
        block::is_over(
            &first.block,
            &first.writer.index,
            ends.map(|end| &end.state),
        )
    }

    /// Whether the other side has read all that the creator of a block wrote.
    ///
    /// # Safety
    /// As for [`RingStream::is_over`].
    #[must_use]
    pub unsafe fn is_read(block: *mut u8, len: usize) -> bool {
        let Ok((headers, _)) = headers_of(block, len) else {
            return true;
        };
        // SAFETY: aligned and large enough (`headers_of`), initialised by `create`.
        let first = unsafe { headers.as_ref() };
        // Relaxed twice: both are counts, and nothing is read by them.
        let written = first.writer.index.load(Ordering::Relaxed);
        written == first.reader.index.load(Ordering::Relaxed)
    }

    /// The view of one side. `second` writes ring 1 and reads ring 0.
    fn side(headers: NonNull<Header>, capacity: usize, second: bool, keep: Keep) -> Self {
        let half = |ring: usize, writes: bool| {
            // SAFETY: `ring` is 0 or 1, and the block begins with two headers.
            let header = unsafe { headers.add(ring) };
            // SAFETY: two headers are followed by two rings of `capacity` bytes.
            let data = unsafe { headers.add(2) }.cast::<u8>();
            // SAFETY: `ring * capacity` is within these two rings.
            let data = unsafe { data.add(ring * capacity) };
            // SAFETY: both headers are initialised, by `create`.
            let header = unsafe { header.as_ref() };
            let (writer, reader) = (NonNull::from(&header.writer), NonNull::from(&header.reader));
            let (mine, theirs) = if writes {
                (writer, reader)
            } else {
                (reader, writer)
            };
            Half {
                mine,
                theirs,
                data,
                cursor: Cursor::new(capacity),
            }
        };
        Self {
            send: half(usize::from(second), true),
            recv: half(usize::from(!second), false),
            dead: None,
            torn: false,
            _keep: keep,
        }
    }

    /// Bytes that each direction holds.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.send.cursor.capacity()
    }

    /// Whether the peer may have found no room before this side read the last `len` bytes; to be asked behind a fence.
    #[must_use]
    pub fn was_full(&self, len: usize) -> bool {
        self.recv.cursor.was_full(told(&self.recv.theirs), len)
    }

    /// Remembers an error for good.
    fn settle(&mut self, result: Result<usize, LinkError>) -> Result<usize, LinkError> {
        if let Err(error) = result {
            self.dead = Some(error);
        }
        result
    }
}

impl From<PeerError> for LinkError {
    fn from(error: PeerError) -> Self {
        match error {
            PeerError::Corrupt {
                what,
                got,
                low,
                high,
            } => Self::Corrupt {
                what,
                got,
                low,
                high,
            },
            PeerError::Reset => Self::Reset,
        }
    }
}

impl End {
    const fn new() -> Self {
        Self {
            index: AtomicU64::new(0),
            state: AtomicU32::new(OPEN),
            padding: [0; 116],
        }
    }
}

/// The headers and the capacity of a block, if it can be one.
fn headers_of(block: *mut u8, len: usize) -> Result<(NonNull<Header>, usize), RingError> {
    let start = NonNull::new(block).ok_or(RingError::Misaligned { address: 0 })?;
    let address = start.addr().get();
    if !address.is_multiple_of(BLOCK_ALIGN) {
        return Err(RingError::Misaligned { address });
    }
    let capacity = len.saturating_sub(HEADERS) / 2;
    if capacity == 0 || capacity > CAPACITY_MAX {
        return Err(RingError::Length { got: len });
    }
    Ok((start.cast(), capacity))
}

impl Stream for RingStream {
    fn write_from(&mut self, source: Source<'_>) -> Result<usize, LinkError> {
        if let Some(error) = self.dead {
            return Err(error);
        }
        let result = self.send.put(source);
        // What the peer wrote before it closed is still to be read.
        if result == Err(LinkError::Closed) {
            return result;
        }
        self.settle(result)
    }

    fn read_into(&mut self, target: Target<'_>) -> Result<usize, LinkError> {
        if let Some(error) = self.dead {
            return Err(error);
        }
        let result = self.recv.take(target);
        self.settle(result)
    }

    fn kind(&self) -> LinkKind {
        LinkKind::Shm
    }

    fn stop_reading(&mut self) {
        told(&self.recv.mine).stop_reading();
    }

    fn has_lost(&self) -> bool {
        self.send.cursor.has_lost(told(&self.send.theirs))
    }

    fn reset(&mut self) {
        self.dead = Some(LinkError::Reset);
        self.torn = true;
        told(&self.send.mine).leave(RESET);
        told(&self.recv.mine).leave(RESET);
    }
}

impl Drop for RingStream {
    fn drop(&mut self) {
        if !self.torn {
            told(&self.send.mine).leave(CLOSED);
            told(&self.recv.mine).leave(CLOSED);
        }
    }
}

impl fmt::Debug for RingStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingStream")
            .field("capacity", &self.capacity())
            .field("written", &self.send.cursor.index())
            .field("read", &self.recv.cursor.index())
            .field("dead", &self.dead)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
