//! A simulated network with virtual time: every run of one seed is the same run.
//!
//! Endpoints are joined by lanes of two pipes each. The seed draws latency, bandwidth, jitter and
//! window of every pipe, how writes and reads are cut into pieces, and the order in which ranks
//! take their turns. Time passes only when the driver says so: when all ranks are blocked it jumps
//! to the next event, and when there is none the ranks are in a deadlock, which is reported with
//! the position of each.
//!
//! It simulates links, not computers: local work takes no time, and each turn of all ranks takes
//! [`TURN_NS`]. It knows nothing of plans; whatever can be polled can be run ([`Machine`]).
//!
//! - SIM-1: the trace is a function of the configuration, the faults and the machines.
//! - SIM-2: a pipe holds at most its window, in flight and unread together.
//! - SIM-3: bytes of one pipe never overtake each other, whatever the jitter.

pub(crate) mod draw;
mod pipe;

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use self::draw::{Draw, Trace};
use self::pipe::Pipe;
use super::stream::{LinkError, LinkKind, Source, Stream, Target};

/// Virtual time that a turn of all ranks takes.
pub const TURN_NS: u64 = 200;

/// What the seed draws links from, one value a pipe.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// Of everything that is drawn.
    pub seed: u64,
    /// Time from the end of sending to the earliest arrival.
    pub latency_ns: RangeInclusive<u64>,
    /// Most that a piece may be late beyond the latency; drawn anew for each piece.
    pub jitter_ns: RangeInclusive<u64>,
    /// Bytes a microsecond: 1000 is 1 GB/s.
    pub bytes_per_us: RangeInclusive<u64>,
    /// Bytes that a pipe holds.
    pub window_bytes: RangeInclusive<u64>,
}

impl SimConfig {
    /// A network as uneven as the seed makes it: from a fast local link to a slow remote one, and
    /// windows from a few bytes to more than a small message.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            latency_ns: 500..=80_000,
            jitter_ns: 0..=30_000,
            bytes_per_us: 100..=20_000,
            window_bytes: 16..=64 * 1024,
        }
    }
}

/// What goes wrong on purpose. Ranks are endpoints; a pair means all lanes between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkFault {
    /// The byte at this place of what `from` sends to `to` arrives with these bits flipped. Takes
    /// effect from the moment it is injected, for bytes not yet written.
    Corrupt {
        /// The sender.
        from: usize,
        /// The receiver.
        to: usize,
        /// The place, counted from the first byte of the lane.
        byte: u64,
        /// The bits.
        mask: u8,
    },
    /// The links between the two are gone, with everything underway.
    Cut {
        /// One side.
        one: usize,
        /// The other side.
        other: usize,
    },
    /// The rank stops for good; its system closes its links.
    Kill {
        /// The rank.
        rank: usize,
    },
    /// Nothing that `from` sends arrives at `to` before that time.
    Stall {
        /// The sender.
        from: usize,
        /// The receiver.
        to: usize,
        /// Virtual time since the start.
        until: Duration,
    },
}

/// What a rank does, in turns.
pub trait Machine {
    /// Does what can be done now.
    fn poll(&mut self) -> Turn;

    /// Where it stands, in words: for the report of a deadlock.
    fn position(&self) -> String;
}

/// What a turn has achieved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Nothing: only time or a peer can help.
    Blocked,
    /// It is complete and wants no more turns.
    Done,
    /// It has failed and wants no more turns.
    Failed,
    /// Something.
    Moved,
}

/// How a run ended for one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is complete.
    Done,
    /// It has failed.
    Failed,
    /// It was killed by a fault.
    Killed,
    /// It was still at work; where.
    Stuck(String),
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Every rank that was not killed is done or has failed.
    Complete,
    /// All ranks at work were blocked, and no event was to come.
    Deadlock,
    /// The limit of virtual time was reached.
    TimeLimit,
    /// The limit of turns was reached: somebody says that it moves and never ends.
    TurnLimit,
}

/// What a run was like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimReport {
    /// How it ended.
    pub ending: Ending,
    /// How it ended for each rank.
    pub fates: Vec<Fate>,
    /// Virtual time at the end.
    pub at: Duration,
    /// Turns that were given.
    pub turns: u64,
    /// A hash over every event in order: equal for equal runs.
    pub trace: u64,
}

/// Bounds of a run.
#[derive(Clone, Copy, Debug)]
pub struct SimLimits {
    /// Virtual time.
    pub time: Duration,
    /// Turns, of all ranks together.
    pub turns: u64,
}

