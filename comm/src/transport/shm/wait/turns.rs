//! How long the turns of others are, to which a thread gives its processor.
//!
//! A yield that gives the processor to a peer, which soon waits itself, ends after some microseconds. One that gives it to a program
//! which computes ends with that program's turn, milliseconds later, and takes the time off this thread's share (see `YIELDS`).
//! The thread finds out by its yields: after a long one it makes none for a while, and for twice as long where the next one comes
//! soon after that. Short ones between them say little: peers and programs share the processors.

use std::cell::Cell;
use std::time::Duration;

use crate::sync::Clock;

/// A yield that lasts longer gave the processor to a program that computes. Peers hand over sooner, and turns of programs are
/// longer: the kernel's shortest are 0.7 ms.
const LONG: Duration = Duration::from_micros(500);
/// How long a thread makes no yields after a long one: at first, and at most.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// What a thread knows of the turns that it gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turns {
    /// No yields before.
    until_ns: u64,
    /// How long it was before that.
    pause: Duration,
}

impl Turns {
    const NEVER: Self = Self {
        until_ns: 0,
        pause: Duration::ZERO,
    };

    /// After a turn of this length that ended at `now_ns`.
    fn after(self, turn: Duration, now_ns: u64) -> Self {
        if turn <= LONG {
            return self;
        }
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let is_soon = now_ns < self.until_ns.saturating_add(nanos(self.pause));
        let pause = if is_soon { self.pause * 2 } else { PAUSE_MIN };
        let pause = pause.clamp(PAUSE_MIN, PAUSE_MAX);
        Self {
            until_ns: now_ns.saturating_add(nanos(pause)),
            pause,
        }
    }
}

thread_local! {
    static TURNS: Cell<Turns> = const { Cell::new(Turns::NEVER) };
}

/// Whether a turn that this thread gives would be long, as far as it knows.
pub(super) fn are_long() -> bool {
    let until_ns = TURNS.get().until_ns;
    until_ns > 0 && Clock::coarse_ns() < until_ns
}

/// Gives the processor to others once.
pub(super) fn give() {
    let since_ns = Clock::nanos();
    rustix::thread::sched_yield();
    let now_ns = Clock::nanos();
    let turn = Duration::from_nanos(now_ns.saturating_sub(since_ns));
    TURNS.set(TURNS.get().after(turn, now_ns));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_long_turn_makes_the_next_one_rarer_until_none_comes_for_as_long() {
        let (long, short) = (Duration::from_millis(4), Duration::from_micros(20));
        let mut turns = Turns::NEVER.after(short, 1);
        assert_eq!(turns, Turns::NEVER);
        let mut now_ns = 1_000_000_000;
        let mut pauses = Vec::new();
        for _ in 0..8 {
            turns = turns.after(long, now_ns);
            assert!(turns.until_ns > now_ns);
            // The pause is over, and a peer's turn is short.
            now_ns = turns.until_ns + 1;
            turns = turns.after(short, now_ns);
            pauses.push(turns.pause.as_millis());
        }
        assert_eq!(
            pauses,
            [500, 1000, 2000, 4000, 8000, 10_000, 10_000, 10_000]
        );
        now_ns = turns.until_ns + 10_000_000_000;
        assert_eq!(turns.after(long, now_ns).pause, PAUSE_MIN);
    }
}
