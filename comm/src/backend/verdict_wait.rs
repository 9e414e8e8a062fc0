//! How a call comes to a verdict: whom it asks, for how long it waits, and when its rank judges by itself.
//!
//! A machine without clock and I/O, as `call_wait`: `wait_context` drives it with the time and the processes of the system, the
//! simulator with virtual ones.
//!
//! - VERDICT-WAIT-1: as long as the process of the arbiter is seen to run and can be reached, only the arbiter judges.

use std::sync::Arc;
use std::time::Duration;

use crate::context::Status;
use crate::error::verdict::{CallId, Verdict};
use crate::types::Rank;
use crate::watch::NEXT_LOOK;
use crate::watch::peers::{self, ArbiterState, Ends, Patience, Peers};
use crate::watch::probe::Probe;

/// How long a call that has failed waits for the verdict that it has asked for. The arbiter answers within a tenth of a second
/// where it knows all ranks; it waits for news of ranks whose state it does not know, and on a busy machine it may be late.
const VERDICT_WAIT: Duration = Duration::from_secs(10);
/// It waits once more as long for so many threads that want each processor: the arbiter takes several turns, and each of them
/// begins when it gets a processor.
const CROWD: u64 = 8;
/// It waits so many times as long at most.
const CROWDED_MAX: u32 = 6;
/// How long it waits for one that another rank has asked for: it comes before the news that the group is given up.
const NOTICE_WAIT: Duration = Duration::from_secs(1);
/// After this long without a word of the arbiter, whose process is seen stopped, ranks judge by themselves.
const ARBITER_QUIET: Duration = Duration::from_secs(1);
/// After this long without a word of the arbiter, at whose process nobody here can look, a call that is over is judged by what
/// can be seen here. The arbiter itself waits less for ranks of which it knows nothing.
const ARBITER_SILENT: Duration = Duration::from_secs(4);
/// How often a rank looks that has lost the arbiter, and waits for the verdict of another one.
const CUT_OFF_LOOK: Duration = Duration::from_millis(5);

/// After this long it does not wait for another one any more.
const CUT_OFF_WAIT: Duration = Duration::from_secs(4);
/// How long a turn is in which some of these look at all others, where there are many.
const CUT_OFF_TURN: Duration = Duration::from_millis(50);

/// The number of the turn at this time.
fn turn(time: Duration, every: Duration) -> u128 {
    time.as_millis() / every.as_millis()
}

/// A call, and what its rank can learn of the others.
#[derive(Clone, Copy)]
pub(crate) struct Inquest<'a> {
    pub(crate) status: &'a Status,
    /// `None` where ranks are threads.
    pub(crate) peers: Option<&'a Peers>,
    pub(crate) probe: &'a dyn Probe,
    pub(crate) call: CallId,
    /// For how long nothing was heard of the arbiter.
    pub(crate) quiet: Duration,
}

