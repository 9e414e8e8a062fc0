//! Calls over buffers that all ranks can reach: nothing is staged, every byte moves once.
//!
//! The entries say where the buffers lie. If what a collective needs lies where all ranks can reach
//! it, each rank does its share straight between the buffers; one barrier ends the call. All ranks
//! come to the same conclusion, since they draw it from the same entries. Such a call has one round,
//! so there is nothing that a plan could order, and no choice among algorithms.
//!
//! | collective | what must be reachable | what a rank does |
//! |---|---|---|
//! | all_reduce | all buffers | reduces its slice of all inputs into all outputs |
//! | scan, exclusive_scan | all buffers | reduces its slice of the inputs for every output |
//! | reduce | all inputs, the root's output | reduces its slice of all inputs into the output |
//! | reduce_scatter | all inputs | reduces its block of all inputs |
//! | broadcast | all buffers, else the root's | copies its slice to all; else fetches all of it |
//! | all_gather | all outputs, else all inputs | stores its block in all outputs; else fetches all |
//! | all_to_all | all inputs, else all outputs | fetches its blocks; else stores them |
//! | gather | the root's output, else all inputs | stores its block; else the root fetches all |
//! | scatter | the root's input | fetches its block |
//!
//! Where ranks may read each other's memory by system call, ordinary buffers are fetched from in the same way
//! by the collectives that only copy, where that is faster (`buffer`).
//!
//! - ZERO-COPY-1: a place that a peer names is used only if the whole buffer, by the lengths that this call
//!   has, lies in memory that the island shares (SHM-1).
//! - ZERO-COPY-2: no rank stores where another one reads: a slice of an input is read by the rank only that
//!   stores over it where the call is in place, and blocks that are fetched are not part of an output,
//!   save at the same place. An exchange in place is the exception, so it names no places.
#![expect(
    unsafe_code,
    reason = "reads and writes the buffers of peers by address"
)]

mod buffer;

use std::ops::Range;

use smallvec::smallvec;

use self::buffer::{Buffer, find};
pub(super) use self::buffer::{is_enough, is_fetched, is_named, may_be_left, places};
use super::direct::STREAM_FROM;
use super::exchange::Exchange;
use super::wait_context::WaitContext;
use super::{Counts, PerRank, Request};
use crate::error::ErrorKind;
use crate::kernel;
use crate::transport::shm::spaces::Spaces;
use crate::types::{Pattern, index};

/// Slices begin at multiples of this many bytes of the vector, so that no two ranks write one line.
const SLICE_ALIGN: usize = 128;
/// A block that goes to several ranks goes in pieces of this size, which stay in the nearest cache.
const PIECE: usize = 16 << 10;

/// A peer's memory could not be read.
#[derive(Debug)]
pub(super) struct Unread {
    /// Its index in the group.
    pub(super) peer: usize,
    pub(super) why: std::io::Error,
}

/// What each rank does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Works on its slice of the vector.
    Slice,
    /// Fetches what it gets.
    Fetch,
    /// Stores what it gives.
    Store,
}

/// One call whose buffers can be reached.
#[derive(Debug)]
pub(super) struct ZeroCopy<'a> {
    request: &'a Request<'a>,
    n: usize,
    me: usize,
    way: Way,
    /// Send buffers of all ranks.
    sends: PerRank<Buffer>,
    recvs: PerRank<Buffer>,
    /// Whether some of them are read by system call, on whichever rank.
    reads: bool,
    extents: PerRank<Extent>,
    /// Whether results go around the cache: there are many, and the call is not in place, so that their
    /// lines are not there.
    stream: bool,
}

/// Lengths of a member's buffers, in elements, and where the parts that concern this rank begin.
#[derive(Clone, Copy, Debug)]
struct Extent {
    send: usize,
    recv: usize,
    /// The part of its send buffer that goes to this rank, in an exchange.
    send_start: usize,
    /// The part of its receive buffer that comes from this rank.
    recv_start: usize,
}

