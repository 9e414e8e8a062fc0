//! Memory of ranks that their peers read and write: user's buffers, staging, and what goes from one to another.

use std::sync::Arc;

use loom::thread;

use super::slot::{make, peer, until};
use crate::arena::Arena;
use crate::context::buffer_pool::BufferPool;
use crate::shm::directory;
use crate::shm::heap::Heap;
use crate::shm::slot::{CLOSING, DONE, Entry, PayloadClass, PeerSlot, Slot, progress};

const KEY: u64 = 9;
/// Bytes of a buffer: two words, of which each rank fills one.
const BUFFER: usize = 16;

/// A rank of a group of two, with a buffer of its own.
#[derive(Debug)]
struct Member {
    arena: Arc<Arena>,
    heap: Arc<Heap>,
    me: usize,
    slot: Slot,
    /// Where its buffer lies.
    buffer: usize,
    _keep: crate::shm::heap::Block,
}

impl Member {
    fn pair() -> [Self; 2] {
        let arena = Arc::new(Arena::new(2));
        [0, 1].map(|me| {
            let heap = Arc::new(Heap::new(Arc::clone(&arena), me));
            let slot = Slot::create(&heap, &arena, me, KEY, KEY, &[0, 1]).expect("room");
            make(&arena, &slot);
            let block = heap.take(BUFFER).expect("room");
            Self {
                arena: Arc::clone(&arena),
                heap,
                me,
                slot,
                buffer: block.offset(),
                _keep: block,
            }
        })
    }

    fn peer(&self) -> PeerSlot {
        peer(&self.arena, 1 - self.me)
    }

    /// Enters a call with the place of the own buffer, and learns that of the peer's.
    fn exchange(&self, seq: u64) -> usize {
        let entry = Entry {
            call: seq,
            room: PayloadClass::Ample,
            staging: self.buffer as u64,
            send_at: self.buffer as u64,
            ..Entry::default()
        };
        self.slot.publish(seq, &entry);
        let peer = self.peer();
        until(|| peer.entered(&self.arena, seq) == seq);
        let entry = peer.entry(&self.arena, seq);
        usize::try_from(entry.send_at).expect("an offset")
    }

    fn put(&self, at: usize, value: u64) {
        self.arena.put(self.arena.at(at, 8), value);
    }

    fn take(&self, at: usize) -> u64 {
        self.arena.take(self.arena.at(at, 8))
    }

    fn await_tick(&self, seq: u64, tick: u32) {
        let peer = self.peer();
        until(|| peer.reached(&self.arena) >= progress(seq, tick));
    }

    /// Calls in which each rank reads the first word of its peer's buffer, as by system call, and writes the second one. In
    /// between and in the end the buffers are their owners'.
    fn reach(&self, calls: u64) {
        for seq in 1..=calls {
            self.put(self.buffer, seq * 10 + self.me as u64);
            let theirs = self.exchange(seq);
            self.slot.touch(seq);
            assert!(self.peer().revoked(&self.arena) < seq);
            let got = self.take(theirs);
            assert_eq!(got, seq * 10 + 1 - self.me as u64);
            self.put(theirs + 8, got);
            self.slot.advance(seq, CLOSING);
            self.await_tick(seq, CLOSING);
            assert_eq!(self.take(self.buffer + 8), seq * 10 + self.me as u64);
        }
    }

    /// A call in pieces: each tick exposes one of two places, which serve again two ticks later (SLOT-2).
    fn stage(&self, ticks: u32) {
        let seq = 1;
        let place = |tick: u32| (tick as usize % 2) * 8;
        self.put(self.buffer, self.me as u64);
        let theirs = self.exchange(seq);
        for tick in 1..=ticks {
            assert_eq!(
                self.take(theirs + place(tick - 1)),
                u64::from(tick - 1) * 10 + 1 - self.me as u64
            );
            self.put(
                self.buffer + place(tick),
                u64::from(tick) * 10 + self.me as u64,
            );
            self.slot.advance(seq, tick);
            self.await_tick(seq, tick);
        }
        self.slot.advance(seq, DONE);
        self.await_tick(seq, DONE);
        self.put(self.buffer, 0);
    }
}

