//! What the coordinator does with a frame, by how far its connection has come, and with what the membership
//! wants done about connections.

use super::CoordinatorEvent;
use super::conn::Stage;
use super::engine::Engine;
use super::goodbye::Ended;
use super::membership::Task;
use crate::rendezvous::arbiter::{Liveness, Seen};
use crate::rendezvous::card::DownReason;
use crate::rendezvous::limits::{HANDSHAKE_WAIT, REPORTS_BYTES_MAX};
use crate::rendezvous::wire::Body;
use crate::sync::{Clock, Ordering};
use crate::types::Rank;

impl Engine {
    /// Does what one frame says.
    pub(super) fn serve(&mut self, token: u64, body: Vec<u8>) {
        let now_ms = self.now_ms();
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
            Stage::Introducing => self.membership.introduce(token, &body, now_ms),
            Stage::Joined(rank) => self.membership.hear(token, *rank, &body, now_ms),
            Stage::Draining => {}
        }
        self.carry_out();
    }

    /// Does what the membership wants done.
    pub(super) fn carry_out(&mut self) {
        loop {
            let tasks = self.membership.tasks();
            if tasks.is_empty() {
                return;
            }
            for task in tasks {
                self.carry_out_one(task);
            }
        }
    }

    fn carry_out_one(&mut self, task: Task) {
        match task {
            Task::Admit(token, rank) => self.admit(token, rank),
            Task::CloseDoor => self.close_door(),
            Task::Dismiss(token, last) => self.dismiss(token, &last),
            Task::Drain(token) => self.drain(token),
            Task::Emit(event) => self.emit(event),
            Task::HangUp(token) => self.end(token, Ended::Unread(DownReason::HungUp)),
            Task::Look(ranks) => self.look(&ranks),
            Task::Malformed(token, what) => self.malformed(token, &what),
            Task::Post(process, rank, bytes) => {
                if let Some(eyes) = self.eyes {
                    (eyes.post)(&process, rank, &bytes);
                }
            }
            Task::Refuse(token, why) => self.refuse(token, why),
            Task::Report(rank, bytes) => self.report(rank, bytes),
            Task::Tell(token, body) => self.tell(token, &body),
        }
    }

    /// Looks at the processes of ranks; the membership decides at once what follows.
    fn look(&mut self, ranks: &[Rank]) {
        for rank in ranks {
            let seen = match (self.eyes, self.membership.job.card(*rank)) {
                (Some(eyes), Some(card)) => (eyes.look)(*rank, card),
                _ => Seen {
                    liveness: Liveness::Hidden,
                    bytes: Vec::new(),
                },
            };
            self.membership.looked(*rank, &seen, self.now_ms());
        }
    }

    fn admit(&mut self, token: u64, rank: Rank) {
        if let Some(conn) = self.conns.get_mut(&token) {
            conn.stage = Stage::Joined(rank);
            conn.until = None;
        }
    }

    /// Says one last thing to a connection and reads no further from it.
    fn dismiss(&mut self, token: u64, last: &Body) {
        if let Some(conn) = self.conns.get_mut(&token) {
            conn.queue(last);
            self.drain(token);
        }
    }

    /// Lets a connection read what is queued for it, then closes it.
    pub(super) fn drain(&mut self, token: u64) {
        self.silent.remove(&token);
        self.unproved.remove(&token);
        if let Some(conn) = self.conns.get_mut(&token) {
            conn.stage = Stage::Draining;
            conn.until = Some(Clock::now() + HANDSHAKE_WAIT);
            self.flush(token);
        }
    }

    /// A connection that does not speak the protocol.
    pub(super) fn malformed(&mut self, token: u64, what: &str) {
        let is_rank = self
            .conns
            .get(&token)
            .is_some_and(|conn| matches!(conn.stage, Stage::Joined(_)));
        if is_rank {
            let what = what.to_owned();
            let reason = DownReason::ProtocolBroken { what };
            self.end(token, Ended::Lost(reason));
            return;
        }
        self.refuse(token, super::Refusal::Malformed);
        self.end(token, Ended::Quietly);
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
}
