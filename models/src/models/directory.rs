//! The directory: who sees a key sees the block behind it, and places are taken once.

use std::sync::Arc;

use loom::thread;

use crate::arena::{Arena, DIRECTORY_ENTRIES};
use crate::shm::directory::{find, find_note, publish, withdraw};

const NOTE: u64 = 5;

/// A rank fills a block and publishes it, withdraws it, and publishes another one in its place; a peer
/// looks for the first (DIR-1).
///
/// # Panics
/// Where the peer sees a block that is not filled, or another one.
pub fn who_sees_a_key_sees_its_block() {
    let arena = Arc::new(Arena::new(1));
    let owner = {
        let arena = Arc::clone(&arena);
        thread::spawn(move || {
            let key = 3;
            let block = arena.heap_offset(0);
            arena.put(arena.at(block, 8), 30);
            publish(&arena, 0, key, NOTE, block).expect("room")
        })
    };
    let found = find(&arena, 0, 3);
    if let Some(found) = found {
        assert_eq!((found.offset, found.note), (arena.heap_offset(0), NOTE));
        assert_eq!(arena.take(arena.at(found.offset, 8)), 30);
    }
    if let Some(found) = find_note(&arena, 0, NOTE) {
        assert_eq!(found.offset, arena.heap_offset(0));
        assert_eq!(arena.take(arena.at(found.offset, 8)), 30);
    }
    let place = owner.join().expect("the owner ends well");
    assert!(find(&arena, 0, 3).is_some() && find_note(&arena, 0, NOTE).is_some());
    withdraw(&arena, 0, place);
    assert_eq!(find(&arena, 0, 3), None);
}

/// Two threads of one rank publish keys with the same hash while a peer looks for one of them (DIR-2).
///
/// # Panics
/// Where one of them is lost, or shown with the other's block.
pub fn threads_of_an_owner_take_places_of_their_own() {
    let arena = Arc::new(Arena::new(1));
    let keys = [7, 7 + DIRECTORY_ENTRIES as u64];
    let publish_one = |which: usize| {
        let arena = Arc::clone(&arena);
        move || publish(&arena, 0, keys[which], 0, 4096 * (which + 1)).expect("room")
    };
    let owners = [thread::spawn(publish_one(0)), thread::spawn(publish_one(1))];
    if let Some(found) = find(&arena, 0, keys[1]) {
        assert_eq!(found.offset, 8192);
    }
    let places = owners.map(|owner| owner.join().expect("an owner ends well"));
    assert_ne!(places[0], places[1]);
    for (key, offset) in keys.into_iter().zip([4096, 8192]) {
        assert_eq!(find(&arena, 0, key).map(|found| found.offset), Some(offset));
    }
}
