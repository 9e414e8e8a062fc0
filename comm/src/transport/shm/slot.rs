//! A slot: one rank's side of one group in shared memory.
//!
//! It holds two *entries*, used in turn by the parity of the sequence number (what the call is,
//! where its buffer lies, and a small payload), and one *progress* word.
//!
//! - SLOT-1: a rank publishes entry `s` once; every member waits for the entries `s` of all others
//!   before its call `s` ends. So when a rank publishes entry `s + 2` over entry `s`, all members
//!   have ended call `s` and none reads entry `s` any more.
//! - SLOT-2: progress only grows. Progress `(s, t)` says that the owner has done ticks `0..=t` of
//!   call `s`: what those ticks expose may be read, and what earlier ticks read may be overwritten.
//! - SLOT-3: progress `(s, DONE)` says that the owner reads nothing of call `s` any more. A slot
//!   and its staging return to the heap once every member is done with the last call, or has
//!   withdrawn its own slot (which it does only after it is done).
//! - SLOT-4: the key in a slot is cleared before its memory serves anything else. So a member that
//!   calls again on a group that a peer has destroyed finds that out, and never takes what lies
//!   there now for the peer's entry.
//! - SLOT-5: a rank touches a peer's user memory only in call `s`, between progress `(s, TOUCH)` and
//!   progress `(s, CLOSING)`, and only if it has seen after the former that no member has revoked call `s`.
//!   A rank that ends call `s` early revokes it first, and then looks who has the progress `(s, TOUCH)`:
//!   whoever has not will see the revocation, so nobody else can be at work on its memory.

use std::sync::Arc;

use super::arena::Arena;
use super::bell::Bell;
use super::directory;
use super::heap::{Block, Heap, HeapFull};
use crate::sync::{Ordering, fence};
use crate::types::index;

/// Payload that rides in the entry itself.
pub const PAYLOAD_MAX: usize = 16 << 10;
/// Bits of the progress word that count ticks within a call.
const TICK_BITS: u32 = 24;
/// The tick that ends a call: none is counted that far.
pub const DONE: u32 = (1 << TICK_BITS) - 1;
/// The tick that says that a rank has done with its peers' memory; see SLOT-5.
pub const CLOSING: u32 = DONE - 1;
/// The tick in which a rank works on its peers' memory; see SLOT-5.
pub const TOUCH: u32 = DONE - 2;

/// Words of an entry that every call needs, and those that only some do; see [`Entry`].
const NEAR_WORDS: usize = 4;
const FAR_WORDS: usize = 3;
/// Set in the last near word, which holds the length of the payload, where the far words count.
const HAS_FAR: u64 = 1 << 63;
/// Where the mark lies in that word.
const MARK_SHIFT: u32 = 32;
/// Bits of it.
const MARK_MASK: u64 = (1 << 24) - 1;

// Offsets within a slot.
const KEY: usize = 0;
const MEMBER_COUNT: usize = 8;
/// In a line that peers read in every call and nobody writes.
const REVOKED: usize = 16;
const PROGRESS: usize = 128;
const SLEEPERS: usize = 136;
const BELL: usize = 140;
const ENTRIES: usize = 256;
// Offsets within an entry. The far words have the first cache line to themselves. The near words and
// the first payload bytes share that of the sequence number: a tiny message costs one transfer.
const FAR: usize = 0;
const SEQ: usize = 64;
const NEAR: usize = SEQ + 8;
const PAYLOAD: usize = NEAR + NEAR_WORDS * 8;
const ENTRY_STRIDE: usize = (PAYLOAD + PAYLOAD_MAX).next_multiple_of(128);
/// Where the member list begins.
const MEMBERS: usize = ENTRIES + 2 * ENTRY_STRIDE;

const _: () = assert!(FAR + FAR_WORDS * 8 <= SEQ);
const _: () = assert!((PAYLOAD_MAX as u64) < HAS_FAR);