impl<'a> ZeroCopy<'a> {
    /// Looks whether the buffers of this call can be reached as it needs; `None` if not.
    pub(super) fn of(
        wait_context: &WaitContext<'_>,
        request: &'a Request<'a>,
        exchange: &Exchange,
        spaces: &Spaces,
    ) -> Result<Option<Self>, ErrorKind> {
        let (n, me) = (wait_context.group.len(), wait_context.group.me);
        let mut sends = PerRank::with_capacity(n);
        let mut recvs = PerRank::with_capacity(n);
        let mut extents = PerRank::with_capacity(n);
        let mut results = 0_usize;
        for (peer, entry) in exchange.entries.iter().enumerate() {
            let extent = Extent::of(request, exchange, n, me, peer);
            let find = |place: u64, count: usize| {
                find(request, spaces, place, count).map_err(|what| ErrorKind::Transport {
                    peer: wait_context.group.members[peer],
                    what,
                })
            };
            sends.push(find(entry.send_at, extent.send)?);
            recvs.push(find(entry.recv_at, extent.recv)?);
            results = results.saturating_add(extent.recv);
            extents.push(extent);
        }
        let Some(way) = choose(request, &sends, &recvs) else {
            return Ok(None);
        };
        let there = |buffer: &Buffer| matches!(buffer, Buffer::There(_));
        let reads = sends.iter().chain(&recvs).any(there);
        // Its own buffers a rank knows better.
        sends[me] = Buffer::Here(request.send.cast_mut());
        recvs[me] = Buffer::Here(request.recv);
        let results = results.saturating_mul(request.dtype.size());
        Ok(Some(Self {
            request,
            n,
            me,
            way,
            sends,
            recvs,
            reads,
            extents,
            stream: results >= STREAM_FROM && !request.overlaps(n, me),
        }))
    }

