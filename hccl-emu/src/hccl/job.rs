//! What an operator does when its turn on the stream has come.
//!
//! - `JOB-1`: a job holds addresses of the client's; they become real ones only while it runs, and
//!   only after the proof that they are still allocated.
//! - `JOB-2`: data that does not lie as the host backend wants it goes through a copy of its own,
//!   and comes back only if the operator succeeded.
//! - `JOB-3`: a send ends no earlier than its receive has begun, however short the message is:
//!   ranks that all send first hang here as on hardware.

use std::ffi::c_void;

use muster_comm::buffer::{ReadView, WriteView};
use muster_comm::collective::{Communicator, PointToPoint, ViewCall, ViewCounts};
use muster_comm::error::CommError;
use muster_comm::types::{Collective, DType, Extent, Pattern, ReduceOp};

use super::comm::Lines;
use super::limits::Element;
use crate::runtime::errors::RuntimeError;
use crate::runtime::memory::{Access, Misuse, resolve};

/// Most receipts that are given before anything else of a batch is done; a link takes far more.
const RECEIPTS_AHEAD_MAX: usize = 64;

/// Device memory as the client gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Buffer {
    client: usize,
    bytes: usize,
}

impl Buffer {
    pub(crate) fn new(pointer: *const c_void, bytes: usize) -> Self {
        Self {
            client: pointer.addr(),
            bytes,
        }
    }

    /// No memory at all.
    pub(crate) fn nothing() -> Self {
        Self {
            client: 0,
            bytes: 0,
        }
    }

    fn real(self, device: u32, what: &str, access: Access) -> Result<Real, Trouble> {
        let dangling = std::ptr::NonNull::<u128>::dangling().as_ptr().cast::<u8>();
        if self.bytes == 0 {
            return Ok(Real {
                start: dangling,
                bytes: 0,
            });
        }
        let client = std::ptr::without_provenance(self.client);
        let start = resolve(device, client, self.bytes as u64, access)
            .map_err(|misuse| Trouble::memory(what, &misuse))?;
        Ok(Real {
            start,
            bytes: self.bytes,
        })
    }
}

/// Memory behind a buffer, while the job runs.
#[derive(Clone, Copy, Debug)]
struct Real {
    start: *mut u8,
    bytes: usize,
}

/// A part of a result, while the job runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) start: *mut u8,
    pub(crate) bytes: usize,
    pub(crate) element_bytes: usize,
}

/// A buffer, and where in it the blocks of the ranks lie.
#[derive(Clone, Debug)]
pub(crate) struct Area {
    buffer: Buffer,
    /// Offset and length in bytes of each rank's block; `None` where they follow each other.
    blocks: Option<Vec<(usize, usize)>>,
}

impl Area {
    pub(crate) fn packed(buffer: Buffer) -> Self {
        Self {
            buffer,
            blocks: None,
        }
    }

    pub(crate) fn scattered(buffer: Buffer, blocks: Vec<(usize, usize)>) -> Self {
        Self {
            buffer,
            blocks: Some(blocks),
        }
    }
}

/// Counts in elements of the host backend's type.
#[derive(Clone, Debug)]
pub(crate) enum Counts {
    Blocks(Vec<usize>),
    Splits { send: Vec<usize>, recv: Vec<usize> },
    Uniform(usize),
}

/// A collective with its buffers.
#[derive(Clone, Debug)]
pub(crate) struct CollectiveJob {
    pub(crate) collective: Collective,
    pub(crate) element: Element,
    pub(crate) op: ReduceOp,
    pub(crate) root: usize,
    pub(crate) counts: Counts,
    pub(crate) send: Option<Area>,
    pub(crate) recv: Option<Area>,
}

/// A message to or from a peer.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) is_send: bool,
    pub(crate) peer: usize,
    pub(crate) element: Element,
    pub(crate) count: usize,
    pub(crate) buffer: Buffer,
}

/// What an operator does.
#[derive(Clone, Debug)]
pub(crate) enum Job {
    Collective(Box<CollectiveJob>),
    Messages(Vec<Message>),
}

