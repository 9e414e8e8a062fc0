//! Which send meets which receive, and in which order rounds can be run at all.
//!
//! Pure: it follows PLAN-2 and PLAN-3 and tells an [`Observer`] what happens. The checker and the
//! cost model are observers.

use std::collections::BTreeMap;

use super::plan::{Links, Plan, Step};

/// The place of a step: on which rank, in which round, which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct At {
    /// Round, counted from 0. First, so that places sort by round.
    pub round: usize,
    /// Rank.
    pub rank: usize,
    /// Step within the round, counted from 0.
    pub step: usize,
}

/// For every message step, the step at the other end.
#[derive(Debug)]
pub(super) struct Matching {
    /// A rank's steps are numbered through; here is where each round starts.
    starts: Vec<Vec<usize>>,
    partners: Vec<Vec<Option<At>>>,
    /// Number of messages.
    pub(super) messages: usize,
    /// Number of elements in all messages.
    pub(super) elements: usize,
}

/// A message that does not fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mismatch {
    /// A receive of another length than the send that it meets.
    Lengths {
        send: At,
        recv: At,
        sent: usize,
        received: usize,
    },
    /// A receive that no send meets.
    NoSend { recv: At, from: usize },
    /// A send that no receive meets.
    NoRecv { send: At, to: usize },
}

impl Mismatch {
    /// The place that is named first.
    fn at(&self) -> At {
        match self {
            Self::Lengths { recv, .. } | Self::NoSend { recv, .. } => *recv,
            Self::NoRecv { send, .. } => *send,
        }
    }
}

/// One end of a message.
#[derive(Clone, Copy, Debug)]
struct End {
    at: At,
    len: usize,
}

impl Matching {
    /// Matches the messages of all plans.
    ///
    /// # Errors
    /// The earliest [`Mismatch`].
    pub(super) fn of(plans: &[Plan]) -> Result<Self, Mismatch> {
        let mut pairs: BTreeMap<(usize, usize), (Vec<End>, Vec<End>)> = BTreeMap::new();
        for (at, step) in all_steps(plans) {
            match step {
                Step::Send { to, src } => {
                    let end = End { at, len: src.len };
                    pairs.entry((at.rank, *to)).or_default().0.push(end);
                }
                Step::Recv { from, dst } | Step::RecvReduce { from, dst, .. } => {
                    let end = End { at, len: dst.len };
                    pairs.entry((*from, at.rank)).or_default().1.push(end);
                }
                Step::Copy { .. }
                | Step::Expose { .. }
                | Step::Pull { .. }
                | Step::PullReduce { .. }
                | Step::Reduce { .. } => {}
            }
        }
        let earliest = pairs
            .iter()
            .filter_map(|((from, to), (sends, recvs))| mismatch(*from, *to, sends, recvs))
            .min_by_key(Mismatch::at);
        if let Some(mismatch) = earliest {
            return Err(mismatch);
        }
        let mut matching = Self::unmatched(plans);
        for (sends, recvs) in pairs.into_values() {
            for (send, recv) in sends.into_iter().zip(recvs) {
                *matching.slot(send.at) = Some(recv.at);
                *matching.slot(recv.at) = Some(send.at);
                matching.messages += 1;
                matching.elements += send.len;
            }
        }
        Ok(matching)
    }

    /// The step at the other end of a message step.
    pub(super) fn partner(&self, at: At) -> Option<At> {
        self.partners[at.rank][self.starts[at.rank][at.round] + at.step]
    }

    fn slot(&mut self, at: At) -> &mut Option<At> {
        &mut self.partners[at.rank][self.starts[at.rank][at.round] + at.step]
    }

