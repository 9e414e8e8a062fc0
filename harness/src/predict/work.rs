//! What a call takes, counted: synchronisations, messages, bytes. No times.
//!
//! Each count is that of the busiest rank or, where that is more, of all ranks of a host over its processors.

use muster_comm::algo::cost::{Level, Plans, Topology};
use muster_comm::algo::{Algorithm, Plan, Problem, Step};
use muster_comm::types::{Collective, Extent, Pattern, Source};

use super::call::{Call, Place, Route};
use super::terms::{TERMS, at, hats};

/// How often each term occurs in a call.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work(pub [f64; TERMS.len()]);

/// What the ranks of a group do, rank by rank.
struct Tally<'a> {
    place: &'a Place,
    groups: f64,
    hosts: &'a [u32],
}

impl Tally<'_> {
    /// The busiest rank's part or, where that is more, a processor's.
    fn busiest(&self, of_rank: &[f64]) -> f64 {
        let most = of_rank.iter().copied().fold(0.0, f64::max);
        let processors = self.place.processors as f64 * f64::from(self.place.host_count());
        let sum: f64 = of_rank.iter().sum();
        most.max(sum * self.groups / processors)
    }
}

impl Work {
    /// The work of a call, and the way it goes. The members of its group are the first ranks of the place.
    ///
    /// # Errors
    /// Why it cannot be carried out, or what the model does not know.
    pub fn of(call: &Call, place: &Place, members: &[u32]) -> Result<(Self, Route), String> {
        let host = |rank: &u32| place.hosts.get(*rank as usize).copied().unwrap_or(0);
        let hosts: Vec<u32> = members.iter().map(host).collect();
        let tally = Tally {
            place,
            groups: call.groups as f64,
            hosts: &hosts,
        };
        let mut work = Self::default();
        if call.collective.is_of_objects() {
            return work.objects(call, place, members);
        }
        let route = call.route(&hosts, place)?;
        work.0[at::CALL] = 1.0;
        if let Some(problem) = call.problem(&hosts) {
            work.planned(call, &problem, route, &tally)?;
        } else {
            work.points(call, route, &tally);
        }
        Ok((work, route))
    }

    /// Objects: their lengths, then their bytes.
    fn objects(
        mut self,
        call: &Call,
        place: &Place,
        members: &[u32],
    ) -> Result<(Self, Route), String> {
        let of = |collective: Collective, count: usize| {
            let mut part = call.clone();
            part.collective = collective;
            part.algorithm = None;
            part.shape.collective = collective;
            part.shape.count = count;
            Self::of(&part, place, members)
        };
        let moves = match call.collective.pattern() {
            Some(Pattern::Broadcast) => Collective::Broadcast,
            Some(Pattern::Gather) => Collective::Gather,
            Some(Pattern::Scatter) => Collective::Scatter,
            Some(
                Pattern::AllGather
                | Pattern::AllReduce
                | Pattern::AllToAll
                | Pattern::Barrier
                | Pattern::ExclusiveScan
                | Pattern::Reduce
                | Pattern::ReduceScatter
                | Pattern::Scan,
            )
            | None => Collective::AllGather,
        };
        let (lengths, _) = of(Collective::AllGather, size_of::<u64>())?;
        let (bytes, route) = of(moves, call.shape.count)?;
        self.add(&lengths);
        self.add(&bytes);
        Ok((self, route))
    }

    fn add(&mut self, other: &Self) {
        for (mine, more) in self.0.iter_mut().zip(other.0) {
            *mine += more;
        }
    }

