//! What this process knows of the fate of the others: who is gone, and which groups were given up.
//!
//! Written by the control plane (a thread of its own), read by waiting ranks. A waiter polls one
//! word, the epoch; only when that changes does it take the lock and look. Who waits for nothing but news sleeps until
//! there is some.
//!
//! - STATUS-1: a verdict is printed before any call can end by it: a program that ends because of it has
//!   printed it. Only where nobody reads what is printed the calls end first.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::epoch::Epoch;
use super::stall_report::{Court, StallReport};
use crate::error::ErrorKind;
use crate::error::verdict::{CallId, Verdict};
use crate::rendezvous::DownReason;
use crate::sync::{AtomicU64, Deadline};
use crate::transport::shm::arena::{Arena, OwnerMark};
use crate::transport::shm::wakers::Wakers;
use crate::types::Rank;
use crate::watch::arbiter::covers;
use crate::watch::probe::Probe;

/// How a rank went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gone {
    /// In words that follow "rank 3": `was killed by signal 9`.
    pub(crate) how: String,
    /// Whether it said goodbye.
    pub(crate) orderly: bool,
    /// What the control plane says of its end, where it did not.
    pub(crate) reason: Option<DownReason>,
}

impl Gone {
    /// A rank that said goodbye.
    pub(crate) fn left() -> Self {
        Self {
            how: "left the world".to_owned(),
            orderly: true,
            reason: None,
        }
    }

    /// A rank that did not.
    pub(crate) fn lost(reason: DownReason) -> Self {
        Self {
            how: reason.to_string(),
            orderly: false,
            reason: Some(reason),
        }
    }
}

/// The control plane is lost: no news of other ranks will come any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CutOff {
    /// The rank that served it, where a rank did.
    pub(crate) served_by: Option<Rank>,
    /// What was seen.
    pub(crate) why: String,
}

/// A group was given up by one of its members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Notice {
    /// Key of the group.
    pub(crate) key: u64,
    /// The call in which it failed.
    pub(crate) seq: u64,
    /// The rank that failed.
    pub(crate) origin: u32,
    /// Its error.
    pub(crate) kind: ErrorKind,
}

/// Most verdicts that are remembered, for the same reason as notices.
const VERDICTS_MAX: usize = 1024;
/// Most groups whose failure is remembered. A process that has this many failed groups has long
/// given up; the bound keeps a faulty peer from filling memory.
const NOTICES_MAX: usize = 65_536;

#[derive(Debug, Default)]
pub(crate) struct Status {
    epoch: Epoch,
    /// What ranks said about calls that did not end.
    pub(crate) court: Court,
    known: Mutex<Known>,
    /// Held while one verdict is taken: they come from the control plane, and from ranks that judge themselves.
    telling: Mutex<()>,
    /// The shared memory in which ranks leave marks for those who outlive them, where there is one.
    marks: OnceLock<Marks>,
    /// What wakes threads of this rank that sleep in `poll`, where they do.
    wakers: OnceLock<Arc<Wakers>>,
}

/// Regions of shared memory.
#[derive(Debug)]
struct Marks {
    arena: Arc<Arena>,
    /// Index of this rank's region.
    local: usize,
    /// Index of every world rank's region, `None` for ranks elsewhere.
    locals: Vec<Option<usize>>,
}

#[derive(Debug, Default)]
struct Known {
    gone: HashMap<Rank, Gone>,
    /// The first notice of each group.
    notices: HashMap<u64, Notice>,
    /// Set when the control plane itself is lost.
    cut_off: Option<CutOff>,
    /// What the arbiter found, in the order in which it was told first.
    verdicts: Vec<Arc<Verdict>>,
    /// When each of them was, in milliseconds.
    told_ms: Vec<u64>,
}

impl Status {
    /// The word that waiters watch.
    pub(crate) fn epoch_word(&self) -> &AtomicU64 {
        self.epoch.word()
    }

