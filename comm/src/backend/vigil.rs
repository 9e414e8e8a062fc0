//! Waiting with open eyes: for peers' progress, until the deadline, and not a moment longer than
//! the fate of the peers allows.

use std::sync::Arc;
use std::time::Duration;

use super::call_wait::{CallWait, Turn};
use super::onset::Onset;
use super::outlook::Outlook;
use crate::algo::Table;
use crate::error::ErrorKind;
use crate::group::Identity;
use crate::sync::{Clock, Deadline};
use crate::transport::shm::wait::{self, Interrupted, Rest};
use crate::types::Rank;
use crate::watch::judge::Fate;
use crate::watch::peers::{self, ArbiterState, Peers};
use crate::watch::verdict::{CallId, Verdict};
use crate::watch::wire::{Cause, FromRank};
use crate::watch::{FIRST_LOOK, Mark, NEXT_LOOK, Place};
use crate::world::WorldInner;

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
    Call(&'a Onset<'a>),
    /// A moment that somebody has set.
    At(Deadline),
}

/// One call's way of waiting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vigil<'a> {
    pub(crate) world: &'a WorldInner,
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

/// How long a call that has failed waits for the verdict that it has asked for. The arbiter answers within a tenth of a second
/// where it knows all ranks; it waits for news of ranks whose state it does not know, and on a busy machine it may be late.
pub(crate) const VERDICT_WAIT: Duration = Duration::from_secs(10);
/// How long it waits for one that another rank has asked for: it comes before the news that the group is given up.
pub(crate) const NOTICE_WAIT: Duration = Duration::from_secs(1);
/// How often it looks.
const VERDICT_STEP: Duration = Duration::from_micros(500);
/// After this long without a word of the arbiter, whose process is seen stopped, ranks judge by themselves.
const ARBITER_QUIET: Duration = Duration::from_secs(1);
/// After this long without a word of the arbiter, at whose process nobody here can look, a call that is over is judged by what
/// can be seen here. The arbiter itself waits less for ranks of which it knows nothing.
const ARBITER_SILENT: Duration = Duration::from_secs(4);

impl<'a> Vigil<'a> {
    /// The rules that choose algorithms instead of the built-in ones, where there are any.
    pub(crate) fn table(&self) -> Option<&'a Table> {
        self.group.table.as_ref().or(self.world.table.as_ref())
    }
}