    fn planned(
        &mut self,
        call: &Call,
        problem: &Problem,
        route: Route,
        tally: &Tally<'_>,
    ) -> Result<(), String> {
        let (n, element) = (problem.n(), call.dtype.size() as f64);
        let reduces = call.collective.reduces();
        let is_island =
            tally.place.shares_memory && tally.hosts.iter().all(|one| *one == tally.hosts[0]);
        if n > 1 && is_island {
            self.0[at::ENTRY] = 1.0;
            self.0[at::ENTRY + 1] = n as f64;
        }
        // Elements that a rank gets from others, and combines.
        let got = |rank: usize| problem.out_len(rank) as f64;
        let sources = |rank: usize| problem.pattern().contributors(n, rank).len() as f64;
        let set = Self::working_set(problem, element) * tally.groups;
        match route {
            Route::Copy => self.memory(set, tally, |rank| got(rank) * element, n),
            Route::Entry => {
                let of_rank = |rank: usize| {
                    let per = if reduces { sources(rank) } else { 1.0 };
                    (problem.in_len(rank) as f64 + got(rank) * per) * element
                };
                self.memory(set, tally, of_rank, n);
                if reduces {
                    self.reduced(tally, |rank| got(rank) * sources(rank) * element, n);
                }
            }
            Route::Between { reads } => self.between(problem, reads, element, tally, set),
            Route::Staged(algorithm, segment) => {
                let plans = plans_of(algorithm, problem, call.in_place)?;
                self.staged(call, problem, &plans, segment, tally, set);
            }
            Route::Messages(algorithm) => {
                if problem.pattern().needs_everybody() {
                    self.0[at::EVERYBODY] = 1.0;
                }
                let plans = plans_of(algorithm, problem, call.in_place)?;
                self.local_steps(&plans, element, tally, set);
                self.messages(algorithm, problem, &plans, element, tally)?;
            }
            Route::Points => {}
        }
        Ok(())
    }

    /// Each rank does its share between the buffers, then there is a barrier.
    fn between(
        &mut self,
        problem: &Problem,
        reads: bool,
        element: f64,
        tally: &Tally<'_>,
        set: f64,
    ) {
        let n = problem.n();
        let reduces = problem.pattern().reduces();
        let got = |rank: usize| problem.out_len(rank) as f64;
        let sources = |rank: usize| problem.pattern().contributors(n, rank).len() as f64;
        self.0[at::BARRIER] = 1.0;
        self.0[at::BARRIER + 1] = n as f64;
        let sum: f64 = (0..n).map(sources).sum::<f64>() / n as f64;
        let of_rank = |rank: usize| {
            let slice = got(rank) / n as f64;
            let moved = if reduces {
                slice * (sum + n as f64)
            } else {
                got(rank)
            };
            moved * element
        };
        self.memory(set, tally, of_rank, n);
        if reduces {
            self.reduced(tally, |rank| got(rank) / n as f64 * sum * element, n);
        }
        if reads {
            let fetched = |rank: usize| got(rank) * element;
            let all: Vec<f64> = (0..n).map(fetched).collect();
            self.0[at::READ + 1] = tally.busiest(&all);
            let peers = |rank: usize| peers_read(problem, rank);
            self.0[at::READ] = tally.busiest(&(0..n).map(peers).collect::<Vec<_>>());
        }
    }

    /// Bytes of all buffers of a group.
    fn working_set(problem: &Problem, element: f64) -> f64 {
        let of = |rank| (problem.in_len(rank) + problem.out_len(rank)) as f64;
        (0..problem.n()).map(of).sum::<f64>() * element
    }

    /// Copied bytes, at the costs for buffers of `set` bytes together.
    fn memory(&mut self, set: f64, tally: &Tally<'_>, of_rank: impl Fn(usize) -> f64, n: usize) {
        let bytes = tally.busiest(&(0..n).map(of_rank).collect::<Vec<_>>());
        for (knot, part) in hats(set).into_iter().enumerate() {
            self.0[at::MEMORY + knot] += bytes * part;
        }
    }

    fn reduced(&mut self, tally: &Tally<'_>, of_rank: impl Fn(usize) -> f64, n: usize) {
        self.0[at::REDUCE] += tally.busiest(&(0..n).map(of_rank).collect::<Vec<_>>());
    }

