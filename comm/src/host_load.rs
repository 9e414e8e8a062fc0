//! How much the processors of this host are wanted, by the threads of all programs.

use std::num::NonZero;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::processors;

/// Threads that are ready to run for each processor from which on a host is crowded.
pub const CROWDED: u64 = 4;

/// How much the processors of a host are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostLoad {
    /// Threads of all programs that are ready to run or run.
    pub runnable: u32,
    /// Processors that this process may use, or the processes of its launcher where it is bound to some of those.
    pub processors: u32,
}

impl std::fmt::Display for HostLoad {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "load {} on {} CPUs", self.runnable, self.processors)
    }
}

impl HostLoad {
    /// Whether threads wait for long before they run.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        self.crowd() >= CROWDED
    }

    /// Threads for each processor.
    #[must_use]
    pub fn crowd(&self) -> u64 {
        u64::from(self.runnable / self.processors.max(1))
    }

    /// Of this host now.
    #[must_use]
    pub fn now() -> Self {
        let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        Self {
            runnable: Self::parse(&text).unwrap_or(0),
            processors: processors(),
        }
    }

    /// The first number of the fourth field: `0.20 0.18 0.12 1/80 11206`.
    fn parse(loadavg: &str) -> Option<u32> {
        let field = loadavg.split_ascii_whitespace().nth(3)?;
        field.split_once('/')?.0.parse().ok()
    }
}

/// Processors that this process may use. Read once: the system looks through mounts and control groups for it, which takes a
/// hundred times as long as all else that is read of a process.
fn processors() -> u32 {
    static PROCESSORS: OnceLock<u32> = OnceLock::new();
    *PROCESSORS.get_or_init(|| {
        let own = || std::thread::available_parallelism().map_or(1, NonZero::get);
        // The load is that of the host, so a rank that is bound to a core does not hold it against one processor.
        let processors = if processors::is_bound_by_launcher() {
            processors::of_all_ranks()
        } else {
            own()
        };
        u32::try_from(processors).unwrap_or(u32::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_is_read_as_the_kernel_writes_it() {
        assert_eq!(HostLoad::parse("1.99 1.78 0.96 31/96 16781\n"), Some(31));
        assert_eq!(HostLoad::parse(""), None);
        let load = |runnable| HostLoad {
            runnable,
            processors: 2,
        };
        assert!(load(8).is_crowded() && !load(7).is_crowded());
    }
}
