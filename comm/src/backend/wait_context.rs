//! Waiting with open eyes: for peers' progress, until the deadline, and not a moment longer than
//! the fate of the peers allows.

use std::sync::Arc;
use std::time::Duration;

use super::call_start::CallStart;
use super::call_wait::{CallWait, Turn};
use super::peer_status::PeerStatus;
use super::verdict_wait::{Inquest, Next, VerdictWait};
use crate::algo::Table;
use crate::context::{Context, Identity};
use crate::error::ErrorKind;
use crate::error::verdict::{CallId, Verdict};
use crate::sync::{Clock, Deadline};
use crate::transport::shm::wait::{self, Backoff, Interrupted, Rest};
use crate::types::Rank;
use crate::watch::probe::System;
use crate::watch::wire::{Cause, FromRank};
use crate::watch::{FIRST_LOOK, Mark, NEXT_LOOK, Place};

/// How long the end of a link, or of a peer's side of the group, may wait for the control plane to
/// say why: the news of a death and the end itself travel by different ways.
pub(crate) const NEWS_TIMEOUT: Duration = Duration::from_millis(500);

/// How long a call that ended early waits for peers that are at work on its buffers. They copy and
/// wait for nobody, so only one that is stopped takes longer.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(2);

/// By when a call must have ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit<'a> {
    /// Its own time.
    Call(&'a CallStart<'a>),
    /// A moment that somebody has set.
    At(Deadline),
}

/// One call's way of waiting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitContext<'a> {
    pub(crate) context: &'a Context,
    pub(crate) group: &'a Identity,
    pub(crate) limit: Limit<'a>,
    /// Number of the call. A member that gave the group up in a later call has done its part of
    /// this one, so that this one can still end well.
    pub(crate) seq: u64,
    /// Where in the program the call is made.
    pub(crate) mark: Mark,
    /// Where the call stands on the board of this rank.
    pub(crate) place: &'a Place,
    /// `Watch::lost` when the call began.
    pub(crate) lost: Duration,
}

impl<'a> WaitContext<'a> {
    /// The rules that choose algorithms instead of the built-in ones, where there are any.
    pub(crate) fn table(&self) -> Option<&'a Table> {
        self.group.table.as_ref().or(self.context.table.as_ref())
    }
}

