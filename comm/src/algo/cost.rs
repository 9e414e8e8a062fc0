//! What plans cost: counted exactly, and predicted in time by a simple model.
//!
//! [`Cost`] counts rounds, messages and elements. [`predict`] puts times to them: a message takes
//! a latency and its bytes over a bandwidth (the alpha-beta model), with a pair of figures for each
//! level of links: within a host, between hosts, and more; each rank sends one byte at a time and
//! receives one byte at a time; a message passes when both ends are in its round. So ranks wait
//! for each other exactly as PLAN-2 and PLAN-3 let them. Reading a peer's memory takes its bytes
//! only: what a message waits for, the barrier between rounds has waited for already.
//!
//! The model knows no congestion and no protocol. It ranks algorithms and shows how they grow; it
//! does not replace a measurement.

use std::convert::Infallible;

use super::plan::{Links, Plan, Round, Step};
use super::problem::Problem;
use super::registry::{Algorithm, PlanError};
use super::schedule::{self, At, Matching, Observer};

/// What the plans of all ranks add up to. "Most" is over ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Rounds in which any rank sends, or reads from a peer.
    pub rounds: usize,
    /// Barriers between and after rounds; only direct plans have some.
    pub barriers: usize,
    /// Most messages that one rank sends.
    pub messages_most: usize,
    /// Most elements that one rank sends.
    pub sent_most: usize,
    /// Elements that all ranks send.
    pub sent_total: usize,
    /// Most elements that one rank reads from its peers' memory.
    pub pulled_most: usize,
    /// Elements that all ranks read from their peers' memory.
    pub pulled_total: usize,
    /// Most elements that one rank combines with others.
    pub reduced_most: usize,
    /// Most elements that one rank copies within its own memory.
    pub copied_most: usize,
    /// Most elements of scratch that one rank needs.
    pub scratch_most: usize,
}

impl Cost {
    /// Counts the plans of all ranks.
    #[must_use]
    pub fn of(plans: &[Plan]) -> Self {
        let mut cost = Self::default();
        let longest = plans.iter().map(|plan| plan.rounds.len()).max();
        cost.rounds = (0..longest.unwrap_or(0))
            .filter(|round| {
                let steps = plans.iter().filter_map(|plan| plan.rounds.get(*round));
                steps.flat_map(|round| &round.steps).any(moves_data)
            })
            .count();
        for plan in plans {
            let of_plan = Tally::of_plan(plan);
            if plan.links == Links::Direct {
                cost.barriers = cost.barriers.max(plan.rounds.len());
            }
            cost.messages_most = cost.messages_most.max(of_plan.messages);
            cost.sent_most = cost.sent_most.max(of_plan.sent);
            cost.sent_total += of_plan.sent;
            cost.pulled_most = cost.pulled_most.max(of_plan.pulled);
            cost.pulled_total += of_plan.pulled;
            cost.reduced_most = cost.reduced_most.max(of_plan.reduced);
            cost.copied_most = cost.copied_most.max(of_plan.copied);
            cost.scratch_most = cost.scratch_most.max(plan.scratch);
        }
        cost
    }
}

/// Whether a step moves data between ranks.
fn moves_data(step: &Step) -> bool {
    match step {
        Step::Send { .. } | Step::Pull { .. } | Step::PullReduce { .. } => true,
        Step::Copy { .. }
        | Step::Expose { .. }
        | Step::Recv { .. }
        | Step::RecvReduce { .. }
        | Step::Reduce { .. } => false,
    }
}

/// What one rank does, in elements.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    messages: usize,
    sent: usize,
    pulled: usize,
    reduced: usize,
    copied: usize,
}

impl Tally {
    fn of_plan(plan: &Plan) -> Self {
        let mut tally = Self::default();
        for step in plan.rounds.iter().flat_map(|round| &round.steps) {
            tally.add(step);
        }
        tally
    }

    fn add(&mut self, step: &Step) {
        match step {
            Step::Copy { src, .. } => self.copied += src.len,
            Step::Reduce { src, .. } => self.reduced += src.len,
            Step::Send { src, .. } => {
                self.messages += 1;
                self.sent += src.len;
            }
            Step::RecvReduce { dst, .. } => self.reduced += dst.len,
            Step::Pull { src, .. } => self.pulled += src.span.len,
            // One source lies in the rank's own memory.
            Step::PullReduce { srcs, dst } => {
                self.pulled += (srcs.len() - 1) * dst.len;
                self.reduced += (srcs.len() - 1) * dst.len;
            }
            Step::Recv { .. } | Step::Expose { .. } => {}
        }
    }
}

