//! Ranks of jobs of which nothing was heard, and ranks that others gave up waiting for: what their processes do.

use std::time::Duration;

use muster_comm::sync::Deadline;

use super::{Phase, Supervisor};
use crate::run::standing::{not_running, run_delay};
use crate::world::RankProcess;

/// How long it is looked whether ranks of which nothing was heard get a processor.
const STARVED_LOOK: Duration = Duration::from_secs(2);
/// How often ranks that get no processor get the grace once more.
const EXTENSIONS_MAX: u32 = 9;
/// More grace for each rank of a world: the news goes from all to all, on the processors that they share.
const GRACE_PER_RANK: Duration = Duration::from_millis(10);

impl Supervisor<'_> {
    /// Nothing was heard for all the patience: whether that is to be held against the ranks.
    pub(super) fn is_silent(&mut self) -> bool {
        let Some(jobs) = &self.jobs else {
            // Programs say themselves how long they wait.
            self.renew();
            return false;
        };
        let silent = jobs.silent();
        let now = self.delays_of(&silent);
        if self.delays.is_empty() && !now.is_empty() {
            // Whether they get a processor at all is seen over a moment.
            self.delays = now;
            self.phase = Phase::Running(Deadline::after(STARVED_LOOK));
            return false;
        }
        // A rank that spent a good part of that waiting for a processor is not silent, but slow.
        if has_waited(&self.delays, &now, STARVED_LOOK / 4) {
            self.renew();
            return false;
        }
        self.facts.silence_s = Some(self.limits.patience.as_secs());
        for rank in silent {
            self.look_at(rank);
        }
        true
    }

    /// By when ranks are to have ended by themselves.
    pub(super) fn grace(&self) -> Deadline {
        let count = u32::try_from(self.ranks.processes().len()).unwrap_or(u32::MAX);
        Deadline::after(self.limits.grace + GRACE_PER_RANK.saturating_mul(count))
    }

    /// Whether ranks that are to end, or the launcher that tells them why, have spent a good part of the grace waiting for a
    /// processor. The ranks then get it once more.
    pub(super) fn have_starved(&mut self) -> bool {
        let now = self.delays_of_ending();
        let have_starved = self.extensions < EXTENSIONS_MAX
            && has_waited(&self.delays, &now, self.limits.grace / 4);
        self.extensions += u32::from(have_starved);
        self.delays = now;
        have_starved
    }

    /// The ranks that run and that no verdict blames.
    pub(super) fn innocent(&self) -> Vec<u32> {
        let found = self.facts.found.as_ref();
        let is_blamed = |rank: &u32| found.is_some_and(|found| found.blamed.contains(rank));
        let running = self.running().map(RankProcess::rank);
        running.filter(|rank| !is_blamed(rank)).collect()
    }

    /// How long the main thread of each of these ranks has waited for a processor so far, by thread.
    pub(super) fn delays_of(&self, ranks: &[u32]) -> Vec<(u32, Duration)> {
        self.running()
            .filter(|one| ranks.contains(&one.rank()))
            .filter_map(|one| Some((one.pid(), run_delay(one.pid())?)))
            .collect()
    }

    /// The same of the ranks that are to end by themselves, and of the threads of this process.
    pub(super) fn delays_of_ending(&self) -> Vec<(u32, Duration)> {
        let own = own_threads().filter_map(|thread| Some((thread, run_delay(thread)?)));
        self.delays_of(&self.innocent())
            .into_iter()
            .chain(own)
            .collect()
    }

    pub(super) fn look_at(&mut self, rank: u32) {
        let state = self
            .process(rank)
            .and_then(|process| not_running(process.pid()));
        if let Some(state) = state
            && self.facts.frozen.iter().all(|(known, _)| *known != rank)
        {
            self.facts.frozen.push((rank, state));
        }
    }
}

/// The threads of this process.
fn own_threads() -> impl Iterator<Item = u32> {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    threads.filter_map(|thread| thread.ok()?.file_name().to_str()?.parse().ok())
}

/// Whether a thread has waited for a processor for more than this time between two looks, at both of which it was there.
fn has_waited(before: &[(u32, Duration)], now: &[(u32, Duration)], time: Duration) -> bool {
    before.iter().any(|(thread, before)| {
        let now = now.iter().find(|(other, _)| other == thread);
        now.is_some_and(|(_, now)| now.saturating_sub(*before) > time)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threads_of_this_process_are_looked_at() {
        let seen = std::thread::spawn(|| {
            let thread = rustix::thread::gettid().as_raw_nonzero().get();
            let own = own_threads().find(|one| i32::try_from(*one) == Ok(thread));
            own.and_then(run_delay)
        });
        assert!(seen.join().unwrap().is_some());
    }

    #[test]
    fn a_rank_has_starved_that_waited_for_a_processor_between_two_looks_and_not_before() {
        let ms = Duration::from_millis;
        let before = [(1, ms(9000)), (3, ms(5))];
        assert!(has_waited(&before, &[(1, ms(9000)), (3, ms(600))], ms(500)));
        assert!(!has_waited(&before, &[(1, ms(9400)), (3, ms(5))], ms(500)));
        // Rank 3 has ended meanwhile, and rank 4 was not looked at before.
        assert!(!has_waited(
            &before,
            &[(1, ms(9000)), (4, ms(800))],
            ms(500)
        ));
    }
}