impl Inquest<'_> {
    /// The verdict on a call that has waited and complained for `since`, where nothing is heard of the arbiter because its
    /// process is stopped.
    pub(crate) fn judge_early(&self, since: Duration) -> Option<Verdict> {
        let (peers, silent) = (self.peers?, self.quiet.min(since));
        if silent < NEXT_LOOK || peers.arbiter_state(self.probe) != ArbiterState::Stopped {
            return None;
        }
        if !peers.is_turn(self.probe, turn(since, NEXT_LOOK)) {
            return None;
        }
        // The first looks begin to count for how long others are stopped.
        let own = self.with_ends(|ends| peers.judge_early(self.probe, self.call, ends));
        let own = own.filter(|_| silent >= ARBITER_QUIET)?;
        // Who ended since an earlier verdict may have ended because of it.
        match self.cause(true) {
            Some(first) => Some((*first).clone()),
            None => peers.share(self.probe, own),
        }
    }

    /// The verdict on a call that has ended and asked for it `waited` ago, where the arbiter does not answer because its
    /// process is stopped, or may be.
    fn judge_overdue(&self, waited: Duration) -> Option<Verdict> {
        let peers = self.peers.filter(|peers| peers.has_arbiter())?;
        let patience = match peers.arbiter_state(self.probe) {
            ArbiterState::Stopped => ARBITER_QUIET,
            // It may be starved; or it is stopped, and nobody here can see that.
            ArbiterState::Hidden => ARBITER_SILENT,
            // A rank that had left in good order served it: others go on without, and nobody else judges.
            ArbiterState::Ended
                if self.status.cut_off().is_none() && self.status.is_any_orderly() =>
            {
                NEXT_LOOK
            }
            ArbiterState::Ended | ArbiterState::Runs => return None,
        };
        if waited.min(self.quiet) < patience || !peers.is_turn(self.probe, turn(waited, NEXT_LOOK))
        {
            return None;
        }
        // As above: the arbiter may have told one before it stopped.
        if let Some(first) = self.cause(true) {
            return Some((*first).clone());
        }
        let quiet_ms = u64::try_from(self.quiet.as_millis()).unwrap_or(u64::MAX);
        let patience = if waited < patience + ARBITER_SILENT {
            Patience::Waits
        } else {
            Patience::Spent
        };
        self.with_ends(|ends| peers.judge_overdue(self.probe, self.call, ends, quiet_ms, patience))
    }

    /// The verdict on a call that nobody has judged for `waited`: who served the arbiter is gone, or cannot be reached.
    fn judge_gone(&self, waited: Duration) -> Option<Verdict> {
        let peers = self.peers?;
        let patience = match waited {
            fresh if fresh < ARBITER_QUIET => Patience::Fresh,
            waits if waits < CUT_OFF_WAIT => Patience::Waits,
            _ => Patience::Spent,
        };
        let is_turn = || peers.is_turn(self.probe, turn(waited, CUT_OFF_TURN));
        let told = peers.told_to(self.probe, self.call);
        if told.is_some() || patience == Patience::Fresh && !is_turn() {
            return told;
        }
        self.with_ends(|ends| peers.judge_gone(self.probe, self.call, ends, patience))
    }

    /// What this rank knows of others that are gone.
    fn with_ends<R>(&self, judge: impl FnOnce(Ends<'_>) -> R) -> R {
        judge(Ends {
            told: &|rank| {
                let gone = self.status.gone(Rank(rank))?;
                Some(peers::fate_of(gone.reason.as_ref()))
            },
            unprovoked: &|rank| self.status.ended_unprovoked(Rank(rank)),
            heard: &|| self.cause(true).map(|first| (*first).clone()),
        })
    }

    /// The earlier verdict that this call has failed because of.
    fn cause(&self, arbiter_is_gone: bool) -> Option<Arc<Verdict>> {
        self.status.cause_of(self.call, arbiter_is_gone, self.probe)
    }
}

/// How a call that has ended waits for its verdict. Times are measured from the end of the call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VerdictWait {
    phase: Phase,
    patience: Duration,
    /// When it looked at the arbiter last.
    looked: Duration,
    /// Most threads that wanted each processor at such a look.
    crowd: u64,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Nobody has been asked.
    Begun,
    /// The arbiter has been asked.
    Asked,
    /// There is no arbiter any more, since then.
    CutOff(Duration),
    /// This rank has judged.
    Judged,
}

/// What a call that has ended does next.
#[derive(Clone, Debug)]
pub(crate) enum Next {
    /// It asks the arbiter.
    Ask,
    /// It makes a verdict of this rank known: to all calls, and to the arbiter for when it runs again.
    Tell(Box<Verdict>),
    /// It waits for the verdict, for so long at most.
    Rest(Duration),
    /// It has waited for long enough; this is the verdict.
    End(Option<Arc<Verdict>>),
}

impl VerdictWait {
    /// The wait of a call that asks by itself, or only waits for what another rank has asked for.
    pub(crate) fn new(asks: bool, peers: Option<&Peers>) -> Self {
        let is_answered = asks && peers.is_none_or(Peers::has_arbiter);
        Self {
            phase: Phase::Begun,
            patience: if is_answered {
                VERDICT_WAIT
            } else {
                NOTICE_WAIT
            },
            looked: Duration::ZERO,
            crowd: 0,
        }
    }

