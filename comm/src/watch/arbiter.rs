//! The arbiter: gathers what all ranks say of themselves when one complains, has it judged, and tells
//! everybody the one verdict.
//!
//! It lives with the coordinator, on its thread. It has no clock and no sockets: time comes in as
//! milliseconds, acts go out, so the same machine runs under a simulator.
//!
//! - ARBITER-1: there is one first cause. What fails later because of it gets the same verdict.
//! - ARBITER-2: nobody is asked unless somebody complains; a healthy world costs nothing.
//! - ARBITER-3: time in which the arbiter itself did not run counts against nobody.

use std::collections::{BTreeMap, BTreeSet};

use super::judge::{Fate, Finding, Member, Question, Scene, judge};
use super::report::Report;
use super::verdict::{CallId, Verdict};
use super::wire::{Cause, FromRank, Look, ToOwner, ToRank, decode, encode};
use super::{failure, suspect};
use crate::error::ErrorKind;
use crate::rendezvous::{Act, Arbiter as Referee, Card, DownReason};
use crate::types::Rank;

/// Time that ranks get to answer. A rank that is only busy answers within a millisecond or two: its
/// session has a thread of its own.
const ROUND_MS: u64 = 100;
/// Pause between two rounds for the same waits.
const PAUSE_MS: u64 = 100;
/// A longer time between two turns means that the arbiter was stopped itself (ARBITER-3).
const GAP_MS: u64 = 400;
/// Neighbours that look at a silent rank.
const LOOKERS: usize = 2;
/// After a mismatch that leaves the group usable ranks may go on. One that ends this soon did not.
const FOLLOWS_MS: u64 = 2000;
/// Verdicts that are remembered. A world that has this many has long ended.
const VERDICTS_MAX: usize = 256;
/// Rounds one after the other that look at a circle once more.
const AGAIN_MAX: u32 = 2;

/// See the module.
#[derive(Debug, Default)]
pub struct Arbiter {
    scene: Scene,
    /// Which ranks may look at which: equal where they share a host.
    hosts: Vec<String>,
    round: Option<Round>,
    asks: u64,
    /// When the next round is due, and for what.
    due_ms: Option<u64>,
    overdue: BTreeSet<(u32, CallId)>,
    /// Errors that ranks met by themselves, until the boards that belong to them are there.
    failed: Vec<(u32, CallId, ErrorKind, bool)>,
    closed_ms: u64,
    seen_ms: u64,
    /// Since when each silent rank has not answered.
    silent_since: BTreeMap<u32, u64>,
    departures: u64,
    again: u32,
    verdicts: Vec<Verdict>,
    /// Ranks that share the fate of each verdict, by its place: what they do later is its doing.
    victims: Vec<Victims>,
    suspects: suspect::Suspects,
}

#[derive(Debug)]
struct Victims {
    ranks: BTreeSet<u32>,
    /// Until when; for ever where the group has ended.
    until_ms: u64,
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
    Box::<Arbiter>::default()
}

impl Referee for Arbiter {
    fn ready(&mut self, roster: &[Card]) {
        self.scene.members = roster
            .iter()
            .map(|card| Member {
                host: card.host.clone(),
                pid: card.pid,
                ..Member::default()
            })
            .collect();
        self.hosts = roster
            .iter()
            .map(|card| card.host_identity.clone())
            .collect();
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
        if let Some(round) = &self.round {
            let is_over = now_ms.saturating_sub(round.began_ms) >= ROUND_MS || self.is_complete();
            return if is_over {
                self.close(now_ms)
            } else {
                Vec::new()
            };
        }
        if self.due_ms.is_some_and(|due| due <= now_ms) {
            return self.open(now_ms);
        }
        Vec::new()
    }

    fn is_busy(&self) -> bool {
        self.round.is_some() || self.due_ms.is_some()
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
        let known = self.verdicts.iter().find(|verdict| covers(verdict, call));
        if let Some(verdict) = known {
            let message = ToRank::Verdict(Box::new(verdict.clone()));
            return vec![Act::Tell(Rank(rank), encode(&message))];
        }
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
            Cause::Failed { kind, usable } => {
                self.failed.push((rank, call, kind, usable));
                self.due_ms = Some(now_ms);
            }
        }
        self.tick(now_ms)
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

