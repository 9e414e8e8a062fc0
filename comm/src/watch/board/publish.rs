//! How words of the board are changed and read without a lock, by one writer and any number of readers.
//!
//! A piece of the board (a line, or a record of history) begins with its *version*. The writer makes it
//! odd, changes the words, and makes it even and larger. A reader copies everything twice, in the order
//! of the words.
//!
//! - PUBLISH-1: a piece was whole in the *first* copy if both copies have the same even version: its
//!   words were read after the one reading of the version and before the other. Of the second copy that
//!   says nothing.
//! - PUBLISH-2: versions only grow, as long as the memory is a board.
//! - PUBLISH-3: the system copies words in no order. So another process copies everything three times, with [`settle`] between: the
//!   words are those of the middle copy, its versions those of the copy before it, and the third one is compared.

use crate::sync::{AtomicU64, Ordering, fence};

/// Where in a piece its version stands.
pub(crate) const VERSION: usize = 0;

/// Changes a piece; its next version is two more.
pub(crate) fn change<const N: usize>(piece: &[AtomicU64; N], change: impl FnOnce(&[AtomicU64; N])) {
    // Relaxed: this thread is the only writer.
    let version = piece[VERSION].load(Ordering::Relaxed);
    change_to(piece, (version | 1) + 1, change);
}

/// Changes a piece, which gets this even version.
pub(crate) fn change_to<const N: usize>(
    piece: &[AtomicU64; N],
    version: u64,
    change: impl FnOnce(&[AtomicU64; N]),
) {
    debug_assert!(version.is_multiple_of(2), "version {version}");
    // Relaxed: ordered by the fence.
    piece[VERSION].store(version - 1, Ordering::Relaxed);
    // SYNC: pairs with the Acquire in `copy`: who sees a word of the change sees the odd version.
    fence(Ordering::Release);
    change(piece);
    // SYNC: pairs with the Acquire in `copy`: who sees the even version sees the words.
    piece[VERSION].store(version, Ordering::Release);
}

/// Copies words, in their order.
pub(crate) fn copy(words: &[AtomicU64], copy: &mut [u64]) {
    for (word, source) in copy.iter_mut().zip(words) {
        // SYNC: pairs with the Release of versions, and with the fence in front of changes.
        *word = source.load(Ordering::Acquire);
    }
}

/// Ends a copy that the system has made: what is copied next is no older (PUBLISH-3).
pub(crate) fn settle() {
    // SYNC: pairs with the Release of versions, and with the fence in front of changes.
    fence(Ordering::Acquire);
}

/// Takes the versions of pieces from an earlier copy (PUBLISH-3): where the first one begins, and how many words each has.
pub(crate) fn take_versions(copy: &mut [u64], earlier: &[u64], (first, words): (usize, usize)) {
    let pairs = copy.iter_mut().zip(earlier);
    for (version, earlier) in pairs.skip(first + VERSION).step_by(words) {
        *version = *earlier;
    }
}

/// Whether a piece was whole in the first of two copies (PUBLISH-1).
#[must_use]
pub(crate) fn is_whole(first: &[u64], second: &[u64]) -> bool {
    first[VERSION] == second[VERSION] && first[VERSION].is_multiple_of(2)
}
