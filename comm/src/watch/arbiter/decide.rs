//! What the arbiter decides at the end of a round.

use super::{Arbiter, PAUSE_MS, STOPPED_WAIT_MS, UNKNOWN_WAIT_MS, covers};
use crate::error::ErrorKind;
use crate::error::verdict::{CallId, Class, Verdict};
use crate::rendezvous::Act;
use crate::types::Rank;
use crate::watch::judge::{Finding, Question, judge};
use crate::watch::wire::{ToOwner, ToRank, encode};
use crate::watch::{failure, mismatch};

/// Rounds one after the other that look at a circle once more.
const AGAIN_MAX: u32 = 20;
/// Least pause before such a look.
const AGAIN_PAUSE_MS: u64 = 5;
/// Rounds in which a mismatch waits for ranks that have not come to the call; as many times as there are threads for each
/// processor, for a rank that is about to come needs one.
const LOOKS_MAX: u64 = 8;
/// How many times as many at most.
const LOOKS_CROWD_MAX: u64 = 12;
/// Pause between them.
const LOOK_PAUSE_MS: u64 = 40;
/// How long a call that no board shows is looked for: a thread that gets no processor may be writing the line.
pub(super) const UNREADABLE_WAIT_MS: u64 = 500;
/// How long the first verdict on a rank that ended waits at most for others that are ending: they may have come first.
pub(super) const ENDING_WAIT_MS: u64 = 1000;
/// How long they are looked for, as many times as there are threads for each processor, and a little longer in a large world:
/// one that has taken its signal and goes on dying when it gets a processor cannot be told from one that lives.
const ENDING_LOOK_MS: u64 = 5;
/// How long an error of a link waits for the end of the process at its other side, which is seen to be ending.
pub(super) const EXIT_WAIT_MS: u64 = 30_000;
/// Pause between two looks at them.
const ENDING_PAUSE_MS: u64 = 5;

/// The looks for ranks that are ending, from when the first verdict on a rank that ended was due.
#[derive(Debug, Default)]
pub(super) struct Ending {
    /// By when the looks are over.
    until_ms: u64,
    /// By when the wait for those that were found is over.
    wait_ms: u64,
    /// When the next look is due.
    next_ms: u64,
    found: Vec<u32>,
}

