//! The door to atomics, with loom behind it, and a futex for models.

pub use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// The kernel's futex: to compare the word and to fall asleep is one step, and who wakes comes either
/// before it or after it. There are no time-outs: a wake-up that is missed is a deadlock, which loom tells.
pub mod futex {
    use std::time::Duration;

    use loom::sync::{Condvar, Mutex};

    use super::{AtomicU32, Ordering};

    /// All sleepers of a model: to be woken for another word is to wake for no reason, which is allowed.
    #[derive(Debug)]
    struct Queue {
        lock: Mutex<()>,
        sleepers: Condvar,
    }

    loom::lazy_static! {
        static ref QUEUE: Queue = Queue {
            lock: Mutex::new(()),
            sleepers: Condvar::new(),
        };
    }

    /// Sleeps if the word is still `seen`.
    ///
    /// # Panics
    /// Never: nobody panics with the lock.
    pub fn wait(word: &AtomicU32, seen: u32, _at_most: Duration) {
        let guard = QUEUE.lock.lock().expect("nobody panics with it");
        // Relaxed: the kernel's lock orders it.
        if word.load(Ordering::Relaxed) == seen {
            drop(QUEUE.sleepers.wait(guard).expect("nobody panics with it"));
        }
    }

    /// Wakes all.
    ///
    /// # Panics
    /// Never: nobody panics with the lock.
    pub fn wake_all(_word: &AtomicU32) {
        let guard = QUEUE.lock.lock().expect("nobody panics with it");
        QUEUE.sleepers.notify_all();
        drop(guard);
    }
}
