//! A list of groups in compact form: where each group begins, and where its members lie from there.
//!
//! In every grid all groups over one set of axes have the same shape, so a list costs memory for
//! its groups and for ONE group's members, not for every rank of every group.
//!
//! GROUPS-1: `offsets` begins with 0, ascends and is the same for every group.

use std::fmt;

use serde::ser::{Serialize, SerializeSeq, Serializer};

use crate::types::Rank;

/// Groups of equal shape, in the sequence in which Megatron creates them.
#[derive(Clone, PartialEq, Eq)]
pub struct Groups {
    firsts: Vec<u32>,
    offsets: Vec<u32>,
}

/// A number of ranks, and how far apart they are.
pub(super) type Dim = (u32, u32);

impl Groups {
    /// Groups whose members differ in `vary`; one for each position in `by`, the last of which changes fastest.
    pub(super) fn over(vary: &[Dim], by: &[Dim]) -> Self {
        Self::new(positions(by), positions(vary))
    }

    pub(super) fn new(firsts: Vec<u32>, offsets: Vec<u32>) -> Self {
        assert!(!offsets.is_empty(), "a group has members");
        Self { firsts, offsets }
    }

    /// Number of groups.
    #[must_use]
    pub fn len(&self) -> usize {
        self.firsts.len()
    }

    /// Whether there is no group at all. A layout never yields such a list.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.firsts.is_empty()
    }

    /// The group with this position in the list.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Members<'_>> {
        self.firsts.get(index).map(|first| Members {
            first: *first,
            offsets: &self.offsets,
        })
    }

    /// The groups, one after the other.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Members<'_>> + Clone {
        self.firsts.iter().map(|first| Members {
            first: *first,
            offsets: &self.offsets,
        })
    }

    /// The group that holds a rank, with its position in the list.
    #[must_use]
    pub fn holding(&self, rank: Rank) -> Option<(usize, Members<'_>)> {
        let mut all = self.iter().enumerate();
        all.find(|(_, members)| members.position(rank).is_some())
    }

    /// The groups as plain lists of ranks.
    #[must_use]
    pub fn to_vecs(&self) -> Vec<Vec<Rank>> {
        self.iter().map(Members::to_vec).collect()
    }

    pub(super) fn firsts(&self) -> &[u32] {
        &self.firsts
    }

    pub(super) fn offsets(&self) -> &[u32] {
        &self.offsets
    }
}

/// Where the positions along some dimensions lie, the last of which changes fastest.
fn positions(dims: &[Dim]) -> Vec<u32> {
    let mut all = vec![0];
    for (size, stride) in dims {
        let spread = |begin: u32| (0..*size).map(move |step| begin + step * stride);
        all = all.into_iter().flat_map(spread).collect();
    }
    all
}

impl fmt::Debug for Groups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Serialize for Groups {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.len()))?;
        for group in self.iter() {
            list.serialize_element(&group)?;
        }
        list.end()
    }
}

/// The members of one group, in group order: the position in this list is the rank in the group.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Members<'a> {
    first: u32,
    offsets: &'a [u32],
}

impl Members<'_> {
    /// Number of members.
    #[must_use]
    pub fn len(&self) -> usize {
        self.offsets.len()
    }

    /// Whether the group has no members. No group of a layout is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// The member with this rank in the group.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Rank> {
        self.offsets
            .get(index)
            .map(|offset| Rank(self.first + offset))
    }

    /// The members as ranks of the world.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Rank> + Clone {
        let first = self.first;
        self.offsets.iter().map(move |offset| Rank(first + offset))
    }

    /// The rank in the group of this rank of the world, if it is a member.
    #[must_use]
    pub fn position(&self, rank: Rank) -> Option<usize> {
        let offset = rank.0.checked_sub(self.first)?;
        self.offsets.iter().position(|known| *known == offset)
    }

    /// The members as a list.
    #[must_use]
    pub fn to_vec(self) -> Vec<Rank> {
        self.iter().collect()
    }
}

impl fmt::Debug for Members<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Serialize for Members<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}
