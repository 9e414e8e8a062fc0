//! The directory of a region: how peers find what its owner has published.
//!
//! An entry is a key (a hash that all members of a group derive alike), the arena offset of the
//! block, and a note (a hash of the group's name, so that groups of one name with other members
//! can be told apart from groups that were never made). Only the owner writes its directory.
//!
//! - DIR-1: an entry's offset and note are written before its key is (Release), and the key is
//!   cleared before the block is reused; so who sees the key (Acquire) sees the block initialised.
//! - DIR-2: a place is claimed before it is filled, so threads of the owner may publish at once.

use super::arena::{Arena, DIRECTORY_ENTRIES, ENTRY_BYTES};
use crate::sync::Ordering;
use crate::types::index;

/// A key lies within this many entries from where its hash points, or nowhere: bounds both the
/// owner's search for a free place and a peer's search for a key.
const PROBE_MAX: usize = if DIRECTORY_ENTRIES < 128 {
    DIRECTORY_ENTRIES
} else {
    128
};

/// In place of a key: the entry is being written (DIR-2). That a key is this number is as unlikely
/// as that two keys are equal.
const CLAIMED: u64 = u64::MAX;

/// An entry as a peer sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Offset of the block in the arena: unchecked, as the peer wrote it.
    pub offset: usize,
    /// The note.
    pub note: u64,
}

/// Publishes a block of the heap of region `local` under `key`. To be called by the owner only.
///
/// Returns the place of the entry for [`withdraw`], or `None` where every place is taken.
#[must_use]
pub fn publish(arena: &Arena, local: usize, key: u64, note: u64, offset: usize) -> Option<usize> {
    debug_assert_ne!(key, 0, "zero marks a free place");
    let place = probe(key).find(|place| {
        let word = arena.word(at(arena, local, *place));
        // Relaxed twice: only threads of this process claim, and the claim itself says nothing.
        word.compare_exchange(0, CLAIMED, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    })?;
    let entry = at(arena, local, place);
    // Relaxed twice: published by the Release below.
    arena
        .word(entry + 8)
        .store(offset as u64, Ordering::Relaxed);
    arena.word(entry + 16).store(note, Ordering::Relaxed);
    // SYNC: pairs with the Acquire in `find`; DIR-1.
    arena.word(entry).store(key, Ordering::Release);
    Some(place)
}

/// Takes an entry back. The block may be reused once no peer can still hold its offset.
pub fn withdraw(arena: &Arena, local: usize, place: usize) {
    // SYNC: pairs with the Acquire in `find`: who no longer sees the key knows that the owner had
    // finished with the block.
    arena
        .word(at(arena, local, place))
        .store(0, Ordering::Release);
}

/// Takes the note off an entry, so that [`find_note`] passes it by.
pub fn forget_note(arena: &Arena, local: usize, place: usize) {
    // Relaxed: a note only serves messages.
    arena
        .word(at(arena, local, place) + 16)
        .store(0, Ordering::Relaxed);
}

/// Looks for `key` in the directory of region `local`.
#[must_use]
pub fn find(arena: &Arena, local: usize, key: u64) -> Option<Found> {
    probe(key).find_map(|place| {
        let entry = at(arena, local, place);
        // SYNC: pairs with the Release in `publish`; DIR-1.
        (arena.word(entry).load(Ordering::Acquire) == key).then(|| read(arena, entry))
    })
}

/// Looks for an entry of region `local` with this note, whatever its key.
#[must_use]
pub fn find_note(arena: &Arena, local: usize, note: u64) -> Option<Found> {
    (0..DIRECTORY_ENTRIES).find_map(|place| {
        let entry = at(arena, local, place);
        // SYNC: pairs with the Release in `publish`; DIR-1.
        if matches!(arena.word(entry).load(Ordering::Acquire), 0 | CLAIMED) {
            return None;
        }
        let found = read(arena, entry);
        (found.note == note).then_some(found)
    })
}

fn read(arena: &Arena, entry: usize) -> Found {
    // Relaxed twice: ordered by the Acquire load of the key that led here.
    Found {
        offset: index(arena.word(entry + 8).load(Ordering::Relaxed)),
        note: arena.word(entry + 16).load(Ordering::Relaxed),
    }
}

fn probe(key: u64) -> impl Iterator<Item = usize> {
    (0..PROBE_MAX).map(move |step| (index(key) % DIRECTORY_ENTRIES + step) % DIRECTORY_ENTRIES)
}

fn at(arena: &Arena, local: usize, place: usize) -> usize {
    arena.directory_offset(local) + place * ENTRY_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::shm::arena::HEAP_BYTES_MIN;

    #[test]
    fn what_was_published_is_found_until_it_is_withdrawn() {
        let arena = Arena::create(2, HEAP_BYTES_MIN).unwrap();
        let place = publish(&arena, 1, 77, 5, 4096).unwrap();
        assert_eq!(
            find(&arena, 1, 77),
            Some(Found {
                offset: 4096,
                note: 5
            })
        );
        assert_eq!(find(&arena, 0, 77), None);
        assert_eq!(
            find_note(&arena, 1, 5),
            Some(Found {
                offset: 4096,
                note: 5
            })
        );
        withdraw(&arena, 1, place);
        assert_eq!(find(&arena, 1, 77), None);
        assert_eq!(find_note(&arena, 1, 5), None);
    }

    #[test]
    fn threads_that_publish_at_once_get_places_of_their_own() {
        let arena = Arena::create(1, HEAP_BYTES_MIN).unwrap();
        let key = |thread: u64, i: u64| 5 + (thread * 16 + i) * DIRECTORY_ENTRIES as u64;
        for _ in 0..200 {
            let places = std::thread::scope(|scope| {
                let publish = |thread| {
                    let arena = &arena;
                    move || {
                        (0..16)
                            .map(|i| publish(arena, 0, key(thread, i), i, 64).unwrap())
                            .collect::<Vec<_>>()
                    }
                };
                let threads: Vec<_> = (0..3).map(|thread| scope.spawn(publish(thread))).collect();
                threads
                    .into_iter()
                    .flat_map(|thread| thread.join().unwrap())
                    .collect::<Vec<_>>()
            });
            for thread in 0..3 {
                for i in 0..16 {
                    assert!(find(&arena, 0, key(thread, i)).is_some(), "{thread} {i}");
                }
            }
            for place in places {
                withdraw(&arena, 0, place);
            }
        }
    }

    #[test]
    fn keys_with_one_hash_get_places_of_their_own_until_none_is_left() {
        let arena = Arena::create(1, HEAP_BYTES_MIN).unwrap();
        let key = |i: u64| 3 + i * DIRECTORY_ENTRIES as u64;
        let probe_max = PROBE_MAX as u64;
        for i in 0..probe_max {
            assert!(publish(&arena, 0, key(i), i, 64).is_some(), "{i}");
        }
        assert_eq!(publish(&arena, 0, key(probe_max), 0, 64), None);
        assert_eq!(
            find(&arena, 0, key(100)),
            Some(Found {
                offset: 64,
                note: 100
            })
        );
    }
}
