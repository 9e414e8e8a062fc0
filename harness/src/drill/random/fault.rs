//! What is done to a random program: which fault, to whom, and where.
//!
//! Some faults are steps of the victim's own part, the others come from outside at a moment when the victim
//! is at a certain step.

mod plant;

use clap::ValueEnum;
use serde::Serialize;

pub use self::plant::plant;
use crate::exit::Exit;

/// Kinds of faults. The table has a row for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// Nothing is wrong
    #[value(alias = "none")]
    Healthy,
    /// A rank is stopped for 0.3 to 0.8 s and goes on: nothing is wrong
    Stalled,
    /// SIGKILL
    Killed,
    /// SIGTERM
    Terminated,
    /// SIGSEGV
    Segfault,
    /// A rank ends with code 0 and no goodbye
    Exits0,
    /// A rank ends with code 7
    Exits7,
    /// A rank panics
    Panics,
    /// SIGSTOP for good
    Stopped,
    /// A rank sleeps and makes no further call
    Sleeps,
    /// A rank computes and makes no further call
    Computes,
    /// A rank says goodbye too early
    LeavesEarly,
    /// A rank destroys a group too early
    DestroysEarly,
    /// Another count on one rank
    OtherCount,
    /// Another element type on one rank
    OtherDtype,
    /// Another reduction on one rank
    OtherOp,
    /// Another root on one rank
    OtherRoot,
    /// Another collective on one rank
    OtherCollective,
    /// An object of another type on one rank
    OtherObject,
    /// A rank leaves a call out
    Skips,
    /// A rank makes a call more
    Extra,
    /// A rank makes two calls in the other order
    Inverts,
    /// A rank leaves the receive out of a batch
    RecvLeftOut,
    /// SIGKILL while the ranks find each other
    BringUpKilled,
    /// SIGSTOP while the ranks find each other
    BringUpStopped,
    /// A rank never comes
    Missing,
    /// Two ranks are killed, stopped or terminated within a few milliseconds
    TwoFaults,
}

impl Fault {
    /// Its name.
    #[must_use]
    pub fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Whether nothing is wrong with such a run.
    #[must_use]
    pub const fn is_harmless(self) -> bool {
        matches!(self, Self::Healthy | Self::Stalled)
    }

    /// Whether the victim's process ends by it.
    #[must_use]
    pub const fn is_death(self) -> bool {
        matches!(
            self,
            Self::Killed
                | Self::Terminated
                | Self::Segfault
                | Self::Exits0
                | Self::Exits7
                | Self::Panics
                | Self::BringUpKilled
        )
    }

    /// Whether the victim ends or stands still by it, so that nothing is expected of it.
    #[must_use]
    pub const fn stays_away(self) -> bool {
        self.is_death() || self.patience() > 0
    }

    /// Whether the victim contradicts the other ranks in a call.
    #[must_use]
    pub const fn is_contradiction(self) -> bool {
        matches!(
            self,
            Self::OtherCount
                | Self::OtherDtype
                | Self::OtherOp
                | Self::OtherRoot
                | Self::OtherCollective
        )
    }

    /// Whether it is about how the ranks find each other.
    #[must_use]
    pub const fn is_of_bring_up(self) -> bool {
        matches!(
            self,
            Self::BringUpKilled | Self::BringUpStopped | Self::Missing
        )
    }

    /// How late it can be known: at once, once it is sure that a process does not run, at a deadline.
    #[must_use]
    pub const fn patience(self) -> u8 {
        if matches!(self, Self::Stopped | Self::BringUpStopped) {
            1
        } else if matches!(self, Self::Sleeps | Self::Computes | Self::Missing) {
            2
        } else {
            0
        }
    }

    /// The class of the verdict on a victim that others wait for.
    #[must_use]
    pub const fn class(self) -> Exit {
        match self {
            Self::Healthy | Self::Stalled => Exit::Ok,
            Self::Killed
            | Self::Terminated
            | Self::Segfault
            | Self::Exits0
            | Self::Exits7
            | Self::Panics
            | Self::BringUpKilled
            | Self::TwoFaults => Exit::PeerDead,
            Self::Stopped | Self::BringUpStopped => Exit::PeerFrozen,
            Self::Sleeps | Self::Computes | Self::LeavesEarly | Self::DestroysEarly => {
                Exit::NotJoined
            }
            Self::OtherCount
            | Self::OtherDtype
            | Self::OtherOp
            | Self::OtherRoot
            | Self::OtherCollective
            | Self::OtherObject
            | Self::Skips
            | Self::Extra
            | Self::RecvLeftOut => Exit::Mismatch,
            Self::Inverts => Exit::Deadlock,
            Self::Missing => Exit::RdvMissing,
        }
    }
}

/// A fault that was put into a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planted {
    /// Which one.
    pub fault: Fault,
    /// To whom.
    pub victim: u32,
    /// The step of its program at which it stops for good, where it does and that is known before.
    pub halt: Option<usize>,
    /// The ranks of the group that it is about, where it is about one.
    pub group: Vec<u32>,
}

/// Something that the drill does to a run from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strike {
    /// When.
    pub when: When,
    /// How long after that, in microseconds.
    pub delay_us: u64,
    /// What.
    pub act: Act,
}

/// A moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// As soon as the strikes before are done.
    AtOnce,
    /// A rank is about to join.
    Arrives(u32),
    /// A rank begins a step of its program.
    Begins {
        /// The rank.
        rank: u32,
        /// The step.
        step: usize,
    },
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Somebody else keeps the descriptors of a rank open.
    HoldDescriptors {
        /// Whose.
        rank: u32,
    },
    /// A signal to the launcher.
    Launcher {
        /// Its number.
        signal: i32,
    },
    /// A signal to a rank.
    Signal {
        /// Whom.
        rank: u32,
        /// Its number.
        signal: i32,
    },
    /// A rank is stopped, and goes on.
    Stall {
        /// Whom.
        rank: u32,
        /// For how long, in milliseconds.
        ms: u64,
    },
}
