//! Who is missing and who is there, as errors say it.

use serde::{Deserialize, Serialize};

use crate::host_load::HostLoad;
use crate::types::Rank;

/// Who is missing, and who is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absence {
    /// Ranks of the world.
    pub world_size: u32,
    /// How long the others waited, in milliseconds.
    pub waited_ms: u64,
    /// The ranks that never arrived, as far as they are named.
    pub missing: Vec<Rank>,
    /// Missing ranks besides those named: a joiner that gives up on its own knows only the first
    /// [`PROGRESS_RANKS_MAX`](super::limits::PROGRESS_RANKS_MAX).
    pub missing_more: u32,
    /// The ranks that are there; empty where a joiner gave up on its own.
    pub present: Vec<Presence>,
    /// What the launcher saw last of the processes of missing ranks, in words.
    pub seen: Vec<String>,
    /// The load of the host, where that is crowded and other ranks still arrived a short time ago: the missing ones may only be late.
    pub late: Option<HostLoad>,
}

/// A rank that is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Presence {
    /// The rank.
    pub rank: Rank,
    /// Its host name.
    pub host: String,
    /// Its process id there.
    pub pid: u32,
    /// How long it has been waiting, in milliseconds.
    pub since_ms: u64,
}

/// The load of the host, where ranks are missing that may only be late: it is crowded, and another rank arrived in the last quarter of the
/// wait.
pub(super) fn late(load: HostLoad, waited_ms: u64, since_last_ms: u64) -> Option<HostLoad> {
    (load.is_crowded() && since_last_ms <= waited_ms / 4).then_some(load)
}
