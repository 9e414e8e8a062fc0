//! Connections of ranks that end without a goodbye: why they did is decided by what is seen of the process.

use super::CoordinatorEvent;
use super::job::Phase;
use super::membership::{Membership, Task};
use crate::rendezvous::arbiter::{Liveness, Seen};
use crate::rendezvous::card::{DownReason, millis};
use crate::rendezvous::limits::{ENDING_WAIT_MAX, OWNER_WAIT, OWNER_WAIT_MAX};
use crate::types::Rank;

/// A rank whose connection is over without a goodbye, until it is known why.
pub(super) struct Held {
    pub(super) rank: Rank,
    reason: DownReason,
    /// It is a thread of this process, which does not end with it.
    is_own: bool,
    since_ms: u64,
    /// When its process is looked at.
    due_ms: u64,
}

impl Membership {
    /// The connection of a rank is over: on purpose, or lost without a goodbye.
    pub(crate) fn ended(&mut self, rank: Rank, lost: Option<DownReason>, now_ms: u64) {
        self.notice(now_ms);
        self.ranks[rank.index()] = None;
        let Some(reason) = lost else {
            return;
        };
        if self.job.is_gone(rank) || matches!(self.job.phase(), Phase::Failed(_)) {
            return;
        }
        self.emit(CoordinatorEvent::Lost {
            rank,
            reason: reason.clone(),
        });
        if let DownReason::HungUp | DownReason::Disconnected { .. } = reason {
            let wait_ms = if self.owner_knows_exits {
                millis(OWNER_WAIT)
            } else {
                0
            };
            self.held.push(Held {
                rank,
                reason,
                is_own: self.is_own(rank),
                since_ms: now_ms,
                due_ms: now_ms + wait_ms,
            });
            self.look_at_held(now_ms);
        } else {
            // The others say by themselves what became of the rank.
            self.announce_down(rank, reason, now_ms);
        }
    }

    /// Whether a rank is a thread of the process that the coordinator runs in.
    fn is_own(&self, rank: Rank) -> bool {
        let own = self.arbiter.as_ref().map(|arbiter| arbiter.process());
        own.is_some() && self.job.process(rank) == own
    }

    /// Looks at the processes of ranks whose connection is over, where the owner has not said how they ended.
    pub(super) fn look_at_held(&mut self, now_ms: u64) {
        let is_due = |held: &&Held| held.due_ms <= now_ms;
        let due: Vec<Rank> = self
            .held
            .iter()
            .filter(is_due)
            .map(|held| held.rank)
            .collect();
        if !due.is_empty() {
            self.tasks.push(Task::Look(due));
        }
    }

    /// The process of a rank was looked at.
    pub(crate) fn looked(&mut self, rank: Rank, seen: &Seen, now_ms: u64) {
        self.notice(now_ms);
        if let Some(at) = self.held.iter().position(|held| held.rank == rank) {
            self.explain(at, &seen.liveness, now_ms);
        } else if seen.liveness == Liveness::Ended {
            self.found_ended(rank);
        }
        self.arbitrate(|arbiter| arbiter.looked(rank, seen, now_ms));
    }

    /// The process of a rank has ended, and its connection has not: what it said last has not been read, or a child of its holds it
    /// open.
    pub(super) fn found_ended(&mut self, rank: Rank) {
        if let Some(token) = self.token(rank)
            && !self.job.is_gone(rank)
        {
            self.tasks.push(Task::HangUp(token));
        }
    }

    /// Says why the connection of a rank is over, or looks again later.
    fn explain(&mut self, at: usize, liveness: &Liveness, now_ms: u64) {
        let held = &mut self.held[at];
        let is_reset = matches!(held.reason, DownReason::Disconnected { .. });
        let reason = match liveness {
            // Its parent will say how, unless that is kept from running itself.
            Liveness::Ended
                if self.owner_knows_exits && now_ms - held.since_ms < millis(OWNER_WAIT_MAX) =>
            {
                held.due_ms = now_ms + millis(OWNER_WAIT);
                return;
            }
            Liveness::Ended => DownReason::Ended,
            // It may be about to end: a panic closes connections first.
            Liveness::Lives { .. }
                if !held.is_own && now_ms - held.since_ms < millis(ENDING_WAIT_MAX) =>
            {
                held.due_ms = now_ms + millis(OWNER_WAIT);
                return;
            }
            Liveness::Lives { program } if !is_reset => DownReason::Deserted {
                program: program.clone(),
            },
            Liveness::Lives { .. } => held.reason.clone(),
            // A process that ends resets connections from which it has not read all.
            Liveness::Hidden => DownReason::HungUp,
        };
        let held = self.held.swap_remove(at);
        self.announce_down(held.rank, reason, held.since_ms);
    }
}
