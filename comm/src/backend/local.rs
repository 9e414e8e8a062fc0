//! Groups whose ranks all share memory: every call begins with an exchange of entries.
//!
//! An entry says what the call is, so a rank that made another call is found out before any data
//! is touched, at no extra message. Small contributions ride in the entry: then the exchange is
//! the whole collective, one synchronisation, and each rank computes its result from the payloads
//! in rank order.
//!
//! - LOCAL-1: all members look at all entries of a call before they go on, so all of them come to
//!   the same verdict about a mismatch, and the next call finds them in step again.
#![expect(
    unsafe_code,
    reason = "payloads of peers are read through raw pointers"
)]

use std::sync::Arc;

use super::Request;
use super::vigil::Vigil;
use crate::error::{ErrorKind, Field};
use crate::kernel;
use crate::transport::shm::arena::Arena;
use crate::transport::shm::slot::{self, Entry, PAYLOAD_MAX, PeerSlot, Slot};
use crate::transport::shm::wait::Rest;
use crate::types::{Collective, DType, Rank, ReduceOp, index};
use crate::world::{Island, WorldInner};

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
}

/// The entries of all members, and what rides in them.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) entries: Vec<Entry>,
    /// Address of every member's payload.
    payloads: Vec<*const u8>,
    /// Where the contribution begins in each payload, behind the row of counts.
    data_at: usize,
}

/// How a contribution travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ride {
    /// In the entry.
    Inline,
    /// Through staging.
    Staged,
}

/// Bytes of the row of counts in front of a payload.
fn row_bytes(request: &Request<'_>) -> usize {
    request.row().len() * size_of::<u64>()
}

