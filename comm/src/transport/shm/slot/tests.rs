//! What a slot shows its peers, and what a revoked call promises.

#![expect(unsafe_code, reason = "payloads are memory that peers share")]

use super::*;
use crate::sync::AtomicU64;
use crate::transport::shm::arena::HEAP_BYTES_MIN;

#[test]
fn a_peer_sees_the_entry_that_was_published_and_its_members() {
    let arena = Arc::new(Arena::create(2, HEAP_BYTES_MIN).unwrap());
    let heap = Arc::new(Heap::new(Arc::clone(&arena), 1));
    let slot = Slot::create(&heap, &arena, 1, 99, 5, &[4, 7, 9]).unwrap();
    let peer = PeerSlot::find(&arena, 1, 99).unwrap().unwrap();
    assert_eq!(peer.entered(&arena, 1), 0);
    let entry = Entry {
        call: 1,
        count: 2,
        splits: 3,
        staging: 9,
        send_at: 10,
        recv_at: 11,
        ..Entry::default()
    };
    slot.publish(1, &entry);
    assert_eq!(peer.entered(&arena, 1), 1);
    assert_eq!(peer.entry(&arena, 1), entry);
    // The same place again, now without far words: nothing of the former entry shows.
    let near = Entry {
        call: 5,
        payload_len: PAYLOAD_MAX as u64,
        room: PayloadClass::Small,
        mark: 0xab_cdef,
        ..Entry::default()
    };
    slot.publish(3, &near);
    assert_eq!(peer.entry(&arena, 3), near);
    slot.touch(1);
    assert!(peer.is_at_work(&arena, 1) && !peer.is_at_work(&arena, 2));
    slot.untouch();
    assert!(!peer.is_at_work(&arena, 1) && peer.reached(&arena) < progress(1, CLOSING));
    slot.touch(1);
    slot.advance(1, CLOSING);
    assert!(!peer.is_at_work(&arena, 1));
    slot.advance(1, DONE);
    assert_eq!(peer.reached(&arena), progress(1, DONE));
    assert!(peer.reached(&arena) < progress(2, 0));
    assert_eq!(PeerSlot::members_by_note(&arena, 1, 5), Some(vec![4, 7, 9]));
    assert!(peer.belongs(&arena));
    drop(slot);
    assert!(!peer.belongs(&arena));
    assert_eq!(PeerSlot::find(&arena, 1, 99), Ok(None));
}

/// A payload of any length lies where its owner wrote it, beside what the entry says, and in both entries at
/// once.
#[test]
fn payloads_of_all_lengths_leave_the_entry_and_each_other_alone() {
    let arena = Arc::new(Arena::create(2, HEAP_BYTES_MIN).unwrap());
    let heap = Arc::new(Heap::new(Arc::clone(&arena), 1));
    let slot = Slot::create(&heap, &arena, 1, 99, 5, &[4, 7]).unwrap();
    let peer = PeerSlot::find(&arena, 1, 99).unwrap().unwrap();
    let (small, ample) = (PayloadClass::Small.bytes(), PayloadClass::Ample.bytes());
    assert_eq!(ample, PAYLOAD_MAX);
    let mut seq = 0;
    for (len, has_far) in [
        (0, false),
        (1, false),
        (small, false),
        (small + 1, false),
        (1, true),
        (small, true),
        (PAYLOAD_MAX, false),
        (PAYLOAD_MAX, true),
    ] {
        let room = PayloadClass::for_bytes(len, has_far);
        assert_eq!(
            room == PayloadClass::Small,
            len <= small && !has_far,
            "{len}"
        );
        let entry = |seq: u64| Entry {
            call: seq,
            count: seq,
            splits: seq,
            payload_len: len as u64,
            room,
            staging: if has_far { seq } else { 0 },
            ..Entry::default()
        };
        let byte = |seq: u64| u8::try_from(seq).unwrap();
        for _ in 0..2 {
            seq += 1;
            // SAFETY: the room has that many bytes, and nobody reads them yet.
            unsafe { slot.payload(seq, room).write_bytes(byte(seq), len) };
            slot.publish(seq, &entry(seq));
        }
        for seq in [seq - 1, seq] {
            assert_eq!(peer.entered(&arena, seq), seq);
            assert_eq!(peer.entry(&arena, seq), entry(seq));
            let payload = peer.payload(&arena, seq, room);
            // SAFETY: that many bytes were published, and are not written while this looks.
            let bytes = unsafe { std::slice::from_raw_parts(payload, len) };
            assert!(bytes.iter().all(|one| *one == byte(seq)), "{len} {has_far}");
        }
    }
    assert_eq!(PeerSlot::members_by_note(&arena, 1, 5), Some(vec![4, 7]));
}

