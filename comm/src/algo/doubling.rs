//! Recursive doubling and dissemination: whole vectors or tokens over distances 1, 2, 4, …
//!
//! Few rounds, much data: the algorithms for small messages.

use super::builder::{Builder, input, output, scratch};
use super::plan::Plan;
use super::problem::Problem;

/// `all_reduce`: pairs at distance 1, 2, 4, … exchange everything they have.
///
/// Where n is no power of two, neighbours at the front first become one: the odd rank hands its
/// vector to the even one below and gets the result in the end. So the ranks that remain stand in
/// ascending order, and the lower half of each exchange is the left operand.
pub(super) fn all_reduce(problem: &Problem, rank: usize) -> Plan {
    let (n, count) = (problem.n(), problem.whole_count());
    let core = Core::of(n);
    let mut plan = Builder::new();
    let place = core.place(rank);
    if place.is_some() {
        plan.copy(input(0, count), output(0, count));
    }
    plan.end_round();

    if core.folded > 0 {
        match place {
            None => plan.send(rank - 1, input(0, count)),
            Some(_) if core.has_folded(rank) => {
                plan.recv_reduce(rank + 1, output(0, count), false);
            }
            Some(_) => {}
        }
        plan.end_round();
    }

    let mut distance = 1;
    while distance < core.size {
        let exchange = place.map(|place| (place, core.rank_at(place ^ distance)));
        if let Some((_, peer)) = exchange {
            plan.send(peer, output(0, count));
            plan.recv(peer, scratch(0, count));
        }
        plan.end_round();
        if let Some((_, peer)) = exchange {
            plan.reduce(scratch(0, count), output(0, count), peer < rank);
        }
        plan.end_round();
        distance *= 2;
    }

    if core.folded > 0 {
        match place {
            None => plan.recv(rank - 1, output(0, count)),
            Some(_) if core.has_folded(rank) => plan.send(rank + 1, output(0, count)),
            Some(_) => {}
        }
        plan.end_round();
    }
    plan.message_plan(if place.is_some() { count } else { 0 }, true)
}

/// `barrier`: a token to the rank 1, 2, 4, … places on; after the last round each rank has heard,
/// through others, from all.
pub(super) fn barrier(problem: &Problem, rank: usize) -> Plan {
    let n = problem.n();
    let mut plan = Builder::new();
    let mut distance = 1;
    while distance < n {
        plan.send((rank + distance) % n, scratch(0, 1));
        plan.recv((rank + n - distance) % n, scratch(1, 1));
        plan.end_round();
        distance *= 2;
    }
    plan.message_plan(2, true)
}

/// The ranks that take part in the doubling: a power of two.
#[derive(Clone, Copy, Debug)]
struct Core {
    /// Ranks that take part.
    size: usize,
    /// Ranks that are folded into the one below them: the odd ones below twice this number.
    folded: usize,
}

impl Core {
    fn of(n: usize) -> Self {
        let size = 1 << n.ilog2();
        Self {
            size,
            folded: n - size,
        }
    }

    /// The place of `rank` among those that take part.
    fn place(self, rank: usize) -> Option<usize> {
        if rank >= 2 * self.folded {
            Some(rank - self.folded)
        } else if rank.is_multiple_of(2) {
            Some(rank / 2)
        } else {
            None
        }
    }

    fn rank_at(self, place: usize) -> usize {
        if place < self.folded {
            2 * place
        } else {
            place + self.folded
        }
    }

    /// Whether the rank above is folded into `rank`, which takes part.
    fn has_folded(self, rank: usize) -> bool {
        rank < 2 * self.folded
    }
}