/// What a rank says about its call. Travels as plain words; the reader checks what it uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The call: collective, element type, reduction, flags and root, packed by the backend.
    pub call: u64,
    /// Elements, as the collective counts them.
    pub count: u64,
    /// Hash of the lengths that all ranks of a `_v` collective must agree on.
    pub splits: u64,
    /// Bytes of payload in the entry.
    pub payload_len: u64,
    /// Where in the program the call is made, as 24 bits that the backend compares; 0 for unknown.
    pub mark: u32,
    /// Arena offset of the staging block, 0 for none.
    pub staging: u64,
    /// Place of the send buffer (see `Spaces`), 0 for one that peers cannot
    /// reach.
    pub send_at: u64,
    /// Place of the receive buffer, likewise.
    pub recv_at: u64,
}

impl Entry {
    fn far(&self) -> [u64; FAR_WORDS] {
        [self.staging, self.send_at, self.recv_at]
    }

    fn near(&self) -> [u64; NEAR_WORDS] {
        let has_far = if self.far() == [0; FAR_WORDS] {
            0
        } else {
            HAS_FAR
        };
        [
            self.call,
            self.count,
            self.splits,
            self.payload_len | (u64::from(self.mark) & MARK_MASK) << MARK_SHIFT | has_far,
        ]
    }
}

/// Progress as one word that only grows.
#[must_use]
pub fn progress(seq: u64, tick: u32) -> u64 {
    debug_assert!(tick <= DONE, "tick {tick}");
    (seq << TICK_BITS) | u64::from(tick)
}

/// The owner's handle.
#[derive(Debug)]
pub struct Slot {
    arena: Arc<Arena>,
    local: usize,
    place: usize,
    block: Block,
}

/// A slot could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SlotError {
    /// No memory left in the region.
    #[error(transparent)]
    Heap(#[from] HeapFull),
    /// The directory is full.
    #[error(
        "too many groups in use at once: the directory of {} entries has no free place",
        super::arena::DIRECTORY_ENTRIES
    )]
    Directory,
}

impl Slot {
    /// Makes and publishes this rank's slot of the group `key`. `note` is the hash of the group's
    /// name, `members` its world ranks in order (kept for peers that expected others).
    ///
    /// # Errors
    /// Not enough room in the region.
    pub fn create(
        heap: &Arc<Heap>,
        arena: &Arc<Arena>,
        local: usize,
        key: u64,
        note: u64,
        members: &[u32],
    ) -> Result<Self, SlotError> {
        let block = heap.take(MEMBERS + members.len().div_ceil(2) * 8)?;
        let base = block.offset();
        // Relaxed throughout: published by the Release in `directory::publish`. All words are
        // written, since the block may have served another group before.
        for word in (0..ENTRIES).step_by(8) {
            arena.word(base + word).store(0, Ordering::Relaxed);
        }
        for parity in 0..2 {
            arena
                .word(base + ENTRIES + parity * ENTRY_STRIDE + SEQ)
                .store(0, Ordering::Relaxed);
        }
        arena.word(base + KEY).store(key, Ordering::Relaxed);
        arena
            .word(base + MEMBER_COUNT)
            .store(members.len() as u64, Ordering::Relaxed);
        for (i, pair) in members.chunks(2).enumerate() {
            let word = u64::from(pair[0]) | u64::from(pair.get(1).copied().unwrap_or(0)) << 32;
            arena
                .word(base + MEMBERS + i * 8)
                .store(word, Ordering::Relaxed);
        }
        let place =
            directory::publish(arena, local, key, note, base).ok_or(SlotError::Directory)?;
        Ok(Self {
            arena: Arc::clone(arena),
            local,
            place,
            block,
        })
    }

    /// The group is destroyed here: its name no longer stands for these members.
    pub fn forget_name(&self) {
        directory::forget_note(&self.arena, self.local, self.place);
    }

    /// Where the payload of call `seq` goes, [`PAYLOAD_MAX`] bytes, before the entry is published.
    #[must_use]
    pub fn payload(&self, seq: u64) -> *mut u8 {
        self.arena.at(self.entry_offset(seq) + PAYLOAD, PAYLOAD_MAX)
    }

