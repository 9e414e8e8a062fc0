//! The doorbell: how a rank that sleeps in `poll` is woken by the ranks that share memory with it.
//!
//! A rank has one word in shared memory, and a descriptor that the others can make readable. The word says whether somebody
//! sleeps, so that nobody makes a system call otherwise. A model checker runs this file, so it needs nothing but atomics.
//!
//! - DOORBELL-1: who goes to sleep says so and then looks once more; who has published something looks at the word and then
//!   signals. A fence stands between the two steps on both sides, so no wake-up is missed.
//! - DOORBELL-2: a signal wakes all that sleep at the word: several threads of a rank may. Each of them says so again before
//!   it sleeps again.
//! - DOORBELL-3: a change concerns nobody only by what the ringer sees behind its fence: what a sleeper did before it said that it
//!   sleeps.

use crate::sync::{AtomicU32, Ordering, fence};

/// The word of one rank.
#[derive(Clone, Copy, Debug)]
pub struct Doorbell<'a> {
    /// 1 if somebody sleeps, or may; else 0.
    pub asleep: &'a AtomicU32,
}

impl Doorbell<'_> {
    /// To be called behind every change that the rank may wait for: calls `signal` if somebody sleeps whom that `concerns`.
    pub fn ring(&self, concerns: impl FnOnce() -> bool, signal: impl FnOnce()) {
        // SYNC: with the fence in `sleep`; DOORBELL-1.
        fence(Ordering::SeqCst);
        // Relaxed twice: ordered by the fence.
        let is_asleep = self.asleep.load(Ordering::Relaxed) != 0;
        if is_asleep && concerns() && self.asleep.swap(0, Ordering::Relaxed) != 0 {
            signal();
        }
    }

    /// Calls `wait`, which sleeps until it is signalled, unless `ready`. Says whether it is in the end.
    pub fn sleep(&self, ready: &mut dyn FnMut() -> bool, wait: impl FnOnce()) -> bool {
        // Relaxed: ordered by the fence. A swap, so that it comes behind the last swap of a ringer, which then cannot hide it.
        self.asleep.swap(1, Ordering::Relaxed);
        // SYNC: with the fence in `ring`; DOORBELL-1.
        fence(Ordering::SeqCst);
        if ready() {
            return true;
        }
        wait();
        ready()
    }
}