/// Why a job did not end well.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The ranks did not come together, or data did not get through.
    Comm(CommError),
    /// A buffer is not what it was when the call was made.
    Memory(RuntimeError),
}

impl Trouble {
    fn memory(what: &str, misuse: &Misuse) -> Self {
        let mut error = misuse.of(what);
        error.code = crate::runtime::AclError::RT_DEVICE_MEM_ERROR;
        Self::Memory(error)
    }
}

impl From<CommError> for Trouble {
    fn from(error: CommError) -> Self {
        Self::Comm(error)
    }
}

impl Job {
    /// Bytes that the operator is about on this rank, for the order in a group.
    pub(crate) fn volume(&self) -> usize {
        let bytes = |area: &Option<Area>| area.as_ref().map_or(0, |area| area.buffer.bytes);
        match self {
            // Only the root knows the send buffer; all ranks must say the same.
            Self::Collective(job) if job.is_from_root() => bytes(&job.recv),
            Self::Collective(job) => bytes(&job.send).max(bytes(&job.recv)),
            Self::Messages(list) => list.iter().map(|message| message.buffer.bytes).sum(),
        }
    }

    /// Whether a peer is needed for it.
    pub(crate) fn concerns(&self, peer: usize) -> bool {
        match self {
            Self::Collective(_) => true,
            Self::Messages(list) => list.iter().any(|message| message.peer == peer),
        }
    }

    /// Where its result on this rank lies, in the order of blocks or receives.
    pub(crate) fn result(&self, device: u32) -> Result<Vec<Piece>, Trouble> {
        let piece = |start: *mut u8, bytes: usize, element: Element| Piece {
            start,
            bytes,
            element_bytes: element.bytes(),
        };
        match self {
            Self::Collective(job) => {
                let recv = job.real(device, job.recv.as_ref(), "recvBuf", Access::Read)?;
                let (Some(area), Some(real)) = (&job.recv, recv) else {
                    return Ok(Vec::new());
                };
                let Some(blocks) = &area.blocks else {
                    return Ok(vec![piece(real.start, real.bytes, job.element)]);
                };
                let block = |(offset, bytes): &(usize, usize)| {
                    piece(real.start.wrapping_add(*offset), *bytes, job.element)
                };
                Ok(blocks.iter().map(block).collect())
            }
            Self::Messages(list) => {
                let receives = list.iter().filter(|message| !message.is_send);
                let real = |message: &Message| {
                    let real = message
                        .buffer
                        .real(device, "receive buffer", Access::Read)?;
                    Ok(piece(real.start, real.bytes, message.element))
                };
                receives.map(real).collect()
            }
        }
    }

    /// Carries it out, over memory of the device.
    pub(crate) fn run(&self, lines: &Lines, device: u32) -> Result<(), Trouble> {
        match self {
            Self::Collective(job) => job.run(&lines.main, device),
            Self::Messages(list) => messages(list, lines, device),
        }
    }
}

/// The host backend lets a short message go before anybody receives it, the vendor does not. So
/// each receive first sends a receipt, and each send ends with taking one (`JOB-3`). The k-th
/// receipt between two ranks is that of the k-th message, whichever batches they are in.
fn messages(list: &[Message], lines: &Lines, device: u32) -> Result<(), Trouble> {
    let mut posted = Vec::with_capacity(list.len());
    for message in list {
        let (what, access) = if message.is_send {
            ("send buffer", Access::Read)
        } else {
            ("receive buffer", Access::Write)
        };
        let real = message.buffer.real(device, what, access)?;
        let (dtype, count) = in_parts(message.element, message.count);
        posted.push(if message.is_send {
            PointToPoint::send_view(view(real, count, dtype), message.peer)
        } else {
            PointToPoint::recv_view(view_mut(real, count, dtype), message.peer)
        });
    }
    let receives = || list.iter().filter(|message| !message.is_send);
    let is_ahead = receives().count() <= RECEIPTS_AHEAD_MAX
        && lines.are_linked(receives().map(|message| message.peer));
    if is_ahead {
        receipts(list, lines, |message| !message.is_send)?;
        lines.main.batch_send_recv(&posted)?;
        return receipts(list, lines, |message| message.is_send);
    }
    // The first receipt waits for the peer to come for it, and so does one after many. It may come
    // when its data is through: receipts and data go on at once.
    std::thread::scope(|scope| {
        let receipts = scope.spawn(|| receipts(list, lines, |_| true));
        let moved = lines.main.batch_send_recv(&posted);
        if let Err(error) = &moved {
            lines.receipts.cancel(&error.to_string());
        }
        let exchanged = receipts.join().unwrap_or(Ok(()));
        moved.map_err(Trouble::from).and(exchanged)
    })
}

