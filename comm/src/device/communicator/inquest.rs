//! How a call on a device ends that does not end well: what its ranks say, the verdict, and the news of it.

use std::sync::Arc;
use std::time::Duration;

use super::Inner;
use crate::backend::wait_context::WaitContext;
use crate::collective::Call;
use crate::context::Notice;
use crate::error::verdict::{CallId, Verdict};
use crate::error::{CommError, ErrorKind};
use crate::sync::{Deadline, lock};
use crate::transport::shm::wait::Rest;
use crate::types::Rank;
use crate::watch::judge::device::{Case, Words};
use crate::watch::peers::Peers;
use crate::watch::probe::{Probe as _, System};
use crate::watch::wire::{Cause, FromRank};

/// How long a rank that has judged waits for the arbiter to tell its verdict, or an earlier one.
const TELL_TIMEOUT: Duration = Duration::from_secs(2);

/// How a call ended badly.
pub(super) struct Lost {
    /// The error that it returns on this rank.
    kind: ErrorKind,
    verdict: Option<Arc<Verdict>>,
}

impl Inner {
    /// Asks all members what they know, and judges. `fault` is what this rank's device reports.
    pub(super) fn inquest(&self, seq: u64, fault: Option<ErrorKind>) -> Lost {
        if let Some(kind) = &fault {
            self.bench.write(|op_log| {
                op_log.set_fault(kind);
            });
        }
        self.bench.speak();
        let members = self.desk.members();
        let wait_context = self.wait_context(Deadline::after(self.bench.patience()), seq);
        let heard = wait_context.wait(
            &Rest::Pause,
            || self.bench.missing(members).is_empty(),
            || self.bench.missing(members),
        );
        match heard {
            // Whoever is missing when the time is up says nothing, which is judged too.
            Ok(()) | Err(ErrorKind::Stalled { .. }) => self.judge(&self.bench.said(members)),
            Err(kind) => self.shared(seq, kind),
        }
    }

    /// Judges what the members said, and has the verdict told. Of ranks that say nothing whoever can look at their processes
    /// knows more.
    pub(super) fn judge(&self, said: &[Option<Words>]) -> Lost {
        let own = Case {
            scene: &self.scene,
            group: self.desk.name(),
            on_device: &self.group.name,
            key: self.group.key,
            members: self.desk.members(),
            said,
        }
        .judge();
        let kind = self.as_met_here(own.kind.clone());
        let silent: Vec<Rank> = self
            .desk
            .members()
            .iter()
            .zip(said)
            .filter(|(rank, words)| words.is_none() && own.blamed.contains(&rank.0))
            .map(|(rank, _)| *rank)
            .collect();
        let seen = (!silent.is_empty()).then(|| self.ask_about(silent, own.elapsed_ms));
        let verdict = seen.flatten().unwrap_or_else(|| self.tell(own));
        Lost {
            kind,
            verdict: Some(verdict),
        }
    }

    /// Asks the arbiter about ranks that this one waits for in vain in the call that its board shows.
    fn ask_about(&self, waiting_for: Vec<Rank>, waited_ms: u64) -> Option<Arc<Verdict>> {
        let seq = self.place.under_way()?.seq;
        let kind = ErrorKind::Stalled {
            waiting_for,
            waited_ms,
        };
        let wait_context = self.on_board(seq);
        wait_context.arbitrate(&kind, Some(Cause::InVain))
    }