    /// Who is to look at whom: neighbours that answer at those that do not.
    fn looks(&self) -> BTreeMap<u32, Vec<(u32, u32)>> {
        let mut looks: BTreeMap<u32, Vec<(u32, u32)>> = BTreeMap::new();
        for silent in self.silent_since.keys() {
            let Some(member) = self.scene.member(*silent) else {
                continue;
            };
            let host = &self.hosts[*silent as usize];
            let near = (0_u32..).zip(&self.hosts).filter(|(rank, other)| {
                *other == host && !host.is_empty() && !self.silent_since.contains_key(rank)
            });
            let alive = near.filter(|(rank, _)| {
                self.scene
                    .member(*rank)
                    .is_some_and(|member| member.fate.is_none())
            });
            for (looker, _) in alive.take(LOOKERS) {
                looks.entry(looker).or_default().push((*silent, member.pid));
            }
        }
        looks
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
                other.process = look.process;
                other.report = look
                    .report
                    .map(|report| *report)
                    .or_else(|| other.report.take());
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
        for (rank, member) in (0_u32..).zip(&mut self.scene.members) {
            if member.fate.is_none() && !round.answered.contains(&rank) {
                let since = *self.silent_since.entry(rank).or_insert(round.began_ms);
                member.silent_ms = now_ms.saturating_sub(since).max(1);
            }
        }
        if !self.overdue.is_empty() && self.silent_since.len() > known_silent {
            // Somebody should have looked at those before anything is said of them.
            return self.open(now_ms);
        }
        let mut acts = Vec::new();
        for (rank, call, kind, usable) in std::mem::take(&mut self.failed) {
            let known = self.verdicts.iter().any(|verdict| covers(verdict, call));
            if !known {
                let verdict = failure::verdict(&self.scene, rank, call, &kind, usable);
                acts.extend(self.publish(verdict));
            }
        }
        let overdue = std::mem::take(&mut self.overdue);
        for (rank, call) in &overdue {
            let known = self.verdicts.iter().any(|verdict| covers(verdict, *call));
            if !known {
                let (rank, call) = (*rank, *call);
                acts.extend(self.consider(Question::Overdue { rank, call }, Some(call), now_ms));
            }
        }
        if overdue.is_empty() {
            acts.extend(self.consider(Question::Waiting, None, now_ms));
        }
        if let Some((rank, line)) = self.suspects.look(&self.scene) {
            acts.push(Act::Report(encode(&ToOwner::Suspect(line.clone()))));
            acts.push(Act::Tell(Rank(rank), encode(&ToRank::Suspect { line })));
        }
        acts
    }

    fn consider(&mut self, question: Question, call: Option<CallId>, now_ms: u64) -> Vec<Act> {
        let finding = judge(&self.scene, question);
        if let Finding::Again(wait_ms) = finding
            && self.again < AGAIN_MAX
        {
            self.again += 1;
            self.due_ms = Some(now_ms + wait_ms);
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
        self.publish(*verdict)
    }

    /// Tells everybody; what follows from an earlier verdict is told as that one (ARBITER-1).
    fn publish(&mut self, verdict: Verdict) -> Vec<Act> {
        let now_ms = self.seen_ms;
        let is_consequence = |victims: &Victims| {
            victims.until_ms >= now_ms
                && !verdict.blamed.is_empty()
                && verdict
                    .blamed
                    .iter()
                    .all(|rank| victims.ranks.contains(rank))
        };
        let first = self
            .victims
            .iter()
            .position(is_consequence)
            .filter(|_| verdict.about.is_none());
        let victims: BTreeSet<u32> = self
            .scene
            .waiting_in(&verdict.ends)
            .chain(self.scene.members_of(verdict.about))
            .chain(verdict.blamed.iter().copied())
            .collect();
        let told = match first {
            Some(at) => {
                let known = &mut self.verdicts[at];
                known.ends.extend(&verdict.ends);
                known.ends.sort_unstable();
                known.ends.dedup();
                known
                    .cascades
                    .push(format!("{}: {}", verdict.what, verdict.place));
                self.victims[at].ranks.extend(victims);
                known.clone()
            }
            None => {
                if self.verdicts.len() < VERDICTS_MAX {
                    self.verdicts.push(verdict.clone());
                    let until_ms = match verdict.about {
                        Some(_) => now_ms + FOLLOWS_MS,
                        None => u64::MAX,
                    };
                    self.victims.push(Victims {
                        ranks: victims,
                        until_ms,
                    });
                }
                verdict
            }
        };
        vec![
            Act::TellAll(encode(&ToRank::Verdict(Box::new(told.clone())))),
            Act::Report(encode(&ToOwner::Verdict(Box::new(told)))),
        ]
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

impl Scene {
    /// The members of the group of a call, as far as they are known.
    fn members_of(&self, call: Option<CallId>) -> Vec<u32> {
        let group = |member: &Member| {
            let report = member.report.as_ref()?;
            Some(report.group(call?.key)?.members.clone())
        };
        self.members.iter().find_map(group).unwrap_or_default()
    }

    /// The ranks that wait in these calls.
    fn waiting_in<'a>(&'a self, calls: &'a [CallId]) -> impl Iterator<Item = u32> + 'a {
        (0_u32..)
            .zip(&self.members)
            .filter_map(move |(rank, member)| {
                let report = member.report.as_ref()?;
                let is_in = |call: &CallId| {
                    report
                        .group(call.key)
                        .is_some_and(|group| group.call.is_some())
                };
                calls.iter().any(is_in).then_some(rank)
            })
    }
}
