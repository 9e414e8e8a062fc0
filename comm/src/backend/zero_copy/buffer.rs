//! Where the buffers of a call lie: as a rank's entry names them, and as its peers find them.
#![expect(unsafe_code, reason = "reads into buffers by address")]

use std::cell::RefCell;
use std::io;

use super::super::exchange::Exchange;
use super::super::{Counts, Request};
use crate::kernel;
use crate::transport::shm::peer_memory;
use crate::transport::shm::slot::{Entry, PAYLOAD_MAX};
use crate::transport::shm::spaces::{Ordinary, Spaces};
use crate::types::{Extent, Pattern, Source};

/// Shortest blocks that are read out of ordinary memory between two ranks: a system call takes as long as
/// copying a few KiB.
const READ_BYTES_MIN_PAIR: usize = 8 << 10;
/// The same where the entry could carry all that a rank gives.
const READ_BYTES_MIN_FITTING: usize = 12 << 10;
/// The same between more ranks, where several share what one has copied into a cache.
const READ_BYTES_MIN: usize = 32 << 10;
/// The same where blocks differ, on the average: the longer ones decide.
const READ_BYTES_MIN_UNEVEN: usize = 12 << 10;
/// Longest blocks that are read where only one of two ranks reads. The other one of longer ones is better at work
/// on staging than waiting.
const READ_ALONE_MAX: usize = 1 << 20;
/// Most bytes that all ranks of an exchange send where they are read. More do not stay in the last cache with their
/// results, and staging, which stores around the cache, is faster.
const READ_EXCHANGE_MAX: usize = 128 << 20;

/// Shortest contributions to a call of two ranks that stay where they are although the entry could carry them:
/// one copy and a barrier are less than two copies.
const LEFT_BYTES_MIN_PAIR: usize = 8 << 10;
/// The same where every rank takes all of every contribution, for each rank: the barrier grows with their number.
const LEFT_BYTES_MIN_A_RANK: usize = 2 << 10;

/// Whether a contribution of this length is better fetched from where it lies than carried by the entry, if peers
/// can reach it.
pub(in crate::backend) fn may_be_left(
    request: &Request<'_>,
    n: usize,
    contribution: usize,
) -> bool {
    let pattern = request.pattern();
    let is_for_all =
        !pattern.is_rooted() && !matches!(pattern.send(true), Extent::AllBlocks | Extent::Nothing);
    let least = if is_for_all {
        LEFT_BYTES_MIN_A_RANK.saturating_mul(n)
    } else {
        LEFT_BYTES_MIN_PAIR
    };
    (is_for_all || n == 2)
        && request
            .dtype
            .bytes(contribution)
            .is_some_and(|bytes| bytes >= least)
}

/// Whether peers can do with these places of this rank's buffers, so that its entry need not carry anything.
pub(in crate::backend) fn is_enough(
    request: &Request<'_>,
    me: usize,
    (send_at, recv_at): (u64, u64),
) -> bool {
    let (has_send, has_recv) = (send_at != 0, recv_at != 0);
    let pattern = request.pattern();
    if pattern.has_one_buffer() {
        return has_recv;
    }
    // Slices of a vector are reduced by all ranks into the receive buffers.
    let is_stored_by_all = pattern.reduces() && pattern.recv(request.root == me) == Extent::Vector;
    has_send && (has_recv || !is_stored_by_all)
}

/// Where a rank's send and receive buffers lie, as its entry names them; zeroes where peers cannot
/// reach them. `may_read` is false where a rule of the user's wants ordinary memory to be staged.
pub(in crate::backend) fn places(
    request: &Request<'_>,
    n: usize,
    me: usize,
    spaces: &Spaces,
    may_read: bool,
) -> (u64, u64) {
    if request.pattern() == Pattern::AllToAll && request.overlaps(n, me) {
        // ZERO-COPY-2.
        return (0, 0);
    }
    let place = |ptr: *const u8, count: usize| match request.dtype.bytes(count) {
        Some(bytes) if bytes > 0 => spaces.locate(ptr, bytes),
        _ => 0,
    };
    let send = place(request.send, request.send_count(n, me));
    let recv = place(request.recv.cast_const(), request.recv_count(n, me));
    if !may_read || send | recv != 0 {
        return (send, recv);
    }
    match fetched_of(request, n, me) {
        Some(Fetched::Send) => (spaces.locate_ordinary(request.send), 0),
        Some(Fetched::Recv) => (0, spaces.locate_ordinary(request.recv.cast_const())),
        None => (0, 0),
    }
}

/// Whether others fetch from ordinary memory of this rank.
pub(in crate::backend) fn is_fetched(request: &Request<'_>, n: usize, me: usize) -> bool {
    fetched_of(request, n, me).is_some()
}

