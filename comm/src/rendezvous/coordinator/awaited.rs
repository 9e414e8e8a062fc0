//! Ranks that bring-up waits for: before the world is complete those that have not joined, at whose processes the owner
//! looks, and then those that have not come to a round, whose cards say where they are. Looks and times come in.

use std::collections::BTreeMap;

use super::job::Phase;
use super::membership::{Membership, SETTLE_MS};
use super::{Absent, CoordinatorEvent};
use crate::rendezvous::error::RendezvousError;
use crate::rendezvous::limits::PROGRESS_RANKS_MAX;
use crate::rendezvous::wire::ToSession;
use crate::types::Rank;

/// Time between two looks.
pub(super) const LOOK_EVERY_MS: u64 = 250;
/// Looks must have found a rank stopped for this long.
const STOPPED_AFTER_MS: u64 = 1000;
/// After a longer time without a look whoever looks was stopped itself, and begins again.
const GAP_MS: u64 = 2000;

/// A process may be found stopped for a moment: a debugger reads a register, a shell hands the terminal over. A rank
/// counts as stopped that every look of a second has found so.
#[derive(Debug, Default)]
pub struct Stopped {
    /// The first and the last look of each rank that was found stopped at its last one.
    seen: BTreeMap<Rank, (u64, u64)>,
}

impl Stopped {
    /// Takes in a look at a rank, which found it stopped or not; says whether it counts as stopped.
    pub fn see(&mut self, rank: Rank, is_stopped: bool, now_ms: u64) -> bool {
        if !is_stopped {
            self.seen.remove(&rank);
            return false;
        }
        let (first, last) = self.seen.entry(rank).or_insert((now_ms, now_ms));
        if now_ms.saturating_sub(*last) > GAP_MS {
            *first = now_ms;
        }
        *last = now_ms;
        now_ms.saturating_sub(*first) >= STOPPED_AFTER_MS
    }
}

impl Membership {
    /// Tells who is missing where the time of a wait is up, and all that was sent before is read. That is not waited for
    /// without end: on a starved machine the coordinator is held up again and again.
    pub(super) fn tell_who_is_missing(&mut self, now_ms: u64) {
        let is_gathering = matches!(self.job.phase(), Phase::Gathering);
        let is_over = is_gathering && (self.has_given_up || now_ms >= self.arrival_ms);
        if !is_over && !self.rounds.is_any_due(now_ms) {
            self.due_ms = None;
            return;
        }
        let due_ms = *self.due_ms.get_or_insert(now_ms);
        if now_ms < self.settled_ms.min(due_ms + SETTLE_MS) {
            return;
        }
        let failures = self.rounds.expire(self.load, now_ms);
        self.tell_failures(failures);
        if is_over {
            self.fail(self.absence(now_ms));
        }
    }

    pub(super) fn absence(&self, now_ms: u64) -> RendezvousError {
        let is_missing = |rank: &Rank| self.job.process(*rank).is_none();
        let seen = self.absent.iter().filter(|(rank, _)| is_missing(rank));
        let told = |(rank, absent): (&Rank, &Absent)| {
            format!("rank {rank}: pid {}, {}", absent.pid, absent.state)
        };
        let seen = seen.take(PROGRESS_RANKS_MAX).map(told).collect();
        self.job.absence(seen, (self.load)(), now_ms)
    }

    /// The owner has looked at the process of a rank that has not joined.
    pub(crate) fn see_absent(&mut self, rank: Rank, absent: Absent, now_ms: u64) {
        self.notice(now_ms);
        if !matches!(self.job.phase(), Phase::Gathering) || self.job.process(rank).is_some() {
            return;
        }
        if self.stopped.see(rank, absent.is_stopped, now_ms) {
            self.fail(RendezvousError::RankFrozen {
                rank,
                host: absent.host,
                pid: absent.pid,
                how: format!("{}, before it joined", absent.state),
                waited_ms: now_ms,
            });
            return;
        }
        self.absent.insert(rank, absent);
    }