    fn unmatched(plans: &[Plan]) -> Self {
        let mut starts = Vec::with_capacity(plans.len());
        let mut partners = Vec::with_capacity(plans.len());
        for plan in plans {
            let mut steps = 0;
            let mut of_rank = Vec::with_capacity(plan.rounds.len());
            for round in &plan.rounds {
                of_rank.push(steps);
                steps += round.steps.len();
            }
            starts.push(of_rank);
            partners.push(vec![None; steps]);
        }
        Self {
            starts,
            partners,
            messages: 0,
            elements: 0,
        }
    }
}

/// Every step of every plan with its place.
pub(super) fn all_steps(plans: &[Plan]) -> impl Iterator<Item = (At, &Step)> {
    plans.iter().enumerate().flat_map(|(rank, plan)| {
        plan.rounds
            .iter()
            .enumerate()
            .flat_map(move |(round, steps)| {
                steps
                    .steps
                    .iter()
                    .enumerate()
                    .map(move |(step, what)| (At { round, rank, step }, what))
            })
    })
}

/// What is wrong between one sender and one receiver.
///
/// Where one end has more messages than the other, the extra one is best guessed from the rounds:
/// good plans keep them aligned, so the first message whose ends lie in different rounds is it.
fn mismatch(from: usize, to: usize, sends: &[End], recvs: &[End]) -> Option<Mismatch> {
    if sends.len() != recvs.len() {
        let both = sends.len().min(recvs.len());
        let aligned = (0..both)
            .find(|i| sends[*i].at.round != recvs[*i].at.round)
            .unwrap_or(both);
        let extra_send = sends.len() > recvs.len();
        let extra = if extra_send { sends } else { recvs }[aligned].at;
        return Some(if extra_send {
            Mismatch::NoRecv { send: extra, to }
        } else {
            Mismatch::NoSend { recv: extra, from }
        });
    }
    sends
        .iter()
        .zip(recvs)
        .find(|(send, recv)| send.len != recv.len)
        .map(|(send, recv)| Mismatch::Lengths {
            send: send.at,
            recv: recv.at,
            sent: send.len,
            received: recv.len,
        })
}

/// Told what happens while plans run.
pub(super) trait Observer {
    /// What may be found to be wrong.
    type Error;

    /// A rank begins a round.
    fn enter(&mut self, rank: usize, round: usize) -> Result<(), Self::Error>;

    /// A message passes; both ranks are in the rounds of its ends.
    fn message(&mut self, send: At, recv: At) -> Result<(), Self::Error>;

    /// A rank has completed a round.
    fn complete(&mut self, rank: usize, round: usize) -> Result<(), Self::Error>;

    /// Every rank has completed the round, and learns that of the others.
    fn barrier(&mut self, round: usize);
}

/// Why plans do not run to their end.
#[derive(Debug)]
pub(super) enum Stop<E> {
    /// Nobody can go on; who waits where for whom, from one rank along the chain.
    Deadlock(Vec<Wait>),
    /// The observer found something.
    Observed(E),
}

/// A step that waits for a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wait {
    /// The step that cannot go on.
    pub at: At,
    /// The peer that it waits for.
    pub peer: usize,
}

/// Runs the plans in one of the orders that rendezvous semantics allow. All allowed orders do the
/// same, because a rank's rounds and a pair's messages are in order.
///
/// # Errors
/// [`Stop`], where the plans cannot all run to their end, or the observer objects.
pub(super) fn run<O: Observer>(
    plans: &[Plan],
    matching: &Matching,
    observer: &mut O,
) -> Result<(), Stop<O::Error>> {
    let mut run = Run {
        plans,
        matching,
        observer,
        state: vec![State::default(); plans.len()],
        completed: Vec::new(),
    };
    let direct = plans.iter().any(|plan| plan.links == Links::Direct);
    let done = if direct { run.in_step() } else { run.freely() };
    done.map_err(Stop::Observed)?;
    match run.chain_of_waits() {
        Some(chain) => Err(Stop::Deadlock(chain)),
        None => Ok(()),
    }
}

/// How far one rank is.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// The round that the rank is in, or would be in next.
    round: usize,
    entered: bool,
    /// Messages of the round that have not passed.
    pending: usize,
}

