//! Binomial trees: the root reaches twice as many ranks in each round.
//!
//! Ranks are numbered from the root on (`place`), so that the root is place 0 and every subtree is
//! a run of places. Which element lies where is still counted in ranks.

use super::builder::{Builder, input, output, scratch};
use super::plan::{Plan, Span};
use super::problem::Problem;
use super::shape::Blocks;

/// `broadcast`: whoever has the buffer passes it on, over ever shorter distances.
pub(super) fn broadcast(problem: &Problem, rank: usize) -> Plan {
    let tree = Tree::of(problem.n(), problem.the_root(), rank);
    let buffer = output(0, problem.whole_count());
    let mut plan = Builder::new();
    for distance in tree.distances().rev() {
        match tree.meeting(distance) {
            Meeting::Child { child, .. } => plan.send(child, buffer),
            Meeting::Parent { parent } => plan.recv(parent, buffer),
            Meeting::None => {}
        }
        plan.end_round();
    }
    plan.message_plan(0, true)
}

/// `reduce`: sums flow to the root, over ever longer distances.
pub(super) fn reduce(problem: &Problem, rank: usize) -> Plan {
    let tree = Tree::of(problem.n(), problem.the_root(), rank);
    let count = problem.whole_count();
    let is_leaf = tree.is_leaf();
    let (sum, needed) = if tree.place == 0 {
        (output(0, count), 0)
    } else if is_leaf {
        (input(0, count), 0)
    } else {
        (scratch(0, count), count)
    };
    let mut plan = Builder::new();
    if !is_leaf {
        plan.copy(input(0, count), sum);
    }
    plan.end_round();
    for distance in tree.distances() {
        match tree.meeting(distance) {
            Meeting::Child { child, places } => {
                let theirs = tree.lowest_rank(places);
                let mine = tree.lowest_rank((tree.place, places.0));
                plan.recv_reduce(child, sum, theirs < mine);
            }
            Meeting::Parent { parent } => plan.send(parent, sum),
            Meeting::None => {}
        }
        plan.end_round();
    }
    plan.message_plan(needed, true)
}

/// `gather`, `_v`: runs of blocks flow to the root, over ever longer distances.
pub(super) fn gather(problem: &Problem, rank: usize) -> Plan {
    let tree = Tree::of(problem.n(), problem.the_root(), rank);
    let store = Store::of(problem.the_blocks(), tree, input);
    let mut plan = Builder::new();
    let own = problem.the_blocks().len(rank);
    if !tree.is_leaf() {
        let kept = store.spans((tree.place, tree.place + 1));
        plan.copy(input(0, own), kept[0]);
    }
    plan.end_round();
    for distance in tree.distances() {
        match tree.meeting(distance) {
            Meeting::Child { child, places } => {
                for span in store.spans(places) {
                    plan.recv(child, span);
                }
            }
            Meeting::Parent { parent } => {
                for span in store.spans(tree.subtree()) {
                    plan.send(parent, span);
                }
            }
            Meeting::None => {}
        }
        plan.end_round();
    }
    plan.message_plan(store.scratch(), true)
}

/// `scatter`, `_v`: runs of blocks flow from the root, over ever shorter distances.
pub(super) fn scatter(problem: &Problem, rank: usize) -> Plan {
    let tree = Tree::of(problem.n(), problem.the_root(), rank);
    let store = Store::of(problem.the_blocks(), tree, output);
    let mut plan = Builder::new();
    for distance in tree.distances().rev() {
        match tree.meeting(distance) {
            Meeting::Child { child, places } => {
                for span in store.spans(places) {
                    plan.send(child, span);
                }
            }
            Meeting::Parent { parent } => {
                for span in store.spans(tree.subtree()) {
                    plan.recv(parent, span);
                }
            }
            Meeting::None => {}
        }
        plan.end_round();
    }
    if !tree.is_leaf() {
        let kept = store.spans((tree.place, tree.place + 1));
        plan.copy(kept[0], output(0, problem.the_blocks().len(rank)));
    }
    plan.end_round();
    plan.message_plan(store.scratch(), true)
}

/// Hands out the slices of the root's `Out`, slice v to place v, down a binomial tree.
pub(super) fn scatter_slices(plan: &mut Builder, slices: &Blocks, root: usize, rank: usize) {
    let tree = Tree::of(slices.count(), root, rank);
    let run = |places: Places| output(slices.start(places.0), slices.between(places.0, places.1));
    for distance in tree.distances().rev() {
        match tree.meeting(distance) {
            Meeting::Child { child, places } => plan.send(child, run(places)),
            Meeting::Parent { parent } => plan.recv(parent, run(tree.subtree())),
            Meeting::None => {}
        }
        plan.end_round();
    }
}

