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
//! Invariants:
//! - RING-1: `tail <= head <= tail + capacity`, and both only grow. A peer's index that breaks
//!   this is [`LinkError::Corrupt`] and never becomes an address.
//! - RING-2: a side never reads its own index or place back from shared memory.
//! - RING-3: `head` is published after the bytes, `tail` after they were copied out, and `closed`
//!   after the last `head`.

#![expect(
    unsafe_code,
    reason = "shared memory is reached through raw pointers and atomics, never through slices"
)]

use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use super::stream::{LinkError, LinkKind, Source, Stream, Target};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Alignment that a block must have: a cache line.
pub const BLOCK_ALIGN: usize = 64;

/// Largest capacity of one direction. More than any cache holds only makes messages colder.
pub const CAPACITY_MAX: usize = 1 << 30;

/// A side's state: at work.
const OPEN: u32 = 0;
/// A side's state: nothing follows what was written.
const CLOSED: u32 = 1;
/// A side's state: torn down.
const RESET: u32 = 2;

/// The block's state: created and waiting for the other side. ("ring" read as a number.)
const CREATED: u32 = u32::from_le_bytes(*b"ring");
/// The block's state: both sides are there.
const ATTACHED: u32 = u32::from_le_bytes(*b"RING");

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
    /// `CREATED` or `ATTACHED`; of ring 0 only.
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
    capacity: usize,
    /// My index; shared memory only ever gets a copy.
    index: u64,
    /// `index` modulo the capacity, kept by adding so that no byte costs a division.
    place: usize,
    /// The peer's index when it was last looked at.
    seen: u64,
}

impl Half {
    fn mine(&self) -> &End {
        // SAFETY: `RingStream` keeps the block alive, and the header was initialised before the
        // Half was made; an End consists of atomics and padding, so sharing it is sound.
        unsafe { self.mine.as_ref() }
    }

    fn theirs(&self) -> &End {
        // SAFETY: as in `mine`; whatever the peer stores into an atomic is a valid value.
        unsafe { self.theirs.as_ref() }
    }

    /// The peer's state. Read before its index: what it wrote before closing is then seen.
    fn peer_state(&self) -> Result<u32, LinkError> {
        // SYNC: Acquire pairs with the Release store in `leave`.
        match self.theirs().state.load(Ordering::Acquire) {
            RESET => Err(LinkError::Reset),
            state @ (OPEN | CLOSED) => Ok(state),
            garbage => Err(LinkError::Corrupt {
                what: "state",
                got: u64::from(garbage),
                low: u64::from(OPEN),
                high: u64::from(RESET),
            }),
        }
    }

    /// Looks at the peer's index, which must lie between what was seen last and `high`.
    fn look(&mut self, what: &'static str, high: u64) -> Result<(), LinkError> {
        // SYNC: Acquire pairs with the Release store in `advance` of the peer: it makes its bytes
        // (or the end of its copying) visible.
        let got = self.theirs().index.load(Ordering::Acquire);
        if got < self.seen || got > high {
            return Err(LinkError::Corrupt {
                what,
                got,
                low: self.seen,
                high,
            });
        }
        self.seen = got;
        Ok(())
    }

    /// Publishes that `len` more bytes are done.
    fn advance(&mut self, len: usize) {
        self.index += len as u64;
        self.place += len;
        if self.place >= self.capacity {
            self.place -= self.capacity;
        }
        // SYNC: Release pairs with the Acquire load in `look` of the peer.
        self.mine().index.store(self.index, Ordering::Release);
    }

    /// Says that this side is done; a reset is never taken back.
    fn leave(&self, state: u32) {
        // SYNC: Release pairs with the Acquire load in `peer_state`: the last index comes first.
        self.mine().state.store(state, Ordering::Release);
    }

    /// The longest run of ring bytes from my place on that holds at most `len`, as an address.
    fn run(&self, len: usize) -> (NonNull<u8>, usize) {
        debug_assert!(self.place < self.capacity);
        let len = len.min(self.capacity - self.place);
        // SAFETY: `place < capacity`, and the ring has `capacity` bytes in one allocation.
        let start = unsafe { self.data.add(self.place) };
        (start, len)
    }