    /// How the call goes, as reports name it.
    pub(super) fn name(&self) -> &'static str {
        if self.reads { "read" } else { "straight" }
    }

    /// Does this rank's share. Peers have entered the call, and have not ended it.
    pub(super) fn work(&self) -> Result<(), Unread> {
        use Pattern as P;
        let (me, root) = (self.me, self.request.root);
        let own = self.recvs[me].ptr();
        match (self.request.pattern(), self.way) {
            (P::AllReduce | P::Reduce, _) => self.reduce_slice(),
            (P::ExclusiveScan | P::Scan, _) => self.scan_slice(),
            (P::ReduceScatter, _) => self.reduce_block(),
            (P::Broadcast, Way::Slice) => self.broadcast_slice(),
            (P::Broadcast, Way::Fetch | Way::Store) => {
                if me != root {
                    self.fetch(own, (root, self.recvs[root]), 0, self.whole())?;
                }
            }
            (P::AllGather | P::Gather, Way::Store) => self.store_block(),
            (P::AllGather, Way::Fetch | Way::Slice) => self.collect()?,
            (P::Gather, Way::Fetch | Way::Slice) => {
                if me == root {
                    self.collect()?;
                }
            }
            (P::Scatter, _) => {
                let (start, len) = (self.start_of(me), self.len_of(me));
                self.fetch(own, (root, self.sends[root]), start, len)?;
            }
            (P::AllToAll, Way::Store) => self.store_parts(),
            (P::AllToAll, Way::Fetch | Way::Slice) => self.fetch_parts()?,
            (P::Barrier, _) => unreachable!("a barrier has no buffers to reach"),
        }
        Ok(())
    }

    /// Length of the whole vector, in elements.
    fn whole(&self) -> usize {
        self.request.counts.sent().vector()
    }

    /// Length of a rank's block, where all ranks have one.
    fn len_of(&self, rank: usize) -> usize {
        self.request.counts.sent().of(rank)
    }

    /// Where a rank's block begins in the buffer that holds all of them.
    fn start_of(&self, rank: usize) -> usize {
        self.request.counts.sent().start(rank)
    }

    /// This rank's slice of the vector: first element and length.
    fn slice(&self) -> (usize, usize) {
        let (count, size) = (self.whole(), self.request.dtype.size());
        let step = (SLICE_ALIGN / size).max(1);
        let share = count.div_ceil(self.n).next_multiple_of(step);
        let start = (share * self.me).min(count);
        (start, share.min(count - start))
    }

    fn at(&self, base: *mut u8, element: usize) -> *mut u8 {
        // Wrapping, as a buffer that does not exist has no elements to add; what is used lies inside,
        // by the lengths with which the buffers were found.
        base.wrapping_add(element * self.request.dtype.size())
    }

    fn copy(&self, to: *mut u8, from: *mut u8, len: usize) {
        if len == 0 || std::ptr::eq(to, from) {
            return;
        }
        let bytes = len * self.request.dtype.size();
        if self.stream {
            // SAFETY: as below.
            unsafe { kernel::copy_streaming(to, from.cast_const(), bytes) };
            return;
        }
        // SAFETY: both ranges lie in buffers that hold them: this rank's own (checked by the collective
        // layer) or peers' (ZERO-COPY-1), which stay mapped while the island does and are in this call
        // (SLOT-5). They are apart: in place, equal ranges were left out above (ZERO-COPY-2).
        unsafe { kernel::copy(to, from.cast_const(), bytes) };
    }

    /// Copies `len` elements from element `start` of a peer's buffer on, wherever that lies.
    fn fetch(
        &self,
        to: *mut u8,
        (peer, buffer): (usize, Buffer),
        start: usize,
        len: usize,
    ) -> Result<(), Unread> {
        match buffer {
            Buffer::Here(base) => self.copy(to, self.at(base, start), len),
            Buffer::There(source) => {
                let size = self.request.dtype.size();
                let from = source.address.wrapping_add((start * size) as u64);
                // SAFETY: as the target of `copy`. What it is read from the system looks at.
                unsafe { buffer::read(source.pid, from, to, len * size) }
                    .map_err(|why| Unread { peer, why })?;
            }
            Buffer::Away => unreachable!("a way is chosen only where what it fetches can be read"),
        }
        Ok(())
    }

    fn reduce_slice(&self) {
        let (start, len) = self.slice();
        let everywhere = self.request.pattern() == Pattern::AllReduce;
        let dsts: PerRank<*mut u8> = if everywhere {
            // Beginning with the own one, so that the ranks do not all write to one place at once.
            (0..self.n)
                .map(|step| self.at(self.recvs[(self.me + step) % self.n].ptr(), start))
                .collect()
        } else {
            smallvec![self.at(self.recvs[self.request.root].ptr(), start)]
        };
        self.reduce(0..self.n, start, len, &dsts);
    }

    /// The results of the last ranks first: in place each takes the place of an input that the ranks before it do not need.
    fn scan_slice(&self) {
        let (start, len) = self.slice();
        for rank in (0..self.n).rev() {
            let members = self.request.pattern().contributors(self.n, rank);
            self.reduce(
                members,
                start,
                len,
                &[self.at(self.recvs[rank].ptr(), start)],
            );
        }
    }

    fn reduce_block(&self) {
        let (start, len) = (self.start_of(self.me), self.len_of(self.me));
        self.reduce(0..self.n, start, len, &[self.recvs[self.me].ptr()]);
    }

    /// Reduces `len` elements from `start` on of the inputs of some members.
    fn reduce(&self, members: Range<usize>, start: usize, len: usize, dsts: &[*mut u8]) {
        if len == 0 || members.is_empty() {
            return;
        }
        let request = self.request;
        let divisor = u32::try_from(members.len()).unwrap_or(u32::MAX);
        let srcs: PerRank<*const u8> = self.sends[members]
            .iter()
            .map(|send| self.at(send.ptr(), start).cast_const())
            .collect();
        let (dsts, streamed): (&[_], &[_]) = if self.stream {
            (&[], dsts)
        } else {
            (dsts, &[])
        };
        let (dtype, op) = (request.dtype, request.op);
        // SAFETY: every source holds `start + len` elements and every destination has room for them
        // (as in `copy`). A destination is the source at the same place, or apart from all (ZERO-COPY-2).
        unsafe { kernel::reduce_to(dtype, op, &srcs, dsts, streamed, len, divisor) };
    }

    fn broadcast_slice(&self) {
        let root = self.request.root;
        let (start, len) = self.slice();
        let others = (1..self.n).map(|step| (root + step) % self.n);
        self.spread(
            self.at(self.recvs[root].ptr(), start),
            &others
                .map(|to| self.at(self.recvs[to].ptr(), start))
                .collect::<PerRank<_>>(),
            len,
        );
    }

    /// Stores this rank's block in the outputs of those who get it.
    fn store_block(&self) {
        let (start, len) = (self.start_of(self.me), self.len_of(self.me));
        let request = self.request;
        let targets: PerRank<*mut u8> = if request.collective.is_rooted() {
            smallvec![self.at(self.recvs[request.root].ptr(), start)]
        } else {
            (0..self.n)
                .map(|step| self.at(self.recvs[(self.me + step) % self.n].ptr(), start))
                .collect()
        };
        self.spread(self.sends[self.me].ptr(), &targets, len);
    }

    fn spread(&self, from: *mut u8, targets: &[*mut u8], len: usize) {
        let piece = (PIECE / self.request.dtype.size()).max(1);
        for done in (0..len).step_by(piece) {
            let len = piece.min(len - done);
            for target in targets {
                self.copy(self.at(*target, done), self.at(from, done), len);
            }
        }
    }

    /// Fetches every block from its owner's input.
    fn collect(&self) -> Result<(), Unread> {
        for step in 0..self.n {
            let peer = (self.me + step) % self.n;
            let to = self.at(self.recvs[self.me].ptr(), self.start_of(peer));
            self.fetch(to, (peer, self.sends[peer]), 0, self.len_of(peer))?;
        }
        Ok(())
    }

    fn fetch_parts(&self) -> Result<(), Unread> {
        let starts = starts(self.n, |peer| self.part(peer, false));
        for step in 0..self.n {
            let peer = (self.me + step) % self.n;
            let from = self.extents[peer].send_start;
            let to = self.at(self.recvs[self.me].ptr(), starts[peer]);
            let len = self.part(peer, false);
            // ZERO-COPY-1: so it is where the rows of counts agree, which they do when a call comes this far.
            assert!(from + len <= self.extents[peer].send, "part of {peer}");
            self.fetch(to, (peer, self.sends[peer]), from, len)?;
        }
        Ok(())
    }

    fn store_parts(&self) {
        let starts = starts(self.n, |peer| self.part(peer, true));
        for step in 0..self.n {
            let peer = (self.me + step) % self.n;
            let to = self.extents[peer].recv_start;
            let from = self.at(self.sends[self.me].ptr(), starts[peer]);
            let len = self.part(peer, true);
            // ZERO-COPY-1, as above.
            assert!(to + len <= self.extents[peer].recv, "part for {peer}");
            self.copy(self.at(self.recvs[peer].ptr(), to), from, len);
        }
    }

    /// What this rank sends to a peer, or gets from it.
    fn part(&self, peer: usize, sent: bool) -> usize {
        let counts = self.request.counts;
        let lengths = if sent {
            counts.sent()
        } else {
            counts.received()
        };
        lengths.of(peer)
    }
}

