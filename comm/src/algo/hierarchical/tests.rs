//! Plans of two levels are right, and let no more cross between hosts than must.

use std::collections::BTreeSet;

use super::super::check::check;
use super::super::plan::Links;
use super::super::registry::Algorithm;
use super::super::select::{Spread, choose};
use super::super::{registry, sweep};
use super::*;
use crate::types::Pattern;

/// Hosts of many shapes: even and uneven, in runs and interleaved, one and as many as ranks.
fn spreads() -> Vec<Vec<u32>> {
    let mut spreads = vec![
        vec![0],
        vec![0, 0],
        vec![0, 1],
        vec![0, 0, 1],
        vec![0, 1, 1],
        vec![0, 1, 0, 1],
        vec![5, 5, 2, 2, 5],
        vec![0, 0, 0, 1, 1, 1],
        vec![0, 1, 2, 0, 1, 2, 0],
        vec![3, 3, 3, 3, 0, 0, 0, 0, 1, 1, 1, 1],
        vec![0, 0, 1, 1, 1, 1, 1, 1],
        vec![0, 1, 1, 1, 0, 2, 2],
        vec![0, 1, 1, 0],
        (0..8).map(|rank| rank / 4).collect(),
        (0..8).map(|rank| rank / 2).collect(),
        (0..17).map(|rank| rank % 3).collect(),
    ];
    spreads.extend((2..10).map(|n| (0..n).map(|rank| rank / 3).collect()));
    spreads
}

/// Blocks for everybody of these lengths; even ones by the name without `_v` too.
fn of_blocks(lengths: &[usize]) -> Vec<Problem> {
    let n = lengths.len();
    let mut problems = vec![
        Problem::all_gather_v(lengths).expect("legal"),
        Problem::reduce_scatter_v(lengths).expect("legal"),
    ];
    if lengths.iter().all(|len| *len == lengths[0]) {
        problems.push(Problem::all_gather(n, lengths[0]).expect("legal"));
        problems.push(Problem::reduce_scatter(n, lengths[0]).expect("legal"));
    }
    for root in [0, n / 2, n - 1] {
        problems.push(Problem::gather_v(lengths, root).expect("legal"));
        problems.push(Problem::scatter_v(lengths, root).expect("legal"));
    }
    problems
}

/// Problems of `n` ranks, with blocks that are packed and blocks that are not.
fn problems(n: usize) -> Vec<Problem> {
    let mut problems = vec![Problem::barrier(n).expect("legal")];
    for count in [0, 1, 2, 4 * n + 3, 10_000] {
        problems.push(Problem::all_to_all(n, count).expect("legal"));
        problems.push(Problem::all_reduce(n, count).expect("legal"));
        for root in 0..n {
            problems.push(Problem::reduce(n, count, root).expect("legal"));
            problems.push(Problem::broadcast(n, count, root).expect("legal"));
        }
    }
    for len in [0, 1, 1000, 2000] {
        problems.extend(of_blocks(&vec![len; n]));
        let growing: Vec<usize> = (0..n).map(|rank| rank * len).collect();
        problems.extend(of_blocks(&growing));
        let scattered: Vec<usize> = (0..n).map(|rank| rank * 7 % 5 * len).collect();
        problems.extend(of_blocks(&scattered));
    }
    problems
}

fn plans(problem: &Problem, in_place: bool) -> Vec<Plan> {
    let algorithm = find(problem.collective(), "hierarchical").expect("registered");
    algorithm.plans(problem, in_place).expect("plans")
}

#[test]
fn every_spread_over_hosts_is_proved_in_and_out_of_place() {
    for hosts in spreads() {
        for problem in problems(hosts.len()) {
            let problem = problem.with_hosts(hosts.clone().into());
            for in_place in [false, true] {
                let proof = check(&problem, &plans(&problem, in_place));
                assert!(proof.is_ok(), "{problem:?}: {proof:?}");
            }
        }
    }
}

/// The messages that cross between hosts by this algorithm, in elements.
fn crossing(problem: &Problem, algorithm: &Algorithm) -> Vec<usize> {
    let plans = algorithm.plans(problem, false).expect("plans");
    let mut sent = Vec::new();
    for (rank, plan) in plans.iter().enumerate() {
        for step in plan.rounds.iter().flat_map(|round| &round.steps) {
            if let Step::Send { to, src } = step
                && problem.host_of(*to) != problem.host_of(rank)
            {
                sent.push(src.len);
            }
        }
    }
    sent
}

