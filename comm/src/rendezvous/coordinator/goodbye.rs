//! How connections end.

use rustix::event::epoll;

use super::conn::Stage;
use super::engine::Engine;
use crate::rendezvous::card::DownReason;
use crate::types::Rank;

/// How a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// It served its purpose, or was dropped on purpose; nobody need be told.
    Quietly,
    /// A rank's connection, without a goodbye.
    Lost(DownReason),
    /// As above, and what it said before that may still be there to read: writing to it failed, or its process has ended.
    Unread(DownReason),
}

impl Engine {
    /// Notes that a connection is over; the first reason counts.
    pub(super) fn end(&mut self, token: u64, how: Ended) {
        self.ended.entry(token).or_insert(how);
    }

    /// Removes connections that are over and tells whoever needs to know (`ENGINE-1`).
    pub(super) fn settle(&mut self) {
        while let Some((token, how)) = self.ended.pop_first() {
            if matches!(how, Ended::Unread(_)) {
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
            let lost = match how {
                Ended::Quietly => None,
                Ended::Lost(reason) | Ended::Unread(reason) => Some(reason),
            };
            self.membership.ended(rank, lost, self.now_ms());
            self.carry_out();
        }
    }

    pub(super) fn obey_rank_down(&mut self, rank: Rank, reason: DownReason) {
        if rank.0 >= self.membership.job.world_size() {
            return;
        }
        if let Some(token) = self.membership.token(rank) {
            // What it said before it died is in the socket: a goodbye wins (`ENGINE-2`).
            self.take_in_rest(token);
            // However the connection looked: the owner knows better.
            self.ended.insert(token, Ended::Quietly);
            self.settle();
        }
        self.membership.rank_down(rank, reason, self.now_ms());
        self.carry_out();
    }
}
