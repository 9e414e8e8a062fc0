//! Pairwise and linear algorithms: every rank talks to every other one, without detours.
//!
//! Least data, most rounds; nothing is forwarded, so uneven blocks cost only those who have them.

use super::builder::{Builder, input, output};
use super::plan::Plan;
use super::problem::Problem;

/// `all_to_all`, `_v`: in round k each rank sends k places on and receives from k places back.
pub(super) fn all_to_all(problem: &Problem, rank: usize) -> Plan {
    let (n, matrix) = (problem.n(), problem.the_matrix());
    let sends = starts(&matrix.row(rank));
    let recvs = starts(&matrix.column(rank));
    let block = |starts: &[usize], i: usize| (starts[i], starts[i + 1] - starts[i]);
    let mut plan = Builder::new();
    let (start, len) = block(&sends, rank);
    plan.copy(input(start, len), output(recvs[rank], len));
    for distance in 1..n {
        let (to, from) = ((rank + distance) % n, (rank + n - distance) % n);
        let (start, len) = block(&sends, to);
        plan.send(to, input(start, len));
        let (start, len) = block(&recvs, from);
        plan.recv(from, output(start, len));
        plan.end_round();
    }
    plan.message_plan(0, false)
}

/// `all_gather`, `_v`: every rank sends its block to every other rank.
pub(super) fn all_gather(problem: &Problem, rank: usize) -> Plan {
    let (n, blocks) = (problem.n(), problem.the_blocks());
    let own = input(0, blocks.len(rank));
    let mut plan = Builder::new();
    plan.copy(own, output(blocks.start(rank), own.len));
    for distance in 1..n {
        let (to, from) = ((rank + distance) % n, (rank + n - distance) % n);
        plan.send(to, own);
        plan.recv(from, output(blocks.start(from), blocks.len(from)));
        plan.end_round();
    }
    plan.message_plan(0, true)
}

/// `reduce_scatter`, `_v`: every rank sends each block to its owner, who adds them up.
pub(super) fn reduce_scatter(problem: &Problem, rank: usize) -> Plan {
    let (n, blocks) = (problem.n(), problem.the_blocks());
    let own = output(0, blocks.len(rank));
    let mut plan = Builder::new();
    plan.copy(input(blocks.start(rank), own.len), own);
    plan.end_round();
    for distance in 1..n {
        let (to, from) = ((rank + distance) % n, (rank + n - distance) % n);
        plan.send(to, input(blocks.start(to), blocks.len(to)));
        plan.recv_reduce(from, own, from < rank);
        plan.end_round();
    }
    plan.message_plan(0, true)
}

/// `gather`, `_v`: every rank sends its block to the root.
pub(super) fn gather(problem: &Problem, rank: usize) -> Plan {
    let (blocks, root) = (problem.the_blocks(), problem.the_root());
    let own = input(0, blocks.len(rank));
    let mut plan = Builder::new();
    if rank == root {
        plan.copy(own, output(blocks.start(rank), own.len));
        for from in (0..problem.n()).filter(|from| *from != root) {
            plan.recv(from, output(blocks.start(from), blocks.len(from)));
        }
    } else {
        plan.send(root, own);
    }
    plan.end_round();
    plan.message_plan(0, true)
}

/// `scatter`, `_v`: the root sends each rank its block.
pub(super) fn scatter(problem: &Problem, rank: usize) -> Plan {
    let (blocks, root) = (problem.the_blocks(), problem.the_root());
    let own = output(0, blocks.len(rank));
    let mut plan = Builder::new();
    if rank == root {
        plan.copy(input(blocks.start(rank), own.len), own);
        for to in (0..problem.n()).filter(|to| *to != root) {
            plan.send(to, input(blocks.start(to), blocks.len(to)));
        }
    } else {
        plan.recv(root, own);
    }
    plan.end_round();
    plan.message_plan(0, true)
}

/// Where each of consecutive blocks starts, and where the last one ends.
fn starts(lengths: &[usize]) -> Vec<usize> {
    let mut end = 0;
    let mut starts = vec![0];
    for len in lengths {
        end += len;
        starts.push(end);
    }
    starts
}
