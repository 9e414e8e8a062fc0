//! What the coordinator does with a frame, by how far its connection has come.

use super::CoordinatorEvent;
use super::conn::Stage;
use super::engine::Engine;
use super::job::Phase;
use super::rounds::{Contribution, Failure};
use crate::rendezvous::arbiter::{Act, Arbiter};
use crate::rendezvous::error::RendezvousError;
use crate::rendezvous::limits::{MESSAGE_BYTES_MAX, REPORTS_BYTES_MAX};
use crate::rendezvous::wire::{Body, ToCoordinator, ToSession, decode};
use crate::sync::Ordering;
use crate::types::Rank;

impl Engine {
    /// Does what one frame says.
    pub(super) fn serve(&mut self, token: u64, body: Vec<u8>) {
        let Some(conn) = self.conns.get_mut(&token) else {
            return;
        };
        match &mut conn.stage {
            Stage::Opening => self.opening(token, &body),
            Stage::Proving(_) => {
                // Whatever follows replaces the stage; the transcript is used once.
                let stage = std::mem::replace(&mut conn.stage, Stage::Introducing);
                if let Stage::Proving(proving) = stage {
                    self.proof(token, &body, &proving);
                }
            }
            Stage::Introducing => self.introduction(token, &body),
            Stage::Joined(rank) => {
                let rank = *rank;
                self.serve_rank(token, rank, &body);
            }
            Stage::Draining => {}
        }
    }

    fn serve_rank(&mut self, token: u64, rank: Rank, body: &[u8]) {
        let message: ToCoordinator = match decode("message of a rank", body) {
            Ok(message) => message,
            Err(error) => {
                self.malformed(token, &error.to_string());
                return;
            }
        };
        if self.job.is_gone(rank) {
            return;
        }
        match message {
            ToCoordinator::GiveUp => self.give_up(),
            ToCoordinator::Abort { bytes } if bytes.len() <= MESSAGE_BYTES_MAX => {
                let origin = rank;
                let message = ToSession::Abort {
                    origin,
                    bytes: bytes.clone(),
                };
                self.tell_all(&message, Some(rank));
                self.emit(CoordinatorEvent::Abort { origin, bytes });
            }
            ToCoordinator::Bye => self.bye(token, rank),
            ToCoordinator::Part {
                round,
                budget_ms,
                bytes,
            } if bytes.len() <= MESSAGE_BYTES_MAX => {
                self.part(token, rank, round, budget_ms, bytes);
            }
            ToCoordinator::Report { bytes } if bytes.len() <= MESSAGE_BYTES_MAX => {
                self.report(rank, bytes);
            }
            ToCoordinator::Watch { bytes } if bytes.len() <= MESSAGE_BYTES_MAX => {
                self.arbitrate(|arbiter, now_ms| arbiter.heard(rank, &bytes, now_ms));
            }
            ToCoordinator::Abort { .. }
            | ToCoordinator::Part { .. }
            | ToCoordinator::Report { .. }
            | ToCoordinator::Watch { .. } => self.malformed(token, "an overlong message"),
        }
    }

    /// A rank stopped waiting for the others: everybody is told who is missing. If the world became
    /// complete meanwhile, the roster is on its way to that rank, and it is there after all.
    fn give_up(&mut self) {
        if matches!(self.job.phase(), Phase::Gathering) {
            self.fail(self.job.absence(self.now_ms()));
        }
    }

    fn bye(&mut self, token: u64, rank: Rank) {
        if !matches!(self.job.phase(), Phase::Ready { .. }) {
            self.malformed(token, "a goodbye before the world was complete");
            return;
        }
        self.ranks[rank.index()] = None;
        self.drain(token);
        if self.job.set_gone(rank) {
            self.leaving.push(rank);
            if let Some(arbiter) = &mut self.arbiter {
                arbiter.left(rank);
            }
            self.end_rounds(&super::admit::left(rank));
            self.emit(CoordinatorEvent::Left { rank });
        }
    }

    /// Tells those who stay about the goodbyes of this turn.
    pub(super) fn tell_left(&mut self) {
        if !self.leaving.is_empty() {
            let ranks = std::mem::take(&mut self.leaving);
            self.tell_all(&ToSession::Left { ranks }, None);
        }
    }

    fn part(&mut self, token: u64, rank: Rank, round: String, budget_ms: u64, bytes: Vec<u8>) {
        if !matches!(self.job.phase(), Phase::Ready { .. }) {
            self.malformed(token, "a round before the world was complete");
            return;
        }
        let name = round.clone();
        let now_ms = self.now_ms();
        match self
            .rounds
            .contribute(rank, round, budget_ms, bytes, now_ms)
        {
            Contribution::Waiting => {}
            Contribution::Complete(parts) => {
                self.tell_all(&ToSession::Round { round: name, parts }, None);
            }
            Contribution::Failed(failure) => self.tell_failures(vec![failure]),
            Contribution::Broken(what) => self.malformed(token, what),
        }
    }

    fn report(&self, rank: Rank, bytes: Vec<u8>) {
        let counters = &self.io.counters;
        let more = bytes.len() as u64;
        // Relaxed: a budget; the channel orders the report itself.
        let waiting = counters.reports_bytes.fetch_add(more, Ordering::Relaxed);
        if waiting + more > REPORTS_BYTES_MAX as u64 {
            // Relaxed: gives back what was just taken from the budget.
            counters.reports_bytes.fetch_sub(more, Ordering::Relaxed);
            self.count(&counters.reports_dropped);
            return;
        }
        self.emit(CoordinatorEvent::Report { rank, bytes });
    }

    /// Lets the arbiter act.
    pub(super) fn arbitrate(&mut self, work: impl FnOnce(&mut dyn Arbiter, u64) -> Vec<Act>) {
        let now_ms = self.now_ms();
        let Some(arbiter) = &mut self.arbiter else {
            return;
        };
        for act in work(&mut **arbiter, now_ms) {
            match act {
                Act::Report(bytes) => self.emit(CoordinatorEvent::Watch { bytes }),
                Act::Tell(rank, bytes) => {
                    self.tell_rank(rank, &Body::new(&ToSession::Watch { bytes }));
                }
                Act::TellAll(bytes) => self.tell_all(&ToSession::Watch { bytes }, None),
            }
        }
    }

    /// No round can be completed any more, for this reason.
    pub(super) fn end_rounds(&mut self, error: &RendezvousError) {
        let failures = self.rounds.end(error);
        self.tell_failures(failures);
    }

    /// Tells the ranks that wait in failed rounds.
    pub(super) fn tell_failures(&mut self, failures: Vec<Failure>) {
        for Failure {
            round,
            waiting,
            error,
        } in failures
        {
            let body = Body::new(&ToSession::RoundFailed { round, error });
            for rank in waiting {
                self.tell_rank(rank, &body);
            }
        }
    }
}
