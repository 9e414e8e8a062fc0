//! Collectives of vectors: `all_reduce`, `reduce`, `broadcast`; and the barrier.

use super::super::builder::{Builder, input, output, scratch};
use super::super::halving::{self, Team};
use super::super::plan::{Plan, Space, Span};
use super::super::problem::Problem;
use super::super::shape::Blocks;
use super::{BETWEEN, Hosts, Phases, TREE, part};

/// `all_reduce`: within hosts each rank reduces a slice (or, where there is little or hosts are uneven, one rank
/// everything), the ranks with one slice reduce it between hosts, and give it to their host.
pub(in crate::algo) fn all_reduce(problem: &Problem, rank: usize) -> Plan {
    let hosts = Hosts::of(problem);
    if problem.whole_count() * hosts.largest() <= SMALL {
        all_reduce_small(problem, &hosts, rank)
    } else if hosts.is_even() {
        all_reduce_sliced(problem, &hosts, rank)
    } else {
        all_reduce_led(problem, &hosts, rank)
    }
}

/// Most elements that one rank reduces for its whole host.
const SMALL: usize = 8192;

/// One rank of each host reduces everything: more work for it, but a message passes each host only twice.
fn all_reduce_small(problem: &Problem, hosts: &Hosts, rank: usize) -> Plan {
    let count = problem.whole_count();
    let (host, place) = hosts.place_of(rank);
    let near = &hosts.members[host];
    let (leader, all) = (near[0], output(0, count));
    let mut plan = Builder::new();
    if rank == leader {
        plan.copy(input(0, count), all);
    }
    plan.end_round();
    // The others send at once; their sums are taken in the order of ranks.
    for other in 1..hosts.largest() {
        if rank == leader && other < near.len() {
            plan.recv_reduce(near[other], all, false);
        } else if other == place {
            plan.send(leader, input(0, count));
        }
        plan.end_round();
    }
    let leaders = hosts.leaders(None);
    if let [one, other] = leaders[..] {
        let far = if host == 0 { other } else { one };
        if rank == leader {
            plan.send(far, all);
            plan.recv(far, scratch(0, count));
        }
        plan.end_round();
        if rank == leader {
            plan.reduce(scratch(0, count), all, host == 1);
        }
        plan.end_round();
    } else {
        let between =
            halving::scatter_rounds(leaders.len()) + halving::gather_rounds(leaders.len());
        let ended = plan.rounds() + between;
        let parts = Blocks::even(count, leaders.len());
        let parts_of =
            |first: usize, end: usize| vec![output(parts.start(first), parts.between(first, end))];
        if rank == leader {
            let team = Team::of(&leaders);
            halving::scatter(&mut plan, &team, host, parts_of);
            halving::gather(&mut plan, &team, host, parts_of);
        }
        plan.end_rounds_up_to(ended);
    }
    if rank == leader {
        near[1..].iter().for_each(|other| plan.send(*other, all));
    } else {
        plan.recv(leader, all);
    }
    plan.end_round();
    plan.message_plan(count, true)
}

fn all_reduce_sliced(problem: &Problem, hosts: &Hosts, rank: usize) -> Plan {
    let count = problem.whole_count();
    let (host, place) = hosts.place_of(rank);
    let (near, rail) = (hosts.near(host), hosts.rail(place));
    let slices = Blocks::even(count, hosts.members[host].len());
    let slices_of = |first: usize, end: usize| {
        let run = output(slices.start(first), slices.between(first, end));
        vec![run]
    };
    // Between hosts the own slice is cut again.
    let parts = Blocks::even(slices.len(place), hosts.count());
    let parts_of = |first: usize, end: usize| {
        let start = slices.start(place) + parts.start(first);
        vec![output(start, parts.between(first, end))]
    };
    let mut plan = Builder::new();
    plan.copy(input(0, count), output(0, count));
    plan.end_round();
    halving::scatter(&mut plan, &near, place, slices_of);
    halving::scatter(&mut plan, &rail, host, parts_of);
    halving::gather(&mut plan, &rail, host, parts_of);
    halving::gather(&mut plan, &near, place, slices_of);
    plan.message_plan(0, true)
}

