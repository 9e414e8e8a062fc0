//! What a call says of itself, on the board and in its errors, and how its failure is judged.

use std::panic::Location;
use std::sync::Arc;

use crate::backend::wait_context::WaitContext;
use crate::backend::{Counts, Failure, Request};
use crate::buffer::Element;
use crate::error::ErrorKind;
use crate::error::verdict::Verdict;
use crate::types::{Collective, DType};
use crate::watch::report::CallCode;
use crate::watch::wire::Cause;

/// What of a call goes into the context of its errors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) collective: Collective,
    pub(crate) dtype: Option<DType>,
    pub(crate) count: Option<usize>,
    /// Where the program makes it.
    pub(crate) site: &'static Location<'static>,
}

impl Call {
    #[track_caller]
    pub(crate) fn new<T: Element>(collective: Collective, count: usize) -> Self {
        Self {
            collective,
            dtype: Some(T::DTYPE),
            count: Some(count),
            site: Location::caller(),
        }
    }

    #[track_caller]
    pub(crate) fn bare(collective: Collective) -> Self {
        Self {
            collective,
            dtype: None,
            count: None,
            site: Location::caller(),
        }
    }

    /// The call as boards show it; a request tells reduction and root besides.
    pub(super) fn code(self, request: Option<&Request<'_>>) -> CallCode {
        let dtype = self.dtype.map_or(0, |dtype| dtype as u64);
        let own = self.collective as u64 | dtype << 8;
        let word = request.map_or(own, |request| request.call_word() & !0xffff | own);
        // In place, a root's buffer is longer than the count that all ranks share.
        let count = match request.map(|request| request.counts) {
            Some(Counts::Uniform(count)) => Some(count),
            Some(Counts::Blocks(_) | Counts::Splits { .. }) | None => self.count,
        };
        CallCode {
            word,
            count: count.unwrap_or(0) as u64,
        }
    }
}

/// Has a failure judged by who sees all ranks. While this waits the call still stands on the board.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "all others are the failure of this rank itself"
)]
pub(super) fn judged(
    wait_context: &WaitContext<'_>,
    failure: Failure,
) -> (Failure, Option<Arc<Verdict>>) {
    let cause = match &failure.kind {
        ErrorKind::InvalidArgument { .. } => return (failure, None),
        // This rank has cancelled the call itself.
        ErrorKind::PeerAborted { origin, .. } if *origin == wait_context.context.rank => {
            return (failure, None);
        }
        ErrorKind::Stalled { waiting_for, .. } if waiting_for.is_empty() => return (failure, None),
        // The others were told by the rank that failed first, and so was the arbiter.
        ErrorKind::PeerAborted { .. } | ErrorKind::Orphaned { .. } => None,
        ErrorKind::PeerClosed { .. } | ErrorKind::Stalled { .. } => Some(Cause::InVain),
        kind if failure.usable
            && failure.culprit.is_none()
            && !matches!(kind, ErrorKind::Mismatch { .. }) =>
        {
            return (failure, None);
        }
        kind => Some(Cause::Failed {
            kind: kind.clone(),
            usable: failure.usable,
            culprit: failure.culprit,
        }),
    };
    let verdict = wait_context.arbitrate(&failure.kind, cause);
    let kind = match (&verdict, &failure.kind) {
        // What one rank saw of it gives way to what it is.
        (
            Some(verdict),
            ErrorKind::PeerAborted { .. }
            | ErrorKind::PeerClosed { .. }
            | ErrorKind::Stalled { .. }
            | ErrorKind::Transport { .. },
        ) => wait_context.kind_of(verdict).unwrap_or(failure.kind),
        // Over messages each rank sees one side beside its own; the verdict has them all.
        (Some(verdict), ErrorKind::Mismatch { .. })
            if !failure.usable && matches!(verdict.kind, ErrorKind::Mismatch { .. }) =>
        {
            verdict.kind.clone()
        }
        _ => failure.kind,
    };
    (Failure { kind, ..failure }, verdict)
}
