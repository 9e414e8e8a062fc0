//! The arbiter: gathers what all ranks say of themselves when one complains, has it judged, and tells
//! everybody the one verdict.
//!
//! It lives with the coordinator, on its thread. It has no clock and no sockets: time comes in as
//! milliseconds, acts go out, so the same machine runs under a simulator.
//!
//! - ARBITER-1: there is one first cause. What fails later because of it gets the same verdict.
//! - ARBITER-2: nobody is asked unless somebody complains; a healthy world costs nothing.
//! - ARBITER-3: time in which the arbiter itself did not run counts against nobody.

mod eyes;
mod held;
mod looks;
mod told;

use std::collections::{BTreeMap, BTreeSet};

use self::eyes::Eyes;
use self::held::Held;
use self::told::Told;

use super::judge::{Fate, Finding, Member, Question, Scene, judge};
use super::report::Report;
use super::verdict::{CallId, Verdict};
use super::wire::{Cause, FromRank, Look, ToOwner, ToRank, decode, encode};
use super::{bring_up, failure, mismatch, suspect};
use crate::error::ErrorKind;
use crate::rendezvous::{Act, Arbiter as Referee, Card, DownReason, ProcessId, RendezvousError};
use crate::types::Rank;

/// Time that ranks get to answer. A rank that is only busy answers within a millisecond or two: its
/// session has a thread of its own.
const ROUND_MS: u64 = 100;
/// Pause between two rounds for the same waits.
const PAUSE_MS: u64 = 100;
/// A longer time between two turns means that the arbiter was stopped itself (ARBITER-3).
const GAP_MS: u64 = 400;
/// Rounds one after the other that look at a circle once more.
const AGAIN_MAX: u32 = 20;
/// Least pause before such a look.
const AGAIN_PAUSE_MS: u64 = 5;
/// Rounds that are held again for ranks that do not answer, before a call whose time is up gets its verdict:
/// it waits a second for that.
const RETRIES_MAX: u32 = 3;
/// Rounds in which a mismatch waits for ranks that have not come to the call.
const LOOKS_MAX: u32 = 3;
/// Pause between them.
const LOOK_PAUSE_MS: u64 = 40;

/// See the module.
#[derive(Debug, Default)]
pub struct Arbiter {
    scene: Scene,
    /// The processes of the ranks, by rank.
    processes: Vec<ProcessId>,
    /// How the process of the arbiter looks at others itself; `None` under a simulator.
    eyes: Option<Eyes>,
    round: Option<Round>,
    asks: u64,
    /// When the next round is due, and for what.
    due_ms: Option<u64>,
    overdue: BTreeSet<(u32, CallId)>,
    /// Errors that ranks met by themselves, until the boards that belong to them are there.
    failed: Vec<failure::Failed>,
    closed_ms: u64,
    seen_ms: u64,
    /// Since when each silent rank has not answered.
    silent_since: BTreeMap<u32, u64>,
    departures: u64,
    again: u32,
    /// Rounds that have been held again because of ranks that did not answer.
    retries: u32,
    /// Rounds that have been held again because a board could not be read.
    blanks: u32,
    told: Vec<Told>,
    suspects: suspect::Suspects,
    /// Verdicts that are about to be told.
    held: Vec<Held>,
}

#[derive(Debug)]
struct Round {
    ask: u64,
    began_ms: u64,
    answered: BTreeSet<u32>,
}

/// A new arbiter, for [`crate::rendezvous::CoordinatorOptions::arbiter`].
#[must_use]
pub fn arbiter() -> Box<dyn Referee> {
    Box::new(Arbiter {
        eyes: Some(Eyes::own()),
        ..Arbiter::default()
    })
}

