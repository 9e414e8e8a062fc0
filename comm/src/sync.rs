//! The one door to atomics and to time.
//!
//! A test of the house rules keeps `std::sync::atomic` out of every other file, so that a model
//! checker's atomics can stand in.
//!
//! Everything that waits takes a [`Deadline`], made once at the public call and passed by value.
//! Time is read here and nowhere else; the simulator has a clock of its own and never calls this.

use std::fmt;
use std::time::{Duration, Instant};

pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

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
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
        seconds * 1_000_000_000 + nanos
    }

    /// Lets `pause` pass. For retry loops that also watch a deadline, never for synchronisation.
    pub fn pause(pause: Duration) {
        #[expect(clippy::disallowed_methods, reason = "this is sync::Clock")]
        std::thread::sleep(pause);
    }
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
