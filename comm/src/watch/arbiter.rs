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
mod held;
mod round;
#[cfg(test)]
mod tests;
mod told;

use std::collections::BTreeMap;

use self::cpu_history::CpuHistory;
use self::held::Held;
use self::round::{Round, Silence};
use self::told::Told;
pub(crate) use self::told::{ECHO_MS, covers, ends};

use super::judge::{Finding, Member, Question, Scene, judge};
use super::process::{self, Inside};
use super::report::Report;
use super::wire::{Cause, FromRank, ToOwner, ToRank, decode, encode};
use super::{bring_up, failure, mismatch, suspect};
use crate::error::ErrorKind;
use crate::error::verdict::{CallId, Class, Verdict};
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
/// Rounds one after the other that look at a circle once more.
const AGAIN_MAX: u32 = 20;
/// Least pause before such a look.
const AGAIN_PAUSE_MS: u64 = 5;
/// How long a verdict that rests on the absence of news waits for ranks whose state is unknown. A connection to a host that
/// does not acknowledge what it is sent ends before that, and says more.
const UNKNOWN_WAIT_MS: u64 = 3500;
/// How long a verdict waits for ranks that are seen stopped, or that do not answer where a link to them broke: more may be known.
const STOPPED_WAIT_MS: u64 = 1500;
/// Rounds in which a mismatch waits for ranks that have not come to the call.
const LOOKS_MAX: u32 = 3;
/// Pause between them.
const LOOK_PAUSE_MS: u64 = 40;
/// How long a call that no board shows is looked for: a thread that gets no processor may be writing the line.
const UNREADABLE_WAIT_MS: u64 = 500;
/// Ranks that end this soon after the first one, before anything is told, end by themselves: none has heard of another's end.
const TOGETHER_MS: u64 = 20;
/// How long a message that was never received is left to ranks that wait in calls of its group: what they wait for says more.
const LEFT_TO_WAITERS_MS: u64 = 250;

/// See the module.
#[derive(Debug, Default)]
pub struct Arbiter {
    scene: Scene,
    /// The processes of the ranks, by rank.
    processes: Vec<ProcessId>,
    /// How ranks in other PID namespaces are named; `None` under a simulator.
    inside: Option<fn(&Card) -> Option<Inside>>,
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
    /// Processor time of each rank, as it says itself, and as others see it: they count other threads.
    cpu: Vec<[CpuHistory; 2]>,
    departures: u64,
    /// When the first rank ended without a goodbye that nobody saw end.
    first_end_ms: Option<u64>,
    again: u32,
    told: Vec<Told>,
    suspects: suspect::Suspects,
    /// Verdicts that are about to be told.
    held: Vec<Held>,
}

