//! The arbiter: gathers what all ranks say of themselves when one complains, has it judged, and tells
//! everybody the one verdict.
//!
//! It lives with the coordinator, on its thread. It has no clock and no sockets: time comes in as
//! milliseconds, acts go out, so the same machine runs under a simulator.
//!
//! - ARBITER-1: there is one first cause. What fails later because of it gets the same verdict.
//! - ARBITER-2: nobody is asked unless somebody complains; a healthy world costs nothing.
//! - ARBITER-3: time in which the arbiter itself did not run counts against nobody.
//! - ARBITER-4: silence proves nothing. Who does not answer is looked at; what can only be inferred from the absence of news is
//!   said when the state of every rank is known, or could not be learned for `UNKNOWN_WAIT_MS`.

mod cpu_history;
mod decide;
mod pending;
mod published;
mod round;
#[cfg(test)]
mod tests;
mod viewers;

use std::collections::{BTreeMap, BTreeSet};

use self::cpu_history::CpuHistory;
use self::pending::Held;
use self::published::Told;
pub(crate) use self::published::{covers, echo_ms, ends};
use self::round::{Round, Silence};
use self::viewers::Viewers;

use super::judge::{EndCause, Member, Scene};
use super::probe::{Probe as _, System};
use super::process::{self, Inside};
use super::report::Report;
use super::wire::{Cause, FromRank, ToOwner, ToRank, decode, encode};
use super::{bring_up, failure, suspect};
use crate::error::verdict::{CallId, Confidence};
use crate::rendezvous::{
    Act, Arbiter as Referee, Card, DownReason, Eyes, ProcessId, RendezvousError, Seen,
};
use crate::types::Rank;

/// Time that ranks get to answer before their processes are looked at. A rank that is only busy answers within a
/// millisecond or two: its session has a thread of its own.
const ROUND_MS: u64 = 100;
/// Pause between two rounds for the same waits.
const PAUSE_MS: u64 = 100;
/// A longer time between two turns means that the arbiter was stopped itself (ARBITER-3).
const GAP_MS: u64 = 400;
/// Turns after such a time in which nothing is decided: the first may have begun before it.
const UNREAD_TURNS: u32 = 2;
/// The same where the arbiter has nothing to do: turns are rare then.
const IDLE_GAP_MS: u64 = 1500;
/// How long after such a time calls end because of it, whose verdicts may wait for ranks of unknown state.
const SLEPT_MS: u64 = UNKNOWN_WAIT_MS + 2000;
/// How long a verdict that rests on the absence of news waits for ranks whose state is unknown. A connection to a host that
/// does not acknowledge what it is sent ends before that, and says more.
const UNKNOWN_WAIT_MS: u64 = 3500;
/// The same where somebody is able to look at those ranks: in a large world on a starved host a look at all of them takes long.
const LOOK_WAIT_MS: u64 = 30_000;
/// How long a verdict waits for ranks that are seen stopped, or that do not answer where a link to them broke: more may be known.
const STOPPED_WAIT_MS: u64 = 1500;
/// Ranks that end this soon after the first one, before anything is told, end by themselves: none has heard of another's end,
/// and their ends may be seen in another order than they came. A process needs a processor to end, so it is as many times
/// longer as threads want each processor.
const TOGETHER_MS: u64 = 20;
/// How many times longer at most.
const TOGETHER_CROWD_MAX: u64 = 16;

/// See the module.
#[derive(Debug, Default)]
pub struct Arbiter {
    scene: Scene,
    /// The processes of the ranks, by rank.
    processes: Vec<ProcessId>,
    /// How ranks in other PID namespaces are named; `None` under a simulator.
    inside: Option<fn(&Card) -> Option<Inside>>,
    /// Whether a process has ended or is about to; `None` under a simulator.
    is_ending: Option<fn(&ProcessId) -> bool>,
    /// How crowded this host is, where that is known.
    crowd: Option<fn() -> u64>,
    ending: Option<decide::Ending>,
    /// The process that it runs in.
    process: ProcessId,
    /// Turns until all is read that came while the arbiter did not run: ranks may have judged by themselves.
    unread_turns: u32,
    /// The end of the last time in which the arbiter did not run, and how long it was.
    slept: Option<(u64, u64)>,
    round: Option<Round>,
    asks: u64,
    /// When the next round is due.
    due_ms: Option<u64>,
    /// Calls that ended without what they waited for, and since when the arbiter has known it.
    overdue: BTreeMap<(u32, CallId), u64>,
    /// Errors that ranks met by themselves, until the boards that belong to them are there.
    failed: Vec<failure::Failed>,
    closed_ms: u64,
    seen_ms: u64,
    /// Ranks that do not answer.
    silences: BTreeMap<u32, Silence>,
    /// Ranks whose state a verdict waits for: they are looked at in each round.
    looked_at_first: BTreeSet<u32>,
    /// Processor time of each rank, as it says itself, and as others see it: they count other threads.
    cpu: Vec<[CpuHistory; 2]>,
    departures: u64,
    /// Until when ranks end together with the first one that did without a goodbye.
    together_ms: Option<u64>,
    again: u32,
    told: Vec<Told>,
    suspects: suspect::Suspects,
    /// Whether the process that runs the arbiter prints who is waited for, and not the rank that waits.
    tells_owner: bool,
    /// Verdicts that are about to be told.
    held: Vec<Held>,
    /// Who looks at ranks of other hosts; `None` where all ranks are on one host, and under a simulator.
    viewers: Option<Viewers>,
}

