//! How a rank waits for shared memory to change.
//!
//! Three gears. *Spin* while every local rank has a processor of its own: a change arrives within
//! tens of nanoseconds; a thread that spun in vain spins less the next time. *Yield* when ranks share
//! processors: the rank that is waited for may need this one (a yield costs 1.5 to 2 us on the
//! machines we measured, a futex wake-up across virtual processors up to 60 us). *Sleep* on a futex
//! after that, so that a rank that waits long burns nothing; sleeps are cut short, so a wake-up that
//! is missed costs a millisecond. Where many ranks share a processor, sleeps grow with the wait, up to an eighth of
//! it: hundreds of ranks that look up each millisecond leave no processor to the rank that they wait for.

use std::cell::Cell;
use std::fmt;
use std::time::Duration;

use super::bell::Bell;
use crate::sync::{AtomicU64, Clock, Deadline, Ordering};

/// Polls without yielding while ranks have processors of their own: about 5 us. After that a yield,
/// which costs some 0.2 us where nothing else wants the processor, delays a wait by a few percent at
/// most; and where something does (the very peer, perhaps), spinning on would burn its time.
const SPINS_ALONE: u32 = 200;
/// Polls of a thread whose last spins were in vain, because the system has put its peer on the same
/// processor: about 1 us, enough to see that the peer runs again.
const SPINS_LEAST: u32 = 32;
/// Yields before the first sleep, and the time that they may take. Beside a program that computes a yield lasts as long as that
/// program's turn, and the kernel (EEVDF, from Linux 6.18 on) takes the time off the share of the one that yields: a rank
/// that yielded on would get no processor when its turn comes, and would read no clock for half a second.
const YIELDS: u32 = 2000;
const YIELD_MAX: Duration = Duration::from_millis(8);
/// Yields before the first sleep on descriptors, whose polling costs system calls. None for a while where they are long.
const YIELDS_DESCRIPTORS: u32 = 100;
/// Longest single sleep on descriptors: they wake the sleeper by themselves, but for news of the
/// world.
const SLEEP_DESCRIPTORS_MAX: Duration = Duration::from_millis(5);
/// Longest single sleep at first: bounds the cost of a missed wake-up, and the time to notice a disturbance.
const SLEEP_MAX: Duration = Duration::from_millis(1);
/// How many times longer sleeps get at most, where as many ranks share a processor.
const GROWTH_MAX: u32 = 16;
/// A sleep is at most this part of the wait so far, once it is longer than the first ones.
const SLEEP_SHARE: u32 = 8;
/// The clock is read once in this many polls.
const CLOCK_EVERY: u32 = 32;

/// Ranks on a processor that may run before a rank says that it waits. When calls do not match, each of them takes a
/// turn of a millisecond or more until the last one has said what it called, and nobody is told before.
const CROWD_MAX: usize = 4;

/// Which gears a process uses, chosen once at bring-up.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    spins: u32,
    /// Ranks on each processor.
    crowd: usize,
}

impl Pace {
    /// The pace for `local_ranks` ranks on this many processors together.
    #[must_use]
    pub fn for_ranks(local_ranks: usize, processors: usize) -> Self {
        Self {
            spins: if local_ranks <= processors {
                SPINS_ALONE
            } else {
                0
            },
            crowd: local_ranks.div_ceil(processors.max(1)),
        }
    }
}

/// Why a wait ended without what it waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupted {
    /// The deadline passed.
    Deadline,
    /// The world's epoch changed: a rank went down, or somebody gave a group up. The caller looks
    /// whether that concerns it and may wait on.
    Epoch,
}

/// Sleeps on descriptors for some time at most, and then asks what is given whether the wait is over. Where something may wake it that
/// is no descriptor of a stream, it asks once more before.
pub type SleepOnDescriptors<'a> = dyn Fn(&mut dyn FnMut() -> bool, Duration) + 'a;