/// A new arbiter, for [`crate::rendezvous::CoordinatorOptions::arbiter`].
#[must_use]
pub fn arbiter() -> Box<dyn Referee> {
    Box::new(Arbiter {
        inside: Some(process::inside),
        ..Arbiter::in_process(process::own())
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
            Some(FromRank::Stack { functions }) => self.told_where(rank.0, &functions),
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

    fn down(&mut self, rank: Rank, reason: &DownReason) {
        let mut fate = failure::fate(reason, self.departures);
        if *reason == DownReason::Ended && self.told.is_empty() {
            let first_ms = *self.first_end_ms.get_or_insert(self.seen_ms);
            fate.is_unprovoked |= self.seen_ms <= first_ms + TOGETHER_MS;
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
        self.go_on(now_ms)
    }

    fn is_busy(&self) -> bool {
        self.round.is_some() || self.due_ms.is_some() || !self.held.is_empty()
    }
}

impl Arbiter {
    /// An arbiter that runs in this process.
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
        let known = self.told.iter().find(|told| covers(&told.verdict, call));
        if let Some(told) = known {
            let message = ToRank::Verdict(Box::new(told.verdict.clone()));
            return vec![Act::Tell(Rank(rank), encode(&message))];
        }
        if let Some(report) = report {
            self.take_complaint(rank, *report);
        }
        match cause {
            // Who gave it up has complained before.
            Cause::GivenUp => {}
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

    /// Judges what a round has shown.
    fn decide(&mut self, now_ms: u64) -> Vec<Act> {
        let mut acts = Vec::new();
        for failed in std::mem::take(&mut self.failed) {
            if let Some(verdict) = self.decide_failed(failed, now_ms) {
                acts.extend(self.publish(verdict, &[]));
            }
        }
        acts.extend(self.compare());
        let overdue = std::mem::take(&mut self.overdue);
        let is_overdue = !overdue.is_empty();
        for ((rank, call), since_ms) in overdue {
            let is_gone = self.scene.member(rank).is_none_or(|one| one.fate.is_some());
            if !self.is_known(call) && !is_gone {
                acts.extend(self.decide_overdue(rank, call, since_ms, now_ms));
            }
        }
        if !is_overdue {
            acts.extend(self.decide_waiting(now_ms));
        }
        acts.extend(self.remark(now_ms));
        acts
    }

    /// The verdict on an error that a rank met itself; `None` where it is told already, or more must be known first.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "all other errors are what they are at once"
    )]
    fn decide_failed(&mut self, mut failed: failure::Failed, now_ms: u64) -> Option<Verdict> {
        if self.is_known(failed.call) {
            return None;
        }
        if failure::is_left_to_waiters(&self.scene, &failed) {
            // They may be through in a moment, and then nobody else tells of it.
            if now_ms < failed.since_ms + LEFT_TO_WAITERS_MS {
                self.due_at(now_ms + LOOK_PAUSE_MS);
                self.failed.push(failed);
            }
            return None;
        }
        failed.looks += 1;
        let pause_ms = match &failed.kind {
            // Who comes to the call in a moment belongs to one of the sides. Where ranks compare their entries all have
            // come, and only their boards are late.
            ErrorKind::Mismatch { .. }
                if failed.looks < LOOKS_MAX
                    && failed.culprit.is_none()
                    && mismatch::is_incomplete(&self.scene, failed.call) =>
            {
                if failed.usable {
                    AGAIN_PAUSE_MS
                } else {
                    LOOK_PAUSE_MS
                }
            }
            // A link ends where its other side does, and that news may be late.
            ErrorKind::Transport { peer, .. }
                if self.is_unknown(peer.0) && now_ms < failed.since_ms + UNKNOWN_WAIT_MS
                    || self.silences.contains_key(&peer.0)
                        && now_ms < failed.since_ms + STOPPED_WAIT_MS =>
            {
                PAUSE_MS
            }
            _ => return Some(failure::verdict(&self.scene, &failed)),
        };
        self.due_at(now_ms + pause_ms);
        self.failed.push(failed);
        None
    }

    fn is_known(&self, call: CallId) -> bool {
        let told = self.told.iter().map(|told| &told.verdict);
        let held = self.held.iter().map(|held| &held.verdict);
        told.chain(held).any(|verdict| covers(verdict, call))
    }

    /// Calls that wait for each other and differ, which the ranks could not see themselves: over
    /// messages each sees only who sends to it.
    fn compare(&mut self) -> Vec<Act> {
        let Some((rank, call, found)) = mismatch::find(&self.scene) else {
            return Vec::new();
        };
        let is_told = self.failed.iter().any(|failed| failed.call == call);
        if is_told || self.is_known(call) {
            return Vec::new();
        }
        let verdict = failure::compared(&self.scene, rank, call, found, false);
        self.publish(verdict, &[rank])
    }

    fn decide_waiting(&mut self, now_ms: u64) -> Vec<Act> {
        match self.judge(Question::Waiting, now_ms) {
            Some(verdict) if self.may_find_more_stopped(&verdict) => {
                self.due_at(now_ms + PAUSE_MS);
                Vec::new()
            }
            Some(verdict) => self.publish(verdict, &[]),
            None => Vec::new(),
        }
    }

    /// Decides about a call that ended without what it waited for, or keeps it for the next round.
    fn decide_overdue(&mut self, rank: u32, call: CallId, since_ms: u64, now_ms: u64) -> Vec<Act> {
        let Some(mut verdict) = self.judge(Question::Overdue { rank, call }, now_ms) else {
            return Vec::new();
        };
        let age_ms = now_ms.saturating_sub(since_ms);
        let rests_on_absence = matches!(verdict.kind, ErrorKind::Stalled { .. })
            && !matches!(verdict.class, Class::PeerFrozen | Class::Deadlock);
        let is_unreadable = verdict.class == Class::Internal && age_ms < UNREADABLE_WAIT_MS;
        let must_wait = is_unreadable
            || rests_on_absence && age_ms < UNKNOWN_WAIT_MS && self.is_any_unknown()
            || verdict.class == Class::PeerDead
                && age_ms < STOPPED_WAIT_MS
                && self.is_any_just_stopped();
        if must_wait {
            self.overdue.insert((rank, call), since_ms);
            self.due_at(now_ms + PAUSE_MS);
            return Vec::new();
        }
        if verdict.class == Class::Link
            && let Some((own, slept_ms)) = self.own_sleep(now_ms)
            && verdict.blamed.contains(&own)
        {
            // It came to the call when it ran again, and so late.
            verdict = failure::slept(&self.scene, own, slept_ms, verdict);
        }
        // Whoever asked gets an answer, whatever the rest of the scene showed.
        if !verdict.ends.contains(&call) {
            verdict.ends.push(call);
        }
        self.publish_with_stacks(verdict, call, rank)
    }

    fn judge(&mut self, question: Question, now_ms: u64) -> Option<Verdict> {
        let finding = judge(&self.scene, question);
        if let Finding::Again(wait_ms) = finding
            && self.again < AGAIN_MAX
        {
            self.again += 1;
            self.due_at(now_ms + wait_ms.max(AGAIN_PAUSE_MS));
        } else {
            self.again = 0;
        }
        match finding {
            Finding::Verdict(verdict) => Some(self.differing(&verdict).unwrap_or(*verdict)),
            Finding::Again(_) | Finding::Nothing => None,
        }
    }

    /// The verdict on calls that differ, where that is why others wait in vain: ranks in one call that the last one has not
    /// come to, or an earlier call of the group that nobody had to wait in.
    fn differing(&self, verdict: &Verdict) -> Option<Verdict> {
        let is_inferred = matches!(
            verdict.class,
            Class::Deadlock | Class::Internal | Class::Link | Class::NotJoined
        );
        if !is_inferred {
            return None;
        }
        let found = verdict
            .ends
            .iter()
            .find_map(|call| mismatch::earliest(&self.scene, *call, call.seq));
        let (call, found) = found?;
        let mut differs = failure::compared(&self.scene, 0, call, found, false);
        differs.ends.extend(&verdict.ends);
        Some(differs)
    }

    /// Says who is waited for, or that a host is starved, before anything has failed.
    fn remark(&mut self, now_ms: u64) -> Vec<Act> {
        let Some(remark) = self.suspects.look(&self.scene, now_ms) else {
            return Vec::new();
        };
        let suspected = |one: &u32| Act::Tell(Rank(*one), encode(&ToRank::Suspected));
        let mut acts: Vec<Act> = remark.suspects.iter().map(suspected).collect();
        let line = remark.line;
        acts.push(Act::Report(encode(&ToOwner::Suspect(line.clone()))));
        let message = encode(&ToRank::Suspect { line });
        acts.push(Act::Tell(Rank(remark.told_to), message));
        acts
    }
}