/// Runs the part of each member in a thread of its own; what they have lives until both have ended.
fn both(part: impl Fn(&Member) + Copy + Send + 'static) {
    let [mine, theirs] = Member::pair();
    let thread = thread::spawn(move || {
        part(&theirs);
        theirs
    });
    part(&mine);
    drop(thread.join().expect("the rank ends well"));
}

/// Ranks read and write each other's buffers directly; each has its buffer for itself before and after a call.
///
/// # Panics
/// Where a rank touches a buffer that its owner uses, or finds other values.
pub fn buffers_are_reached_within_a_call_only(calls: u64) {
    both(move |member| member.reach(calls));
}

/// Staging of a call in pieces is used again when the peer has read it.
///
/// # Panics
/// Where it is used before, or read before it is filled.
pub fn staging_is_used_again_when_it_was_read(ticks: u32) {
    both(move |member| member.stage(ticks));
}

/// One rank is about to read its peer's buffer; the other ends the call early, waits for a peer at work, and uses the buffer
/// (SLOT-5).
///
/// # Panics
/// Where both use it.
pub fn a_revoked_buffer_is_its_owners() {
    let [owner, reader] = Member::pair();
    let place = owner.buffer;
    let thread = thread::spawn(move || {
        reader.slot.touch(1);
        if reader.peer().revoked(&reader.arena) < 1 {
            let _ = reader.take(place);
            reader.slot.advance(1, CLOSING);
        } else {
            reader.slot.untouch();
        }
        reader
    });
    owner.slot.revoke(1);
    let peer = owner.peer();
    until(|| !peer.is_at_work(&owner.arena, 1));
    owner.put(place, 1);
    drop(thread.join().expect("the rank ends well"));
}

/// A rank reads its peer's staging in the last call of a group and destroys the group; the peer uses the memory again once it sees that
/// the call is done, or that the slot is withdrawn (SLOT-3).
///
/// # Panics
/// Where both use it.
pub fn memory_of_a_group_is_used_again_when_nobody_reads_it() {
    let [owner, reader] = Member::pair();
    let (place, arena) = (owner.buffer, Arc::clone(&owner.arena));
    let known = owner.peer();
    let thread = thread::spawn(move || {
        let Member {
            slot, heap, arena, ..
        } = reader;
        let _ = arena.take(arena.at(place, 8));
        slot.advance(1, DONE);
        drop(slot);
        // The next group lies where it lay.
        let next = Slot::create(&heap, &arena, 1, KEY << 40, 0, &[0, 1]).expect("room");
        (next, heap)
    });
    until(|| {
        PeerSlot::find(&arena, 1, KEY) != Ok(Some(known))
            || known.reached(&arena) >= progress(1, DONE)
    });
    owner.put(place, 1);
    drop(thread.join().expect("the rank ends well"));
    assert_eq!(directory::find(&arena, 1, KEY), None);
}

/// Threads take a spare buffer, write to it and give it back: a buffer has one user at a time.
///
/// # Panics
/// Where two have one.
pub fn a_spare_buffer_has_one_user() {
    let pool = Arc::new(BufferPool::default());
    let arena = Arc::new(Arena::new(1));
    let place = arena.heap_offset(0);
    pool.give(Vec::with_capacity(8));
    let use_it = {
        let (pool, arena) = (Arc::clone(&pool), Arc::clone(&arena));
        move |value: u64| {
            let buffer = pool.take(8);
            // An empty one is new: there was no other.
            if buffer.capacity() > 0 {
                arena.put(arena.at(place, 8), value);
            }
            pool.give(buffer);
        }
    };
    let other = {
        let use_it = use_it.clone();
        thread::spawn(move || use_it(1))
    };
    use_it(2);
    other.join().expect("the thread ends well");
}