/// Places from the first up to, not including, the second.
type Places = (usize, usize);

/// Whom a rank meets at one distance.
#[derive(Clone, Copy, Debug)]
enum Meeting {
    /// The child that stands this far on, and the places of its subtree.
    Child { child: usize, places: Places },
    /// Nobody.
    None,
    /// The parent, this far back.
    Parent { parent: usize },
}

/// One rank's view of the tree.
#[derive(Clone, Copy, Debug)]
struct Tree {
    n: usize,
    root: usize,
    place: usize,
}

impl Tree {
    fn of(n: usize, root: usize, rank: usize) -> Self {
        Self {
            n,
            root,
            place: (rank + n - root) % n,
        }
    }

    fn rank_at(self, place: usize) -> usize {
        (self.root + place) % self.n
    }

    /// 1, 2, 4, … below n.
    fn distances(self) -> impl DoubleEndedIterator<Item = usize> {
        (0..self.n.next_power_of_two().ilog2()).map(|power| 1 << power)
    }

    fn meeting(self, distance: usize) -> Meeting {
        let on = self.place + distance;
        if self.place % (2 * distance) == distance {
            Meeting::Parent {
                parent: self.rank_at(self.place - distance),
            }
        } else if self.place.is_multiple_of(2 * distance) && on < self.n {
            Meeting::Child {
                child: self.rank_at(on),
                places: (on, (on + distance).min(self.n)),
            }
        } else {
            Meeting::None
        }
    }

    /// The places below this rank, its own included.
    fn subtree(self) -> Places {
        if self.place == 0 {
            return (0, self.n);
        }
        let width = 1 << self.place.trailing_zeros();
        (self.place, (self.place + width).min(self.n))
    }

    fn is_leaf(self) -> bool {
        let (first, end) = self.subtree();
        end - first == 1
    }

    /// The lowest rank at these places.
    fn lowest_rank(self, places: Places) -> usize {
        let wrap = self.n - self.root;
        if places.0 < wrap && wrap < places.1 {
            0
        } else {
            self.rank_at(places.0)
        }
    }
}

/// Where a rank keeps the blocks of its subtree.
#[derive(Debug)]
struct Store<'a> {
    blocks: &'a Blocks,
    tree: Tree,
    /// The buffer that holds a single block: the send buffer when gathering, else the other.
    single: fn(usize, usize) -> Span,
}

impl<'a> Store<'a> {
    fn of(blocks: &'a Blocks, tree: Tree, single: fn(usize, usize) -> Span) -> Self {
        Self {
            blocks,
            tree,
            single,
        }
    }

    /// The spans that hold the blocks of these places: two where the places pass the last rank.
    /// Sender and receiver cut alike, so each span is one message.
    fn spans(&self, places: Places) -> Vec<Span> {
        let wrap = self.tree.n - self.tree.root;
        if places.0 < wrap && wrap < places.1 {
            vec![
                self.run((places.0, wrap), places),
                self.run((wrap, places.1), places),
            ]
        } else {
            vec![self.run(places, places)]
        }
    }

    /// The span of places that do not pass the last rank.
    fn run(&self, run: Places, within: Places) -> Span {
        let len = self.len(run);
        if self.tree.place == 0 {
            let start = self.blocks.start(self.tree.rank_at(run.0));
            // The root has the one large buffer, in rank order: `Out` to gather, `In` to scatter.
            return if self.gathers() {
                output(start, len)
            } else {
                input(start, len)
            };
        }
        if self.tree.is_leaf() {
            return (self.single)(self.len((within.0, run.0)), len);
        }
        scratch(self.len((self.tree.place, run.0)), len)
    }

    fn gathers(&self) -> bool {
        (self.single)(0, 0) == input(0, 0)
    }

    /// Number of elements at these places.
    fn len(&self, places: Places) -> usize {
        (places.0..places.1)
            .map(|place| self.blocks.len(self.tree.rank_at(place)))
            .sum()
    }

    /// Elements of scratch that the rank needs.
    fn scratch(&self) -> usize {
        if self.tree.place == 0 || self.tree.is_leaf() {
            0
        } else {
            self.len(self.tree.subtree())
        }
    }
}