    /// Copies from `source` into the ring as much as fits.
    fn put(&mut self, source: Source<'_>) -> Result<usize, LinkError> {
        if self.peer_state()? == CLOSED {
            return Err(LinkError::Closed);
        }
        let capacity = self.capacity as u64;
        if capacity - (self.index - self.seen) < source.len() as u64 {
            self.look("tail", self.index)?;
        }
        let room = self.capacity - crate::types::index(self.index - self.seen);
        let len = room.min(source.len());
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
        let state = self.peer_state()?;
        if self.seen - self.index < target.len() as u64 {
            self.look("head", self.index + self.capacity as u64)?;
        }
        let there = crate::types::index(self.seen - self.index);
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
            // SAFETY: the caller gives us these bytes; nobody looks at them before `CREATED`.
            unsafe { header.write(fresh) };
        }
        // SAFETY: the header was written just now.
        let header = unsafe { headers.as_ref() };
        // SYNC: Release pairs with the exchange in `attach`: the other side sees fresh headers.
        header.block.store(CREATED, Ordering::Release);
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
        // SYNC: Acquire pairs with the Release in `create`. Relaxed on failure: nothing is read.
        let taken =
            header
                .block
                .compare_exchange(CREATED, ATTACHED, Ordering::Acquire, Ordering::Relaxed);
        match taken {
            Ok(_) => Ok(Self::side(headers, capacity, true, keep)),
            Err(ATTACHED) => Err(RingError::InUse),
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
        // Relaxed: written by this rank.
        let written = first.writer.index.load(Ordering::Relaxed);
        // Relaxed: a side that is being taken right now is found when this is asked again.
        if written > 0 && first.block.load(Ordering::Relaxed) == CREATED {
            return false;
        }
        // SYNC: AcqRel pairs with the exchange in `attach`: only one of the two can win.
        let untaken = first
            .block
            .compare_exchange(CREATED, 0, Ordering::AcqRel, Ordering::Acquire);
        if matches!(untaken, Ok(_) | Err(0)) {
            return true;
        }
        // SAFETY: the block holds two headers.
        let second = unsafe { headers.add(1) };
        // SAFETY: initialised by `create`, as the first.
        let second = unsafe { second.as_ref() };
        [&first.writer, &first.reader, &second.writer, &second.reader]
            .iter()
            // SYNC: Acquire pairs with the Release in `leave`: the side touches nothing after it.
            .all(|end| end.state.load(Ordering::Acquire) != OPEN)
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
                capacity,
                index: 0,
                place: 0,
                seen: 0,
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
        self.send.capacity
    }

    /// Remembers an error for good.
    fn settle(&mut self, result: Result<usize, LinkError>) -> Result<usize, LinkError> {
        if let Err(error) = result {
            self.dead = Some(error);
        }
        result
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

    fn reset(&mut self) {
        self.dead = Some(LinkError::Reset);
        self.torn = true;
        self.send.leave(RESET);
        self.recv.leave(RESET);
    }
}

impl Drop for RingStream {
    fn drop(&mut self) {
        if !self.torn {
            self.send.leave(CLOSED);
            self.recv.leave(CLOSED);
        }
    }
}

impl fmt::Debug for RingStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingStream")
            .field("capacity", &self.capacity())
            .field("written", &self.send.index)
            .field("read", &self.recv.index)
            .field("dead", &self.dead)
            .finish_non_exhaustive()
    }
}

