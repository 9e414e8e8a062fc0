//! One rank makes its recorded calls again, and checks what came.
//!
//! REPLAY-1: inputs are a function of the call, the rank and whether the number of the call is odd, so that every rank knows what all
//! others contribute. Receive buffers are wiped before each call.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use muster_comm::collective::Communicator;
use muster_comm::collective::reference::{self, distinct_inputs, exact_inputs, first_difference};
use muster_comm::error::CommError;
use muster_comm::sync::Clock;
use muster_comm::types::{Collective, DType, Extent, Pattern, Rank, ReduceOp};
use muster_comm::world::World;
use serde::{Deserialize, Serialize};

use super::program::{Action, Counts, Message, RankProgram, Step};
use super::target::{Asked, Target, Words, aligned, words};

/// Pauses below this are shorter than a sleep.
const PAUSE_MIN: Duration = Duration::from_micros(50);
/// Elements of all members together of the largest call whose result is checked.
const CHECKED_MAX: usize = 1 << 24;
/// Bytes of inputs and results that are kept for calls that come again.
const KEPT_MAX: usize = 256 << 20;
/// What a receive buffer holds before the call.
const WIPED: u64 = 0x5a5a_5a5a_5a5a_5a5a;

/// What a rank made and found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Calls that it made.
    pub calls: u64,
    /// Calls that it did not make: the devices lack them.
    pub lacking: u64,
    /// Those whose results it checked.
    pub checked: u64,
    /// Those whose results are wrong.
    pub wrong: u64,
    /// The first of them, in words.
    pub first_wrong: Option<String>,
    /// Nanoseconds in calls, by collective: how many, and how long together.
    pub times_ns: HashMap<String, (u64, u64)>,
}

impl Outcome {
    /// Takes over what another thread or rank made.
    pub fn add(&mut self, other: Self) {
        self.calls += other.calls;
        self.lacking += other.lacking;
        self.checked += other.checked;
        self.wrong += other.wrong;
        self.first_wrong = self.first_wrong.take().or(other.first_wrong);
        for (name, (calls, ns)) in other.times_ns {
            let sum = self.times_ns.entry(name).or_default();
            *sum = (sum.0 + calls, sum.1 + ns);
        }
    }
}

/// A rank that makes its calls again.
#[derive(Debug)]
pub struct Replay<'a> {
    /// What it does.
    pub program: &'a RankProgram,
    /// Whether it pauses as it did.
    pub pauses: bool,
}

impl Replay<'_> {
    /// Makes all calls, on what `target` makes of each communicator; every thread of the recording is a thread here.
    ///
    /// # Errors
    /// The first error of a call.
    pub fn run(
        &self,
        world: &World,
        target: impl Fn(Communicator) -> Result<Target, CommError>,
    ) -> Result<Outcome, CommError> {
        let make = |group: &super::program::Group| {
            let members: Vec<Rank> = group.members.iter().map(|rank| Rank(*rank)).collect();
            let comm = world.group(&group.name, &members)?;
            Ok(Ordered::of(target(comm)?))
        };
        let groups = self.program.groups.iter().map(make);
        let groups = groups.collect::<Result<Vec<Ordered>, CommError>>()?;
        let outcomes = Mutex::new(Outcome::default());
        let failed = Mutex::new(None);
        thread::scope(|scope| {
            for steps in &self.program.threads {
                let (groups, outcomes, failed) = (&groups, &outcomes, &failed);
                scope.spawn(move || {
                    let mut lane = Lane::default();
                    let made = steps.iter().try_for_each(|step| {
                        if self.pauses {
                            let pause = Duration::from_micros(step.pause_us);
                            if pause >= PAUSE_MIN {
                                Clock::pause(pause);
                            }
                        }
                        let group = &groups[step.group];
                        if !group.await_turn(step.turn) {
                            return Ok(());
                        }
                        let made = lane.make(&group.target, step);
                        group.next();
                        made
                    });
                    if made.is_err() {
                        groups.iter().for_each(Ordered::give_up);
                    }
                    let mut all = outcomes.lock().unwrap_or_else(PoisonError::into_inner);
                    all.add(lane.outcome);
                    if let Err(error) = made {
                        let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                        failed.get_or_insert(error);
                    }
                });
            }
        });
        match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(outcomes
                .into_inner()
                .unwrap_or_else(PoisonError::into_inner)),
        }
    }
}