fn all_reduce_led(problem: &Problem, hosts: &Hosts, rank: usize) -> Plan {
    let count = problem.whole_count();
    let (host, place) = hosts.place_of(rank);
    let near = &hosts.members[host];
    let mut phases = Phases::default();
    phases.longest(hosts, |m| part(Problem::reduce(m, count, 0), TREE, 0));
    phases.fill(
        part(Problem::reduce(near.len(), count, 0), TREE, place),
        near,
        |span| span,
    );
    let leaders = hosts.leaders(None);
    let between = |host| part(Problem::all_reduce(leaders.len(), count), BETWEEN, host);
    phases.open(between(0).rounds.len());
    if place == 0 {
        let sum = |span: Span| match span.space {
            Space::In | Space::Out => output(span.start, span.len),
            Space::Scratch => span,
        };
        phases.fill(between(host), &leaders, sum);
    }
    phases.longest(hosts, |m| part(Problem::broadcast(m, count, 0), TREE, 0));
    phases.fill(
        part(Problem::broadcast(near.len(), count, 0), TREE, place),
        near,
        |span| span,
    );
    phases.plan()
}

/// `reduce`: within hosts to one rank of each, and between hosts to the root.
pub(in crate::algo) fn reduce(problem: &Problem, rank: usize) -> Plan {
    let (count, root) = (problem.whole_count(), problem.the_root());
    let hosts = Hosts::of(problem);
    let (host, place) = hosts.place_of(rank);
    let near = &hosts.members[host];
    let led_by = |host: usize| {
        let leader = hosts.leader(host, Some(root));
        hosts.place_of(leader).1
    };
    let leaders = hosts.leaders(Some(root));
    // Behind the scratch of the parts, which need no more than one vector.
    let sum = move |span: Span| {
        if rank == root {
            output(span.start, span.len)
        } else {
            scratch(count + span.start, span.len)
        }
    };
    let mut phases = Phases::default();
    phases.longest(&hosts, |m| part(Problem::reduce(m, count, 0), TREE, 0));
    let within = part(
        Problem::reduce(near.len(), count, led_by(host)),
        TREE,
        place,
    );
    phases.fill(within, near, |span| match span.space {
        Space::Out => sum(span),
        Space::In | Space::Scratch => span,
    });
    let (root_host, _) = hosts.place_of(root);
    let between = |host| part(Problem::reduce(leaders.len(), count, root_host), TREE, host);
    phases.open(between(root_host).rounds.len());
    if leaders[host] == rank {
        phases.fill(between(host), &leaders, |span| match span.space {
            Space::In | Space::Out => sum(span),
            Space::Scratch => span,
        });
        if rank != root {
            phases.scratch = phases.scratch.max(2 * count);
        }
    }
    phases.plan()
}

/// `broadcast`: from the root to one rank of each host, and on from these.
pub(in crate::algo) fn broadcast(problem: &Problem, rank: usize) -> Plan {
    let (count, root) = (problem.whole_count(), problem.the_root());
    let hosts = Hosts::of(problem);
    let (host, place) = hosts.place_of(rank);
    let near = &hosts.members[host];
    let leaders = hosts.leaders(Some(root));
    let (root_host, _) = hosts.place_of(root);
    let mut phases = Phases::default();
    let between = |host| {
        part(
            Problem::broadcast(leaders.len(), count, root_host),
            TREE,
            host,
        )
    };
    phases.open(between(root_host).rounds.len());
    if leaders[host] == rank {
        phases.fill(between(host), &leaders, |span| span);
    }
    let (_, leader) = hosts.place_of(leaders[host]);
    phases.longest(&hosts, |m| part(Problem::broadcast(m, count, 0), TREE, 0));
    phases.fill(
        part(Problem::broadcast(near.len(), count, leader), TREE, place),
        near,
        |span| span,
    );
    phases.plan()
}

/// `barrier`: one rank of each host hears from the others of it, hears of the other hosts, and tells them.
pub(in crate::algo) fn barrier(problem: &Problem, rank: usize) -> Plan {
    let hosts = Hosts::of(problem);
    let (host, _) = hosts.place_of(rank);
    let (leader, near) = (hosts.leader(host, None), &hosts.members[host]);
    let others = || near.iter().copied().filter(|other| *other != leader);
    let token = scratch(0, 1);
    let mut plan = Builder::new();
    if rank == leader {
        for (place, other) in others().enumerate() {
            plan.recv(other, scratch(1 + place, 1));
        }
    } else {
        plan.send(leader, token);
    }
    plan.end_round();
    let mut distance = 1;
    while distance < hosts.count() {
        if rank == leader {
            let back = hosts.after(host, hosts.count() - distance);
            plan.send(hosts.leader(hosts.after(host, distance), None), token);
            plan.recv(hosts.leader(back, None), scratch(1, 1));
        }
        plan.end_round();
        distance *= 2;
    }
    if rank == leader {
        others().for_each(|other| plan.send(other, token));
    } else {
        plan.recv(leader, scratch(1, 1));
    }
    plan.end_round();
    plan.message_plan(1 + near.len(), true)
}
