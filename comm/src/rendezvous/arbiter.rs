//! Who decides, beside the coordinator, what is wrong between ranks that wait for each other.
//!
//! The rendezvous carries what ranks and arbiter say to each other and understands none of it.

use std::fmt::Debug;

use super::card::{Card, DownReason, ProcessId};
use super::error::RendezvousError;
use crate::types::Rank;

/// Something that an arbiter wants to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// The process of this rank was seen to have ended.
    Ended(Rank),
    /// Look at the processes of these ranks, and say what is seen ([`Arbiter::looked`]).
    Look(Vec<Rank>),
    /// Write this onto the board of a rank, whose process this is: no message reaches it.
    Post(ProcessId, Rank, Vec<u8>),
    /// Say this to the owner of the coordinator.
    Report(Vec<u8>),
    /// Say this to one rank.
    Tell(Rank, Vec<u8>),
    /// Say this to every rank that is there.
    TellAll(Vec<u8>),
}

/// What a look at the process of a rank showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Whether it is there.
    pub liveness: Liveness,
    /// All that was seen, for the arbiter.
    pub bytes: Vec<u8>,
}

/// Whether a process is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// It has ended, or is ending.
    Ended,
    /// It cannot be looked at from here: nothing follows.
    Hidden,
    /// It is there, and runs this program.
    Lives {
        /// The name of the program.
        program: String,
    },
}

/// How the coordinator reaches processes without their help. None of these waits for anybody.
#[derive(Clone, Copy, Debug)]
pub struct Eyes {
    /// Looks at the process of a rank.
    pub look: fn(Rank, &Card) -> Seen,
    /// Writes something onto the board of a rank.
    pub post: fn(&ProcessId, Rank, &[u8]),
    /// What keeps a process from running, in words, where somebody has stopped it.
    pub stopped: fn(&ProcessId) -> Option<String>,
}

/// Called on the coordinator's thread: nothing here may block. Times are milliseconds of one clock.
pub trait Arbiter: Debug + Send {
    /// The world is complete; one card a rank.
    fn ready(&mut self, roster: &[Card]);
    /// Bring-up has failed, at this time of day; the ranks are told by the coordinator.
    fn failed(&mut self, _error: &RendezvousError, _at_unix_ms: u64) -> Vec<Act> {
        Vec::new()
    }
    /// A rank said something.
    fn heard(&mut self, rank: Rank, bytes: &[u8], now_ms: u64) -> Vec<Act>;
    /// The coordinator looked at the process of a rank.
    fn looked(&mut self, _rank: Rank, _seen: &Seen, _now_ms: u64) -> Vec<Act> {
        Vec::new()
    }
    /// How the coordinator reaches processes; `None` where nobody can.
    fn eyes(&self) -> Option<Eyes> {
        None
    }
    /// The process that it runs in, as other processes find it.
    fn process(&self) -> ProcessId {
        ProcessId::default()
    }
    /// A rank went without a goodbye: its connection was found ended at `at_ms`, or how it ended was said then. The others are told
    /// by the coordinator.
    fn down(&mut self, rank: Rank, reason: &DownReason, at_ms: u64);
    /// A rank said goodbye.
    fn left(&mut self, rank: Rank);
    /// Time passes; called every few milliseconds while the arbiter is busy.
    fn tick(&mut self, now_ms: u64) -> Vec<Act>;
    /// Whether it waits for something.
    fn is_busy(&self) -> bool;
}
