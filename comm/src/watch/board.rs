//! The board: what every communicator of this rank is doing, and its last calls, in memory that
//! another process can read while every thread of this one is stuck.
//!
//! Written by the threads that make calls, without a lock; read by the session's thread, by
//! `muster dump` and by neighbours that look at a rank which does not answer.
//!
//! - BOARD-1: each line has one writer at a time, the call that holds the communicator. Its version
//!   is odd while it is written, so a reader knows a torn line (`publish`).
//! - BOARD-2: a line says what the call is before the call can wait. A call whose peers have all come
//!   already, or come within the first polls (some microseconds, or one turn of the others where a few
//!   ranks share a processor), goes into the history when it ends.
//! - BOARD-3: nothing on the board is an address: what is read from it is numbers and text, checked
//!   against their bounds.

mod history;
mod line;
mod live;
mod map;
mod memory;
mod publish;
mod read;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::panic::Location;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

pub use self::live::{LiveBoards, Seen};
use self::map::{
    BULLETIN_WORDS, COMPLETED, FREE, HEADER, Head, IDLE, IN_FLIGHT, IS_ASYNC, KEPT, LINE_WORDS,
    LINES, MAGIC, OUTCOME_BITS, QUEUED_MS_BITS, SITE_WORDS, SITES, TOOK_BOUNDS_MS, WORDS,
};
use self::memory::Memory;
use self::read::Copied;
pub(super) use self::read::bulletin;
pub use self::read::{BoardError, of_process};
use super::report::{CallCode, Report};
use super::runs;
use super::site::{Sites, Spot};
use crate::sync::{AtomicU64, Clock, Ordering};

/// Boards that this process has had.
static BOARDS: AtomicU64 = AtomicU64::new(0);

/// A line of the board, taken by one communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Berth(usize);

/// A call on the board, until it ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entered {
    berth: Berth,
    record: u64,
    started_ns: u64,
}

/// What the board says of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Title {
    pub(super) call: CallCode,
    pub(super) seq: u64,
    pub(super) site: &'static Location<'static>,
    pub(super) thread: u32,
    /// A worker makes it.
    pub(super) is_async: bool,
}

/// What a call writes when it begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opening {
    pub(super) title: Title,
    pub(super) started: Instant,
    /// How long the call was queued before it began.
    pub(super) queued_ms: u64,
    /// Whether `seq` counts collectives, so that having begun says having entered it.
    pub(super) is_collective: bool,
}

/// The board of one rank.
#[derive(Debug)]
pub(super) struct Board {
    memory: Memory,
    /// Tells it from other boards of this process.
    id: u64,
    epoch: Instant,
    sites: Sites,
    free: Mutex<Free>,
    lists: Mutex<Lists>,
}

/// The members of groups for which their lines have no room, by the place of the line: known to this
/// process only.
type Lists = HashMap<usize, Vec<u32>>;

/// Lines that no communicator has.
#[derive(Debug)]
struct Free {
    /// From here on no line was ever taken.
    unused: usize,
    /// Lines of destroyed groups, the oldest first.
    left: VecDeque<usize>,
}

impl Free {
    /// A line for a communicator: what is known of groups that were destroyed is kept for a while.
    fn take(&mut self) -> Option<usize> {
        if self.left.len() < KEPT && self.unused < LINES {
            self.unused += 1;
            return Some(self.unused - 1);
        }
        self.left.pop_front()
    }
}

