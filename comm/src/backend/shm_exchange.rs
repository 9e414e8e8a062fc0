//! Groups whose ranks all share memory: every call begins with an exchange of entries.
//!
//! An entry says what the call is, so a rank that made another call is found out before any data
//! is touched, at no extra message. Small contributions ride in the entry: then the exchange is
//! the whole collective, one synchronisation, and each rank computes its result from the payloads
//! in rank order.
//!
//! - LOCAL-1: all members know of all entries of a call that they agree, or look at all of them, before they go on. So all of
//!   them come to the same verdict about a mismatch, and the next call finds them in step again. In a large group they look at all
//!   only where the tree has found a difference (`assembly`).
#![expect(
    unsafe_code,
    reason = "payloads of peers are read through raw pointers"
)]

mod arrival;
mod assembly;

use std::sync::Arc;

use super::exchange::Exchange;
use super::wait_context::WaitContext;
use super::{Request, matching};
use crate::context::{Island, Status};
use crate::error::ErrorKind;
use crate::kernel;
use crate::transport::shm::arena::Arena;
use crate::transport::shm::slot::{
    self, Differs, Entry, PAYLOAD_MAX, PayloadClass, PeerSlot, Slot,
};
use crate::transport::shm::tree::Tree;
use crate::transport::shm::wait::Rest;
use crate::types::Rank;
use crate::watch::{CallsiteHistory, Mark};

/// This rank's side of a group in shared memory, and what it has found of the others'.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) arena: Arc<Arena>,
    pub(crate) slot: Slot,
    /// Slots of the members, by index; `None` for this rank and for those not found yet.
    peers: Vec<Option<PeerSlot>>,
    /// Index of every member's region.
    locals: Vec<usize>,
    members: Vec<Rank>,
    me: usize,
    /// Who looks at whom, where the group is large.
    tree: Option<Tree>,
    /// Where all members have made their calls.
    trail: CallsiteHistory,
    /// What the last call exchanged: kept, so that a small call allocates nothing.
    pub(crate) exchange: Exchange,
}

/// How a contribution travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// In the entry, which has room for this many elements.
    Inline(usize),
    /// Through staging.
    Staged,
}

/// What a rank needs of the others' entries, besides that they agree with its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Nothing.
    Agreement,
    /// The contributions that its result is made of.
    Contributions,
    /// All that they say.
    Entries,
}

/// Where a rank's memory for one call lies, as its entry says.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BufferAddrs {
    /// Offset of its staging.
    pub(crate) staging: u64,
    /// Places of its buffers; see `reach`.
    pub(crate) send_at: u64,
    pub(crate) recv_at: u64,
    /// The user's rule that decided, as ranks compare it; see `algo::Choice::mark`.
    pub(crate) way: u8,
}

/// Bytes of the row of counts in front of a payload.
fn row_bytes(request: &Request<'_>) -> usize {
    request.row().len() * size_of::<u64>()
}