    /// Publishes entry `seq`, payload included.
    pub fn publish(&self, seq: u64, entry: &Entry) {
        let base = self.entry_offset(seq);
        let near = entry.near();
        // Relaxed throughout: published by the Release below.
        let write = |at: usize, words: &[u64]| {
            for (i, word) in words.iter().enumerate() {
                self.arena.word(at + i * 8).store(*word, Ordering::Relaxed);
            }
        };
        write(base + NEAR, &near);
        if near[NEAR_WORDS - 1] & HAS_FAR != 0 {
            write(base + FAR, &entry.far());
        }
        // SYNC: pairs with the Acquire in `PeerSlot::entered`: who sees the sequence number sees
        // the words, the payload, and everything staged before.
        self.arena.word(base + SEQ).store(seq, Ordering::Release);
        self.bell().ring();
    }

    /// Publishes progress.
    pub fn advance(&self, seq: u64, tick: u32) {
        // SYNC: pairs with the Acquire in `PeerSlot::reached`; SLOT-2.
        self.arena
            .word(self.block.offset() + PROGRESS)
            .store(progress(seq, tick), Ordering::Release);
        self.bell().ring();
    }

    /// Publishes that this rank is about to touch its peers' memory in call `seq`. To be followed by a
    /// look at what they revoked (SLOT-5).
    pub fn touch(&self, seq: u64) {
        self.advance(seq, TOUCH);
        // SYNC: with the fence in `revoke`: either this rank sees the revocation, or the rank that
        // revoked sees the progress.
        fence(Ordering::SeqCst);
    }

    /// Forbids all members that have not begun it yet to touch this rank's memory in call `seq`
    /// (SLOT-5).
    pub fn revoke(&self, seq: u64) {
        // Relaxed: ordered by the fence.
        self.arena
            .word(self.block.offset() + REVOKED)
            .store(seq, Ordering::Relaxed);
        // SYNC: with the fence in `touch`.
        fence(Ordering::SeqCst);
    }

    fn bell(&self) -> Bell<'_> {
        bell(&self.arena, self.block.offset())
    }

    fn entry_offset(&self, seq: u64) -> usize {
        entry_offset(self.block.offset(), seq)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.block.is_kept() {
            // The rank ends, and members may not have looked for this slot yet.
            return;
        }
        // Dropped only when SLOT-3 allows it.
        directory::withdraw(&self.arena, self.local, self.place);
        self.arena
            .word(self.block.offset() + KEY)
            .store(0, Ordering::Relaxed);
        // SYNC: pairs with the Acquire in `PeerSlot::entered`: who sees what is written here next
        // sees that the key is gone (SLOT-4).
        fence(Ordering::Release);
    }
}

/// A peer's slot. Copies freely; valid while the peer's side of the group exists (SLOT-3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerSlot {
    offset: usize,
    local: usize,
}

/// A peer's directory points where no slot can lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its shared region points to offset {offset}, where no slot can lie")]
pub struct BadSlot {
    /// What the directory said.
    pub offset: usize,
}

impl PeerSlot {
    /// Looks for the slot of the group `key` in region `local`.
    ///
    /// # Errors
    /// [`BadSlot`] where the directory is damaged.
    pub fn find(arena: &Arena, local: usize, key: u64) -> Result<Option<Self>, BadSlot> {
        match directory::find(arena, local, key) {
            Some(found) => Self::checked(arena, local, found.offset).map(Some),
            None => Ok(None),
        }
    }

    /// Members of the group of this name (`note`) that region `local` has under another key.
    #[must_use]
    pub fn members_by_note(arena: &Arena, local: usize, note: u64) -> Option<Vec<u32>> {
        let found = directory::find_note(arena, local, note)?;
        let slot = Self::checked(arena, local, found.offset).ok()?;
        // Relaxed: written before the directory entry that led here, and constant.
        let count = index(
            arena
                .word(slot.offset + MEMBER_COUNT)
                .load(Ordering::Relaxed),
        );
        let words = count.div_ceil(2);
        if words > super::arena::ISLAND_MAX
            || !arena.heap_holds(local, slot.offset + MEMBERS, words * 8)
        {
            return None;
        }
        let mut members = Vec::with_capacity(count);
        for i in 0..words {
            let word = arena
                .word(slot.offset + MEMBERS + i * 8)
                .load(Ordering::Relaxed);
            #[expect(clippy::cast_possible_truncation, reason = "two ranks lie in one word")]
            members.extend([word as u32, (word >> 32) as u32]);
        }
        members.truncate(count);
        Some(members)
    }