/// A communicator whose calls are made in their order.
struct Ordered {
    target: Target,
    /// The call whose turn it is; none once a call has failed.
    turn: Mutex<Option<u64>>,
    changed: Condvar,
}

impl Ordered {
    fn of(target: Target) -> Self {
        Self {
            target,
            turn: Mutex::new(Some(0)),
            changed: Condvar::new(),
        }
    }

    /// Waits until a call has its turn; false where it will not come, since another call has failed.
    fn await_turn(&self, turn: u64) -> bool {
        let now = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let is_early = |now: &mut Option<u64>| now.is_some_and(|now| now < turn);
        let now = self.changed.wait_while(now, is_early);
        now.unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn next(&self) {
        self.set(|turn| turn.map(|turn| turn + 1));
    }

    fn give_up(&self) {
        self.set(|_| None);
    }

    fn set(&self, change: impl Fn(Option<u64>) -> Option<u64>) {
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        *turn = change(*turn);
        self.changed.notify_all();
    }
}

/// What a call sends and must receive.
#[derive(Debug)]
struct Data {
    send: Vec<u64>,
    /// None where checking it would take too long.
    expected: Option<Vec<u8>>,
}

/// A thread that makes calls.
#[derive(Debug, Default)]
struct Lane {
    outcome: Outcome,
    /// By group, call and whether its number is odd.
    kept: HashMap<(usize, String, bool), Data>,
    kept_bytes: usize,
}

impl Lane {
    fn make(&mut self, target: &Target, step: &Step) -> Result<(), CommError> {
        match &step.action {
            Action::Messages { call, messages } => self.messages(target, step, *call, messages),
            Action::Collective { .. } => self.collective(target, step),
        }
    }

    fn collective(&mut self, target: &Target, step: &Step) -> Result<(), CommError> {
        let Action::Collective {
            collective,
            dtype,
            op,
            root,
            counts,
        } = &step.action
        else {
            return Ok(());
        };
        let reduction = collective.reduces().then_some(*op);
        if !target.has(*collective, *dtype, reduction) {
            self.outcome.lacking += 1;
            return Ok(());
        }
        let comm = target.host();
        let shape = Shape {
            collective: *collective,
            dtype: *dtype,
            op: *op,
            root: *root,
            counts,
            n: comm.size(),
            me: comm.rank(),
            odd: step.seq % 2 == 1,
        };
        let key = self.keep(step, &shape);
        let data = &self.kept[&key];
        let (sends, gets) = (shape.elements(true), shape.elements(false));
        let mut recv = vec![WIPED; words(*dtype, gets)];
        if collective.has_one_buffer() && shape.me == *root {
            recv.copy_from_slice(&data.send);
        }
        let asked = Asked {
            collective: *collective,
            dtype: *dtype,
            op: *op,
            root: *root,
            counts,
            splits: &shape.splits(),
        };
        let took_ns = target.collective(&asked, (&data.send, sends), (&mut recv, gets))?;
        self.outcome.made(collective.name(), took_ns);
        let Some(expected) = &data.expected else {
            return Ok(());
        };
        self.outcome.checked += 1;
        let got = &bytemuck::cast_slice::<u64, u8>(&recv)[..gets * dtype.size()];
        if let Some(difference) = first_difference(*dtype, expected, got) {
            self.outcome.wrong(|| {
                format!(
                    "{collective} #{} of {}: {difference}",
                    step.seq,
                    comm.name()
                )
            });
        }
        Ok(())
    }