impl Local {
    /// Makes this rank's slot; the others' are looked for when they are needed.
    pub(crate) fn establish(
        wait_context: &WaitContext<'_>,
        island: &Island,
    ) -> Result<Self, ErrorKind> {
        let group = wait_context.group;
        let members: Vec<u32> = group.members.iter().map(|rank| rank.0).collect();
        let locals = group
            .members
            .iter()
            .map(|rank| island.locals[rank.index()])
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| ErrorKind::Unsupported {
                what: "shared memory between ranks of several hosts".to_owned(),
                why: "the group spans more than one island".to_owned(),
            })?;
        let slot = Slot::create(
            &island.heap,
            &island.arena,
            island.local,
            group.key,
            group.note,
            &members,
        )
        .map_err(|error| ErrorKind::Resource {
            what: "shared memory of this rank".to_owned(),
            need: "a slot for one more group".to_owned(),
            have: error.to_string(),
        })?;
        Ok(Self {
            arena: Arc::clone(&island.arena),
            slot,
            peers: vec![None; locals.len()],
            trail: CallsiteHistory::new(locals.len()),
            tree: Tree::of(locals.len()),
            locals,
            members: group.members.clone(),
            me: group.me,
            exchange: Exchange::default(),
        })
    }

    /// Index of a member's region.
    pub(crate) fn region(&self, member: usize) -> usize {
        self.locals[member]
    }

    /// How contributions of up to `contribution` elements travel: the same on all ranks, except for a `_v`
    /// exchange of splits, where nobody knows before the rows are exchanged.
    pub(crate) fn placement(request: &Request<'_>, contribution: usize) -> Placement {
        match request.dtype.bytes(contribution) {
            Some(bytes) if bytes + row_bytes(request) <= PAYLOAD_MAX => {
                Placement::Inline(contribution)
            }
            _ => Placement::Staged,
        }
    }

    /// Publishes this call's entry and waits for everybody else's; compares before anything else
    /// is done. What came is in `self.exchange`.
    pub(crate) fn exchange(
        &mut self,
        wait_context: &WaitContext<'_>,
        request: &Request<'_>,
        seq: u64,
        (ride, offer, wanted): (Placement, BufferAddrs, Wanted),
    ) -> Result<(), ErrorKind> {
        self.exchange.data_at = row_bytes(request);
        let (mine, payload) = self.publish(wait_context, request, seq, ride, offer);
        let n = self.peers.len();
        self.exchange.entries.resize(n, mine);
        self.exchange.entries[self.me] = mine;
        self.exchange.payloads.resize(n, payload);
        self.exchange.payloads[self.me] = payload;
        let differs = match self.tree {
            Some(tree) => {
                self.exchange_by_tree(wait_context, request, (seq, &mine), (tree, wanted))?
            }
            None => self.look_at_all(wait_context, seq, &mine)?,
        };
        let (agreed, together) = (!differs.has(Differs::CALL), !differs.has(Differs::MARK));
        let slip = if together && agreed {
            self.trail.together(Mark(mine.mark));
            None
        } else {
            let marks = self.exchange.entries.iter().map(|entry| Mark(entry.mark));
            let is_barrier = request.called.is_empty();
            self.trail.apart(marks, !agreed, is_barrier)
        };
        if let Some(slip) = slip {
            return Err(matching::slipped(
                &wait_context.group.members,
                &self.exchange,
                slip,
            ));
        }
        if !agreed {
            return Err(matching::judge(
                &wait_context.group.members,
                request,
                &self.exchange,
            ));
        }
        if request.collective.has_splits() {
            self.exchange.take_splits(request, self.me);
            matching::check_splits(&wait_context.group.members, &self.exchange)?;
        }
        Ok(())
    }

    /// Waits for the entries of all others, and takes them; says in what they differ.
    fn look_at_all(
        &mut self,
        wait_context: &WaitContext<'_>,
        seq: u64,
        mine: &Entry,
    ) -> Result<Differs, ErrorKind> {
        let n = self.peers.len();
        let mut differs = Differs::default();
        let mut all_here = false;
        for step in 1..n {
            let peer = (self.me + step) % n;
            let slot = match self.peers[peer] {
                Some(slot) if all_here => slot,
                _ => self.await_entry(wait_context, peer, seq)?,
            };
            if step == 1 && n > 2 {
                all_here = self.all_entered(seq);
            }
            let entry = slot.entry(&self.arena, seq);
            differs = differs.and(Differs::between(&entry, mine));
            self.exchange.entries[peer] = entry;
            self.exchange.payloads[peer] = slot.payload(&self.arena, seq, mine.room);
        }
        if differs.has(Differs::ROOM) {
            self.find_payloads(seq);
        }
        Ok(differs)
    }

    /// Looks anew for the payloads of all peers, by what their entries say.
    fn find_payloads(&mut self, seq: u64) {
        for (member, peer) in self.peers.iter().enumerate() {
            if let Some(slot) = peer {
                let room = self.exchange.entries[member].room;
                self.exchange.payloads[member] = slot.payload(&self.arena, seq, room);
            }
        }
    }

    /// Publishes this rank's entry; that, and where its payload lies.
    fn publish(
        &self,
        wait_context: &WaitContext<'_>,
        request: &Request<'_>,
        seq: u64,
        ride: Placement,
        offer: BufferAddrs,
    ) -> (Entry, *const u8) {
        let (n, row_len, size) = (
            self.peers.len(),
            self.exchange.data_at,
            request.dtype.size(),
        );
        // Where ranks know of each other's contributions, the room is the same on all of them.
        let (data_len, room_for) = match ride {
            Placement::Staged => (0, row_len),
            Placement::Inline(largest) => {
                let own = request.send_count(n, self.me);
                (own * size, row_len + largest * size)
            }
        };
        // Rows of an exchange of splits differ between ranks; they are compared cell by cell.
        let mut splits = 0;
        if row_len > 0 && !request.collective.has_splits() {
            splits = request
                .row()
                .iter()
                .fold(0, |hash, count| fold(hash, count as u64));
        }
        let has_far = offer.staging | offer.send_at | offer.recv_at != 0;
        let entry = Entry {
            call: request.call_word() | u64::from(offer.way) << matching::WAY_SHIFT,
            count: request.common_count(),
            splits,
            payload_len: (row_len + data_len) as u64,
            room: PayloadClass::for_bytes(room_for, has_far),
            mark: wait_context.mark.with(request.collective as u8).0,
            staging: offer.staging,
            send_at: offer.send_at,
            recv_at: offer.recv_at,
        };
        let payload = self.write_payload(request, seq, entry.room, data_len);
        self.slot.publish(seq, &entry);
        (entry, payload)
    }

    /// Writes the row of counts and `data_len` bytes of the contribution where the payload of an entry goes
    /// that is not published yet.
    fn write_payload(
        &self,
        request: &Request<'_>,
        seq: u64,
        room: PayloadClass,
        data_len: usize,
    ) -> *const u8 {
        let row_len = self.exchange.data_at;
        assert!(row_len + data_len <= room.bytes(), "{row_len} + {data_len}");
        let payload = self.slot.payload(seq, room);
        // Most calls have no row.
        if row_len > 0 {
            for (i, count) in request.row().iter().enumerate() {
                let bytes = (count as u64).to_le_bytes();
                // SAFETY: the payload has room for the row.
                let place = unsafe { payload.add(i * 8) }.cast::<[u8; 8]>();
                // SAFETY: in bounds as above; the entry is not published yet, so no peer reads
                // (SLOT-1).
                unsafe { place.write_unaligned(bytes) };
            }
        }
        if data_len > 0 {
            // SAFETY: the payload has room for the contribution behind the row.
            let target = unsafe { payload.add(row_len) };
            // SAFETY: the send buffer holds that many bytes (checked by the collective layer) and
            // the payload is ours until it is published; the two are different memory.
            unsafe { kernel::copy(target, request.send, data_len) };
        }
        payload
    }

    /// Whether all peers have published entry `seq`, as they mostly have once one has. Looks at all of them whatever
    /// the first ones say: so their lines, which are in other processors' caches, come at the same time.
    fn all_entered(&self, seq: u64) -> bool {
        let mut missing = self.peers.len() - 1;
        for slot in self.peers.iter().flatten() {
            missing -= usize::from(slot.entered(&self.arena, seq) == seq);
        }
        missing == 0
    }

    /// Publishes tick `tick` of call `seq` and waits until all members have reached it.
    pub(crate) fn barrier(
        &self,
        wait_context: &WaitContext<'_>,
        seq: u64,
        tick: u32,
    ) -> Result<(), ErrorKind> {
        self.slot.advance(seq, tick);
        if let Some(tree) = self.tree {
            return self.meet(wait_context, tree, (seq, tick));
        }
        let goal = slot::progress(seq, tick);
        let n = self.peers.len();
        let behind =
            |peer: &usize| self.peers[*peer].is_some_and(|slot| slot.reached(&self.arena) < goal);
        for step in 1..n {
            let peer = (self.me + step) % n;
            let Some(slot) = self.peers[peer] else {
                continue;
            };
            if slot.reached(&self.arena) < goal {
                let missing = || (0..n).filter(behind).collect();
                let ready = || slot.reached(&self.arena) >= goal;
                wait_context.wait(&Rest::Bell(slot.bell(&self.arena)), ready, missing)?;
            }
        }
        Ok(())
    }

    /// Says that this rank is about to work on its peers' memory in call `seq`, unless one of them has
    /// ended the call already (SLOT-5).
    pub(super) fn touch(&self, wait_context: &WaitContext<'_>, seq: u64) -> Result<(), ErrorKind> {
        self.slot.touch(seq);
        let revoked = |slot: &PeerSlot| slot.revoked(&self.arena) >= seq;
        let gone = self
            .peers
            .iter()
            .position(|slot| slot.as_ref().is_some_and(revoked));
        let Some(peer) = gone else {
            return Ok(());
        };
        self.slot.untouch();
        // It ended the call because of something, which may be the end of any other member.
        let all: Vec<usize> = (0..self.peers.len())
            .filter(|one| *one != self.me)
            .collect();
        Err(wait_context
            .news(&all)
            .unwrap_or_else(|| ErrorKind::PeerClosed {
                peer: self.members[peer],
                how: "ended the call early".to_owned(),
                orderly: false,
            }))
    }

    /// Ends call `seq` early: from when this returns `true` on, no peer works on this rank's memory.
    /// `false` where that could not be made sure of in the time that there is.
    pub(super) fn revoke(&self, wait_context: &WaitContext<'_>, seq: u64) -> bool {
        self.slot.revoke(seq);
        let key = wait_context.group.key;
        (0..self.peers.len())
            .filter(|peer| *peer != self.me)
            .all(|peer| {
                let found = || PeerSlot::find(&self.arena, self.locals[peer], key);
                let Some(slot) = self.peers[peer].or_else(|| found().ok().flatten()) else {
                    // Whoever makes its slot only now will see the revocation.
                    return true;
                };
                let over = || !slot.is_at_work(&self.arena, seq);
                wait_context.settle(peer, &Rest::Bell(slot.bell(&self.arena)), over)
            })
    }

    /// Whether no member can still read what this rank published for call `seq` (SLOT-3).
    pub(crate) fn is_done_with(&self, status: &Status, key: u64, seq: u64) -> bool {
        let goal = slot::progress(seq, slot::DONE);
        self.peers
            .iter()
            .zip(&self.members)
            .zip(&self.locals)
            .all(|((slot, rank), local)| {
                // A peer that was never found read nothing of ours in a call that ended well, but in a large group.
                if slot.is_none() && self.tree.is_none() {
                    return true;
                }
                let Ok(Some(found)) = PeerSlot::find(&self.arena, *local, key) else {
                    return true;
                };
                slot.is_some_and(|slot| slot != found)
                    || found.reached(&self.arena) >= goal
                    || status.gone(*rank).is_some()
            })
    }
}

/// The row of counts must fit the entry.
pub(super) fn check_row(request: &Request<'_>) -> Result<(), ErrorKind> {
    let row = request.row().len();
    if row * size_of::<u64>() <= PAYLOAD_MAX {
        return Ok(());
    }
    Err(ErrorKind::Unsupported {
        what: format!("{} with {row} counts", request.collective),
        why: format!(
            "at most {} fit the exchange",
            PAYLOAD_MAX / size_of::<u64>()
        ),
    })
}

/// One step of a hash that only has to tell equal lists from different ones.
fn fold(hash: u64, word: u64) -> u64 {
    (hash ^ word)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .rotate_left(29)
        .wrapping_add(1)
}
