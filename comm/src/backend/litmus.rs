//! A litmus test: two ranks of an island use slot, bell and ring as calls do, as fast as they can, and check every word. It shows
//! whether this machine keeps the order of memory that the protocols ask for. It knows no calls.
//!
//! Four exercises take turns, each with its own mistake to find:
//!
//! - *entries*: an entry is seen before its words or its payload (SLOT-1);
//! - *buffers*: a rank reads a buffer that its owner, who revoked it, writes (SLOT-5): two stores that each pass a load;
//! - *wakes*: a rank that is woken does not see what was published before (BELL-2, SLOT-2);
//! - *ring*: bytes of a stream come twice, never or as others; a last message is neither found nor known to be lost; the memory of a
//!   ring is never free (RING-1 to 3, BLOCK-1, 2).

mod ring;

use std::sync::Arc;
use std::time::Duration;

use self::ring::RingTest;
use crate::context::{Context, Identity, Island};
use crate::processors::{self, CpuList};
use crate::sabotage::{self, Sabotage};
use crate::sync::{Deadline, Ordering};
use crate::transport::shm::arena::Arena;
use crate::transport::shm::heap::Block;
use crate::transport::shm::slot::{
    CLOSING, DONE, Entry, PAYLOAD_MAX, PayloadClass, PeerSlot, Slot, progress,
};
use crate::transport::shm::wait::{self, Interrupted, Rest};
use crate::types::Rank;

/// How long a rank waits for the other one.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest sleep until a bell.
const SLEEP: Duration = Duration::from_millis(5);
/// Words of the buffer of a rank.
const BUFFER_WORDS: usize = 64;
/// Rounds of the first two exercises in a turn.
const ROUNDS: u64 = 1000;
/// Wake-ups in a turn.
const WAKES: u32 = 20;
/// Polls by which ranks come to a place at different times, at most.
const JITTER: u64 = 16;
/// Polls before a rank waits as in calls, about a millisecond. Only ranks that run at the same time can find a mistake: on a host that
/// others use, one that gives its processor away at once seldom meets the other.
const POLLS: u32 = 20_000;
/// What the key of a group becomes for the slots of the test.
const KEY: u64 = u64::from_le_bytes(*b"\0\0litmus");
/// What the first rank says in its entry: that the test ends.
const STOP: u64 = 1;

/// What was done without a mistake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LitmusCounts {
    /// Entries of the other rank that were checked.
    pub entries: u64,
    /// Rounds in which a buffer was revoked while the other rank came to read it.
    pub buffers: u64,
    /// Wake-ups.
    pub wakes: u64,
    /// Bytes of rings that were checked.
    pub ring_bytes: u64,
}

/// The test came to no good end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LitmusError {
    /// Memory is not as it must be.
    #[error("{0}")]
    Wrong(String),
    /// The other rank did not come.
    #[error("rank {0} did not come within {PATIENCE:?}, or is gone")]
    Alone(Rank),
    /// The two share no memory, or there are not two.
    #[error("a litmus test is for two ranks that share memory")]
    Unfit,
    /// There is no memory left.
    #[error("{0}")]
    Memory(String),
}

/// Runs the test for this long. To be called once for a group, by both members.
///
/// # Errors
/// [`LitmusError`].
pub(crate) fn run(
    context: &Context,
    group: &Identity,
    time: Duration,
) -> Result<LitmusCounts, LitmusError> {
    let island = context.island.as_ref().ok_or(LitmusError::Unfit)?;
    let other = group.members.get(1 - group.me.min(1));
    let other = *other
        .filter(|_| group.len() == 2)
        .ok_or(LitmusError::Unfit)?;
    let polls = if processors::own() > 1 { POLLS } else { 0 };
    let waiter = Waiter {
        context,
        other,
        polls,
    };
    let _pinned = Pinned::apart(group);
    let mut pair = Pair::meet(waiter, island, group)?;
    let ring = RingTest::make(&mut pair)?;
    let end = Deadline::after(time);
    let mut counts = LitmusCounts::default();
    loop {
        let word = if end.passed() { STOP } else { 0 };
        let said = pair.exchange(word)?;
        if (if pair.me == 0 { word } else { said }) == STOP {
            break;
        }
        for _ in 0..ROUNDS {
            pair.exchange(0)?;
            pair.reach()?;
        }
        pair.wake()?;
        let bytes = ring.turn(&mut pair)?;
        counts.entries += 2 * ROUNDS;
        counts.buffers += ROUNDS;
        counts.wakes += u64::from(WAKES);
        counts.ring_bytes += bytes;
    }
    pair.part()?;
    Ok(counts)
}