/// A new arbiter in a rank, for [`crate::rendezvous::CoordinatorOptions::arbiter`].
#[must_use]
pub fn arbiter() -> Box<dyn Referee> {
    Box::new(Arbiter::of_this_process())
}

/// A new arbiter in a launcher: the launcher prints who is waited for ([`ToOwner::Suspect`]), and ranks do not.
#[must_use]
pub fn arbiter_of_launcher() -> Box<dyn Referee> {
    Box::new(Arbiter {
        tells_owner: true,
        ..Arbiter::of_this_process()
    })
}

impl Referee for Arbiter {
    fn ready(&mut self, roster: &[Card]) {
        self.scene.members = roster
            .iter()
            .map(|card| Member {
                host: card.host.clone(),
                pid: card.process.pid,
                inside: self.inside.and_then(|inside| inside(card)),
                ..Member::default()
            })
            .collect();
        self.processes = roster.iter().map(|card| card.process).collect();
        self.viewers = self.inside.and_then(|_| Viewers::start(hosts(roster)?));
        self.cpu = vec![Default::default(); roster.len()];
    }

    fn failed(&mut self, error: &RendezvousError, at_unix_ms: u64) -> Vec<Act> {
        let verdict = Box::new(bring_up::verdict(error, at_unix_ms));
        vec![Act::Report(encode(&ToOwner::Verdict(verdict)))]
    }

    fn heard(&mut self, rank: Rank, bytes: &[u8], now_ms: u64) -> Vec<Act> {
        self.notice(now_ms);
        match decode::<FromRank>(bytes) {
            Some(FromRank::Answer { ask, report, looks }) => {
                self.answered(rank.0, ask, *report, looks, now_ms)
            }
            Some(FromRank::Complaint {
                call,
                cause,
                report,
            }) => self.complained(rank.0, call, cause, report, now_ms),
            Some(FromRank::Judged(verdict)) => self.adopt(*verdict),
            Some(FromRank::Leaves(report)) => {
                self.take_complaint(rank.0, *report);
                Vec::new()
            }
            Some(FromRank::Stack { functions }) => self.told_where(rank.0, &functions),
            Some(FromRank::Shown { round, job, report }) => {
                if let Some(viewers) = self.viewers.as_ref().filter(|_| report.rank == rank.0) {
                    viewers.take(round, job, *report);
                }
                Vec::new()
            }
            None => Vec::new(),
        }
    }

    fn looked(&mut self, rank: Rank, seen: &Seen, now_ms: u64) -> Vec<Act> {
        self.notice(now_ms);
        decode(&seen.bytes).map_or_else(Vec::new, |look| self.saw(rank.0, look, now_ms))
    }

    fn eyes(&self) -> Option<Eyes> {
        Some(Eyes {
            look: super::probe::look,
            post: super::peers::post,
            stopped: process::stopped,
        })
    }

    fn process(&self) -> ProcessId {
        self.process
    }

    fn down(&mut self, rank: Rank, reason: &DownReason, at_ms: u64) {
        for told in &mut self.told {
            told.note_end(rank.0, reason, &self.scene, at_ms);
        }
        let mut fate = failure::fate(reason, self.departures);
        let is_end = fate.cause != EndCause::Unknown || *reason == DownReason::Ended;
        if is_end && self.told.is_empty() {
            if *reason == DownReason::Ended && self.together_ms.is_some() {
                // A launcher may have ended it because of the first one.
                fate.confidence = Confidence::Likely;
            }
            let crowd = self.crowd;
            let window_ms = || at_ms + TOGETHER_MS * here(crowd).clamp(1, TOGETHER_CROWD_MAX);
            let together_ms = *self.together_ms.get_or_insert_with(window_ms);
            if at_ms <= together_ms && !is_broken_pipe(reason) {
                fate.cause = EndCause::Unprovoked;
            }
        }
        self.departed(rank, fate);
    }

    fn left(&mut self, rank: Rank) {
        let fate = failure::goodbye(self.departures);
        self.departed(rank, fate);
    }

    fn tick(&mut self, now_ms: u64) -> Vec<Act> {
        self.notice(now_ms);
        self.unread_turns = self.unread_turns.saturating_sub(1);
        let mut acts = self.go_on(now_ms);
        if let Some(viewers) = &self.viewers {
            let living = self.scene.members.iter();
            acts.extend(viewers.tick(living.filter(|member| member.fate.is_none()).count()));
        }
        acts
    }

    fn is_busy(&self) -> bool {
        self.round.is_some() || self.due_ms.is_some() || !self.held.is_empty()
    }
}