    /// Makes what a call sends and must receive, unless it was made before; the key of it.
    fn keep(&mut self, step: &Step, shape: &Shape<'_>) -> (usize, String, bool) {
        let key = (step.group, format!("{:?}", step.action), shape.odd);
        if !self.kept.contains_key(&key) {
            let data = shape.data();
            let bytes = 8 * data.send.len() + data.expected.as_ref().map_or(0, Vec::len);
            if self.kept_bytes + bytes > KEPT_MAX {
                self.kept.clear();
                self.kept_bytes = 0;
            }
            self.kept_bytes += bytes;
            self.kept.insert(key.clone(), data);
        }
        key
    }

    fn messages(
        &mut self,
        target: &Target,
        step: &Step,
        call: Collective,
        all: &[Message],
    ) -> Result<(), CommError> {
        let comm = target.host();
        // Both ends ask the same question, whatever each of them called.
        let has = |message: &&Message| target.has(Collective::SendRecvBatch, message.dtype, None);
        let all: Vec<Message> = all.iter().filter(has).copied().collect();
        if all.is_empty() {
            self.outcome.lacking += 1;
            return Ok(());
        }
        let content = |message: &Message| {
            let from = if message.sends {
                comm.rank()
            } else {
                message.peer
            };
            distinct_inputs(
                message.dtype,
                Rank::from_index(from),
                message.count,
                message.number,
            )
        };
        let room = |message: &Message| {
            if message.sends {
                aligned(&content(message))
            } else {
                vec![WIPED; words(message.dtype, message.count)]
            }
        };
        let mut buffers: Vec<Words> = all.iter().map(room).collect();
        let took_ns = target.messages(call, &all, &mut buffers)?;
        self.outcome.made(call.name(), took_ns);
        self.outcome.checked += 1;
        for (message, buffer) in all
            .iter()
            .zip(&buffers)
            .filter(|(message, _)| !message.sends)
        {
            let got =
                &bytemuck::cast_slice::<u64, u8>(buffer)[..message.count * message.dtype.size()];
            if let Some(difference) = first_difference(message.dtype, &content(message), got) {
                let (peer, number) = (message.peer, message.number);
                self.outcome.wrong(|| {
                    format!(
                        "message {number} of member {peer} on {} (call {}): {difference}",
                        comm.name(),
                        step.seq
                    )
                });
            }
        }
        Ok(())
    }
}

impl Outcome {
    fn made(&mut self, name: &str, took_ns: u64) {
        self.calls += 1;
        let sum = self.times_ns.entry(name.to_owned()).or_default();
        *sum = (sum.0 + 1, sum.1 + took_ns);
    }

    fn wrong(&mut self, text: impl FnOnce() -> String) {
        self.wrong += 1;
        self.first_wrong.get_or_insert_with(text);
    }
}

/// A collective on one member.
struct Shape<'a> {
    collective: Collective,
    dtype: DType,
    op: ReduceOp,
    root: usize,
    counts: &'a Counts,
    n: usize,
    me: usize,
    odd: bool,
}

