//! Rounds: all ranks are asked what they do. The coordinator looks at those that do not answer, and so do their neighbours
//! on hosts that it cannot see.

use std::collections::{BTreeMap, BTreeSet};

use super::{Arbiter, GAP_MS, LOOK_WAIT_MS, ROUND_MS, STOPPED_WAIT_MS, UNKNOWN_WAIT_MS};
use crate::error::verdict::{CallId, Class, Verdict};
use crate::rendezvous::{Act, ProcessId};
use crate::types::Rank;
use crate::watch::judge::{FROZEN_AFTER_MS, Member};
use crate::watch::process::{Sight, Stop};
use crate::watch::report::Report;
use crate::watch::wire::{Look, ToRank, encode};

/// Neighbours of one PID namespace that look at a silent rank.
const LOOKERS: usize = 2;
/// Ranks that the coordinator looks at in one round. Each look reads some files and a board, and the coordinator has other
/// work; the next round begins with the ranks that this one left out.
const LOOKED_AT_MAX: usize = 64;

/// A round of questions.
#[derive(Debug)]
pub(super) struct Round {
    ask: u64,
    began_ms: u64,
    answered: BTreeSet<u32>,
    /// Ranks that the coordinator is to look at, once it is known that they do not answer.
    looks: Option<BTreeSet<u32>>,
    /// Ranks whose process somebody saw in this round.
    seen: BTreeSet<u32>,
}

impl Round {
    /// Whoever has not answered gets the time for it once more: what was seen of it is old.
    pub(super) fn begin_anew(&mut self, now_ms: u64) {
        self.began_ms = now_ms;
        self.looks = None;
        self.seen.clear();
    }
}

/// A rank that does not answer.
#[derive(Debug)]
pub(super) struct Silence {
    since_ms: u64,
    /// Its process was seen in the last round.
    is_seen: bool,
    stop: Stop,
    /// Ranks that had ended when the process was found stopped for the first time; see `Member::ended_before`.
    ended_before: Vec<u32>,
}

impl Arbiter {
    /// Asks all ranks.
    pub(super) fn open(&mut self, now_ms: u64) -> Vec<Act> {
        self.due_ms = None;
        self.asks += 1;
        self.round = Some(Round {
            ask: self.asks,
            began_ms: now_ms,
            answered: BTreeSet::new(),
            looks: None,
            seen: BTreeSet::new(),
        });
        let mut looks = self.neighbours_looks();
        let ask = self.asks;
        self.present()
            .map(|rank| {
                let look = looks.remove(&rank).unwrap_or_default();
                Act::Tell(Rank(rank), encode(&ToRank::Ask { ask, look }))
            })
            .collect()
    }

    /// Ranks that are there, as far as is known.
    fn present(&self) -> impl Iterator<Item = u32> {
        (0_u32..)
            .zip(&self.scene.members)
            .filter(|(_, member)| member.fate.is_none())
            .map(|(rank, _)| rank)
    }

    /// Whether a rank is there, as far as is known.
    pub(super) fn is_present(&self, rank: u32) -> bool {
        let member = self.scene.member(rank);
        member.is_some_and(|member| member.fate.is_none())
    }

    /// A rank answers.
    pub(super) fn answered(
        &mut self,
        rank: u32,
        ask: u64,
        mut report: Report,
        looks: Vec<Look>,
        now_ms: u64,
    ) -> Vec<Act> {
        let mut acts = Vec::new();
        for look in looks {
            let rank = look.rank;
            if self.take_look(look, now_ms) {
                acts.push(Act::Ended(Rank(rank)));
            }
        }
        let is_current = self
            .round
            .as_mut()
            .is_some_and(|round| round.ask == ask && round.answered.insert(rank));
        self.speaks(rank, &report, now_ms);
        let Some(member) = self.scene.members.get_mut(rank as usize) else {
            return acts;
        };
        if is_current {
            keep_overdue(&self.overdue, (rank, member), &mut report);
            member.before = member.report.replace(report);
        }
        acts.extend(self.turn(now_ms));
        acts
    }