/// Links between ranks of one part of a machine: of a host, of a pod of hosts, of the whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    /// What the links are called.
    pub name: String,
    /// Ranks of the part, neighbours in rank order; none for all ranks there are.
    pub ranks: Option<usize>,
    /// Time that a message takes however short it is, in seconds.
    pub latency_s: f64,
    /// Bandwidth of one rank, each way, in bytes per second; infinite where nothing is known of it.
    pub bytes_per_s: f64,
    /// Bandwidth between two ranks, in bytes per second, where a rank's links lead to different peers.
    pub pair_bytes_per_s: f64,
}

impl Level {
    /// Links whose whole bandwidth two ranks can use.
    #[must_use]
    pub fn new(name: &str, ranks: Option<usize>, latency_s: f64, bytes_per_s: f64) -> Self {
        Self {
            name: name.to_owned(),
            ranks,
            latency_s,
            bytes_per_s,
            pair_bytes_per_s: f64::INFINITY,
        }
    }

    /// A message alone.
    fn alone_seconds(&self, bytes: f64) -> f64 {
        self.latency_s + bytes / self.bytes_per_s.min(self.pair_bytes_per_s)
    }
}

/// Parts of a machine with equally many ranks each, in rank order, one in the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    /// The links, from within a host outwards. Two ranks use the first level that has both in one part.
    pub levels: Vec<Level>,
    /// A barrier of a host's ranks, in seconds.
    pub barrier_s: f64,
    /// Copying or combining within a rank, in bytes per second.
    pub memory_bytes_per_s: f64,
}

impl Default for Topology {
    /// Round figures, not measurements: hosts of 8 ranks with a 200 Gbit/s port each, and shared
    /// memory inside.
    fn default() -> Self {
        Self {
            levels: vec![
                Level::new("host", Some(8), 1e-6, 8e9),
                Level::new("network", None, 5e-6, 25e9),
            ],
            barrier_s: 2e-6,
            memory_bytes_per_s: 10e9,
        }
    }
}

impl Topology {
    /// Ranks of one host.
    #[must_use]
    pub fn ranks_per_host(&self) -> usize {
        let inner = self.levels.first().and_then(|level| level.ranks);
        inner.unwrap_or(usize::MAX)
    }

    fn link(&self, a: usize, b: usize) -> &Level {
        let has_both = |level: &&Level| level.ranks.is_none_or(|ranks| a / ranks == b / ranks);
        let found = self
            .levels
            .iter()
            .find(has_both)
            .or_else(|| self.levels.last());
        found.expect("a topology has a level")
    }
}

/// A predicted time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// From the call to the last rank's return, in seconds.
    pub seconds: f64,
    /// Whether the plans of all ranks were looked at. Of large groups, the plans of a few ranks
    /// are, as if their peers never kept them waiting. That is within 5 % where the number of ranks is a power
    /// of two and hosts are full; elsewhere, and for scans, it is only a lower bound.
    pub all_ranks: bool,
}

/// Most ranks whose plans are all looked at for a prediction.
pub const ALL_RANKS_MAX: usize = 256;

/// How long `algorithm` takes for `problem` with elements of `element_bytes` bytes.
///
/// # Errors
/// [`PlanError`] where there are no plans.
pub fn predict(
    algorithm: &Algorithm,
    problem: &Problem,
    element_bytes: usize,
    topology: &Topology,
) -> Result<Prediction, PlanError> {
    Ok(Plans::of(algorithm, problem)?.predict(element_bytes as f64, topology))
}

/// Plans that can be priced again and again, for elements of any size and for any topology.
#[derive(Debug)]
pub struct Plans {
    /// The ranks that are looked at.
    ranks: Vec<usize>,
    plans: Vec<Plan>,
    /// Which messages meet, where the plans of all ranks are there.
    matching: Option<Matching>,
}

impl Plans {
    /// The plans of all ranks or, of large groups, of a few.
    ///
    /// # Errors
    /// [`PlanError`] where there are no plans.
    pub fn of(algorithm: &Algorithm, problem: &Problem) -> Result<Self, PlanError> {
        let n = problem.n();
        if n <= ALL_RANKS_MAX {
            let plans = algorithm.plans(problem, false)?;
            if let Ok(matching) = Matching::of(&plans) {
                return Ok(Self {
                    ranks: (0..n).collect(),
                    matching: Some(matching),
                    plans,
                });
            }
        }
        Self::of_few(algorithm, problem)
    }