/// This rank and the other one.
struct Pair<'a> {
    waiter: Waiter<'a>,
    island: &'a Island,
    slot: Slot,
    peer: PeerSlot,
    me: usize,
    /// The last round.
    seq: u64,
    mine: Block,
    /// Where the buffer of the other rank lies.
    theirs: usize,
}

impl<'a> Pair<'a> {
    /// Makes a slot and a buffer, and learns those of the other rank.
    fn meet(waiter: Waiter<'a>, island: &'a Island, group: &Identity) -> Result<Self, LitmusError> {
        let other = waiter.other;
        let local = island.locals.get(other.index()).copied().flatten();
        let local = local.ok_or(LitmusError::Unfit)?;
        let key = (group.key ^ KEY).max(1);
        let members: Vec<u32> = group.members.iter().map(|rank| rank.0).collect();
        let full = |error: &dyn std::fmt::Display| LitmusError::Memory(error.to_string());
        let slot = Slot::create(
            &island.heap,
            &island.arena,
            island.local,
            key,
            key,
            &members,
        )
        .map_err(|error| full(&error))?;
        let mine = island.heap.take(BUFFER_WORDS * 8);
        let mut found = None;
        waiter.until(&Rest::Pause, || {
            found = PeerSlot::find(&island.arena, local, key).ok().flatten();
            found.is_some()
        })?;
        let mut pair = Self {
            waiter,
            island,
            slot,
            peer: found.ok_or(LitmusError::Alone(other))?,
            me: group.me,
            seq: 0,
            mine: mine.map_err(|error| full(&error))?,
            theirs: 0,
        };
        pair.theirs = pair.exchange_places(pair.mine.offset(), BUFFER_WORDS * 8)?;
        Ok(pair)
    }

