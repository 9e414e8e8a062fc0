//! What ranks and their arbiter say to each other. Travels inside the control plane, which only sees
//! bytes and only lets in who has proved the secret.

use serde::{Deserialize, Serialize};

use super::process::Sight;
use super::report::Report;
use crate::error::ErrorKind;
use crate::error::verdict::{CallId, Verdict};
use crate::rendezvous::ProcessId;
use crate::types::Rank;

/// From a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FromRank {
    /// What was asked for.
    Answer {
        ask: u64,
        report: Box<Report>,
        looks: Vec<Look>,
    },
    /// Where its thread is that others wait for: functions, the innermost first; none where that cannot
    /// be told.
    Stack { functions: Vec<String> },
    /// A call waits, or ended badly; then with what the board of this rank shows.
    Complaint {
        call: CallId,
        cause: Cause,
        report: Option<Box<Report>>,
    },
    /// A verdict that ranks came to by themselves: while the arbiter stood still, or in bring-up.
    Judged(Box<Verdict>),
    /// What a viewer wants to see: the job of the board, and what it shows.
    Shown {
        round: u64,
        job: u64,
        report: Box<Report>,
    },
    /// What its board shows just before it says goodbye: nobody can ask it afterwards how far it came.
    Leaves(Box<Report>),
}

/// Why a rank complains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Cause {
    /// It has waited for a while.
    Waits,
    /// Another rank has given its group up: the verdict is wanted, if there is one.
    GivenUp,
    /// It has waited in vain: for too long, or for a rank that is gone.
    InVain,
    /// The program has the verdict on it: what its rank does next may be because of that. Nothing is wanted.
    Told,
    /// It ended with this error, which leaves the group usable or not. `culprit` is the rank whose doing
    /// it is where all ranks found the same; else it is the complaining rank's own.
    Failed {
        kind: ErrorKind,
        usable: bool,
        culprit: Option<Rank>,
    },
}

/// What a rank saw of a neighbour that does not answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Look {
    pub(crate) rank: u32,
    pub(crate) sight: Sight,
    /// Its board, read from outside.
    pub(crate) report: Option<Box<Report>>,
}

/// To a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToRank {
    /// What does your board show, and what do these neighbours (rank, process) do?
    Ask {
        ask: u64,
        look: Vec<(u32, ProcessId)>,
    },
    /// What does your board show? For a viewer: nothing is decided by it.
    Show { round: u64 },
    /// Where is the thread that uses the group with this key?
    Stack { key: u64 },
    /// One line to print: who is waited for, before anything has failed.
    Suspect { line: String },
    /// Others have waited for this rank for long: where it is may be asked soon.
    Suspected,
    /// Somebody has failed, or several have.
    Verdict(Box<Verdict>),
}

/// To the owner of the coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToOwner {
    /// One line to print: who is waited for.
    Suspect(String),
    /// One line to print: which ranks get too little processor time.
    Starved(String),
    /// A verdict; given again where it ends more calls.
    Verdict(Box<Verdict>),
}

impl ToOwner {
    /// Reads what the coordinator passed on.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        decode(bytes)
    }
}

pub(crate) fn encode(message: &impl Serialize) -> Vec<u8> {
    // Nothing in these messages can fail to be written; an empty one is dropped by its reader.
    postcard::to_allocvec(message).unwrap_or_default()
}

pub(crate) fn decode<'a, M: Deserialize<'a>>(bytes: &'a [u8]) -> Option<M> {
    postcard::from_bytes(bytes).ok()
}
