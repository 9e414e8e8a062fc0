//! What a rank says about its call, and how that stands in a slot.

use super::PAYLOAD_MAX;

/// Words of an entry that every call needs, and those that only some do.
pub(super) const NEAR_WORDS: usize = 4;
pub(super) const FAR_WORDS: usize = 3;
/// Set in the last near word, which holds the length of the payload, where the far words count.
const HAS_FAR: u64 = 1 << 63;
/// Set in it where the payload is in the small room.
const IS_SMALL: u64 = 1 << 62;
/// Where the mark lies in it.
const MARK_SHIFT: u32 = 32;
/// Bits of it.
const MARK_MASK: u64 = (1 << 24) - 1;
/// Bytes of the small room: those of the far words and two cache lines.
const SMALL_MAX: usize = FAR_WORDS * 8 + 128;

const _: () = assert!((PAYLOAD_MAX as u64) < IS_SMALL);

/// Where a payload lies. A rank that knows by its own call where its peers' payloads lie can fetch them
/// together with their entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PayloadClass {
    /// From the cache line of the entry on, in place of the far words.
    Small,
    /// In the lines behind it.
    #[default]
    Ample,
}

impl PayloadClass {
    /// The room for payloads of up to `len` bytes, in entries with far words or without them.
    #[must_use]
    pub fn for_bytes(len: usize, has_far: bool) -> Self {
        if len <= SMALL_MAX && !has_far {
            Self::Small
        } else {
            Self::Ample
        }
    }

    /// Bytes that it has.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::Small => SMALL_MAX,
            Self::Ample => PAYLOAD_MAX,
        }
    }
}

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
    /// Where they lie.
    pub room: PayloadClass,
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
    /// Whether it says where memory lies.
    #[must_use]
    pub fn has_far(&self) -> bool {
        self.far() != [0; FAR_WORDS]
    }

    /// The words that only some calls need; to be written where [`Entry::has_far`].
    pub(super) fn far(&self) -> [u64; FAR_WORDS] {
        [self.staging, self.send_at, self.recv_at]
    }

    /// The words that every call needs.
    pub(super) fn near(&self) -> [u64; NEAR_WORDS] {
        let has_far = if self.has_far() { HAS_FAR } else { 0 };
        let is_small = match self.room {
            PayloadClass::Small => IS_SMALL,
            PayloadClass::Ample => 0,
        };
        let mark = (u64::from(self.mark) & MARK_MASK) << MARK_SHIFT;
        let last = self.payload_len | mark | is_small | has_far;
        [self.call, self.count, self.splits, last]
    }

    /// The entry of these words; the far ones are read only if they count.
    #[inline]
    pub(super) fn of_words(
        [call, count, splits, last]: [u64; NEAR_WORDS],
        far: impl FnOnce() -> [u64; FAR_WORDS],
    ) -> Self {
        let [staging, send_at, recv_at] = if last & HAS_FAR == 0 {
            [0; FAR_WORDS]
        } else {
            far()
        };
        Self {
            call,
            count,
            splits,
            payload_len: last & ((1 << MARK_SHIFT) - 1),
            room: if last & IS_SMALL == 0 {
                PayloadClass::Ample
            } else {
                PayloadClass::Small
            },
            mark: u32::try_from(last >> MARK_SHIFT & MARK_MASK).unwrap_or(0),
            staging,
            send_at,
            recv_at,
        }
    }
}

/// In what the calls of some members differ: what a large group gathers of the entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Differs(pub(super) u8);

impl Differs {
    /// They are different calls.
    pub const CALL: Self = Self(1);
    /// They are made at different places of the program.
    pub const MARK: Self = Self(1 << 1);
    /// Their payloads lie in different rooms.
    pub const ROOM: Self = Self(1 << 2);
    pub(super) const ALL: Self = Self(Self::CALL.0 | Self::MARK.0 | Self::ROOM.0);

    /// In what two entries differ.
    #[must_use]
    pub fn between(one: &Entry, other: &Entry) -> Self {
        let face = |entry: &Entry| (entry.call, entry.count, entry.splits);
        let unless = |is_same: bool, what: Self| if is_same { Self::default() } else { what };
        unless(face(one) == face(other), Self::CALL)
            .and(unless(one.mark == other.mark, Self::MARK))
            .and(unless(one.room == other.room, Self::ROOM))
    }

    /// This, and that.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether they differ in this.
    #[must_use]
    pub const fn has(self, what: Self) -> bool {
        self.0 & what.0 != 0
    }
}
