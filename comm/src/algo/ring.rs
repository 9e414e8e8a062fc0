//! Ring algorithms: each rank sends to the next and receives from the one before, n - 1 times.
//!
//! Every rank sends as little as is possible at all, and only to its neighbour. A block is reduced
//! on its way round the ring by one rank after the other, so its association is one for everybody.

use super::builder::{Builder, input, output, scratch};
use super::plan::{Plan, Span};
use super::problem::Problem;
use super::shape::Blocks;

/// `all_reduce`: a reduce-scatter round the ring, then an all-gather round the ring.
pub(super) fn all_reduce(problem: &Problem, rank: usize) -> Plan {
    let (n, count) = (problem.n(), problem.whole_count());
    let blocks = Blocks::even(count, n);
    let ring = Ring { n, rank };
    let mut plan = Builder::new();
    plan.copy(input(0, count), output(0, count));
    plan.end_round();
    for step in 0..n - 1 {
        let (leaving, arriving) = (ring.leaving(step), ring.arriving(step));
        plan.send(ring.next(), block_of(&blocks, leaving));
        plan.recv_reduce(
            ring.previous(),
            block_of(&blocks, arriving),
            ring.arrives_first(),
        );
        plan.end_round();
    }
    gather(&mut plan, &blocks, ring, None);
    plan.message_plan(0, true)
}

/// `all_gather`, `_v`: blocks travel once round the ring.
pub(super) fn all_gather(problem: &Problem, rank: usize) -> Plan {
    let (n, blocks) = (problem.n(), problem.the_blocks());
    let own = input(0, blocks.len(rank));
    let mut plan = Builder::new();
    plan.copy(own, block_of(blocks, rank));
    gather(&mut plan, blocks, Ring { n, rank }, Some(own));
    plan.message_plan(0, true)
}

/// `broadcast` of many elements: the root hands out slices down a binomial tree, then the slices
/// travel round the ring. Slice v belongs to the rank that stands v places after the root.
pub(super) fn scatter_all_gather(problem: &Problem, rank: usize) -> Plan {
    let (n, root) = (problem.n(), problem.the_root());
    let slices = Blocks::even(problem.whole_count(), n);
    let mut plan = Builder::new();
    super::tree::scatter_slices(&mut plan, &slices, root, rank);
    let ring = Ring {
        n,
        rank: (rank + n - root) % n,
    };
    for step in 0..n - 1 {
        // The root has every slice already, so nothing goes to it.
        if ring.rank != n - 1 {
            let leaving = ring.leaving_gathered(step);
            plan.send((rank + 1) % n, block_of(&slices, leaving));
        }
        if ring.rank != 0 {
            let arriving = ring.arriving_gathered(step);
            plan.recv((rank + n - 1) % n, block_of(&slices, arriving));
        }
        plan.end_round();
    }
    plan.message_plan(0, true)
}

/// `reduce_scatter`, `_v`: the sum of a block grows on its way round the ring to its owner.
///
/// Three buffers take turns: one is sent, one receives, one is filled with the rank's own
/// contribution for the step after.
pub(super) fn reduce_scatter(problem: &Problem, rank: usize) -> Plan {
    let (n, blocks) = (problem.n(), problem.the_blocks());
    let ring = Ring { n, rank };
    let longest = blocks.longest();
    let mut plan = Builder::new();
    let sum_at = |step: usize| -> Span {
        let len = blocks.len(ring.arriving(step));
        if step == n - 2 {
            output(0, len)
        } else {
            scratch(step % 3 * longest, len)
        }
    };
    let own_part = |block: usize| input(blocks.start(block), blocks.len(block));
    plan.copy(own_part(ring.arriving(0)), sum_at(0));
    plan.end_round();
    for step in 0..n - 1 {
        let src = match step.checked_sub(1) {
            None => own_part(ring.leaving(0)),
            Some(before) => sum_at(before),
        };
        plan.send(ring.next(), src);
        plan.recv_reduce(ring.previous(), sum_at(step), ring.arrives_first());
        if step + 2 < n {
            plan.copy(own_part(ring.arriving(step + 1)), sum_at(step + 1));
        }
        plan.end_round();
    }
    plan.message_plan(longest * (n - 2).min(3), true)
}

/// Sends each block of `Out` once round the ring; the first may come from elsewhere.
fn gather(plan: &mut Builder, blocks: &Blocks, ring: Ring, first: Option<Span>) {
    for step in 0..ring.n - 1 {
        let leaving = block_of(blocks, ring.leaving_gathered(step));
        let src = if step == 0 {
            first.unwrap_or(leaving)
        } else {
            leaving
        };
        plan.send(ring.next(), src);
        plan.recv(
            ring.previous(),
            block_of(blocks, ring.arriving_gathered(step)),
        );
        plan.end_round();
    }
}

fn block_of(blocks: &Blocks, i: usize) -> Span {
    output(blocks.start(i), blocks.len(i))
}

/// One rank's place in the ring.
#[derive(Clone, Copy, Debug)]
struct Ring {
    n: usize,
    rank: usize,
}

impl Ring {
    fn next(self) -> usize {
        (self.rank + 1) % self.n
    }

    fn previous(self) -> usize {
        self.back(1)
    }

    fn back(self, distance: usize) -> usize {
        (self.rank + self.n - distance % self.n) % self.n
    }

    /// Block whose partial sum leaves in step `step` of a reduce-scatter; the last to arrive is
    /// the rank's own.
    fn leaving(self, step: usize) -> usize {
        self.back(step + 1)
    }

    fn arriving(self, step: usize) -> usize {
        self.back(step + 2)
    }

    /// Block that leaves in step `step` of an all-gather; the first is the rank's own.
    fn leaving_gathered(self, step: usize) -> usize {
        self.back(step)
    }

    fn arriving_gathered(self, step: usize) -> usize {
        self.back(step + 1)
    }

    /// Whether an arriving sum holds a lower rank than this one: it has come from the ranks just
    /// before this one, so only rank 0 has none lower behind it.
    fn arrives_first(self) -> bool {
        self.rank != 0
    }
}
