//! The one door to atomics, to the kernel's futex on them, and to time.
//!
//! A test of the house rules keeps `std::sync::atomic` out of every other file, so that a model
//! checker's atomics can stand in: the package `models` compiles the files of the protocols over
//! shared memory against a door of its own.
//!
//! Everything that waits takes a [`Deadline`], made once at the public call and passed by value.
//! Time is read here and nowhere else; the simulator has a clock of its own and never calls this.

use std::fmt;
pub(crate) use std::sync::Mutex;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// Sleeping on a word that other threads and processes share. Best effort: who wakes looks again,
/// whatever the reason, and every sleep has an end.
pub mod futex {
    use std::time::Duration;

    use rustix::thread::futex;
    use rustix::time::Timespec;

    use super::AtomicU32;

    /// Sleeps if the word is still `seen`: until it is woken, for no reason, or after `at_most`.
    pub fn wait(word: &AtomicU32, seen: u32, at_most: Duration) {
        let timeout = Timespec::try_from(at_most).ok();
        // Every outcome means the same: look again.
        let _ = futex::wait(word, futex::Flags::empty(), seen, timeout.as_ref());
    }

    /// Wakes all that sleep on the word.
    pub fn wake_all(word: &AtomicU32) {
        // An error leaves the sleepers to their time-out.
        let _ = futex::wake(word, futex::Flags::empty(), u32::MAX >> 1);
    }
}

/// Takes a lock, also where a thread has panicked with it: what it guards is whole between any two statements.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock;

impl Clock {
    /// Now, on the monotonic clock: never affected by changes of the wall clock.
    #[must_use]
    pub fn now() -> Instant {
        #[expect(clippy::disallowed_methods, reason = "this is sync::Clock")]
        Instant::now()
    }

    /// Now, in nanoseconds since a moment that all processes of this host share. Readings of
    /// different processes may be compared; those of different hosts must not.
    #[must_use]
    pub fn nanos() -> u64 {
        nanos(rustix::time::ClockId::Monotonic)
    }

    /// The same clock as of the last tick of the system, up to 4 ms behind: for a fifth of the cost.
    #[must_use]
    pub fn coarse_ns() -> u64 {
        nanos(rustix::time::ClockId::MonotonicCoarse)
    }

    /// The wall clock in milliseconds since 1970, for people. Nothing waits by it.
    #[must_use]
    pub fn wall_ms() -> u64 {
        nanos(rustix::time::ClockId::Realtime) / 1_000_000
    }

    /// By how many nanoseconds the wall clock is ahead of the monotonic one: for times that other programs read.
    #[must_use]
    pub fn wall_ahead_ns() -> u64 {
        nanos(rustix::time::ClockId::Realtime).saturating_sub(Self::nanos())
    }

    /// Lets `pause` pass. For retry loops that also watch a deadline, never for synchronisation.
    pub fn pause(pause: Duration) {
        #[expect(clippy::disallowed_methods, reason = "this is sync::Clock")]
        std::thread::sleep(pause);
    }
}

fn nanos(clock: rustix::time::ClockId) -> u64 {
    let now = rustix::time::clock_gettime(clock);
    // Neither clock shows a time before its zero.
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    part(now.tv_sec) * 1_000_000_000 + part(now.tv_nsec)
}

/// The moment at which a wait gives up, together with when it began and how long it was given.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Deadline {
    started: Instant,
    budget: Duration,
}

/// Longest budget that is taken literally; longer ones are cut to it, so that sums never overflow.
const BUDGET_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

impl Deadline {
    /// A deadline `budget` from now.
    #[must_use]
    pub fn after(budget: Duration) -> Self {
        Self {
            started: Clock::now(),
            budget: budget.min(BUDGET_MAX),
        }
    }

    /// Whether the time is up.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.elapsed() >= self.budget
    }

    /// Time since the wait began.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Clock::now().duration_since(self.started)
    }

    /// Time left; zero once passed.
    #[must_use]
    pub fn left(&self) -> Duration {
        self.budget.saturating_sub(self.elapsed())
    }

    /// When the wait began.
    #[must_use]
    pub fn started(&self) -> Instant {
        self.started
    }

    /// The same wait, ended this long after its beginning, and not later than before.
    #[must_use]
    pub fn at_most(self, budget: Duration) -> Self {
        Self {
            started: self.started,
            budget: self.budget.min(budget),
        }
    }

    /// The same wait with this much more time.
    #[must_use]
    pub fn extended(self, by: Duration) -> Self {
        Self {
            started: self.started,
            budget: self.budget.saturating_add(by).min(BUDGET_MAX),
        }
    }

    /// The time that the wait was given.
    #[must_use]
    pub fn budget(&self) -> Duration {
        self.budget
    }
}

impl fmt::Debug for Deadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Deadline({:?} of {:?} passed)",
            self.elapsed(),
            self.budget
        )
    }
}