    /// The arbiter cannot be asked: that it is gone is about to be known.
    pub(crate) fn is_not_heard(&mut self) {
        self.patience = NOTICE_WAIT;
    }

    /// How long the waiting thread did not run, where it looks up at `now`.
    pub(crate) fn overrun(&self, now: Duration) -> Option<Duration> {
        let over = now.saturating_sub(self.looked + NEXT_LOOK);
        (over > NEXT_LOOK).then_some(over)
    }

    /// The next step. Time in which the thread did not run, `lost`, does not count.
    pub(crate) fn step(&mut self, now: Duration, lost: Duration, inquest: &Inquest<'_>) -> Next {
        let status = inquest.status;
        if let Some(verdict) = status.verdict(inquest.call) {
            return Next::End(Some(verdict));
        }
        if let (Phase::Begun | Phase::Asked, Some(_)) = (self.phase, status.cut_off()) {
            self.phase = Phase::CutOff(now);
            // Whoever served the arbiter may have ended because of a verdict that all have.
            if let Some(first) = inquest.cause(true) {
                return Next::End(Some(first));
            }
        }
        match self.phase {
            Phase::Begun => {
                // What fails just after a verdict fails because of it: nobody need be asked.
                if let Some(first) = inquest.cause(false) {
                    return Next::End(Some(first));
                }
                self.phase = Phase::Asked;
                Next::Ask
            }
            Phase::Asked => self.wait(now, lost, inquest),
            Phase::CutOff(since) => {
                let next = self.looked + CUT_OFF_LOOK;
                if now > since && now < next {
                    return Next::Rest(next - now);
                }
                self.looked = now;
                let waited = now - since;
                if let Some(verdict) = inquest.judge_gone(waited) {
                    self.phase = Phase::Judged;
                    return Next::Tell(Box::new(verdict));
                }
                let is_served = inquest.peers.is_some_and(Peers::is_served_by_rank);
                let most = if is_served {
                    CUT_OFF_WAIT
                } else {
                    ARBITER_QUIET
                };
                if waited >= most {
                    return Next::End(inquest.cause(false));
                }
                Next::Rest(CUT_OFF_LOOK)
            }
            // Its own verdict would have been found above, unless another thread had taken the same one first.
            Phase::Judged => Next::End(inquest.cause(true)),
        }
    }

    /// How long it waits, by how crowded the host has been so far.
    fn patience(&self) -> Duration {
        let crowds = u32::try_from(self.crowd / CROWD + 1).unwrap_or(u32::MAX);
        let crowds = crowds.min(CROWDED_MAX);
        if self.patience < VERDICT_WAIT {
            self.patience
        } else {
            self.patience * crowds
        }
    }