/// Why a block holds no stream for this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// The second side was taken before.
    #[error("the second side of the ring is taken")]
    InUse,
    /// The block has no room for a ring, or far too much.
    #[error(
        "a block of {got} bytes holds no ring, expected {} to {} bytes",
        RingStream::block_bytes(1),
        RingStream::block_bytes(CAPACITY_MAX)
    )]
    Length {
        /// Bytes of the block.
        got: usize,
    },
    /// The block does not begin on a cache line.
    #[error("a block at {address:#x} holds no ring, expected a multiple of {BLOCK_ALIGN}")]
    Misaligned {
        /// Where it begins.
        address: usize,
    },
    /// There is no stream in the block, or not yet.
    #[error("there is no ring in the block yet")]
    NotCreated,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block of lines on the heap, shared by both sides of a test.
    struct Block(Box<[std::cell::UnsafeCell<Line>]>);

    #[derive(Clone)]
    #[repr(C, align(64))]
    struct Line([u8; 64]);

    // SAFETY: the rings decide who touches which byte; that is what is tested.
    unsafe impl Sync for Block {}
    // SAFETY: nothing in it belongs to a thread.
    unsafe impl Send for Block {}

    impl Block {
        fn new(capacity: usize) -> Arc<Self> {
            let lines = RingStream::block_bytes(capacity).div_ceil(64);
            Arc::new(Self(
                (0..lines)
                    .map(|_| std::cell::UnsafeCell::new(Line([0; 64])))
                    .collect(),
            ))
        }

        fn start(&self) -> *mut u8 {
            self.0.as_ptr().cast_mut().cast()
        }
    }

    fn pair(capacity: usize) -> (RingStream, RingStream, Arc<Block>) {
        let block = Block::new(capacity);
        let len = RingStream::block_bytes(capacity);
        let keep: Keep = Arc::<Block>::clone(&block);
        // SAFETY: the block has `len` bytes and lives as long as `keep`.
        let first = unsafe { RingStream::create(block.start(), len, keep) }.unwrap();
        let keep: Keep = Arc::<Block>::clone(&block);
        // SAFETY: as above, and the stream was created there.
        let second = unsafe { RingStream::attach(block.start(), len, keep) }.unwrap();
        (first, second, block)
    }

    /// The byte that travels at this place of a test's stream.
    fn byte_at(place: usize) -> u8 {
        place.wrapping_mul(31).to_le_bytes()[0] ^ place.to_le_bytes()[1]
    }

    /// The shared header of a ring, to play a broken peer.
    fn header(block: &Block, ring: usize) -> &Header {
        #[expect(clippy::cast_ptr_alignment, reason = "a block begins with a line")]
        let headers = block.start().cast::<Header>();
        // SAFETY: `pair` made two headers at the start of the block.
        let header = unsafe { headers.add(ring) };
        // SAFETY: it was initialised by `create` and consists of atomics and padding.
        unsafe { &*header }
    }

    #[test]
    fn bytes_keep_their_order_through_every_tiny_capacity() {
        for capacity in 1..=9 {
            let (mut left, mut right, _block) = pair(capacity);
            let (mut next, mut expected) = (0usize, 0usize);
            for turn in 0..200usize {
                let piece: Vec<u8> = (0..turn % 5).map(|i| byte_at(next + i)).collect();
                next += left.try_write(&piece).unwrap();
                let mut got = [0; 4];
                let len = right.try_read(&mut got[..turn % 4 + 1]).unwrap();
                for byte in &got[..len] {
                    assert_eq!(*byte, byte_at(expected), "capacity {capacity}");
                    expected += 1;
                }
            }
            assert!(expected > 100, "capacity {capacity}: {expected} bytes");
        }
    }

    #[test]
    fn a_full_ring_takes_nothing_and_an_empty_one_gives_nothing() {
        let (mut left, mut right, _block) = pair(3);
        assert_eq!(left.capacity(), 3);
        let mut got = [0; 8];
        assert_eq!(right.try_read(&mut got), Ok(0));
        assert_eq!(left.try_write(&[1, 2, 3, 4]), Ok(3));
        assert_eq!(left.try_write(&[4]), Ok(0));
        assert_eq!(right.try_read(&mut got), Ok(3));
        assert_eq!(got[..3], [1, 2, 3]);
        assert_eq!(right.try_read(&mut got), Ok(0));
    }

    #[test]
    fn two_threads_pass_everything_through_a_ring_of_seven_bytes() {
        const BYTES: usize = if cfg!(miri) { 300 } else { 200_000 };
        let (mut left, mut right, _block) = pair(7);
        let writer = std::thread::spawn(move || {
            let all: Vec<u8> = (0..BYTES).map(byte_at).collect();
            let mut done = 0;
            while done < BYTES {
                match left.try_write(&all[done..]).unwrap() {
                    0 => std::thread::yield_now(),
                    len => done += len,
                }
            }
        });
        let mut all = Vec::new();
        let mut piece = [0; 16];
        loop {
            match right.try_read(&mut piece) {
                Ok(0) => std::thread::yield_now(),
                Ok(len) => all.extend_from_slice(&piece[..len]),
                Err(error) => {
                    assert_eq!(error, LinkError::Closed);
                    break;
                }
            }
        }
        writer.join().unwrap();
        assert_eq!(all.len(), BYTES);
        assert!(all.iter().enumerate().all(|(i, b)| *b == byte_at(i)));
    }

    #[test]
    fn an_index_that_a_working_peer_cannot_have_written_is_an_error_and_no_address() {
        for garbage in [17, u64::MAX, u64::MAX / 2, 9] {
            let (_left, mut right, block) = pair(8);
            let head = &header(&block, 0).writer.index;
            head.store(garbage, Ordering::Relaxed);
            let error = right.try_read(&mut [0; 64]).unwrap_err();
            let expected = LinkError::Corrupt {
                what: "head",
                got: garbage,
                low: 0,
                high: 8,
            };
            assert_eq!(error, expected);
            head.store(4, Ordering::Relaxed);
            assert_eq!(right.try_read(&mut [0; 64]), Err(expected), "final");
        }
    }

    #[test]
    fn an_index_that_goes_backwards_is_an_error() {
        let (mut left, mut right, block) = pair(4);
        left.try_write(&[1, 2, 3, 4]).unwrap();
        right.try_read(&mut [0; 4]).unwrap();
        left.try_write(&[5, 6, 7, 8]).unwrap();
        header(&block, 0).reader.index.store(3, Ordering::Relaxed);
        let error = left.try_write(&[9; 4]).unwrap_err();
        assert!(
            matches!(
                error,
                LinkError::Corrupt {
                    what: "tail",
                    got: 3,
                    low: 4,
                    high: 8
                }
            ),
            "{error}"
        );
    }

    #[test]
    fn a_state_that_no_peer_has_is_an_error() {
        let (mut left, _right, block) = pair(4);
        header(&block, 0).reader.state.store(77, Ordering::Relaxed);
        assert!(matches!(
            left.try_write(&[1]),
            Err(LinkError::Corrupt { what: "state", .. })
        ));
    }

    #[test]
    fn a_closed_peer_is_seen_after_its_bytes_and_a_reset_one_at_once() {
        let (mut left, mut right, _block) = pair(4);
        left.try_write(&[1, 2]).unwrap();
        drop(left);
        assert_eq!(right.try_write(&[3]), Err(LinkError::Closed));
        let mut got = [0; 4];
        assert_eq!(right.try_read(&mut got), Ok(2));
        assert_eq!(right.try_read(&mut got), Err(LinkError::Closed));

        let (mut left, mut right, _block) = pair(4);
        left.try_write(&[1, 2]).unwrap();
        left.reset();
        assert_eq!(left.try_write(&[3]), Err(LinkError::Reset));
        drop(left);
        assert_eq!(right.try_read(&mut got), Err(LinkError::Reset));
        assert_eq!(right.try_write(&[3]), Err(LinkError::Reset));
    }

    #[test]
    fn a_block_is_over_when_both_sides_left_however_they_did() {
        let len = RingStream::block_bytes(4);
        // SAFETY: `pair` makes its stream in this block, which has `len` bytes.
        let is_over = |block: &Block| unsafe { RingStream::is_over(block.start(), len) };
        for reset in [[false, false], [true, false], [false, true], [true, true]] {
            let (mut left, mut right, block) = pair(4);
            if reset[0] {
                left.reset();
                assert_eq!(right.try_write(&[1]), Err(LinkError::Reset));
            }
            if reset[1] {
                right.reset();
            }
            drop(left);
            assert_eq!(is_over(&block), reset[1], "{reset:?}");
            drop(right);
            assert!(is_over(&block), "{reset:?}");
        }
    }

    #[test]
    fn a_block_that_cannot_hold_a_ring_is_refused() {
        let block = Block::new(64);
        let keep: Keep = Arc::<Block>::clone(&block);
        let create = |start: *mut u8, len: usize| {
            // SAFETY: no length given below exceeds the block.
            unsafe { RingStream::create(start, len, Arc::clone(&keep)) }.map(|_| ())
        };
        let attach = |start: *mut u8, len: usize| {
            // SAFETY: as above; the block is zeroed or holds a stream.
            unsafe { RingStream::attach(start, len, Arc::clone(&keep)) }
        };
        let len = RingStream::block_bytes(64);
        assert_eq!(
            create(block.start(), HEADERS + 1),
            Err(RingError::Length { got: HEADERS + 1 })
        );
        assert!(matches!(
            create(block.start().wrapping_add(8), len - 8),
            Err(RingError::Misaligned { .. })
        ));
        assert!(matches!(
            create(std::ptr::null_mut(), len),
            Err(RingError::Misaligned { address: 0 })
        ));
        assert_eq!(
            attach(block.start(), len).unwrap_err(),
            RingError::NotCreated
        );
        create(block.start(), len).unwrap();
        let _second = attach(block.start(), len).unwrap();
        assert_eq!(attach(block.start(), len).unwrap_err(), RingError::InUse);
    }
}