    fn checked(arena: &Arena, local: usize, offset: usize) -> Result<Self, BadSlot> {
        let sound = offset.is_multiple_of(super::heap::BLOCK_ALIGN)
            && arena.heap_holds(local, offset, MEMBERS);
        if sound {
            Ok(Self { offset, local })
        } else {
            Err(BadSlot { offset })
        }
    }

    /// The region that the slot lies in.
    #[must_use]
    pub fn local(&self) -> usize {
        self.local
    }

    /// Whether this is still the slot of the group `key`; to be asked after [`PeerSlot::entered`].
    #[must_use]
    pub fn belongs_to(&self, arena: &Arena, key: u64) -> bool {
        // Relaxed: ordered by the Acquire in `entered` (SLOT-4).
        arena.word(self.offset + KEY).load(Ordering::Relaxed) == key
    }

    /// Sequence number of the last entry published with the parity of `seq`.
    #[must_use]
    pub fn entered(&self, arena: &Arena, seq: u64) -> u64 {
        // SYNC: pairs with the Release in `Slot::publish`.
        arena
            .word(entry_offset(self.offset, seq) + SEQ)
            .load(Ordering::Acquire)
    }

    /// Entry `seq`, which has been published (see [`PeerSlot::entered`]), without the places of memory.
    #[must_use]
    pub fn entry(&self, arena: &Arena, seq: u64) -> Entry {
        let [call, count, splits, len] = self.near(arena, seq);
        Entry {
            call,
            count,
            splits,
            payload_len: len & ((1 << MARK_SHIFT) - 1),
            mark: u32::try_from(len >> MARK_SHIFT & MARK_MASK).unwrap_or(0),
            ..Entry::default()
        }
    }

    /// Completes entry `seq` by the places of memory, which lie in a cache line of their own.
    pub fn read_places(&self, arena: &Arena, seq: u64, entry: &mut Entry) {
        if self.near(arena, seq)[NEAR_WORDS - 1] & HAS_FAR != 0 {
            [entry.staging, entry.send_at, entry.recv_at] = self.words(arena, seq, FAR);
        }
    }

    fn near(&self, arena: &Arena, seq: u64) -> [u64; NEAR_WORDS] {
        self.words(arena, seq, NEAR)
    }

    /// Words of an entry that was seen.
    fn words<const N: usize>(&self, arena: &Arena, seq: u64, from: usize) -> [u64; N] {
        let base = entry_offset(self.offset, seq) + from;
        // Relaxed: ordered by the Acquire in `entered`.
        std::array::from_fn(|i| arena.word(base + i * 8).load(Ordering::Relaxed))
    }

    /// The payload of entry `seq`: [`PAYLOAD_MAX`] bytes that must not be read before the entry was
    /// seen.
    #[must_use]
    pub fn payload(&self, arena: &Arena, seq: u64) -> *const u8 {
        arena.at(entry_offset(self.offset, seq) + PAYLOAD, PAYLOAD_MAX)
    }

    /// The peer's progress.
    #[must_use]
    pub fn reached(&self, arena: &Arena) -> u64 {
        // SYNC: pairs with the Release in `Slot::advance`.
        arena.word(self.offset + PROGRESS).load(Ordering::Acquire)
    }

    /// The last call that the peer revoked, 0 for none; to be asked after [`Slot::touch`].
    #[must_use]
    pub fn revoked(&self, arena: &Arena) -> u64 {
        // Relaxed: ordered by the fence in `Slot::touch`.
        arena.word(self.offset + REVOKED).load(Ordering::Relaxed)
    }

    /// What to sleep on until this peer publishes something.
    #[must_use]
    pub fn bell<'a>(&self, arena: &'a Arena) -> Bell<'a> {
        bell(arena, self.offset)
    }
}

fn bell(arena: &Arena, slot: usize) -> Bell<'_> {
    Bell {
        sleepers: arena.word32(slot + SLEEPERS),
        bell: arena.word32(slot + BELL),
    }
}

fn entry_offset(slot: usize, seq: u64) -> usize {
    slot + ENTRIES + index(seq % 2) * ENTRY_STRIDE
}

#[cfg(test)]
#[path = "slot/tests.rs"]
mod tests;
