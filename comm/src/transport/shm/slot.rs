//! A slot: one rank's side of one group in shared memory.
//!
//! It holds two *entries*, used in turn by the parity of the sequence number (what the call is, where its
//! buffers lie, and a small payload), a *progress* word, and for large groups a *gathered* word.
//!
//! - SLOT-1: a rank publishes entry `s` once; every member waits for the entries `s` of all others
//!   before its call `s` ends. So when a rank publishes entry `s + 2` over entry `s`, all members
//!   have ended call `s` and none reads entry `s` any more.
//! - SLOT-2: progress only grows. Progress `(s, t)` says that the owner has done ticks `0..=t` of
//!   call `s`: what those ticks expose may be read, and what earlier ticks read may be overwritten.
//! - SLOT-3: progress `(s, DONE)` says that the owner reads nothing of call `s` any more. A slot
//!   and its staging return to the heap once every member is done with the last call, or has
//!   withdrawn its own slot (which it does only after it is done).
//! - SLOT-4: the sequence number of an entry stands in shared memory as its sum with the key of the group,
//!   and the key in a slot is cleared before its memory serves anything else. So a member that calls again on a
//!   group that a peer has destroyed finds that out, and never takes what lies there now for the
//!   peer's entry.
//! - SLOT-5: a rank touches a peer's user memory only in call `s`, between saying so in its slot and progress
//!   `(s, CLOSING)`, and only if it has seen after the former that no member has revoked call `s`. Else it takes
//!   that back. It has not done its share then, and others may wait for that: so its progress stays.
//!   A rank that ends call `s` early revokes it first, and then looks who has said so and not closed:
//!   whoever has not will see the revocation, so nobody else can be at work on its memory.
//! - SLOT-6: in a large group the members are a tree (`tree`). Gathered `(s, t)` says that all of the owner's part of the tree, which is
//!   the whole group where the owner is the root, have reached tick `t` of call `s` (tick 0: published entry `s`), and in what they
//!   differ. An owner writes it again only after the root has gathered `(s, t)`, so nobody misses it who waits for it.

use std::sync::Arc;

pub use self::entry::{Differs, Entry, PayloadClass};
use self::entry::{FAR_WORDS, NEAR_WORDS};
use super::arena::Arena;
use super::bell::Bell;
use super::directory;
use super::heap::{Block, Heap, HeapFull};
use crate::sync::{Ordering, fence};
use crate::types::index;

/// Bytes of payload that ride in the entry at most.
pub const PAYLOAD_MAX: usize = 16 << 10;
/// Bits of the progress word that count ticks within a call.
const TICK_BITS: u32 = 24;
/// Bits of the gathered word that say in what members differ.
const DIFFERS_BITS: u32 = 3;
/// The tick that ends a call: none is counted that far.
pub const DONE: u32 = (1 << TICK_BITS) - 1;
/// The tick that says that a rank has done with its peers' memory; see SLOT-5.
pub const CLOSING: u32 = DONE - 1;

// Offsets within a slot.
const KEY: usize = 0;
const MEMBER_COUNT: usize = 8;
/// In a line that peers read in every call and nobody writes.
const REVOKED: usize = 16;
/// In a line that peers read only where they revoke a call: to write it, and to wait until it is written, costs little.
const TOUCHED: usize = 64;
const PROGRESS: usize = 128;
const SLEEPERS: usize = 136;
const BELL: usize = 140;
/// With a bell of its own: all members of a large group sleep on that of the root, which says much else.
const GATHERED: usize = 192;
const GATHERED_SLEEPERS: usize = 200;
const GATHERED_BELL: usize = 204;
const ENTRIES: usize = 256;
/// Where the member list begins.
const MEMBERS: usize = ENTRIES + 2 * ENTRY_STRIDE;
// Offsets within an entry. One cache line holds all that an entry says, so that a call costs one transfer:
// the far words, and where there are none a tiny payload. A small one goes on in the next lines: to store
// across the border asks for both lines at once, which two stores do not. A larger one begins behind it, at a
// border, or half of all vectors would lie across one. Peers fetch the line of the entry again and again while
// they wait, and processors fetch lines in pairs: so the other line of its pair is left empty.
const SEQ: usize = 64;
const NEAR: usize = SEQ + 8;
const FAR: usize = NEAR + NEAR_WORDS * 8;
const SMALL: usize = FAR;
const PAYLOAD: usize = FAR + FAR_WORDS * 8;
const ENTRY_STRIDE: usize = PAYLOAD + PAYLOAD_MAX;

