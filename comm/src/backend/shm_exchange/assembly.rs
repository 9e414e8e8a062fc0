//! The exchange of a large group: over a tree, with the promise of the other one (LOCAL-1).
//!
//! Each member compares its entry with those of its children in the tree, and all members read what the root has gathered. Equality
//! is transitive: where no member differs from its children, all entries are equal. Where one does, every member learns it
//! before data moves, and all look at all entries as in a small group, so that they find the same words for it.

use super::{Local, Wanted};
use crate::backend::Request;
use crate::backend::wait_context::WaitContext;
use crate::error::ErrorKind;
use crate::transport::shm::slot::{Differs, Entry, PeerSlot};
use crate::transport::shm::tree::Tree;
use crate::transport::shm::wait::Rest;
use crate::types::{Extent, Source};

/// Missing members whose groups are searched for one of the same name: each search reads a whole directory.
const SCANNED_MAX: usize = 4;

impl Local {
    /// Waits until all members have published entry `seq`, and takes what is wanted of their entries; says in what they differ.
    pub(super) fn exchange_by_tree(
        &mut self,
        wait_context: &WaitContext<'_>,
        request: &Request<'_>,
        (seq, mine): (u64, &Entry),
        (tree, wanted): (Tree, Wanted),
    ) -> Result<Differs, ErrorKind> {
        let differs = self
            .find_tree(wait_context, tree, seq)
            .and_then(|()| self.assemble(wait_context, tree, (seq, 0), mine))
            .map_err(|kind| self.name_all(wait_context, seq, kind))?;
        if differs != Differs::default() || wanted == Wanted::Entries {
            return self.look_at_all(wait_context, seq, mine);
        }
        if wanted == Wanted::Contributions {
            self.find_contributions(wait_context, request, (seq, mine))?;
        }
        Ok(differs)
    }

    /// Waits until those have made their sides of the group at which this rank looks.
    fn find_tree(
        &mut self,
        wait_context: &WaitContext<'_>,
        tree: Tree,
        seq: u64,
    ) -> Result<(), ErrorKind> {
        let root = (self.me != 0).then_some(0);
        for peer in tree.children(self.me).chain(root) {
            if self.peers[peer].is_none() {
                self.await_slot(wait_context, peer, seq)?;
            }
        }
        Ok(())
    }

    /// Waits until all members have come to tick `tick` of call `seq`, which this rank has said that it has.
    pub(super) fn meet(
        &self,
        wait_context: &WaitContext<'_>,
        tree: Tree,
        (seq, tick): (u64, u32),
    ) -> Result<(), ErrorKind> {
        self.assemble(wait_context, tree, (seq, tick), &Entry::default())
            .map(drop)
    }

    /// Gathers this rank's part of the tree, and waits for what the root says of all of it.
    fn assemble(
        &self,
        wait_context: &WaitContext<'_>,
        tree: Tree,
        (seq, tick): (u64, u32),
        mine: &Entry,
    ) -> Result<Differs, ErrorKind> {
        let arena = &self.arena;
        let mut differs = Differs::default();
        let known = |child: usize| self.peers[child].map(|slot| (child, slot));
        for (child, slot) in tree.children(self.me).filter_map(known) {
            let mut part = None;
            let ready = || {
                part = tree.part((child, &slot), arena, (seq, tick), mine);
                part.is_some() || !slot.belongs(arena)
            };
            let bell = if tree.is_leaf(child) {
                slot.bell(arena)
            } else {
                slot.gathered_bell(arena)
            };
            let missing = || self.missing_children(tree, (seq, tick));
            wait_context.wait(&Rest::Bell(bell), ready, missing)?;
            let part = part.ok_or_else(|| self.destroyed(wait_context, child))?;
            differs = differs.and(part);
        }
        if !tree.is_leaf(self.me) {
            self.slot.gather(seq, tick, differs);
        }
        let Some(root) = self.peers[0].filter(|_| self.me != 0) else {
            return Ok(differs);
        };
        let mut all = None;
        let ready = || {
            all = root.gathered(arena, seq, tick);
            all.is_some() || !root.belongs(arena)
        };
        let bell = Rest::Bell(root.gathered_bell(arena));
        wait_context.wait(&bell, ready, || vec![0])?;
        all.ok_or_else(|| self.destroyed(wait_context, 0))
    }

    /// Children whose part of the tree has not come to this tick: who waits for a part waits for its head, which says for whom it
    /// waits itself.
    fn missing_children(&self, tree: Tree, at: (u64, u32)) -> Vec<usize> {
        let is_missing = |child: &usize| {
            let slot = self.peers[*child];
            slot.is_none_or(|slot| {
                let part = tree.part((*child, &slot), &self.arena, at, &Entry::default());
                part.is_none()
            })
        };
        tree.children(self.me).filter(is_missing).collect()
    }

    /// At the deadline: whoever has not come, not only those that this rank looks at.
    fn name_all(&self, wait_context: &WaitContext<'_>, seq: u64, kind: ErrorKind) -> ErrorKind {
        if !matches!(kind, ErrorKind::Stalled { .. }) {
            return kind;
        }
        let missing = self.not_entered(wait_context, seq);
        let mut first = missing.iter().take(SCANNED_MAX);
        if let Some(mismatch) = first.find_map(|peer| self.other_members(wait_context, *peer)) {
            return mismatch;
        }
        if missing.is_empty() {
            return kind;
        }
        wait_context.stalled(&missing)
    }

    /// Finds the contributions that this rank's result is made of. All entries say the same as its own.
    fn find_contributions(
        &mut self,
        wait_context: &WaitContext<'_>,
        request: &Request<'_>,
        (seq, mine): (u64, &Entry),
    ) -> Result<(), ErrorKind> {
        let (pattern, n) = (request.pattern(), self.peers.len());
        let is_root = self.me == request.root;
        let members = match pattern.source() {
            Source::Nobody => 0..0,
            _ if pattern.recv(is_root) == Extent::Nothing => 0..0,
            Source::Root => request.root..request.root + 1,
            Source::Reduction(_) => pattern.contributors(n, self.me),
            Source::Each => 0..n,
        };
        for member in members {
            if member == self.me {
                continue;
            }
            let slot: PeerSlot = match self.peers[member] {
                Some(slot) => slot,
                None => self.await_slot(wait_context, member, seq)?,
            };
            self.exchange.payloads[member] = slot.payload(&self.arena, seq, mine.room);
        }
        Ok(())
    }
}
