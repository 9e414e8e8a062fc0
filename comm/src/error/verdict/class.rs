//! The class of a failure, and the one table from errors to classes and to the ranks that they name.

use serde::{Deserialize, Serialize};

use crate::error::kind::ErrorKind;
use crate::types::Rank;
use crate::vendor::{self, Fault};

/// What kind of failure it is. The names and numbers are those of the exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[repr(u8)]
pub enum Class {
    /// Ranks never arrived.
    RdvMissing = 10,
    /// Ranks contradict each other before they have a world: a rank that came twice, another size.
    RdvConflict = 11,
    /// The meeting point cannot be bound, resolved or reached.
    RdvUnreachable = 12,
    /// A rank exited or was killed.
    PeerDead = 20,
    /// A rank's process exists but does not run.
    PeerFrozen = 21,
    /// A rank runs, but did not enter the call that others wait in, or left before it.
    NotJoined = 22,
    /// Two ranks live, the path between them is broken.
    Link = 23,
    /// Ranks wait for each other in a circle.
    Deadlock = 24,
    /// Ranks made different calls, or different groups.
    Mismatch = 30,
    /// The bytes are wrong.
    Data = 40,
    /// A rank lacks memory, descriptors or another limit.
    Resource = 60,
    /// Evidence is missing.
    Internal = 70,
}

impl Class {
    /// The name, as the line shows it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RdvMissing => "RDV_MISSING",
            Self::RdvConflict => "RDV_CONFLICT",
            Self::RdvUnreachable => "RDV_UNREACHABLE",
            Self::PeerDead => "PEER_DEAD",
            Self::PeerFrozen => "PEER_FROZEN",
            Self::NotJoined => "NOT_JOINED",
            Self::Link => "LINK",
            Self::Deadlock => "DEADLOCK",
            Self::Mismatch => "MISMATCH",
            Self::Data => "DATA",
            Self::Resource => "RESOURCE",
            Self::Internal => "INTERNAL",
        }
    }

    const ALL: [Self; 12] = [
        Self::RdvMissing,
        Self::RdvConflict,
        Self::RdvUnreachable,
        Self::PeerDead,
        Self::PeerFrozen,
        Self::NotJoined,
        Self::Link,
        Self::Deadlock,
        Self::Mismatch,
        Self::Data,
        Self::Resource,
        Self::Internal,
    ];

    /// The class with this name.
    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.name() == name)
    }

    /// The exit code of programs that end because of it.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The class of an error that `rank` met, and the ranks that the error names as its cause.
    #[must_use]
    pub fn of(kind: &ErrorKind, rank: u32) -> (Self, Vec<u32>) {
        let numbers = |ranks: &[Rank]| ranks.iter().map(|rank| rank.0).collect();
        match kind {
            ErrorKind::DeviceStalled { blamed, .. } => (Self::NotJoined, numbers(blamed)),
            ErrorKind::InvalidArgument { .. } | ErrorKind::Unsupported { .. } => {
                (Self::Internal, vec![rank])
            }
            ErrorKind::Malformed { peer, .. } => (Self::Data, vec![peer.0]),
            // Which of the two is the odd one the error does not say.
            ErrorKind::Mismatch { rank, peer, .. } => (Self::Mismatch, vec![rank.0, peer.0]),
            // Who launched the ranks, or served their rendezvous, is gone.
            ErrorKind::Orphaned { .. } => (Self::PeerDead, Vec::new()),
            ErrorKind::PeerAborted { origin, cause, .. } => Self::of(cause, origin.0),
            ErrorKind::PeerClosed { peer, orderly, .. } if *orderly => {
                (Self::NotJoined, vec![peer.0])
            }
            ErrorKind::PeerClosed { peer, .. } => (Self::PeerDead, vec![peer.0]),
            ErrorKind::Resource { .. } => (Self::Resource, vec![rank]),
            ErrorKind::Stalled { waiting_for, .. } => (Self::NotJoined, numbers(waiting_for)),
            // At which end it happened, or between them, the error does not say.
            ErrorKind::Corrupt { peer, .. } => {
                (Self::Data, vec![rank.min(peer.0), rank.max(peer.0)])
            }
            ErrorKind::Transport { peer, .. } => {
                (Self::Link, vec![rank.min(peer.0), rank.max(peer.0)])
            }
            ErrorKind::Vendor { code, detail, .. } => Self::of_vendor(*code, detail, rank),
        }
    }

    /// As `of`, for an error of the vendor's libraries. A device that is lost counts as a host that is not fit, not as a
    /// rank that died: its process lives, and starting it again there does not help.
    fn of_vendor(code: i32, detail: &str, rank: u32) -> (Self, Vec<u32>) {
        // Ranks made one call with different arguments, as HCCL noticed on one of them: it does not say which is the odd one.
        if vendor::remark_in(detail).is_some_and(|remark| remark.code == "EI0005") {
            return (Self::Mismatch, Vec::new());
        }
        match vendor::fault_of(code, detail) {
            Fault::Argument => (Self::Internal, vec![rank]),
            Fault::DeviceLost
            | Fault::Internal
            | Fault::Memory
            | Fault::Resource
            | Fault::Unsupported => (Self::Resource, vec![rank]),
            Fault::Link => (Self::Link, vec![rank]),
            // Somebody else is the cause.
            Fault::Timeout => (Self::NotJoined, Vec::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_one_class_and_blames_only_whom_it_names() {
        let vendor = |code, detail: &str| ErrorKind::Vendor {
            call: "HcclAllReduce".to_owned(),
            code,
            name: String::new(),
            detail: detail.to_owned(),
        };
        let closed = |orderly| ErrorKind::PeerClosed {
            peer: Rank(7),
            how: "went".to_owned(),
            orderly,
        };
        let aborted = ErrorKind::PeerAborted {
            origin: Rank(5),
            reason: String::new(),
            cause: Box::new(vendor(507_010, "")),
        };
        let link = ErrorKind::Transport {
            peer: Rank(1),
            what: String::new(),
        };
        let corrupt = ErrorKind::Corrupt {
            peer: Rank(4),
            detail: String::new(),
        };
        let orphaned = ErrorKind::Orphaned { why: String::new() };
        for (kind, class, blamed) in [
            (corrupt, Class::Data, vec![3, 4]),
            (vendor(507_010, ""), Class::Resource, vec![3]),
            (vendor(507_056, ""), Class::Link, vec![3]),
            // Who reports these is not to blame for them.
            (vendor(507_048, "(EI0002)"), Class::NotJoined, vec![]),
            (vendor(4, "(EI0005)"), Class::Mismatch, vec![]),
            (aborted, Class::Resource, vec![5]),
            (closed(true), Class::NotJoined, vec![7]),
            (closed(false), Class::PeerDead, vec![7]),
            (link, Class::Link, vec![1, 3]),
            (orphaned, Class::PeerDead, vec![]),
        ] {
            assert_eq!(Class::of(&kind, 3), (class, blamed), "{kind:?}");
        }
    }
}