/// Least number of elements that can leave hosts. Whatever a host needs comes in, and nothing comes twice; of a
/// sum, one vector of each host leaves it.
fn least_crossing(problem: &Problem, hosts: usize) -> usize {
    let n = problem.n();
    let is_far = |one: usize, other: usize| problem.host_of(one) != problem.host_of(other);
    match problem.pattern() {
        Pattern::AllReduce => 2 * (hosts - 1) * problem.in_len(0),
        Pattern::Broadcast => (hosts - 1) * problem.out_len(0),
        // Each block to every host but its own.
        Pattern::AllGather => (hosts - 1) * problem.out_len(0),
        Pattern::Reduce | Pattern::ReduceScatter => (hosts - 1) * problem.in_len(0),
        // Every block that is for another host.
        Pattern::AllToAll => {
            let matrix = problem.the_matrix();
            let from = |rank: usize| {
                let row = matrix.row(rank).into_iter().enumerate();
                let far = row.filter(move |(to, _)| is_far(rank, *to));
                far.map(|(_, count)| count).sum::<usize>()
            };
            (0..n).map(from).sum()
        }
        Pattern::Gather | Pattern::Scatter => {
            let root = problem.the_root();
            let far = (0..n).filter(|rank| is_far(root, *rank));
            far.map(|rank| problem.the_blocks().len(rank)).sum()
        }
        // In the order of ranks, from each to the next.
        Pattern::ExclusiveScan | Pattern::Scan => {
            let borders = (1..n).filter(|rank| is_far(rank - 1, *rank));
            borders.count() * problem.in_len(0)
        }
        // Every host hears of all others, over distances 1, 2, 4, ….
        Pattern::Barrier => hosts * hosts.next_power_of_two().ilog2() as usize,
    }
}

fn count_hosts(hosts: &[u32]) -> usize {
    hosts.iter().collect::<BTreeSet<_>>().len()
}

#[test]
fn no_element_more_than_needed_leaves_a_host() {
    for hosts in spreads() {
        for problem in problems(hosts.len()) {
            let problem = problem.with_hosts(hosts.clone().into());
            let algorithm = find(problem.collective(), "hierarchical").expect("registered");
            let sent: usize = crossing(&problem, algorithm).iter().sum();
            let least = least_crossing(&problem, count_hosts(&hosts));
            assert_eq!(sent, least, "{problem:?}");
        }
    }
}

#[test]
fn nor_by_what_the_built_in_rules_choose_for_any_collective_and_size() {
    let several = |hosts: &Vec<u32>| (2..hosts.len()).contains(&count_hosts(hosts));
    for hosts in spreads().into_iter().filter(several) {
        let n = hosts.len();
        let spread = Spread {
            n,
            hosts: count_hosts(&hosts),
            links: Links::Message,
        };
        for collective in registry::planned() {
            for problem in sweep::problems(collective, n).expect("legal") {
                let problem = problem.with_hosts(hosts.clone().into());
                let least = least_crossing(&problem, spread.hosts);
                for bytes in [0, 64, 64 << 10, 1 << 20, 1 << 30] {
                    let choice = choose(collective, bytes, spread).expect("a rule fits");
                    let sent: usize = crossing(&problem, choice.algorithm).iter().sum();
                    assert_eq!(sent, least, "{bytes} {} {problem:?}", choice.algorithm.name);
                }
            }
        }
    }
}

#[test]
fn small_calls_send_a_message_for_each_pair_of_hosts_or_for_each_host() {
    for hosts in spreads() {
        let (n, count) = (hosts.len(), count_hosts(&hosts));
        for (problem, messages) in [
            (Problem::all_to_all(n, 3), count * (count - 1)),
            (Problem::gather(n, 3, n - 1), count - 1),
            (Problem::scatter(n, 3, n / 2), count - 1),
        ] {
            let problem = problem.expect("legal").with_hosts(hosts.clone().into());
            let algorithm = find(problem.collective(), "hierarchical").expect("registered");
            let sent = crossing(&problem, algorithm).len();
            assert_eq!(sent, messages, "{problem:?}");
        }
    }
}
