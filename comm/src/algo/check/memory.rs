//! The checker's memory: runs of elements, each holding a reduction of known contributions.
//!
//! An element's value is a tree whose leaves are ranks: "the element that ranks 0, 1 and 2 have at
//! position p of their send buffers, reduced as (0 1) 2". Trees are stored once, so that equal
//! ones have equal numbers; a run of elements with one tree is one entry however long it is.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::ops::Range;

/// A stored tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tree(usize);

/// A set of ranks.
type Ranks = Vec<u64>;

/// All trees that came up.
#[derive(Debug)]
pub(super) struct Forest {
    n: usize,
    nodes: Vec<Node>,
    known: HashMap<(Tree, Tree), Tree>,
}

#[derive(Debug)]
struct Node {
    parts: Option<(Tree, Tree)>,
    ranks: Ranks,
    members: usize,
}

impl Forest {
    /// The single contributions of `n` ranks. One further leaf stands for a token without value.
    pub(super) fn new(n: usize) -> Self {
        let words = n / 64 + 1;
        let nodes = (0..=n)
            .map(|rank| {
                let mut ranks = vec![0; words];
                ranks[rank / 64] |= 1 << (rank % 64);
                Node {
                    parts: None,
                    ranks,
                    members: 1,
                }
            })
            .collect();
        Self {
            n,
            nodes,
            known: HashMap::new(),
        }
    }

    /// The contribution of one rank alone.
    pub(super) fn leaf(&self, rank: usize) -> Tree {
        debug_assert!(rank < self.n, "a contribution is that of a rank");
        Tree(rank)
    }

    /// A token whose value does not matter.
    pub(super) fn token(&self) -> Tree {
        Tree(self.n)
    }

    /// `left op right`.
    ///
    /// # Errors
    /// The lowest rank that contributes to both.
    pub(super) fn combine(&mut self, left: Tree, right: Tree) -> Result<Tree, usize> {
        if let Some(tree) = self.known.get(&(left, right)) {
            return Ok(*tree);
        }
        let (a, b) = (&self.nodes[left.0], &self.nodes[right.0]);
        let both = a.ranks.iter().zip(&b.ranks).enumerate();
        for (word, (x, y)) in both {
            if x & y != 0 {
                return Err(word * 64 + (x & y).trailing_zeros() as usize);
            }
        }
        let node = Node {
            parts: Some((left, right)),
            ranks: a.ranks.iter().zip(&b.ranks).map(|(x, y)| x | y).collect(),
            members: a.members + b.members,
        };
        let tree = Tree(self.nodes.len());
        self.nodes.push(node);
        self.known.insert((left, right), tree);
        Ok(tree)
    }

    /// The lowest of these ranks that does not contribute.
    pub(super) fn lacks(&self, tree: Tree, mut ranks: Range<usize>) -> Option<usize> {
        let node = &self.nodes[tree.0];
        if node.members == self.n && tree != self.token() {
            return None;
        }
        ranks.find(|rank| node.ranks[rank / 64] >> (rank % 64) & 1 == 0)
    }

    /// Whether these ranks contribute, no others, and from left to right in ascending order.
    pub(super) fn is_in_order(&self, tree: Tree, ranks: Range<usize>) -> bool {
        let mut next = ranks.start;
        let mut stack = vec![tree];
        while let Some(tree) = stack.pop() {
            match self.nodes[tree.0].parts {
                Some((left, right)) => stack.extend([right, left]),
                None if tree.0 == next => next += 1,
                None => return false,
            }
        }
        next == ranks.end
    }

    /// The tree in brackets, cut off where it gets long.
    pub(super) fn describe(&self, tree: Tree) -> String {
        /// Longest description, in characters.
        const MAX: usize = 80;
        let mut text = String::new();
        let mut stack = vec![Part::Tree(tree)];
        while let Some(part) = stack.pop() {
            if text.len() > MAX {
                text.push('…');
                break;
            }
            match part {
                Part::Text(word) => text.push_str(word),
                Part::Tree(tree) => match self.nodes[tree.0].parts {
                    None => {
                        let _ = write!(text, "r{}", tree.0);
                    }
                    Some((left, right)) => {
                        text.push('(');
                        stack.push(Part::Text(")"));
                        stack.push(Part::Tree(right));
                        stack.push(Part::Text(" + "));
                        stack.push(Part::Tree(left));
                    }
                },
            }
        }
        text
    }
}

enum Part {
    Text(&'static str),
    Tree(Tree),
}

/// A run of elements with one tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// First element; in a value on its way, counted from the value's start.
    pub(super) start: usize,
    pub(super) len: usize,
    pub(super) tree: Tree,
    /// Which element of the send buffers the first element is made of.
    pub(super) base: usize,
    /// Round and step that wrote it; none for what was there at the start.
    pub(super) written: Option<(usize, usize)>,
}

impl Run {
    fn end(&self) -> usize {
        self.start + self.len
    }