    /// The call of this number as boards show it.
    fn on_board(&self, seq: u64) -> WaitContext<'_> {
        WaitContext {
            group: &self.group,
            place: &self.place,
            ..self.wait_context(Deadline::after(self.desk.deadline()), seq)
        }
    }

    /// What was told of this call already, or of the last seconds that it is a consequence of.
    fn known(&self, call: CallId) -> Option<Arc<Verdict>> {
        let status = &self.desk.context().status;
        let is_cut_off = status.cut_off().is_some();
        let known = status.verdict(call);
        known.or_else(|| status.cause_of(call, is_cut_off, &System))
    }

    /// Has a verdict told to all ranks by the arbiter, which knows whether there is an earlier one that this follows from;
    /// where it does not answer, tells it here. Gives back what was told.
    fn tell(&self, own: Verdict) -> Arc<Verdict> {
        let context = self.desk.context();
        let Some(call) = own.about else {
            return Arc::new(own);
        };
        let told = || self.known(call);
        let is_judged = context.watch.is_on()
            && context.peers.as_ref().is_none_or(Peers::has_arbiter)
            && context.status.cut_off().is_none();
        if told().is_none() && is_judged {
            // The board tells who belongs to the group.
            context.complain_with_board(call, Cause::GivenUp);
            let judged = FromRank::Judged(Box::new(own.clone()));
            let is_heard = context.control.complain(&judged);
            let patience = Deadline::after(TELL_TIMEOUT);
            if is_heard {
                context.status.await_event(patience, || told().is_some());
            }
        }
        told().unwrap_or_else(|| {
            let status = &context.status;
            let now_ms = System.now_ms();
            context.watch.take(own.clone(), |verdict, say| {
                status.set_verdict(verdict, now_ms, say);
            });
            status.verdict(call).unwrap_or_else(|| Arc::new(own))
        })
    }

    /// What others' fate means to a call of this rank, with the verdict on it.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "nobody is asked about all others"
    )]
    pub(super) fn shared(&self, seq: u64, kind: ErrorKind) -> Lost {
        let wait_context = self.on_board(seq);
        let members = self.desk.members();
        let verdict = match &kind {
            ErrorKind::PeerClosed { orderly: false, .. } => {
                let cause = Cause::Failed {
                    kind: kind.clone(),
                    usable: false,
                    culprit: None,
                };
                wait_context.arbitrate(&kind, Some(cause))
            }
            // Who gave the group up has had its verdict told before, unless nobody could tell it to this rank.
            ErrorKind::PeerAborted { .. } if self.bench.missing(members).is_empty() => self
                .known(wait_context.call())
                .or_else(|| self.judge(&self.bench.said(members)).verdict),
            // Who left in good order may have done its part.
            _ => self.known(wait_context.call()),
        };
        Lost {
            kind: self.as_met_here(kind),
            verdict,
        }
    }

    /// A cause that concerns all ranks alike, or this one itself, as this rank's own error: all tell one story in the same
    /// words.
    fn as_met_here(&self, kind: ErrorKind) -> ErrorKind {
        let (origin, cause) = kind.first_cause();
        let is_own =
            matches!(cause, ErrorKind::Vendor { .. }) && origin == Some(self.desk.context().rank);
        if is_own || matches!(cause, ErrorKind::DeviceStalled { .. }) {
            return cause.clone();
        }
        kind
    }

    /// What this rank says of an error that only it meets.
    pub(super) fn alone(&self, fault: &ErrorKind) -> Vec<Option<Words>> {
        let words = self.bench.write(|op_log| {
            op_log.set_fault(fault);
            op_log.words()
        });
        let me = self.desk.rank();
        let own = |index| (index == me).then(|| words.clone());
        (0..self.desk.size()).map(own).collect()
    }

    /// Ends the communicator on this rank and tells the others.
    pub(super) fn fail(&self, call: Call, seq: u64, deadline: Deadline, lost: Lost) -> CommError {
        let context = self.desk.context();
        self.conclude(u64::MAX, false);
        let (origin, cause) = lost.kind.first_cause();
        let notice = Notice {
            key: self.desk.identity().key,
            seq,
            origin: origin.unwrap_or(context.rank).0,
            kind: cause.clone(),
        };
        let error = self
            .error(call, lost.kind, seq, deadline, false)
            .with_verdict(lost.verdict);
        let is_first = {
            let mut failed = lock(&self.failed);
            let is_first = failed.is_none();
            failed.get_or_insert_with(|| error.clone());
            is_first
        };
        if is_first {
            self.engine.set_broken();
            self.stream.abort();
            if let Some(last) = lock(&self.last).take() {
                last.abort();
            }
            context.control.give_up(&notice);
        }
        error
    }
}
