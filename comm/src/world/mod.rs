//! The world: all ranks of a job, as one rank sees it.
//!
//! Bring-up (`join`, or [`World::threads`] for ranks that are threads), the islands of shared
//! memory, and the making of groups. Creating a group sends nothing: its key is a hash of what its
//! members know, and its slot and links are made when it is first used.

mod alloc;
mod bring_up;
mod control;
mod env;
mod island;
mod join;
mod meet;
mod net;
mod retire;
mod selection;
mod spare;
mod status;
mod testimony;
mod threads;
mod unread;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

pub use alloc::{AllocError, RegionBuffer};
pub use bring_up::BringUpError;
pub(crate) use control::Control;
pub use env::FromEnvError;
pub use join::{
    BRING_UP_DEFAULT, JoinOptions, PeerReads, ServedBy, TCP_STREAMS_DEFAULT, Transport,
};
pub(crate) use join::{Word, note};
pub(crate) use net::Net;
pub(crate) use retire::Retired;
pub use selection::{Selection, SelectionError};
use spare::Spare;
#[cfg(test)]
pub(crate) use status::Gone;
pub(crate) use status::{CutOff, Notice, Status};
pub(crate) use testimony::{Testimony, Witness};
pub use threads::ThreadOptions;
pub(crate) use unread::{HasUnread, Unread};

use crate::algo;
use crate::backend::links::Plane;
use crate::backend::vigil::Vigil;
use crate::collective::Communicator;
use crate::error::verdict::CallId;
use crate::error::{CommError, ErrorKind};
use crate::group::Identity;
use crate::rendezvous::Coordinator;
use crate::sync::{AtomicBool, Deadline, Ordering};
use crate::transport::Stream;
use crate::transport::shm::arena::{Arena, OwnerMark};
use crate::transport::shm::heap::Heap;
pub use crate::transport::shm::memory::{SharedMemory, SharedMemoryError};
use crate::transport::shm::spaces::Spaces;
use crate::transport::shm::wait::Pace;
use crate::types::Rank;
use crate::watch::peers::Peers;
use crate::watch::probe::System;
use crate::watch::wire::{Cause, FromRank};
use crate::watch::{CallSites, Watch};

/// Longest name of a group, in bytes: it is hashed, shown in messages and sent in notices.
pub const GROUP_NAME_MAX: usize = 256;
/// Deadline of every call unless the world or the communicator says otherwise.
pub const DEADLINE_DEFAULT: Duration = Duration::from_secs(30);

/// All ranks of a job, seen from one of them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct World {
    inner: Arc<WorldInner>,
}

#[derive(Debug)]
pub(crate) struct WorldInner {
    pub(crate) rank: Rank,
    pub(crate) size: usize,
    pub(crate) job: u64,
    pub(crate) island: Option<Island>,
    /// Links to ranks that share no memory with this one; `None` where there are none.
    pub(crate) net: Option<Net>,
    /// A number for each rank that those have in common which share memory.
    pub(crate) hosts: Vec<u32>,
    /// What this rank can see of the others by itself; `None` where ranks are threads.
    pub(crate) peers: Option<Peers>,
    pub(crate) control: Box<dyn Control>,
    pub(crate) status: Arc<Status>,
    /// What this rank does, for whoever asks.
    pub(crate) watch: Arc<Watch>,
    pub(crate) deadline: Duration,
    pub(crate) pace: Pace,
    /// The user's rules for choosing algorithms, in front of the built-in ones.
    pub(crate) table: Option<algo::Table>,
    /// Whether messages carry a checksum.
    pub(crate) checksum: bool,
    /// What is made of the places in the program that calls come from.
    pub(crate) call_sites: CallSites,
    /// Buffers for objects.
    pub(crate) spare: Spare,
    /// The groups of this rank, and what they left unread.
    pub(crate) unread: unread::Groups,
    /// How often each group was made here: part of the key, so that a group that is destroyed and
    /// made again never meets messages of its former life.
    made: Mutex<HashMap<(String, Vec<Rank>), u64>>,
    /// The rendezvous, where this rank serves it.
    coordinator: OnceLock<Coordinator>,
    /// Whether this rank has said goodbye.
    has_left: AtomicBool,
}

