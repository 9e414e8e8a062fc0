//! What the machine is, and what it can do at a moment.
//!
//! On virtual machines the processors move under a running program, and an exchange of a cache line
//! takes three or twelve times as long for seconds. A benchmark that does not look would call that a
//! regression.

use std::time::Duration;

use muster_comm::sync::{AtomicU32, Clock, Ordering};
use rustix::process::getppid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::report::machine::Pulse;
use crate::stats;

/// Exchanges between two readings of the clock.
const EXCHANGES: u32 = 400;
/// Such stretches of one look; the middle one counts. All of them take a few milliseconds at most
/// where nobody else wants the processors.
const STRETCHES: u32 = 11;
/// Turns of the inner wait before the thread gives its processor away: two threads may share one.
const SPINS: u32 = 2000;
/// Bytes of the copy: more than a second-level cache holds.
const COPY_BYTES: usize = 4 << 20;
/// Copies of one look; the fastest counts.
const COPIES: usize = 4;

/// Before a look, so that the ranks that wait meanwhile have gone to sleep.
const CALM: Duration = Duration::from_millis(8);

/// The name of this host.
#[must_use]
pub fn host() -> String {
    let names = rustix::system::uname();
    names.nodename().to_string_lossy().into_owned()
}

/// Looks at what the machine can do now. Takes a few milliseconds of two processors.
#[must_use]
pub fn pulse() -> Pulse {
    // The ranks wait for this one, and go to sleep after a while.
    Clock::pause(CALM);
    let before = schedule();
    let exchange_ns = exchange();
    let copy_gbytes_per_s = copy();
    let after = schedule();
    let (ran, waited) = (after.0 - before.0, after.1 - before.1);
    Pulse {
        exchange_ns,
        copy_gbytes_per_s,
        processor_share: if ran > 0.0 { ran / (ran + waited) } else { 1.0 },
    }
}

/// How long this thread has run and how long it has waited for a processor, in nanoseconds; zeros
/// where the kernel does not say.
fn schedule() -> (f64, f64) {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let mut numbers = text
        .split_whitespace()
        .map(|word| word.parse().unwrap_or(0.0));
    (
        numbers.next().unwrap_or_default(),
        numbers.next().unwrap_or_default(),
    )
}

/// Processors that peers may be on and this thread may not, where it is kept to some: those of the parent,
/// which started all of them.
fn elsewhere() -> Option<CpuSet> {
    let mine = sched_getaffinity(None).ok()?;
    let all = sched_getaffinity(getppid()).ok()?;
    let mut others = CpuSet::new();
    for cpu in (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu) && !mine.is_set(*cpu)) {
        others.set(cpu);
    }
    (others.count() > 0).then_some(others)
}

/// Two threads pass a number to and fro, on different processors.
fn exchange() -> f64 {
    let elsewhere = elsewhere();
    let turn = AtomicU32::new(0);
    let wait_for = |value: u32| {
        let mut spins = 0;
        // SYNC: Acquire pairs with the Release of the other thread's store below.
        while turn.load(Ordering::Acquire) != value {
            spins += 1;
            if spins % SPINS == 0 {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    };
    std::thread::scope(|scope| {
        let other = std::thread::Builder::new().spawn_scoped(scope, || {
            if let Some(others) = &elsewhere {
                // Where the system refuses, the two share a processor, and the figure shows it.
                let _ = sched_setaffinity(None, others);
            }
            for round in 0..EXCHANGES * STRETCHES {
                wait_for(2 * round + 1);
                // SYNC: Release pairs with the Acquire load of the first thread.
                turn.store(2 * round + 2, Ordering::Release);
            }
        });
        if other.is_err() {
            return 0.0;
        }
        let mut stretches: Vec<f64> = Vec::new();
        for stretch in 0..STRETCHES {
            let start = Clock::now();
            for round in stretch * EXCHANGES..(stretch + 1) * EXCHANGES {
                // SYNC: Release pairs with the Acquire load of the second thread.
                turn.store(2 * round + 1, Ordering::Release);
                wait_for(2 * round + 2);
            }
            let elapsed = Clock::now().duration_since(start);
            stretches.push(elapsed.as_secs_f64() * 1e9 / f64::from(2 * EXCHANGES));
        }
        stats::sort(&mut stretches);
        stats::median(&stretches)
    })
}

fn copy() -> f64 {
    let source = vec![1_u8; COPY_BYTES];
    let mut target = vec![0_u8; COPY_BYTES];
    let fastest = (0..COPIES)
        .map(|_| {
            let start = Clock::now();
            target.copy_from_slice(std::hint::black_box(&source));
            std::hint::black_box(&mut target);
            Clock::now().duration_since(start)
        })
        .min();
    let seconds = fastest.unwrap_or_default().as_secs_f64().max(1e-9);
    COPY_BYTES as f64 / seconds / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_thread_goes_where_this_one_may_not() {
        std::thread::spawn(|| {
            let before = sched_getaffinity(None).unwrap();
            let first = (0..CpuSet::MAX_CPU)
                .find(|cpu| before.is_set(*cpu))
                .unwrap();
            let mut mine = CpuSet::new();
            mine.set(first);
            sched_setaffinity(None, &mine).unwrap();
            let of_parent = sched_getaffinity(getppid()).unwrap();
            match elsewhere() {
                Some(others) => {
                    assert!(!others.is_set(first));
                    let all_of_parent = (0..CpuSet::MAX_CPU)
                        .all(|cpu| of_parent.is_set(cpu) || !others.is_set(cpu));
                    assert!(all_of_parent);
                }
                None => assert!(of_parent.count() == 1, "{of_parent:?}"),
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_look_at_the_machine_gives_positive_figures() {
        let pulse = pulse();
        assert!(pulse.exchange_ns > 0.0, "{pulse:?}");
        assert!(pulse.copy_gbytes_per_s > 0.0, "{pulse:?}");
        assert!((0.0..=1.0).contains(&pulse.processor_share), "{pulse:?}");
    }
}
