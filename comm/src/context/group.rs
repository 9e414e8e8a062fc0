//! What the members of a group know about it without talking: name, members, key.

use std::sync::Arc;

use crate::algo;
use crate::types::Rank;

/// A group's identity, the same on all members but for `me`.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) name: Arc<str>,
    /// World ranks, in the order in which the group was made.
    pub(crate) members: Vec<Rank>,
    /// Index of this rank in `members`.
    pub(crate) me: usize,
    /// Tells this group, in this generation, from every other one of the job. Never zero.
    pub(crate) key: u64,
    /// The same for every group of this name, whatever its members.
    pub(crate) note: u64,
    /// The group's own rules for choosing algorithms, in place of those of the world.
    pub(crate) table: Option<algo::Table>,
}

impl Identity {
    pub(crate) fn new(
        job: u64,
        name: &str,
        members: Vec<Rank>,
        me: usize,
        generation: u64,
    ) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&job.to_le_bytes());
        // With its length, so that the end of a name is never taken for a member.
        hasher.update(&(name.len() as u64).to_le_bytes());
        hasher.update(name.as_bytes());
        let note = first_word(&hasher);
        hasher.update(&generation.to_le_bytes());
        for member in &members {
            hasher.update(&member.0.to_le_bytes());
        }
        Self {
            name: name.into(),
            members,
            me,
            key: first_word(&hasher),
            note,
            table: None,
        }
    }

    /// Number of members.
    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }
}

fn first_word(hasher: &blake3::Hasher) -> u64 {
    let mut word = [0; 8];
    hasher.finalize_xof().fill(&mut word);
    // Zero marks free places in the directory of a region.
    u64::from_le_bytes(word).max(1)
}
