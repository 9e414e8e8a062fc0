//! Algorithms over shared memory: every rank reads what it needs where it lies.
//!
//! No rank exposes what only it reads itself. That leaves it free to write there, which is what
//! makes the in-place forms right.

use super::builder::{Builder, input, of_peer, output, scratch};
use super::plan::{Plan, Span};
use super::problem::Problem;
use super::shape::Blocks;

/// The name of [`all_reduce`], whose results wait in staging for one round and are read in the next.
pub(crate) const ALL_REDUCE: &str = "direct";

/// `all_reduce`: each rank reduces its slice of all send buffers, then fetches the other slices.
pub(super) fn all_reduce(problem: &Problem, rank: usize) -> Plan {
    let n = problem.n();
    let slices = Blocks::even(problem.whole_count(), n);
    let mut plan = Builder::new();
    expose_all_but(&mut plan, &slices, rank);
    plan.end_round();

    let slice = |i: usize| (slices.start(i), slices.len(i));
    let (start, len) = slice(rank);
    plan.pull_reduce(from_everyone(n, input(start, len)), output(start, len));
    plan.expose(output(start, len));
    plan.end_round();

    for peer in others(n, rank) {
        let (start, len) = slice(peer);
        plan.pull(peer, output(start, len), output(start, len));
    }
    plan.end_round();
    plan.direct_plan(0, true)
}

/// `all_reduce` of few elements: each rank reduces everything itself. The send buffer is copied
/// first, so that the rank may overwrite it while others still read.
pub(super) fn all_reduce_small(problem: &Problem, _rank: usize) -> Plan {
    let (n, count) = (problem.n(), problem.whole_count());
    let mut plan = Builder::new();
    plan.copy(input(0, count), scratch(0, count));
    plan.expose(scratch(0, count));
    plan.end_round();
    plan.pull_reduce(from_everyone(n, scratch(0, count)), output(0, count));
    plan.end_round();
    plan.direct_plan(count, true)
}

/// `reduce`: the root reduces all send buffers.
pub(super) fn reduce(problem: &Problem, rank: usize) -> Plan {
    let (n, count, root) = (problem.n(), problem.whole_count(), problem.the_root());
    let mut plan = Builder::new();
    if rank != root {
        plan.expose(input(0, count));
    }
    plan.end_round();
    if rank == root {
        plan.pull_reduce(from_everyone(n, input(0, count)), output(0, count));
    }
    plan.end_round();
    plan.direct_plan(0, true)
}

/// `reduce` of many elements: each rank reduces its slice of all send buffers, the root fetches the
/// slices.
pub(super) fn reduce_sliced(problem: &Problem, rank: usize) -> Plan {
    let (n, root) = (problem.n(), problem.the_root());
    let slices = Blocks::even(problem.whole_count(), n);
    let mut plan = Builder::new();
    expose_all_but(&mut plan, &slices, rank);
    plan.end_round();

    let (start, len) = (slices.start(rank), slices.len(rank));
    let sum = if rank == root {
        output(start, len)
    } else {
        scratch(0, len)
    };
    plan.pull_reduce(from_everyone(n, input(start, len)), sum);
    if rank != root {
        plan.expose(sum);
    }
    plan.end_round();

    if rank == root {
        for peer in others(n, rank) {
            let len = slices.len(peer);
            plan.pull(peer, scratch(0, len), output(slices.start(peer), len));
        }
    }
    plan.end_round();
    plan.direct_plan(if rank == root { 0 } else { len }, true)
}

/// `reduce_scatter`, `_v`: each rank reduces its block of all send buffers.
pub(super) fn reduce_scatter(problem: &Problem, rank: usize) -> Plan {
    let blocks = problem.the_blocks();
    let mut plan = Builder::new();
    expose_all_but(&mut plan, blocks, rank);
    plan.end_round();
    let (start, len) = (blocks.start(rank), blocks.len(rank));
    plan.pull_reduce(
        from_everyone(problem.n(), input(start, len)),
        output(0, len),
    );
    plan.end_round();
    plan.direct_plan(0, true)
}