fn starts(n: usize, len: impl Fn(usize) -> usize) -> PerRank<usize> {
    let mut at = 0;
    (0..n)
        .map(|peer| {
            let start = at;
            at += len(peer);
            start
        })
        .collect()
}

impl Extent {
    /// Of splits a row tells. A sum that overflows is no length of a buffer,
    /// and `usize::MAX` stands for it.
    fn of(request: &Request<'_>, exchange: &Exchange, n: usize, me: usize, member: usize) -> Self {
        let Counts::Splits { .. } = request.counts else {
            let block = match request.counts {
                Counts::Uniform(count) => count,
                Counts::Blocks(_) | Counts::Splits { .. } => 0,
            };
            return Self {
                send: request.send_count(n, member),
                recv: request.recv_count(n, member),
                send_start: block.saturating_mul(me),
                recv_start: block.saturating_mul(me),
            };
        };
        let sum = |counts: &[u64]| {
            let add = |sum: usize, count: &u64| sum.saturating_add(index(*count));
            counts.iter().fold(0, add)
        };
        let (sent, got) = exchange.splits_of(member).split_at(n);
        Self {
            send: sum(sent),
            recv: sum(got),
            send_start: sum(&sent[..me]),
            recv_start: sum(&got[..me]),
        }
    }
}

fn choose(request: &Request<'_>, sends: &[Buffer], recvs: &[Buffer]) -> Option<Way> {
    use Pattern as P;
    let there = |buffer: &Buffer| buffer.is_here();
    let read = |buffer: &Buffer| buffer.can_be_read();
    let all = |list: &[Buffer]| list.iter().all(there);
    let (sent, got, root) = (all(sends), all(recvs), request.root);
    // What is only fetched from need not be here.
    let fetched = sends.iter().all(read);
    let first = |ways: [(bool, Way); 2]| {
        let fits = ways.into_iter().find(|(fits, _)| *fits);
        fits.map(|(_, way)| way)
    };
    let never = (false, Way::Fetch);
    first(match request.pattern() {
        P::AllReduce | P::ExclusiveScan | P::Scan => [(sent && got, Way::Slice), never],
        P::Reduce => [(sent && there(&recvs[root]), Way::Slice), never],
        P::ReduceScatter => [(sent, Way::Fetch), never],
        P::Broadcast => [(got, Way::Slice), (read(&recvs[root]), Way::Fetch)],
        P::AllGather => [(got, Way::Store), (fetched, Way::Fetch)],
        P::AllToAll => [(fetched, Way::Fetch), (got, Way::Store)],
        P::Gather => [(there(&recvs[root]), Way::Store), (fetched, Way::Fetch)],
        P::Scatter => [(read(&sends[root]), Way::Fetch), never],
        P::Barrier => [never, never],
    })
}

#[cfg(test)]
mod tests;