    /// Looks at all ranks while some are waited for in a round of bring-up: one that came to the round may hold up those who
    /// have not, since ranks of a host also wait for each other directly.
    pub(super) fn look_at_awaited(&mut self, now_ms: u64) {
        let (Some(look), Phase::Ready { since_ms }) = (self.look, self.job.phase()) else {
            return;
        };
        let waited_ms = now_ms.saturating_sub(*since_ms);
        if now_ms < self.next_look_ms {
            return;
        }
        let Some(awaited) = self.rounds.awaited().filter(|ranks| !ranks.is_empty()) else {
            self.next_look_ms = now_ms + LOOK_EVERY_MS;
            return;
        };
        let world_size = u64::from(self.job.world_size());
        self.next_look_ms = now_ms + LOOK_EVERY_MS.max(world_size);
        let others = (0..self.job.world_size()).map(Rank);
        let others = others.filter(|rank| !awaited.contains(rank));
        for rank in awaited.iter().copied().chain(others) {
            let how = self.job.process(rank).and_then(|process| look(&process));
            if self.stopped.see(rank, how.is_some(), now_ms) {
                let how = how.unwrap_or_default();
                let error = self.job.frozen(rank, how, waited_ms);
                self.end_rounds(&error);
                return;
            }
        }
    }

    /// No round can be completed any more, for this reason.
    pub(super) fn end_rounds(&mut self, error: &RendezvousError) {
        let is_bring_up = self.look.is_some() && self.rounds.awaited().is_some();
        let failures = self.rounds.end(error);
        if !is_bring_up {
            return self.tell_failures(failures);
        }
        let at_unix_ms = self.set_failed_at();
        self.arbitrate(|arbiter| arbiter.failed(error, at_unix_ms));
        let message = ToSession::Over {
            error: error.clone(),
            at_unix_ms,
        };
        self.tell_all(&message, None);
        self.emit(CoordinatorEvent::Failed(error.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::super::membership::Rules;
    use super::*;

    #[test]
    fn a_rank_is_stopped_that_every_look_of_a_second_found_so() {
        let mut stopped = Stopped::default();
        for at in [0, 300, 600, 999] {
            assert!(!stopped.see(Rank(1), true, at));
        }
        assert!(stopped.see(Rank(1), true, 1000));
        // It ran meanwhile.
        assert!(!stopped.see(Rank(1), false, 1200));
        assert!(!stopped.see(Rank(1), true, 1300));
        assert!(!stopped.see(Rank(2), true, 1300));
    }

    #[test]
    fn time_in_which_nobody_looked_does_not_count() {
        let mut stopped = Stopped::default();
        assert!(!stopped.see(Rank(1), true, 0));
        assert!(!stopped.see(Rank(1), true, 60_000));
        assert!(!stopped.see(Rank(1), true, 60_900));
        assert!(stopped.see(Rank(1), true, 61_000));
    }

    #[test]
    fn nobody_is_told_to_be_missing_before_what_came_while_the_coordinator_did_not_run_is_read() {
        let rules = Rules {
            owner_knows_exits: false,
            arbiter: None,
            closes_door: false,
            arrival_ms: 10_000,
            look: None,
            load: crate::host_load::HostLoad::default,
            epoch_unix_ms: 0,
        };
        let job = ("job".to_owned(), 0);
        let mut membership = Membership::new(job, "build".to_owned(), 2, rules);
        let mut is_over = |now_ms| {
            membership.tick(now_ms);
            matches!(membership.job.phase(), Phase::Failed(_))
        };
        for now_ms in (0..9_500).step_by(500) {
            assert!(!is_over(now_ms));
        }
        for now_ms in (20_000..22_000).step_by(500) {
            assert!(!is_over(now_ms), "{now_ms}");
        }
        assert!(is_over(22_000));
    }
}
