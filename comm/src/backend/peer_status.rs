//! What the fate of peers and of groups means to a call. Nothing here waits.

use crate::context::{CutOff, Status};
use crate::error::ErrorKind;
use crate::error::verdict::{CallId, Verdict};
use crate::types::Rank;
use crate::watch::arbiter::ends;

/// One call, and what its rank knows of the others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerStatus<'a> {
    pub(crate) status: &'a Status,
    /// World ranks of the group.
    pub(crate) members: &'a [Rank],
    pub(crate) me: Rank,
    pub(crate) call: CallId,
}

impl PeerStatus<'_> {
    /// The error of a group that another rank has given up.
    pub(crate) fn given_up(&self) -> Option<ErrorKind> {
        let status = self.status;
        if status.epoch() == 0 {
            return None;
        }
        let verdict = status.verdict(self.call);
        let verdict = verdict.filter(|verdict| ends(verdict, self.call));
        if let Some(verdict) = &verdict
            && let Some(kind) = self.kind_of(verdict)
        {
            return Some(kind);
        }
        let notice = status
            .notice(self.call.key)
            .filter(|notice| notice.seq <= self.call.seq)?;
        // All ranks report one mismatch in the same words.
        let judged = matches!(notice.kind, ErrorKind::Mismatch { .. });
        Some(if judged {
            notice.kind
        } else {
            // Nobody tells himself but who cancels his own calls.
            let reason = if let ErrorKind::Orphaned { why } = &notice.kind
                && Rank(notice.origin) == self.me
            {
                format!("its calls were cancelled: {why}")
            } else {
                notice.kind.to_string()
            };
            ErrorKind::PeerAborted {
                origin: Rank(notice.origin),
                reason,
                cause: Box::new(notice.kind),
            }
        })
    }

    /// The error that a verdict is to this rank; `None` where it blames this rank itself, to which the
    /// others say more by giving the group up.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "all others are the same to every rank"
    )]
    pub(crate) fn kind_of(&self, verdict: &Verdict) -> Option<ErrorKind> {
        let me = self.me;
        match &verdict.kind {
            ErrorKind::Stalled {
                waiting_for,
                waited_ms,
            } => {
                let others = waiting_for.iter().copied().filter(|rank| *rank != me);
                let waiting_for: Vec<Rank> = others.collect();
                (!waiting_for.is_empty()).then_some(ErrorKind::Stalled {
                    waiting_for,
                    waited_ms: *waited_ms,
                })
            }
            ErrorKind::PeerClosed { peer, .. } if *peer == me => None,
            kind => Some(kind.clone()),
        }
    }

    /// Whether the fate of the group or of these peers ends the call.
    pub(crate) fn look(&self, missing: &[usize]) -> Result<(), ErrorKind> {
        let status = self.status;
        if let Some(kind) = self.given_up() {
            return Err(kind);
        }
        for peer in missing {
            let rank = self.members[*peer];
            if let Some(gone) = status.gone(rank) {
                return Err(ErrorKind::PeerClosed {
                    peer: rank,
                    how: gone.how,
                    orderly: gone.orderly,
                });
            }
        }
        match status.cut_off() {
            Some(CutOff {
                served_by: Some(peer),
                why,
            }) => Err(ErrorKind::PeerClosed {
                peer,
                how: why,
                orderly: false,
            }),
            Some(CutOff {
                served_by: None,
                why,
            }) => Err(ErrorKind::Orphaned { why }),
            None => Ok(()),
        }
    }
}
