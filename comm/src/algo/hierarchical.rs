//! Two levels: within every host, between the hosts, and back.
//!
//! A plan is put together from plans of the other algorithms, each over a part of the ranks: the ranks of a host, or
//! one rank of every host. So only what has to crosses the network. Rounds stay aligned over all ranks: a
//! phase has as many as its longest part.

use super::builder::{input, output, scratch};
use super::plan::{Links, Plan, Round, Space, Span, Step};
use super::problem::Problem;
use super::registry::find;
use super::shape::Blocks;

/// `all_reduce`: within hosts each rank reduces a slice (or, where hosts are uneven, one rank everything), the ranks
/// with one slice reduce it between hosts, and give it to their host.
pub(super) fn all_reduce(problem: &Problem, rank: usize) -> Plan {
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
pub(super) fn reduce(problem: &Problem, rank: usize) -> Plan {
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
pub(super) fn broadcast(problem: &Problem, rank: usize) -> Plan {
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

/// The algorithm between hosts: as little data as the ring, in fewer rounds.
const BETWEEN: &str = "halving_doubling";
const TREE: &str = "binomial_tree";

/// The plan of one part of the ranks, right for buffers that are the same memory.
fn part(problem: Result<Problem, super::ProblemError>, algorithm: &str, me: usize) -> Plan {
    let problem = problem.expect("a part is no larger than the whole");
    find(problem.collective(), algorithm)
        .ok()
        .and_then(|found| found.plan(&problem, me, true).ok())
        .expect("a registered algorithm, which plans its own collective")
}

/// Which ranks share a host.
struct Hosts {
    /// The ranks of each host, ascending; hosts in the order of their first ranks.
    members: Vec<Vec<usize>>,
    /// Host and index there of each rank.
    places: Vec<(usize, usize)>,
}

impl Hosts {
    fn of(problem: &Problem) -> Self {
        let mut names: Vec<u32> = Vec::new();
        let mut members: Vec<Vec<usize>> = Vec::new();
        let mut places = Vec::with_capacity(problem.n());
        for rank in 0..problem.n() {
            let name = problem.host_of(rank);
            let host = names
                .iter()
                // Neighbours mostly share a host: the one that was named last.
                .rposition(|known| *known == name)
                .unwrap_or_else(|| {
                    names.push(name);
                    members.push(Vec::new());
                    names.len() - 1
                });
            places.push((host, members[host].len()));
            members[host].push(rank);
        }
        Self { members, places }
    }

    fn place_of(&self, rank: usize) -> (usize, usize) {
        self.places[rank]
    }

    /// Ranks of each host, where all have as many.
    fn even(&self) -> Option<usize> {
        let first = self.members[0].len();
        self.members
            .iter()
            .all(|members| members.len() == first)
            .then_some(first)
    }

    /// The rank that speaks for a host: the root for its own.
    fn leader(&self, host: usize, root: Option<usize>) -> usize {
        root.filter(|root| self.places[*root].0 == host)
            .unwrap_or(self.members[host][0])
    }

    fn leaders(&self, root: Option<usize>) -> Vec<usize> {
        (0..self.members.len())
            .map(|host| self.leader(host, root))
            .collect()
    }
}

/// A plan in the making, phase by phase.
#[derive(Default)]
struct Phases {
    rounds: Vec<Round>,
    /// Where the last phase begins.
    at: usize,
    scratch: usize,
}

impl Phases {
    /// A phase of one step of this rank's own.
    fn first(&mut self, step: Option<Step>) {
        self.open(1);
        self.rounds[self.at].steps.extend(step);
    }

    /// A phase of so many rounds.
    fn open(&mut self, rounds: usize) {
        self.at = self.rounds.len();
        self.rounds.resize_with(self.at + rounds, Round::default);
    }

    /// A phase with as many rounds as the plans of hosts of all sizes need.
    fn longest(&mut self, hosts: &Hosts, plan: impl Fn(usize) -> Plan) {
        let rounds = hosts
            .members
            .iter()
            .map(|members| plan(members.len()).rounds.len());
        let rounds = rounds.max().unwrap_or(0);
        self.open(rounds);
    }

    /// A phase in which all ranks have parts of equally many rounds.
    fn add(&mut self, part: Plan, members: &[usize], place: impl Fn(Span) -> Span) {
        self.open(part.rounds.len());
        self.fill(part, members, place);
    }

    /// This rank's part of the phase: `members` are the ranks of the part, `place` says where its spans lie.
    fn fill(&mut self, part: Plan, members: &[usize], place: impl Fn(Span) -> Span) {
        self.scratch = self.scratch.max(part.scratch);
        for (round, into) in part.rounds.into_iter().zip(&mut self.rounds[self.at..]) {
            let steps = round
                .steps
                .into_iter()
                .map(|step| moved(step, members, &place));
            // What lies where it is to go is no step.
            into.steps.extend(steps.filter(|step| !is_nothing(step)));
        }
    }

    fn plan(self) -> Plan {
        Plan {
            rounds: self.rounds,
            scratch: self.scratch,
            in_place: true,
            links: Links::Message,
            staged: false,
        }
    }
}

fn is_nothing(step: &Step) -> bool {
    matches!(step, Step::Copy { src, dst } if src == dst)
}

fn moved(step: Step, members: &[usize], place: &impl Fn(Span) -> Span) -> Step {
    match step {
        Step::Copy { src, dst } => Step::Copy {
            src: place(src),
            dst: place(dst),
        },
        Step::Reduce {
            src,
            dst,
            src_first,
        } => Step::Reduce {
            src: place(src),
            dst: place(dst),
            src_first,
        },
        Step::Send { to, src } => Step::Send {
            to: members[to],
            src: place(src),
        },
        Step::Recv { from, dst } => Step::Recv {
            from: members[from],
            dst: place(dst),
        },
        Step::RecvReduce {
            from,
            dst,
            recv_first,
        } => Step::RecvReduce {
            from: members[from],
            dst: place(dst),
            recv_first,
        },
        // Parts are plans for messages.
        direct @ (Step::Expose { .. } | Step::Pull { .. } | Step::PullReduce { .. }) => direct,
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::check;
    use super::*;
    use crate::types::Collective;

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
            (0..17).map(|rank| rank % 3).collect(),
        ];
        spreads.extend((2..10).map(|n| (0..n).map(|rank| rank / 3).collect()));
        spreads
    }

    #[test]
    fn every_spread_over_hosts_is_proved_in_and_out_of_place() {
        for hosts in spreads() {
            let n = hosts.len();
            for count in [0, 1, 2, n, 4 * n + 3] {
                let mut problems = vec![Problem::all_reduce(n, count).expect("legal")];
                for root in 0..n {
                    problems.push(Problem::reduce(n, count, root).expect("legal"));
                    problems.push(Problem::broadcast(n, count, root).expect("legal"));
                }
                for problem in problems {
                    let problem = problem.with_hosts(hosts.clone().into());
                    let algorithm = find(problem.collective(), "hierarchical").expect("registered");
                    for in_place in [false, true] {
                        let plans = algorithm.plans(&problem, in_place).expect("plans");
                        let proof = check(&problem, &plans);
                        assert!(proof.is_ok(), "{problem:?}: {proof:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn between_hosts_goes_no_more_than_the_hosts_exchange() {
        let hosts: Vec<u32> = (0..8).map(|rank| rank / 4).collect();
        let problem = Problem::all_reduce(8, 800).expect("legal");
        let problem = problem.with_hosts(hosts.clone().into());
        let algorithm = find(Collective::AllReduce, "hierarchical").expect("registered");
        let plans = algorithm.plans(&problem, false).expect("plans");
        let mut sent = 0;
        for (rank, plan) in plans.iter().enumerate() {
            for step in plan.rounds.iter().flat_map(|round| &round.steps) {
                if let Step::Send { to, src } = step
                    && hosts[*to] != hosts[rank]
                {
                    sent += src.len;
                }
            }
        }
        // Each of two hosts sends half of the vector's sums and half of its results.
        assert_eq!(sent, 2 * 800);
    }
}
