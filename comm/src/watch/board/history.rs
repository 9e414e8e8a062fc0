//! The last calls of the rank, in a ring of records.
//!
//! - HISTORY-1: a record has a number of its own, and its version says which: who finds another version in
//!   its place knows that it was not written, or that the ring has come round.
//! - HISTORY-2: numbers are given to threads a few at a time, so that most calls change nothing that
//!   threads share. The calls of a thread have growing numbers; those of two threads may be out of order by
//!   that few. A number that the ring has come half round to is not used any more.

use std::cell::Cell;

use super::map::{COMPLETED, FAILED, Head, RECORD_WORDS, RECORDS, RING, TOOK_SHIFT};
use super::{Berth, Board, Entered, Title, line, publish};
use crate::sync::{AtomicU64, Ordering};

/// Numbers that a thread takes at once; a power of two.
pub(super) const BLOCK: u64 = 4;
/// Numbers that are still used.
const RECENT: u64 = RECORDS as u64 / 2;

thread_local! {
    /// The board for which this thread has taken numbers, and the next one of them; none are left where
    /// it is a multiple of [`BLOCK`].
    static TAKEN: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

impl Board {
    fn take_record(&self) -> u64 {
        let (board, next) = TAKEN.get();
        let is_left = board == self.id && !next.is_multiple_of(BLOCK);
        let shared = self.head(Head::Next);
        // Relaxed, here and below: the count alone; records have marks of their own.
        if is_left && shared.load(Ordering::Relaxed) - next <= RECENT {
            TAKEN.set((board, next + 1));
            return next;
        }
        let first = shared.fetch_add(BLOCK, Ordering::Relaxed);
        TAKEN.set((self.id, first + 1));
        first
    }

    /// Writes a record; its number.
    #[inline]
    pub(super) fn remember(
        &self,
        berth: Berth,
        title: &Title,
        site: u64,
        started_ns: u64,
        tail: u64,
    ) -> u64 {
        let record = self.take_record();
        // Relaxed: this call holds the line.
        let key = self.words(berth)[line::KEY].load(Ordering::Relaxed);
        let values = [
            key,
            title.call.word,
            title.call.count,
            title.seq,
            site,
            started_ns,
            tail,
        ];
        publish::change_to(self.record(record), mark(record), |words| {
            for (word, value) in words[1..].iter().zip(values) {
                word.store(value, Ordering::Relaxed);
            }
        });
        record
    }

    /// A call ends in the history only.
    pub(in crate::watch) fn end_record(&self, call: Entered, is_ok: bool) {
        let took_ns = self.took_ns(call);
        let words = self.record(call.record);
        // Relaxed: only this call may end its record, unless the ring has come round.
        if words[publish::VERSION].load(Ordering::Relaxed) == mark(call.record) {
            let outcome = if is_ok { COMPLETED } else { FAILED };
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
}

/// The version of a record once it is written: each call that takes the place of another has its own.
pub(super) fn mark(record: u64) -> u64 {
    (record + 1) * 2
}