    /// Waits for the answer of the arbiter.
    fn wait(&mut self, now: Duration, lost: Duration, inquest: &Inquest<'_>) -> Next {
        if now >= self.looked + NEXT_LOOK {
            self.looked = now;
            self.crowd = self.crowd.max(inquest.probe.crowd());
            if let Some(verdict) = inquest.judge_overdue(now) {
                return Next::Tell(Box::new(verdict));
            }
        }
        let until = self.patience() + lost;
        if now >= until {
            return Next::End(inquest.cause(false));
        }
        Next::Rest((self.looked + NEXT_LOOK).min(until).saturating_sub(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::{CutOff, Gone};
    use crate::error::verdict::tests::example;
    use crate::rendezvous::DownReason;
    use crate::watch::peers::tests::Host;

    const CALL: CallId = CallId { key: 7, seq: 4 };

    fn inquest<'a>(status: &'a Status, host: &'a Host) -> Inquest<'a> {
        Inquest {
            status,
            peers: None,
            probe: host,
            call: CALL,
            quiet: Duration::ZERO,
        }
    }

    #[test]
    fn a_call_asks_once_and_waits_for_as_long_as_its_thread_ran() {
        let (status, host) = (Status::default(), Host::default());
        let inquest = inquest(&status, &host);
        let mut wait = VerdictWait::new(true, None);
        let (soon, lost) = (Duration::from_millis(1), Duration::from_secs(3));
        let is_rest = |step: Next| matches!(step, Next::Rest(_));
        let first = wait.step(Duration::ZERO, Duration::ZERO, &inquest);
        assert!(matches!(first, Next::Ask), "{first:?}");
        assert!(is_rest(wait.step(soon, Duration::ZERO, &inquest)));
        assert!(is_rest(wait.step(VERDICT_WAIT, lost, &inquest)));
        let last = wait.step(VERDICT_WAIT + lost, lost, &inquest);
        assert!(matches!(last, Next::End(None)), "{last:?}");
    }

    #[test]
    fn a_verdict_that_comes_meanwhile_ends_the_wait_and_so_does_one_of_a_moment_before() {
        let (status, host) = (Status::default(), Host::default());
        status.set_gone(Rank(2), Gone::lost(DownReason::HungUp));
        let mut wait = VerdictWait::new(false, None);
        let first = wait.step(Duration::ZERO, Duration::ZERO, &inquest(&status, &host));
        assert!(matches!(first, Next::Ask), "{first:?}");
        let other = CallId { key: 9, seq: 1 };
        let verdict = Verdict {
            ends: vec![other],
            ..example()
        };
        status.set_verdict(verdict, host.now_ms(), || ());
        // It is about another call: the arbiter, which was asked, may say more of this one.
        let step = wait.step(Duration::ZERO, Duration::ZERO, &inquest(&status, &host));
        assert!(matches!(step, Next::Rest(_)), "{step:?}");
        let step = wait.step(NOTICE_WAIT, Duration::ZERO, &inquest(&status, &host));
        assert!(matches!(step, Next::End(Some(_))), "{step:?}");
        let mut later = VerdictWait::new(true, None);
        let step = later.step(Duration::ZERO, Duration::ZERO, &inquest(&status, &host));
        assert!(matches!(step, Next::End(Some(_))), "{step:?}");
    }

    #[test]
    fn on_a_crowded_host_a_call_waits_longer_and_not_for_ever() {
        let (status, host) = (Status::default(), Host::default());
        host.crowd.set(2 * CROWD);
        let inquest = inquest(&status, &host);
        let mut wait = VerdictWait::new(true, None);
        let none = Duration::ZERO;
        let mut step = |now| wait.step(now, none, &inquest);
        assert!(matches!(step(none), Next::Ask));
        assert!(matches!(step(VERDICT_WAIT), Next::Rest(_)));
        // It is quiet now.
        host.crowd.set(0);
        let end = VERDICT_WAIT * 3;
        assert!(matches!(step(end - VERDICT_WAIT / 10), Next::Rest(_)));
        assert!(matches!(step(end), Next::End(None)));
    }

    #[test]
    fn a_rank_that_has_judged_ends_the_call_with_what_another_thread_of_it_took_first() {
        let (status, host) = (Status::default(), Host::of("XS"));
        let peers = host.peers(1);
        let cut_off = CutOff {
            served_by: Some(Rank(0)),
            why: "is gone".to_owned(),
        };
        let mut wait = VerdictWait::new(true, Some(&peers));
        let inquest = Inquest {
            peers: Some(&peers),
            ..inquest(&status, &host)
        };
        status.set_cut_off(cut_off);
        let mut step = |ms| wait.step(Duration::from_millis(ms), Duration::ZERO, &inquest);
        let Next::Tell(own) = step(0) else {
            panic!("it does not judge");
        };
        assert_eq!(own.blamed, [0]);
        // The same verdict, for another call.
        let taken = Verdict {
            ends: vec![CallId { key: 1, seq: 1 }],
            ..*own
        };
        status.set_verdict(taken, host.now_ms(), || ());
        let Next::End(Some(verdict)) = step(5) else {
            panic!("the call ends without a verdict");
        };
        assert!(verdict.ends.contains(&CALL));
    }
}
