//! The door to atomics, with loom behind it, and a futex and time for models.

use std::cell::Cell;
use std::time::Duration;

pub use loom::sync::Mutex;
pub use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// Takes a lock.
///
/// # Panics
/// Never: nobody panics with it.
pub fn lock<T>(mutex: &Mutex<T>) -> loom::sync::MutexGuard<'_, T> {
    mutex.lock().expect("nobody panics with it")
}

/// Time passes whenever somebody looks: whoever waits has yielded enough and sleeps.
#[derive(Clone, Copy, Debug)]
pub struct Clock;

impl Clock {
    /// Ten milliseconds more than the last time.
    #[must_use]
    pub fn coarse_ns() -> u64 {
        thread_local!(static NOW: Cell<u64> = const { Cell::new(0) });
        NOW.set(NOW.get() + 10_000_000);
        NOW.get()
    }

    /// The same.
    #[must_use]
    pub fn nanos() -> u64 {
        Self::coarse_ns()
    }

    /// Others run.
    pub fn pause(_: Duration) {
        loom::thread::yield_now();
    }
}

/// A deadline that never passes.
#[derive(Clone, Copy, Debug)]
pub struct Deadline;

impl Deadline {
    /// Whether the time is up.
    #[must_use]
    pub const fn passed(self) -> bool {
        false
    }

    /// Time left.
    #[must_use]
    pub const fn left(self) -> Duration {
        Duration::from_secs(1)
    }
}

/// The kernel's futex: to compare the word and to fall asleep is one step, and who wakes comes either
/// before it or after it. Who sleeps for [`Duration::MAX`] has no time-out: a wake-up that is missed is a deadlock, which loom
/// tells. Any other sleep ends by itself.
pub mod futex {
    use std::time::Duration;

    use loom::sync::{Condvar, Mutex};
    use loom::thread;

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
    pub fn wait(word: &AtomicU32, seen: u32, at_most: Duration) {
        if at_most < Duration::MAX {
            thread::yield_now();
            return;
        }
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
