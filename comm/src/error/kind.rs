//! What went wrong, without the call that it happened in.
//!
//! Pure: kinds travel between ranks, and are what calls, verdicts and reports are made of.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::types::Rank;
use crate::vendor::{self, VendorCode};

/// What two ranks disagreed about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Field {
    /// The algorithm: the ranks go by different selection tables.
    Algorithm,
    /// The kind of call.
    Collective,
    /// The number of elements.
    Count,
    /// The element type.
    Dtype,
    /// The members of the group, or their order.
    Membership,
    /// The reduction.
    Op,
    /// The root.
    Root,
    /// How many calls were made before this one.
    Sequence,
    /// The lengths of the parts of a `_v` collective.
    Splits,
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Algorithm => "algorithm",
            Self::Collective => "collective",
            Self::Count => "count",
            Self::Dtype => "dtype",
            Self::Membership => "membership",
            Self::Op => "op",
            Self::Root => "root",
            Self::Sequence => "sequence",
            Self::Splits => "splits",
        })
    }
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The caller's arguments cannot be served; nothing was sent and the group stays usable.
    #[error("{what} is {got}, want {want}")]
    InvalidArgument {
        /// The argument.
        what: String,
        /// What was given.
        got: String,
        /// What is allowed.
        want: String,
    },
    /// Ranks of one group made different calls; no payload was used and the group stays usable
    /// where all ranks share memory.
    #[error("{field} differs: rank {rank} has {mine}, rank {peer} has {theirs}")]
    Mismatch {
        /// What differs.
        field: Field,
        /// The rank that noticed.
        rank: Rank,
        /// Its side.
        mine: String,
        /// The other rank.
        peer: Rank,
        /// The other side.
        theirs: String,
    },
    /// The job's control plane is lost: the process that launched the ranks, or served their
    /// rendezvous, is gone.
    #[error("cut off from the job: {why}")]
    Orphaned {
        /// What was lost.
        why: String,
    },
    /// A peer's process ended while it was needed.
    #[error("rank {peer} {how}")]
    PeerClosed {
        /// The peer.
        peer: Rank,
        /// How it ended: `was killed by signal 9`, `left the world`, …
        how: String,
        /// Whether it said goodbye before it went.
        orderly: bool,
    },
    /// Another rank gave the group up; `origin` was the first.
    #[error("rank {origin} gave the group up: {reason}")]
    PeerAborted {
        /// The rank that failed first.
        origin: Rank,
        /// Its own error, in words.
        reason: String,
        /// Its own error.
        cause: Box<Self>,
    },
    /// Memory, descriptors or another limit of this machine.
    #[error("{what}: need {need}, have {have}")]
    Resource {
        /// The resource.
        what: String,
        /// How much of it.
        need: String,
        /// How much there is.
        have: String,
    },
    /// The deadline passed.
    #[error("waited {waited_ms} ms for {}", ranks(waiting_for))]
    Stalled {
        /// The peers that did not come, or did not go on.
        waiting_for: Vec<Rank>,
        /// How long.
        waited_ms: u64,
    },
    /// The path to a peer broke while both sides live, or carried what it must not.
    #[error("link to rank {peer}: {what}")]
    Transport {
        /// The peer at the other end.
        peer: Rank,
        /// What happened.
        what: String,
    },
    /// Work on a device did not end: who did not enqueue it, or whose device never completed it.
    #[error("{what}")]
    DeviceStalled {
        /// The ranks that are the cause, ascending; empty where the evidence does not tell.
        blamed: Vec<Rank>,
        /// Who, what and since when.
        what: String,
    },
    /// A message that is not what its sender wrote, or came twice: at which end or on which way that happened cannot be seen.
    #[error("message from rank {peer}: {detail}")]
    Corrupt {
        /// Who sent it.
        peer: Rank,
        /// What is wrong with it.
        detail: String,
    },
    /// Data of a peer that cannot be understood.
    #[error("{what} from rank {peer}: {detail}")]
    Malformed {
        /// What it should have been.
        what: String,
        /// Who sent it.
        peer: Rank,
        /// What is wrong with it.
        detail: String,
    },
    /// Something that this backend cannot do.
    #[error("{what} is not supported: {why}")]
    Unsupported {
        /// What was asked for.
        what: String,
        /// Why not, and what is.
        why: String,
    },
    /// A call of the vendor's libraries failed.
    #[error("{call} failed with {code} ({name}){}", said(detail))]
    Vendor {
        /// The function that was called.
        call: String,
        /// What it returned.
        code: i32,
        /// The vendor's name of that number.
        name: String,
        /// The vendor's own words about it; may be empty.
        detail: String,
    },
}

fn said(detail: &str) -> String {
    if detail.is_empty() {
        return String::new();
    }
    format!(": {detail}")
}

fn ranks(ranks: &[Rank]) -> String {
    if ranks.is_empty() {
        return "earlier calls of this rank".to_owned();
    }
    let list = ranks
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ");
    if ranks.len() == 1 {
        format!("rank {list}")
    } else {
        format!("ranks {list}")
    }
}

impl ErrorKind {
    /// One sentence on what to do next.
    #[must_use]
    pub fn help(&self) -> &'static str {
        match self {
            Self::InvalidArgument { .. } => "correct the argument and call again",
            Self::Mismatch { .. } => {
                "compare the two call sites: every rank of a group makes the same calls in the same order"
            }
            Self::Orphaned { .. } => "start the job again",
            Self::PeerClosed { .. } => "look at the output of that rank",
            Self::PeerAborted { .. } => "look at the error of the rank that failed first",
            Self::Resource { .. } => "raise the limit, or ask for less",
            Self::Stalled { .. } => {
                "see what the named ranks are doing; if they are only slow, give the call more time"
            }
            Self::Transport { .. } => "check the path between the two hosts",
            Self::Corrupt { .. } | Self::Malformed { .. } => {
                "make sure that all ranks run the same program; if they do, test the memory of both hosts and the \
                 network between them"
            }
            Self::Unsupported { .. } => "use one of the alternatives named",
            Self::DeviceStalled { .. } => {
                "see what the named ranks are doing, then the health of their devices (npu-smi info)"
            }
            Self::Vendor { code, detail, .. } => vendor::help(*code, detail),
        }
    }

    /// The vendor's code of a text such as `EI0002`, with its meaning and remedy, where this is a
    /// vendor's error whose text carries one.
    #[must_use]
    pub fn vendor_remark(&self) -> Option<&'static VendorCode> {
        let Self::Vendor { detail, .. } = self.first_cause().1 else {
            return None;
        };
        vendor::remark_in(detail)
    }

    /// The error that this one comes from, and the rank that failed with it where that was another one.
    #[must_use]
    pub fn first_cause(&self) -> (Option<Rank>, &Self) {
        let Self::PeerAborted { origin, cause, .. } = self else {
            return (None, self);
        };
        let (first, cause) = cause.first_cause();
        (Some(first.unwrap_or(*origin)), cause)
    }

    /// Whether an error of this kind leaves the ranks of a group in step where the backend does not
    /// know better.
    pub(crate) fn is_recoverable(&self) -> bool {
        matches!(
            self,
            Self::InvalidArgument { .. }
                | Self::Malformed { .. }
                | Self::Mismatch { .. }
                | Self::Resource { .. }
                | Self::Unsupported { .. }
        )
    }
}