impl Board {
    /// A board for this rank. `readable` says whether other processes may find it: not where ranks
    /// are threads, of which one process has many.
    pub(super) fn create(
        rank: u32,
        world_size: u32,
        job: u64,
        readable: bool,
    ) -> std::io::Result<Self> {
        let memory = Memory::create(WORDS + BULLETIN_WORDS, readable)?;
        let board = Self {
            memory,
            // Relaxed: a count, orders nothing.
            id: BOARDS.fetch_add(1, Ordering::Relaxed) + 1,
            epoch: Clock::now(),
            sites: Sites::default(),
            free: Mutex::new(Free {
                unused: 0,
                left: VecDeque::new(),
            }),
            lists: Mutex::default(),
        };
        let header = [
            (Head::Rank, u64::from(rank)),
            (Head::WorldSize, u64::from(world_size)),
            (Head::Pid, u64::from(std::process::id())),
            (Head::EpochNs, Clock::nanos()),
            (Head::Job, job),
        ];
        for (word, value) in header {
            board.head(word).store(value, Ordering::Relaxed);
        }
        // SYNC: pairs with the fence of readers: who sees the mark sees the header.
        board.head(Head::Magic).store(MAGIC, Ordering::Release);
        Ok(board)
    }

    /// The job, the same for all ranks of a world.
    pub(super) fn job(&self) -> u64 {
        // Relaxed: written once, before anybody else had the board.
        self.head(Head::Job).load(Ordering::Relaxed)
    }

    fn head(&self, word: Head) -> &AtomicU64 {
        &self.memory[word as usize]
    }

    fn words(&self, berth: Berth) -> &[AtomicU64; LINE_WORDS] {
        let start = HEADER + berth.0 * LINE_WORDS;
        self.memory[start..]
            .first_chunk()
            .unwrap_or_else(|| unreachable!("a berth lies on the board"))
    }

    /// Changes a line (BOARD-1).
    fn write(&self, berth: Berth, change: impl FnOnce(&[AtomicU64; LINE_WORDS])) {
        publish::change(self.words(berth), change);
    }

    /// Takes a line for a communicator; `None` where all are taken.
    pub(super) fn berth(
        &self,
        key: u64,
        name: &str,
        members: &[u32],
        thread: u32,
    ) -> Option<Berth> {
        let taken = self.lock_free().take();
        let Some(place) = taken else {
            // Relaxed: a count for readers, orders nothing.
            self.head(Head::Unwatched).fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let berth = Berth(place);
        let runs = runs::runs_of(members);
        let packed_runs: Vec<u64> = runs.iter().map_while(|run| run.packed()).collect();
        if packed_runs.len() < runs.len() || runs.len() > line::MEMBERS_WORDS {
            self.lock_lists().insert(place, members.to_vec());
        }
        self.write(berth, |words| {
            let put = |at: usize, value: u64| words[at].store(value, Ordering::Relaxed);
            for word in (line::STATE..line::KEY).chain(line::MEMBERS..LINE_WORDS) {
                put(word, 0);
            }
            put(line::SITE, u64::from(thread) << 32);
            put(line::KEY, key);
            put(line::SIZE, members.len() as u64);
            let name = cut(name, line::NAME_WORDS * 8);
            put(line::NAME_LEN, name.len() as u64);
            for (at, word) in packed(name.as_bytes()).enumerate() {
                put(line::NAME + at, word);
            }
            for (at, run) in packed_runs.iter().take(line::MEMBERS_WORDS).enumerate() {
                put(line::MEMBERS + at, *run);
            }
            put(line::STATE, IDLE);
        });
        // Relaxed: readers only use it as a bound of their search.
        self.head(Head::LinesUsed)
            .fetch_max(place as u64 + 1, Ordering::Relaxed);
        Some(berth)
    }

    /// The group that a line is for.
    pub(super) fn key(&self, berth: Berth) -> u64 {
        // Relaxed: written when the line was taken.
        self.words(berth)[line::KEY].load(Ordering::Relaxed)
    }

    /// Gives a line back. Until another communicator takes it, it says which group was destroyed, and when.
    pub(super) fn release(&self, berth: Berth) {
        let now_ns = self.now_ns();
        self.write(berth, |words| {
            words[line::STARTED].store(now_ns, Ordering::Relaxed);
            words[line::STATE].store(FREE, Ordering::Relaxed);
        });
        // Before anybody can take the line: a list is never that of another group.
        self.lock_lists().remove(&berth.0);
        self.lock_free().left.push_back(berth.0);
    }

    fn lock_free(&self) -> std::sync::MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_lists(&self) -> std::sync::MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new thread makes calls; its number, from 1.
    pub(super) fn count_thread(&self) -> u32 {
        // Relaxed: a count, orders nothing.
        let before = self.head(Head::Threads).fetch_add(1, Ordering::Relaxed);
        u32::try_from(before + 1).unwrap_or(u32::MAX)
    }

    /// Nanoseconds since the board was made.
    fn since_epoch(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.epoch);
        since.as_secs() * 1_000_000_000 + u64::from(since.subsec_nanos())
    }

