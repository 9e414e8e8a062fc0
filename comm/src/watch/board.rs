//! The board: what every communicator of this rank is doing, and its last calls, in memory that
//! another process can read while every thread of this one is stuck.
//!
//! Written by the threads that make calls, without a lock; read by the session's thread, by
//! `muster dump` and by neighbours that look at a rank which does not answer.
//!
//! - BOARD-1: each line has one writer at a time, the call that holds the communicator. Its version
//!   is odd while it is written, so a reader knows a torn line and reads again.
//! - BOARD-2: a line says what the call is before the call can wait.
//! - BOARD-3: nothing on the board is an address: what is read from it is numbers and text, checked
//!   against their bounds.

mod memory;
mod read;

use std::panic::Location;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use self::memory::Memory;
pub use self::read::{BoardError, of_process};
use super::report::{CallCode, Report};
use super::site::{SITES_MAX, Sites};
use crate::sync::{AtomicU64, Clock, Ordering, fence};

/// First word of every board.
const MAGIC: u64 = u64::from_le_bytes(*b"musterB1");
/// Words of the header.
const HEADER: usize = 64;
/// Communicators of one rank that have a line; those beyond are counted and not watched. All kinds
/// of groups of a large layout at once are some dozens a rank.
const LINES: usize = 2048;
const LINE_WORDS: usize = 88;
const SITE_WORDS: usize = 16;
/// Calls that are remembered. A step of training makes some hundreds.
const RECORDS: usize = 1024;
const RECORD_WORDS: usize = 8;
const SITES: usize = HEADER + LINES * LINE_WORDS;
const RING: usize = SITES + SITES_MAX * SITE_WORDS;
const WORDS: usize = RING + RECORDS * RECORD_WORDS;

/// Words of the header.
#[derive(Clone, Copy)]
enum Head {
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

/// Words of a line. What a call writes comes first, two cache lines long.
mod line {
    pub(super) const VERSION: usize = 0;
    pub(super) const STATE: usize = 1;
    pub(super) const CALL: usize = 2;
    pub(super) const COUNT: usize = 3;
    pub(super) const SEQ: usize = 4;
    /// Call site, and thread in the upper half.
    pub(super) const SITE: usize = 5;
    pub(super) const STARTED: usize = 6;
    pub(super) const ENTERED: usize = 7;
    pub(super) const CHECKS: usize = 8;
    pub(super) const WAIT_SINCE: usize = 9;
    pub(super) const MISSING: usize = 10;
    /// A bit for each member by index, those beyond are not told.
    pub(super) const MISSING_WORDS: usize = 16;
    pub(super) const KEY: usize = 26;
    pub(super) const SIZE: usize = 27;
    pub(super) const NAME_LEN: usize = 28;
    pub(super) const NAME: usize = 29;
    pub(super) const NAME_WORDS: usize = 16;
    pub(super) const MEMBERS: usize = 45;
    /// Two members a word.
    pub(super) const MEMBERS_WORDS: usize = 32;
    /// How many calls took how long: see `TOOK_BOUNDS_MS`.
    pub(super) const TOOK: usize = MEMBERS + MEMBERS_WORDS;
    const _: () = assert!(TOOK + super::TOOK_BOUNDS_MS.len() <= super::LINE_WORDS);
}

/// Upper bounds of the classes in which the times of calls are counted. The first is what the coarse
/// clock can tell.
const TOOK_BOUNDS_MS: [u64; 8] = [4, 16, 64, 256, 1000, 4000, 16_000, u64::MAX];

/// States of a line.
const FREE: u64 = 0;
const IDLE: u64 = 1;
const IN_FLIGHT: u64 = 2;

// A record's last word: how the call ended, how long it was queued before it began, and how long it
// took, from the lowest bit up.
const OUTCOME_BITS: u32 = 2;
const QUEUED_MS_BITS: u32 = 22;
const TOOK_SHIFT: u32 = OUTCOME_BITS + QUEUED_MS_BITS;

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

/// What a call writes when it begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opening {
    pub(super) call: CallCode,
    pub(super) seq: u64,
    pub(super) site: &'static Location<'static>,
    pub(super) thread: u32,
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
    epoch: Instant,
    sites: Sites,
    free: Mutex<Vec<usize>>,
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
        let memory = Memory::create(WORDS, readable)?;
        let board = Self {
            memory,
            epoch: Clock::now(),
            sites: Sites::default(),
            free: Mutex::new((0..LINES).rev().collect()),
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
        let words = self.words(berth);
        // Relaxed: this thread is the only writer.
        let version = words[line::VERSION].load(Ordering::Relaxed);
        words[line::VERSION].store(version | 1, Ordering::Relaxed);
        // SYNC: pairs with the fence of readers: who sees a word of the change sees the odd version.
        fence(Ordering::Release);
        change(words);
        // SYNC: pairs with the readers' first load of the version: who sees it even sees the words.
        words[line::VERSION].store((version | 1) + 1, Ordering::Release);
    }