struct Run<'a, O> {
    plans: &'a [Plan],
    matching: &'a Matching,
    observer: &'a mut O,
    state: Vec<State>,
    /// Ranks whose round has nothing left to do.
    completed: Vec<usize>,
}

impl<O: Observer> Run<'_, O> {
    /// Message plans: each rank goes on as soon as it can.
    fn freely(&mut self) -> Result<(), O::Error> {
        for rank in 0..self.plans.len() {
            self.enter(rank)?;
            while let Some(rank) = self.completed.pop() {
                self.complete(rank)?;
                self.enter(rank)?;
            }
        }
        Ok(())
    }

    /// Direct plans: all ranks begin a round together.
    fn in_step(&mut self) -> Result<(), O::Error> {
        let rounds = self.plans.first().map_or(0, |plan| plan.rounds.len());
        for round in 0..rounds {
            for rank in 0..self.plans.len() {
                self.enter(rank)?;
            }
            let completed = std::mem::take(&mut self.completed);
            let all = completed.len() == self.plans.len();
            for rank in completed {
                self.complete(rank)?;
            }
            if !all {
                break;
            }
            self.observer.barrier(round);
        }
        Ok(())
    }

    fn enter(&mut self, rank: usize) -> Result<(), O::Error> {
        let round = self.state[rank].round;
        let Some(steps) = self.plans[rank].rounds.get(round) else {
            return Ok(());
        };
        self.observer.enter(rank, round)?;
        self.state[rank].entered = true;
        let places = (0..steps.steps.len()).map(|step| At { round, rank, step });
        let messages: Vec<(At, At)> = places
            .filter_map(|at| Some((at, self.matching.partner(at)?)))
            .collect();
        self.state[rank].pending = messages.len();
        if messages.is_empty() {
            self.completed.push(rank);
        }
        for (at, partner) in messages {
            let peer = self.state[partner.rank];
            if !peer.entered || peer.round != partner.round {
                continue;
            }
            let is_send = matches!(steps.steps[at.step], Step::Send { .. });
            let (send, recv) = if is_send {
                (at, partner)
            } else {
                (partner, at)
            };
            self.observer.message(send, recv)?;
            self.passed(rank);
            self.passed(partner.rank);
        }
        Ok(())
    }

    fn passed(&mut self, rank: usize) {
        self.state[rank].pending -= 1;
        if self.state[rank].pending == 0 {
            self.completed.push(rank);
        }
    }

    fn complete(&mut self, rank: usize) -> Result<(), O::Error> {
        let state = &mut self.state[rank];
        let round = state.round;
        state.round += 1;
        state.entered = false;
        self.observer.complete(rank, round)
    }

    /// Who waits for whom, from the earliest round that is stuck; none where all is done.
    fn chain_of_waits(&self) -> Option<Vec<Wait>> {
        let mut rank = (0..self.plans.len())
            .filter(|rank| self.state[*rank].pending > 0)
            .min_by_key(|rank| (self.state[*rank].round, *rank))?;
        let mut chain: Vec<Wait> = Vec::new();
        while chain.iter().all(|wait| wait.at.rank != rank) {
            let Some(wait) = self.first_wait(rank) else {
                break;
            };
            chain.push(wait);
            rank = wait.peer;
        }
        Some(chain)
    }

    fn first_wait(&self, rank: usize) -> Option<Wait> {
        let State { round, entered, .. } = self.state[rank];
        let steps = self.plans[rank].rounds.get(round).filter(|_| entered)?;
        (0..steps.steps.len())
            .map(|step| At { round, rank, step })
            .filter_map(|at| Some((at, self.matching.partner(at)?)))
            .find(|(_, partner)| {
                let peer = self.state[partner.rank];
                (peer.round, peer.entered) < (partner.round, true)
            })
            .map(|(at, partner)| Wait {
                at,
                peer: partner.rank,
            })
    }
}
