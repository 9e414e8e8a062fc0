//! Processor time: how long threads ran, and how long they were ready to run without running.
//!
//! The kernel counts both for each thread (`/proc/PID/task/TID/schedstat`). A process whose threads were ready and
//! did not run was starved: the time says nothing about its program.

use serde::{Deserialize, Serialize};

/// Threads of a process that are counted. A look must stay cheap, and beyond this many the sum hardly changes.
const THREADS_MAX: usize = 256;

/// Processor time of a thread, or of all threads of a process, since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuTime {
    /// Time on a processor, in nanoseconds.
    pub ran_ns: u64,
    /// Time ready to run without a processor, in nanoseconds.
    pub delayed_ns: u64,
}

impl CpuTime {
    /// Of all threads that a process has now; zero where the system does not tell.
    pub(super) fn of_process(pid: u32) -> Self {
        let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
            return Self::default();
        };
        threads
            .flatten()
            .take(THREADS_MAX)
            .filter_map(|thread| std::fs::read_to_string(thread.path().join("schedstat")).ok())
            .filter_map(|text| Self::parse(&text))
            .fold(Self::default(), |sum, one| Self {
                ran_ns: sum.ran_ns + one.ran_ns,
                delayed_ns: sum.delayed_ns + one.delayed_ns,
            })
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

/// How much the processors of a host are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostLoad {
    /// Threads of all programs that are ready to run or run.
    pub runnable: u32,
    /// Processors that this process may use.
    pub processors: u32,
}

impl std::fmt::Display for HostLoad {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "load {} on {} CPUs", self.runnable, self.processors)
    }
}

impl HostLoad {
    /// Of this host now.
    pub(super) fn now() -> Self {
        let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        Self {
            runnable: Self::parse(&text).unwrap_or(0),
            processors: std::thread::available_parallelism().map_or(1, |processors| {
                u32::try_from(processors.get()).unwrap_or(u32::MAX)
            }),
        }
    }

    /// The first number of the fourth field: `0.20 0.18 0.12 1/80 11206`.
    fn parse(loadavg: &str) -> Option<u32> {
        let field = loadavg.split_ascii_whitespace().nth(3)?;
        field.split_once('/')?.0.parse().ok()
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
        assert_eq!(HostLoad::parse("1.99 1.78 0.96 31/96 16781\n"), Some(31));
        assert_eq!(HostLoad::parse(""), None);
    }

    #[test]
    fn a_process_that_works_has_run() {
        let before = CpuTime::of_process(std::process::id());
        let mut sum = 0_u64;
        for one in 0..2_000_000 {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(one));
        }
        let after = CpuTime::of_process(std::process::id());
        assert!(after.since(before).ran_ns > 0, "{after:?}");
        assert_eq!(CpuTime::of_process(u32::MAX), CpuTime::default());
    }
}