impl Vigil<'_> {
    pub(crate) fn deadline(&self) -> Deadline {
        match self.limit {
            Limit::Call(onset) => onset.deadline(),
            Limit::At(deadline) => deadline,
        }
    }

    /// Announces the call, where it is not announced: before it waits, or does much else.
    pub(crate) fn enter(&self) {
        if let Limit::Call(onset) = self.limit {
            onset.begin();
        }
    }

    /// Waits until `ready`. `missing` names the peers (indices) that this wait is for: they are
    /// blamed if the deadline passes, and the wait ends early if one of them is gone.
    pub(crate) fn wait(
        &self,
        rest: &Rest<'_>,
        mut ready: impl FnMut() -> bool,
        missing: impl Fn() -> Vec<usize>,
    ) -> Result<(), ErrorKind> {
        if wait::soon(self.world.pace, rest, &mut ready) {
            return Ok(());
        }
        self.enter();
        if wait::turn_in_crowd(self.world.pace, rest, &mut ready) {
            return Ok(());
        }
        let status = &self.world.status;
        // As long as nothing ever happened nobody needs to look; after that each wait looks once,
        // since the peers it waits for may have gone before it began.
        let mut seen = if status.epoch() == 0 { 0 } else { u64::MAX };
        let call = self.deadline();
        let mut slices = CallWait::new(call.budget());
        let begun_ns = Clock::coarse_ns();
        loop {
            let word = status.epoch_word();
            let slice = call.extended(self.lost()).at_most(slices.slice_end());
            match wait::later(slice, word, seen, rest, &mut ready) {
                Ok(()) => return Ok(()),
                Err(Interrupted::Deadline) => {
                    let now = call.elapsed();
                    let waited_ns = Clock::coarse_ns().saturating_sub(begun_ns);
                    if let Some(lost) = slices.overrun(now, Duration::from_nanos(waited_ns)) {
                        self.world.watch.lose(lost);
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
        self.world.watch.lost().saturating_sub(self.lost)
    }

    /// Time left, without that in which this process did not run.
    pub(crate) fn left(&self) -> Duration {
        self.deadline().extended(self.lost()).left()
    }

    /// Puts the wait onto the board, and complains to the arbiter for the n-th time.
    fn complain(&self, missing: &[usize], number: u32) {
        if !self.world.watch.is_on() {
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
        let _ = self.world.control.complain(&complaint);
        self.look_past_arbiter(NEXT_LOOK * number);
    }

    /// Where nothing is heard of the arbiter though this call has complained for `since`: looks whether its process is stopped,
    /// and judges what it sees of the others where it is.
    fn look_past_arbiter(&self, since: Duration) {
        let Some(peers) = &self.world.peers else {
            return;
        };
        let quiet = Duration::from_millis(self.world.watch.quiet_ms());
        if quiet.min(since) < NEXT_LOOK || peers.arbiter_state() != ArbiterState::Stopped {
            return;
        }
        // The first looks begin to count for how long others are stopped.
        let verdict = peers.judge_early(self.call(), &|rank| self.fate_of(rank));
        if let Some(verdict) = verdict.filter(|_| quiet.min(since) >= ARBITER_QUIET) {
            self.tell(verdict);
        }
    }

    /// How a rank went, as far as this one was told.
    fn fate_of(&self, rank: u32) -> Option<Fate> {
        let gone = self.world.status.gone(Rank(rank))?;
        Some(peers::fate_of(&gone.how, gone.orderly))
    }

    /// Makes a verdict that this rank has come to known to all its calls, and to the arbiter for when it runs again.
    fn tell(&self, verdict: Verdict) {
        let judged = FromRank::Judged(Box::new(verdict.clone()));
        self.take(verdict);
        // Where the control plane is gone nobody needs it.
        let _ = self.world.control.complain(&judged);
    }

    /// Makes a verdict that this rank has come to, or was told, known to all its calls.
    fn take(&self, verdict: Verdict) {
        let status = &self.world.status;
        self.world
            .watch
            .take(verdict, |verdict, say| status.set_verdict(verdict, say));
    }

    /// The call, for the arbiter.
    pub(crate) fn call(&self) -> CallId {
        CallId {
            key: self.group.key,
            seq: self.seq,
        }
    }

    /// What others' fate means to this call.
    pub(crate) fn outlook(&self) -> Outlook<'_> {
        Outlook {
            status: &self.world.status,
            members: &self.group.members,
            me: self.world.rank,
            call: self.call(),
        }
    }

    /// The error of a group that another rank has given up.
    pub(crate) fn given_up(&self) -> Option<ErrorKind> {
        self.outlook().given_up()
    }

    /// Asks the arbiter about the end of this call, and waits a moment for its verdict; without a cause
    /// it waits for what another rank has asked for.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "only these name the ranks that they wait for"
    )]
    pub(crate) fn arbitrate(
        &self,
        ended: &ErrorKind,
        cause: Option<Cause>,
    ) -> Option<Arc<Verdict>> {
        let (status, call) = (&self.world.status, self.call());
        let known = || status.verdict(call);
        if let Some(verdict) = known() {
            return Some(verdict);
        }
        if !self.world.watch.is_on() {
            return None;
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
        if status.cut_off().is_some() {
            return self.without_arbiter();
        }
        // What fails just after a verdict fails because of it: nobody need be asked.
        let told = || status.cause_of(call, false, Some(ended));
        let heard = || match cause {
            Some(cause) => self.ask(cause),
            None => {
                let is_told = self.world.control.complain(&FromRank::Complaint {
                    call,
                    cause: Cause::GivenUp,
                    report: None,
                });
                is_told.then(|| self.hear_verdict(NOTICE_WAIT)).flatten()
            }
        };
        told().or_else(heard).or_else(told)
    }

    /// Asks the arbiter about the end of this call, and waits for its verdict.
    pub(crate) fn ask(&self, cause: Cause) -> Option<Arc<Verdict>> {
        let is_told = self.world.complain_with_board(self.call(), cause);
        let peers = self.world.peers.as_ref();
        let patience = if peers.is_none_or(Peers::has_arbiter) {
            VERDICT_WAIT
        } else {
            NOTICE_WAIT
        };
        is_told.then(|| self.hear_verdict(patience)).flatten()
    }

    /// Waits for the verdict on this call.
    fn hear_verdict(&self, patience: Duration) -> Option<Arc<Verdict>> {
        let status = &self.world.status;
        let asked = Deadline::after(patience);
        let mut looked = Duration::ZERO;
        loop {
            if let Some(verdict) = status.verdict(self.call()) {
                return Some(verdict);
            }
            if status.cut_off().is_some() {
                return self.without_arbiter();
            }
            let waited = asked.elapsed();
            if waited >= looked + NEXT_LOOK {
                // A longer pause is one in which this thread did not run.
                let over = waited.saturating_sub(looked + NEXT_LOOK);
                if over > NEXT_LOOK {
                    self.world.watch.lose(over);
                }
                looked = waited;
                self.judge_past_arbiter(waited);
            }
            if waited >= patience + self.lost() {
                return None;
            }
            Clock::pause(VERDICT_STEP);
        }
    }

    /// Judges this call, which has ended, where the process of the arbiter is stopped.
    fn judge_past_arbiter(&self, waited: Duration) {
        let Some(peers) = self.world.peers.as_ref().filter(|one| one.has_arbiter()) else {
            return;
        };
        let patience = match peers.arbiter_state() {
            ArbiterState::Stopped => ARBITER_QUIET,
            // It may be starved; or it is stopped, and nobody here can see that.
            ArbiterState::Hidden => ARBITER_SILENT,
            ArbiterState::Ended | ArbiterState::Runs => return,
        };
        let quiet_ms = self.world.watch.quiet_ms();
        if waited.min(Duration::from_millis(quiet_ms)) < patience {
            return;
        }
        let at_once = waited >= 2 * patience;
        let fate_of = |rank| self.fate_of(rank);
        let verdict = peers.judge_overdue(self.call(), &fate_of, quiet_ms, at_once);
        if let Some(verdict) = verdict {
            self.tell(verdict);
        }
    }

    /// The verdict on a call that nobody judges any more: who served the arbiter is gone, or cannot be reached.
    fn without_arbiter(&self) -> Option<Arc<Verdict>> {
        let (peers, status) = (self.world.peers.as_ref()?, &self.world.status);
        // Whoever served it may have ended because of a verdict that all have.
        if let Some(first) = status.cause_of(self.call(), true, None) {
            return Some(first);
        }
        let patience = Deadline::after(ARBITER_QUIET);
        let fate_of = |rank| self.fate_of(rank);
        loop {
            let at_once = patience.passed();
            if let Some(verdict) = peers.judge_gone(self.call(), &fate_of, at_once) {
                self.take(verdict);
                return status.verdict(self.call());
            }
            if at_once {
                return None;
            }
            Clock::pause(VERDICT_STEP);
        }
    }

    /// The error that a verdict is to this rank; see [`Outlook::kind_of`].
    pub(crate) fn kind_of(&self, verdict: &Verdict) -> Option<ErrorKind> {
        self.outlook().kind_of(verdict)
    }

    /// Whether the fate of the group or of these peers ends the call.
    pub(crate) fn look(&self, missing: &[usize]) -> Result<(), ErrorKind> {
        self.outlook().look(missing)
    }

    /// Why one of these peers is not there any more, where the control plane says so soon.
    pub(crate) fn news(&self, peers: &[usize]) -> Option<ErrorKind> {
        let listening = Vigil {
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
        let status = &self.world.status;
        let rank = self.group.members[peer];
        let deadline = Deadline::after(SETTLE_TIMEOUT);
        loop {
            let seen = status.epoch();
            if over() || status.gone(rank).is_some() {
                return true;
            }
            let word = status.epoch_word();
            match wait::until(self.world.pace, deadline, word, seen, rest, &mut over) {
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