/// What a waiter does when it has polled and yielded long enough.
pub enum Rest<'a> {
    /// Sleeps until the bell rings.
    Bell(Bell<'a>),
    /// Sleeps until descriptors are ready. Polling those costs a system call each time, so the waiter comes to this soon.
    Descriptors(&'a SleepOnDescriptors<'a>),
    /// Sleeps a moment: nobody can wake it.
    Pause,
}

impl fmt::Debug for Rest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bell(_) => "Bell",
            Self::Descriptors(_) => "Descriptors",
            Self::Pause => "Pause",
        })
    }
}

impl Rest<'_> {
    /// Polls before the first yield.
    fn spins(&self, pace: Pace) -> u32 {
        match self {
            Self::Bell(_) | Self::Pause => pace.spins,
            Self::Descriptors(_) => 0,
        }
    }

    /// Whether the peer that is waited for, ready to run most likely, needs this processor first.
    fn gives_way(&self, pace: Pace) -> bool {
        pace.spins == 0 && !matches!(self, Self::Descriptors(_))
    }

    /// Yields before the first sleep.
    fn yields(&self) -> u32 {
        match self {
            Self::Bell(_) | Self::Pause => YIELDS,
            Self::Descriptors(_) => YIELDS_DESCRIPTORS,
        }
    }

    /// Whether a sleep is better than a yield that lasts long: who sleeps here is woken the moment that there is something to do, and
    /// the kernel then gives it a processor before a program that computes.
    fn avoids_long_turns(&self) -> bool {
        matches!(self, Self::Descriptors(_))
    }

    /// Longest single sleep at the beginning of a wait.
    fn sleep_max(&self) -> Duration {
        match self {
            Self::Bell(_) | Self::Pause => SLEEP_MAX,
            Self::Descriptors(_) => SLEEP_DESCRIPTORS_MAX,
        }
    }

    /// Sleeps for `time` at most; `true` if what is waited for was seen meanwhile. Where it looks up before it sleeps, and is woken
    /// by news of the world, it does not sleep if that `is_disturbed`.
    fn sleep(
        &self,
        ready: &mut dyn FnMut() -> bool,
        is_disturbed: impl Fn() -> bool,
        time: Duration,
    ) -> bool {
        match self {
            Self::Bell(bell) => return bell.sleep(ready, time),
            Self::Descriptors(sleep) => {
                let mut is_ready = false;
                let mut look = || {
                    is_ready = ready();
                    is_ready || is_disturbed()
                };
                sleep(&mut look, time);
                return is_ready;
            }
            Self::Pause => Clock::pause(time),
        }
        ready()
    }
}

/// How far a wait has come: one that is cut into slices yields in the first of them only.
#[derive(Debug)]
pub struct Backoff {
    begun_ns: u64,
    polls: u32,
    /// Ranks on each processor.
    crowd: usize,
}

impl Backoff {
    /// A wait that begins now.
    #[must_use]
    pub fn new(pace: Pace) -> Self {
        Self {
            begun_ns: Clock::coarse_ns(),
            polls: 0,
            crowd: pace.crowd,
        }
    }

    /// How long the wait has lasted, to the tick of the kernel's coarse clock.
    #[must_use]
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(Clock::coarse_ns().saturating_sub(self.begun_ns))
    }

    fn is_yielding(&self, rest: &Rest<'_>) -> bool {
        self.polls < rest.yields() && self.waited() < YIELD_MAX
    }

    /// Longest next sleep.
    fn sleep_max(&self, rest: &Rest<'_>) -> Duration {
        let first = rest.sleep_max();
        let crowd = u32::try_from(self.crowd).unwrap_or(GROWTH_MAX);
        let longest = first * crowd.clamp(1, GROWTH_MAX);
        (self.waited() / SLEEP_SHARE).clamp(first, longest)
    }
}

thread_local! {
    /// How long this thread spins at most, by how its last spins ended.
    static SPINS: Cell<u32> = const { Cell::new(u32::MAX) };
}