    fn arena(&self) -> &'a Arena {
        &self.island.arena
    }

    /// Tells where memory of this rank lies, and learns where as much of the other one's does.
    fn exchange_places(&mut self, mine: usize, bytes: usize) -> Result<usize, LitmusError> {
        let theirs = crate::types::index(self.exchange(mine as u64)?);
        let is_theirs = self.arena().heap_holds(self.peer.local(), theirs, bytes);
        if is_theirs && theirs.is_multiple_of(8) {
            return Ok(theirs);
        }
        Err(self.wrong(&format!("a place at {theirs}, which is none")))
    }

    fn wrong(&self, what: &str) -> LitmusError {
        LitmusError::Wrong(format!(
            "round {} with rank {}: {what}",
            self.seq, self.waiter.other
        ))
    }

    fn until(&self, rest: &Rest<'_>, ready: impl FnMut() -> bool) -> Result<(), LitmusError> {
        self.waiter.until(rest, ready)
    }

    fn await_tick(&self, tick: u32) -> Result<(), LitmusError> {
        let (arena, goal) = (self.arena(), progress(self.seq, tick));
        self.until(&Rest::Bell(self.peer.bell(arena)), || {
            self.peer.reached(arena) >= goal
        })
    }

    /// One exchange of entries with payloads; the word of the other rank.
    fn exchange(&mut self, word: u64) -> Result<u64, LitmusError> {
        self.seq += 1;
        let (seq, arena) = (self.seq, self.arena());
        let entry = entry(self.me, seq, word);
        let at = self.slot.payload(seq, entry.room);
        if sabotage::is(Sabotage::Order) {
            self.slot.publish(seq, &entry);
            std::thread::yield_now();
        }
        fill(arena, at, entry.payload_len, pattern(self.me, seq));
        self.slot.publish(seq, &entry);
        let peer = self.peer;
        self.until(&Rest::Bell(peer.bell(arena)), || {
            peer.entered(arena, seq) == seq
        })?;
        let got = peer.entry(arena, seq);
        let expected = self::entry(1 - self.me, seq, got.call);
        if got != expected {
            return Err(self.wrong(&format!("the entry is {got:x?} for {expected:x?}")));
        }
        let at = peer.payload(arena, seq, got.room);
        self.check(
            "the payload",
            at,
            got.payload_len,
            pattern(1 - self.me, seq),
        )?;
        Ok(got.call)
    }

    /// One rank revokes a round and writes its buffer; the other one reads it, unless it sees that.
    fn reach(&mut self) -> Result<(), LitmusError> {
        let is_owner = (self.seq + 1) % 2 == self.me as u64;
        let (own, bytes) = (self.mine.as_ptr(), BUFFER_WORDS as u64 * 8);
        if is_owner {
            fill(self.arena(), own, bytes, pattern(self.me, self.seq + 1));
        }
        self.exchange(0)?;
        let (seq, arena, peer) = (self.seq, self.arena(), self.peer);
        jitter(self.me, seq);
        if is_owner {
            self.slot.revoke(seq);
            self.until(&Rest::Pause, || !peer.is_at_work(arena, seq))?;
            fill(arena, own, bytes, !pattern(self.me, seq));
            return Ok(());
        }
        self.slot.touch(seq);
        if peer.revoked(arena) >= seq {
            self.slot.untouch();
            return Ok(());
        }
        let at = arena.at(self.theirs, BUFFER_WORDS * 8);
        self.check("the buffer in use", at, bytes, pattern(1 - self.me, seq))?;
        self.slot.advance(seq, CLOSING);
        Ok(())
    }

    /// The ranks wake each other in turns.
    fn wake(&mut self) -> Result<(), LitmusError> {
        self.exchange(0)?;
        let (seq, arena, peer) = (self.seq, self.arena(), self.peer);
        let bytes = BUFFER_WORDS as u64 * 8;
        let theirs = arena.at(self.theirs, BUFFER_WORDS * 8);
        for tick in 1..=WAKES {
            let word = |rank: usize| pattern(rank, seq << 8 | u64::from(tick));
            if tick as usize % 2 == self.me {
                // Time for the other one to fall asleep, now and then.
                jitter(self.me, seq + u64::from(tick));
                std::thread::yield_now();
                fill(arena, self.mine.as_ptr(), bytes, word(self.me));
                self.slot.advance(seq, tick);
                continue;
            }
            let (bell, goal) = (peer.bell(arena), progress(seq, tick));
            let patience = Deadline::after(PATIENCE);
            while !bell.sleep(&mut || peer.reached(arena) >= goal, SLEEP) {
                if patience.passed() || self.waiter.is_alone() {
                    return Err(LitmusError::Alone(self.waiter.other));
                }
            }
            self.check(
                "after a wake-up the buffer",
                theirs,
                bytes,
                word(1 - self.me),
            )?;
        }
        Ok(())
    }

    /// Checks words of the other rank.
    fn check(&self, what: &str, at: *const u8, bytes: u64, seed: u64) -> Result<(), LitmusError> {
        for (number, word) in words(self.arena(), at, bytes).enumerate() {
            // Relaxed: plain memory, ordered by what led here.
            let got = self.arena().word(word).load(Ordering::Relaxed);
            let expected = seed.wrapping_add(number as u64);
            if got != expected {
                return Err(self.wrong(&format!(
                    "{what} has {got:#x} in word {number} of {} for {expected:#x}",
                    bytes / 8
                )));
            }
        }
        Ok(())
    }

    /// Ends when the other rank reads nothing of this one any more (SLOT-3).
    fn part(&self) -> Result<(), LitmusError> {
        self.slot.advance(self.seq, DONE);
        self.await_tick(DONE)
    }
}