/// Which buffer of a rank others fetch from, where that may be ordinary memory.
#[derive(Clone, Copy, Debug)]
enum Fetched {
    Send,
    Recv,
}

/// Where every byte is read once staging copies twice. What several ranks want is staged: it is copied in once
/// for all of them, and comes out of the cache, faster than the system copies.
fn fetched_of(request: &Request<'_>, n: usize, me: usize) -> Option<Fetched> {
    let (is_root, is_pair) = (request.root == me, n == 2);
    let pattern = request.pattern();
    let is_of_own_blocks = pattern.send(true) == Extent::OwnBlock;
    let (fetched, blocks, most) = match pattern.source() {
        Source::Nobody | Source::Reduction(_) => return None,
        Source::Root if pattern.has_one_buffer() => (Fetched::Recv, 1, READ_ALONE_MAX),
        Source::Root => (Fetched::Send, n, usize::MAX),
        Source::Each if pattern.is_rooted() => (Fetched::Send, 1, READ_ALONE_MAX),
        Source::Each if is_of_own_blocks => (Fetched::Send, 1, usize::MAX),
        Source::Each => (Fetched::Send, n, READ_EXCHANGE_MAX / n),
    };
    // Blocks for several ranks are fetched by one each; what all ranks want is fetched between two only.
    if (blocks == 1 && !is_pair) || (pattern.source() == Source::Root && !is_root) {
        return None;
    }
    let count = match fetched {
        Fetched::Send => request.send_count(n, me),
        Fetched::Recv => request.recv_count(n, me),
    };
    let bytes = request.dtype.bytes(count)?;
    let least = match request.counts {
        _ if is_pair && bytes <= PAYLOAD_MAX => READ_BYTES_MIN_FITTING,
        _ if is_pair => READ_BYTES_MIN_PAIR,
        Counts::Splits { .. } => READ_BYTES_MIN_UNEVEN,
        Counts::Uniform(_) | Counts::Blocks(_) => READ_BYTES_MIN,
    };
    (bytes / blocks >= least && bytes <= most).then_some(fetched)
}

/// Bytes that are read at once where they go through memory of this thread.
const BOUNCE_BYTES: usize = 32 << 10;
const PAGE: usize = 4096;

