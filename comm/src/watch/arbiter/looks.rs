//! Ranks that do not answer are looked at by others of their host.

use std::collections::BTreeMap;

use super::{Arbiter, ROUND_MS, Round};
use crate::watch::judge::FROZEN_AFTER_MS;

/// Neighbours that look at a silent rank.
const LOOKERS: usize = 2;

impl Arbiter {
    /// How long each rank has not answered, at the end of a round. When silence comes to mean something a
    /// round ends, whether or not somebody asks for it then.
    pub(super) fn count_silence(&mut self, round: &Round) {
        let now_ms = self.closed_ms;
        for (rank, member) in (0_u32..).zip(&mut self.scene.members) {
            if member.fate.is_none() && !round.answered.contains(&rank) {
                let since = *self.silent_since.entry(rank).or_insert(round.began_ms);
                member.silent_ms = now_ms.saturating_sub(since).max(1);
                let due = since + FROZEN_AFTER_MS - ROUND_MS;
                if due > now_ms {
                    self.due_ms = Some(self.due_ms.map_or(due, |known| known.min(due)));
                }
            }
        }
    }

    /// Who is to look at whom: neighbours that answer at those that do not.
    pub(super) fn looks(&self) -> BTreeMap<u32, Vec<(u32, u32)>> {
        let mut looks: BTreeMap<u32, Vec<(u32, u32)>> = BTreeMap::new();
        for silent in self.silent_since.keys() {
            let Some(member) = self.scene.member(*silent) else {
                continue;
            };
            let host = &self.hosts[*silent as usize];
            let near = (0_u32..).zip(&self.hosts).filter(|(rank, other)| {
                *other == host && !host.is_empty() && !self.silent_since.contains_key(rank)
            });
            let alive = near.filter(|(rank, _)| {
                self.scene
                    .member(*rank)
                    .is_some_and(|member| member.fate.is_none())
            });
            for (looker, _) in alive.take(LOOKERS) {
                looks.entry(looker).or_default().push((*silent, member.pid));
            }
        }
        looks
    }
}