/// The first gear; says whether it was enough.
fn spin(most: u32, ready: &mut impl FnMut() -> bool) -> bool {
    if ready() {
        return true;
    }
    let spins = most.min(SPINS.get());
    for _ in 0..spins {
        std::hint::spin_loop();
        if ready() {
            SPINS.set(u32::MAX);
            return true;
        }
    }
    if spins > 0 {
        SPINS.set((spins / 2).max(SPINS_LEAST));
    }
    false
}

/// The first gear alone: polls for some microseconds, or gives the processor away once where a few ranks share
/// it, and says whether that was enough. What a wait costs to begin can be left for after it.
pub fn soon(pace: Pace, rest: &Rest<'_>, ready: &mut impl FnMut() -> bool) -> bool {
    spin(rest.spins(pace), ready) || pace.crowd <= CROWD_MAX && turn(pace, rest, ready)
}

/// Gives the processor away once where ranks share it, and says whether that was enough: most waits end
/// there, and need neither clock nor epoch. For waits that have said so, where [`soon`] has not done it.
pub fn turn_in_crowd(pace: Pace, rest: &Rest<'_>, ready: &mut impl FnMut() -> bool) -> bool {
    pace.crowd > CROWD_MAX && turn(pace, rest, ready)
}

fn turn(pace: Pace, rest: &Rest<'_>, ready: &mut impl FnMut() -> bool) -> bool {
    if !rest.gives_way(pace) {
        return false;
    }
    rustix::thread::sched_yield();
    ready()
}

/// Waits until `ready` says so.
///
/// # Errors
/// The deadline passed, or `epoch` is no longer `seen`.
pub fn until(
    pace: Pace,
    deadline: Deadline,
    epoch: &AtomicU64,
    seen: u64,
    rest: &Rest<'_>,
    mut ready: impl FnMut() -> bool,
) -> Result<(), Interrupted> {
    if soon(pace, rest, &mut ready) || turn_in_crowd(pace, rest, &mut ready) {
        return Ok(());
    }
    later(deadline, epoch, seen, rest, &mut Backoff::new(pace), ready)
}

/// The other gears, for a wait that has polled in vain.
///
/// # Errors
/// As [`until`].
pub fn later(
    deadline: Deadline,
    epoch: &AtomicU64,
    seen: u64,
    rest: &Rest<'_>,
    backoff: &mut Backoff,
    mut ready: impl FnMut() -> bool,
) -> Result<(), Interrupted> {
    loop {
        // SYNC: pairs with the Release in `Status::disturb`; what it announces is then visible.
        if epoch.load(Ordering::Acquire) != seen {
            return if ready() {
                Ok(())
            } else {
                Err(Interrupted::Epoch)
            };
        }
        // While yielding, the exact clock is read now and then; a sleep is worth a look each time.
        let is_yielding =
            backoff.is_yielding(rest) && !(rest.avoids_long_turns() && turns::are_long());
        let look = !is_yielding || backoff.polls.is_multiple_of(CLOCK_EVERY);
        if look && deadline.passed() {
            return if ready() {
                Ok(())
            } else {
                Err(Interrupted::Deadline)
            };
        }
        backoff.polls = backoff.polls.saturating_add(1);
        let seen = if is_yielding {
            if rest.avoids_long_turns() {
                turns::give();
            } else {
                rustix::thread::sched_yield();
            }
            ready()
        } else {
            let time = deadline.left().min(backoff.sleep_max(rest));
            // SYNC: as above.
            let is_disturbed = || epoch.load(Ordering::Acquire) != seen;
            rest.sleep(&mut ready, is_disturbed, time)
        };
        if seen {
            return Ok(());
        }
    }
}