    fn staged(
        &mut self,
        call: &Call,
        problem: &Problem,
        plans: &[Plan],
        segment: Option<usize>,
        tally: &Tally<'_>,
        set: f64,
    ) {
        let n = problem.n();
        let element = call.dtype.size() as f64;
        let segments = segments(call, problem, segment);
        let rounds = plans
            .iter()
            .map(|plan| plan.rounds.len())
            .max()
            .unwrap_or(0);
        // The entry is the first barrier.
        let barriers = (segments * rounds as f64 - 1.0).max(0.0);
        self.0[at::BARRIER] = barriers;
        self.0[at::BARRIER + 1] = barriers * n as f64;
        self.local_steps(plans, element, tally, set);
        let exposed = |plan: &Plan| {
            steps(plan, |step| match step {
                Step::Expose { span, .. } => span.len as f64,
                Step::Copy { .. }
                | Step::Pull { .. }
                | Step::PullReduce { .. }
                | Step::Recv { .. }
                | Step::RecvReduce { .. }
                | Step::Reduce { .. }
                | Step::Send { .. } => 0.0,
            })
        };
        let exposed: Vec<f64> = plans.iter().map(|plan| exposed(plan) * element).collect();
        self.0[at::STAGED] = tally.busiest(&exposed);
    }

    /// What ranks copy and combine without messages.
    fn local_steps(&mut self, plans: &[Plan], element: f64, tally: &Tally<'_>, set: f64) {
        let copied = |plan: &Plan| {
            steps(plan, |step| match step {
                Step::Copy { src, .. } => src.len as f64,
                Step::Pull { src, .. } => src.span.len as f64,
                Step::PullReduce { srcs, dst } => (srcs.len() * dst.len) as f64,
                Step::Reduce { src, .. } => src.len as f64,
                Step::RecvReduce { dst, .. } => dst.len as f64,
                Step::Expose { .. } | Step::Recv { .. } | Step::Send { .. } => 0.0,
            })
        };
        let combined = |plan: &Plan| {
            steps(plan, |step| match step {
                Step::PullReduce { srcs, dst } => ((srcs.len() - 1) * dst.len) as f64,
                Step::Reduce { src, .. } => src.len as f64,
                Step::RecvReduce { dst, .. } => dst.len as f64,
                Step::Copy { .. }
                | Step::Expose { .. }
                | Step::Pull { .. }
                | Step::Recv { .. }
                | Step::Send { .. } => 0.0,
            })
        };
        let n = plans.len();
        self.memory(set, tally, |rank| copied(&plans[rank]) * element, n);
        self.reduced(tally, |rank| combined(&plans[rank]) * element, n);
    }

    fn messages(
        &mut self,
        algorithm: &'static Algorithm,
        problem: &Problem,
        plans: &[Plan],
        element: f64,
        tally: &Tally<'_>,
    ) -> Result<(), String> {
        let inner = if tally.place.shares_memory {
            at::RING
        } else {
            at::TCP
        };
        let priced = Plans::of(algorithm, problem).map_err(|error| error.to_string())?;
        let here = tally
            .hosts
            .iter()
            .filter(|one| **one == tally.hosts[0])
            .count();
        for (first, is_between) in [(inner, false), (at::NET, true)] {
            self.0[first] = rounds(&priced, here, is_between);
            let crosses =
                |from: usize, to: usize| (tally.hosts[from] != tally.hosts[to]) == is_between;
            let mut messages = vec![0.0; plans.len()];
            let mut bytes = vec![0.0; plans.len()];
            for (rank, step) in plans.iter().enumerate().flat_map(|(rank, plan)| {
                let all = plan.rounds.iter().flat_map(|round| &round.steps);
                all.map(move |step| (rank, step))
            }) {
                if let Step::Send { to, src } = step
                    && crosses(rank, *to)
                {
                    for end in [rank, *to] {
                        messages[end] += 1.0;
                        bytes[end] += src.len as f64 * element;
                    }
                }
            }
            self.0[first + 1] = tally.busiest(&messages);
            self.0[first + 2] = tally.busiest(&bytes);
        }
        Ok(())
    }