impl Shape<'_> {
    fn pattern(&self) -> Pattern {
        self.collective.pattern().unwrap_or(Pattern::Barrier)
    }

    /// What this member sends to each other and receives from it, where lengths are splits.
    fn splits(&self) -> (Vec<usize>, Vec<usize>) {
        match self.counts {
            Counts::Splits(matrix) => (
                matrix[self.me].clone(),
                matrix.iter().map(|row| row[self.me]).collect(),
            ),
            Counts::Uniform(_) | Counts::Blocks(_) => (Vec::new(), Vec::new()),
        }
    }

    /// Elements of this member's send or receive buffer.
    fn elements(&self, sends: bool) -> usize {
        self.elements_of(self.me, sends)
    }

    fn elements_of(&self, member: usize, sends: bool) -> usize {
        if let Counts::Splits(matrix) = self.counts {
            return if sends {
                matrix[member].iter().sum()
            } else {
                matrix.iter().map(|row| row[member]).sum()
            };
        }
        let is_root = member == self.root;
        let pattern = self.pattern();
        // The one buffer counts as received, and the root has it too.
        let extent = if self.collective.has_one_buffer() {
            Extent::Vector
        } else if sends {
            pattern.send(is_root)
        } else {
            pattern.recv(is_root)
        };
        match (extent, self.counts) {
            (Extent::Nothing, _) => 0,
            (Extent::OwnBlock, Counts::Blocks(counts)) => counts[member],
            (Extent::AllBlocks, Counts::Blocks(counts)) => counts.iter().sum(),
            (Extent::AllBlocks, Counts::Uniform(count)) => count * self.n,
            (Extent::Vector | Extent::OwnBlock, Counts::Uniform(count)) => *count,
            (Extent::Vector, Counts::Blocks(_)) | (_, Counts::Splits(_)) => 0,
        }
    }

    /// What a member sends.
    fn input(&self, member: usize) -> Vec<u8> {
        let (rank, count) = (Rank::from_index(member), self.elements_of(member, true));
        let seed = u64::from(self.odd);
        if self.collective.reduces() {
            exact_inputs(self.dtype, self.op, rank, self.n, count, seed)
        } else {
            distinct_inputs(self.dtype, rank, count, seed)
        }
    }

    fn data(&self) -> Data {
        let sends = self.elements(true) > 0;
        let send = if sends {
            aligned(&self.input(self.me))
        } else {
            Vec::new()
        };
        let all: usize = (0..self.n)
            .map(|member| self.elements_of(member, true))
            .sum();
        let expected = (all <= CHECKED_MAX).then(|| self.expected());
        Data { send, expected }
    }

    /// What this member must receive.
    fn expected(&self) -> Vec<u8> {
        let (dtype, op, root) = (self.dtype, self.op, Rank::from_index(self.root));
        let inputs: Vec<Vec<u8>> = (0..self.n).map(|member| self.input(member)).collect();
        let list = || match self.counts {
            Counts::Blocks(counts) => counts.clone(),
            Counts::Uniform(_) | Counts::Splits(_) => Vec::new(),
        };
        let is_even = matches!(self.counts, Counts::Uniform(_));
        let mut all = match (self.pattern(), self.counts) {
            (Pattern::AllReduce, _) => reference::all_reduce(dtype, op, &inputs),
            (Pattern::Reduce, _) => reference::reduce(dtype, op, root, &inputs),
            (Pattern::Scan, _) => reference::scan(dtype, op, &inputs),
            (Pattern::ExclusiveScan, _) => reference::exclusive_scan(dtype, op, &inputs),
            (Pattern::ReduceScatter, _) if is_even => reference::reduce_scatter(dtype, op, &inputs),
            (Pattern::ReduceScatter, _) => reference::reduce_scatter_v(dtype, op, &list(), &inputs),
            (Pattern::AllGather, _) => reference::all_gather(&inputs),
            (Pattern::Gather, _) => reference::gather(root, &inputs),
            (Pattern::Broadcast, _) => reference::broadcast(root, &inputs),
            (Pattern::Scatter, _) if is_even => reference::scatter(dtype, root, &inputs),
            (Pattern::Scatter, _) => reference::scatter_v(dtype, root, &list(), &inputs),
            (Pattern::AllToAll, Counts::Splits(matrix)) => {
                reference::all_to_all_v(dtype, matrix, &inputs)
            }
            (Pattern::AllToAll, _) => reference::all_to_all(dtype, &inputs),
            (Pattern::Barrier, _) => vec![Vec::new(); self.n],
        };
        all.swap_remove(self.me)
    }
}