/// Takes the receipts of what is sent and gives those of what is received, for the messages that
/// `concerns` chooses.
fn receipts(
    list: &[Message],
    lines: &Lines,
    concerns: impl Fn(&Message) -> bool,
) -> Result<(), Trouble> {
    let me = lines.receipts.rank();
    let chosen = || {
        list.iter()
            .filter(|message| message.peer != me && concerns(message))
    };
    let receipts: Vec<PointToPoint<'_>> = chosen()
        .map(|message| {
            if message.is_send {
                PointToPoint::recv::<u8>(&mut [], message.peer)
            } else {
                PointToPoint::send::<u8>(&[], message.peer)
            }
        })
        .collect();
    if receipts.is_empty() {
        return Ok(());
    }
    lines.receipts.batch_send_recv(&receipts)?;
    lines.set_linked(chosen().map(|message| message.peer));
    Ok(())
}

fn in_parts(element: Element, count: usize) -> (DType, usize) {
    (element.dtype, count * element.parts)
}

fn view<'a>(real: Real, count: usize, dtype: DType) -> ReadView<'a> {
    debug_assert_eq!(
        real.bytes,
        count * dtype.size(),
        "a view is its whole buffer"
    );
    // SAFETY: `resolve` proved the range to be in one allocation, whose backing stays mapped for
    // the life of the process (MEM-2); the client must not write it before the stream got there.
    unsafe { ReadView::from_raw(real.start, count, dtype) }
}

fn view_mut<'a>(real: Real, count: usize, dtype: DType) -> WriteView<'a> {
    debug_assert_eq!(
        real.bytes,
        count * dtype.size(),
        "a view is its whole buffer"
    );
    // SAFETY: as in `view`; nobody in this process holds a reference to the backing.
    unsafe { WriteView::from_raw(real.start, count, dtype) }
}

impl CollectiveJob {
    fn run(&self, line: &Communicator, device: u32) -> Result<(), Trouble> {
        let mut packed_recv = Vec::new();
        let send = self.real(device, self.send.as_ref(), "sendBuf", Access::Read)?;
        // The one buffer of a broadcast is read on its root; in place the parts that are sent are read.
        let is_read = self.collective.has_one_buffer() || self.send.is_some();
        let recv_access = if is_read { Access::Read } else { Access::Write };
        let recv = self.real(device, self.recv.as_ref(), "recvBuf", recv_access)?;
        let packed_send = self.packed_send(send, recv, line);
        let scattered = self.recv.as_ref().and_then(|area| area.blocks.as_ref());
        if let Some(blocks) = scattered {
            packed_recv = vec![0_u8; blocks.iter().map(|(_, bytes)| bytes).sum()];
        }
        let dtype = self.element.dtype;
        let send = match &packed_send {
            Some(copy) => Some(Real {
                start: copy.as_ptr().cast_mut(),
                bytes: copy.len(),
            }),
            None => send,
        };
        let target = if scattered.is_some() {
            Some(Real {
                start: packed_recv.as_mut_ptr(),
                bytes: packed_recv.len(),
            })
        } else {
            recv
        };
        let elements = |real: Real| real.bytes / dtype.size();
        line.run_views(ViewCall {
            collective: self.collective,
            dtype,
            op: self.op,
            root: self.root,
            counts: match &self.counts {
                Counts::Uniform(count) => ViewCounts::Uniform(*count),
                Counts::Blocks(counts) => ViewCounts::Blocks(counts),
                Counts::Splits { send, recv } => ViewCounts::Splits { send, recv },
            },
            send: send.map(|real| view(real, elements(real), dtype)),
            recv: target.map(|real| view_mut(real, elements(real), dtype)),
        })?;
        if let (Some(blocks), Some(real)) = (scattered, recv) {
            unpack(&packed_recv, real, blocks);
        }
        Ok(())
    }

