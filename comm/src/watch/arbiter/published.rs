//! Telling a verdict to everybody, and remembering whose doing it makes of what comes later.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Arbiter;
use crate::error::verdict::{CallId, Class, Verdict};
use crate::rendezvous::{Act, DownReason, ProcessId};
use crate::types::Rank;
use crate::watch::judge::Scene;
use crate::watch::report::{CallOutcome, CallRecord};
use crate::watch::wire::{ToOwner, ToRank, encode};

/// A failure that is seen this soon after another one is told as its consequence: two verdicts at once would leave open which
/// one came first.
pub(super) const ECHO_MS: u64 = 10_000;
/// After a mismatch that leaves the group usable ranks may go on. One that ends this soon did not. Where there are
/// more threads ready than processors it takes as many times longer.
const FOLLOWS_MS: u64 = 3000;
/// How many times longer the first of these times grows at most.
const SLOWNESS_MAX: u64 = 12;
/// Verdicts that are remembered: the last ones, where their groups go on. A world that has this many others has long ended.
const TOLD_MAX: usize = 256;

/// For how long failures are told as consequences of an earlier one, where so many threads want each processor: a rank needs one
/// to hear of it, and to end.
pub(crate) fn echo_ms(crowd: u64) -> u64 {
    ECHO_MS * crowd.clamp(1, SLOWNESS_MAX)
}

/// A verdict that everybody has.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) verdict: Verdict,
    /// Ranks that share its fate: what they do later is its doing.
    victims: BTreeMap<u32, Victim>,
    /// Ranks that have ended because of it, and whether their exit codes say so; when the last of them did.
    followers: BTreeMap<u32, bool>,
    followed_ms: u64,
    /// When it first ended calls other than the usable one that it may be about.
    ended_ms: Option<u64>,
}

/// A rank that shares the fate of a verdict.
#[derive(Clone, Debug)]
struct Victim {
    /// When it was told: when everybody was, or later, when its program was.
    told_ms: u64,
    /// The last call of each group that anybody had entered then; `None` where it may have entered others.
    reached: Option<Arc<BTreeMap<u64, u64>>>,
}

impl Told {
    /// Whether a verdict tells what this one has led to. It blames `subjects`, or they have asked where it blames nobody.
    fn has_led_to(&self, subjects: &[u32], scene: &Scene, now_ms: u64) -> bool {
        let follows = |rank: &u32| {
            let is_said = self.followers.get(rank);
            is_said.is_some_and(|is_said| *is_said || !self.has_gone_on(*rank, scene))
        };
        // A verdict on who followed may name the culprit of this one beside it.
        let is_of_this = |rank: &u32| follows(rank) || self.verdict.blamed.contains(rank);
        if subjects.iter().any(follows) && subjects.iter().all(is_of_this) {
            return true;
        }
        let may_move = |rank: &u32| self.may_move(*rank, scene, now_ms);
        let has_moved_all = !subjects.is_empty() && subjects.iter().all(may_move);
        let is_recent = |at_ms| self.is_recent(at_ms, scene, now_ms);
        has_moved_all || self.ended_ms.is_some_and(is_recent)
    }

    fn is_recent(&self, at_ms: u64, scene: &Scene, now_ms: u64) -> bool {
        now_ms.saturating_sub(at_ms) <= echo_ms(scene.slowness())
    }

    /// Whether what a rank does now may be because of it. Ranks may catch the error and go on, and what they do then is their
    /// own doing.
    pub(super) fn may_move(&self, rank: u32, scene: &Scene, now_ms: u64) -> bool {
        let is_late = |victim: &Victim| {
            let age_ms = now_ms.saturating_sub(victim.told_ms);
            age_ms > FOLLOWS_MS.saturating_mul(scene.slowness())
        };
        let victim = self.victims.get(&rank);
        victim.is_some_and(|victim| self.verdict.about.is_none() || !is_late(victim))
            && !self.has_gone_on(rank, scene)
    }

