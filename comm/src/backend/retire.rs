//! What destroyed groups leave in shared memory, until no peer can read it any more.

use super::direct::Staging;
use super::links::{RingBlock, sent_in_vain};
use super::shm_exchange::Local;
use crate::context::{Leftover, Status, Unread};
use crate::types::Rank;

/// The remains of one communicator.
#[derive(Debug)]
pub(crate) struct Retired {
    pub(crate) key: u64,
    /// The last call.
    pub(crate) seq: u64,
    /// The last call failed half-way, so that peers may read at any time: the memory is not used
    /// again before the world ends.
    pub(crate) broken: bool,
    pub(crate) local: Option<Local>,
    pub(crate) staging: Option<Staging>,
    pub(crate) rings: Vec<RingBlock>,
}

impl Leftover for Retired {
    fn shrink(&mut self, status: &Status) -> bool {
        self.rings.retain(|ring| !ring.is_over(status));
        let done = |local: &Local| local.is_done_with(status, self.key, self.seq);
        if !self.broken && self.local.as_ref().is_none_or(done) {
            self.local = None;
            self.staging = None;
        }
        self.local.is_none() && self.rings.is_empty()
    }

    fn is_unsettled(&self, status: &Status) -> bool {
        !self.broken && self.rings.iter().any(|ring| ring.is_unsettled(status))
    }

    fn unread(&self, status: &Status, me: Rank) -> Option<Unread> {
        if self.broken {
            return None;
        }
        let mut rings = self.rings.iter();
        rings.find_map(|ring| Some(sent_in_vain(self.key, me, ring.unread_by(status)?)))
    }
}
