//! What the members of a group in shared memory exchange at the beginning of a call: their entries,
//! and the small contributions that ride in them.
#![expect(
    unsafe_code,
    reason = "payloads of peers are read through raw pointers"
)]

use std::ops::Range;

use super::Counts::{Blocks, Splits, Uniform};
use super::Request;
use crate::kernel;
use crate::transport::shm::slot::{Entry, PAYLOAD_MAX};
use crate::types::{DType, Extent, Source, index};

/// The entries of all members, and what rides in them.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    pub(crate) entries: Vec<Entry>,
    /// Address of every member's payload.
    pub(super) payloads: Vec<*const u8>,
    /// Where the contribution begins in each payload, behind the row of counts.
    pub(super) data_at: usize,
    /// Of an exchange of splits, all members' rows: what each sends to every member, then what it expects
    /// from every member. Kept apart from the payloads, so that what was checked is what is used.
    splits: Vec<u64>,
    /// Scratch: the sources of a reduction.
    srcs: Vec<*const u8>,
}

// SAFETY: the addresses point into the arena, which the `Local` around this holds, and which all
// threads may use; nothing is read through them but in the call that set them.
unsafe impl Send for Exchange {}

impl Exchange {
    /// The first `len` counts of a member's row, zeroes behind the end of its payload.
    pub(super) fn row(&self, member: usize, len: usize) -> impl Iterator<Item = u64> {
        let have = index(self.entries[member].payload_len).min(PAYLOAD_MAX) / 8;
        let payload = self.payloads[member];
        (0..len).map(move |i| {
            if i >= have {
                return 0;
            }
            // SAFETY: `i` lies below the payload's length, which is bounded by PAYLOAD_MAX.
            let at = unsafe { payload.add(i * 8) };
            // SAFETY: in bounds as above; published before the entry that led here.
            u64::from_le_bytes(unsafe { at.cast::<[u8; 8]>().read_unaligned() })
        })
    }

    /// Takes the rows of an exchange of splits: once, as peers can write theirs at any time, and this rank's
    /// own from its call.
    pub(super) fn take_splits(&mut self, request: &Request<'_>, me: usize) {
        let n = self.entries.len();
        let mut splits = std::mem::take(&mut self.splits);
        splits.clear();
        for member in 0..n {
            if member == me {
                splits.extend(request.row().iter().map(|count| count as u64));
            } else {
                splits.extend(self.row(member, 2 * n));
            }
        }
        self.splits = splits;
    }

    /// A member's row of splits: what it sends to every member, then what it expects from every member.
    pub(super) fn splits_of(&self, member: usize) -> &[u64] {
        let len = 2 * self.entries.len();
        &self.splits[len * member..][..len]
    }

    /// What a member sends to every member, as it says.
    pub(super) fn sent_by(&self, member: usize) -> &[u64] {
        &self.splits_of(member)[..self.entries.len()]
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

    /// Copies `len` elements from `start` on of a member's inline contribution to element `to` of the
    /// receive buffer.
    fn take(&self, request: &Request<'_>, member: usize, start: usize, len: usize, to: usize) {
        let size = request.dtype.size();
        let src = self.data(member, request.dtype, start, len);
        // SAFETY: `to + len` lies in the receive buffer, whose length the collective layer checked
        // against the counts.
        let dst = unsafe { request.recv.add(to * size) };
        // SAFETY: both ranges are in bounds, and payloads are never user memory.
        unsafe { kernel::copy(dst, src, len * size) };
    }

    /// Reduces `len` elements from `start` on of the inline contributions of some members into the receive buffer.
    fn reduce(&mut self, request: &Request<'_>, members: Range<usize>, start: usize, len: usize) {
        if members.is_empty() {
            return;
        }
        let divisor = u32::try_from(members.len()).unwrap_or(u32::MAX);
        let mut srcs = std::mem::take(&mut self.srcs);
        srcs.clear();
        srcs.extend(members.map(|member| self.data(member, request.dtype, start, len)));
        let (dtype, op, dst) = (request.dtype, request.op, request.recv);
        // SAFETY: every source holds `len` elements (see `data`), the receive buffer too, and
        // payloads are never user memory.
        unsafe { kernel::reduce_n(dtype, op, &srcs, dst, len, divisor) };
        self.srcs = srcs;
    }

    /// Computes this rank's result from inline contributions.
    pub(crate) fn finish(&mut self, request: &Request<'_>, me: usize) {
        let n = self.entries.len();
        let (pattern, is_root, root) = (request.pattern(), me == request.root, request.root);
        if pattern.recv(is_root) == Extent::Nothing {
            return;
        }
        let (got, sends) = (request.counts.received(), pattern.send(true));
        // Where in a member's contribution the part for this rank begins: known before the members are gone
        // through, except where each has sizes of its own.
        let known = match (sends, request.counts) {
            (Extent::Nothing | Extent::Vector | Extent::OwnBlock, _) => Some(0),
            (Extent::AllBlocks, Uniform(_) | Blocks(_)) => Some(got.start(me)),
            (Extent::AllBlocks, Splits { .. }) => None,
        };
        let start = |member| known.unwrap_or_else(|| self.start_in_row(member, me));
        match pattern.source() {
            Source::Nobody => {}
            Source::Reduction(_) => {
                let (start, members) = (start(me), pattern.contributors(n, me));
                self.reduce(request, members, start, request.recv_count(n, me));
            }
            Source::Root => {
                // In the one buffer that such a call may have, the root's data is where it belongs.
                if !(is_root && request.collective.has_one_buffer()) {
                    self.take(request, root, start(root), request.recv_count(n, me), 0);
                }
            }
            Source::Each => {
                let mut to = 0;
                for member in 0..n {
                    self.take(request, member, start(member), got.of(member), to);
                    to += got.of(member);
                }
            }
        }
    }

    /// Where the block for `me` begins in a member's send buffer, by its row of splits.
    fn start_in_row(&self, member: usize, me: usize) -> usize {
        self.sent_by(member)[..me].iter().copied().map(index).sum()
    }

    /// Whether every member's contribution came in its payload: then nothing is left to fetch.
    pub(crate) fn all_inline(&self, request: &Request<'_>) -> bool {
        let n = self.entries.len();
        (0..n).all(|member| {
            let count = match request.counts {
                Splits { .. } => self
                    .sent_by(member)
                    .iter()
                    .fold(0_u64, |sum, count| sum.saturating_add(*count)),
                Uniform(_) | Blocks(_) => request.send_count(n, member) as u64,
            };
            let bytes = count.saturating_mul(request.dtype.size() as u64);
            let whole = (self.data_at as u64).saturating_add(bytes);
            whole <= PAYLOAD_MAX as u64 && self.entries[member].payload_len == whole
        })
    }
}

/// What a rank gets for which nobody's elements are combined: the identity of the reduction.
pub(super) fn identity(request: &Request<'_>, n: usize, me: usize) {
    if !request.pattern().contributors(n, me).is_empty() {
        return;
    }
    let Some(element) = request.op.identity(request.dtype) else {
        unreachable!("{} does not take {}", request.collective, request.op)
    };
    for at in 0..request.recv_count(n, me) {
        let to = request.recv.wrapping_add(at * element.len());
        // SAFETY: the receive buffer holds `recv_count` elements (checked by the collective layer), and the call is over, so
        // that nobody else uses it.
        unsafe { std::ptr::copy_nonoverlapping(element.as_ptr(), to, element.len()) };
    }
}