    /// A complaint says what the board of its rank shows.
    pub(super) fn take_complaint(&mut self, rank: u32, mut report: Report) {
        let now_ms = self.seen_ms;
        self.speaks(rank, &report, now_ms);
        if let Some(member) = self.scene.members.get_mut(rank as usize) {
            keep_overdue(&self.overdue, (rank, member), &mut report);
            member.report = Some(report);
        }
        if let Some(round) = &mut self.round {
            round.answered.insert(rank);
        }
    }

    /// A rank has said something of itself, so it runs.
    fn speaks(&mut self, rank: u32, report: &Report, now_ms: u64) {
        self.silences.remove(&rank);
        let at = rank as usize;
        if let (Some(member), Some(cpu)) = (self.scene.members.get_mut(at), self.cpu.get_mut(at)) {
            member.silent_ms = 0;
            member.stopped_ms = None;
            member.is_read = false;
            member.process = None;
            if let Some(process) = &report.process {
                member.starvation = cpu[0].add(now_ms, process);
            }
        }
    }

    /// The coordinator looked at a rank.
    pub(super) fn saw(&mut self, rank: u32, look: Look, now_ms: u64) -> Vec<Act> {
        self.take_look(look, now_ms);
        if let Some(looks) = self.round.as_mut().and_then(|round| round.looks.as_mut()) {
            looks.remove(&rank);
        }
        self.turn(now_ms)
    }

    /// Somebody looked at a rank; says whether its process has ended.
    fn take_look(&mut self, look: Look, now_ms: u64) -> bool {
        let rank = look.rank;
        let answers = |round: &Round| round.answered.contains(&rank);
        let at = rank as usize;
        let (Some(member), Some(cpu)) = (self.scene.members.get_mut(at), self.cpu.get_mut(at))
        else {
            return false;
        };
        if self.round.as_ref().is_some_and(answers) || member.fate.is_some() {
            return false;
        }
        let is_first_stop;
        match &look.sight {
            Sight::Ended => return true,
            // Who could not look does not gainsay who could.
            Sight::Hidden(_) => {
                member.process.get_or_insert(look.sight);
                return false;
            }
            Sight::Seen(facts) => {
                let mut began_ms = now_ms;
                if let Some(round) = &mut self.round {
                    began_ms = round.began_ms;
                    round.seen.insert(rank);
                }
                member.starvation = cpu[1].add(now_ms, facts);
                let silence = self.silences.entry(rank);
                let silence = silence.or_insert_with(|| Silence::since(began_ms));
                let was_stopped = silence.stop.ms(now_ms).is_some();
                silence.stop.take(facts, now_ms);
                is_first_stop = !was_stopped && silence.stop.ms(now_ms).is_some();
            }
        }
        member.process = Some(look.sight);
        if let Some(report) = look.report {
            member.before = member.report.replace(*report);
            member.is_read = true;
        }
        if is_first_stop {
            let ended = self.ended_untold();
            let silence = self.silences.get_mut(&rank);
            if let Some(silence) = silence {
                silence.ended_before = ended;
            }
        }
        false
    }

    /// Ranks whose processes have ended without a goodbye, and whom no verdict concerns.
    fn ended_untold(&self) -> Vec<u32> {
        let is_told = |rank: &u32| {
            let mut told = self.told.iter();
            told.any(|told| told.may_move(*rank, &self.scene, self.seen_ms))
        };
        let has_died = |member: &Member| {
            let fate = member.fate.as_ref();
            fate.is_some_and(|fate| !fate.orderly && fate.class == Class::PeerDead)
        };
        let members = (0_u32..).zip(&self.scene.members);
        let died = members.filter(|(_, member)| has_died(member));
        died.map(|(rank, _)| rank)
            .filter(|rank| !is_told(rank))
            .collect()
    }

