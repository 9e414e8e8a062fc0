//! Collectives of vectors: `all_reduce`, `reduce`, `broadcast`.

use super::super::builder::{input, output, scratch};
use super::super::plan::{Plan, Space, Span, Step};
use super::super::problem::Problem;
use super::super::shape::Blocks;
use super::{BETWEEN, Hosts, Phases, TREE, part};

/// `all_reduce`: within hosts each rank reduces a slice (or, where hosts are uneven, one rank everything), the ranks
/// with one slice reduce it between hosts, and give it to their host.
pub(in crate::algo) fn all_reduce(problem: &Problem, rank: usize) -> Plan {
    let hosts = Hosts::of(problem);
    match hosts.even() {
        Some(_) => all_reduce_sliced(problem, &hosts, rank),
        None => all_reduce_led(problem, &hosts, rank),
    }
}

fn all_reduce_sliced(problem: &Problem, hosts: &Hosts, rank: usize) -> Plan {
    let count = problem.whole_count();
    let (host, place) = hosts.place_of(rank);
    let near = &hosts.members[host];
    let slices = Blocks::even(count, near.len());
    let lens: Vec<usize> = (0..near.len()).map(|slice| slices.len(slice)).collect();
    let (start, len) = (slices.start(place), slices.len(place));
    let whole = |span: Span| match span.space {
        Space::In => output(span.start, span.len),
        Space::Out => output(start + span.start, span.len),
        Space::Scratch => span,
    };
    let mut phases = Phases::default();
    let given = Step::Copy {
        src: input(0, count),
        dst: output(0, count),
    };
    phases.first((count > 0).then_some(given));
    let scattered = part(Problem::reduce_scatter_v(&lens), "ring", place);
    phases.add(scattered, near, whole);
    let far: Vec<usize> = hosts.members.iter().map(|members| members[place]).collect();
    let own = |span: Span| match span.space {
        Space::In | Space::Out => output(start + span.start, span.len),
        Space::Scratch => span,
    };
    let between = part(Problem::all_reduce(far.len(), len), BETWEEN, host);
    phases.add(between, &far, own);
    let back = |span: Span| match span.space {
        Space::In => output(start + span.start, span.len),
        Space::Out | Space::Scratch => span,
    };
    let gathered = part(Problem::all_gather_v(&lens), "ring", place);
    phases.add(gathered, near, back);
    phases.plan()
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