impl Default for SimLimits {
    /// An hour of virtual time and ten million turns: beyond any test, within a minute or so.
    fn default() -> Self {
        Self {
            time: Duration::from_secs(3600),
            turns: 10_000_000,
        }
    }
}

/// The network. Clones are handles on the same one.
#[derive(Clone)]
pub struct SimNet {
    state: Arc<Mutex<State>>,
}

struct State {
    config: SimConfig,
    draw: Draw,
    now_ns: u64,
    endpoints: usize,
    /// Two a lane: `2 * lane` from its first endpoint, `2 * lane + 1` from its second.
    pipes: Vec<Pipe>,
    /// Sorted by time, latest first.
    faults: Vec<(u64, LinkFault)>,
    killed: Vec<bool>,
    trace: Trace,
}

impl SimNet {
    /// A network of `endpoints` ranks without lanes.
    #[must_use]
    pub fn new(endpoints: usize, config: SimConfig) -> Self {
        let draw = Draw::new(config.seed);
        Self {
            state: Arc::new(Mutex::new(State {
                config,
                draw,
                now_ns: 0,
                endpoints,
                pipes: Vec::new(),
                faults: Vec::new(),
                killed: vec![false; endpoints],
                trace: Trace::default(),
            })),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // One thread runs a simulation; a test that panicked has failed anyway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new lane between two ranks: the end of `one` and the end of `other`.
    ///
    /// # Panics
    /// If one of them is not in the network.
    #[must_use]
    pub fn pair(&self, one: usize, other: usize) -> (SimStream, SimStream) {
        let mut state = self.state();
        assert!(one < state.endpoints, "no endpoint {one}");
        assert!(other < state.endpoints, "no endpoint {other}");
        let first = state.pipes.len();
        for (from, to) in [(one, other), (other, one)] {
            let State { config, draw, .. } = &mut *state;
            let pipe = Pipe::new(from, to, config, draw);
            state.pipes.push(pipe);
        }
        let end = |send: usize, recv: usize| SimStream {
            net: self.clone(),
            send,
            recv,
            dead: None,
        };
        (end(first, first + 1), end(first + 1, first))
    }

    /// The streams of all ranks to all others: `mesh[rank][peer]`.
    #[must_use]
    pub fn mesh(&self) -> Vec<Vec<Option<Box<dyn Stream>>>> {
        let n = self.state().endpoints;
        let mut mesh: Vec<Vec<Option<Box<dyn Stream>>>> = Vec::new();
        mesh.resize_with(n, || std::iter::repeat_with(|| None).take(n).collect());
        let pairs = (0..n).flat_map(|one| (one + 1..n).map(move |other| (one, other)));
        for (one, other) in pairs {
            let (near, far) = self.pair(one, other);
            mesh[one][other] = Some(Box::new(near));
            mesh[other][one] = Some(Box::new(far));
        }
        mesh
    }

    /// Lets something go wrong at this virtual time.
    pub fn inject(&self, at: Duration, fault: LinkFault) {
        let mut state = self.state();
        let at_ns = nanos(at);
        // Latest first; of equal times, the one injected first is the one taken first.
        let place = state.faults.partition_point(|(time, _)| *time > at_ns);
        state.faults.insert(place, (at_ns, fault));
    }

    /// Virtual time since the start.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.state().now_ns)
    }

    /// Moves the clock to the next event, or by a turn if there is none: for callers that use
    /// streams without [`SimNet::run`].
    pub fn tick(&self) {
        if !self.pass_time(false) {
            self.pass_time(true);
        }
        self.state().strike();
    }

    /// Lets all ranks take turns until each is done, has failed or was killed, or none can ever
    /// move again. `machines[rank]` uses the ends of `rank`.
    pub fn run(&self, machines: &mut [Box<dyn Machine + '_>], limits: SimLimits) -> SimReport {
        let mut fates: Vec<Option<Fate>> = vec![None; machines.len()];
        let mut turns = 0;
        let ending = loop {
            let order = self.begin_turn(&mut fates);
            if order.is_empty() {
                break Ending::Complete;
            }
            if turns >= limits.turns {
                break Ending::TurnLimit;
            }
            if self.now() > limits.time {
                break Ending::TimeLimit;
            }
            let mut moved = false;
            for rank in order {
                turns += 1;
                let turn = machines[rank].poll();
                moved |= turn != Turn::Blocked;
                match turn {
                    Turn::Blocked | Turn::Moved => {}
                    Turn::Done => fates[rank] = Some(Fate::Done),
                    Turn::Failed => fates[rank] = Some(Fate::Failed),
                }
            }
            if !self.pass_time(moved) {
                break Ending::Deadlock;
            }
        };
        let state = self.state();
        SimReport {
            ending,
            fates: fates
                .into_iter()
                .zip(machines)
                .map(|(fate, machine)| fate.unwrap_or_else(|| Fate::Stuck(machine.position())))
                .collect(),
            at: Duration::from_nanos(state.now_ns),
            turns,
            trace: state.trace.hash,
        }
    }

    /// Lets due faults happen and draws the order of the ranks that are still at work.
    fn begin_turn(&self, fates: &mut [Option<Fate>]) -> Vec<usize> {
        let mut state = self.state();
        state.strike();
        for (rank, fate) in fates.iter_mut().enumerate() {
            if fate.is_none() && state.killed.get(rank).copied().unwrap_or(false) {
                *fate = Some(Fate::Killed);
            }
        }
        let mut order: Vec<usize> = (0..fates.len())
            .filter(|rank| fates[*rank].is_none())
            .collect();
        for last in (1..order.len()).rev() {
            let other = crate::types::index(state.draw.up_to(last as u64));
            order.swap(last, other);
        }
        order
    }

    /// Moves the clock: by one turn, or to the next event if nobody moved. Returns whether there
    /// is any reason to go on.
    fn pass_time(&self, moved: bool) -> bool {
        let mut state = self.state();
        if moved {
            state.now_ns += TURN_NS;
            return true;
        }
        let now = state.now_ns;
        let events = state.pipes.iter().filter_map(|pipe| pipe.next_event(now));
        let fault = state.faults.last().map(|(at, _)| *at);
        let next = events.chain(fault).min();
        if let Some(next) = next {
            state.now_ns = next.max(now);
            state.trace.add(0, next, 0);
        }
        next.is_some()
    }
}

impl State {
    /// Lets every fault happen whose time has come.
    fn strike(&mut self) {
        while let Some((_, fault)) = self.faults.pop_if(|(at, _)| *at <= self.now_ns) {
            let now = self.now_ns;
            self.trace.add(1, now, 0);
            for pipe in &mut self.pipes {
                pipe.strike(fault, now);
            }
            if let LinkFault::Kill { rank } = fault
                && let Some(killed) = self.killed.get_mut(rank)
            {
                *killed = true;
            }
        }
    }
}

impl fmt::Debug for SimNet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("SimNet")
            .field("config", &state.config)
            .field("now_ns", &state.now_ns)
            .field("lanes", &(state.pipes.len() / 2))
            .finish_non_exhaustive()
    }
}