    /// The part of the run from element `from` up to `to`, which overlap it.
    fn part(&self, from: usize, to: usize) -> Self {
        let start = self.start.max(from);
        Self {
            start,
            len: self.end().min(to) - start,
            base: self.base + (start - self.start),
            ..*self
        }
    }

    /// Whether `next` goes on where this run ends.
    fn goes_on(&self, next: &Self) -> bool {
        self.end() == next.start
            && self.tree == next.tree
            && self.base + self.len == next.base
            && self.written == next.written
    }
}

/// One buffer: what it holds, in ascending order; what is not listed holds nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Buffer {
    runs: Vec<Run>,
}

impl Buffer {
    /// What the elements hold, counted from `start`.
    ///
    /// # Errors
    /// The first element that holds nothing.
    pub(super) fn read(&self, start: usize, len: usize) -> Result<Vec<Run>, usize> {
        let end = start + len;
        let first = self.runs.partition_point(|run| run.end() <= start);
        let mut next = start;
        let mut found = Vec::new();
        for run in &self.runs[first..] {
            if run.start >= end {
                break;
            }
            if run.start > next {
                return Err(next);
            }
            let mut part = run.part(start, end);
            next = part.end();
            part.start -= start;
            found.push(part);
        }
        if next < end {
            return Err(next);
        }
        Ok(found)
    }

    /// Puts a value of `len` elements at `start`.
    pub(super) fn write(&mut self, start: usize, len: usize, value: &[Run]) {
        let end = start + len;
        let first = self.runs.partition_point(|run| run.end() <= start);
        let last = self.runs.partition_point(|run| run.start < end);
        let mut new: Vec<Run> = Vec::with_capacity(value.len() + 2);
        if let Some(run) = self.runs[first..last].first()
            && run.start < start
        {
            new.push(run.part(run.start, start));
        }
        for run in value {
            let run = Run {
                start: run.start + start,
                ..*run
            };
            match new.last_mut() {
                Some(before) if before.goes_on(&run) => before.len += run.len,
                _ => new.push(run),
            }
        }
        if let Some(run) = self.runs[first..last].last()
            && run.end() > end
        {
            new.push(run.part(end, run.end()));
        }
        self.runs.splice(first..last, new);
    }
}

/// Two runs of different values side by side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beside {
    /// First element and number of elements that both cover.
    pub(super) start: usize,
    pub(super) len: usize,
    pub(super) left: Run,
    pub(super) right: Run,
}

/// Cuts two values of one length so that their runs lie side by side.
pub(super) fn side_by_side(left: &[Run], right: &[Run]) -> Vec<Beside> {
    let mut pairs = Vec::with_capacity(left.len().max(right.len()));
    let (mut i, mut j, mut start) = (0, 0, 0);
    while i < left.len() && j < right.len() {
        let end = left[i].end().min(right[j].end());
        pairs.push(Beside {
            start,
            len: end - start,
            left: left[i].part(start, end),
            right: right[j].part(start, end),
        });
        i += usize::from(left[i].end() == end);
        j += usize::from(right[j].end() == end);
        start = end;
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(start: usize, len: usize, tree: Tree, base: usize) -> Run {
        Run {
            start,
            len,
            tree,
            base,
            written: None,
        }
    }

    #[test]
    fn a_write_into_the_middle_leaves_both_ends_as_they_were() {
        let forest = Forest::new(2);
        let (a, b) = (forest.leaf(0), forest.leaf(1));
        let mut buffer = Buffer::default();
        buffer.write(0, 10, &[run(0, 10, a, 0)]);
        buffer.write(3, 4, &[run(0, 4, b, 3)]);
        assert_eq!(
            buffer.read(1, 8),
            Ok(vec![run(0, 2, a, 1), run(2, 4, b, 3), run(6, 2, a, 7)])
        );
        assert_eq!(buffer.read(8, 3), Err(10));
        buffer.write(3, 4, &[run(0, 4, a, 3)]);
        assert_eq!(buffer.read(0, 10).map(|runs| runs.len()), Ok(3));
    }

    #[test]
    fn a_contribution_cannot_be_combined_twice_and_equal_trees_are_one() {
        let mut forest = Forest::new(70);
        let (a, b) = (forest.leaf(1), forest.leaf(69));
        let ab = forest.combine(a, b).expect("disjoint");
        assert_eq!(forest.combine(a, b), Ok(ab));
        assert_ne!(forest.combine(b, a), Ok(ab));
        assert_eq!(forest.combine(ab, b), Err(69));
        assert_eq!(forest.lacks(ab, 0..70), Some(0));
        assert_eq!(forest.describe(ab), "(r1 + r69)");
        let (c, ba) = (forest.leaf(2), forest.combine(b, a).expect("disjoint"));
        let ac = forest.combine(a, c).expect("disjoint");
        assert!(forest.is_in_order(ac, 1..3));
        assert!(!forest.is_in_order(ac, 1..2));
        assert!(!forest.is_in_order(ac, 1..4));
        assert!(!forest.is_in_order(ab, 1..3));
        assert!(!forest.is_in_order(ba, 1..3));
    }
}