thread_local! {
    /// Memory that is read to where the system would copy slowly to the target; taken when first needed.
    static BOUNCE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Reads memory of another process, in two fast copies where one is slow (see [`kernel::is_slow_elsewhere`]).
///
/// # Safety
/// `to` must be valid for writes of `bytes` bytes.
pub(super) unsafe fn read(pid: u32, from: u64, to: *mut u8, bytes: usize) -> io::Result<()> {
    let offset = usize::try_from(from).unwrap_or(0);
    if !kernel::is_slow_elsewhere(to.addr(), offset) {
        // SAFETY: the caller promises the target.
        return unsafe { peer_memory::read_raw(pid, from, to, bytes) };
    }
    BOUNCE.with_borrow_mut(|bounce| {
        bounce.resize(BOUNCE_BYTES + PAGE, 0);
        // Its offset in a page is that of the source.
        let start = offset.wrapping_sub(bounce.as_ptr().addr()) % PAGE;
        let bounce = &mut bounce[start..start + BOUNCE_BYTES];
        for at in (0..bytes).step_by(BOUNCE_BYTES) {
            let part = &mut bounce[..BOUNCE_BYTES.min(bytes - at)];
            peer_memory::read(pid, from.wrapping_add(at as u64), part)?;
            // SAFETY: the part was read, and its place in the target is the caller's.
            unsafe { kernel::copy(to.wrapping_add(at), part.as_ptr(), part.len()) };
        }
        Ok(())
    })
}

/// Where a buffer lies.
#[derive(Clone, Copy, Debug)]
pub(super) enum Buffer {
    /// Nowhere that this rank could get at.
    Away,
    /// At an address of this process.
    Here(*mut u8),
    /// In a peer's own memory, which can be read.
    There(Ordinary),
}

impl Buffer {
    /// Its address here; null where it has none.
    pub(super) fn ptr(self) -> *mut u8 {
        match self {
            Self::Here(ptr) => ptr,
            Self::Away | Self::There(_) => std::ptr::null_mut(),
        }
    }

    pub(super) fn is_here(self) -> bool {
        matches!(self, Self::Here(_))
    }

    pub(super) fn can_be_read(self) -> bool {
        !matches!(self, Self::Away)
    }
}

/// Whether some rank named a place.
pub(in crate::backend) fn is_named(exchange: &Exchange) -> bool {
    let named = |entry: &Entry| entry.send_at | entry.recv_at != 0;
    exchange.entries.iter().any(named)
}

/// The buffer of `count` elements at a place that a peer named; dangling where it has no elements.
pub(super) fn find(
    request: &Request<'_>,
    spaces: &Spaces,
    place: u64,
    count: usize,
) -> Result<Buffer, String> {
    let bytes = request.dtype.bytes(count);
    if let Some(source) = spaces.ordinary(place) {
        return Ok(Buffer::There(source));
    }
    match (place, bytes) {
        (_, Some(0)) => Ok(Buffer::Here(std::ptr::dangling_mut())),
        (0, _) => Ok(Buffer::Away),
        // ZERO-COPY-1.
        (_, bytes) => bytes
            .and_then(|bytes| spaces.resolve(place, bytes))
            .map(Buffer::Here)
            .ok_or_else(|| {
                format!(
                    "it names a buffer of {count} elements at {place:#x}, outside the shared memory"
                )
            }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Counts;
    use crate::types::{Collective, DType, ReduceOp};

    fn is_read(collective: Collective, n: usize, count: usize) -> bool {
        let splits = vec![count; n];
        let request = Request {
            collective,
            called: collective,
            dtype: DType::U8,
            op: ReduceOp::Sum,
            root: 0,
            counts: if collective.has_splits() {
                Counts::Splits {
                    send: &splits,
                    recv: &splits,
                }
            } else {
                Counts::Uniform(count)
            },
            packed: &[],
            send: std::ptr::dangling(),
            recv: std::ptr::dangling_mut(),
        };
        is_fetched(&request, n, 0)
    }

    #[test]
    fn memory_is_read_whole_wherever_it_lies() {
        let source: Vec<u8> = (0..100_000_u32)
            .map(|at| at.to_le_bytes()[0] ^ at.to_le_bytes()[1])
            .collect();
        let mut target = vec![0; source.len() + 2 * PAGE];
        // Apart by so much within a page, and of so many bytes: less than, just, and more than what is read at once.
        for apart in [0, 1, 16, 63, 64, 4095] {
            for bytes in [
                1,
                BOUNCE_BYTES - 1,
                BOUNCE_BYTES,
                BOUNCE_BYTES + 1,
                source.len(),
            ] {
                target.fill(0xa5);
                let start =
                    (source.as_ptr().addr() + apart).wrapping_sub(target.as_ptr().addr()) % PAGE;
                let (from, to) = (source.as_ptr().addr() as u64, target[start..].as_mut_ptr());
                // SAFETY: the target has room for all of the source behind `start`.
                unsafe { read(std::process::id(), from, to, bytes) }.unwrap();
                let (before, rest) = target.split_at(start);
                let (read, after) = rest.split_at(bytes);
                assert!(read == &source[..bytes], "{apart} apart, {bytes} bytes");
                assert!(
                    before.iter().chain(after).all(|byte| *byte == 0xa5),
                    "{apart} apart, {bytes} bytes"
                );
            }
        }
    }

    #[test]
    fn blocks_are_read_from_where_that_pays_to_where_it_ceases_to() {
        use Collective as C;
        const KIB: usize = 1 << 10;
        const MIB: usize = 1 << 20;
        /// Ranks, and the shortest and longest block that is read.
        type Row = (Collective, usize, Option<(usize, usize)>);
        let huge = 1 << 40;
        let rows: [Row; 12] = [
            (C::AllGather, 2, Some((12 * KIB, huge))),
            (C::AllGather, 3, None),
            (C::Gather, 2, Some((12 * KIB, MIB))),
            (C::Gather, 4, None),
            (C::Broadcast, 2, Some((12 * KIB, MIB))),
            (C::Broadcast, 4, None),
            (C::Scatter, 4, Some((32 * KIB, huge))),
            (C::AllToAll, 2, Some((8 * KIB + 1, 32 * MIB))),
            (C::AllToAll, 8, Some((32 * KIB, 2 * MIB))),
            (C::AllToAllV, 8, Some((12 * KIB, 2 * MIB))),
            (C::AllReduce, 2, None),
            (C::ReduceScatter, 2, None),
        ];
        for (collective, n, range) in rows {
            let Some((least, most)) = range else {
                for count in [32 * KIB, MIB, huge] {
                    assert!(!is_read(collective, n, count), "{collective:?} {n} {count}");
                }
                continue;
            };
            let found =
                [least - 1, least, most, most + 1].map(|count| is_read(collective, n, count));
            let expected = [false, true, true, most == huge];
            assert_eq!(found, expected, "{collective:?} {n}");
        }
    }
}
