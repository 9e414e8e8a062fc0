//! Large groups as trees: a member looks at its children, and at the root, instead of at all members.
//!
//! The members are numbered in the order of the group, and the root is member 0. The parent of a member is its number with the
//! lowest digit that is not zero made zero, in a notation of base [`RADIX`]. So a group of up to 1024 members has two levels.
//! Going up, each member compares its entry with those of its children, and says in what its whole part of the tree differs; all
//! members read what the root says (SLOT-6). That is two looks for each member instead of one at every other.

use super::arena::Arena;
use super::slot::{Differs, Entry, PeerSlot, progress};

/// Children of one member on each level, and one more. With a processor a rank fewer would be faster; where groups are this
/// large ranks share processors, and each level costs a turn of all of them.
pub const RADIX: usize = 32;

/// Members from which on a group is a tree.
pub const TREE_MIN: usize = 48;

/// A group as a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tree {
    members: usize,
    radix: usize,
}

impl Tree {
    /// The tree of a group of this size; `None` where its members look at each other.
    #[must_use]
    pub fn of(members: usize) -> Option<Self> {
        (members >= TREE_MIN).then(|| Self::with_radix(members, RADIX))
    }

    /// A tree of another shape.
    #[must_use]
    pub fn with_radix(members: usize, radix: usize) -> Self {
        Self {
            members,
            radix: radix.max(2),
        }
    }

    /// The children of a member, the nearest first.
    pub fn children(self, member: usize) -> impl Iterator<Item = usize> {
        let Self { members, radix } = self;
        let steps = std::iter::successors(Some(1_usize), move |step| step.checked_mul(radix));
        steps
            .take_while(move |step| *step < members && member.is_multiple_of(step * radix))
            .flat_map(move |step| (1..radix).map(move |digit| member + digit * step))
            .take_while(move |child| *child < members)
    }

    /// Whether a member has no children.
    #[must_use]
    pub fn is_leaf(self, member: usize) -> bool {
        self.children(member).next().is_none()
    }

    /// What the part of the tree below a child says of tick `tick` of call `seq`, once all of it has come there: in what it differs
    /// within itself. At tick 0 each member also compares its children's entries with its own.
    #[must_use]
    pub fn part(
        self,
        (child, slot): (usize, &PeerSlot),
        arena: &Arena,
        (seq, tick): (u64, u32),
        mine: &Entry,
    ) -> Option<Differs> {
        let within = if !self.is_leaf(child) {
            slot.gathered(arena, seq, tick)?
        } else if tick == 0 {
            (slot.entered(arena, seq) == seq).then(Differs::default)?
        } else {
            (slot.reached(arena) >= progress(seq, tick)).then(Differs::default)?
        };
        let is_entry = tick == 0;
        let beside = is_entry.then(|| Differs::between(&slot.entry(arena, seq), mine));
        Some(within.and(beside.unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_member_but_the_root_is_the_child_of_one_other() {
        for radix in [2, 3, 32] {
            for members in [1, 2, 3, 31, 32, 33, 1023, 1024, 1025, 4096] {
                let tree = Tree::with_radix(members, radix);
                let mut parents = vec![0; members];
                for member in 0..members {
                    let children: Vec<usize> = tree.children(member).collect();
                    assert_eq!(tree.is_leaf(member), children.is_empty());
                    for child in children {
                        // So there is no circle.
                        assert!(child > member, "{member} of {members} by {radix}");
                        parents[child] += 1;
                    }
                }
                parents[0] += 1;
                assert_eq!(parents, vec![1; members], "{members} by {radix}");
            }
        }
    }

    #[test]
    fn a_member_has_few_children() {
        let tree = Tree::of(1024).unwrap();
        let most = (0..1024).map(|member| tree.children(member).count()).max();
        assert_eq!(most, Some(2 * (RADIX - 1)));
        assert_eq!(Tree::of(TREE_MIN - 1), None);
    }
}
