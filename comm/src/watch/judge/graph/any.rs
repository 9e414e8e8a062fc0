//! Calls that wait for one of several ranks: a circle holds them up only where it holds up each of these ranks.

use super::{Graph, Waiter, components};
use crate::types::Collective;

impl Waiter<'_> {
    /// Whether one of the ranks that it waits for is enough.
    pub(super) fn is_any(&self) -> bool {
        self.call.call.collective() == Some(Collective::RecvAny)
    }
}

impl Graph<'_> {
    /// The waiters that each one waits for, but for those that may go on: they wait for one of several ranks, and some of these
    /// are held up by nobody, or not by them.
    pub(super) fn stuck_successors(&self) -> Vec<Vec<usize>> {
        let mut successors = self.successors();
        loop {
            let may_go_on = |at: &usize| {
                let waiter = &self.waiters[*at];
                waiter.is_any() && !successors[*at].is_empty() && !self.is_stuck(*at, &successors)
            };
            let free: Vec<usize> = (0..successors.len()).filter(may_go_on).collect();
            if free.is_empty() {
                return successors;
            }
            for at in free {
                successors[at].clear();
            }
        }
    }

    /// Whether each rank that this waiter would go on with waits for it.
    fn is_stuck(&self, at: usize, successors: &[Vec<usize>]) -> bool {
        let wait = self.waiters[at].wait;
        let waits_for_it = |next: &usize| components::reachable(successors, &[*next]).contains(&at);
        let is_held_up = |rank: &u32| {
            let mut next = successors[at].iter();
            next.any(|next| self.waiters[*next].rank == *rank && waits_for_it(next))
        };
        wait.missing_more == 0 && wait.missing.iter().all(is_held_up)
    }
}