    /// A ring of messages: each rank sends one and receives one.
    fn points(&mut self, call: &Call, route: Route, tally: &Tally<'_>) {
        if matches!(route, Route::Copy) {
            return;
        }
        let n = call.shape.n;
        let bytes = (call.shape.count * call.shape.element) as f64;
        let inner = if tally.place.shares_memory {
            at::RING
        } else {
            at::TCP
        };
        for (first, is_between) in [(inner, false), (at::NET, true)] {
            let crosses =
                |from: usize, to: usize| (tally.hosts[from] != tally.hosts[to]) == is_between;
            let ends = |rank: usize| {
                let next = crosses(rank, (rank + 1) % n);
                let last = crosses((rank + n - 1) % n, rank);
                f64::from(u8::from(next)) + f64::from(u8::from(last))
            };
            let ends: Vec<f64> = (0..n).map(ends).collect();
            let messages = tally.busiest(&ends);
            self.0[first] = f64::from(u8::from(messages > 0.0));
            self.0[first + 1] = messages;
            self.0[first + 2] = messages * bytes;
        }
    }
}

/// The sum over all steps of a plan.
fn steps(plan: &Plan, of: impl Fn(&Step) -> f64) -> f64 {
    plan.rounds
        .iter()
        .flat_map(|round| &round.steps)
        .map(of)
        .sum()
}

fn plans_of(algorithm: &Algorithm, problem: &Problem, in_place: bool) -> Result<Vec<Plan>, String> {
    let in_place = in_place && (0..problem.n()).all(|rank| problem.in_place(rank).is_some());
    let plans = algorithm.plans(problem, in_place);
    plans.map_err(|error| error.to_string())
}

/// Peers whose memory a rank reads.
fn peers_read(problem: &Problem, rank: usize) -> f64 {
    let pattern = problem.pattern();
    let n = problem.n();
    let has_something = problem.out_len(rank) > 0;
    let peers = match pattern.source() {
        Source::Root => usize::from(problem.root() != Some(rank)),
        Source::Each | Source::Nobody | Source::Reduction(_) => n - 1,
    };
    if has_something { peers as f64 } else { 0.0 }
}

/// Segments of a call over staging.
fn segments(call: &Call, problem: &Problem, segment: Option<usize>) -> f64 {
    /// As the engine cuts.
    const AREA: usize = 1 << 20;
    let n = problem.n();
    let exposed = match problem.pattern().send(true) {
        Extent::AllBlocks => n,
        Extent::Nothing | Extent::OwnBlock | Extent::Vector => 1,
    };
    let len = (segment.unwrap_or(AREA) / call.dtype.size() / exposed).max(1);
    let longest = match (problem.matrix(), problem.blocks()) {
        (Some(_), _) => (0..n * n)
            .map(|cell| call.shape.pair(cell / n, cell % n))
            .max(),
        (None, Some(blocks)) => Some(blocks.longest()),
        (None, None) => Some(call.shape.count),
    };
    longest.unwrap_or(0).div_ceil(len) as f64
}

/// Rounds of messages on the critical path, of those within hosts or between them: the time where each takes one second and
/// nothing else takes any.
fn rounds(plans: &Plans, ranks_a_host: usize, is_between: bool) -> f64 {
    let level = |name, ranks, counts: bool| {
        Level::new(name, ranks, f64::from(u8::from(counts)), f64::INFINITY)
    };
    let topology = Topology {
        levels: vec![
            level("host", Some(ranks_a_host), !is_between),
            level("network", None, is_between),
        ],
        barrier_s: 0.0,
        memory_bytes_per_s: f64::INFINITY,
    };
    let counted = plans.predict(1.0, &topology).seconds;
    if counted.is_finite() { counted } else { 0.0 }
}