impl Local {
    /// Makes this rank's slot; the others' are looked for when they are needed.
    pub(crate) fn establish(vigil: &Vigil<'_>, island: &Island) -> Result<Self, ErrorKind> {
        let group = vigil.group;
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
            locals,
            members: group.members.clone(),
            me: group.me,
        })
    }

    /// Index of a member's region.
    pub(crate) fn region(&self, member: usize) -> usize {
        self.locals[member]
    }

    /// How this call's contribution travels: the same on all ranks, except for a `_v` exchange
    /// of splits, where nobody knows before the rows are exchanged.
    pub(crate) fn ride(&self, request: &Request<'_>) -> Ride {
        let (n, me) = (self.locals.len(), self.me);
        let count = request
            .largest_contribution(n)
            .unwrap_or_else(|| request.send_count(n, me));
        match request.dtype.bytes(count) {
            Some(bytes) if bytes + row_bytes(request) <= PAYLOAD_MAX => Ride::Inline,
            _ => Ride::Staged,
        }
    }

    /// Publishes this call's entry and waits for everybody else's; compares before anything else
    /// is done.
    pub(crate) fn exchange(
        &mut self,
        vigil: &Vigil<'_>,
        request: &Request<'_>,
        seq: u64,
        ride: Ride,
        staging: u64,
    ) -> Result<Exchange, ErrorKind> {
        let mine = self.publish(vigil, request, seq, ride, staging);
        let n = self.peers.len();
        let mut exchange = Exchange {
            entries: vec![mine; n],
            payloads: vec![self.slot.payload(seq).cast_const(); n],
            data_at: row_bytes(request),
        };
        let mut agreed = true;
        for step in 1..n {
            let peer = (self.me + step) % n;
            let slot = self.await_entry(vigil, peer, seq)?;
            let entry = slot.entry(&self.arena, seq);
            agreed &=
                (entry.call, entry.count, entry.splits) == (mine.call, mine.count, mine.splits);
            exchange.entries[peer] = entry;
            exchange.payloads[peer] = slot.payload(&self.arena, seq);
        }
        if !agreed {
            return Err(self.judge(vigil, request, &exchange));
        }
        if request.collective == Collective::AllToAllV {
            self.check_splits(vigil, &exchange)?;
        }
        Ok(exchange)
    }

    fn publish(
        &self,
        vigil: &Vigil<'_>,
        request: &Request<'_>,
        seq: u64,
        ride: Ride,
        staging: u64,
    ) -> Entry {
        let payload = self.slot.payload(seq);
        let mut splits = 0;
        for (i, count) in request.row().iter().enumerate() {
            let bytes = (count as u64).to_le_bytes();
            // SAFETY: rows are bounded by `host` so that they fit PAYLOAD_MAX.
            let place = unsafe { payload.add(i * 8) }.cast::<[u8; 8]>();
            // SAFETY: in bounds as above; the entry is not published yet, so no peer reads
            // (SLOT-1).
            unsafe { place.write_unaligned(bytes) };
            splits = fold(splits, count as u64);
        }
        if request.collective == Collective::AllToAllV {
            // Rows differ between ranks there; they are compared cell by cell.
            splits = 0;
        }
        let mut payload_len = row_bytes(request);
        if ride == Ride::Inline {
            let count = request.send_count(vigil.group.len(), self.me);
            let bytes = count * request.dtype.size();
            // SAFETY: `ride` made sure that row and contribution fit the payload.
            let target = unsafe { payload.add(payload_len) };
            // SAFETY: the send buffer holds `count` elements (checked by the collective layer) and
            // the payload is ours until it is published; the two are different memory.
            unsafe { kernel::copy(target, request.send, bytes) };
            payload_len += bytes;
        }
        let entry = Entry {
            call: request.call_word(),
            count: request.common_count(),
            splits,
            payload_len: payload_len as u64,
            staging,
            ..Entry::default()
        };
        self.slot.publish(seq, &entry);
        entry
    }

    /// Waits until a peer has published entry `seq`.
    fn await_entry(
        &mut self,
        vigil: &Vigil<'_>,
        peer: usize,
        seq: u64,
    ) -> Result<PeerSlot, ErrorKind> {
        let slot = match self.peers[peer] {
            Some(slot) => slot,
            None => self.await_slot(vigil, peer, seq)?,
        };
        let (arena, key) = (&self.arena, vigil.group.key);
        if slot.entered(arena, seq) != seq {
            let missing = || self.not_entered(vigil, seq);
            let ready = || slot.entered(arena, seq) == seq || !slot.belongs_to(arena, key);
            vigil.wait(&Rest::Bell(slot.bell(arena)), ready, missing)?;
        }
        if slot.belongs_to(arena, key) {
            return Ok(slot);
        }
        // A rank that ends destroys its groups first; that it ended says more.
        Err(vigil.news(peer).unwrap_or_else(|| ErrorKind::PeerClosed {
            peer: self.members[peer],
            how: "destroyed the group".to_owned(),
            orderly: true,
        }))
    }

    /// Waits until a peer has made its side of the group.
    fn await_slot(
        &mut self,
        vigil: &Vigil<'_>,
        peer: usize,
        seq: u64,
    ) -> Result<PeerSlot, ErrorKind> {
        let (arena, local, key) = (&self.arena, self.locals[peer], vigil.group.key);
        let mut found = PeerSlot::find(arena, local, key);
        if found == Ok(None) {
            let ready = || {
                found = PeerSlot::find(arena, local, key);
                found != Ok(None)
            };
            vigil
                .wait(&Rest::Pause, ready, || self.not_entered(vigil, seq))
                .map_err(|kind| self.suspect(vigil, peer, kind))?;
        }
        let rank = vigil.group.members[peer];
        match found {
            Ok(Some(slot)) => {
                self.peers[peer] = Some(slot);
                Ok(slot)
            }
            Ok(None) => Err(vigil.stalled(&[peer])),
            Err(bad) => Err(ErrorKind::Transport {
                peer: rank,
                what: bad.to_string(),
            }),
        }
    }

    /// A peer that seems to be missing may have made the group of this name with others.
    fn suspect(&self, vigil: &Vigil<'_>, peer: usize, kind: ErrorKind) -> ErrorKind {
        // Not of a peer that is gone: its other groups of this name may be as they should.
        let stalled = matches!(kind, ErrorKind::Stalled { .. });
        let mismatch = stalled.then(|| self.other_members(vigil, peer)).flatten();
        mismatch.unwrap_or(kind)
    }

    /// The members with whom a peer has made the group of this name, if they are others.
    fn other_members(&self, vigil: &Vigil<'_>, peer: usize) -> Option<ErrorKind> {
        let group = vigil.group;
        let theirs = PeerSlot::members_by_note(&self.arena, self.locals[peer], group.note)?;
        let mine: Vec<u32> = group.members.iter().map(|rank| rank.0).collect();
        (theirs != mine).then(|| ErrorKind::Mismatch {
            field: Field::Membership,
            rank: group.members[self.me],
            mine: format!("{mine:?}"),
            peer: group.members[peer],
            theirs: format!("{theirs:?}"),
        })
    }

    /// Indices of the members whose entry `seq` is not there.
    fn not_entered(&self, vigil: &Vigil<'_>, seq: u64) -> Vec<usize> {
        // Of the members behind the one that is waited for, no slot was looked for yet.
        let slot = |peer: usize| {
            self.peers[peer].or_else(|| {
                let found = PeerSlot::find(&self.arena, self.locals[peer], vigil.group.key);
                found.ok().flatten()
            })
        };
        let here = |peer: &usize| {
            *peer == self.me
                || slot(*peer).is_some_and(|slot| slot.entered(&self.arena, seq) >= seq)
        };
        (0..self.peers.len()).filter(|peer| !here(peer)).collect()
    }

    /// Publishes tick `tick` of call `seq` and waits until all members have reached it.
    pub(crate) fn barrier(&self, vigil: &Vigil<'_>, seq: u64, tick: u32) -> Result<(), ErrorKind> {
        self.slot.advance(seq, tick);
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
                vigil.wait(&Rest::Bell(slot.bell(&self.arena)), ready, missing)?;
            }
        }
        Ok(())
    }

    /// Whether no member can still read what this rank published for call `seq` (SLOT-3).
    pub(crate) fn is_done_with(&self, world: &WorldInner, key: u64, seq: u64) -> bool {
        let goal = slot::progress(seq, slot::DONE);
        self.peers
            .iter()
            .zip(&self.members)
            .zip(&self.locals)
            .all(|((slot, rank), local)| {
                // A peer that was never found read nothing of ours in a call that ended well.
                slot.is_none_or(|slot| {
                    PeerSlot::find(&self.arena, *local, key) != Ok(Some(slot))
                        || slot.reached(&self.arena) >= goal
                        || world.status.gone(*rank).is_some()
                })
            })
    }

    /// Names the ranks that made different calls. The call of the majority stands as right (the
    /// lowest rank's where there is none), so that all ranks say the same.
    fn judge(&self, vigil: &Vigil<'_>, request: &Request<'_>, exchange: &Exchange) -> ErrorKind {
        let entries = &exchange.entries;
        let face = |entry: &Entry| (entry.call, entry.count, entry.splits);
        let votes = |i: usize| {
            entries
                .iter()
                .filter(|e| face(e) == face(&entries[i]))
                .count()
        };
        let mut usual = 0;
        for i in 1..entries.len() {
            if votes(i) > votes(usual) {
                usual = i;
            }
        }
        let odd = (0..entries.len())
            .find(|i| face(&entries[*i]) != face(&entries[usual]))
            .unwrap_or(usual);
        let (a, b) = (&entries[usual], &entries[odd]);
        let field = differing_field(a, b);
        let splits = |i: usize| {
            let row = exchange.row(i, request.row().len());
            format!("counts {row:?}")
        };
        let (mine, theirs) = if field == Field::Splits {
            (splits(usual), splits(odd))
        } else {
            (describe(a), describe(b))
        };
        let members = &vigil.group.members;
        ErrorKind::Mismatch {
            field,
            rank: members[usual],
            mine,
            peer: members[odd],
            theirs,
        }
    }

    /// For an exchange of splits: what each rank sends must be what its peer expects.
    fn check_splits(&self, vigil: &Vigil<'_>, exchange: &Exchange) -> Result<(), ErrorKind> {
        let n = self.peers.len();
        let rows: Vec<Vec<u64>> = (0..n).map(|peer| exchange.row(peer, 2 * n)).collect();
        for (from, row) in rows.iter().enumerate() {
            for (to, other) in rows.iter().enumerate() {
                let (sends, expects) = (row[to], other[n + from]);
                if sends != expects {
                    let (sender, receiver) = (vigil.group.members[from], vigil.group.members[to]);
                    return Err(ErrorKind::Mismatch {
                        field: Field::Splits,
                        rank: sender,
                        mine: format!("{sends} elements for rank {receiver}"),
                        peer: receiver,
                        theirs: format!("{expects} expected from rank {sender}"),
                    });
                }
            }
        }
        Ok(())
    }
}