#[test]
fn a_reused_block_shows_nothing_of_its_former_group() {
    let arena = Arc::new(Arena::create(1, HEAP_BYTES_MIN).unwrap());
    let heap = Arc::new(Heap::new(Arc::clone(&arena), 0));
    let slot = Slot::create(&heap, &arena, 0, 1, 1, &[0]).unwrap();
    slot.publish(1, &Entry::default());
    slot.publish(2, &Entry::default());
    slot.advance(2, DONE);
    let old = PeerSlot::find(&arena, 0, 1).unwrap().unwrap();
    drop(slot);
    let new = Slot::create(&heap, &arena, 0, 2, 2, &[0]).unwrap();
    let peer = PeerSlot::find(&arena, 0, 2).unwrap().unwrap();
    assert_eq!((peer.entered(&arena, 1), peer.entered(&arena, 2)), (0, 0));
    assert_eq!(peer.reached(&arena), 0);
    // Nor does who knew the former group take its entries for that group's.
    new.publish(1, &Entry::default());
    assert_eq!(peer.entered(&arena, 1), 1);
    assert!(old.entered(&arena, 1) != 1 && !old.belongs(&arena));
    // Nor is a peer that has destroyed its group at work in a call of it, whatever its memory serves now.
    new.touch(3);
    assert!(peer.is_at_work(&arena, 3) && !old.is_at_work(&arena, 3));
}

#[test]
fn a_directory_entry_outside_the_heap_is_refused() {
    let arena = Arena::create(1, HEAP_BYTES_MIN).unwrap();
    for offset in [
        0,
        8,
        usize::MAX / 256 * 128,
        arena.heap_offset(0) + HEAP_BYTES_MIN - 128,
    ] {
        let place = directory::publish(&arena, 0, 42, 0, offset).unwrap();
        assert_eq!(PeerSlot::find(&arena, 0, 42), Err(BadSlot { offset }));
        directory::withdraw(&arena, 0, place);
    }
}

/// SLOT-5: either the rank that begins sees the revocation, or the rank that revokes sees that the
/// other has begun. Both at once would leave somebody at work on memory that its owner has back.
#[test]
fn a_call_is_never_begun_behind_the_back_of_who_revoked_it() {
    const CALLS: u64 = 20_000;
    let arena = Arc::new(Arena::create(2, HEAP_BYTES_MIN).unwrap());
    let slots = [0, 1].map(|local| {
        let heap = Arc::new(Heap::new(Arc::clone(&arena), local));
        Slot::create(&heap, &arena, local, 9, 9, &[0, 1]).unwrap()
    });
    let peers = [0, 1].map(|local| PeerSlot::find(&arena, local, 9).unwrap().unwrap());
    let begun = AtomicU64::new(0);
    let turns = [AtomicU64::new(0), AtomicU64::new(0)];
    let meet = |who: usize, turn: u64| {
        turns[who].store(turn, Ordering::Release);
        while turns[1 - who].load(Ordering::Acquire) < turn {
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for call in 1..=CALLS {
                meet(0, 2 * call - 1);
                slots[0].touch(call);
                if peers[1].revoked(&arena) < call {
                    begun.store(call, Ordering::Relaxed);
                }
                meet(0, 2 * call);
            }
        });
        for call in 1..=CALLS {
            meet(1, 2 * call - 1);
            slots[1].revoke(call);
            let at_work = peers[0].is_at_work(&arena, call);
            meet(1, 2 * call);
            let begun = begun.load(Ordering::Relaxed) == call;
            assert!(at_work || !begun, "call {call}");
        }
    });
}
