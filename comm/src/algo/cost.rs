//! What plans cost: counted exactly, and predicted in time by a simple model.
//!
//! [`Cost`] counts rounds, messages and elements. [`predict`] puts times to them: a message takes
//! a latency and its bytes over a bandwidth (the alpha-beta model), with one pair of figures
//! between ranks of a host and another between hosts; each rank sends one byte at a time and
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

/// One level of links.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkCost {
    /// Time that a message takes however short it is, in seconds.
    pub latency_s: f64,
    /// Bandwidth of one rank, each way, in bytes per second.
    pub bytes_per_s: f64,
}

impl LinkCost {
    fn seconds(&self, bytes: f64) -> f64 {
        self.latency_s + bytes / self.bytes_per_s
    }
}

/// Hosts with equally many ranks each, in rank order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Topology {
    /// Ranks of one host.
    pub ranks_per_host: usize,
    /// Between ranks of a host.
    pub within: LinkCost,
    /// Between hosts.
    pub between: LinkCost,
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
            ranks_per_host: 8,
            within: LinkCost {
                latency_s: 1e-6,
                bytes_per_s: 8e9,
            },
            between: LinkCost {
                latency_s: 5e-6,
                bytes_per_s: 25e9,
            },
            barrier_s: 2e-6,
            memory_bytes_per_s: 10e9,
        }
    }
}

impl Topology {
    fn link(&self, a: usize, b: usize) -> &LinkCost {
        let per_host = self.ranks_per_host.max(1);
        if a / per_host == b / per_host {
            &self.within
        } else {
            &self.between
        }
    }
}

/// A predicted time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// From the call to the last rank's return, in seconds.
    pub seconds: f64,
    /// Whether the plans of all ranks were looked at. Of large groups, the plans of a few ranks
    /// are, as if their peers never kept them waiting.
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
    let n = problem.n();
    if n <= ALL_RANKS_MAX
        && let Some(seconds) =
            predict_plans(&algorithm.plans(problem, false)?, element_bytes, topology)
    {
        return Ok(Prediction {
            seconds,
            all_ranks: true,
        });
    }
    let mut seconds = 0.0_f64;
    let root = problem.root().unwrap_or(0);
    for rank in [root, 0, 1, n / 2, n - 1] {
        let plan = algorithm.plan(problem, rank, false)?;
        seconds = seconds.max(alone(&plan, rank, element_bytes, topology));
    }
    Ok(Prediction {
        seconds,
        all_ranks: false,
    })
}

/// How long the plans of all ranks take; none where they do not run to their end.
#[must_use]
pub fn predict_plans(plans: &[Plan], element_bytes: usize, topology: &Topology) -> Option<f64> {
    let matching = Matching::of(plans).ok()?;
    let mut times = Times {
        plans,
        element_bytes,
        topology,
        start: vec![0.0; plans.len()],
        done: vec![0.0; plans.len()],
    };
    schedule::run(plans, &matching, &mut times).ok()?;
    Some(times.start.into_iter().fold(0.0, f64::max))
}

/// The time of one rank whose peers are always ready.
fn alone(plan: &Plan, rank: usize, element_bytes: usize, topology: &Topology) -> f64 {
    let barrier = match plan.links {
        Links::Direct => topology.barrier_s,
        Links::Message => 0.0,
    };
    plan.rounds
        .iter()
        .map(|round| round_seconds(round, rank, element_bytes, topology) + barrier)
        .sum()
}

/// What a round takes on a rank that waits for nobody: its own memory, then its port, which sends
/// and receives at the same time.
fn round_seconds(round: &Round, rank: usize, element_bytes: usize, topology: &Topology) -> f64 {
    let (mut memory, mut out, mut inward) = (0.0, 0.0, 0.0);
    let bytes = |len: usize| (len * element_bytes) as f64;
    for step in &round.steps {
        match step {
            Step::Copy { src, .. } | Step::Reduce { src, .. } => {
                memory += bytes(src.len) / topology.memory_bytes_per_s;
            }
            Step::Send { to, src } => out += topology.link(rank, *to).seconds(bytes(src.len)),
            Step::Recv { from, dst } => {
                inward += topology.link(rank, *from).seconds(bytes(dst.len));
            }
            Step::RecvReduce { from, dst, .. } => {
                inward += topology.link(rank, *from).seconds(bytes(dst.len));
                memory += bytes(dst.len) / topology.memory_bytes_per_s;
            }
            Step::Pull { src, .. } => {
                inward += bytes(src.span.len) / topology.link(rank, src.peer).bytes_per_s;
            }
            Step::PullReduce { srcs, dst } => {
                for src in srcs.iter().filter(|src| src.peer != rank) {
                    inward += bytes(dst.len) / topology.link(rank, src.peer).bytes_per_s;
                }
                memory += bytes(dst.len) / topology.memory_bytes_per_s;
            }
            Step::Expose { .. } => {}
        }
    }
    memory + f64::max(out, inward)
}

/// When each rank began its round, and when it will be done with it.
struct Times<'a> {
    plans: &'a [Plan],
    element_bytes: usize,
    topology: &'a Topology,
    start: Vec<f64>,
    done: Vec<f64>,
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
        let bytes = (step.message_len().unwrap_or(0) * self.element_bytes) as f64;
        let seconds = self.topology.link(send.rank, recv.rank).seconds(bytes);
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
    use crate::algo::find;
    use crate::types::Collective;

    fn cost(problem: &Problem, algorithm: &str) -> Cost {
        let algorithm = find(problem.collective(), algorithm).expect("registered");
        Cost::of(&algorithm.plans(problem, false).expect("it applies"))
    }

    /// One host, messages of no latency, memory of no cost: only bytes count.
    fn bandwidth_only() -> Topology {
        let link = LinkCost {
            latency_s: 0.0,
            bytes_per_s: 1.0,
        };
        Topology {
            ranks_per_host: 8,
            within: link,
            between: link,
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
        topology.ranks_per_host = 4;
        topology.between.latency_s = 1000.0;
        let problem = Problem::broadcast(8, 10, 0).expect("legal");
        let tree = find(Collective::Broadcast, "binomial_tree").expect("registered");
        let seconds = predict(tree, &problem, 1, &topology)
            .expect("it applies")
            .seconds;
        assert!((seconds - 1030.0).abs() < 1e-6, "{seconds}");
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
