//! The one error of the public interface: what went wrong, where, and whose doing it was.
//!
//! Lower layers return small enums of their own; `collective` adds the context. There is no
//! constructor without an [`OpContext`], so every message names group, rank, call and sequence.

mod kind;
pub mod verdict;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use self::kind::{ErrorKind, Field};
use self::verdict::Verdict;
use crate::types::{Collective, DType, Rank};
use crate::vendor::{self, Fault};

/// A failed call on a communicator.
///
/// Cheap to clone: after a failure that leaves the group unusable, every later call returns a
/// clone of the first cause.
#[derive(Clone, Debug)]
pub struct CommError {
    inner: Box<Inner>,
}

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    at: OpContext,
    usable: bool,
    verdict: Option<Arc<Verdict>>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The verdict has a line of its own.
        f.debug_struct("Inner")
            .field("kind", &self.kind)
            .field("at", &self.at)
            .field("usable", &self.usable)
            .finish_non_exhaustive()
    }
}

/// Where an error happened.
#[derive(Clone, Debug)]
pub struct OpContext {
    /// Name of the group, as given when it was made.
    pub group: Arc<str>,
    /// World rank that reports the error.
    pub rank: Rank,
    /// The call.
    pub collective: Collective,
    /// Sequence number of the call on its group, from 1; 0 where the call was refused before it
    /// took one.
    pub seq: u64,
    /// Element type, for calls that have one.
    pub dtype: Option<DType>,
    /// Elements, as the collective counts them.
    pub count: Option<usize>,
    /// Round and number of rounds of the plan, where one was under way.
    pub round: Option<(u32, u32)>,
    /// Time since the call began.
    pub elapsed: Duration,
    /// Time that the call was given.
    pub deadline: Duration,
}

/// Whose doing an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The arguments of this call.
    Caller,
    /// This process or machine, its device included.
    Local,
    /// One other rank.
    Peer(Rank),
    /// Another rank failed first and this one shares its fate.
    SharedFate {
        /// The rank that failed first.
        origin: Rank,
    },
}

impl CommError {
    pub(crate) fn new(kind: ErrorKind, at: OpContext, usable: bool) -> Self {
        Self {
            inner: Box::new(Inner {
                kind,
                at,
                usable,
                verdict: None,
            }),
        }
    }

    /// The same error with what the arbiter found.
    pub(crate) fn with_verdict(mut self, verdict: Option<Arc<Verdict>>) -> Self {
        self.inner.verdict = verdict;
        self
    }

    /// Who, what, where and since when, the same on all ranks that the failure concerns; `None` where
    /// the error is this call's own affair, or no arbiter could be asked.
    #[must_use]
    pub fn verdict(&self) -> Option<&Verdict> {
        self.inner.verdict.as_deref()
    }

    /// What went wrong.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.inner.kind
    }

    /// Where.
    #[must_use]
    pub fn at(&self) -> &OpContext {
        &self.inner.at
    }

    /// Whose doing it is.
    #[must_use]
    pub fn blame(&self) -> Blame {
        match &self.inner.kind {
            ErrorKind::InvalidArgument { .. } | ErrorKind::Unsupported { .. } => Blame::Caller,
            ErrorKind::Orphaned { .. } | ErrorKind::Resource { .. } => Blame::Local,
            ErrorKind::Vendor { code, detail, .. } => match vendor::fault_of(*code, detail) {
                Fault::Argument | Fault::Unsupported => Blame::Caller,
                Fault::DeviceLost
                | Fault::Internal
                | Fault::Link
                | Fault::Memory
                | Fault::Resource
                | Fault::Timeout => Blame::Local,
            },
            ErrorKind::DeviceStalled { blamed, .. } => blamed
                .first()
                .map_or(Blame::Local, |peer| Blame::Peer(*peer)),
            ErrorKind::Corrupt { peer, .. }
            | ErrorKind::Mismatch { peer, .. }
            | ErrorKind::PeerClosed { peer, .. }
            | ErrorKind::Transport { peer, .. }
            | ErrorKind::Malformed { peer, .. } => Blame::Peer(*peer),
            ErrorKind::PeerAborted { origin, .. } => Blame::SharedFate { origin: *origin },
            ErrorKind::Stalled { waiting_for, .. } => waiting_for
                .first()
                .map_or(Blame::Local, |peer| Blame::Peer(*peer)),
        }
    }

    /// Whether the group can be used after this error. If not, every later call on it returns this
    /// error at once.
    #[must_use]
    pub fn is_recoverable(&self) -> bool {
        self.inner.usable
    }

    /// One sentence on what to do next.
    #[must_use]
    pub fn help(&self) -> &'static str {
        self.inner.kind.help()
    }
}

impl fmt::Display for CommError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = &self.inner.at;
        write!(f, "{} on group {:?}", at.collective, at.group)?;
        if at.seq > 0 {
            write!(f, " seq {}", at.seq)?;
        }
        if let (Some(dtype), Some(count)) = (at.dtype, at.count) {
            write!(f, " ({dtype}[{count}])")?;
        }
        write!(f, ": rank {}: {}", at.rank, self.inner.kind)?;
        if let Some((round, of)) = at.round {
            write!(f, " (round {round}/{of})")?;
        }
        if !matches!(self.inner.kind, ErrorKind::InvalidArgument { .. }) {
            write!(f, " after {:.1?} of {:.1?}", at.elapsed, at.deadline)?;
        }
        Ok(())
    }
}

impl std::error::Error for CommError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn context() -> OpContext {
        OpContext {
            group: "tp-3".into(),
            rank: Rank(5),
            collective: Collective::AllReduce,
            seq: 41,
            dtype: Some(DType::F32),
            count: Some(1024),
            round: Some((7, 14)),
            elapsed: Duration::from_secs(30),
            deadline: Duration::from_secs(30),
        }
    }

    #[test]
    fn a_message_names_group_call_sequence_both_ranks_and_times() {
        let kind = ErrorKind::Stalled {
            waiting_for: vec![Rank(2)],
            waited_ms: 30_000,
        };
        assert_eq!(
            CommError::new(kind, context(), false).to_string(),
            "all_reduce on group \"tp-3\" seq 41 (f32[1024]): rank 5: waited 30000 ms for rank 2 \
             (round 7/14) after 30.0s of 30.0s"
        );
    }

    #[test]
    fn the_first_failing_rank_is_blamed_and_the_others_share_its_fate() {
        let stalled = ErrorKind::Stalled {
            waiting_for: vec![Rank(2)],
            waited_ms: 1,
        };
        assert_eq!(
            CommError::new(stalled.clone(), context(), false).blame(),
            Blame::Peer(Rank(2))
        );
        let aborted = ErrorKind::PeerAborted {
            origin: Rank(1),
            reason: stalled.to_string(),
            cause: Box::new(stalled),
        };
        let error = CommError::new(aborted, context(), false);
        assert_eq!(error.blame(), Blame::SharedFate { origin: Rank(1) });
        assert!(!error.is_recoverable());
    }
}
