//! The ring of messages of `transport::ring`: units come whole, in order, up to the last one.

use std::sync::Arc;

use loom::thread;

use crate::arena::Arena;
use crate::ring::block;
use crate::ring::cursor::{CLOSED, Cursor, OPEN, Told};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Units of a ring: fewer than are sent, so that places are used again.
pub(super) const CAPACITY: usize = 2;

#[derive(Debug)]
pub(super) struct End {
    index: AtomicU64,
    state: AtomicU32,
}

impl End {
    fn new() -> Self {
        Self {
            index: AtomicU64::new(0),
            state: AtomicU32::new(OPEN),
        }
    }

    pub(super) fn told(&self) -> Told<'_> {
        Told {
            index: &self.index,
            state: &self.state,
        }
    }
}

#[derive(Debug)]
pub(super) struct Ring {
    pub(super) writer: End,
    reader: End,
    /// What is sent. Relaxed loads and stores stand for copies: nothing but the ring orders them.
    units: [AtomicU64; CAPACITY],
}

impl Ring {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            writer: End::new(),
            reader: End::new(),
            units: [AtomicU64::new(0), AtomicU64::new(0)],
        })
    }

    /// Writes a unit, if there is room.
    pub(super) fn put(&self, cursor: &mut Cursor, unit: u64) -> bool {
        let has_room = cursor.room(self.reader.told(), 1) == Ok(1);
        if has_room {
            let (place, _) = cursor.run(1);
            self.units[place].store(unit, Ordering::Relaxed);
            cursor.advance(self.writer.told(), 1);
        }
        has_room
    }

    /// Reads a unit, if one is there.
    ///
    /// # Panics
    /// If the writer's index cannot be.
    pub(super) fn take(&self, cursor: &mut Cursor) -> Option<u64> {
        let there = cursor.there(self.writer.told(), 1).expect("an index");
        (there > 0).then(|| {
            let (place, _) = cursor.run(1);
            let unit = self.units[place].load(Ordering::Relaxed);
            cursor.advance(self.reader.told(), 1);
            unit
        })
    }
}

/// The writer sends units and leaves; the reader gets each of them, and learns that there are no more after the last one.
///
/// # Panics
/// If a unit is lost, comes twice or is another one.
pub fn units_come_in_order_up_to_the_last_one(sent: u64) {
    let ring = Ring::new();
    let writing = Arc::clone(&ring);
    let writer = thread::spawn(move || {
        let mut cursor = Cursor::new(CAPACITY);
        for unit in 1..=sent {
            while !writing.put(&mut cursor, unit) {
                thread::yield_now();
            }
        }
        writing.writer.told().leave(CLOSED);
    });
    let mut cursor = Cursor::new(CAPACITY);
    let mut got = 0;
    loop {
        // The state first, as the ring does.
        let state = ring.writer.told().state().expect("a state");
        match ring.take(&mut cursor) {
            Some(unit) => {
                got += 1;
                assert_eq!(unit, got);
            }
            None if state == CLOSED => break,
            None => thread::yield_now(),
        }
    }
    assert_eq!(got, sent);
    writer.join().expect("a writer does not panic");
}

/// A message is sent while the other side stops reading: that side finds it, or the sender finds that it is lost.
///
/// # Panics
/// If neither does.
pub fn a_message_is_found_or_known_to_be_lost() {
    let ring = Ring::new();
    let reading = Arc::clone(&ring);
    let reader = thread::spawn(move || {
        reading.reader.told().stop_reading();
        reading.take(&mut Cursor::new(CAPACITY)).is_some()
    });
    let mut cursor = Cursor::new(CAPACITY);
    assert!(ring.put(&mut cursor, 1));
    let is_lost = cursor.has_lost(ring.reader.told());
    let is_found = reader.join().expect("a reader does not panic");
    assert!(is_lost || is_found);
}

/// What an earlier use of the memory has left where states will stand.
const GARBAGE: u32 = 99;

/// A ring is made in used memory and closed by its creator, who uses the memory again once it is over; meanwhile the other side
/// comes, reads and goes (BLOCK-1, BLOCK-2). A ring that was written to waits for it.
///
/// # Panics
/// Where the other side finds old headers, or both use the memory.
pub fn memory_of_a_ring_is_used_again_when_both_have_left(is_written: bool) {
    let arena = Arc::new(Arena::new(1));
    let place = arena.heap_offset(0);
    let state = Arc::new(AtomicU32::new(0));
    let written = Arc::new(AtomicU64::new(0));
    let ends: Arc<[End; 4]> = Arc::new(std::array::from_fn(|_| End {
        index: AtomicU64::new(0),
        state: AtomicU32::new(GARBAGE),
    }));
    let other = {
        let (arena, state, ends) = (Arc::clone(&arena), Arc::clone(&state), Arc::clone(&ends));
        thread::spawn(move || {
            while block::attach(&state).is_err() {
                if !is_written {
                    return;
                }
                thread::yield_now();
            }
            for end in &ends[..2] {
                assert!(end.told().state().is_ok(), "headers of an earlier ring");
            }
            let _ = arena.take(arena.at(place, 8));
            ends[2].told().leave(CLOSED);
            ends[3].told().leave(CLOSED);
        })
    };
    for end in &*ends {
        end.state.store(OPEN, Ordering::Relaxed);
    }
    arena.put(arena.at(place, 8), 1);
    block::open(&state);
    written.store(u64::from(is_written), Ordering::Relaxed);
    ends[0].told().leave(CLOSED);
    ends[1].told().leave(CLOSED);
    let states = || [0, 1, 2, 3].map(|at: usize| &ends[at].state);
    while !block::is_over(&state, &written, states()) {
        thread::yield_now();
    }
    arena.put(arena.at(place, 8), 2);
    other.join().expect("the other side ends well");
}