impl Exchange {
    /// The first `len` counts of a member's row, as far as its payload reaches.
    pub(crate) fn row(&self, member: usize, len: usize) -> Vec<u64> {
        let have = index(self.entries[member].payload_len).min(PAYLOAD_MAX) / 8;
        let count = |i: usize| {
            // SAFETY: `i` lies below the payload's length, which is bounded by PAYLOAD_MAX.
            let at = unsafe { self.payloads[member].add(i * 8) };
            // SAFETY: in bounds as above; published before the entry that led here.
            u64::from_le_bytes(unsafe { at.cast::<[u8; 8]>().read_unaligned() })
        };
        (0..len)
            .map(|i| if i < have { count(i) } else { 0 })
            .collect()
    }

    /// Address of element `start` of a member's inline contribution.
    ///
    /// `start + len` elements lie in the payload whenever all entries agree: `ride` said so.
    fn data(&self, member: usize, dtype: DType, start: usize, len: usize) -> *const u8 {
        let from = self.data_at + start * dtype.size();
        assert!(
            from + len * dtype.size() <= PAYLOAD_MAX,
            "payload {from} + {len}"
        );
        // SAFETY: within the payload, checked above.
        unsafe { self.payloads[member].add(from) }
    }

    /// Computes this rank's result from inline contributions.
    pub(crate) fn finish(&self, request: &Request<'_>, me: usize) {
        let n = self.entries.len();
        let size = request.dtype.size();
        let take = |member: usize, start: usize, len: usize, to: usize| {
            let src = self.data(member, request.dtype, start, len);
            // SAFETY: `to + len` lies in the receive buffer, whose length the collective layer
            // checked against the counts.
            let dst = unsafe { request.recv.add(to * size) };
            // SAFETY: both ranges are in bounds, and payloads are never user memory.
            unsafe { kernel::copy(dst, src, len * size) };
        };
        let reduce = |start: usize, len: usize| {
            let srcs: Vec<*const u8> = (0..n)
                .map(|member| self.data(member, request.dtype, start, len))
                .collect();
            let divisor = u32::try_from(n).unwrap_or(u32::MAX);
            let (dtype, op, dst) = (request.dtype, request.op, request.recv);
            // SAFETY: every source holds `len` elements (see `data`), the receive buffer too, and
            // payloads are never user memory.
            unsafe { kernel::reduce_n(dtype, op, &srcs, dst, len, divisor) };
        };
        use super::Counts::{Blocks, Splits, Uniform};
        match (request.collective, request.counts) {
            (Collective::AllReduce, Uniform(count)) => reduce(0, count),
            (Collective::Reduce, Uniform(count)) if me == request.root => reduce(0, count),
            (Collective::ReduceScatter, Uniform(count)) => reduce(me * count, count),
            (Collective::ReduceScatterV, Blocks(counts)) => {
                reduce(counts[..me].iter().sum(), counts[me]);
            }
            (Collective::Broadcast, Uniform(count)) if me != request.root => {
                take(request.root, 0, count, 0);
            }
            (Collective::AllGather, Uniform(count)) => {
                (0..n).for_each(|member| take(member, 0, count, member * count));
            }
            (Collective::Gather, Uniform(count)) if me == request.root => {
                (0..n).for_each(|member| take(member, 0, count, member * count));
            }
            (Collective::AllGatherV, Blocks(counts)) => gather_v(counts, take),
            (Collective::GatherV, Blocks(counts)) if me == request.root => gather_v(counts, take),
            (Collective::Scatter, Uniform(count)) => take(request.root, me * count, count, 0),
            (Collective::ScatterV, Blocks(counts)) => {
                take(request.root, counts[..me].iter().sum(), counts[me], 0);
            }
            (Collective::AllToAll, Uniform(count)) => {
                (0..n).for_each(|member| take(member, me * count, count, member * count));
            }
            (Collective::AllToAllV, Splits { recv, .. }) => {
                let mut to = 0;
                for (member, len) in recv.iter().enumerate() {
                    take(member, self.start_in_row(member, me), *len, to);
                    to += len;
                }
            }
            _ => {}
        }
    }