/// The host of each rank, by name and by number, where the ranks are on several hosts.
fn hosts(roster: &[Card]) -> Option<Vec<(String, u32)>> {
    let mut numbers: BTreeMap<&str, u32> = BTreeMap::new();
    let mut hosts = Vec::new();
    for card in roster {
        let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
        let number = *numbers.entry(&card.host_identity).or_insert(next);
        hosts.push((card.host.clone(), number));
    }
    (numbers.len() > 1).then_some(hosts)
}

/// How crowded this host is; zero where that is not known.
fn here(crowd: Option<fn() -> u64>) -> u64 {
    crowd.map_or(0, |crowd| crowd())
}

impl Arbiter {
    fn of_this_process() -> Self {
        Self {
            inside: Some(process::inside),
            is_ending: Some(process::is_ending),
            crowd: Some(|| System.crowd()),
            ..Self::in_process(process::own())
        }
    }

    /// An arbiter that runs in the process with this identity.
    pub(crate) fn in_process(process: ProcessId) -> Self {
        Self {
            process,
            ..Self::default()
        }
    }

    /// Does what is due.
    fn go_on(&mut self, now_ms: u64) -> Vec<Act> {
        let mut acts = self.release();
        if self.round.is_some() {
            acts.extend(self.turn(now_ms));
        } else if self.due_ms.is_some_and(|due| due <= now_ms) {
            acts.extend(self.open(now_ms));
        }
        acts
    }

    /// Takes note of the time (ARBITER-3).
    fn notice(&mut self, now_ms: u64) {
        let gap_ms = now_ms.saturating_sub(self.seen_ms);
        let was_busy = self.is_busy();
        if gap_ms > if was_busy { GAP_MS } else { IDLE_GAP_MS } && !self.has_threads() {
            self.slept = Some((now_ms, gap_ms));
            if self.unread_turns == 0 {
                self.unread_turns = UNREAD_TURNS;
            }
        }
        if was_busy && gap_ms > GAP_MS {
            self.silences.clear();
            if let Some(round) = &mut self.round {
                round.begin_anew(now_ms);
            }
            for since_ms in self.overdue.values_mut() {
                *since_ms += gap_ms;
            }
            for failed in &mut self.failed {
                failed.since_ms += gap_ms;
            }
        }
        self.seen_ms = now_ms;
    }

    /// Whether ranks are threads of the process of the arbiter, which they call themselves.
    fn has_threads(&self) -> bool {
        let mut own = self.processes.iter().filter(|one| **one == self.process);
        own.nth(1).is_some()
    }

    /// A rank that serves the rendezvous and did not run until a moment ago: which, and for how long.
    fn own_sleep(&self, now_ms: u64) -> Option<(u32, u64)> {
        let (woke_ms, slept_ms) = self.slept?;
        let mut processes = (0..).zip(&self.processes);
        let (own, _) = processes.find(|(_, process)| **process == self.process)?;
        (now_ms <= woke_ms + SLEPT_MS).then_some((own, slept_ms))
    }

    fn departed(&mut self, rank: Rank, fate: super::judge::Fate) {
        self.departures += 1;
        self.silences.remove(&rank.0);
        if let Some(member) = self.scene.members.get_mut(rank.index()) {
            member.fate.get_or_insert(fate);
        }
    }

    /// A round is due at this time, or earlier.
    fn due_at(&mut self, at_ms: u64) {
        self.due_ms = Some(self.due_ms.map_or(at_ms, |known| known.min(at_ms)));
    }

    fn complained(
        &mut self,
        rank: u32,
        call: CallId,
        cause: Cause,
        report: Option<Box<Report>>,
        now_ms: u64,
    ) -> Vec<Act> {
        if let Some(report) = report {
            self.take_complaint(rank, *report);
        }
        let mut told = self.told.iter_mut();
        if let Some(told) = told.find(|told| covers(&told.verdict, call)) {
            told.note_told(rank, &self.scene, now_ms);
            let message = || ToRank::Verdict(Box::new(told.verdict.clone()));
            let wants_it = cause != Cause::Told;
            let answer = wants_it.then(|| Act::Tell(Rank(rank), encode(&message())));
            return answer.into_iter().collect();
        }
        match cause {
            // Who gave it up has complained before.
            Cause::GivenUp | Cause::Told => {}
            // Those who have just been looked at can wait a little.
            Cause::Waits => self.due_at(now_ms.max(self.closed_ms + PAUSE_MS)),
            Cause::InVain => {
                self.overdue.entry((rank, call)).or_insert(now_ms);
                self.due_at(now_ms);
            }
            Cause::Failed {
                kind,
                usable,
                culprit,
            } => {
                self.failed.push(failure::Failed {
                    rank,
                    call,
                    kind,
                    usable,
                    culprit,
                    looks: 0,
                    since_ms: now_ms,
                });
                self.due_at(now_ms);
            }
        }
        self.go_on(now_ms)
    }
}

/// Whether a rank wrote to another one that had ended.
const fn is_broken_pipe(reason: &DownReason) -> bool {
    matches!(reason, DownReason::Killed { signal: 13 })
}
