//! Recursive halving and its mirror image, over any number of ranks.
//!
//! A range of ranks splits into a lower and an upper half, the lower one longer by one where the
//! number is odd. Each rank keeps the blocks of its own half and gives the others to its partner
//! in the other half. The rank without a partner (the last of the lower half) gives its blocks to
//! the first of the upper half and gets nothing. After each level the ranks of a range hold
//! together, once each, the contributions of everybody to the blocks of that range: so no number
//! of ranks needs folding. Gathering is the same tree upwards.

use super::builder::{Builder, input, output, scratch};
use super::plan::{Plan, Span};
use super::problem::Problem;
use super::shape::Blocks;

/// `all_reduce`: halve down to one block a rank, then gather the blocks.
pub(super) fn all_reduce(problem: &Problem, rank: usize) -> Plan {
    let (n, count) = (problem.n(), problem.whole_count());
    let blocks = Blocks::even(count, n);
    let mut plan = Builder::new();
    plan.copy(input(0, count), output(0, count));
    plan.end_round();
    for level in 0..levels(n) {
        let part = Part::of(n, rank, level);
        halve(&mut plan, n, level, part, |first, end| {
            run_of_blocks(&blocks, first, end)
        });
    }
    gather(&mut plan, &blocks, rank);
    plan.message_plan(0, true)
}

/// `all_gather`, `_v`: pairs exchange ever longer runs of blocks.
pub(super) fn all_gather(problem: &Problem, rank: usize) -> Plan {
    let blocks = problem.the_blocks();
    let mut plan = Builder::new();
    plan.copy(
        input(0, blocks.len(rank)),
        output(blocks.start(rank), blocks.len(rank)),
    );
    plan.end_round();
    gather(&mut plan, blocks, rank);
    plan.message_plan(0, true)
}

/// `reduce_scatter`, `_v`: halve down to the rank's own block.
///
/// What leaves in the first round leaves the send buffer; what stays is summed up in scratch, or
/// in the receive buffer where no more than the own block stays.
pub(super) fn reduce_scatter(problem: &Problem, rank: usize) -> Plan {
    let (n, blocks) = (problem.n(), problem.the_blocks());
    let top = Part::of(n, rank, 0).expect("two ranks or more are split");
    let (kept, kept_end) = top.own();
    let at_once = kept_end - kept == 1;
    let base = blocks.start(kept);
    let sum_of = |first: usize, end: usize| -> Span {
        let (start, len) = (blocks.start(first), blocks.between(first, end));
        if at_once {
            output(0, len)
        } else {
            scratch(start - base, len)
        }
    };
    let mut plan = Builder::new();
    let kept_len = blocks.between(kept, kept_end);
    plan.copy(input(base, kept_len), sum_of(kept, kept_end));
    plan.end_round();
    for level in 0..levels(n) {
        let part = Part::of(n, rank, level);
        halve(&mut plan, n, level, part, |first, end| {
            if first >= kept && end <= kept_end {
                sum_of(first, end)
            } else {
                input(blocks.start(first), blocks.between(first, end))
            }
        });
    }
    if !at_once {
        plan.copy(sum_of(rank, rank + 1), output(0, blocks.len(rank)));
    }
    plan.end_round();
    plan.message_plan(if at_once { 0 } else { kept_len }, true)
}

/// One level downwards: gives away the sums of the other half, takes in those of the own half.
fn halve(
    plan: &mut Builder,
    n: usize,
    level: u32,
    part: Option<Part>,
    sum_of: impl Fn(usize, usize) -> Span,
) {
    if let Some(part) = part {
        let (own, own_end) = part.own();
        let (other, other_end) = part.other();
        if let Some(partner) = part.partner() {
            plan.send(partner, sum_of(other, other_end));
            plan.recv_reduce(partner, sum_of(own, own_end), partner < part.rank);
        }
    }
    plan.end_round();
    // The sum of a rank without a partner comes in a round of its own: it is added to elements
    // that the partner's sum was just added to.
    if has_odd_range(n, level) {
        if let Some(part) = part {
            let (own, own_end) = part.own();
            let (other, other_end) = part.other();
            if part.is_single() {
                plan.send(part.mid, sum_of(other, other_end));
            } else if let Some(single) = part.single_to_serve() {
                plan.recv_reduce(single, sum_of(own, own_end), true);
            }
        }
        plan.end_round();
    }
}

/// All levels upwards: gives the blocks of the own half, takes those of the other half.
fn gather(plan: &mut Builder, blocks: &Blocks, rank: usize) {
    let n = blocks.count();
    for level in (0..levels(n)).rev() {
        if let Some(part) = Part::of(n, rank, level) {
            let (own, own_end) = part.own();
            let (other, other_end) = part.other();
            let own = run_of_blocks(blocks, own, own_end);
            let other = run_of_blocks(blocks, other, other_end);
            if let Some(partner) = part.partner() {
                plan.send(partner, own);
                plan.recv(partner, other);
            }
            if part.is_single() {
                plan.recv(part.mid, other);
            } else if let Some(single) = part.single_to_serve() {
                plan.send(single, own);
            }
        }
        plan.end_round();
    }
}

fn run_of_blocks(blocks: &Blocks, first: usize, end: usize) -> Span {
    output(blocks.start(first), blocks.between(first, end))
}

/// Number of times `n` ranks are halved until each is alone.
fn levels(n: usize) -> u32 {
    n.next_power_of_two().ilog2()
}

/// Whether a range that is split on this level has an odd number of ranks. All ranges of a level
/// have one of two neighbouring lengths.
fn has_odd_range(n: usize, level: u32) -> bool {
    let (short, long) = (n >> level, n.div_ceil(1 << level));
    [short, long]
        .into_iter()
        .any(|ranks| ranks > 1 && ranks % 2 == 1)
}

/// The range of ranks that holds one rank on one level, and where it splits.
#[derive(Clone, Copy, Debug)]
struct Part {
    rank: usize,
    first: usize,
    mid: usize,
    end: usize,
}

impl Part {
    /// The range of `rank` on `level`; none where the rank is alone already.
    fn of(n: usize, rank: usize, level: u32) -> Option<Self> {
        let (mut first, mut end) = (0, n);
        for _ in 0..level {
            let mid = first + (end - first).div_ceil(2);
            if rank < mid {
                end = mid;
            } else {
                first = mid;
            }
        }
        (end - first > 1).then(|| Self {
            rank,
            first,
            mid: first + (end - first).div_ceil(2),
            end,
        })
    }

    fn is_lower(self) -> bool {
        self.rank < self.mid
    }

    /// The half that holds the rank.
    fn own(self) -> (usize, usize) {
        if self.is_lower() {
            (self.first, self.mid)
        } else {
            (self.mid, self.end)
        }
    }

    /// The half that does not.
    fn other(self) -> (usize, usize) {
        if self.is_lower() {
            (self.mid, self.end)
        } else {
            (self.first, self.mid)
        }
    }

    /// The rank at the same place in the other half.
    fn partner(self) -> Option<usize> {
        if self.is_lower() {
            let partner = self.mid + (self.rank - self.first);
            (partner < self.end).then_some(partner)
        } else {
            Some(self.first + (self.rank - self.mid))
        }
    }

    /// Whether this is the rank without a partner.
    fn is_single(self) -> bool {
        self.partner().is_none()
    }

    /// The rank without a partner, on the rank that stands in for one.
    fn single_to_serve(self) -> Option<usize> {
        let odd = (self.end - self.first) % 2 == 1;
        (odd && self.rank == self.mid).then(|| self.mid - 1)
    }
}