impl Referee for Arbiter {
    fn ready(&mut self, roster: &[Card]) {
        self.scene.members = roster
            .iter()
            .map(|card| Member {
                host: card.host.clone(),
                pid: card.process.pid,
                inside: self.eyes.as_ref().and_then(|eyes| eyes.inside(card)),
                ..Member::default()
            })
            .collect();
        self.processes = roster.iter().map(|card| card.process).collect();
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
            Some(FromRank::Complaint { call, cause }) => {
                self.complained(rank.0, call, cause, now_ms)
            }
            Some(FromRank::Stack { functions }) => self.told_where(rank.0, &functions),
            None => Vec::new(),
        }
    }

    fn down(&mut self, rank: Rank, reason: &DownReason) {
        let fate = Fate {
            how: failure::how(reason),
            orderly: false,
            order: self.departures,
            hint: failure::hint(reason).to_owned(),
        };
        self.departed(rank, fate);
    }

    fn left(&mut self, rank: Rank) {
        let fate = Fate {
            how: "left the world".to_owned(),
            orderly: true,
            order: self.departures,
            hint: String::new(),
        };
        self.departed(rank, fate);
    }

    fn tick(&mut self, now_ms: u64) -> Vec<Act> {
        self.notice(now_ms);
        let mut acts = self.release();
        if let Some(round) = &self.round {
            let is_over = now_ms.saturating_sub(round.began_ms) >= ROUND_MS || self.is_complete();
            if is_over {
                acts.extend(self.close(now_ms));
            }
        } else if self.due_ms.is_some_and(|due| due <= now_ms) {
            acts.extend(self.open(now_ms));
        }
        acts
    }

    fn is_busy(&self) -> bool {
        self.round.is_some() || self.due_ms.is_some() || !self.held.is_empty()
    }
}

impl Arbiter {
    /// Takes note of the time (ARBITER-3).
    fn notice(&mut self, now_ms: u64) {
        let was_awake = self.round.is_some() || self.due_ms.is_some();
        if was_awake && now_ms.saturating_sub(self.seen_ms) > GAP_MS {
            self.silent_since.clear();
            if let Some(round) = &mut self.round {
                round.began_ms = now_ms;
            }
        }
        self.seen_ms = now_ms;
    }

    fn departed(&mut self, rank: Rank, fate: Fate) {
        self.departures += 1;
        if let Some(member) = self.scene.members.get_mut(rank.index()) {
            member.fate.get_or_insert(fate);
        }
    }