/// This thread stays on one processor; it may use those of before when this is dropped.
struct Pinned(Option<CpuList>);

impl Pinned {
    /// The two ranks of a group on different processors, far from each other, as far as there are any.
    fn apart(group: &Identity) -> Self {
        let allowed = CpuList::of_this_thread();
        let mine = allowed.as_ref().and_then(|allowed| {
            let numbers: Vec<u32> = allowed.numbers().collect();
            let pair = group.members.first()?.index() / 2 % (numbers.len() / 2).max(1);
            let at = match group.me {
                0 => pair,
                _ => numbers.len().checked_sub(1 + pair)?,
            };
            Some(CpuList::from_iter([*numbers.get(at)?]))
        });
        // Where the system refuses, it chooses the processors itself.
        let is_set = mine.is_some_and(|mine| mine.keep_to().is_ok());
        Self(allowed.filter(|_| is_set))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(allowed) = &self.0 {
            let _ = allowed.keep_to();
        }
    }
}

/// How a rank waits for the other one.
#[derive(Clone, Copy)]
struct Waiter<'a> {
    context: &'a Context,
    other: Rank,
    /// Polls before it waits as calls do.
    polls: u32,
}

impl Waiter<'_> {
    fn is_alone(&self) -> bool {
        self.context.status.gone(self.other).is_some()
    }

    fn until(&self, rest: &Rest<'_>, mut ready: impl FnMut() -> bool) -> Result<(), LitmusError> {
        for _ in 0..self.polls {
            if ready() {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        let (pace, status) = (self.context.pace, &self.context.status);
        let patience = Deadline::after(PATIENCE);
        loop {
            let (word, seen) = (status.epoch_word(), status.epoch());
            match wait::until(pace, patience, word, seen, rest, &mut ready) {
                Ok(()) => return Ok(()),
                Err(Interrupted::Epoch) if !self.is_alone() => {}
                Err(Interrupted::Deadline | Interrupted::Epoch) => {
                    return Err(LitmusError::Alone(self.other));
                }
            }
        }
    }
}

/// What a rank says in a round: words that differ from round to round, payloads of all classes.
fn entry(rank: usize, seq: u64, word: u64) -> Entry {
    let hash = pattern(rank, seq);
    let far = if seq.is_multiple_of(3) { hash | 1 } else { 0 };
    let payload_len = 8 * match seq % 16 {
        0 => PAYLOAD_MAX as u64 / 8,
        1..=8 => 1,
        9 | 10 => 19,
        11 => 0,
        _ => 128,
    };
    let bytes = crate::types::index(payload_len);
    Entry {
        call: word,
        count: hash,
        splits: !hash,
        payload_len,
        room: PayloadClass::for_bytes(bytes, far != 0),
        mark: 0,
        staging: far,
        send_at: far,
        recv_at: far,
    }
}

/// The first word of what a rank gives in a round.
fn pattern(rank: usize, seq: u64) -> u64 {
    let mixed = (seq << 1 | rank as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9)
}

/// The offsets of the words in these bytes of the arena.
fn words(arena: &Arena, at: *const u8, bytes: u64) -> impl Iterator<Item = usize> {
    let bytes = crate::types::index(bytes);
    let start = arena.offset_of(at, bytes).unwrap_or(0);
    (start..start + bytes).step_by(8)
}

fn fill(arena: &Arena, at: *const u8, bytes: u64, seed: u64) {
    for (number, word) in words(arena, at, bytes).enumerate() {
        let value = seed.wrapping_add(number as u64);
        // Relaxed: plain memory, ordered by what is published after it.
        arena.word(word).store(value, Ordering::Relaxed);
    }
}

/// Polls for nothing, a different number of times on each rank in each round.
fn jitter(rank: usize, seq: u64) {
    for _ in 0..pattern(rank, seq) % JITTER {
        std::hint::spin_loop();
    }
}

/// What keeps the arena mapped.
fn keep(pair: &Pair<'_>) -> Arc<Arena> {
    Arc::clone(&pair.island.arena)
}
