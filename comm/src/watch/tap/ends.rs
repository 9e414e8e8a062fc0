//! Processes of a job that have ended: how, and which of them ended the job.
//!
//! - TAP-5: a launcher ends the others when one has ended, so the first one counts, and whatever ended with it, within
//!   [`TOGETHER_NS`].
//! - TAP-6: a process that was asked to end (SIGHUP, SIGINT, SIGTERM) is no cause. If one was asked before a crash, or at the
//!   moment of an exit or before, or if all ended together, somebody ended the job, and no rank is named.
//! - TAP-7: an exit code is the program's own affair unless the launcher ended others after it.

use super::scene::{Jobs, Open, Watched, worded};
use crate::error::verdict::{Class, Confidence, Verdict};
use crate::rendezvous::DownReason;
use crate::watch::failure;
use crate::watch::judge::{
    EndCause, Fate, Finding, Observation, Question, Scene, judge, name_beside, observed,
};
use crate::watch::process::{ProcessFacts, Sight};

/// Ends within this time are one event: nobody knows their order.
const TOGETHER_NS: u64 = 100_000_000;
/// A launcher that ends others because one has exited takes longer than this.
const REACTION_NS: u64 = 10_000_000;
/// Processes that end the job together are named up to this number. More have a common cause outside of them.
const NAMED_MAX: usize = 8;

/// The end of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// How, as far as the kernel told it.
    pub how: DownReason,
    /// When that was seen, by the monotonic clock.
    pub seen_ns: u64,
}

impl End {
    /// Whether the process was ended, and by no request and no decision of its own.
    fn is_crash(&self) -> bool {
        // SIGABRT is the program's own decision.
        let is_abort = matches!(self.how, DownReason::Killed { signal: 6 });
        failure::cause(&self.how) == EndCause::Unprovoked && !is_abort
    }
}

impl Watched {
    /// Whether it ended as one does that has done its work: it had destroyed its communicators, and no bad end was seen.
    pub(super) fn is_done(&self) -> bool {
        let is_well =
            |end: &End| matches!(end.how, DownReason::Ended | DownReason::Exited { code: 0 });
        let are_gone = self.process.groups.iter().all(|group| group.is_gone);
        are_gone && self.end.as_ref().is_none_or(is_well)
    }

    /// How it ended, where it has. `order` is its place in the order in which processes ended.
    pub(super) fn fate(&self, order: u64) -> Option<Fate> {
        if self.sight != Sight::Ended {
            return None;
        }
        let is_done = self.is_done();
        if !is_done
            && let Some(end) = &self.end
            && end.how != DownReason::Ended
        {
            return Some(failure::fate(&end.how, order));
        }
        let how = match (is_done, self.has_exited) {
            (true, _) => "has destroyed its communicators and ended",
            (false, true) => "has exited",
            (false, false) => "has ended without an exit of its own",
        };
        Some(Fate {
            how: how.to_owned(),
            orderly: is_done,
            class: Class::PeerDead,
            confidence: Confidence::Certain,
            evidence: "its process has ended".to_owned(),
            cause: EndCause::Unknown,
            order,
            hint: "read the output of that rank".to_owned(),
        })
    }
}

/// What the end of a process says of the job.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sign {
    /// A signal ended it that no launcher sends first.
    Crash,
    /// It returned a code other than 0.
    Failure,
    /// It was asked to end.
    Request,
    /// Nobody saw how it ended.
    Unknown,
    /// Nothing is wrong with it.
    Fine,
}

fn sign(one: &Watched, end: &End) -> Sign {
    if one.is_done() {
        return Sign::Fine;
    }
    if let DownReason::Exited { code } = end.how {
        return if code == 0 { Sign::Fine } else { Sign::Failure };
    }
    match failure::cause(&end.how) {
        EndCause::Unprovoked => Sign::Crash,
        EndCause::MayFollow => Sign::Request,
        EndCause::Unknown => Sign::Unknown,
    }
}

