//! The exit codes: the class of an outcome, for scripts and for controllers that act on numbers.
//!
//! Every code lies below 128, so that it can be told from a shell's "killed by signal". The table
//! printed by `--help` and the one in `docs/exit-codes.md` are this one. Where a class is one of
//! verdicts, its number and its name are those that [`Class`] has.

use std::fmt::Write as _;
use std::process::ExitCode;

use muster_comm::error::verdict::Class;
use serde::{Deserialize, Serialize};

/// What a run ended with. The numbers and class names are a contract with other programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[repr(u8)]
pub enum Exit {
    /// Everything that was asked for ran and passed.
    Ok = 0,
    /// The run reached its end; at least one case failed for a reason without a class of its own.
    FailedCell = 1,
    /// The command line, the environment or a file could not be understood.
    Usage = 2,
    /// Named ranks never arrived.
    RdvMissing = Class::RdvMissing as u8,
    /// A rank came twice, sizes of the world disagree, or a rank of another job knocked.
    RdvConflict = Class::RdvConflict as u8,
    /// The meeting point cannot be bound, resolved or reached.
    RdvUnreachable = Class::RdvUnreachable as u8,
    /// A rank exited or was killed.
    PeerDead = Class::PeerDead as u8,
    /// A rank's process exists but does not run.
    PeerFrozen = Class::PeerFrozen as u8,
    /// A rank runs, but never entered the call that the others wait in.
    NotJoined = Class::NotJoined as u8,
    /// Two ranks live; the path between them does not.
    Link = Class::Link as u8,
    /// Ranks wait for each other in a circle.
    Deadlock = Class::Deadlock as u8,
    /// Ranks disagree on the collective, element type, count, reduction, root or order.
    Mismatch = Class::Mismatch as u8,
    /// The bytes are wrong.
    Data = Class::Data as u8,
    /// Right, but too slow.
    Slow = 50,
    /// The host lacks something: memory, descriptors, a device, permissions.
    Resource = Class::Resource as u8,
    /// A bug of our own, or evidence is missing. Never reported as success.
    Internal = Class::Internal as u8,
    /// Interrupted by a signal; a partial report was written.
    Interrupted = 80,
}

impl Exit {
    /// Every outcome, by ascending code.
    pub const ALL: [Self; 17] = [
        Self::Ok,
        Self::FailedCell,
        Self::Usage,
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
        Self::Slow,
        Self::Resource,
        Self::Internal,
        Self::Interrupted,
    ];

    /// The number handed to the operating system.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The outcome with this number, if it is one of ours.
    #[must_use]
    pub fn from_code(code: i32) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|exit| i32::from(exit.code()) == code)
    }

    /// The name of the class, as verdicts print it.
    #[must_use]
    pub const fn class(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::FailedCell => "FAILED_CELL",
            Self::Usage => "USAGE",
            Self::RdvMissing => Class::RdvMissing.name(),
            Self::RdvConflict => Class::RdvConflict.name(),
            Self::RdvUnreachable => Class::RdvUnreachable.name(),
            Self::PeerDead => Class::PeerDead.name(),
            Self::PeerFrozen => Class::PeerFrozen.name(),
            Self::NotJoined => Class::NotJoined.name(),
            Self::Link => Class::Link.name(),
            Self::Deadlock => Class::Deadlock.name(),
            Self::Mismatch => Class::Mismatch.name(),
            Self::Data => Class::Data.name(),
            Self::Slow => "SLOW",
            Self::Resource => Class::Resource.name(),
            Self::Internal => Class::Internal.name(),
            Self::Interrupted => "INTERRUPTED",
        }
    }

    /// One line that says what the code means.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Ok => "everything asked for ran and passed",
            Self::FailedCell => "ran to the end; at least one case failed",
            Self::Usage => "bad options, contradictory launch environment, unreadable input",
            Self::RdvMissing => "ranks never arrived",
            Self::RdvConflict => {
                "duplicate rank, disagreeing world size, foreign job or wrong secret"
            }
            Self::RdvUnreachable => "the meeting point cannot be bound, resolved or reached",
            Self::PeerDead => "a rank exited or was killed",
            Self::PeerFrozen => "a rank's process exists but does not run",
            Self::NotJoined => "a rank never entered the call that the others wait in",
            Self::Link => "both ranks live, the path between them is broken",
            Self::Deadlock => "ranks wait for each other in a circle",
            Self::Mismatch => "ranks disagree on collective, count, dtype, op, root or order",
            Self::Data => "wrong data",
            Self::Slow => "right data, but slower than allowed",
            Self::Resource => "the host lacks memory, descriptors, a device or permissions",
            Self::Internal => "our own bug, or evidence is missing (never a pass)",
            Self::Interrupted => "interrupted by a signal; the report is partial",
        }
    }

    /// The table of all codes, as `--help` shows it.
    #[must_use]
    pub fn table() -> String {
        let mut table = String::from("Exit codes:\n");
        for exit in Self::ALL {
            // Writing to a string cannot fail.
            let _ = writeln!(
                table,
                "  {:>2}  {:<15}  {}",
                exit.code(),
                exit.class(),
                exit.meaning()
            );
        }
        table
    }
}

impl From<Class> for Exit {
    fn from(class: Class) -> Self {
        match class {
            Class::RdvMissing => Self::RdvMissing,
            Class::RdvConflict => Self::RdvConflict,
            Class::RdvUnreachable => Self::RdvUnreachable,
            Class::PeerDead => Self::PeerDead,
            Class::PeerFrozen => Self::PeerFrozen,
            Class::NotJoined => Self::NotJoined,
            Class::Link => Self::Link,
            Class::Deadlock => Self::Deadlock,
            Class::Mismatch => Self::Mismatch,
            Class::Data => Self::Data,
            Class::Resource => Self::Resource,
            Class::Internal => Self::Internal,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_ascend_and_stay_below_the_range_of_signals() {
        let codes: Vec<u8> = Exit::ALL.iter().map(|exit| exit.code()).collect();
        assert!(codes.is_sorted_by(|a, b| a < b), "{codes:?}");
        assert!(codes.iter().all(|code| *code < 128), "{codes:?}");
        for exit in Exit::ALL {
            assert_eq!(Exit::from_code(i32::from(exit.code())), Some(exit));
        }
        assert_eq!(Exit::from_code(137), None);
    }

    #[test]
    fn what_a_verdict_ends_with_has_its_number_and_its_name() {
        let classes = [
            Class::RdvMissing,
            Class::RdvConflict,
            Class::RdvUnreachable,
            Class::PeerDead,
            Class::PeerFrozen,
            Class::NotJoined,
            Class::Link,
            Class::Deadlock,
            Class::Mismatch,
            Class::Data,
            Class::Resource,
            Class::Internal,
        ];
        for class in classes {
            let exit = Exit::from(class);
            assert_eq!((exit.code(), exit.class()), (class.code(), class.name()));
        }
    }

    #[test]
    fn the_document_lists_every_code_with_its_class_and_meaning() {
        let document = include_str!("../../docs/exit-codes.md");
        for exit in Exit::ALL {
            let row = format!(
                "| {} | `{}` | {} |",
                exit.code(),
                exit.class(),
                exit.meaning()
            );
            assert!(
                document.contains(&row),
                "docs/exit-codes.md lacks the row\n{row}"
            );
        }
    }
}
