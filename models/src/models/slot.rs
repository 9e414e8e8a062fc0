//! The exchange of entries: what a rank sees of its peers is what they published, and a slot is never
//! taken for another one's.

use std::sync::Arc;

use loom::thread;

use crate::arena::Arena;
use crate::shm::heap::Heap;
use crate::shm::slot::{DONE, Entry, PayloadClass, PeerSlot, Slot, progress};
use crate::sync::{AtomicU64, Ordering};

const KEY: u64 = 9;
/// The key of another group: as far from it as hashes are.
const OTHER: u64 = KEY << 40;

pub(super) fn slots(arena: &Arc<Arena>, ranks: usize) -> Vec<Slot> {
    let members: Vec<u32> = (0..).take(ranks).collect();
    (0..ranks)
        .map(|local| {
            let heap = Arc::new(Heap::new(Arc::clone(arena), local));
            let slot = Slot::create(&heap, arena, local, KEY, KEY, &members).expect("room");
            make(arena, &slot);
            slot
        })
        .collect()
}

/// Makes what lies in front of the payloads: the words of the entries.
pub(super) fn make(arena: &Arena, slot: &Slot) {
    for seq in 0..2 {
        arena.make(slot.payload(seq, PayloadClass::Ample).addr() - 128, 128);
    }
}

pub(super) fn peer(arena: &Arena, local: usize) -> PeerSlot {
    PeerSlot::find(arena, local, KEY)
        .expect("no damage")
        .expect("made before")
}

pub(super) fn until(mut ready: impl FnMut() -> bool) {
    while !ready() {
        thread::yield_now();
    }
}

/// What a rank says in a call, in all its words.
fn entry(rank: usize, seq: u64) -> Entry {
    let word = seq * 16 + rank as u64;
    Entry {
        call: word,
        count: word,
        splits: word,
        payload_len: 8,
        room: room(seq),
        // Every other call has far words.
        staging: if seq.is_multiple_of(2) { word } else { 0 },
        ..Entry::default()
    }
}

/// Where the payload of a call lies: of every other call in the words of the entry.
fn room(seq: u64) -> PayloadClass {
    PayloadClass::for_bytes(8, seq.is_multiple_of(2))
}

/// Two ranks make calls: each gives an entry with a payload and takes that of the other one (SLOT-1). In
/// the end each waits until both are done (SLOT-3). Three ranks are more than loom gets through.
///
/// # Panics
/// Where a rank sees anything but what its peer gave in that call.
pub fn entries_are_exchanged(calls: u64) {
    let arena = Arc::new(Arena::new(2));
    let mut slots = slots(&arena, 2).into_iter();
    let (Some(mine), Some(theirs)) = (slots.next(), slots.next()) else {
        unreachable!("two slots");
    };
    let thread = {
        let arena = Arc::clone(&arena);
        thread::spawn(move || {
            make_calls(&arena, &theirs, 1, calls);
            // Kept until both have ended: looking for it again is not part of this.
            theirs
        })
    };
    make_calls(&arena, &mine, 0, calls);
    drop(thread.join().expect("the rank ends well"));
}

/// One rank's part in the exchange.
fn make_calls(arena: &Arena, slot: &Slot, me: usize, calls: u64) {
    let other = 1 - me;
    let peer = peer(arena, other);
    for seq in 1..=calls {
        arena.put(slot.payload(seq, room(seq)), seq * 100 + me as u64);
        slot.publish(seq, &entry(me, seq));
        until(|| peer.entered(arena, seq) == seq);
        assert_eq!(peer.entry(arena, seq), entry(other, seq));
        assert_eq!(
            arena.take(peer.payload(arena, seq, room(seq))),
            seq * 100 + other as u64
        );
    }
    slot.advance(calls, DONE);
    until(|| peer.reached(arena) == progress(calls, DONE));
    // Now the payload is this rank's alone again.
    arena.put(slot.payload(calls, room(calls)), 0);
}

/// A rank destroys a group and uses the same memory for another group, or for data of its own that look
/// like an entry; a peer calls on the old group (SLOT-4).
///
/// # Panics
/// Where the peer takes what it sees for an entry of the old group.
pub fn a_destroyed_group_is_noticed(is_reused_as_data: bool) {
    let arena = Arc::new(Arena::new(1));
    let heap = Arc::new(Heap::new(Arc::clone(&arena), 0));
    let old = Slot::create(&heap, &arena, 0, KEY, KEY, &[0, 1]).expect("room");
    make(&arena, &old);
    let known = peer(&arena, 0);
    let owner = {
        let arena = Arc::clone(&arena);
        thread::spawn(move || {
            let payload = old.payload(1, PayloadClass::Ample).addr();
            drop(old);
            if is_reused_as_data {
                // All that lies in front of the payload, the sequence number with it.
                for word in (payload - 64..payload).step_by(8) {
                    arena.word(word).store(1, Ordering::Relaxed);
                }
                return None;
            }
            let new = Slot::create(&heap, &arena, 0, OTHER, OTHER, &[0]).expect("room");
            new.publish(1, &entry(0, 1));
            Some(new)
        })
    };
    let seen = known.entered(&arena, 1);
    assert_ne!(seen, 1, "taken for an entry of the old group");
    if seen != 0 {
        // Not what the old group left: whoever waits notices.
        assert!(
            !known.belongs(&arena),
            "{seen:#x} is there and nobody notices"
        );
    }
    drop(owner.join().expect("the owner ends well"));
}

/// One rank is about to touch its peer's memory, the other revokes the call: one of them notices (SLOT-5).
///
/// # Panics
/// Where neither does.
pub fn who_begins_or_who_revokes_notices() {
    let arena = Arc::new(Arena::new(2));
    let mut slots = slots(&arena, 2).into_iter();
    let (Some(toucher), Some(revoker)) = (slots.next(), slots.next()) else {
        unreachable!("two slots");
    };
    let begun = Arc::new(AtomicU64::new(0));
    let thread = {
        let (arena, begun) = (Arc::clone(&arena), Arc::clone(&begun));
        thread::spawn(move || {
            toucher.touch(1);
            if peer(&arena, 1).revoked(&arena) < 1 {
                begun.store(1, Ordering::Relaxed);
            }
            toucher
        })
    };
    revoker.revoke(1);
    let is_seen = peer(&arena, 0).is_at_work(&arena, 1);
    let toucher = thread.join().expect("the rank ends well");
    assert!(is_seen || begun.load(Ordering::Relaxed) == 0);
    drop(toucher);
}