    /// Goes on with the round: ends it where all have answered, or their time is up and they were looked at.
    pub(super) fn turn(&mut self, now_ms: u64) -> Vec<Act> {
        let Some(round) = self.round.as_ref().filter(|_| self.unread_turns == 0) else {
            return Vec::new();
        };
        let is_early = now_ms.saturating_sub(round.began_ms) < self.round_ms();
        if is_early && round.answered.len() < self.present().count() {
            // With each answer of a large world comes one such turn.
            return Vec::new();
        }
        let silent: Vec<u32> = self
            .present()
            .filter(|rank| !round.answered.contains(rank))
            .collect();
        if silent.is_empty() {
            return self.close(&silent, now_ms);
        }
        if is_early {
            return Vec::new();
        }
        match &round.looks {
            Some(looks) if looks.is_empty() => self.close(&silent, now_ms),
            // They are looked at without a wait. Where nobody did, nobody can.
            Some(_) if now_ms.saturating_sub(round.began_ms) >= GAP_MS => {
                self.close(&silent, now_ms)
            }
            Some(_) => Vec::new(),
            None => {
                let chosen = self.to_look_at(silent);
                let ranks = chosen.iter().map(|rank| Rank(*rank)).collect();
                if let Some(round) = &mut self.round {
                    round.looks = Some(chosen);
                }
                vec![Act::Look(ranks)]
            }
        }
    }

    /// Which of the ranks that do not answer the coordinator looks at: all whose state a verdict waits for; of the others those who
    /// are waited for first, all of them in turn.
    fn to_look_at(&self, silent: Vec<u32>) -> BTreeSet<u32> {
        let awaited = self.scene.awaited();
        let (first, silent): (Vec<u32>, Vec<u32>) = silent
            .into_iter()
            .partition(|rank| self.looked_at_first.contains(rank));
        let (mut silent, others): (Vec<u32>, Vec<u32>) =
            silent.into_iter().partition(|rank| awaited.contains(rank));
        let turns = silent.len() / LOOKED_AT_MAX + 1;
        let turn = crate::types::index(self.asks) % turns;
        silent.extend(others);
        let from = turn * LOOKED_AT_MAX;
        let others = silent.into_iter().skip(from).take(LOOKED_AT_MAX);
        first.into_iter().chain(others).collect()
    }

    /// How long ranks get to answer: their answers are read one after the other.
    fn round_ms(&self) -> u64 {
        ROUND_MS + self.scene.members.len() as u64
    }

    /// Ends the round: judges what came.
    fn close(&mut self, silent: &[u32], now_ms: u64) -> Vec<Act> {
        let Some(round) = self.round.take() else {
            return Vec::new();
        };
        self.closed_ms = now_ms;
        for rank in silent {
            let silence = self
                .silences
                .entry(*rank)
                .or_insert_with(|| Silence::since(round.began_ms));
            silence.is_seen = round.seen.contains(rank);
            let stopped_ms = silence.stop.ms(now_ms);
            // When it has been stopped for long enough a round ends, whether or not somebody asks for it then.
            let due_ms = stopped_ms
                .filter(|stopped_ms| *stopped_ms < FROZEN_AFTER_MS)
                .map(|stopped_ms| (now_ms + FROZEN_AFTER_MS - stopped_ms).saturating_sub(ROUND_MS));
            if let Some(member) = self.scene.members.get_mut(*rank as usize) {
                member.silent_ms = now_ms.saturating_sub(silence.since_ms).max(1);
                member.stopped_ms = stopped_ms;
                member.ended_before.clone_from(&silence.ended_before);
                // A call that is over stays on the board until its verdict is told, and the complaint has the board.
                let complains = |(by, call): &(u32, CallId)| {
                    let shows = |report: &Report| report.waits_in(*call);
                    by == rank && member.report.as_ref().is_some_and(shows)
                };
                let has_complained = self.overdue.keys().any(complains);
                member.is_read = has_complained || silence.is_seen && member.is_read;
                if !silence.is_seen {
                    member.process = member
                        .process
                        .take()
                        .filter(|sight| sight.facts().is_none());
                }
            }
            if let Some(due_ms) = due_ms {
                self.due_at(due_ms.max(now_ms + 1));
            }
        }
        self.decide(now_ms)
    }

    /// Whether nothing is known of a rank at this moment.
    pub(super) fn is_unknown(&self, rank: u32) -> bool {
        let silence = self.silences.get(&rank);
        self.is_present(rank) && silence.is_some_and(|silence| !silence.is_seen)
    }

    /// Whether nothing is known of a rank now, and its state is worth waiting for: until somebody has looked at it, where that is
    /// possible.
    pub(super) fn may_be_known_soon(&mut self, rank: u32, since_ms: u64, now_ms: u64) -> bool {
        if !self.is_unknown(rank) {
            return false;
        }
        let can_be_seen = self.can_be_seen(rank);
        if can_be_seen {
            self.looked_at_first.insert(rank);
        }
        let wait_ms = if can_be_seen {
            LOOK_WAIT_MS
        } else {
            UNKNOWN_WAIT_MS
        };
        now_ms.saturating_sub(since_ms) < wait_ms
    }