    /// Takes a line for a communicator; `None` where all are taken.
    pub(super) fn berth(
        &self,
        key: u64,
        name: &str,
        members: &[u32],
        thread: u32,
    ) -> Option<Berth> {
        let taken = self.lock_free().pop();
        let Some(place) = taken else {
            // Relaxed: a count for readers, orders nothing.
            self.head(Head::Unwatched).fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let berth = Berth(place);
        self.write(berth, |words| {
            let put = |at: usize, value: u64| words[at].store(value, Ordering::Relaxed);
            for word in (line::STATE..line::KEY).chain(line::TOOK..LINE_WORDS) {
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
            for (at, pair) in members.chunks(2).take(line::MEMBERS_WORDS).enumerate() {
                let second = pair.get(1).copied().unwrap_or(0);
                put(
                    line::MEMBERS + at,
                    u64::from(pair[0]) | u64::from(second) << 32,
                );
            }
            put(line::STATE, IDLE);
        });
        // Relaxed: readers only use it as a bound of their search.
        self.head(Head::LinesUsed)
            .fetch_max(place as u64 + 1, Ordering::Relaxed);
        Some(berth)
    }

    /// Gives a line back.
    pub(super) fn release(&self, berth: Berth) {
        self.write(berth, |words| {
            words[line::STATE].store(FREE, Ordering::Relaxed);
        });
        self.lock_free().push(berth.0);
    }

    fn lock_free(&self) -> std::sync::MutexGuard<'_, Vec<usize>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
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
        let number = self
            .sites
            .number(opening.site, |number, site| self.write_site(number, site));
        let site = number as u64 | u64::from(opening.thread) << 32;
        // Relaxed: the count alone; the words below have a mark of their own.
        let record = self.head(Head::Next).fetch_add(1, Ordering::Relaxed);
        self.write(berth, |words| {
            let put = |at: usize, value: u64| words[at].store(value, Ordering::Relaxed);
            put(line::STATE, IN_FLIGHT);
            put(line::CALL, opening.call.word);
            put(line::COUNT, opening.call.count);
            put(line::SEQ, opening.seq);
            put(line::SITE, site);
            put(line::STARTED, started_ns);
            if opening.is_collective {
                put(line::ENTERED, opening.seq);
            }
            put(line::CHECKS, 0);
        });
        let words = self.record(record);
        let values = [
            self.words(berth)[line::KEY].load(Ordering::Relaxed),
            opening.call.word,
            opening.call.count,
            opening.seq,
            site,
            started_ns,
        ];
        for (word, value) in words[1..].iter().zip(values) {
            word.store(value, Ordering::Relaxed);
        }
        let queued_ms = opening.queued_ms.min((1 << QUEUED_MS_BITS) - 1);
        words[7].store(queued_ms << OUTCOME_BITS, Ordering::Relaxed);
        // SYNC: pairs with the readers' first load of the mark. A reader that meets a record being
        // overwritten sees the mark of the former or of the new one and finds it changed afterwards,
        // or reads words that are all plain numbers: a wrong line of history, never a wrong memory.
        words[0].store(record + 1, Ordering::Release);
        Entered {
            berth,
            record,
            started_ns,
        }
    }

    /// A call ends. `entered` is the number of the last collective that the rank has entered.
    pub(super) fn end(&self, call: Entered, entered: u64, is_ok: bool) {
        // Relaxed: the header is written once.
        let epoch_ns = self.head(Head::EpochNs).load(Ordering::Relaxed);
        let now = Clock::coarse_ns().saturating_sub(epoch_ns);
        let took_ns = now.saturating_sub(call.started_ns);
        let class = class_of(took_ns);
        self.write(call.berth, |words| {
            words[line::STATE].store(IDLE, Ordering::Relaxed);
            words[line::ENTERED].store(entered, Ordering::Relaxed);
            let count = &words[line::TOOK + class];
            count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        });
        let words = self.record(call.record);
        // Relaxed: only this call may end its record, unless the ring has come round.
        if words[0].load(Ordering::Relaxed) == call.record + 1 {
            let outcome = if is_ok { 1 } else { 2 };
            let took_us = took_ns / 1000;
            // Relaxed: as above.
            let tail = words[7].load(Ordering::Relaxed) | outcome | took_us << TOOK_SHIFT;
            words[7].store(tail, Ordering::Relaxed);
        }
    }

    fn record(&self, id: u64) -> &[AtomicU64; RECORD_WORDS] {
        let place = crate::types::index(id) % RECORDS;
        self.memory[RING + place * RECORD_WORDS..]
            .first_chunk()
            .unwrap_or_else(|| unreachable!("a record lies on the board"))
    }

    /// A waiting thread has looked in vain, for the first time in this wait where `is_first`. `since`
    /// is when the wait began, `missing` are indices of the members that it is for.
    pub(super) fn waits(&self, berth: Berth, since: Instant, missing: &[usize], is_first: bool) {
        let since_ns = self.since_epoch(since);
        let mut bits = [0_u64; line::MISSING_WORDS];
        for member in missing {
            if let Some(word) = bits.get_mut(member / 64) {
                *word |= 1 << (member % 64);
            }
        }
        let words = self.words(berth);
        let checks = &words[line::CHECKS];
        let same = !is_first
            && words[line::MISSING..]
                .iter()
                .zip(bits)
                .all(|(word, value)| word.load(Ordering::Relaxed) == value);
        if same {
            // Relaxed: that the thread lives; nothing else changed, so the version stays.
            checks.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.write(berth, |words| {
            words[line::CHECKS].store(1, Ordering::Relaxed);
            words[line::WAIT_SINCE].store(since_ns, Ordering::Relaxed);
            for (word, value) in words[line::MISSING..].iter().zip(bits) {
                word.store(value, Ordering::Relaxed);
            }
        });
    }

    fn write_site(&self, number: usize, site: &Location<'_>) {
        let start = SITES + number * SITE_WORDS;
        let put = |at: usize, value: u64| self.memory[start + at].store(value, Ordering::Relaxed);
        let most = (SITE_WORDS - 2) * 8;
        let file = site.file();
        // The end of a path says more than its beginning.
        let mut from = file.len().saturating_sub(most);
        while !file.is_char_boundary(from) {
            from += 1;
        }
        let file = &file[from..];
        put(0, u64::from(site.line()));
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
        let copy = || -> Vec<u64> {
            // Lines beyond those in use are skipped, not copied: most of the board is never touched.
            let used = crate::types::index(self.head(Head::LinesUsed).load(Ordering::Relaxed));
            let lines_end = HEADER + used.min(LINES) * LINE_WORDS;
            let mut words = vec![0; WORDS];
            let mut take = |from: usize, to: usize| {
                for (word, source) in words[from..to].iter_mut().zip(&self.memory[from..to]) {
                    // SYNC: pairs with the Release of versions and marks.
                    *word = source.load(Ordering::Acquire);
                }
            };
            take(0, lines_end);
            take(SITES, WORDS);
            words
        };
        read::decode(&copy(), &copy(), calls)
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Collective;
    use crate::watch::report::CallOutcome;

    fn opening(seq: u64, site: &'static Location<'static>) -> Opening {
        Opening {
            call: CallCode {
                word: Collective::AllReduce as u64,
                count: 7,
            },
            seq,
            site,
            thread: 1,
            started: Clock::now(),
            queued_ms: 3,
            is_collective: true,
        }
    }

    #[test]
    fn a_call_stands_on_the_board_from_its_beginning_to_its_end() {
        let board = Board::create(3, 8, 99, false).unwrap();
        let berth = board.berth(42, "tp-0", &[3, 5, 7], 1).unwrap();
        let here = Location::caller();
        let entered = board.begin(berth, &opening(1, here));
        board.waits(berth, Clock::now(), &[1, 2], true);
        board.waits(berth, Clock::now(), &[1, 2], false);
        let report = board.report(10);
        assert_eq!((report.rank, report.world_size), (3, 8));
        let group = report.group(42).unwrap();
        assert_eq!(
            (group.name.as_str(), group.members.as_slice()),
            ("tp-0", [3, 5, 7].as_slice())
        );
        let call = group.call.as_ref().unwrap();
        assert_eq!((call.seq, call.call.count, group.entered), (1, 7, 1));
        assert!(
            call.site.ends_with(&format!("board.rs:{}", here.line())),
            "{}",
            call.site
        );
        let wait = call.wait.as_ref().unwrap();
        assert_eq!(
            (wait.missing.as_slice(), wait.checks),
            ([5, 7].as_slice(), 2)
        );
        let version = group.version;
        board.end(entered, 1, true);
        let report = board.report(10);
        let group = report.group(42).unwrap();
        assert_eq!(group.call, None);
        assert!(group.version > version && version.is_multiple_of(2));
        let record = report.last_completed().unwrap();
        assert_eq!(
            (record.seq, record.outcome, record.group.as_str()),
            (1, CallOutcome::Completed, "tp-0")
        );
        assert_eq!(record.started_ns - record.enqueued_ns, 3_000_000);
        board.release(berth);
        assert_eq!(board.report(10).group(42), None);
    }

    #[test]
    fn the_last_calls_are_kept_and_older_ones_make_room() {
        let board = Board::create(0, 1, 1, false).unwrap();
        let berth = board.berth(1, "g", &[0], 1).unwrap();
        for seq in 1..=RECORDS as u64 + 10 {
            let entered = board.begin(berth, &opening(seq, Location::caller()));
            board.end(entered, seq, seq.is_multiple_of(2));
        }
        let calls = board.report(RECORDS).calls;
        assert_eq!(calls.len(), RECORDS);
        assert_eq!(
            (calls[0].seq, calls[RECORDS - 1].seq),
            (11, RECORDS as u64 + 10)
        );
        assert_eq!(calls[0].outcome, CallOutcome::Failed);
    }

    #[test]
    fn communicators_beyond_the_lines_are_counted_and_lines_come_back() {
        let board = Board::create(0, 1, 1, false).unwrap();
        let berths: Vec<_> = (0..LINES)
            .map(|key| board.berth(key as u64 + 1, "g", &[0], 1))
            .collect();
        assert!(berths.iter().all(Option::is_some));
        assert_eq!(board.berth(1, "g", &[0], 1), None);
        assert_eq!(board.report(0).unwatched, 1);
        board.release(berths[7].unwrap());
        assert_eq!(board.berth(1, "g", &[0], 1), berths[7]);
    }

    #[test]
    fn readers_of_a_busy_line_never_see_half_a_call() {
        let board = Board::create(0, 1, 1, false).unwrap();
        let berth = board.berth(1, "g", &[0], 1).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for seq in 1..=3000 {
                    let call = CallCode {
                        word: seq,
                        count: seq,
                    };
                    let entered = board.begin(
                        berth,
                        &Opening {
                            call,
                            ..opening(seq, Location::caller())
                        },
                    );
                    board.end(entered, seq, true);
                }
            });
            for _ in 0..200 {
                let report = board.report(0);
                if let Some(call) = &report.groups[0].call {
                    assert_eq!((call.call.word, call.call.count), (call.seq, call.seq));
                }
            }
        });
    }

    #[test]
    fn another_process_finds_the_board_and_none_where_there_is_none() {
        let board = Board::create(5, 6, 77, true).unwrap();
        let berth = board.berth(42, "tp-0", &[5], 1).unwrap();
        board.begin(berth, &opening(1, Location::caller()));
        let reports = of_process(std::process::id()).unwrap();
        let report = reports
            .iter()
            .find(|report| report.rank == 5 && report.world_size == 6)
            .unwrap();
        assert_eq!(report.group(42).unwrap().entered, 1);
        assert!(matches!(
            of_process(u32::MAX),
            Err(BoardError::System { .. })
        ));
    }
}