    /// A call begins (BOARD-2).
    pub(super) fn begin(&self, berth: Berth, opening: &Opening) -> Entered {
        let started_ns = self.since_epoch(opening.started);
        let title = &opening.title;
        let site = self.site_word(title);
        self.write(berth, |words| {
            let put = |at: usize, value: u64| words[at].store(value, Ordering::Relaxed);
            put(line::STATE, IN_FLIGHT);
            put(line::CALL, title.call.word);
            put(line::COUNT, title.call.count);
            put(line::SEQ, title.seq);
            put(line::SITE, site);
            put(line::STARTED, started_ns);
            if opening.is_collective {
                put(line::ENTERED, title.seq);
            }
            put(line::CHECKS, 0);
        });
        let queued_ms = opening.queued_ms.min((1 << QUEUED_MS_BITS) - 1);
        let record = self.remember(berth, title, site, started_ns, queued_ms << OUTCOME_BITS);
        Entered {
            berth,
            record,
            started_ns,
        }
    }

    /// A call has begun and ended and hardly waited for anybody: it took no time that counts.
    #[inline]
    pub(super) fn pass(&self, berth: Berth, title: &Title, entered: u64) {
        let site = self.site_word(title);
        self.write(berth, |words| {
            words[line::SITE].store(site, Ordering::Relaxed);
            words[line::ENTERED].store(entered, Ordering::Relaxed);
            let count = &words[line::TOOK];
            count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        });
        self.remember(berth, title, site, self.now_ns(), COMPLETED);
    }

    /// Call site, kind and thread of a call, as one word.
    #[inline]
    fn site_word(&self, title: &Title) -> u64 {
        let number = self.sites.number(title.site, |number, site| {
            self.write_site(number, site);
        });
        let by_worker = if title.is_async { IS_ASYNC } else { 0 };
        number as u64 | by_worker | u64::from(title.thread) << 32
    }

    /// A call ends. `entered` is the number of the last collective that the rank has entered.
    pub(super) fn end(&self, call: Entered, entered: u64, is_ok: bool) {
        let class = class_of(self.took_ns(call));
        self.write(call.berth, |words| {
            words[line::STATE].store(IDLE, Ordering::Relaxed);
            words[line::ENTERED].store(entered, Ordering::Relaxed);
            let count = &words[line::TOOK + class];
            count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        });
        self.end_record(call, is_ok);
    }

    /// Now, by the coarse clock, since the board was made.
    fn now_ns(&self) -> u64 {
        // Relaxed: the header is written once.
        let epoch_ns = self.head(Head::EpochNs).load(Ordering::Relaxed);
        Clock::coarse_ns().saturating_sub(epoch_ns)
    }

    fn took_ns(&self, call: Entered) -> u64 {
        self.now_ns().saturating_sub(call.started_ns)
    }

