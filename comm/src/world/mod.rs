//! The world: all ranks of a job, as one rank sees it.
//!
//! Bring-up (`join`, or [`World::threads`] for ranks that are threads), the islands of shared
//! memory, and the making of groups. Creating a group sends nothing: its key is a hash of what its
//! members know, and its slot and links are made when it is first used.

mod alloc;
mod bring_up;
mod env;
mod hub;
mod interface;
mod island;
mod join;
mod meet;
mod options;
mod selection;
mod threads;

use std::sync::Arc;
use std::time::Duration;

pub use alloc::{AllocError, RegionBuffer};
pub use bring_up::BringUpError;
pub use env::FromEnvError;
pub use interface::NoInterface;
pub(crate) use join::{Word, note};
pub use options::{
    BRING_UP_DEFAULT, JoinOptions, PeerReads, ServedBy, TCP_STREAMS_DEFAULT, Transport,
};
pub use selection::{Selection, SelectionError};
pub use threads::ThreadOptions;

use crate::algo;
use crate::collective::Communicator;
use crate::context::Context;
pub use crate::context::GROUP_NAME_MAX;
use crate::error::CommError;
use crate::rendezvous::Coordinator;
pub use crate::transport::shm::memory::{SharedMemory, SharedMemoryError};
use crate::types::Rank;

/// Deadline of every call unless the world or the communicator says otherwise.
pub const DEADLINE_DEFAULT: Duration = Duration::from_secs(30);

/// All ranks of a job, seen from one of them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct World {
    inner: Arc<Context>,
}

impl World {
    /// This rank.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.inner.rank
    }

    /// Number of ranks.
    #[must_use]
    pub fn size(&self) -> usize {
        self.inner.size
    }

    /// A communicator for the ranks `members`, in this order; this rank must be among them.
    ///
    /// Costs no communication: all members make the same call (for one name in the same order), and
    /// the first collective brings them together. `name` appears in every message about the group.
    /// Groups that live at once should have names of their own: a call that runs into its deadline
    /// while the peer has a group of this name with other members says that the members differ.
    ///
    /// # Errors
    /// `InvalidArgument` where the list is empty, names a rank twice or outside the world, or lacks
    /// this rank, or where the name is empty or longer than [`GROUP_NAME_MAX`].
    pub fn group(&self, name: &str, members: &[Rank]) -> Result<Communicator, CommError> {
        self.make_group(name, members, None)
    }

    /// [`World::group`] with rules of its own for choosing algorithms, in place of the world's: to
    /// compare algorithms. All members must give the same rules.
    ///
    /// # Errors
    /// As [`World::group`].
    pub fn group_with_rules(
        &self,
        name: &str,
        members: &[Rank],
        rules: algo::Table,
    ) -> Result<Communicator, CommError> {
        self.make_group(name, members, Some(rules))
    }

    fn make_group(
        &self,
        name: &str,
        members: &[Rank],
        rules: Option<algo::Table>,
    ) -> Result<Communicator, CommError> {
        let generation = || self.inner.generation(name, members);
        Communicator::new(Arc::clone(&self.inner), name, members, generation, rules)
    }

    /// The communicator of all ranks.
    ///
    /// # Errors
    /// As [`World::group`]; none in practice.
    pub fn everyone(&self) -> Result<Communicator, CommError> {
        let members: Vec<Rank> = (0..self.inner.size).map(Rank::from_index).collect();
        self.group("world", &members)
    }

    /// Keeps the rendezvous that this rank serves for as long as the world.
    pub(crate) fn keep(&self, coordinator: Coordinator) {
        self.inner.keep(coordinator);
    }

    /// Hands bytes to whoever runs the job (the launcher, or rank 0's process where another
    /// engine launched the ranks).
    ///
    /// # Errors
    /// In words, where the control plane is lost or the ranks are threads.
    pub fn report(&self, bytes: &[u8]) -> Result<(), String> {
        self.inner.control.report(bytes)
    }

    /// Says goodbye: peers that still wait for this rank are told that it left, and nobody takes
    /// its end for a failure. Dropping the last clone of a world without this counts as a failure,
    /// so that a rank that returns early by mistake is noticed.
    ///
    /// A message that a peer has sent and that no call of this rank has received is a mismatch. In that case
    /// this waits for the verdict: 0.8 seconds at most, and on a crowded host up to 10.
    pub fn leave(&self) {
        self.inner.leave();
    }
}