    /// Whether the coordinator, or a rank that answers, may be able to look at this one, and none has tried in vain.
    fn can_be_seen(&self, rank: u32) -> bool {
        let at = crate::types::index(rank.into());
        let Some(process) = self.processes.get(at) else {
            return false;
        };
        let is_hidden = self
            .scene
            .members
            .get(at)
            .is_some_and(|member| matches!(member.process, Some(Sight::Hidden(_))));
        let is_near = process.boot == self.process.boot && process.boot != 0;
        !is_hidden && (is_near || !self.lookers(process).is_empty())
    }

    /// Whether nothing is known of a rank that somebody waits for.
    pub(super) fn is_any_unknown(&self) -> bool {
        let awaited = self.scene.awaited();
        let mut silent = self.silences.keys();
        silent.any(|rank| awaited.contains(rank) && self.is_unknown(*rank))
    }

    /// Whether a rank was seen stopped, and not yet for as long as it takes to call it frozen.
    pub(super) fn is_any_just_stopped(&self) -> bool {
        let is_just_stopped = |silence: &Silence| {
            silence
                .stop
                .ms(self.closed_ms)
                .is_some_and(|stopped_ms| stopped_ms < FROZEN_AFTER_MS)
        };
        self.silences.values().any(is_just_stopped)
    }

    /// Whether a verdict on stopped ranks may have to name one more, which was found stopped a moment later.
    pub(super) fn may_find_more_stopped(&self, verdict: &Verdict) -> bool {
        let stopped_ms = |rank: &u32| self.scene.member(*rank).and_then(|one| one.stopped_ms);
        let longest_ms = verdict.blamed.iter().filter_map(stopped_ms).max();
        verdict.class == Class::PeerFrozen
            && longest_ms.is_some_and(|ms| ms < FROZEN_AFTER_MS + STOPPED_WAIT_MS)
            && self.is_any_just_stopped()
    }

    /// Who is to look at whom: neighbours that answer at those that do not, where the coordinator sees nothing of them.
    fn neighbours_looks(&self) -> BTreeMap<u32, Vec<(u32, ProcessId)>> {
        let mut looks: BTreeMap<u32, Vec<(u32, ProcessId)>> = BTreeMap::new();
        for (silent, silence) in &self.silences {
            let was_seen = silence.is_seen && silence.stop.ms(self.closed_ms).is_none();
            if was_seen {
                continue;
            }
            let process = self.processes[*silent as usize];
            for looker in self.lookers(&process) {
                looks.entry(looker).or_default().push((*silent, process));
            }
        }
        looks
    }

    /// Who may look at this process: ranks of its PID namespace; else those of every other one of its host, for one of
    /// them may be an ancestor of it.
    fn lookers(&self, process: &ProcessId) -> Vec<u32> {
        let mut lookers: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for (rank, other) in (0_u32..).zip(&self.processes) {
            let answers = self.is_present(rank) && !self.silences.contains_key(&rank);
            let known = lookers.entry(other.namespace).or_default();
            if answers && other.boot == process.boot && process.boot != 0 && known.len() < LOOKERS {
                known.push(rank);
            }
        }
        match lookers.remove(&process.namespace) {
            Some(same) if !same.is_empty() => same,
            _ => lookers.into_values().flatten().collect(),
        }
    }
}

/// Keeps the waits in calls that a rank has complained of, where its new report does not show them.
fn keep_overdue(
    overdue: &BTreeMap<(u32, CallId), u64>,
    (rank, member): (u32, &Member),
    report: &mut Report,
) {
    if let Some(earlier) = &member.report {
        let calls = overdue.keys().filter(|(by, _)| *by == rank);
        report.keep_waits(earlier, calls.map(|(_, call)| *call));
    }
}

impl Silence {
    fn since(since_ms: u64) -> Self {
        Self {
            since_ms,
            is_seen: false,
            stop: Stop::default(),
            ended_before: Vec::new(),
        }
    }
}
