//! Waiting for members to make their sides of the group, and to publish their entries.

use super::Local;
use crate::backend::wait_context::WaitContext;
use crate::error::{ErrorKind, Field};
use crate::transport::shm::slot::PeerSlot;
use crate::transport::shm::wait::Rest;

impl Local {
    /// Waits until a peer has published entry `seq`.
    pub(super) fn await_entry(
        &mut self,
        wait_context: &WaitContext<'_>,
        peer: usize,
        seq: u64,
    ) -> Result<PeerSlot, ErrorKind> {
        let slot = match self.peers[peer] {
            Some(slot) => slot,
            None => self.await_slot(wait_context, peer, seq)?,
        };
        let arena = &self.arena;
        let entered = || slot.entered(arena, seq) == seq;
        if entered() {
            return Ok(slot);
        }
        let missing = || self.not_entered(wait_context, seq);
        let ready = || entered() || !slot.belongs(arena);
        wait_context.wait(&Rest::Bell(slot.bell(arena)), ready, missing)?;
        if entered() {
            return Ok(slot);
        }
        Err(self.destroyed(wait_context, peer))
    }

    /// The error where a member has destroyed the group. A rank that ends destroys its groups first; that it ended says more.
    pub(super) fn destroyed(&self, wait_context: &WaitContext<'_>, peer: usize) -> ErrorKind {
        wait_context
            .news(&[peer])
            .unwrap_or_else(|| ErrorKind::PeerClosed {
                peer: self.members[peer],
                how: "destroyed the group".to_owned(),
                orderly: true,
            })
    }

    /// Waits until a peer has made its side of the group.
    pub(super) fn await_slot(
        &mut self,
        wait_context: &WaitContext<'_>,
        peer: usize,
        seq: u64,
    ) -> Result<PeerSlot, ErrorKind> {
        let (arena, local, key) = (&self.arena, self.locals[peer], wait_context.group.key);
        let mut found = PeerSlot::find(arena, local, key);
        if found == Ok(None) {
            let ready = || {
                found = PeerSlot::find(arena, local, key);
                found != Ok(None)
            };
            // In a large group who waits says for whom it waits, and that one does too.
            let missing = || match self.tree {
                Some(_) => vec![peer],
                None => self.not_entered(wait_context, seq),
            };
            let waited = wait_context.wait(&Rest::Pause, ready, missing);
            // Only when the time is up: until then the peer may have a group of this name with
            // others by right, and come to this one next.
            let late = matches!(waited, Err(ErrorKind::Stalled { .. }));
            if let Some(mismatch) = late
                .then(|| self.other_members(wait_context, peer))
                .flatten()
            {
                return Err(mismatch);
            }
            waited?;
        }
        let rank = wait_context.group.members[peer];
        match found {
            Ok(Some(slot)) => {
                self.peers[peer] = Some(slot);
                Ok(slot)
            }
            Ok(None) => Err(wait_context.stalled(&[peer])),
            Err(bad) => Err(ErrorKind::Transport {
                peer: rank,
                what: bad.to_string(),
            }),
        }
    }

    /// Whether a peer that seems to be missing has made the group of this name with others.
    pub(super) fn other_members(
        &self,
        wait_context: &WaitContext<'_>,
        peer: usize,
    ) -> Option<ErrorKind> {
        let group = wait_context.group;
        let theirs = PeerSlot::members_by_note(&self.arena, self.locals[peer], group.note)?;
        let mine: Vec<u32> = group.members.iter().map(|rank| rank.0).collect();
        (theirs != mine).then(|| ErrorKind::Mismatch {
            field: Field::Membership,
            rank: group.members[self.me],
            mine: format!("{mine:?}"),
            peer: group.members[peer],
            theirs: format!("{theirs:?}"),
        })
    }

    /// Indices of the members whose entry `seq` is not there.
    pub(super) fn not_entered(&self, wait_context: &WaitContext<'_>, seq: u64) -> Vec<usize> {
        // Of the members behind the one that is waited for, no slot was looked for yet.
        let slot = |peer: usize| {
            self.peers[peer].or_else(|| {
                let found = PeerSlot::find(&self.arena, self.locals[peer], wait_context.group.key);
                found.ok().flatten()
            })
        };
        let here = |peer: &usize| {
            *peer == self.me
                || slot(*peer).is_some_and(|slot| {
                    slot.entered(&self.arena, seq) >= seq && slot.belongs(&self.arena)
                })
        };
        (0..self.peers.len()).filter(|peer| !here(peer)).collect()
    }
}