    /// Whether a rank has made another call since it was told: of the same group where that is usable, otherwise of any group.
    /// Boards of ranks that have ended are old, so what others have done with it counts too.
    fn has_gone_on(&self, rank: u32, scene: &Scene) -> bool {
        let Some(Victim { reached, .. }) = self.victims.get(&rank) else {
            return false;
        };
        // A verdict on devices ends its call, and numbers calls of their own.
        let usable = self.verdict.about.filter(|_| self.verdict.ends.is_empty());
        let is_later = |key: u64, seq: u64| {
            let known = reached.as_ref().map(|reached| reached.get(&key));
            match (usable, known) {
                (Some(about), known) => {
                    let known = known.flatten().copied().unwrap_or(0);
                    key == about.key && seq > about.seq.max(known)
                }
                (None, Some(known)) => known.is_none_or(|known| seq > *known),
                (None, None) => false,
            }
        };
        let own = scene.member(rank).and_then(|one| one.report.as_ref());
        let mut groups = own.iter().flat_map(|report| &report.groups);
        if groups.any(|group| group.entered > 0 && is_later(group.key, group.entered)) {
            return true;
        }
        let mut reports = scene.members.iter().filter_map(|one| one.report.as_ref());
        reports.any(|report| {
            let has_met = |made: &CallRecord| {
                let group = report.group(made.key);
                is_later(made.key, made.seq)
                    && made.outcome == CallOutcome::Completed
                    && made.call.needs_everybody()
                    && group.is_some_and(|group| group.members.contains(&rank))
            };
            report.calls.iter().any(has_met)
        })
    }

    /// Takes note of a rank that has ended: because it was told this, as its exit code shows; because this concerns it; or because
    /// a launcher ends all ranks where one has.
    pub(super) fn note_end(&mut self, rank: u32, reason: &DownReason, scene: &Scene, now_ms: u64) {
        let has_its_code = matches!(reason, DownReason::Exited { code }
            if i32::from(self.verdict.class.code()) == *code);
        let is_concerned = self.may_move(rank, scene, now_ms);
        let may_be_ended = matches!(reason, DownReason::Ended)
            && !self.followers.is_empty()
            && self.is_recent(self.followed_ms, scene, now_ms);
        if has_its_code || is_concerned || may_be_ended {
            self.followers.insert(rank, has_its_code);
            self.followed_ms = now_ms;
        }
    }

    /// The program of this rank, which has just said how far it is, has this verdict.
    pub(super) fn note_told(&mut self, rank: u32, scene: &Scene, now_ms: u64) {
        let mut reached = reached(scene);
        // In a group of its own others may be one call further, and wait for it.
        let own = scene.member(rank).and_then(|one| one.report.as_ref());
        let own = own.iter().flat_map(|report| &report.groups);
        reached.extend(own.map(|group| (group.key, group.entered)));
        let victim = Victim {
            told_ms: now_ms,
            reached: Some(Arc::new(reached)),
        };
        self.victims.insert(rank, victim);
    }

    /// Takes up what it has led to, and whom that concerns.
    fn add(&mut self, later: &Verdict, victims: BTreeMap<u32, Victim>, now_ms: u64) {
        let ends = &mut self.verdict.ends;
        ends.extend(&later.ends);
        ends.sort_unstable();
        ends.dedup();
        let cascade = format!("{}: {}", later.what, later.place);
        self.verdict.cascades.push(cascade);
        self.victims.extend(victims);
        self.ended_ms.get_or_insert(now_ms);
    }
}