    fn real(
        &self,
        device: u32,
        area: Option<&Area>,
        what: &str,
        access: Access,
    ) -> Result<Option<Real>, Trouble> {
        area.map(|area| {
            // Blocks may leave gaps, which are not written.
            let access = if area.blocks.is_some() {
                Access::Read
            } else {
                access
            };
            area.buffer.real(device, what, access)
        })
        .transpose()
    }

    /// A copy of what is sent, where the blocks do not follow each other or the buffers overlap
    /// other than in place.
    fn packed_send(
        &self,
        send: Option<Real>,
        recv: Option<Real>,
        line: &Communicator,
    ) -> Option<Vec<u8>> {
        let (area, real) = (self.send.as_ref()?, send?);
        if let Some(blocks) = &area.blocks {
            let mut packed = Vec::with_capacity(blocks.iter().map(|(_, bytes)| bytes).sum());
            for (offset, bytes) in blocks {
                // SAFETY: the area's range covers all its blocks (`Call::blocks`), and is mapped.
                let start = unsafe { real.start.add(*offset) };
                // SAFETY: as above; nothing writes the range while the stream is at this task.
                packed.extend_from_slice(unsafe { std::slice::from_raw_parts(start, *bytes) });
            }
            return Some(packed);
        }
        let recv = recv?;
        let overlap = real.bytes > 0
            && real.start.addr() < recv.start.addr() + recv.bytes
            && recv.start.addr() < real.start.addr() + real.bytes;
        if !overlap || self.is_in_place(real, recv, line) {
            return None;
        }
        // SAFETY: as above.
        Some(unsafe { std::slice::from_raw_parts(real.start, real.bytes) }.to_vec())
    }

    /// Whether the buffers lie to each other as the host backend's in-place forms have them.
    fn is_in_place(&self, send: Real, recv: Real, line: &Communicator) -> bool {
        let Counts::Uniform(count) = &self.counts else {
            return line.size() == 1 && std::ptr::eq(send.start, recv.start);
        };
        let block = count * self.element.dtype.size();
        let (send, recv) = (send.start.addr(), recv.start.addr());
        // Both buffers are there, as they are on the root.
        let pattern = self.collective.pattern();
        let starts = pattern.and_then(|pattern| pattern.in_place(true, line.rank()));
        starts.is_some_and(|(sends, gets)| send + gets * block == recv + sends * block)
    }

    /// Whether only the root has something to send, in a buffer of its own.
    fn is_from_root(&self) -> bool {
        let sends_nothing = |pattern: Pattern| pattern.send(false) == Extent::Nothing;
        !self.collective.has_one_buffer() && self.collective.pattern().is_some_and(sends_nothing)
    }
}

/// Puts packed blocks to their places.
fn unpack(packed: &[u8], real: Real, blocks: &[(usize, usize)]) {
    let mut rest = packed;
    for (offset, bytes) in blocks {
        let (block, behind) = rest.split_at(*bytes);
        rest = behind;
        // SAFETY: the area's range covers all its blocks (`Call::blocks`), and is mapped.
        let target = unsafe { real.start.add(*offset) };
        // SAFETY: `target` has room for the block, and the copy is memory of its own.
        unsafe { std::ptr::copy_nonoverlapping(block.as_ptr(), target, *bytes) };
    }
}