/// `all_gather`, `_v`: each rank fetches every block from its owner.
pub(super) fn all_gather(problem: &Problem, rank: usize) -> Plan {
    let blocks = problem.the_blocks();
    let mut plan = Builder::new();
    plan.expose(input(0, blocks.len(rank)));
    plan.end_round();
    collect(&mut plan, blocks, rank);
    plan.end_round();
    plan.direct_plan(0, true)
}

/// `gather`, `_v`: the root fetches every block from its owner.
pub(super) fn gather(problem: &Problem, rank: usize) -> Plan {
    let (blocks, root) = (problem.the_blocks(), problem.the_root());
    let mut plan = Builder::new();
    if rank != root {
        plan.expose(input(0, blocks.len(rank)));
    }
    plan.end_round();
    if rank == root {
        collect(&mut plan, blocks, rank);
    }
    plan.end_round();
    plan.direct_plan(0, true)
}

/// `scatter`, `_v`: each rank fetches its block from the root.
pub(super) fn scatter(problem: &Problem, rank: usize) -> Plan {
    let (blocks, root) = (problem.the_blocks(), problem.the_root());
    let mut plan = Builder::new();
    if rank == root {
        expose_all_but(&mut plan, blocks, rank);
    }
    plan.end_round();
    let (start, len) = (blocks.start(rank), blocks.len(rank));
    if rank == root {
        plan.copy(input(start, len), output(0, len));
    } else {
        plan.pull(root, input(start, len), output(0, len));
    }
    plan.end_round();
    plan.direct_plan(0, true)
}

/// `broadcast`: everyone fetches the buffer from the root.
pub(super) fn broadcast(problem: &Problem, rank: usize) -> Plan {
    let (count, root) = (problem.whole_count(), problem.the_root());
    let mut plan = Builder::new();
    if rank == root {
        plan.expose(output(0, count));
    }
    plan.end_round();
    if rank != root {
        plan.pull(root, output(0, count), output(0, count));
    }
    plan.end_round();
    plan.direct_plan(0, true)
}

/// `all_to_all`, `_v`: each rank fetches its block from every send buffer.
pub(super) fn all_to_all(problem: &Problem, rank: usize) -> Plan {
    let matrix = problem.the_matrix();
    let mut plan = Builder::new();
    let own = matrix.send_start(rank, rank);
    let own_end = matrix.send_start(rank, rank + 1);
    plan.expose(input(0, own));
    plan.expose(input(own_end, problem.in_len(rank) - own_end));
    plan.end_round();
    let mut start = 0;
    for (peer, len) in matrix.column(rank).into_iter().enumerate() {
        let src = input(matrix.send_start(peer, rank), len);
        if peer == rank {
            plan.copy(src, output(start, len));
        } else {
            plan.pull(peer, src, output(start, len));
        }
        start += len;
    }
    plan.end_round();
    plan.direct_plan(0, false)
}

/// `barrier`: the end of one empty round is a barrier.
pub(super) fn barrier(_problem: &Problem, _rank: usize) -> Plan {
    let mut plan = Builder::new();
    plan.end_round();
    plan.direct_plan(0, true)
}

/// Every rank's `span`, in ascending rank order.
fn from_everyone(n: usize, span: Span) -> Vec<super::plan::PeerSpan> {
    (0..n).map(|peer| of_peer(peer, span)).collect()
}

/// The other ranks, from the next one round the ring: so that not all read from one rank at once.
fn others(n: usize, rank: usize) -> impl Iterator<Item = usize> {
    (1..n).map(move |distance| (rank + distance) % n)
}

/// Exposes the send buffer without the rank's own block.
fn expose_all_but(plan: &mut Builder, blocks: &Blocks, rank: usize) {
    plan.expose(input(0, blocks.start(rank)));
    plan.expose(input(
        blocks.start(rank + 1),
        blocks.between(rank + 1, blocks.count()),
    ));
}

/// Fetches every block from the send buffer of its owner.
fn collect(plan: &mut Builder, blocks: &Blocks, rank: usize) {
    plan.copy(
        input(0, blocks.len(rank)),
        output(blocks.start(rank), blocks.len(rank)),
    );
    for peer in others(blocks.count(), rank) {
        let len = blocks.len(peer);
        plan.pull(peer, input(0, len), output(blocks.start(peer), len));
    }
}
