//! The part of the litmus test over a ring, which is made anew in the same memory in each turn.
#![expect(unsafe_code, reason = "rings live in memory shared with the peer")]

use super::{LitmusError, Pair, keep, pattern};
use crate::transport::ring::RingStream;
use crate::transport::shm::heap::Block;
use crate::transport::shm::wait::Rest;
use crate::transport::stream::{LinkError, Source, Stream, Target};

/// Bytes of a direction: no power of two, and a few messages long.
const CAPACITY: usize = 1021;
/// Bytes that each rank sends in a turn.
const BYTES: usize = 32 << 10;
/// Largest piece.
const PIECE: usize = 700;

/// The memory of the ring.
pub(super) struct RingTest {
    block: Block,
    /// Where the ring lies: with the first rank.
    place: usize,
}

impl RingTest {
    pub(super) fn make(pair: &mut Pair<'_>) -> Result<Self, LitmusError> {
        let block = pair.island.heap.take(RingStream::block_bytes(CAPACITY));
        let block = block.map_err(|error| LitmusError::Memory(error.to_string()))?;
        let theirs = pair.exchange_places(block.offset(), RingStream::block_bytes(CAPACITY))?;
        let place = if pair.me == 0 { block.offset() } else { theirs };
        Ok(Self { block, place })
    }

    /// Makes a ring, sends through it both ways, and closes it; how many bytes came.
    pub(super) fn turn(&self, pair: &mut Pair<'_>) -> Result<u64, LitmusError> {
        let mut stream = self.open(pair)?;
        let salt = pair.seq;
        traffic(pair, &mut stream, salt)?;
        self.last_message(pair, &mut stream)?;
        drop(stream);
        pair.exchange(0)?;
        // SAFETY: the block is this rank's, and holds the ring that it made there.
        let is_over = || unsafe { RingStream::is_over(self.block.as_ptr(), bytes()) };
        if pair.me == 0 && !is_over() {
            return Err(pair.wrong("a ring that both have closed is not over"));
        }
        Ok(BYTES as u64)
    }

    fn open(&self, pair: &mut Pair<'_>) -> Result<RingStream, LitmusError> {
        let at = pair.arena().at(self.place, bytes());
        let failed = |pair: &Pair<'_>, error: &dyn std::fmt::Display| {
            pair.wrong(&format!("no ring: {error}"))
        };
        if pair.me == 0 {
            // SAFETY: the block is this rank's and in the arena, which `keep` holds; the other rank has closed its side of the ring
            // before, and attaches after the exchange.
            let made = unsafe { RingStream::create(at, bytes(), keep(pair)) };
            let made = made.map_err(|error| failed(pair, &error))?;
            pair.exchange(0)?;
            return Ok(made);
        }
        pair.exchange(0)?;
        // SAFETY: the place is the other rank's block, of this length (`exchange_places`), in which it has made a ring.
        let taken = unsafe { RingStream::attach(at, bytes(), keep(pair)) };
        taken.map_err(|error| failed(pair, &error))
    }

    /// The first rank sends a byte while the other one stops to read.
    fn last_message(
        &self,
        pair: &mut Pair<'_>,
        stream: &mut RingStream,
    ) -> Result<(), LitmusError> {
        pair.exchange(0)?;
        super::jitter(pair.me, pair.seq);
        let mut byte = [7_u8];
        let is_settled = if pair.me == 0 {
            let sent = stream.write_from(Source::from(&byte[..]));
            sent == Err(LinkError::Closed) || stream.has_lost()
        } else {
            stream.stop_reading();
            stream.read_into(Target::from(&mut byte[..])) == Ok(1)
        };
        let theirs = pair.exchange(u64::from(is_settled))?;
        if !is_settled && theirs == 0 {
            return Err(pair.wrong("the last message is neither found nor known to be lost"));
        }
        Ok(())
    }
}

const fn bytes() -> usize {
    RingStream::block_bytes(CAPACITY)
}

/// The byte at a place of what a rank sends.
fn byte(rank: usize, salt: u64, at: usize) -> u8 {
    pattern(rank, salt.wrapping_add(at as u64)).to_le_bytes()[3]
}

/// How long the next piece is.
fn piece(rank: usize, salt: u64, at: usize) -> usize {
    let drawn = crate::types::index(pattern(rank, !salt ^ at as u64) >> 32) % PIECE + 1;
    drawn.min(BYTES - at)
}

fn traffic(pair: &Pair<'_>, stream: &mut RingStream, salt: u64) -> Result<(), LitmusError> {
    let (me, other) = (pair.me, 1 - pair.me);
    let (mut sent, mut got) = (0, 0);
    let mut room = [0_u8; PIECE];
    let mut outgoing = Vec::with_capacity(PIECE);
    while sent < BYTES || got < BYTES {
        if outgoing.is_empty() {
            let end = sent + piece(me, salt, sent);
            outgoing.extend((sent..end).map(|at| byte(me, salt, at)));
        }
        let mut moved = Ok((0, 0));
        pair.until(&Rest::Pause, || {
            moved = step(stream, &outgoing, &mut room[..piece(other, !salt, got)]);
            moved != Ok((0, 0))
        })?;
        let (wrote, read) = moved.map_err(|error| pair.wrong(&format!("the ring: {error}")))?;
        outgoing.drain(..wrote);
        sent += wrote;
        for (at, came) in room[..read].iter().enumerate() {
            let expected = byte(other, salt, got + at);
            if *came != expected {
                let place = got + at;
                return Err(pair.wrong(&format!(
                    "byte {place} of the ring is {came:#x} for {expected:#x}"
                )));
            }
        }
        got += read;
    }
    Ok(())
}

/// Writes and reads what can be.
fn step(
    stream: &mut RingStream,
    outgoing: &[u8],
    room: &mut [u8],
) -> Result<(usize, usize), LinkError> {
    let wrote = if outgoing.is_empty() {
        0
    } else {
        stream.write_from(Source::from(outgoing))?
    };
    let read = if room.is_empty() {
        0
    } else {
        stream.read_into(Target::from(room))?
    };
    Ok((wrote, read))
}
