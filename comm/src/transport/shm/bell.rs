//! The bell: how a rank that sleeps on shared memory is woken.
//!
//! - BELL-1: who goes to sleep says so (`sleepers`) and then looks once more; who has published
//!   something looks for sleepers and then rings. What the ringer leaves out for speed is a fence
//!   between publishing and looking: so one wake-up can be missed where a processor holds back the
//!   store while it loads. That costs the sleeper the rest of its time-out, and nothing else can.
//! - BELL-2: whoever has seen the bell rung has seen what was published before.

use std::time::Duration;

use crate::sync::{AtomicU32, Ordering, fence, futex};

/// What a waiter sleeps on: the waker increments `bell` if `sleepers` is set.
#[derive(Clone, Copy, Debug)]
pub struct Bell<'a> {
    /// Set by those about to sleep.
    pub sleepers: &'a AtomicU32,
    /// Incremented to wake them.
    pub bell: &'a AtomicU32,
}

impl Bell<'_> {
    /// Wakes whoever sleeps. Costs one load where nobody does (BELL-1).
    pub fn ring(&self) {
        // Relaxed: see BELL-1.
        if self.sleepers.load(Ordering::Relaxed) == 0 {
            return;
        }
        // Relaxed: ordered by the Release below, so that it wipes out no flag that is set by who has
        // seen this ring.
        self.sleepers.store(0, Ordering::Relaxed);
        // SYNC: pairs with the Acquire in `sleep`; BELL-2.
        self.bell.fetch_add(1, Ordering::Release);
        futex::wake_all(self.bell);
    }

    /// Sleeps until the bell rings, at most for `left`, unless `ready`. Says whether it is in the end.
    pub fn sleep(&self, ready: &mut dyn FnMut() -> bool, left: Duration) -> bool {
        // SYNC: pairs with the Release in `ring`; BELL-2. The futex call compares the value again.
        let seen = self.bell.load(Ordering::Acquire);
        // Relaxed: ordered by the fence.
        self.sleepers.store(1, Ordering::Relaxed);
        // SYNC: with a fence between publishing and ringing, where there is one; BELL-1.
        fence(Ordering::SeqCst);
        if ready() {
            return true;
        }
        futex::wait(self.bell, seen, left);
        ready()
    }
}