    /// Where the block for `me` begins in a member's send buffer, by its row of splits.
    pub(crate) fn start_in_row(&self, member: usize, me: usize) -> usize {
        self.row(member, me).into_iter().map(index).sum()
    }

    /// Whether every member's contribution rides inline, for exchanges of splits.
    pub(crate) fn all_inline(&self, dtype: DType) -> bool {
        let n = self.entries.len();
        (0..n).all(|member| {
            let count: u64 = self.row(member, n).iter().sum();
            let bytes =
                (self.data_at as u64).saturating_add(count.saturating_mul(dtype.size() as u64));
            bytes <= PAYLOAD_MAX as u64
        })
    }
}

fn gather_v(counts: &[usize], take: impl Fn(usize, usize, usize, usize)) {
    let mut to = 0;
    for (member, len) in counts.iter().enumerate() {
        take(member, 0, *len, to);
        to += len;
    }
}

/// One step of a hash that only has to tell equal lists from different ones.
fn fold(hash: u64, word: u64) -> u64 {
    (hash ^ word)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .rotate_left(29)
        .wrapping_add(1)
}

fn differing_field(a: &Entry, b: &Entry) -> Field {
    let byte = |word: u64, at: u32| (word >> at) & 0xff;
    if byte(a.call, 0) != byte(b.call, 0) {
        Field::Collective
    } else if byte(a.call, 8) != byte(b.call, 8) {
        Field::Dtype
    } else if byte(a.call, 16) != byte(b.call, 16) {
        Field::Op
    } else if a.call != b.call {
        Field::Root
    } else if a.count != b.count {
        Field::Count
    } else {
        Field::Splits
    }
}

/// A call as an entry tells it: `all_reduce(f32[1024], sum)`.
pub(crate) fn describe(entry: &Entry) -> String {
    let byte = |at: u32| (entry.call >> at).to_le_bytes()[0];
    let name = |name: Option<&'static str>| name.unwrap_or("unknown");
    let collective = Collective::from_code(byte(0));
    let mut text = name(collective.map(Collective::name)).to_owned();
    if collective == Some(Collective::Barrier) {
        return text;
    }
    let dtype = name(DType::from_code(byte(8)).map(DType::name));
    text = format!("{text}({dtype}[{}]", entry.count);
    if byte(16) != 0 {
        text = format!(
            "{text}, {}",
            name(ReduceOp::from_code(byte(16)).map(ReduceOp::name))
        );
    }
    match entry.call >> 32 {
        0 => format!("{text})"),
        root => format!("{text}, root {})", root - 1),
    }
}
