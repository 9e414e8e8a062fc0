//! Telling a verdict to everybody, and remembering whose doing it makes of what comes later.

use std::collections::{BTreeMap, BTreeSet};

use super::Arbiter;
use crate::error::verdict::{CallId, Class, Verdict};
use crate::rendezvous::{Act, DownReason, ProcessId};
use crate::types::{Collective, Rank};
use crate::watch::judge::Scene;
use crate::watch::report::{CallOutcome, CallRecord};
use crate::watch::wire::{ToOwner, ToRank, encode};

/// A failure that is seen this soon after another one is told as its consequence: two verdicts at once would leave open which
/// one came first.
pub(crate) const ECHO_MS: u64 = 10_000;
/// After a mismatch that leaves the group usable ranks may go on. One that ends this soon did not. Where there are
/// more threads ready than processors it takes as many times longer.
const FOLLOWS_MS: u64 = 3000;
/// How many times longer the first of these times grows at most.
const SLOWNESS_MAX: u64 = 12;
/// Verdicts that are remembered: the last ones, where their groups go on. A world that has this many others has long ended.
const TOLD_MAX: usize = 256;

/// A verdict that everybody has.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) verdict: Verdict,
    /// Ranks that share its fate: what they do later is its doing.
    victims: BTreeSet<u32>,
    /// Ranks that have ended because of it, and whether their exit codes say so; when the last of them did.
    followers: BTreeMap<u32, bool>,
    followed_ms: u64,
    told_ms: u64,
    /// The last call of each group that anybody had entered then; `None` where not all ranks had said.
    reached: Option<BTreeMap<u64, u64>>,
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
        has_moved_all || self.verdict.about.is_none() && self.is_recent(self.told_ms, scene, now_ms)
    }

    fn is_recent(&self, at_ms: u64, scene: &Scene, now_ms: u64) -> bool {
        now_ms.saturating_sub(at_ms) <= ECHO_MS * scene.slowness().min(SLOWNESS_MAX)
    }

    /// Whether what a rank does now may be because of it. Ranks may catch the error and go on, and what they do then is their
    /// own doing.
    pub(super) fn may_move(&self, rank: u32, scene: &Scene, now_ms: u64) -> bool {
        let age_ms = now_ms.saturating_sub(self.told_ms);
        let is_late = age_ms > FOLLOWS_MS.saturating_mul(scene.slowness());
        self.victims.contains(&rank)
            && (self.verdict.about.is_none() || !is_late)
            && !self.has_gone_on(rank, scene)
    }

    /// Whether a rank has made another call since: of the same group where that is usable, otherwise of any group. Boards of
    /// ranks that have ended are old, so what others have done with it counts too.
    fn has_gone_on(&self, rank: u32, scene: &Scene) -> bool {
        // A verdict on devices ends its call, and numbers calls of their own.
        let usable = self.verdict.about.filter(|_| self.verdict.ends.is_empty());
        let is_later = |key: u64, seq: u64| match (usable, &self.reached) {
            (Some(about), _) => key == about.key && seq > about.seq,
            (None, Some(reached)) => reached.get(&key).is_none_or(|known| seq > *known),
            (None, None) => false,
        };
        let own = scene.member(rank).and_then(|one| one.report.as_ref());
        let mut groups = own.iter().flat_map(|report| &report.groups);
        if groups.any(|group| group.entered > 0 && is_later(group.key, group.entered)) {
            return true;
        }
        let mut reports = scene.members.iter().filter_map(|one| one.report.as_ref());
        reports.any(|report| {
            let has_met = |made: &CallRecord| {
                let collective = made.call.collective();
                let group = report.group(made.key);
                is_later(made.key, made.seq)
                    && made.outcome == CallOutcome::Completed
                    && collective.is_some_and(Collective::needs_everybody)
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

    /// Takes up what it has led to.
    fn add(&mut self, later: &Verdict, victims: BTreeSet<u32>) {
        let ends = &mut self.verdict.ends;
        ends.extend(&later.ends);
        ends.sort_unstable();
        ends.dedup();
        let cascade = format!("{}: {}", later.what, later.place);
        self.verdict.cascades.push(cascade);
        self.victims.extend(victims);
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
            first.add(&verdict, victims);
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
                told_ms: now_ms,
                reached: reached(scene),
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
    fn victims_of(&self, verdict: &Verdict) -> BTreeSet<u32> {
        let ended = verdict.ends.iter().map(|end| Some(*end));
        let groups = ended.chain([verdict.about]);
        self.scene
            .waiting_in(&verdict.ends)
            .chain(groups.flat_map(|call| self.scene.members_of(call)))
            .chain(verdict.blamed.iter().copied())
            .collect()
    }
}

/// The last call of each group that any rank has entered; `None` where a rank that lives has not said.
fn reached(scene: &Scene) -> Option<BTreeMap<u64, u64>> {
    let mut reached = BTreeMap::new();
    for member in &scene.members {
        let Some(report) = &member.report else {
            member.fate.as_ref()?;
            continue;
        };
        for group in &report.groups {
            let known: &mut u64 = reached.entry(group.key).or_default();
            *known = group.entered.max(*known);
        }
    }
    Some(reached)
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
