//! How connections and ranks end, and who is told.

use std::time::Instant;

use rustix::event::epoll;

use super::CoordinatorEvent;
use super::conn::Stage;
use super::engine::Engine;
use super::job::Phase;
use crate::rendezvous::card::DownReason;
use crate::rendezvous::error::RendezvousError;
use crate::rendezvous::limits::{HANDSHAKE_WAIT, OWNER_WAIT};
use crate::rendezvous::wire::{Body, ToSession};
use crate::sync::Clock;
use crate::types::Rank;

/// How a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// It served its purpose, or was dropped on purpose; nobody need be told.
    Quietly,
    /// A rank's connection, without a goodbye.
    Lost(DownReason),
    /// Writing to it failed; what it said before that may still be there to read.
    Unwritable(DownReason),
}

/// A rank whose death waits for the owner's word on how it died.
pub(super) struct Held {
    rank: Rank,
    reason: DownReason,
    until: Instant,
}

impl Engine {
    /// Notes that a connection is over; the first reason counts.
    pub(super) fn end(&mut self, token: u64, how: Ended) {
        self.ended.entry(token).or_insert(how);
    }

    /// Removes connections that are over and tells whoever needs to know (`ENGINE-1`).
    pub(super) fn settle(&mut self) {
        while let Some((token, how)) = self.ended.pop_first() {
            if matches!(how, Ended::Unwritable(_)) {
                self.take_in_rest(token);
                if self.ended.contains_key(&token) {
                    continue;
                }
            }
            let Some(conn) = self.conns.remove(&token) else {
                continue;
            };
            self.silent.remove(&token);
            self.unproved.remove(&token);
            // Closing it takes it off the poller as well, but only if no child holds a copy.
            let _ = epoll::delete(&self.io.poller, &conn.stream);
            let Stage::Joined(rank) = conn.stage else {
                continue;
            };
            self.ranks[rank.index()] = None;
            match how {
                Ended::Quietly => {}
                Ended::Lost(reason) | Ended::Unwritable(reason) => self.lose(rank, reason),
            }
        }
    }

    /// A rank's connection ended without a goodbye.
    fn lose(&mut self, rank: Rank, reason: DownReason) {
        if self.job.is_gone(rank) || matches!(self.job.phase(), Phase::Failed(_)) {
            return;
        }
        self.emit(CoordinatorEvent::Lost {
            rank,
            reason: reason.clone(),
        });
        if self.owner_knows_exits && reason == DownReason::HungUp {
            self.held.push(Held {
                rank,
                reason,
                until: Clock::now() + OWNER_WAIT,
            });
        } else {
            self.announce_down(rank, reason);
        }
    }

    /// Tells everybody that a rank is down; once (`RDV-4`).
    fn announce_down(&mut self, rank: Rank, reason: DownReason) {
        let error = self.job.down(rank, reason.clone());
        match self.job.phase() {
            Phase::Failed(_) => {}
            Phase::Gathering => {
                if !self.job.is_gone(rank) {
                    self.fail(error);
                }
            }
            Phase::Ready { .. } => {
                if self.job.set_gone(rank) {
                    if let Some(arbiter) = &mut self.arbiter {
                        arbiter.down(rank, &reason);
                    }
                    self.tell_all(&ToSession::Down { rank, reason }, Some(rank));
                    self.end_rounds(&error);
                }
            }
        }
    }

    /// Ends the bring-up for everybody, for one reason.
    pub(super) fn fail(&mut self, error: RendezvousError) {
        self.job.set_failed(error.clone());
        let message = ToSession::Failed {
            error: error.clone(),
        };
        let body = Body::new(&message);
        let tokens: Vec<u64> = self.ranks.iter_mut().filter_map(Option::take).collect();
        for token in tokens {
            self.dismiss(token, &body);
        }
        self.emit(CoordinatorEvent::Failed(error));
    }

    /// Says one last thing to a connection and reads no further from it.
    pub(super) fn dismiss(&mut self, token: u64, last: &Body) {
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

    pub(super) fn obey_rank_down(&mut self, rank: Rank, reason: DownReason) {
        if rank.0 >= self.job.world_size() {
            return;
        }
        if let Some(token) = self.ranks[rank.index()] {
            // What it said before it died is in the socket: a goodbye wins (`ENGINE-2`).
            self.take_in_rest(token);
            // However the connection looked: the owner knows better.
            self.ended.insert(token, Ended::Quietly);
            self.settle();
        }
        self.held.retain(|held| held.rank != rank);
        self.announce_down(rank, reason);
    }

    /// Tells everybody about deaths on which the owner had its time to speak.
    pub(super) fn tell_held(&mut self, now: Instant) {
        let due = |held: &mut Held| held.until <= now;
        let due: Vec<Held> = self.held.extract_if(.., due).collect();
        for held in due {
            self.announce_down(held.rank, held.reason);
        }
    }
}
