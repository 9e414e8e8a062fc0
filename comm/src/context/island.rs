//! The ranks that share the memory of this one, and what destroyed groups left there.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

use super::status::Status;
use super::unread::Unread;
use crate::transport::shm::arena::Arena;
use crate::transport::shm::heap::Heap;
use crate::transport::shm::spaces::Spaces;
use crate::transport::shm::wakers::Wakers;
use crate::types::Rank;

/// What a destroyed group left in shared memory, where peers may still read it.
pub(crate) trait Leftover: Debug + Send {
    /// Frees what nobody reads any more; `true` when nothing is left.
    fn shrink(&mut self, status: &Status) -> bool;
    /// Whether the group has sent messages that a rank which is there may still read.
    fn is_unsettled(&self, status: &Status) -> bool;
    /// What the group has sent, as rank `me`, to a rank that has left without reading it.
    fn unread(&self, status: &Status, me: Rank) -> Option<Unread>;
}

/// The ranks that share this process's arena.
#[derive(Debug)]
pub(crate) struct Island {
    pub(crate) arena: Arc<Arena>,
    pub(crate) heap: Arc<Heap>,
    /// What all ranks of the island can reach.
    pub(crate) spaces: Spaces,
    /// Index of this rank's region.
    pub(crate) local: usize,
    /// Index of every world rank's region, `None` for ranks elsewhere.
    pub(crate) locals: Vec<Option<usize>>,
    /// What wakes the ranks of the island in `poll`, where they have links to ranks elsewhere.
    pub(crate) wakers: Option<Arc<Wakers>>,
    /// What destroyed groups held and peers may still read.
    pub(crate) retired: Mutex<Vec<Box<dyn Leftover>>>,
}

impl Drop for Island {
    fn drop(&mut self) {
        // What is retired may still be read: it stays as it is.
        self.heap.close();
    }
}

impl Island {
    /// Takes over what a destroyed communicator held.
    pub(crate) fn retire(&self, status: &Status, retired: Box<dyn Leftover>) {
        self.retired
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(retired);
        self.reclaim(status);
    }

    /// Whether a destroyed group has sent messages that a rank which is there may still read.
    pub(super) fn is_unsettled(&self, status: &Status) -> bool {
        let retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        retired.iter().any(|one| one.is_unsettled(status))
    }

    /// What a destroyed group has sent to a rank that has left without reading it.
    pub(super) fn unread(&self, status: &Status, me: Rank) -> Option<Unread> {
        let retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        retired.iter().find_map(|one| one.unread(status, me))
    }

    /// Returns to the heap what no peer can read any more (SLOT-3).
    pub(crate) fn reclaim(&self, status: &Status) {
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        retired.retain_mut(|one| !one.shrink(status));
    }
}