impl Arbiter {
    /// Tells everybody; what follows from an earlier verdict is told as that one (ARBITER-1).
    pub(super) fn publish(&mut self, verdict: Verdict, askers: &[u32]) -> Vec<Act> {
        let now_ms = self.seen_ms;
        let victims = self.victims_of(&verdict);
        let subjects = if verdict.blamed.is_empty() {
            askers
        } else {
            &verdict.blamed
        };
        let scene = &self.scene;
        let led =
            |told: &&mut Told| verdict.about.is_none() && told.has_led_to(subjects, scene, now_ms);
        let first = self.told.iter_mut().find(led);
        if let Some(first) = first {
            // All have it: those who wait in the calls that it ends besides are told once more.
            let waiting: BTreeSet<u32> = self.scene.waiting_in(&verdict.ends).collect();
            let concerned = waiting.into_iter().chain(askers.iter().copied());
            first.add(&verdict, victims, now_ms);
            let message = encode(&ToRank::Verdict(Box::new(first.verdict.clone())));
            let report = encode(&ToOwner::Verdict(Box::new(first.verdict.clone())));
            let concerned: BTreeSet<u32> = concerned.collect();
            let tell = |rank| Act::Tell(Rank(rank), message.clone());
            return concerned
                .into_iter()
                .map(tell)
                .chain([Act::Report(report)])
                .collect();
        }
        if self.told.len() == TOLD_MAX
            && let Some(oldest) = self
                .told
                .iter()
                .position(|told| told.verdict.about.is_some())
        {
            self.told.remove(oldest);
        }
        if self.told.len() < TOLD_MAX {
            self.told.push(Told {
                verdict: verdict.clone(),
                victims,
                followers: BTreeMap::new(),
                followed_ms: 0,
                ended_ms: verdict.about.is_none().then_some(now_ms),
            });
        }
        let bytes = encode(&verdict);
        let mut acts: Vec<Act> = self
            .unreachable()
            .map(|(rank, process)| Act::Post(process, rank, bytes.clone()))
            .collect();
        let message = encode(&ToRank::Verdict(Box::new(verdict.clone())));
        acts.push(Act::TellAll(message));
        acts.push(Act::Report(encode(&ToOwner::Verdict(Box::new(verdict)))));
        acts
    }

    /// Ranks that live and have lost their connection.
    fn unreachable(&self) -> impl Iterator<Item = (Rank, ProcessId)> {
        let members = (0_u32..).zip(&self.scene.members).zip(&self.processes);
        members
            .filter(|((_, member), _)| {
                let fate = member.fate.as_ref();
                fate.is_some_and(|fate| fate.class == Class::Link)
            })
            .map(|((rank, _), process)| (Rank(rank), *process))
    }

    /// Ranks have come to a verdict by themselves, while the arbiter stood still or by what their devices did: it is the first
    /// one, unless one was told before.
    pub(super) fn adopt(&mut self, verdict: Verdict) -> Vec<Act> {
        let now_ms = self.seen_ms;
        let is_known = |told: &Told| {
            told.verdict.line() == verdict.line()
                || verdict.about.is_some_and(|call| {
                    covers(&told.verdict, call)
                        || told.has_led_to(&verdict.blamed, &self.scene, now_ms)
                })
        };
        if self.told.iter().any(is_known) {
            return Vec::new();
        }
        self.publish(verdict, &[])
    }

    /// Who waits in the calls that a verdict ends, who is blamed, and who calls on a group that has ended: such
    /// a rank gets the verdict, and may go because of it.
    fn victims_of(&self, verdict: &Verdict) -> BTreeMap<u32, Victim> {
        let mut members = self.scene.members.iter();
        let is_known = members.all(|member| member.report.is_some() || member.fate.is_some());
        let now = Victim {
            told_ms: self.seen_ms,
            reached: is_known.then(|| Arc::new(reached(&self.scene))),
        };
        let ended = verdict.ends.iter().map(|end| Some(*end));
        let groups = ended.chain([verdict.about]);
        self.scene
            .waiting_in(&verdict.ends)
            .chain(groups.flat_map(|call| self.scene.members_of(call)))
            .chain(verdict.blamed.iter().copied())
            .map(|rank| (rank, now.clone()))
            .collect()
    }
}

/// The last call of each group that any rank has entered, as far as ranks have said.
fn reached(scene: &Scene) -> BTreeMap<u64, u64> {
    let mut reached = BTreeMap::new();
    let reports = scene.members.iter().filter_map(|one| one.report.as_ref());
    for group in reports.flat_map(|report| &report.groups) {
        let known: &mut u64 = reached.entry(group.key).or_default();
        *known = group.entered.max(*known);
    }
    reached
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
