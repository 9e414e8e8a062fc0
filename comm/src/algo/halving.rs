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
    let team = Team::of_all(n);
    scatter(&mut plan, &team, rank, |first, end| {
        vec![run_of_blocks(&blocks, first, end)]
    });
    gather(&mut plan, &team, rank, |first, end| {
        vec![run_of_blocks(&blocks, first, end)]
    });
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
    gather(&mut plan, &Team::of_all(problem.n()), rank, |first, end| {
        vec![run_of_blocks(blocks, first, end)]
    });
    plan.message_plan(0, true)
}

/// `reduce_scatter`, `_v`: halve down to the rank's own block.
///
/// What leaves in the first round leaves the send buffer; what stays is summed up in scratch, or
/// in the receive buffer where no more than the own block stays.
pub(super) fn reduce_scatter(problem: &Problem, rank: usize) -> Plan {
    let (n, blocks) = (problem.n(), problem.the_blocks());
    let (kept, kept_end) = kept(n, rank);
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
    scatter(&mut plan, &Team::of_all(n), rank, |first, end| {
        vec![if first >= kept && end <= kept_end {
            sum_of(first, end)
        } else {
            input(blocks.start(first), blocks.between(first, end))
        }]
    });
    if !at_once {
        plan.copy(sum_of(rank, rank + 1), output(0, blocks.len(rank)));
    }
    plan.end_round();
    plan.message_plan(if at_once { 0 } else { kept_len }, true)
}

/// The ranks that take part, by their places in the tree.
pub(super) struct Team(Vec<usize>);

impl Team {
    /// All ranks of a group of `n`.
    fn of_all(n: usize) -> Self {
        Self((0..n).collect())
    }

    /// Some ranks of a group.
    pub(super) fn of(ranks: &[usize]) -> Self {
        Self(ranks.to_vec())
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    /// The rank at a place; a rank that takes part stands at its place.
    fn rank_at(&self, place: usize) -> usize {
        self.0[place]
    }
}

/// The places whose sums a place keeps in the first level of [`scatter`]; its own if it is alone.
pub(super) fn kept(n: usize, place: usize) -> (usize, usize) {
    Part::of(n, place, 0).map_or((place, place + 1), Part::own)
}

/// Rounds of [`scatter`] for `n` places.
pub(super) fn scatter_rounds(n: usize) -> usize {
    let odd = (0..levels(n)).filter(|level| has_odd_range(n, *level));
    odd.count() + gather_rounds(n)
}

/// Rounds of [`gather`] for `n` places.
pub(super) fn gather_rounds(n: usize) -> usize {
    levels(n) as usize
}

/// All levels downwards: gives away the sums of the other half, takes in those of the own half.
/// `sum_of` says where the sums of a range of places lie: in spans whose number and lengths do not depend on the
/// place that asks.
pub(super) fn scatter(
    plan: &mut Builder,
    team: &Team,
    place: usize,
    sum_of: impl Fn(usize, usize) -> Vec<Span>,
) {
    let n = team.len();
    for level in 0..levels(n) {
        halve(plan, team, level, Part::of(n, place, level), &sum_of);
    }
}

/// One level downwards.
fn halve(
    plan: &mut Builder,
    team: &Team,
    level: u32,
    part: Option<Part>,
    sum_of: &impl Fn(usize, usize) -> Vec<Span>,
) {
    let send = |plan: &mut Builder, to: usize, (first, end): (usize, usize)| {
        for span in sum_of(first, end) {
            plan.send(team.rank_at(to), span);
        }
    };
    let recv = |plan: &mut Builder, from: usize, (first, end): (usize, usize), is_lower| {
        for span in sum_of(first, end) {
            plan.recv_reduce(team.rank_at(from), span, is_lower);
        }
    };
    if let Some(part) = part
        && let Some(partner) = part.partner()
    {
        send(plan, partner, part.other());
        recv(plan, partner, part.own(), partner < part.place);
    }
    plan.end_round();
    // The sum of a rank without a partner comes in a round of its own: it is added to elements
    // that the partner's sum was just added to.
    if has_odd_range(team.len(), level) {
        if let Some(part) = part {
            if part.is_single() {
                send(plan, part.mid, part.other());
            } else if let Some(single) = part.single_to_serve() {
                recv(plan, single, part.own(), true);
            }
        }
        plan.end_round();
    }
}

/// All levels upwards: gives the blocks of the own half, takes those of the other half. `blocks_of` says where the
/// blocks of a range of places lie, as in [`scatter`].
pub(super) fn gather(
    plan: &mut Builder,
    team: &Team,
    place: usize,
    blocks_of: impl Fn(usize, usize) -> Vec<Span>,
) {
    let n = team.len();
    for level in (0..levels(n)).rev() {
        if let Some(part) = Part::of(n, place, level) {
            let send = |plan: &mut Builder, to: usize| {
                let (own, own_end) = part.own();
                for span in blocks_of(own, own_end) {
                    plan.send(team.rank_at(to), span);
                }
            };
            let recv = |plan: &mut Builder, from: usize| {
                let (other, other_end) = part.other();
                for span in blocks_of(other, other_end) {
                    plan.recv(team.rank_at(from), span);
                }
            };
            if let Some(partner) = part.partner() {
                send(plan, partner);
                recv(plan, partner);
            }
            if part.is_single() {
                recv(plan, part.mid);
            } else if let Some(single) = part.single_to_serve() {
                send(plan, single);
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

/// The range of places that holds one place on one level, and where it splits.
#[derive(Clone, Copy, Debug)]
struct Part {
    place: usize,
    first: usize,
    mid: usize,
    end: usize,
}

impl Part {
    /// The range of `place` on `level`; none where the place is alone already.
    fn of(n: usize, place: usize, level: u32) -> Option<Self> {
        let (mut first, mut end) = (0, n);
        for _ in 0..level {
            let mid = first + (end - first).div_ceil(2);
            if place < mid {
                end = mid;
            } else {
                first = mid;
            }
        }
        (end - first > 1).then(|| Self {
            place,
            first,
            mid: first + (end - first).div_ceil(2),
            end,
        })
    }

    fn is_lower(self) -> bool {
        self.place < self.mid
    }

    /// The half that holds the place.
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

    /// The place that stands alike in the other half.
    fn partner(self) -> Option<usize> {
        if self.is_lower() {
            let partner = self.mid + (self.place - self.first);
            (partner < self.end).then_some(partner)
        } else {
            Some(self.first + (self.place - self.mid))
        }
    }

    /// Whether this is the place without a partner.
    fn is_single(self) -> bool {
        self.partner().is_none()
    }

    /// The place without a partner, at the place that stands in for one.
    fn single_to_serve(self) -> Option<usize> {
        let odd = (self.end - self.first) % 2 == 1;
        (odd && self.place == self.mid).then(|| self.mid - 1)
    }
}