    /// The epoch now.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.now()
    }

    /// From now on trouble is marked in the region of this rank: those who outlive its process see what it knew.
    pub(crate) fn set_island(&self, arena: Arc<Arena>, local: usize, locals: Vec<Option<usize>>) {
        // The first one stays.
        let _ = self.marks.set(Marks {
            arena,
            local,
            locals,
        });
        if !self.is_untroubled() {
            self.mark_trouble();
        }
    }

    /// From now on an event wakes threads of this rank that sleep in `poll`.
    pub(crate) fn set_wakers(&self, wakers: Arc<Wakers>) {
        // The first ones stay.
        let _ = self.wakers.set(wakers);
    }

    fn mark_trouble(&self) {
        if let Some(marks) = self.marks.get() {
            marks.arena.set_owner_mark(marks.local, OwnerMark::Troubled);
        }
    }

    /// Whether a rank whose process has ended had neither left the world nor heard of a failure: nothing of ours ended it.
    /// `None` where it shared no memory with this one, so that nobody knows.
    pub(crate) fn ended_unprovoked(&self, rank: Rank) -> Option<bool> {
        let marks = self.marks.get()?;
        let local = (*marks.locals.get(rank.index())?)?;
        let known = [OwnerMark::Left, OwnerMark::Troubled];
        Some(!marks.arena.has_owner_mark(local, &known))
    }

    /// A rank is gone. Its first fate stays.
    pub(crate) fn set_gone(&self, rank: Rank, gone: Gone) {
        if !gone.orderly {
            self.mark_trouble();
        }
        self.known().gone.entry(rank).or_insert(gone);
        self.disturb();
    }

    /// A group was given up. Of several notices that of the earliest call stays: it is the cause.
    pub(crate) fn set_notice(&self, notice: Notice) {
        self.mark_trouble();
        {
            let mut known = self.known();
            if known.notices.len() < NOTICES_MAX {
                let first = known
                    .notices
                    .entry(notice.key)
                    .or_insert_with(|| notice.clone());
                if notice.seq < first.seq {
                    *first = notice;
                }
            }
        }
        self.disturb();
    }

    /// A rank testified.
    pub(crate) fn set_testimony(&self, stall_report: StallReport) {
        if self.court.hear(stall_report) {
            self.disturb();
        }
    }

    /// The control plane is lost.
    pub(crate) fn set_cut_off(&self, cut_off: CutOff) {
        self.mark_trouble();
        self.known().cut_off.get_or_insert(cut_off);
        self.disturb();
    }

    /// The arbiter has found something. Told again, a verdict ends more calls than before. `say` is called
    /// where it is a new one, before any call can end by it (STATUS-1).
    pub(crate) fn set_verdict(&self, verdict: Verdict, now_ms: u64, say: impl FnOnce()) {
        self.mark_trouble();
        let _one_by_one = self.telling.lock().unwrap_or_else(PoisonError::into_inner);
        self.learn(verdict, now_ms, say);
    }

    /// This rank has judged by itself why a call ended, because the arbiter is gone or stands still. What was told before stays the verdict, and
    /// ends the call too.
    pub(crate) fn set_judged(
        &self,
        call: CallId,
        verdict: Verdict,
        probe: &dyn Probe,
        say: impl FnOnce(),
    ) {
        self.mark_trouble();
        let _one_by_one = self.telling.lock().unwrap_or_else(PoisonError::into_inner);
        if self.cause_of(call, true, probe).is_some() {
            self.disturb();
        } else {
            self.learn(verdict, probe.now_ms(), say);
        }
    }

    /// Takes a verdict in. Whoever calls holds the lock of `telling`.
    fn learn(&self, verdict: Verdict, now_ms: u64, say: impl FnOnce()) {
        let is_same = |one: &Arc<Verdict>| {
            (one.since_unix_ms, &one.blamed, &one.place)
                == (verdict.since_unix_ms, &verdict.blamed, &verdict.place)
        };
        // Ranks that judged by themselves word the same verdict in their own way.
        let is_reworded = |one: &Arc<Verdict>| {
            let is_on_the_same = one.class == verdict.class && one.blamed == verdict.blamed;
            is_on_the_same && !one.blamed.is_empty() && one.is_final() && verdict.is_final()
        };
        let (at, count, is_said) = {
            let known = self.known();
            (
                known.verdicts.iter().position(is_same),
                known.verdicts.len(),
                known.verdicts.iter().any(is_reworded),
            )
        };
        match at {
            Some(at) => self.known().verdicts[at] = Arc::new(verdict),
            None if count < VERDICTS_MAX => {
                if !is_said {
                    say();
                }
                let mut known = self.known();
                known.verdicts.push(Arc::new(verdict));
                known.told_ms.push(now_ms);
            }
            None => {}
        }
        self.disturb();
    }

    /// The verdict that ends this call, or is about it.
    pub(crate) fn verdict(&self, call: CallId) -> Option<Arc<Verdict>> {
        let known = self.known();
        let found = known.verdicts.iter().find(|verdict| covers(verdict, call));
        found.map(Arc::clone)
    }

    /// The verdict of the last seconds that a call which has ended badly is taken for a consequence of, made to end this call too.
    /// Where `arbiter_is_gone` that is the first verdict ever: whoever ran the arbiter may have ended because of it.
    pub(crate) fn cause_of(
        &self,
        call: CallId,
        arbiter_is_gone: bool,
        probe: &dyn Probe,
    ) -> Option<Arc<Verdict>> {
        if !self.has_verdict() {
            // The load of the host is read only where it matters.
            return None;
        }
        let since_ms = probe.causes_since_ms();
        let mut known = self.known();
        let Known {
            verdicts,
            told_ms,
            notices,
            ..
        } = &mut *known;
        let notice = notices.get(&call.key);
        let given_up_for = notice.map(|notice| notice.kind.first_cause().1);
        let is_cause = |(verdict, told_ms): &(&mut Arc<Verdict>, &u64)| {
            let is_recent = **told_ms >= since_ms;
            // Ranks go on after a mismatch that leaves the group usable, unless they do not: one that gives up another
            // group for it tells its members the same error.
            if verdict.ends.is_empty() {
                is_recent && (arbiter_is_gone || given_up_for == Some(&verdict.kind))
            } else {
                is_recent || arbiter_is_gone
            }
        };
        let (first, _) = verdicts.iter_mut().zip(told_ms.iter()).find(is_cause)?;
        Arc::make_mut(first).end(call);
        Some(Arc::clone(first))
    }

    /// Whether nothing has gone wrong so far: ranks may have left in good order.
    pub(crate) fn is_untroubled(&self) -> bool {
        let known = self.known();
        known.verdicts.is_empty()
            && known.notices.is_empty()
            && known.cut_off.is_none()
            && known.gone.values().all(|gone| gone.orderly)
    }

    /// Whether a verdict was told.
    pub(crate) fn has_verdict(&self) -> bool {
        !self.known().verdicts.is_empty()
    }

    pub(crate) fn gone(&self, rank: Rank) -> Option<Gone> {
        self.known().gone.get(&rank).cloned()
    }

    /// Whether any rank has left in good order.
    pub(crate) fn is_any_orderly(&self) -> bool {
        self.known().gone.values().any(|gone| gone.orderly)
    }

    pub(crate) fn notice(&self, key: u64) -> Option<Notice> {
        self.known().notices.get(&key).cloned()
    }

    pub(crate) fn cut_off(&self) -> Option<CutOff> {
        self.known().cut_off.clone()
    }

    /// Waits until something that this status tells `has_come`.
    pub(crate) fn await_event(&self, patience: Deadline, has_come: impl Fn() -> bool) {
        loop {
            let seen = self.epoch();
            if has_come() || patience.passed() {
                return;
            }
            self.await_news(seen, patience.left());
        }
    }

    /// Sleeps until the epoch is no longer `seen`, at most for `time`.
    pub(crate) fn await_news(&self, seen: u64, time: Duration) {
        self.epoch.sleep(seen, time);
    }

    /// Something has happened, and is recorded: whoever waits learns of it.
    fn disturb(&self) {
        self.epoch.advance();
        if let Some(wakers) = self.wakers.get() {
            wakers.ring_own();
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::verdict::tests::example;
    use crate::sync::Clock;
    use crate::watch::peers::tests::Host;

    #[test]
    fn a_group_given_up_with_the_error_of_a_verdict_is_a_consequence_of_it() {
        let (status, host) = (Status::default(), Host::default());
        // A mismatch that left its own group usable.
        let verdict = example();
        status.set_verdict(verdict.clone(), 0, || {});
        let call = CallId { key: 9, seq: 1 };
        let aborted = |cause: &ErrorKind| ErrorKind::PeerAborted {
            origin: Rank(1),
            reason: String::new(),
            cause: Box::new(cause.clone()),
        };
        let give_up = |kind: ErrorKind| {
            status.set_notice(Notice {
                key: call.key,
                seq: call.seq,
                origin: 1,
                kind,
            });
        };
        assert_eq!(status.cause_of(call, false, &host), None);
        give_up(aborted(&aborted(&verdict.kind)));
        let elsewhere = CallId { key: 10, seq: 1 };
        assert_eq!(status.cause_of(elsewhere, false, &host), None);
        let found = status.cause_of(call, false, &host).unwrap();
        assert_eq!(found.ends, [call]);
        assert_eq!(status.verdict(call), Some(found));
    }

    #[test]
    fn who_served_the_arbiter_may_end_long_after_a_mismatch_where_the_host_is_crowded() {
        let (status, host) = (Status::default(), Host::default());
        let call = CallId { key: 9, seq: 1 };
        status.set_verdict(example(), host.now_ms(), || {});
        host.now_ms.set(host.now_ms() + 15_000);
        assert_eq!(status.cause_of(call, true, &host), None);
        host.crowd.set(2);
        assert_eq!(status.cause_of(call, false, &host), None);
        assert!(status.cause_of(call, true, &host).is_some());
    }

    #[test]
    fn the_first_cause_stays_and_every_event_moves_the_epoch() {
        let status = Status::default();
        let gone = |how: &str| Gone {
            how: how.to_owned(),
            ..Gone::lost(DownReason::HungUp)
        };
        status.set_gone(Rank(2), gone("was killed by signal 9"));
        status.set_gone(Rank(2), gone("left the world"));
        assert_eq!(status.gone(Rank(2)), Some(gone("was killed by signal 9")));
        assert_eq!(status.gone(Rank(1)), None);
        assert_eq!(status.epoch(), 2);
        let kind = ErrorKind::Stalled {
            waiting_for: vec![Rank(2)],
            waited_ms: 5,
        };
        let notice = Notice {
            key: 9,
            seq: 4,
            origin: 1,
            kind,
        };
        status.set_notice(notice.clone());
        status.set_notice(Notice {
            origin: 7,
            ..notice.clone()
        });
        assert_eq!(status.notice(9), Some(notice.clone()));
        assert_eq!(status.epoch(), 4);
        status.set_notice(Notice {
            seq: 3,
            ..notice.clone()
        });
        status.set_notice(Notice {
            seq: 5,
            ..notice.clone()
        });
        assert_eq!(status.notice(9), Some(Notice { seq: 3, ..notice }));
    }

    #[test]
    fn who_waits_for_news_is_woken_by_it_and_does_not_sleep_where_there_has_been_some() {
        let status = Status::default();
        let hour = Duration::from_secs(3600);
        let seen = status.epoch();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                Clock::pause(Duration::from_millis(20));
                status.set_gone(Rank(1), Gone::left());
            });
            while status.epoch() == seen {
                status.await_news(seen, hour);
            }
        });
        status.await_news(seen, hour);
        assert!(status.gone(Rank(1)).is_some());
    }

    #[test]
    fn what_a_rank_judges_itself_comes_after_what_it_was_told() {
        let (status, host) = (Status::default(), Host::default());
        let (call, own_call) = (CallId { key: 7, seq: 4 }, CallId { key: 8, seq: 0 });
        let judged = |blamed: u32| Verdict {
            blamed: vec![blamed],
            ends: vec![own_call],
            ..example()
        };
        let told = Verdict {
            ends: vec![call],
            ..example()
        };
        status.set_verdict(told, 0, || ());
        status.set_judged(own_call, judged(9), &host, || {
            panic!("a second line is printed")
        });
        assert_eq!(
            status.verdict(own_call).map(|one| one.blamed.clone()),
            Some(example().blamed)
        );
        let status = Status::default();
        status.set_judged(own_call, judged(9), &host, || ());
        assert_eq!(
            status.verdict(own_call).map(|one| one.blamed.clone()),
            Some(vec![9])
        );
    }

    #[test]
    fn a_verdict_is_said_once_and_before_any_call_can_end_by_it() {
        let status = Status::default();
        let (call, more) = (CallId { key: 7, seq: 4 }, CallId { key: 8, seq: 0 });
        let verdict = Verdict {
            ends: vec![call],
            ..example()
        };
        let mut said = 0;
        status.set_verdict(verdict.clone(), 0, || {
            said += 1;
            assert_eq!((status.verdict(call), status.epoch()), (None, 0));
        });
        assert_eq!(status.verdict(call).as_deref(), Some(&verdict));
        let mut again = verdict.clone();
        again.ends.push(more);
        status.set_verdict(again.clone(), 0, || said += 1);
        assert_eq!(status.verdict(more).as_deref(), Some(&again));
        let reworded = Verdict {
            since_unix_ms: verdict.since_unix_ms + 1,
            ..verdict.clone()
        };
        status.set_verdict(reworded, 0, || said += 1);
        assert_eq!((said, status.epoch()), (1, 3));
        let other = Verdict {
            blamed: vec![verdict.blamed[0] + 1],
            ..verdict
        };
        status.set_verdict(other, 0, || said += 1);
        assert_eq!((said, status.epoch()), (2, 4));
    }
}