#[path = "wait/turns.rs"]
mod turns;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::AtomicU32;

    fn quick() -> Deadline {
        Deadline::after(Duration::from_millis(30))
    }

    #[test]
    fn a_wait_for_nothing_ends_at_the_deadline() {
        let epoch = AtomicU64::new(0);
        let pace = Pace { spins: 0, crowd: 1 };
        let ended = until(pace, quick(), &epoch, 0, &Rest::Pause, || false);
        assert_eq!(ended, Err(Interrupted::Deadline));
    }

    #[test]
    fn a_disturbance_ends_the_wait_long_before_the_deadline() {
        let epoch = AtomicU64::new(0);
        let deadline = Deadline::after(Duration::from_secs(3600));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                Clock::pause(Duration::from_millis(20));
                epoch.store(1, Ordering::Release);
            });
            let ended = until(
                Pace {
                    spins: 10,
                    crowd: 1,
                },
                deadline,
                &epoch,
                0,
                &Rest::Pause,
                || false,
            );
            assert_eq!(ended, Err(Interrupted::Epoch));
        });
    }

    #[test]
    fn sleeps_grow_with_the_wait_only_where_ranks_share_processors() {
        let after = |crowd, waited_ms: u64| {
            let mut backoff = Backoff::new(Pace { spins: 0, crowd });
            backoff.begun_ns = backoff.begun_ns.saturating_sub(waited_ms * 1_000_000);
            (
                backoff.sleep_max(&Rest::Pause),
                backoff.sleep_max(&Rest::Descriptors(&|_, _| ())),
            )
        };
        let ms = Duration::from_millis;
        assert_eq!(after(1, 60_000), (ms(1), ms(5)));
        assert_eq!(after(115, 0), (ms(1), ms(5)));
        assert_eq!(after(115, 60_000), (ms(16), ms(80)));
        let (sleep, descriptors) = after(115, 80);
        assert!(sleep >= ms(10) && sleep < ms(16), "{sleep:?}");
        assert!(
            descriptors >= ms(10) && descriptors < ms(16),
            "{descriptors:?}"
        );
    }

    #[test]
    fn a_wait_in_slices_yields_in_the_first_of_them_only() {
        let epoch = AtomicU64::new(0);
        let mut backoff = Backoff::new(Pace { spins: 0, crowd: 1 });
        for slice in 0..3 {
            let rests = Cell::new(0_u32);
            let sleep = |look: &mut dyn FnMut() -> bool, _: Duration| {
                rests.set(rests.get() + 1);
                look();
            };
            let rest = Rest::Descriptors(&sleep);
            let mut polls = 0_u32;
            let ready = || {
                polls += 1;
                polls > 2 * YIELDS_DESCRIPTORS
            };
            // A crowded machine may keep this thread waiting for long.
            let patience = Deadline::after(Duration::from_secs(60));
            let ended = later(patience, &epoch, 0, &rest, &mut backoff, ready);
            assert_eq!(ended, Ok(()));
            // Each poll that was no yield was a sleep.
            let yields = polls - rests.get();
            // On a crowded machine the time for yields may end before their number does.
            let is_first = (1..=YIELDS_DESCRIPTORS).contains(&yields);
            assert!(
                if slice == 0 { is_first } else { yields == 0 },
                "{yields} in slice {slice}"
            );
        }
    }

    #[test]
    fn a_sleeper_sees_the_change_even_if_its_bell_is_never_rung() {
        let (sleepers, bell) = (AtomicU32::new(0), AtomicU32::new(0));
        let (epoch, value) = (AtomicU64::new(0), AtomicU64::new(0));
        let deadline = Deadline::after(Duration::from_secs(3600));
        for ring in [false, true] {
            value.store(0, Ordering::Relaxed);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    Clock::pause(Duration::from_millis(40));
                    value.store(1, Ordering::Release);
                    if ring {
                        Bell {
                            sleepers: &sleepers,
                            bell: &bell,
                        }
                        .ring();
                    }
                });
                let bell = Rest::Bell(Bell {
                    sleepers: &sleepers,
                    bell: &bell,
                });
                let ready = || value.load(Ordering::Acquire) == 1;
                assert_eq!(
                    until(
                        Pace { spins: 0, crowd: 1 },
                        deadline,
                        &epoch,
                        0,
                        &bell,
                        ready
                    ),
                    Ok(())
                );
            });
        }
    }
}
