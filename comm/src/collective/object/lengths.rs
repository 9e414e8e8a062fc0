//! What ranks tell each other before objects travel: a word with the length of the envelope, whether there is
//! one, and a mark of the type that the rank has.
//!
//! Types may differ by right, as long as what was sent can be decoded. So marks are compared only after an
//! object could not be, to say whose type is the odd one: all ranks have all marks and come to the same rank.

use std::any::type_name;

use super::envelope::HEADER_BYTES;

/// The rank's object cannot be sent.
const REFUSED: u64 = 1 << 63;
const LEN_BITS: u32 = 40;
const MARK_MASK: u64 = (1 << (u64::BITS - 1 - LEN_BITS)) - 1;
/// Longest envelope that has a word.
pub(super) const LEN_MAX: usize = (1 << LEN_BITS) - 1;

/// The word of a rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Length(u64);

impl Length {
    /// An envelope of this many bytes with an object of type `T`.
    pub(super) fn of<T>(bytes: usize) -> Self {
        let mark = u64::from(crc32fast::hash(type_name::<T>().as_bytes())) & MARK_MASK;
        Self(bytes.min(LEN_MAX) as u64 | mark << LEN_BITS)
    }

    /// There is none; of `bytes` where it would be too long.
    pub(super) fn refused<T>(bytes: usize) -> Self {
        Self(Self::of::<T>(bytes).0 | REFUSED)
    }

    pub(super) fn from_word(word: u64) -> Self {
        Self(word)
    }

    pub(super) fn word(self) -> u64 {
        self.0
    }

    pub(super) fn bytes(self) -> usize {
        crate::types::index(self.0) & LEN_MAX
    }

    /// Whether the rank has no envelope, or one that is over the limit for objects.
    pub(super) fn is_refused(self, limit: usize) -> bool {
        self.0 & REFUSED != 0 || self.bytes() > limit.saturating_add(HEADER_BYTES)
    }

    fn mark(self) -> u64 {
        self.0 >> LEN_BITS & MARK_MASK
    }
}

/// The lengths of the envelopes.
pub(super) fn bytes_of(all: &[Length]) -> Vec<usize> {
    all.iter().map(|length| length.bytes()).collect()
}

/// A member that has the type of most, and the first that has another; the lowest member's type is the usual one
/// where several are as frequent.
pub(super) fn odd_type(all: &[Length]) -> Option<(usize, usize)> {
    let votes = |mark: u64| all.iter().filter(|one| one.mark() == mark).count();
    let usual = (0..all.len()).max_by_key(|at| (votes(all[*at].mark()), std::cmp::Reverse(*at)))?;
    let odd = all.iter().position(|one| one.mark() != all[usual].mark())?;
    Some((usual, odd))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_odd_type_is_that_of_fewer_members_or_of_higher_ones() {
        let (text, number) = (Length::of::<String>(9), Length::of::<u64>(9));
        assert_eq!(odd_type(&[text, text]), None);
        assert_eq!(odd_type(&[text, number]), Some((0, 1)));
        assert_eq!(odd_type(&[text, number, number]), Some((1, 0)));
        assert_eq!(odd_type(&[number, number, text, number]), Some((0, 2)));
    }

    #[test]
    fn a_word_tells_the_length_and_whether_there_is_an_envelope() {
        let length = Length::of::<String>(1 << 30);
        assert_eq!(length.bytes(), 1 << 30);
        assert!(!length.is_refused(1 << 30));
        assert!(length.is_refused(1 << 29));
        let length = Length::refused::<String>(7);
        assert_eq!(length.bytes(), 7);
        assert!(length.is_refused(100));
        assert_eq!(Length::of::<u8>(usize::MAX).bytes(), LEN_MAX);
    }
}
