//! How the threads of a rank fared lately: its processor time at the looks of the last seconds.

use std::collections::VecDeque;

use crate::watch::cpu_time::CpuTime;
use crate::watch::judge::Starvation;
use crate::watch::process::ProcessFacts;

/// How far back it goes, in milliseconds.
const WINDOW_MS: u64 = 10_000;
/// Least time between two looks that are kept.
const STEP_MS: u64 = 200;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct CpuHistory {
    looks: VecDeque<(u64, CpuTime)>,
}

impl CpuHistory {
    /// Takes in what a look at the process showed, and says how its threads fared since the oldest look that is kept.
    pub(super) fn add(&mut self, now_ms: u64, process: &ProcessFacts) -> Option<Starvation> {
        let now = process.cpu_time;
        while self
            .looks
            .get(1)
            .is_some_and(|(at_ms, _)| at_ms + WINDOW_MS <= now_ms)
        {
            self.looks.pop_front();
        }
        let newest_ms = self.looks.back().map(|(at_ms, _)| *at_ms);
        if newest_ms.is_none_or(|at_ms| at_ms + STEP_MS <= now_ms) {
            self.looks.push_back((now_ms, now));
        }
        let (since_ms, then) = *self.looks.front()?;
        let spent = now.since(then);
        Some(Starvation {
            window_ms: now_ms.saturating_sub(since_ms),
            ran_ms: spent.ran_ns / 1_000_000,
            delayed_ms: spent.delayed_ns / 1_000_000,
            load: process.load,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ten_seconds_count() {
        let mut history = CpuHistory::default();
        let mut last = None;
        for second in 0..=30_u64 {
            // It runs for 15 s, and then is ready without running.
            let ran_ns = second.min(15) * 1_000_000_000;
            let delayed_ns = second.saturating_sub(15) * 1_000_000_000;
            let process = ProcessFacts {
                cpu_time: CpuTime { ran_ns, delayed_ns },
                ..ProcessFacts::default()
            };
            last = history.add(second * 1000, &process);
            let lately = last.unwrap();
            assert!(lately.window_ms <= WINDOW_MS + 1000, "{lately:?}");
            assert_eq!(lately.is_starved(), second > 21, "{second} {lately:?}");
        }
        assert_eq!(last.unwrap().ran_ms, 0);
        assert!(history.looks.len() < 20);
    }
}
