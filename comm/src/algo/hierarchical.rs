//! Two levels: within every host, between the hosts, and back.
//!
//! A plan is put together from plans of the other algorithms, each over a part of the ranks: the ranks of a host, or
//! one rank of every host. So only what has to crosses the network. Rounds stay aligned over all ranks: a
//! phase has as many as its longest part.

mod blocks;
mod exchange;
mod rooted;
mod vectors;

pub(super) use blocks::{all_gather, reduce_scatter};
pub(super) use exchange::all_to_all;
pub(super) use rooted::{gather, scatter};
pub(super) use vectors::{all_reduce, barrier, broadcast, reduce};

use super::halving::Team;
use super::plan::{Links, Plan, Round, Span, Step};
use super::problem::Problem;
use super::registry::find;
use super::shape::Blocks;

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

    /// Whether all hosts have equally many ranks.
    fn is_even(&self) -> bool {
        let first = self.members[0].len();
        self.members.iter().all(|members| members.len() == first)
    }

    fn count(&self) -> usize {
        self.members.len()
    }

    /// The host so many places on.
    fn after(&self, host: usize, distance: usize) -> usize {
        (host + distance) % self.count()
    }

    /// Most ranks of a host.
    fn largest(&self) -> usize {
        self.most_rounds(|ranks| ranks)
    }

    /// Most rounds that the ranks of any host need, as a function of their number.
    fn most_rounds(&self, rounds: fn(usize) -> usize) -> usize {
        let all = self.members.iter().map(|members| rounds(members.len()));
        all.max().unwrap_or(0)
    }

    /// The ranks of a host.
    fn near(&self, host: usize) -> Team {
        Team::of(&self.members[host])
    }

    /// The ranks of one place, where all hosts have one.
    fn rail(&self, place: usize) -> Team {
        let ranks: Vec<usize> = self.members.iter().map(|members| members[place]).collect();
        Team::of(&ranks)
    }

    /// The ranks of `host` that carry the block of `rank`, each a part that begins and is as long as said. On its own
    /// host the rank does.
    fn carriers(
        &self,
        blocks: &Blocks,
        rank: usize,
        host: usize,
    ) -> impl Iterator<Item = (usize, usize, usize)> + '_ {
        let (own_host, place) = self.place_of(rank);
        let (theirs, ours) = (self.members[own_host].len(), &self.members[host]);
        let places = (place % ours.len()..ours.len()).step_by(theirs);
        let parts = Blocks::even(blocks.len(rank), places.len());
        places
            .enumerate()
            .map(move |(part, place)| (ours[place], parts.start(part), parts.len(part)))
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
mod tests;