impl Arbiter {
    /// Judges what a round has shown.
    pub(super) fn decide(&mut self, now_ms: u64) -> Vec<Act> {
        let mut acts = Vec::new();
        for failed in std::mem::take(&mut self.failed) {
            if let Some(verdict) = self.decide_failed(failed, now_ms) {
                acts.extend(self.publish(verdict, &[]));
            }
        }
        acts.extend(self.compare());
        let overdue = std::mem::take(&mut self.overdue);
        let is_overdue = !overdue.is_empty();
        if !is_overdue && self.failed.is_empty() {
            self.looked_at_first.clear();
        }
        for ((rank, call), since_ms) in overdue {
            if !self.is_known(call) && self.is_present(rank) {
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
            // They may be through in a moment, and then nobody else tells of it: the rank stays a while.
            if self.is_present(failed.rank) {
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
                if self.may_look_again(&failed)
                    && failed.culprit.is_none()
                    && mismatch::is_incomplete(&self.scene, failed.call) =>
            {
                if failed.usable {
                    AGAIN_PAUSE_MS
                } else {
                    LOOK_PAUSE_MS
                }
            }
            // It gave up a call of this group, and a link that it was making with that: what comes of its wait is said.
            ErrorKind::Transport { peer, .. } if self.has_given_up(peer.0, failed.call.key) => {
                LOOK_PAUSE_MS
            }
            // Files close before a process has ended, and on a starved host long before.
            ErrorKind::Transport { peer, .. }
                if now_ms < failed.since_ms + EXIT_WAIT_MS && self.is_exiting(peer.0) =>
            {
                PAUSE_MS
            }
            // The other side may have said before the error what this round shows of it, and be ending since.
            ErrorKind::Transport { peer, .. } if failed.looks == 1 && self.is_present(peer.0) => {
                AGAIN_PAUSE_MS
            }
            // A link ends where its other side does, and that news may be late.
            ErrorKind::Transport { peer, .. }
                if self.may_be_known_soon(peer.0, failed.since_ms, now_ms)
                    || (self.silences.contains_key(&peer.0) || self.may_follow(peer.0, now_ms))
                        && now_ms < failed.since_ms + STOPPED_WAIT_MS =>
            {
                PAUSE_MS
            }
            // It may have done its part in this call, which another rank made differently.
            ErrorKind::Transport { peer, .. }
                if self.has_left(peer.0)
                    && self.may_look_again(&failed)
                    && mismatch::is_incomplete(&self.scene, failed.call) =>
            {
                LOOK_PAUSE_MS
            }
            _ => {
                let verdict = failure::verdict(&self.scene, &failed, &|call| self.is_known(call));
                let verdict = self.differing(&verdict).unwrap_or(verdict);
                // Another rank may have ended before the one that it names.
                if verdict.class != Class::PeerDead || !self.are_others_ending(now_ms) {
                    return Some(verdict);
                }
                ENDING_PAUSE_MS
            }
        };
        self.due_at(now_ms + pause_ms);
        self.failed.push(failed);
        None
    }

    /// Whether a mismatch is known whose sides are not: who met it is in a call and waits for nobody, and others wait for it.
    fn is_any_mismatch_open(&self) -> bool {
        let is_open = |failed: &failure::Failed| {
            matches!(failed.kind, ErrorKind::Mismatch { .. })
                && !failure::is_left_to_waiters(&self.scene, failed)
        };
        self.failed.iter().any(is_open)
    }

    /// Whether a mismatch waits for one more round.
    fn may_look_again(&self, failed: &failure::Failed) -> bool {
        failed.looks < LOOKS_MAX * self.scene.slowness().min(LOOKS_CROWD_MAX)
    }

    /// Whether ranks are ending that no verdict names yet, before the first verdict on one that ended. A process that a signal is to end needs a
    /// processor for that, so processes may end in another order than that of their signals.
    fn are_others_ending(&mut self, now_ms: u64) -> bool {
        // Threads do not end as processes do, and nobody but they would look again.
        let looks = self.told.is_empty() && !self.has_threads();
        let Some(is_ending) = self.is_ending.filter(|_| looks) else {
            return false;
        };
        let members = &self.scene.members;
        let is_there = |rank: &u32| {
            let member = members.get(crate::types::index((*rank).into()));
            member.is_some_and(|member| member.fate.is_none())
        };
        let crowd = self.crowd;
        let ending = self.ending.get_or_insert_with(|| {
            // Ranks that were not asked before have not said how crowded their host is.
            let crowd = super::here(crowd).max(self.scene.slowness());
            let look_ms = ENDING_LOOK_MS * crowd + self.processes.len() as u64 / 4;
            Ending {
                until_ms: now_ms + look_ms,
                wait_ms: now_ms + ENDING_WAIT_MS,
                ..Ending::default()
            }
        });
        if now_ms < ending.until_ms {
            // Each call that waits asks this, and the looks take time of the processor that they look for.
            if ending.next_ms <= now_ms {
                let processes = (0_u32..).zip(&self.processes);
                let found =
                    processes.filter(|(rank, process)| is_there(rank) && is_ending(process));
                ending.found = found.map(|(rank, _)| rank).collect();
                ending.next_ms = now_ms + ENDING_PAUSE_MS + self.processes.len() as u64 / 2;
            }
            return true;
        }
        ending.found.retain(is_there);
        !ending.found.is_empty() && now_ms < ending.wait_ms
    }

    /// Whether a rank may be ending because of a verdict that it was told a moment ago.
    fn may_follow(&self, rank: u32, now_ms: u64) -> bool {
        let mut told = self.told.iter();
        self.is_present(rank) && told.any(|told| told.may_move(rank, &self.scene, now_ms))
    }

    /// Whether a rank waits for the verdict on a call of this group that it has given up.
    fn has_given_up(&self, rank: u32, key: u64) -> bool {
        let mut overdue = self.overdue.keys();
        self.is_present(rank) && overdue.any(|(by, call)| *by == rank && call.key == key)
    }

    /// Whether the process of a rank is ending, or has ended and the news of it has not come.
    fn is_exiting(&self, rank: u32) -> bool {
        let process = self.processes.get(crate::types::index(rank.into()));
        let is_ending = self.is_ending.zip(process);
        self.is_present(rank) && is_ending.is_some_and(|(is_ending, process)| is_ending(process))
    }

    /// Whether a rank has said goodbye.
    fn has_left(&self, rank: u32) -> bool {
        let fate = self.scene.member(rank).and_then(|one| one.fate.as_ref());
        fate.is_some_and(|fate| fate.orderly)
    }

    pub(super) fn is_known(&self, call: CallId) -> bool {
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
        // All of them are to be looked at, and not only the first.
        let blamed = verdict.blamed.iter().filter(|_| rests_on_absence);
        let unseen = blamed.filter(|rank| self.may_be_known_soon(**rank, since_ms, now_ms));
        let is_unseen = unseen.count() > 0;
        let must_wait = is_unreadable
            || is_unseen
            || rests_on_absence && age_ms < UNKNOWN_WAIT_MS && self.is_any_unknown()
            || rests_on_absence && self.is_any_mismatch_open()
            || verdict.class == Class::PeerDead
                && (self.are_others_ending(now_ms)
                    || age_ms < STOPPED_WAIT_MS && self.is_any_just_stopped());
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
        let is_inferred = match verdict.class {
            Class::Deadlock | Class::Internal | Class::Link | Class::NotJoined => true,
            // A wait on a crowded host, and not what a rank itself ran out of.
            Class::Resource => matches!(verdict.kind, ErrorKind::Stalled { .. }),
            Class::RdvMissing
            | Class::RdvConflict
            | Class::RdvUnreachable
            | Class::PeerDead
            | Class::PeerFrozen
            | Class::Mismatch
            | Class::Data => false,
        };
        if !is_inferred {
            return None;
        }
        let is_told = |call| self.is_known(call);
        let mut ends = verdict.ends.iter();
        let found =
            ends.find_map(|call| mismatch::earliest(&self.scene, *call, call.seq, &is_told));
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
        acts.push(if self.tells_owner {
            Act::Report(encode(&if remark.suspects.is_empty() {
                ToOwner::Starved(line)
            } else {
                ToOwner::Suspect(line)
            }))
        } else {
            let message = encode(&ToRank::Suspect { line });
            Act::Tell(Rank(remark.told_to), message)
        });
        acts
    }
}