/// One end of a lane.
#[derive(Debug)]
pub struct SimStream {
    net: SimNet,
    /// The pipe that this end writes.
    send: usize,
    /// The pipe that this end reads.
    recv: usize,
    dead: Option<LinkError>,
}

impl SimStream {
    /// Whether the lane was torn down, as far as this end can know by now.
    fn check(&mut self, state: &State) -> Result<(), LinkError> {
        if self.dead.is_none() && state.pipes[self.recv].is_reset(state.now_ns) {
            self.dead = Some(LinkError::Reset);
        }
        self.dead.map_or(Ok(()), Err)
    }
}

impl Stream for SimStream {
    fn write_from(&mut self, source: Source<'_>) -> Result<usize, LinkError> {
        let net = self.net.clone();
        let mut state = net.state();
        self.check(&state)?;
        let State {
            pipes,
            draw,
            now_ns,
            trace,
            ..
        } = &mut *state;
        if pipes[self.recv].is_ended(*now_ns) {
            return Err(LinkError::Closed);
        }
        let len = pipes[self.send].write(source, *now_ns, draw);
        trace.add(2 + 4 * self.send as u64, *now_ns, len as u64);
        Ok(len)
    }

    fn read_into(&mut self, target: Target<'_>) -> Result<usize, LinkError> {
        let net = self.net.clone();
        let mut state = net.state();
        self.check(&state)?;
        let State {
            pipes,
            draw,
            now_ns,
            trace,
            ..
        } = &mut *state;
        let result = pipes[self.recv].read(target, *now_ns, draw);
        trace.add(
            3 + 4 * self.recv as u64,
            *now_ns,
            result.map_or(u64::MAX, |len| len as u64),
        );
        if let Err(error) = result {
            self.dead = Some(error);
        }
        result
    }

    fn kind(&self) -> LinkKind {
        LinkKind::Sim
    }

    fn reset(&mut self) {
        self.dead = Some(LinkError::Reset);
        let net = self.net.clone();
        let mut state = net.state();
        let now = state.now_ns;
        state.pipes[self.send].reset(now);
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        let net = self.net.clone();
        let mut state = net.state();
        let now = state.now_ns;
        state.pipes[self.send].end(now);
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
