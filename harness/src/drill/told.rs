//! What ranks tell the drill: one line each, on their standard output, between whatever else is printed.

use muster_comm::error::CommError;
use muster_comm::error::verdict::Verdict;
use muster_comm::sync::Clock;
use serde::{Deserialize, Serialize};

use crate::out;

/// What each line begins with.
const HEAD: &str = "DRILL ";
/// Longest message of an error that is passed on, in characters.
const ERROR_MAX: usize = 400;

/// A line of a rank. Times are readings of the monotonic clock of this host, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// The rank, as its script calls it.
    pub rank: u32,
    /// Its process.
    pub pid: u32,
    /// When.
    pub at_ns: u64,
    /// What.
    pub what: What,
}

/// What a rank tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// It is about to join.
    Arrived,
    /// It has ended its world.
    Closed {
        /// Descriptors that were open before it joined.
        descriptors_before: usize,
        /// Descriptors that are open now.
        descriptors_after: usize,
    },
    /// All steps are done.
    Done,
    /// A call failed.
    Failed(Box<Failed>),
    /// It has joined.
    Joined,
    /// The fault is done now.
    Marked,
    /// What it has done, for people.
    Noted {
        /// In words.
        text: String,
    },
    /// It could not join.
    Refused {
        /// The error.
        error: String,
        /// Its exit code.
        code: u8,
        /// What it says as a verdict, where it does.
        verdict: Option<Said>,
    },
    /// A call after a mismatch came out right.
    Usable,
    /// It is at work.
    Working,
    /// A call came out wrong, and nobody said so.
    Wrong {
        /// The call.
        call: String,
    },
}

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// The error.
    pub error: String,
    /// Whether the group stays usable.
    pub is_usable: bool,
    /// What it returned as a verdict.
    pub verdict: Option<Said>,
}

/// A verdict as it was returned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Said {
    /// Name of its class.
    pub class: String,
    /// Whom it blames.
    pub blamed: Vec<u32>,
    /// Its line.
    pub line: String,
}

impl Said {
    /// What a verdict says.
    #[must_use]
    pub fn of(verdict: &Verdict) -> Self {
        Self {
            class: verdict.class.name().to_owned(),
            blamed: verdict.blamed.clone(),
            line: verdict.line(),
        }
    }
}

impl Failed {
    /// What an error says.
    #[must_use]
    pub fn of(error: &CommError) -> Self {
        Self {
            error: error.to_string().chars().take(ERROR_MAX).collect(),
            is_usable: error.is_recoverable(),
            verdict: error.verdict().map(Said::of),
        }
    }
}

impl Told {
    /// Prints the line of a rank.
    pub fn say(rank: u32, what: What) {
        let told = Self {
            rank,
            pid: std::process::id(),
            at_ns: Clock::nanos(),
            what,
        };
        if let Ok(text) = serde_json::to_string(&told) {
            // Where nobody reads any more, nobody is left to be told.
            let _ = out::result(&format!("{HEAD}{text}\n"));
        }
    }

    /// Reads a line, if it is one of these.
    #[must_use]
    pub fn read(line: &str) -> Option<Self> {
        serde_json::from_str(line.strip_prefix(HEAD)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_lines_are_not_taken_for_ours() {
        assert_eq!(Told::read("hello"), None);
        assert_eq!(Told::read("DRILL hello"), None);
        let told = Told {
            rank: 3,
            pid: 7,
            at_ns: 12,
            what: What::Working,
        };
        let line = format!("{HEAD}{}", serde_json::to_string(&told).unwrap());
        assert_eq!(Told::read(&line), Some(told));
    }
}
