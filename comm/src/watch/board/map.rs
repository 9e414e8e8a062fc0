//! What lies where on the board, in words of 64 bits.
//!
//! A header, a line for each communicator, call sites, the ring of the last calls, and the bulletin.

use crate::watch::report::DESTROYED_MAX;
use crate::watch::site::SITES_MAX;

/// First word of every board.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"musterB2");
/// Words of the header.
pub(super) const HEADER: usize = 64;
/// Communicators of one rank that have a line; those beyond are counted and not watched. All kinds
/// of groups of a large layout at once are some dozens a rank.
pub(super) const LINES: usize = 2048;
pub(super) const LINE_WORDS: usize = 88;
/// Destroyed groups whose lines are kept as long as there are others.
pub(super) const KEPT: usize = DESTROYED_MAX;
pub(super) const SITE_WORDS: usize = 16;
/// Calls that are remembered. A step of training makes some hundreds.
pub(super) const RECORDS: usize = 1024;
pub(super) const RECORD_WORDS: usize = 8;
pub(super) const SITES: usize = HEADER + LINES * LINE_WORDS;
pub(super) const RING: usize = SITES + SITES_MAX * SITE_WORDS;
/// Where reports end.
pub(super) const WORDS: usize = RING + RECORDS * RECORD_WORDS;
/// What others have to say of this rank while it does not run: a length, and bytes.
pub(super) const BULLETIN: usize = WORDS;
pub(super) const BULLETIN_WORDS: usize = 1024;

/// Words of the header.
#[derive(Clone, Copy)]
pub(super) enum Head {
    Magic = 0,
    Rank = 1,
    WorldSize = 2,
    Pid = 3,
    EpochNs = 4,
    LinesUsed = 5,
    SitesUsed = 6,
    Threads = 7,
    Unwatched = 8,
    Job = 9,
    Next = 16,
}

/// Upper bounds of the classes in which the times of calls are counted. The first is what the coarse
/// clock can tell.
pub(super) const TOOK_BOUNDS_MS: [u64; 8] = [4, 16, 64, 256, 1000, 4000, 16_000, u64::MAX];

/// States of a line. One that is free and has a key tells of a group that was destroyed.
pub(super) const FREE: u64 = 0;
pub(super) const IDLE: u64 = 1;
pub(super) const IN_FLIGHT: u64 = 2;

/// In the word of the call site: a worker makes the call.
pub(super) const IS_ASYNC: u64 = 1 << 31;
/// What of that word is the number of the site.
pub(super) const SITE_MASK: u64 = IS_ASYNC - 1;

// A record's last word: how the call ended, how long it was queued before it began, and how long it
// took, from the lowest bit up.
pub(super) const OUTCOME_BITS: u32 = 2;
pub(super) const COMPLETED: u64 = 1;
pub(super) const FAILED: u64 = 2;
pub(super) const QUEUED_MS_BITS: u32 = 22;
pub(super) const TOOK_SHIFT: u32 = OUTCOME_BITS + QUEUED_MS_BITS;