const _: () = assert!(PAYLOAD.is_multiple_of(128) && ENTRY_STRIDE.is_multiple_of(128));

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
    key: u64,
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
        let put = |at: usize, value: u64| arena.word(at).store(value, Ordering::Relaxed);
        for word in (0..ENTRIES).step_by(8) {
            put(base + word, 0);
        }
        for seq in 0..2 {
            put(entry_offset(base, seq) + SEQ, told(0, key));
        }
        put(base + GATHERED, told(0, key));
        put(base + KEY, key);
        put(base + MEMBER_COUNT, members.len() as u64);
        for (i, pair) in members.chunks(2).enumerate() {
            let word = u64::from(pair[0]) | u64::from(pair.get(1).copied().unwrap_or(0)) << 32;
            put(base + MEMBERS + i * 8, word);
        }
        let place =
            directory::publish(arena, local, key, note, base).ok_or(SlotError::Directory)?;
        Ok(Self {
            arena: Arc::clone(arena),
            local,
            place,
            key,
            block,
        })
    }

    /// The group is destroyed here: its name no longer stands for these members.
    pub fn forget_name(&self) {
        directory::forget_note(&self.arena, self.local, self.place);
    }

    /// Where the payload of call `seq` goes, before the entry is published: as many bytes as the room has.
    #[must_use]
    pub fn payload(&self, seq: u64, room: PayloadClass) -> *mut u8 {
        self.arena
            .at(payload_offset(self.block.offset(), seq, room), room.bytes())
    }

    /// Publishes entry `seq`, payload included.
    pub fn publish(&self, seq: u64, entry: &Entry) {
        let base = self.entry_offset(seq);
        self.write(base + NEAR, entry.near());
        if entry.has_far() {
            self.write(base + FAR, entry.far());
        }
        // SYNC: pairs with the Acquire in `PeerSlot::entered`: who sees the sequence number sees
        // the words, the payload, and everything staged before.
        self.arena
            .word(base + SEQ)
            .store(told(seq, self.key), Ordering::Release);
        self.bell().ring();
    }

    /// Writes words of an entry that is not published yet.
    fn write<const N: usize>(&self, at: usize, values: [u64; N]) {
        for (word, value) in self.arena.words::<N>(at).into_iter().zip(values) {
            // Relaxed: published by the Release in `publish`.
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Publishes progress.
    pub fn advance(&self, seq: u64, tick: u32) {
        // SYNC: pairs with the Acquire in `PeerSlot::reached`; SLOT-2.
        self.arena
            .word(self.block.offset() + PROGRESS)
            .store(progress(seq, tick), Ordering::Release);
        self.bell().ring();
    }

    /// Publishes that this rank is about to touch its peers' memory in call `seq`, until its progress is
    /// [`CLOSING`]. To be followed by a look at what they revoked (SLOT-5).
    pub fn touch(&self, seq: u64) {
        // Relaxed: ordered by the fence.
        self.arena
            .word(self.block.offset() + TOUCHED)
            .store(seq, Ordering::Relaxed);
        // SYNC: with the fence in `revoke`: either this rank sees the revocation, or the rank that
        // revoked sees the word.
        fence(Ordering::SeqCst);
    }

    /// Publishes that this rank does not touch its peers' memory after all, in the call of [`Slot::touch`].
    pub fn untouch(&self) {
        // Relaxed: there is nothing that it would order.
        self.arena
            .word(self.block.offset() + TOUCHED)
            .store(0, Ordering::Relaxed);
        self.bell().ring();
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

    /// Publishes that this rank's part of the group has come to this tick of call `seq`, and in what it differs (SLOT-6).
    pub fn gather(&self, seq: u64, tick: u32, differs: Differs) {
        let base = self.block.offset();
        let stage = progress(seq, tick) << DIFFERS_BITS | u64::from(differs.0);
        // SYNC: pairs with the Acquire in `PeerSlot::gathered`: who sees this sees what all of that part have published.
        self.arena
            .word(base + GATHERED)
            .store(told(stage, self.key), Ordering::Release);
        gathered_bell(&self.arena, base).ring();
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
        // Relaxed: ordered by the fence.
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
    base: usize,
    local: usize,
    key: u64,
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
        let found = directory::find(arena, local, key);
        found
            .map(|found| Self::checked(arena, local, key, found.offset))
            .transpose()
    }

    /// Members of the group of this name (`note`) that region `local` has under another key.
    #[must_use]
    pub fn members_by_note(arena: &Arena, local: usize, note: u64) -> Option<Vec<u32>> {
        let found = directory::find_note(arena, local, note)?;
        let slot = Self::checked(arena, local, 0, found.offset).ok()?;
        // Relaxed: written before the directory entry that led here, and constant.
        let count = index(arena.word(slot.base + MEMBER_COUNT).load(Ordering::Relaxed));
        let words = count.div_ceil(2);
        if words > super::arena::ISLAND_MAX
            || !arena.heap_holds(local, slot.base + MEMBERS, words * 8)
        {
            return None;
        }
        let mut members = Vec::with_capacity(count);
        for i in 0..words {
            let word = arena
                .word(slot.base + MEMBERS + i * 8)
                .load(Ordering::Relaxed);
            #[expect(clippy::cast_possible_truncation, reason = "two ranks lie in one word")]
            members.extend([word as u32, (word >> 32) as u32]);
        }
        members.truncate(count);
        Some(members)
    }

    fn checked(arena: &Arena, local: usize, key: u64, offset: usize) -> Result<Self, BadSlot> {
        let sound = offset.is_multiple_of(super::heap::BLOCK_ALIGN)
            && arena.heap_holds(local, offset, MEMBERS);
        if !sound {
            return Err(BadSlot { offset });
        }
        Ok(Self {
            base: offset,
            local,
            key,
        })
    }

    /// The region that the slot lies in.
    #[must_use]
    pub fn local(&self) -> usize {
        self.local
    }

    /// Whether this is still the slot of its group; to be asked after [`PeerSlot::entered`], where that is
    /// not the entry that was waited for, or after [`PeerSlot::reached`].
    #[must_use]
    pub fn belongs(&self, arena: &Arena) -> bool {
        // Relaxed: ordered by the Acquire in `entered` or `reached` (SLOT-4).
        arena.word(self.base + KEY).load(Ordering::Relaxed) == self.key
    }

    /// Sequence number of the last entry published with the parity of `seq`. Any other number once the slot
    /// no longer belongs to the group.
    #[must_use]
    pub fn entered(&self, arena: &Arena, seq: u64) -> u64 {
        // SYNC: pairs with the Release in `Slot::publish`.
        arena
            .word(entry_offset(self.base, seq) + SEQ)
            .load(Ordering::Acquire)
            .wrapping_sub(self.key)
    }

    /// Entry `seq`, which has been published (see [`PeerSlot::entered`]).
    #[must_use]
    pub fn entry(&self, arena: &Arena, seq: u64) -> Entry {
        let near = self.words(arena, seq, NEAR);
        Entry::of_words(near, || self.words(arena, seq, FAR))
    }

    /// Words of an entry that was seen.
    fn words<const N: usize>(&self, arena: &Arena, seq: u64, from: usize) -> [u64; N] {
        let words = arena.words(entry_offset(self.base, seq) + from);
        // Relaxed: ordered by the Acquire in `entered`.
        words.map(|word| word.load(Ordering::Relaxed))
    }

    /// The payload of entry `seq`, which lies in this room: not to be read before the entry was seen.
    /// [`PAYLOAD_MAX`] bytes from here on are memory of the arena, whatever the entry says.
    #[must_use]
    pub fn payload(&self, arena: &Arena, seq: u64, room: PayloadClass) -> *const u8 {
        arena.at(payload_offset(self.base, seq, room), PAYLOAD_MAX)
    }

    /// The peer's progress.
    #[must_use]
    pub fn reached(&self, arena: &Arena) -> u64 {
        // SYNC: pairs with the Release in `Slot::advance`.
        arena.word(self.base + PROGRESS).load(Ordering::Acquire)
    }

    /// Whether the peer may be at work on its peers' memory in call `seq`; to be asked after
    /// [`Slot::revoke`] (SLOT-5). A peer that has destroyed the group is not: where its slot lay, another group's may stand now.
    #[must_use]
    pub fn is_at_work(&self, arena: &Arena, seq: u64) -> bool {
        // Relaxed: ordered by the fence in `Slot::revoke`.
        let touched = arena.word(self.base + TOUCHED).load(Ordering::Relaxed);
        touched == seq && self.reached(arena) < progress(seq, CLOSING) && self.belongs(arena)
    }

    /// The last call that the peer revoked, 0 for none; to be asked after [`Slot::touch`].
    #[must_use]
    pub fn revoked(&self, arena: &Arena) -> u64 {
        // Relaxed: ordered by the fence in `Slot::touch`.
        arena.word(self.base + REVOKED).load(Ordering::Relaxed)
    }

    /// In what the peer's part of the group differs, where all of it have come to this tick of call `seq` (SLOT-6); `None` before, and
    /// once the slot no longer belongs to the group.
    #[must_use]
    pub fn gathered(&self, arena: &Arena, seq: u64, tick: u32) -> Option<Differs> {
        // SYNC: pairs with the Release in `Slot::gather`.
        let word = arena.word(self.base + GATHERED).load(Ordering::Acquire);
        let stage = word.wrapping_sub(self.key);
        let differs = Differs(stage.to_le_bytes()[0] & Differs::ALL.0);
        (stage >> DIFFERS_BITS == progress(seq, tick)).then_some(differs)
    }

    /// What to sleep on until this peer has gathered its part of the group.
    #[must_use]
    pub fn gathered_bell<'a>(&self, arena: &'a Arena) -> Bell<'a> {
        gathered_bell(arena, self.base)
    }

    /// What to sleep on until this peer publishes something else.
    #[must_use]
    pub fn bell<'a>(&self, arena: &'a Arena) -> Bell<'a> {
        bell(arena, self.base)
    }
}

fn bell(arena: &Arena, slot: usize) -> Bell<'_> {
    Bell {
        sleepers: arena.word32(slot + SLEEPERS),
        bell: arena.word32(slot + BELL),
    }
}

fn gathered_bell(arena: &Arena, slot: usize) -> Bell<'_> {
    Bell {
        sleepers: arena.word32(slot + GATHERED_SLEEPERS),
        bell: arena.word32(slot + GATHERED_BELL),
    }
}

fn entry_offset(slot: usize, seq: u64) -> usize {
    slot + ENTRIES + index(seq % 2) * ENTRY_STRIDE
}

fn payload_offset(slot: usize, seq: u64, room: PayloadClass) -> usize {
    let within = match room {
        PayloadClass::Small => SMALL,
        PayloadClass::Ample => PAYLOAD,
    };
    entry_offset(slot, seq) + within
}

/// How a sequence number stands in shared memory (SLOT-4).
fn told(seq: u64, key: u64) -> u64 {
    seq.wrapping_add(key)
}

#[path = "slot/entry.rs"]
mod entry;
#[cfg(test)]
#[path = "slot/tests.rs"]
mod tests;