/// How long a rank that has left serves the rendezvous for the others before it says so.
const SERVES_SILENTLY: Duration = Duration::from_secs(5);

impl Drop for WorldInner {
    fn drop(&mut self) {
        let Some(coordinator) = self.coordinator.take() else {
            return;
        };
        // Relaxed: the last owner of the world sees all that was done to it.
        if self.has_left.load(Ordering::Relaxed) {
            // The others still need somebody who tells them of each other.
            let (since, mut has_said) = (Deadline::after(SERVES_SILENTLY), false);
            coordinator.finish_until(|| {
                if since.passed() && !std::mem::replace(&mut has_said, true) {
                    self.watch.say(
                        "this rank has left the world and serves the rendezvous until all others have left: \
                         it ends after the last of them",
                    );
                }
                let gone = |rank| self.status.gone(Rank(rank)).is_some();
                let peers = self.peers.as_ref();
                let stopped = peers.and_then(|peers| peers.only_stopped_left(&System, &gone));
                if let Some(stopped) = &stopped {
                    self.watch.say(stopped);
                }
                stopped.is_some()
            });
        }
        // Else it ends at once, and the others see it go.
    }
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
    /// What destroyed groups held and peers may still read.
    pub(crate) retired: Mutex<Vec<Retired>>,
}

impl Drop for Island {
    fn drop(&mut self) {
        // What is retired may still be read: it stays as it is.
        self.heap.close();
    }
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
        // Called once, by the bring-up that started it.
        let _ = self.inner.coordinator.set(coordinator);
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
    /// this waits at most half a second for the verdict.
    pub fn leave(&self) {
        self.inner.tell_unread();
        // Relaxed: read by the last owner of the world.
        self.inner.has_left.store(true, Ordering::Relaxed);
        if let Some(island) = &self.inner.island {
            island.arena.set_owner_mark(island.local, OwnerMark::Left);
        }
        self.inner.control.leave();
    }
}

impl WorldInner {
    /// Tells the arbiter of a call that has ended badly, with what the board of this rank shows; `false` where there is none.
    pub(crate) fn complain_with_board(&self, call: CallId, cause: Cause) -> bool {
        let report = self.watch.report_with_process().map(Box::new);
        self.control.complain(&FromRank::Complaint {
            call,
            cause,
            report,
        })
    }

    /// Counts one more making of a group here, and says which this is, from 1.
    pub(crate) fn generation(&self, name: &str, members: &[Rank]) -> u64 {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let generation = made.entry((name.to_owned(), members.to_vec())).or_insert(0);
        *generation += 1;
        *generation
    }

    /// The island, if all members of a group lie on it.
    pub(crate) fn island_of(&self, group: &Identity) -> Option<&Island> {
        let island = self.island.as_ref()?;
        let here = |rank: &Rank| island.locals[rank.index()].is_some();
        group.members.iter().all(here).then_some(island)
    }

    /// A new stream to a rank that shares no memory with this one.
    pub(crate) fn open_remote(
        &self,
        vigil: &Vigil<'_>,
        plane: Plane,
        peer: usize,
    ) -> Result<Box<dyn Stream>, ErrorKind> {
        self.net(vigil.group, peer)?.open(vigil, plane, peer)
    }

    /// The stream that such a rank has made to this one, if it has.
    pub(crate) fn take_remote(
        &self,
        group: &Identity,
        plane: Plane,
        peer: usize,
    ) -> Result<Option<Box<dyn Stream>>, ErrorKind> {
        Ok(self.net(group, peer)?.take(group, plane, peer))
    }

    fn net(&self, group: &Identity, peer: usize) -> Result<&Net, ErrorKind> {
        self.net.as_ref().ok_or_else(|| ErrorKind::Unsupported {
            what: format!("a link to rank {}", group.members[peer]),
            why: "this world has shared memory only".to_owned(),
        })
    }
}
