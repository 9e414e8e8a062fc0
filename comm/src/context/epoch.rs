//! The epoch: how threads that wait learn that something has happened to their world. It knows neither what, nor who waits.
//!
//! - EPOCH-1: who sees a new epoch sees what was recorded before it, and what the ranks that it tells of had published.
//! - EPOCH-2: who sleeps until the epoch moves is woken by it, whenever that is.

use std::time::Duration;

use crate::sync::{AtomicU32, AtomicU64, Ordering, futex};

/// Counts what happens.
#[derive(Debug, Default)]
pub(crate) struct Epoch {
    count: AtomicU64,
    /// Moves with the count, for those who sleep: a futex has 32 bits.
    bell: AtomicU32,
}

impl Epoch {
    /// The word that waiters watch.
    pub(crate) fn word(&self) -> &AtomicU64 {
        &self.count
    }

    /// The epoch now.
    pub(crate) fn now(&self) -> u64 {
        // SYNC: pairs with the Release in `advance`; EPOCH-1.
        self.count.load(Ordering::Acquire)
    }

    /// Something has happened, and is recorded.
    pub(crate) fn advance(&self) {
        // SYNC: pairs with the Acquire in `now` and in the waiters; EPOCH-1.
        self.count.fetch_add(1, Ordering::Release);
        // SYNC: pairs with the Acquire in `sleep`.
        self.bell.fetch_add(1, Ordering::Release);
        futex::wake_all(&self.bell);
    }

    /// Sleeps until the epoch is no longer `seen`, at most for `time`.
    pub(crate) fn sleep(&self, seen: u64, time: Duration) {
        // SYNC: pairs with the Release in `advance`. Who has seen this bell sees the epoch of the event before it at least; a
        // later event moves the bell, and the futex call compares it again (EPOCH-2).
        let bell = self.bell.load(Ordering::Acquire);
        if self.now() == seen {
            futex::wait(&self.bell, bell, time);
        }
    }
}