    /// The plans of the root, of the first rank, of one in the middle and of the last.
    fn of_few(algorithm: &Algorithm, problem: &Problem) -> Result<Self, PlanError> {
        let n = problem.n();
        let mut ranks = vec![problem.root().unwrap_or(0), 0, n / 2, n - 1];
        ranks.sort_unstable();
        ranks.dedup();
        let plan = |rank: &usize| algorithm.plan(problem, *rank, false);
        Ok(Self {
            plans: ranks.iter().map(plan).collect::<Result<_, _>>()?,
            ranks,
            matching: None,
        })
    }

    /// How long they take with elements of `element_bytes` bytes, which may be parts of a byte: blocks of
    /// equal size are no longer counted in whole elements then.
    #[must_use]
    pub fn predict(&self, element_bytes: f64, topology: &Topology) -> Prediction {
        let together = self.matching.as_ref().and_then(|matching| {
            let mut times = Times::new(&self.plans, element_bytes, topology);
            schedule::run(&self.plans, matching, &mut times).ok()?;
            Some(times.start.into_iter().fold(0.0, f64::max))
        });
        let alone = |(plan, rank): (&Plan, &usize)| alone(plan, *rank, element_bytes, topology);
        let each = || self.plans.iter().zip(&self.ranks).map(alone);
        Prediction {
            seconds: together.unwrap_or_else(|| each().fold(0.0, f64::max)),
            all_ranks: together.is_some(),
        }
    }

    /// What bounds the time: the term without which it would be shortest. Either the latency of all messages,
    /// the bandwidth of one level, a rank's own memory, or the barriers.
    #[must_use]
    pub fn bound(&self, element_bytes: f64, topology: &Topology) -> String {
        let without = |name: &str, change: &dyn Fn(&mut Topology)| {
            let mut other = topology.clone();
            change(&mut other);
            (self.predict(element_bytes, &other).seconds, name.to_owned())
        };
        let mut terms = vec![
            without("latency", &|other| {
                other
                    .levels
                    .iter_mut()
                    .for_each(|level| level.latency_s = 0.0);
            }),
            without("memory", &|other| other.memory_bytes_per_s = f64::INFINITY),
            without("barrier", &|other| other.barrier_s = 0.0),
        ];
        for (place, level) in topology.levels.iter().enumerate() {
            terms.push(without(&level.name, &|other| {
                other.levels[place].bytes_per_s = f64::INFINITY;
                other.levels[place].pair_bytes_per_s = f64::INFINITY;
            }));
        }
        let least = terms.into_iter().min_by(|one, two| one.0.total_cmp(&two.0));
        least.map_or_else(String::new, |(_, name)| name)
    }
}

/// The time of one rank whose peers are always ready.
fn alone(plan: &Plan, rank: usize, element_bytes: f64, topology: &Topology) -> f64 {
    let barrier = match plan.links {
        Links::Direct => topology.barrier_s,
        Links::Message => 0.0,
    };
    plan.rounds
        .iter()
        .map(|round| round_seconds(round, rank, element_bytes, topology) + barrier)
        .sum()
}

/// One way of a rank's port: messages one after the other, but none faster than a pair of ranks is.
#[derive(Clone, Copy, Debug, Default)]
struct Way {
    sum: f64,
    slowest: f64,
}

impl Way {
    fn add(&mut self, level: &Level, latency_s: f64, bytes: f64) {
        self.sum += latency_s + bytes / level.bytes_per_s;
        let pair = latency_s + bytes / level.pair_bytes_per_s;
        self.slowest = self.slowest.max(pair);
    }

    fn seconds(self) -> f64 {
        self.sum.max(self.slowest)
    }
}

/// What a round takes on a rank that waits for nobody: its own memory, then its port, which sends
/// and receives at the same time.
fn round_seconds(round: &Round, rank: usize, element_bytes: f64, topology: &Topology) -> f64 {
    let (mut memory, mut out, mut inward) = (0.0, Way::default(), Way::default());
    let bytes = |len: usize| len as f64 * element_bytes;
    let message = |way: &mut Way, peer: usize, len: usize| {
        let level = topology.link(rank, peer);
        way.add(level, level.latency_s, bytes(len));
    };
    // What a read waits for, the barrier before it has waited for.
    let read = |way: &mut Way, peer, len| way.add(topology.link(rank, peer), 0.0, bytes(len));
    for step in &round.steps {
        match step {
            Step::Copy { src, .. } | Step::Reduce { src, .. } => {
                memory += bytes(src.len) / topology.memory_bytes_per_s;
            }
            Step::Send { to, src } => message(&mut out, *to, src.len),
            Step::Recv { from, dst } => message(&mut inward, *from, dst.len),
            Step::RecvReduce { from, dst, .. } => {
                message(&mut inward, *from, dst.len);
                memory += bytes(dst.len) / topology.memory_bytes_per_s;
            }
            Step::Pull { src, .. } => read(&mut inward, src.peer, src.span.len),
            Step::PullReduce { srcs, dst } => {
                for src in srcs.iter().filter(|src| src.peer != rank) {
                    read(&mut inward, src.peer, dst.len);
                }
                memory += bytes(dst.len) / topology.memory_bytes_per_s;
            }
            Step::Expose { .. } => {}
        }
    }
    memory + f64::max(out.seconds(), inward.seconds())
}

