//! Waiting with open eyes: for peers' progress, until the deadline, and not a moment longer than
//! the fate of the peers allows.

use std::time::Duration;

use crate::algo::Table;
use crate::error::ErrorKind;
use crate::group::Identity;
use crate::sync::Deadline;
use crate::transport::shm::wait::{self, Interrupted, Rest};
use crate::types::Rank;
use crate::world::{CutOff, WorldInner};

/// How long the end of a link, or of a peer's side of the group, may wait for the control plane to
/// say why: the news of a death and the end itself travel by different ways.
pub(super) const NEWS_TIMEOUT: Duration = Duration::from_millis(500);

/// How long a call that ended early waits for peers that are at work on its buffers. They copy and
/// wait for nobody, so only one that is stopped takes longer.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(2);

/// One call's way of waiting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vigil<'a> {
    pub(crate) world: &'a WorldInner,
    pub(crate) group: &'a Identity,
    pub(crate) deadline: Deadline,
    /// Number of the call. A member that gave the group up in a later call has done its part of
    /// this one, so that this one can still end well.
    pub(crate) seq: u64,
}

impl<'a> Vigil<'a> {
    /// The rules that choose algorithms instead of the built-in ones, where there are any.
    pub(crate) fn table(&self) -> Option<&'a Table> {
        self.group.table.as_ref().or(self.world.table.as_ref())
    }
}

impl Vigil<'_> {
    /// Waits until `ready`. `missing` names the peers (indices) that this wait is for: they are
    /// blamed if the deadline passes, and the wait ends early if one of them is gone.
    pub(crate) fn wait(
        &self,
        rest: &Rest<'_>,
        mut ready: impl FnMut() -> bool,
        missing: impl Fn() -> Vec<usize>,
    ) -> Result<(), ErrorKind> {
        let status = &self.world.status;
        // As long as nothing ever happened nobody needs to look; after that each wait looks once,
        // since the peers it waits for may have gone before it began.
        let mut seen = if status.epoch() == 0 { 0 } else { u64::MAX };
        loop {
            let word = status.epoch_word();
            let waited = wait::until(self.world.pace, self.deadline, word, seen, rest, &mut ready);
            match waited {
                Ok(()) => return Ok(()),
                Err(Interrupted::Deadline) => return Err(self.stalled(&missing())),
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

    /// The error of a group that another rank has given up.
    pub(crate) fn given_up(&self) -> Option<ErrorKind> {
        let status = &self.world.status;
        if status.epoch() == 0 {
            return None;
        }
        let notice = status
            .notice(self.group.key)
            .filter(|notice| notice.seq <= self.seq)?;
        // All ranks report one mismatch in the same words.
        let judged = matches!(notice.kind, ErrorKind::Mismatch { .. });
        Some(if judged {
            notice.kind
        } else {
            ErrorKind::PeerAborted {
                origin: Rank(notice.origin),
                reason: notice.kind.to_string(),
                cause: Box::new(notice.kind),
            }
        })
    }

    /// Whether the fate of the group or of these peers ends the call.
    pub(crate) fn look(&self, missing: &[usize]) -> Result<(), ErrorKind> {
        let status = &self.world.status;
        if let Some(kind) = self.given_up() {
            return Err(kind);
        }
        for peer in missing {
            let rank = self.group.members[*peer];
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

    /// Why a peer is not there any more, where the control plane says so soon.
    pub(crate) fn news(&self, peer: usize) -> Option<ErrorKind> {
        let listening = Vigil {
            deadline: Deadline::after(NEWS_TIMEOUT.min(self.deadline.left())),
            ..*self
        };
        match listening.wait(&Rest::Pause, || false, || vec![peer]) {
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
        let waited = self.deadline.elapsed().as_millis();
        ErrorKind::Stalled {
            waiting_for: missing
                .iter()
                .map(|peer| self.group.members[*peer])
                .collect(),
            waited_ms: u64::try_from(waited).unwrap_or(u64::MAX),
        }
    }
}
