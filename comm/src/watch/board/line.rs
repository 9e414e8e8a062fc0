//! Words of a line. What a call writes comes first, two cache lines long.

use super::map::{LINE_WORDS, TOOK_BOUNDS_MS};
use super::publish;

pub(super) const VERSION: usize = publish::VERSION;
pub(super) const STATE: usize = 1;
pub(super) const CALL: usize = 2;
pub(super) const COUNT: usize = 3;
pub(super) const SEQ: usize = 4;
/// Call site, and thread in the upper half.
pub(super) const SITE: usize = 5;
/// When the call began; of a destroyed group, when that was.
pub(super) const STARTED: usize = 6;
pub(super) const ENTERED: usize = 7;
pub(super) const CHECKS: usize = 8;
pub(super) const WAIT_SINCE: usize = 9;
pub(super) const MISSING: usize = 10;
/// A bit for each member by index; in groups of more members the indices as packed runs (`watch/runs`).
pub(super) const MISSING_WORDS: usize = 16;
/// Most members of a group that have bits.
pub(super) const BITS_MAX: usize = MISSING_WORDS * 64;
pub(super) const KEY: usize = 26;
pub(super) const SIZE: usize = 27;
pub(super) const NAME_LEN: usize = 28;
pub(super) const NAME: usize = 29;
pub(super) const NAME_WORDS: usize = 16;
pub(super) const MEMBERS: usize = 45;
/// The members as packed runs (`watch/runs`), as far as there is room; the rest of the words is 0.
pub(super) const MEMBERS_WORDS: usize = 32;
/// How many calls took how long: see `TOOK_BOUNDS_MS`.
pub(super) const TOOK: usize = MEMBERS + MEMBERS_WORDS;
/// The thread that waits for asynchronous calls. Changes without the version, like the checks: it
/// is one word, and its writer is not that of the line.
pub(super) const AWAITED: usize = TOOK + TOOK_BOUNDS_MS.len();
/// How many members are missing, whether or not there is room to name them all.
pub(super) const MISSING_COUNT: usize = AWAITED + 1;
/// Asynchronous calls that were started and have not ended. Changes without the version.
pub(super) const PENDING: usize = MISSING_COUNT + 1;
const _: () = assert!(PENDING < LINE_WORDS);
