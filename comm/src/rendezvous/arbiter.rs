//! Who decides, beside the coordinator, what is wrong between ranks that wait for each other.
//!
//! The rendezvous carries what ranks and arbiter say to each other and understands none of it.

use std::fmt::Debug;

use super::card::{Card, DownReason};
use super::error::RendezvousError;
use crate::types::Rank;

/// Something that an arbiter wants to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Say this to the owner of the coordinator.
    Report(Vec<u8>),
    /// Say this to one rank.
    Tell(Rank, Vec<u8>),
    /// Say this to every rank that is there.
    TellAll(Vec<u8>),
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
    /// A rank went without a goodbye. The others are told by the coordinator.
    fn down(&mut self, rank: Rank, reason: &DownReason);
    /// A rank said goodbye.
    fn left(&mut self, rank: Rank);
    /// Time passes; called every few milliseconds while the arbiter is busy.
    fn tick(&mut self, now_ms: u64) -> Vec<Act>;
    /// Whether it waits for something.
    fn is_busy(&self) -> bool;
}
