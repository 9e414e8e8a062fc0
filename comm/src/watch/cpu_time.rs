//! Processor time: how long threads ran, and how long they were ready to run without running.
//!
//! The kernel counts both for each thread (`/proc/PID/task/TID/schedstat`). A rank whose thread was ready and did not run was
//! starved: the time says nothing about its program. Only threads that make calls count: helpers of a program may want more
//! processors than there are, always.

use serde::{Deserialize, Serialize};

/// Processor time of a thread since it began, or of some threads together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuTime {
    /// Time on a processor, in nanoseconds.
    pub ran_ns: u64,
    /// Time ready to run without a processor, in nanoseconds.
    pub delayed_ns: u64,
}

impl CpuTime {
    /// Of the main thread of a process, which makes the calls in most programs; zero where the system does not tell.
    pub(super) fn of_process(pid: u32) -> Self {
        Self::read(&format!("/proc/{pid}/schedstat"))
    }

    /// Of these threads of this process.
    pub(super) fn of_threads(threads: &[i32]) -> Self {
        let times = threads
            .iter()
            .map(|thread| Self::read(&format!("/proc/self/task/{thread}/schedstat")));
        times.fold(Self::default(), |sum, one| Self {
            ran_ns: sum.ran_ns + one.ran_ns,
            delayed_ns: sum.delayed_ns + one.delayed_ns,
        })
    }

    fn read(file: &str) -> Self {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        Self::parse(&text).unwrap_or_default()
    }

    /// What passed between an earlier look at the same process and this one. Threads that ended meanwhile are not
    /// counted any more, so a difference is never below zero.
    #[must_use]
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            ran_ns: self.ran_ns.saturating_sub(earlier.ran_ns),
            delayed_ns: self.delayed_ns.saturating_sub(earlier.delayed_ns),
        }
    }

    fn parse(schedstat: &str) -> Option<Self> {
        let mut fields = schedstat.split_ascii_whitespace();
        Some(Self {
            ran_ns: fields.next()?.parse().ok()?,
            delayed_ns: fields.next()?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_the_kernel_writes_them() {
        let time = CpuTime::parse("735159 2648772 2\n").unwrap();
        assert_eq!((time.ran_ns, time.delayed_ns), (735_159, 2_648_772));
        assert_eq!(CpuTime::parse(""), None);
    }

    #[test]
    fn a_thread_that_works_has_run() {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        let before = CpuTime::of_threads(&[thread]);
        // The kernel counts a running thread at its ticks, which are some milliseconds apart.
        let mut sum = 0_u64;
        let worked = (0..10_000).any(|_| {
            for one in 0..1_000_000 {
                sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(one));
            }
            CpuTime::of_threads(&[thread]).since(before).ran_ns > 0
        });
        assert!(worked, "a thread worked and its counter stood still");
        assert_eq!(CpuTime::of_process(u32::MAX), CpuTime::default());
    }
}