/// When each rank began its round, and when it will be done with it.
struct Times<'a> {
    plans: &'a [Plan],
    element_bytes: f64,
    topology: &'a Topology,
    start: Vec<f64>,
    done: Vec<f64>,
}

impl<'a> Times<'a> {
    fn new(plans: &'a [Plan], element_bytes: f64, topology: &'a Topology) -> Self {
        Self {
            plans,
            element_bytes,
            topology,
            start: vec![0.0; plans.len()],
            done: vec![0.0; plans.len()],
        }
    }
}

impl Observer for Times<'_> {
    type Error = Infallible;

    fn enter(&mut self, rank: usize, round: usize) -> Result<(), Infallible> {
        let steps = &self.plans[rank].rounds[round];
        let seconds = round_seconds(steps, rank, self.element_bytes, self.topology);
        self.done[rank] = self.start[rank] + seconds;
        Ok(())
    }

    fn message(&mut self, send: At, recv: At) -> Result<(), Infallible> {
        let step = &self.plans[send.rank].rounds[send.round].steps[send.step];
        let bytes = step.message_len().unwrap_or(0) as f64 * self.element_bytes;
        let seconds = self
            .topology
            .link(send.rank, recv.rank)
            .alone_seconds(bytes);
        let passed = f64::max(self.start[send.rank], self.start[recv.rank]) + seconds;
        for rank in [send.rank, recv.rank] {
            self.done[rank] = self.done[rank].max(passed);
        }
        Ok(())
    }

    fn complete(&mut self, rank: usize, _round: usize) -> Result<(), Infallible> {
        self.start[rank] = self.done[rank];
        Ok(())
    }

    fn barrier(&mut self, _round: usize) {
        let last = self.start.iter().copied().fold(0.0, f64::max);
        self.start.fill(last + self.topology.barrier_s);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algo::{ALGORITHMS, find, sweep};
    use crate::types::Collective;

    fn cost(problem: &Problem, algorithm: &str) -> Cost {
        let algorithm = find(problem.collective(), algorithm).expect("registered");
        Cost::of(&algorithm.plans(problem, false).expect("it applies"))
    }

    /// One host, messages of no latency, memory of no cost: only bytes count.
    fn bandwidth_only() -> Topology {
        Topology {
            levels: vec![
                Level::new("host", Some(8), 0.0, 1.0),
                Level::new("network", None, 0.0, 1.0),
            ],
            barrier_s: 0.0,
            memory_bytes_per_s: f64::INFINITY,
        }
    }

    #[test]
    fn the_counts_are_those_of_the_literature() {
        for n in [2, 4, 8, 16] {
            let count = 48 * n;
            let log = usize::ilog2(n) as usize;
            let all_reduce = Problem::all_reduce(n, count).expect("legal");
            let ring = cost(&all_reduce, "ring");
            assert_eq!(ring.rounds, 2 * (n - 1));
            assert_eq!(ring.sent_most, 2 * count / n * (n - 1));
            let doubling = cost(&all_reduce, "recursive_doubling");
            assert_eq!((doubling.rounds, doubling.sent_most), (log, log * count));
            let halving = cost(&all_reduce, "halving_doubling");
            assert_eq!(halving.rounds, 2 * log);
            assert_eq!(halving.sent_most, 2 * count / n * (n - 1));
            let direct = cost(&all_reduce, "direct");
            assert_eq!((direct.barriers, direct.sent_total), (3, 0));
            assert_eq!(direct.pulled_most, 2 * count / n * (n - 1));
            let all_to_all = Problem::all_to_all(n, 6).expect("legal");
            let bruck = cost(&all_to_all, "bruck");
            assert_eq!((bruck.rounds, bruck.sent_most), (log, log * n / 2 * 6));
            let pairwise = cost(&all_to_all, "pairwise");
            assert_eq!((pairwise.rounds, pairwise.sent_most), (n - 1, (n - 1) * 6));
            let broadcast = Problem::broadcast(n, count, 1).expect("legal");
            assert_eq!(cost(&broadcast, "binomial_tree").rounds, log);
        }
    }

    #[test]
    fn a_prediction_follows_the_critical_path() {
        let topology = bandwidth_only();
        let problem = Problem::all_reduce(8, 800).expect("legal");
        let seconds = |algorithm: &str| {
            let algorithm = find(Collective::AllReduce, algorithm).expect("registered");
            let prediction = predict(algorithm, &problem, 1, &topology).expect("it applies");
            assert!(prediction.all_ranks);
            prediction.seconds
        };
        assert!((seconds("ring") - 1400.0).abs() < 1e-6);
        assert!((seconds("recursive_doubling") - 2400.0).abs() < 1e-6);
        assert!((seconds("halving_doubling") - 1400.0).abs() < 1e-6);
    }

    #[test]
    fn a_slow_link_between_hosts_is_paid_by_those_who_use_it() {
        let mut topology = bandwidth_only();
        topology.levels[0].ranks = Some(4);
        topology.levels[1].latency_s = 1000.0;
        let problem = Problem::broadcast(8, 10, 0).expect("legal");
        let tree = find(Collective::Broadcast, "binomial_tree").expect("registered");
        let seconds = predict(tree, &problem, 1, &topology)
            .expect("it applies")
            .seconds;
        assert!((seconds - 1030.0).abs() < 1e-6, "{seconds}");
    }

    /// Three levels with figures of their own.
    fn three_levels() -> Topology {
        let mut topology = Topology::default();
        let pod = Level {
            pair_bytes_per_s: 9e9,
            ..Level::new("pod", Some(32), 3e-6, 15e9)
        };
        topology.levels.insert(1, pod);
        topology
    }

    #[test]
    fn a_few_plans_tell_as_much_as_all_where_large_groups_are_regular() {
        let topology = three_levels();
        let chains = [Collective::Scan, Collective::ExclusiveScan];
        for algorithm in ALGORITHMS.iter().filter(|one| one.links == Links::Message) {
            for collective in algorithm.collectives {
                if chains.contains(collective) {
                    continue;
                }
                for (n, bytes) in [(16, 1.0), (64, 0.01), (64, 1e5), (128, 1e3), (256, 1.0)] {
                    let problem = sweep::sized(*collective, n, n).expect("legal");
                    let all = Plans::of(algorithm, &problem).expect("it applies");
                    let few = Plans::of_few(algorithm, &problem).expect("it applies");
                    let all = all.predict(bytes, &topology).seconds;
                    let few = few.predict(bytes, &topology).seconds;
                    let name = algorithm.name;
                    let part = few / all;
                    assert!(
                        (0.95..1.000_001).contains(&part),
                        "{collective} {name} {n}: {part}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_pair_of_ranks_is_no_faster_than_the_link_between_them() {
        let mut topology = bandwidth_only();
        topology.levels[0].pair_bytes_per_s = 0.5;
        let pairwise = find(Collective::AllToAll, "pairwise").expect("registered");
        let problem = Problem::all_to_all(8, 10).expect("legal");
        let seconds = predict(pairwise, &problem, 1, &topology)
            .expect("it applies")
            .seconds;
        assert!((seconds - 7.0 * 20.0).abs() < 1e-6, "{seconds}");
    }

    #[test]
    fn the_bound_is_the_term_that_costs_most() {
        let plans = |bytes| {
            let pairwise = find(Collective::AllToAll, "pairwise").expect("registered");
            let problem = Problem::all_to_all(64, bytes).expect("legal");
            Plans::of(pairwise, &problem).expect("it applies")
        };
        let mut topology = three_levels();
        assert_eq!(plans(1).bound(1.0, &topology), "latency");
        assert_eq!(plans(1 << 20).bound(1.0, &topology), "pod");
        topology.levels[2].bytes_per_s = 1e9;
        assert_eq!(plans(1 << 20).bound(1.0, &topology), "network");
    }

    #[test]
    fn tens_of_thousands_of_ranks_are_predicted_from_a_few_plans() {
        let topology = Topology::default();
        let problem = Problem::all_reduce(20_000, 1 << 28).expect("legal");
        let ring = find(Collective::AllReduce, "ring").expect("registered");
        let prediction = predict(ring, &problem, 2, &topology).expect("it applies");
        assert!(!prediction.all_ranks);
        // 2 (n - 1) messages over the slowest of its links, at least.
        assert!(prediction.seconds > 2.0 * 19_999.0 * 1e-6);
    }
}