impl WaitContext<'_> {
    pub(crate) fn deadline(&self) -> Deadline {
        match self.limit {
            Limit::Call(call_start) => call_start.deadline(),
            Limit::At(deadline) => deadline,
        }
    }

    /// Announces the call, where it is not announced: before it waits, or does much else.
    pub(crate) fn enter(&self) {
        if let Limit::Call(call_start) = self.limit {
            call_start.begin();
        }
    }

    /// Waits until `ready`. `missing` names the peers (indices) that this wait is for: they are
    /// blamed if the deadline passes, and the wait ends early if one of them is gone.
    #[inline]
    pub(crate) fn wait(
        &self,
        rest: &Rest<'_>,
        mut ready: impl FnMut() -> bool,
        missing: impl Fn() -> Vec<usize>,
    ) -> Result<(), ErrorKind> {
        if wait::soon(self.context.pace, rest, &mut ready) {
            return Ok(());
        }
        self.wait_on(rest, ready, missing)
    }

    /// Waits for what has not come soon.
    #[cold]
    #[inline(never)]
    fn wait_on(
        &self,
        rest: &Rest<'_>,
        mut ready: impl FnMut() -> bool,
        missing: impl Fn() -> Vec<usize>,
    ) -> Result<(), ErrorKind> {
        self.enter();
        if wait::turn_in_crowd(self.context.pace, rest, &mut ready) {
            return Ok(());
        }
        let status = &self.context.status;
        // As long as nothing ever happened nobody needs to look; after that each wait looks once,
        // since the peers it waits for may have gone before it began.
        let mut seen = if status.epoch() == 0 { 0 } else { u64::MAX };
        let call = self.deadline();
        let mut slices = CallWait::new(call.budget());
        let mut backoff = Backoff::new(self.context.pace);
        loop {
            let word = status.epoch_word();
            let slice = call.extended(self.lost()).at_most(slices.slice_end());
            match wait::later(slice, word, seen, rest, &mut backoff, &mut ready) {
                Ok(()) => return Ok(()),
                Err(Interrupted::Deadline) => {
                    let now = call.elapsed();
                    if let Some(lost) = slices.overrun(now, backoff.waited()) {
                        self.context.watch.lose(lost);
                    }
                    match slices.turn(now, call.budget() + self.lost()) {
                        Turn::Complain(number) => self.complain(&missing(), number),
                        Turn::GiveUp => return Err(self.stalled(&missing())),
                        Turn::Rest => {}
                    }
                }
                Err(Interrupted::Epoch) => {
                    seen = status.epoch();
                    if let Err(kind) = self.look(&missing()) {
                        // What a peer did before it went counts.
                        return if ready() { Ok(()) } else { Err(kind) };
                    }
                }
            }
        }
    }

    /// Time in which this process did not run while the call lasted.
    fn lost(&self) -> Duration {
        self.context.watch.lost().saturating_sub(self.lost)
    }

    /// Time left, without that in which this process did not run.
    pub(crate) fn left(&self) -> Duration {
        self.deadline().extended(self.lost()).left()
    }

    /// Puts the wait onto the board, and complains to the arbiter for the n-th time.
    fn complain(&self, missing: &[usize], number: u32) {
        if !self.context.watch.is_on() {
            return;
        }
        let waited = if number == 0 { FIRST_LOOK } else { NEXT_LOOK };
        let now = Clock::now();
        let since = now.checked_sub(waited).unwrap_or(now);
        self.place.waits(since, missing, number == 0);
        let complaint = FromRank::Complaint {
            call: self.call(),
            cause: Cause::Waits,
            report: None,
        };
        // A control plane that is gone is noticed by the status.
        let _ = self.context.control.complain(&complaint);
        if let Some(verdict) = self.inquest().judge_early(NEXT_LOOK * number) {
            self.tell(verdict);
        }
    }

    /// Makes a verdict that this rank has come to known to all its calls, and to the arbiter for when it runs again.
    fn tell(&self, verdict: Verdict) {
        let judged = FromRank::Judged(Box::new(verdict.clone()));
        let status = &self.context.status;
        self.context.watch.take(verdict, |verdict, say| {
            status.set_judged(self.call(), verdict, &System, say);
        });
        // Where the control plane is gone nobody needs it.
        let _ = self.context.control.complain(&judged);
    }

    /// The call, and what this rank can learn of the others.
    fn inquest(&self) -> Inquest<'_> {
        Inquest {
            status: &self.context.status,
            peers: self.context.peers.as_ref(),
            probe: &System,
            call: self.call(),
            quiet: Duration::from_millis(self.context.watch.quiet_ms()),
        }
    }

    /// The call, for the arbiter.
    pub(crate) fn call(&self) -> CallId {
        CallId {
            key: self.group.key,
            seq: self.seq,
        }
    }

    /// What others' fate means to this call.
    pub(crate) fn peer_status(&self) -> PeerStatus<'_> {
        PeerStatus {
            status: &self.context.status,
            members: &self.group.members,
            me: self.context.rank,
            call: self.call(),
        }
    }

    /// The error of a group that another rank has given up.
    pub(crate) fn given_up(&self) -> Option<ErrorKind> {
        self.peer_status().given_up()
    }

    /// Asks the arbiter about the end of this call, and waits a moment for its verdict; without a cause
    /// it waits for what another rank has asked for. Says that this call ends with what was told.
    pub(crate) fn arbitrate(
        &self,
        ended: &ErrorKind,
        cause: Option<Cause>,
    ) -> Option<Arc<Verdict>> {
        let verdict = self.judged(ended, cause);
        if let Some(verdict) = &verdict {
            self.context.note_told(verdict);
        }
        verdict
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "only these name the ranks that they wait for"
    )]
    fn judged(&self, ended: &ErrorKind, cause: Option<Cause>) -> Option<Arc<Verdict>> {
        let known = self.context.status.verdict(self.call());
        if known.is_some() || !self.context.watch.is_on() {
            return known;
        }
        let index = |rank: &Rank| self.group.members.iter().position(|member| member == rank);
        let missing: Vec<usize> = match ended {
            ErrorKind::Stalled { waiting_for, .. } => {
                waiting_for.iter().filter_map(index).collect()
            }
            ErrorKind::PeerClosed { peer, .. } | ErrorKind::Transport { peer, .. } => {
                index(peer).into_iter().collect()
            }
            _ => Vec::new(),
        };
        if !missing.is_empty() {
            self.place.waits(self.deadline().started(), &missing, true);
        }
        self.hear_verdict(cause)
    }

    /// Asks the arbiter about the end of this call, and waits for its verdict.
    pub(crate) fn ask(&self, cause: Cause) -> Option<Arc<Verdict>> {
        self.hear_verdict(Some(cause))
    }

    /// Comes to the verdict on this call; without a cause it is what another rank has asked for.
    fn hear_verdict(&self, mut cause: Option<Cause>) -> Option<Arc<Verdict>> {
        let ended = Deadline::after(Duration::ZERO);
        let mut wait = VerdictWait::new(cause.is_some(), self.context.peers.as_ref());
        loop {
            // Before anything is looked at: what comes after that ends the rest.
            let seen = self.context.status.epoch();
            let now = ended.elapsed();
            if let Some(lost) = wait.overrun(now) {
                self.context.watch.lose(lost);
            }
            match wait.step(now, self.lost(), &self.inquest()) {
                Next::Ask if !self.tell_end(cause.take()) => wait.is_not_heard(),
                Next::Ask => {}
                Next::Tell(verdict) => self.tell(*verdict),
                Next::Rest(time) => self.context.status.await_news(seen, time),
                Next::End(verdict) => return verdict,
            }
        }
    }

    /// Tells the arbiter that this call has ended badly; `false` where there is none.
    fn tell_end(&self, cause: Option<Cause>) -> bool {
        match cause {
            Some(cause) => self.context.complain_with_board(self.call(), cause),
            None => self.context.control.complain(&FromRank::Complaint {
                call: self.call(),
                cause: Cause::GivenUp,
                report: None,
            }),
        }
    }

    /// The error that a verdict is to this rank; see [`PeerStatus::kind_of`].
    pub(crate) fn kind_of(&self, verdict: &Verdict) -> Option<ErrorKind> {
        self.peer_status().kind_of(verdict)
    }

    /// Whether the fate of the group or of these peers ends the call.
    pub(crate) fn look(&self, missing: &[usize]) -> Result<(), ErrorKind> {
        self.peer_status().look(missing)
    }

    /// Why one of these peers is not there any more, where the control plane says so soon.
    pub(crate) fn news(&self, peers: &[usize]) -> Option<ErrorKind> {
        let listening = WaitContext {
            limit: Limit::At(Deadline::after(NEWS_TIMEOUT.min(self.deadline().left()))),
            ..*self
        };
        match listening.wait(&Rest::Pause, || false, || peers.to_vec()) {
            Err(ErrorKind::Stalled { .. }) | Ok(()) => None,
            Err(news) => Some(news),
        }
    }

    /// Waits until `over`, or until the peer is gone, whatever else happens to the group; `false` where
    /// neither comes in time.
    pub(super) fn settle(
        &self,
        peer: usize,
        rest: &Rest<'_>,
        mut over: impl FnMut() -> bool,
    ) -> bool {
        let status = &self.context.status;
        let rank = self.group.members[peer];
        let deadline = Deadline::after(SETTLE_TIMEOUT);
        loop {
            let seen = status.epoch();
            if over() || status.gone(rank).is_some() {
                return true;
            }
            let word = status.epoch_word();
            match wait::until(self.context.pace, deadline, word, seen, rest, &mut over) {
                Ok(()) => return true,
                Err(Interrupted::Deadline) => return false,
                Err(Interrupted::Epoch) => {}
            }
        }
    }

    /// The error of a wait whose time is up.
    pub(crate) fn stalled(&self, missing: &[usize]) -> ErrorKind {
        let waited = self.deadline().elapsed().as_millis();
        ErrorKind::Stalled {
            waiting_for: missing
                .iter()
                .map(|peer| self.group.members[*peer])
                .collect(),
            waited_ms: u64::try_from(waited).unwrap_or(u64::MAX),
        }
    }
}
