//! What a call needs of its rank: who the others are and how they fare, the memory and the links to them, the control plane.
//!
//! `world` makes it, at bring-up; groups and calls use it. It must not know what collectives are, nor how their data moves.

mod buffer_pool;
mod control;
mod epoch;
mod group;
mod island;
mod net;
mod stall_report;
mod status;
mod unread;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use self::buffer_pool::BufferPool;
pub(crate) use self::control::Control;
pub(crate) use self::group::Identity;
pub(crate) use self::island::{Island, Leftover};
pub(crate) use self::net::Net;
pub(crate) use self::stall_report::{StallReport, Witness};
pub(crate) use self::status::{CutOff, Gone, Notice, Status};
pub(crate) use self::unread::{HasUnread, Unread};
use crate::algo;
use crate::error::verdict::{CallId, Verdict};
use crate::rendezvous::Coordinator;
use crate::sync::{AtomicBool, Deadline, Ordering};
use crate::transport::shm::arena::OwnerMark;
use crate::transport::shm::wait::Pace;
use crate::types::Rank;
use crate::watch::peers::Peers;
use crate::watch::probe::{Probe as _, System};
use crate::watch::wire::{Cause, FromRank};
use crate::watch::{CallSites, Watch};

/// Longest name of a group, in bytes: it is hashed, shown in messages and sent in notices.
pub const GROUP_NAME_MAX: usize = 256;
/// How long a rank that has left serves the rendezvous for the others before it says so.
const SERVES_SILENTLY: Duration = Duration::from_secs(5);

/// How long a rank that leaves, and cannot say so because the control plane is gone, stays for those who judge.
const LEAVES_UNSEEN: Duration = Duration::from_secs(2);

/// How long a rank that leaves waits for the verdict on a message that nobody received, as many times as threads want each processor: a
/// round of questions of the arbiter. On a quiet host, those who wait for this rank hear that it has left before they ask why it has
/// destroyed the group. On a crowded one they may ask first, and then the verdict says that it has destroyed the group.
const VERDICT_WAIT: Duration = Duration::from_millis(400);
/// How long a rank that leaves gives others to read its last messages, as many times as threads want each processor.
const READERS_WAIT: Duration = Duration::from_millis(400);
/// How many times at most.
const CROWD_MAX: u32 = 12;
/// How often a rank that leaves looks whether its last messages were read.
const READERS_LOOK: Duration = Duration::from_millis(1);

/// All that the groups of one rank have in common.
#[derive(Debug)]
pub(crate) struct Context {
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
    pub(crate) life: Life,
}

/// What changes while a rank lives: its buffers, its groups, the rendezvous that it serves.
#[derive(Debug, Default)]
pub(crate) struct Life {
    /// Buffers for objects.
    pub(crate) spare: BufferPool,
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

impl Drop for Context {
    fn drop(&mut self) {
        let Some(coordinator) = self.life.coordinator.take() else {
            return;
        };
        // Relaxed: the last owner of the world sees all that was done to it.
        if self.life.has_left.load(Ordering::Relaxed) {
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

impl Context {
    /// Tells the arbiter of a call that has ended badly, with what the board of this rank shows; `false` where there is none.
    pub(crate) fn complain_with_board(&self, call: CallId, cause: Cause) -> bool {
        let report = self.watch.report_with_process().map(Box::new);
        self.control.complain(&FromRank::Complaint {
            call,
            cause,
            report,
        })
    }

    /// Tells the arbiter that the program gets this verdict, and how far it is.
    pub(crate) fn note_told(&self, verdict: &Verdict) {
        let call = verdict.about.or_else(|| verdict.ends.first().copied());
        if let Some(call) = call.filter(|_| self.watch.is_on()) {
            // Where nobody hears it nobody needs to know.
            let _ = self.complain_with_board(call, Cause::Told);
        }
    }

    /// Counts one more making of a group here, and says which this is, from 1.
    pub(crate) fn generation(&self, name: &str, members: &[Rank]) -> u64 {
        let mut made = self
            .life
            .made
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
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

    /// Gives ranks a moment to read what this one has sent them last. Who has ended the group does not: that it leaves shows it.
    fn await_readers(&self) {
        let is_unsettled = || {
            let island = self.island.as_ref();
            self.life.unread.is_unsettled()
                || island.is_some_and(|island| island.is_unsettled(&self.status))
        };
        if !is_unsettled() {
            return;
        }
        let patience = Deadline::after(READERS_WAIT * crowd());
        while self.status.is_untroubled() && is_unsettled() && !patience.passed() {
            self.status.await_news(self.status.epoch(), READERS_LOOK);
        }
    }

    /// Tells the arbiter of a message that was never received, where nothing else has gone wrong, and waits a
    /// moment for its verdict.
    fn tell_unread(&self) {
        if !self.watch.is_on() {
            return;
        }
        self.await_readers();
        // Where nobody judges, those who wait for this rank are to hear at once that it leaves.
        let is_judged = self.peers.as_ref().is_none_or(Peers::has_arbiter);
        if !is_judged || !self.status.is_untroubled() {
            return;
        }
        let sent = || self.island.as_ref()?.unread(&self.status, self.rank);
        let Some(unread) = self.life.unread.first().or_else(sent) else {
            return;
        };
        let Unread {
            call,
            culprit,
            kind,
        } = unread;
        let cause = Cause::Failed {
            kind,
            usable: false,
            culprit,
        };
        if !self.complain_with_board(call, cause) {
            return;
        }
        let patience = Deadline::after(VERDICT_WAIT * crowd());
        self.status
            .await_event(patience, || !self.status.is_untroubled());
    }

    /// Keeps the rendezvous that this rank serves for as long as the context.
    pub(crate) fn keep(&self, coordinator: Coordinator) {
        // Called once, by the bring-up that started it.
        let _ = self.life.coordinator.set(coordinator);
    }

    /// Says goodbye; see [`crate::world::World::leave`].
    pub(crate) fn leave(&self) {
        self.watch.finish_recording();
        self.tell_unread();
        // Who shares memory meets all others in each call, and cannot leave them behind in one.
        if self.net.is_some()
            && let Some(report) = self.watch.report_with_process()
        {
            // A control plane that is gone asks for nothing.
            let _ = self.control.complain(&FromRank::Leaves(Box::new(report)));
        }
        // Relaxed: read by the last owner of the context.
        self.life.has_left.store(true, Ordering::Relaxed);
        if let Some(island) = &self.island {
            island.arena.set_owner_mark(island.local, OwnerMark::Left);
        }
        let is_known = self.control.leave();
        // Others look for who has ended where the rank that served the control plane has, and shared memory would tell them that
        // this one has left.
        if !is_known
            && self.island.is_none()
            && !self.status.has_verdict()
            && let Some(peers) = self
                .peers
                .as_ref()
                .filter(|peers| peers.is_served_by_rank())
        {
            peers.stay_until_judged(&System, LEAVES_UNSEEN);
        }
    }
}

/// How many threads want each processor of this host, within bounds.
fn crowd() -> u32 {
    u32::try_from(System.crowd()).map_or(CROWD_MAX, |crowd| crowd.clamp(1, CROWD_MAX))
}