/// The processes whose end ended the job; none where that is not known.
pub(super) fn first(seen: &[Watched]) -> Vec<usize> {
    let ends: Vec<(usize, u64, Sign)> = (0..)
        .zip(seen)
        .filter_map(|(at, one)| Some((at, one.end.as_ref()?)))
        .map(|(at, end)| (at, end.seen_ns, sign(&seen[at], end)))
        .collect();
    let bad = |sign: Sign| matches!(sign, Sign::Crash | Sign::Failure);
    let first_ns = ends.iter().filter(|(_, _, sign)| bad(*sign));
    let Some(first_ns) = first_ns.map(|(_, seen_ns, _)| *seen_ns).min() else {
        return Vec::new();
    };
    let together: Vec<_> = ends
        .iter()
        .filter(|(_, seen_ns, _)| *seen_ns <= first_ns + TOGETHER_NS)
        .collect();
    let any = |wanted: Sign| together.iter().any(|(_, _, sign)| *sign == wanted);
    let by = |until_ns: u64, wanted: Sign| {
        ends.iter()
            .any(|(_, seen_ns, sign)| *sign == wanted && *seen_ns <= until_ns)
    };
    // Who returns a code may have done so because of a crash, and hardly the other way round.
    let wanted = if any(Sign::Crash) {
        Sign::Crash
    } else {
        Sign::Failure
    };
    let found: Vec<usize> = together
        .iter()
        .filter(|(_, _, sign)| *sign == wanted)
        .map(|(at, _, _)| *at)
        .collect();
    let asked_ns = if wanted == Sign::Crash {
        first_ns
    } else {
        first_ns + REACTION_NS
    };
    let others = || (0..).zip(seen).filter(|(at, _)| !found.contains(at));
    // Of those that follow a failure, one at least lives, or somebody ended it.
    let is_followed = || {
        others().any(|(_, one)| {
            one.end.as_ref().map_or(one.sight != Sight::Ended, |end| {
                matches!(end.how, DownReason::Killed { .. }) && end.seen_ns > first_ns
            })
        })
    };
    let is_clear = !by(asked_ns, Sign::Request)
        && !by(first_ns, Sign::Unknown)
        && found.len() <= NAMED_MAX
        && (found.len() < seen.len() || seen.len() == 1)
        && (wanted == Sign::Crash || is_followed());
    if is_clear { found } else { Vec::new() }
}

impl Jobs {
    /// The verdict on a job that is over, of which nothing was told: the process whose end ended it, where that is known.
    pub fn ended(&mut self, seen: &[Watched], now_ns: u64, wall_ms: u64) -> Option<Verdict> {
        let made = self.scene(seen, now_ns, wall_ms)?;
        if let Some(verdict) = made.devices(seen, now_ns, wall_ms).broken(0) {
            return Some(worded(&made.scene, verdict, false, &made.behind));
        }
        let firsts = first(seen);
        let at = *firsts.first()?;
        // As it was then: the others lived.
        let mut then = seen.to_vec();
        for (_, one) in (0..).zip(&mut then).filter(|(at, _)| !firsts.contains(at)) {
            one.sight = Sight::Seen(ProcessFacts::default());
            one.end = None;
        }
        let mut made = self.scene(&then, now_ns, wall_ms)?;
        let ranks: Vec<u32> = firsts.iter().map(|at| made.numbers[*at]).collect();
        let confidence = confidence(seen, at, &ranks);
        for rank in &ranks {
            let member = made.scene.members.get_mut(*rank as usize);
            if let Some(fate) = member.and_then(|member| member.fate.as_mut()) {
                fate.confidence = confidence;
                fate.cause = EndCause::Unprovoked;
            }
        }
        let scene = &made.scene;
        let awaits = |open: &&Open| {
            let group = scene
                .member(open.rank)?
                .report
                .as_ref()?
                .group(open.call.key)?;
            let wait = group.call.as_ref()?.wait.as_ref()?;
            Some(wait.missing.iter().any(|rank| ranks.contains(rank)))
        };
        let waiting = made.open.iter().find(|open| awaits(open) == Some(true));
        let found = waiting.and_then(|open| {
            let question = Question::Overdue {
                rank: open.rank,
                call: open.call,
            };
            match judge(scene, question) {
                Finding::Verdict(verdict) if verdict.class == Class::PeerDead => Some(*verdict),
                Finding::Verdict(_) | Finding::Again(_) | Finding::Nothing => None,
            }
        });
        let others = u32::try_from(seen.len())
            .unwrap_or(u32::MAX)
            .saturating_sub(1);
        let verdict = found.unwrap_or_else(|| alone(scene, &ranks, others, wall_ms));
        Some(worded(scene, verdict, false, &made.behind))
    }
}

/// How sure it is that the job ended because of these ranks: somebody without a board may have ended before them.
fn confidence(seen: &[Watched], first: usize, ranks: &[u32]) -> Confidence {
    let world = seen.iter().filter_map(|one| one.process.world_size).max();
    let are_all_seen = world == u32::try_from(seen.len()).ok();
    let is_crash = seen[first].end.as_ref().is_some_and(End::is_crash);
    if ranks.len() == 1 && are_all_seen && is_crash {
        Confidence::Certain
    } else {
        Confidence::Likely
    }
}

/// The verdict on these ranks where no call is known that others waited for them in.
fn alone(scene: &Scene, ranks: &[u32], others: u32, wall_ms: u64) -> Verdict {
    let rank = ranks.first().copied().unwrap_or_default();
    let member = scene.member(rank);
    let fate = member.and_then(|member| member.fate.as_ref());
    let seen = Observation::Ended {
        how: fate.map_or_else(String::new, |fate| fate.how.clone()),
        panic: None,
        others,
    };
    let mut verdict = observed(rank, member.map_or(0, |member| member.pid), seen, wall_ms);
    verdict.confidence = fate.map_or(Confidence::Likely, |fate| fate.confidence);
    name_beside(scene, rank, &mut verdict);
    verdict
}
