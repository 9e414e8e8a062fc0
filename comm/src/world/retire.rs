//! What destroyed groups leave in shared memory, until no peer can read it any more.

use std::sync::PoisonError;

use super::{Island, Unread, WorldInner};
use crate::backend::direct::Staging;
use crate::backend::links::{RingBlock, sent_in_vain};
use crate::backend::local::Local;

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

impl Retired {
    /// Frees what nobody reads any more; `true` when nothing is left.
    fn shrink(&mut self, world: &WorldInner) -> bool {
        self.rings.retain(|ring| !ring.is_over(world));
        let done = |local: &Local| local.is_done_with(world, self.key, self.seq);
        if !self.broken && self.local.as_ref().is_none_or(done) {
            self.local = None;
            self.staging = None;
        }
        self.local.is_none() && self.rings.is_empty()
    }
}

impl Island {
    /// Takes over what a destroyed communicator held.
    pub(crate) fn retire(&self, world: &WorldInner, retired: Retired) {
        self.retired
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(retired);
        self.reclaim(world);
    }

    /// What a destroyed group has sent to a rank that has left without reading it.
    pub(super) fn sent_in_vain(&self, world: &WorldInner) -> Option<Unread> {
        let retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        let sound = retired.iter().filter(|one| !one.broken);
        let mut rings = sound.flat_map(|one| one.rings.iter().map(|ring| (one.key, ring)));
        rings.find_map(|(key, ring)| sent_in_vain(ring, key, world))
    }

    /// Returns to the heap what no peer can read any more (SLOT-3).
    pub(crate) fn reclaim(&self, world: &WorldInner) {
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        retired.retain_mut(|one| !one.shrink(world));
    }
}