    /// A waiting thread has looked in vain, for the first time in this wait where `is_first`. `since`
    /// is when the wait began, `missing` are indices of the members that it is for.
    pub(super) fn waits(&self, berth: Berth, since: Instant, missing: &[usize], is_first: bool) {
        let since_ns = self.since_epoch(since);
        let words = self.words(berth);
        // Relaxed: written when the line was taken.
        let size = crate::types::index(words[line::SIZE].load(Ordering::Relaxed));
        let told = missing_words(size, missing);
        let count = missing.len() as u64;
        let checks = &words[line::CHECKS];
        let same = !is_first
            && words[line::MISSING_COUNT].load(Ordering::Relaxed) == count
            && words[line::MISSING..]
                .iter()
                .zip(told)
                .all(|(word, value)| word.load(Ordering::Relaxed) == value);
        if same {
            // Relaxed: that the thread lives; nothing else changed, so the version stays.
            checks.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.write(berth, |words| {
            words[line::CHECKS].store(1, Ordering::Relaxed);
            words[line::WAIT_SINCE].store(since_ns, Ordering::Relaxed);
            words[line::MISSING_COUNT].store(count, Ordering::Relaxed);
            for (word, value) in words[line::MISSING..].iter().zip(told) {
                word.store(value, Ordering::Relaxed);
            }
        });
    }

    /// A call that waited goes on.
    pub(super) fn goes_on(&self, berth: Berth) {
        self.write(berth, |words| {
            words[line::CHECKS].store(0, Ordering::Relaxed);
        });
    }

    /// A thread begins to wait for the asynchronous calls of a communicator, or has ended to (0).
    pub(super) fn set_awaited(&self, berth: Berth, thread: u32) {
        // Relaxed: one word that tells by itself.
        self.words(berth)[line::AWAITED].store(thread.into(), Ordering::Relaxed);
    }

    /// An asynchronous call of a communicator was started.
    pub(super) fn add_pending(&self, berth: Berth) {
        // Relaxed: one word that tells by itself.
        self.words(berth)[line::PENDING].fetch_add(1, Ordering::Relaxed);
    }

    /// An asynchronous call of a communicator has ended.
    pub(super) fn remove_pending(&self, berth: Berth) {
        // Relaxed: as above.
        self.words(berth)[line::PENDING].fetch_sub(1, Ordering::Relaxed);
    }

    fn write_site(&self, number: usize, site: Spot<'_>) {
        let start = SITES + number * SITE_WORDS;
        let put = |at: usize, value: u64| self.memory[start + at].store(value, Ordering::Relaxed);
        let most = (SITE_WORDS - 2) * 8;
        let file = site.file;
        // The end of a path says more than its beginning.
        let mut from = file.len().saturating_sub(most);
        while !file.is_char_boundary(from) {
            from += 1;
        }
        let file = &file[from..];
        put(0, u64::from(site.line));
        put(1, file.len() as u64);
        for (at, word) in packed(file.as_bytes()).enumerate() {
            put(2 + at, word);
        }
        // SYNC: pairs with the readers' fence: who sees the count sees the text.
        self.head(Head::SitesUsed)
            .fetch_max(number as u64 + 1, Ordering::Release);
    }

    /// The board as it is now.
    pub(super) fn report(&self, calls: usize) -> Report {
        let copy = || {
            let copied = Copied::take(|from, words| {
                publish::copy(&self.memory[from..], words);
                Ok::<(), Infallible>(())
            });
            copied.unwrap_or_else(|never| match never {})
        };
        // Held from before the first copy on, so that lists and lines belong together.
        let lists = self.lock_lists();
        read::decode(&copy(), &copy(), &lists, calls)
    }
}

/// Which members of a group of this size are missing, as a line tells it.
fn missing_words(size: usize, missing: &[usize]) -> [u64; line::MISSING_WORDS] {
    let mut words = [0; line::MISSING_WORDS];
    if size <= line::BITS_MAX {
        for member in missing {
            if let Some(word) = words.get_mut(member / 64) {
                *word |= 1 << (member % 64);
            }
        }
        return words;
    }
    let indices: Vec<u32> = missing
        .iter()
        .filter_map(|member| u32::try_from(*member).ok())
        .collect();
    let runs = runs::runs_of(&indices);
    let packed = runs.iter().map_while(|run| run.packed());
    for (word, run) in words.iter_mut().zip(packed) {
        *word = run;
    }
    words
}

fn class_of(took_ns: u64) -> usize {
    let took_ms = took_ns / 1_000_000;
    TOOK_BOUNDS_MS
        .iter()
        .position(|bound| took_ms < *bound)
        .unwrap_or(TOOK_BOUNDS_MS.len() - 1)
}

fn cut(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn packed(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    })
}