    fn complained(&mut self, rank: u32, call: CallId, cause: Cause, now_ms: u64) -> Vec<Act> {
        let known = self.told.iter().find(|told| covers(&told.verdict, call));
        if let Some(told) = known {
            let message = ToRank::Verdict(Box::new(told.verdict.clone()));
            return vec![Act::Tell(Rank(rank), encode(&message))];
        }
        let has_ended = cause != Cause::Waits;
        let is_own = matches!(cause, Cause::Failed { .. });
        match cause {
            Cause::Waits => {
                // Those who have just been looked at can wait a little.
                let due = now_ms.max(self.closed_ms + PAUSE_MS);
                self.due_ms = Some(self.due_ms.map_or(due, |known| known.min(due)));
            }
            Cause::InVain => {
                self.overdue.insert((rank, call));
                self.due_ms = Some(now_ms);
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
                });
                self.due_ms = Some(now_ms);
            }
        }
        let round = self.round.as_ref();
        let has_answered = round.is_some_and(|round| round.answered.contains(&rank));
        if has_ended && has_answered && !self.shows_the_end_of(rank, call, is_own) {
            // What the rank answered is older than the end that it complains of.
            return self.open(now_ms);
        }
        self.tick(now_ms)
    }

    /// Whether what this rank answered has all that its complaint about a call rests on: of an error of its
    /// own that it has come to the call.
    fn shows_the_end_of(&self, rank: u32, call: CallId, is_own: bool) -> bool {
        let report = self.scene.member(rank).and_then(|one| one.report.as_ref());
        let group = report.and_then(|report| report.group(call.key));
        let under_way = group.and_then(|group| group.call.as_ref());
        is_own && under_way.is_some_and(|one| one.seq == call.seq)
    }

    fn open(&mut self, now_ms: u64) -> Vec<Act> {
        self.due_ms = None;
        self.asks += 1;
        self.round = Some(Round {
            ask: self.asks,
            began_ms: now_ms,
            answered: BTreeSet::new(),
        });
        let mut looks = self.looks();
        let present = (0_u32..)
            .zip(&self.scene.members)
            .filter(|(_, member)| member.fate.is_none());
        let ask = self.asks;
        present
            .map(|(rank, _)| {
                let look = looks.remove(&rank).unwrap_or_default();
                Act::Tell(Rank(rank), encode(&ToRank::Ask { ask, look }))
            })
            .collect()
    }

    fn answered(
        &mut self,
        rank: u32,
        ask: u64,
        report: Report,
        looks: Vec<Look>,
        now_ms: u64,
    ) -> Vec<Act> {
        self.silent_since.remove(&rank);
        let Some(member) = self.scene.members.get_mut(rank as usize) else {
            return Vec::new();
        };
        member.silent_ms = 0;
        member.process = None;
        let is_current = self
            .round
            .as_mut()
            .is_some_and(|round| round.ask == ask && round.answered.insert(rank));
        if !is_current {
            return Vec::new();
        }
        member.before = member.report.replace(report);
        for look in looks {
            if let Some(other) = self.scene.members.get_mut(look.rank as usize)
                && self.silent_since.contains_key(&look.rank)
            {
                other.take_look(look);
            }
        }
        if self.is_complete() {
            self.close(now_ms)
        } else {
            Vec::new()
        }
    }

    fn is_complete(&self) -> bool {
        let Some(round) = &self.round else {
            return false;
        };
        (0_u32..)
            .zip(&self.scene.members)
            .all(|(rank, member)| member.fate.is_some() || round.answered.contains(&rank))
    }

    /// Ends a round: judges what came.
    fn close(&mut self, now_ms: u64) -> Vec<Act> {
        let Some(round) = self.round.take() else {
            return Vec::new();
        };
        self.closed_ms = now_ms;
        let known_silent = self.silent_since.len();
        self.count_silence(&round);
        self.look_at_silent();
        // Somebody should have looked at those who do not answer before anything is said of them. A rank
        // that has just complained runs: where it has not answered it gets more time.
        let is_new = self.silent_since.len() > known_silent;
        let is_late = |(rank, _): &(u32, CallId)| self.silent_since.contains_key(rank);
        let is_early = is_new || self.overdue.iter().any(is_late);
        if !self.overdue.is_empty() && is_early && self.retries < RETRIES_MAX {
            self.retries += 1;
            return self.open(now_ms);
        }
        self.retries = 0;
        if self.reads_again(now_ms) {
            return Vec::new();
        }
        let mut acts = Vec::new();
        for mut failed in std::mem::take(&mut self.failed) {
            if self.is_known(failed.call) {
                continue;
            }
            failed.looks += 1;
            let is_mismatch = matches!(failed.kind, ErrorKind::Mismatch { .. });
            if is_mismatch
                && failed.looks < LOOKS_MAX
                && mismatch::is_incomplete(&self.scene, failed.call)
            {
                // Who comes to the call in a moment belongs to one of the sides. Where ranks compare their entries
                // all have come, and only their boards are late.
                let pause_ms = if failed.usable {
                    AGAIN_PAUSE_MS
                } else {
                    LOOK_PAUSE_MS
                };
                self.due_ms = Some(now_ms + pause_ms);
                self.failed.push(failed);
                continue;
            }
            let verdict = failure::verdict(&self.scene, &failed);
            acts.extend(self.publish(verdict));
        }
        acts.extend(self.compare());
        let overdue = std::mem::take(&mut self.overdue);
        for (rank, call) in &overdue {
            if !self.is_known(*call) {
                let (rank, call) = (*rank, *call);
                acts.extend(self.consider(Question::Overdue { rank, call }, Some(call), now_ms));
            }
        }
        if overdue.is_empty() {
            acts.extend(self.consider(Question::Waiting, None, now_ms));
        }
        if let Some((rank, whom, line)) = self.suspects.look(&self.scene) {
            let suspected = |one: u32| Act::Tell(Rank(one), encode(&ToRank::Suspected));
            acts.extend(whom.into_iter().map(suspected));
            acts.push(Act::Report(encode(&ToOwner::Suspect(line.clone()))));
            acts.push(Act::Tell(Rank(rank), encode(&ToRank::Suspect { line })));
        }
        acts
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
        self.publish(verdict)
    }

    fn consider(&mut self, question: Question, call: Option<CallId>, now_ms: u64) -> Vec<Act> {
        let finding = judge(&self.scene, question);
        if let Finding::Again(wait_ms) = finding
            && self.again < AGAIN_MAX
        {
            self.again += 1;
            self.due_ms = Some(now_ms + wait_ms.max(AGAIN_PAUSE_MS));
        } else {
            self.again = 0;
        }
        let Finding::Verdict(mut verdict) = finding else {
            return Vec::new();
        };
        // Whoever asked gets an answer, whatever the rest of the scene showed.
        if let Some(call) = call
            && !verdict.ends.contains(&call)
        {
            verdict.ends.push(call);
        }
        match call {
            Some(call) => self.publish_with_stacks(*verdict, call),
            None => self.publish(*verdict),
        }
    }
}

/// Whether a verdict ends this call, or is about it.
pub(crate) fn covers(verdict: &Verdict, call: CallId) -> bool {
    verdict.about == Some(call) || ends(verdict, call)
}

/// Whether a verdict ends this call.
pub(crate) fn ends(verdict: &Verdict, call: CallId) -> bool {
    verdict
        .ends
        .iter()
        .any(|end| end.key == call.key && end.seq <= call.seq)
}
