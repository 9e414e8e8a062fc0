//! Ranks that do not answer are looked at by others of their host.

use std::collections::BTreeMap;

use super::Arbiter;

/// Neighbours that look at a silent rank.
const LOOKERS: usize = 2;

impl Arbiter {
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
