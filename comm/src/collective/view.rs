//! Calls on erased views: for callers that have addresses and element types instead of slices, such
//! as a C interface.
//!
//! Meaning, shapes and errors are those of the typed calls; here they are checked by count.

use std::panic::Location;

use super::point_to_point::PointToPoint;
use super::{Buffers, Call, Communicator};
use crate::backend::message::Direction;
use crate::backend::{Counts, Request};
use crate::buffer::{ReadView, WriteView};
use crate::error::CommError;
use crate::types::{Collective, Counting, DType, ReduceOp};

/// How many elements go where, as the collective defines it.
#[derive(Clone, Copy, Debug)]
pub enum ViewCounts<'a> {
    /// One count that all ranks share: of the whole vector, or of each block.
    Uniform(usize),
    /// The length of every rank's block, the same list on all ranks.
    Blocks(&'a [usize]),
    /// What this rank sends to, and receives from, each rank.
    Splits {
        /// Elements to each rank.
        send: &'a [usize],
        /// Elements from each rank.
        recv: &'a [usize],
    },
}

/// A collective call on erased buffers.
#[derive(Debug)]
pub struct ViewCall<'a> {
    /// Which collective; one that moves elements, or the barrier.
    pub collective: Collective,
    /// Element type of both buffers.
    pub dtype: DType,
    /// The reduction, where the collective reduces; it is not looked at elsewhere.
    pub op: ReduceOp,
    /// Index of the root in the group, where there is one; 0 elsewhere.
    pub root: usize,
    /// How many elements go where.
    pub counts: ViewCounts<'a>,
    /// What this rank sends; `None` where that is nothing. A broadcast has its one buffer in
    /// `recv`, on the root too.
    pub send: Option<ReadView<'a>>,
    /// Where this rank receives; `None` where that is nothing. It may overlap `send` exactly as
    /// the `_in_place` form of the collective has it, and not otherwise.
    pub recv: Option<WriteView<'a>>,
}

impl Communicator {
    /// Makes the call that `call` describes.
    ///
    /// # Errors
    /// As the typed call of the collective; `InvalidArgument` too where a view has another element
    /// type or length than the counts say, or the views overlap in a way that is not in place.
    #[track_caller]
    pub fn run_views(&self, mut call: ViewCall<'_>) -> Result<(), CommError> {
        let context = self.context_of(&call);
        let counts = self.checked_counts(context, &call)?;
        // Dangling where there is nothing: such a buffer is never touched.
        let nothing = std::ptr::NonNull::<u64>::dangling().as_ptr().cast::<u8>();
        let recv_at = call.recv.as_mut().map_or(nothing, WriteView::as_mut_ptr);
        let recv = call.recv.as_ref().map(WriteView::as_read);
        let has_one_buffer = call.collective.has_one_buffer();
        let send_at = match call.send {
            _ if has_one_buffer => recv_at.cast_const(),
            Some(view) => view.as_ptr(),
            None => nothing.cast_const(),
        };
        let buffers = Buffers {
            send: send_at,
            recv: recv_at,
        };
        let op = Some(call.op);
        let request = buffers.request(call.collective, call.dtype, op, call.root, counts);
        let (n, me) = (self.size(), self.rank());
        if !has_one_buffer {
            self.check_view(context, "sendbuf", call.send, request.send_count(n, me))?;
        }
        self.check_view(context, "recvbuf", recv, request.recv_count(n, me))?;
        if !has_one_buffer && request.overlaps(n, me) && !is_in_place(&request, n, me) {
            let got = "overlapping".to_owned();
            let want = "apart, or in place as the collective allows it".to_owned();
            return Err(self.refuse(context, "sendbuf and recvbuf", got, want));
        }
        self.run(context, &request)
    }

    #[track_caller]
    fn context_of(&self, call: &ViewCall<'_>) -> Call {
        let me = self.rank();
        let count = match call.counts {
            ViewCounts::Uniform(count) => Some(count),
            ViewCounts::Blocks(counts) => counts.get(me).copied(),
            ViewCounts::Splits { send, .. } => Some(
                send.iter()
                    .fold(0_usize, |sum, count| sum.saturating_add(*count)),
            ),
        };
        if call.collective.is_empty() {
            return Call::bare(call.collective);
        }
        Call {
            collective: call.collective,
            dtype: Some(call.dtype),
            count,
            site: Location::caller(),
        }
    }

    /// The counts, if they are of the kind that the collective has, and no sum or product of them
    /// overflows.
    fn checked_counts<'a>(
        &self,
        context: Call,
        call: &ViewCall<'a>,
    ) -> Result<Counts<'a>, CommError> {
        self.check_index(context, "root", call.root)?;
        self.check_op(context, call.op)?;
        let fits = |elements: usize| {
            let bytes = call.dtype.bytes(elements);
            if bytes.is_some_and(|bytes| isize::try_from(bytes).is_ok()) {
                return Ok(());
            }
            let want = "elements that fit the address space".to_owned();
            Err(self.refuse(context, "the count", elements.to_string(), want))
        };
        match (call.collective.counting(), call.counts) {
            (Counting::Uniform, ViewCounts::Uniform(count)) => {
                fits(self.blocks_len(context, count)?)?;
                Ok(Counts::Uniform(count))
            }
            (Counting::Blocks, ViewCounts::Blocks(counts)) => {
                fits(self.check_counts(context, "the counts", counts)?)?;
                Ok(Counts::Blocks(counts))
            }
            (Counting::Splits, ViewCounts::Splits { send, recv }) => {
                fits(self.check_counts(context, "send_counts", send)?)?;
                fits(self.check_counts(context, "recv_counts", recv)?)?;
                let me = self.rank();
                if send[me] != recv[me] {
                    let want = format!("send_counts[{me}], which is {}", send[me]);
                    let what = format!("recv_counts[{me}], this rank's block for itself,");
                    return Err(self.refuse(context, &what, recv[me].to_string(), want));
                }
                Ok(Counts::Splits { send, recv })
            }
            (
                Counting::Blocks
                | Counting::Buffers
                | Counting::Messages
                | Counting::Objects
                | Counting::Splits
                | Counting::Uniform,
                ViewCounts::Blocks(_) | ViewCounts::Splits { .. } | ViewCounts::Uniform(_),
            ) => {
                let got = format!("of {}", call.collective);
                let want = "the counts that this collective has".to_owned();
                Err(self.refuse(context, "the counts", got, want))
            }
        }
    }

    fn check_view(
        &self,
        context: Call,
        what: &str,
        view: Option<ReadView<'_>>,
        want: usize,
    ) -> Result<(), CommError> {
        let got = view.map_or(0, |view| view.count());
        self.check_len(context, what, got, want)?;
        match view {
            Some(view) if Some(view.dtype()) != context.dtype && want > 0 => {
                let want = context
                    .dtype
                    .map_or_else(String::new, |dtype| dtype.to_string());
                Err(self.refuse(context, what, view.dtype().to_string(), want))
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// Whether the buffers lie to each other as the in-place form of the collective has them.
fn is_in_place(request: &Request<'_>, n: usize, me: usize) -> bool {
    let size = request.dtype.size();
    let (send, recv) = (request.send.addr(), request.recv.addr());
    let block = match request.counts {
        Counts::Uniform(count) => count * size,
        Counts::Blocks(_) | Counts::Splits { .. } => return n == 1 && send == recv,
    };
    let starts = request.pattern().in_place(me == request.root, me);
    starts.is_some_and(|(sends, gets)| send + gets * block == recv + sends * block)
}

impl<'a> PointToPoint<'a> {
    /// A message to the member with index `peer`, from a view.
    #[must_use]
    pub fn send_view(sendbuf: ReadView<'a>, peer: usize) -> Self {
        let (dtype, count) = (sendbuf.dtype(), sendbuf.count());
        let start = sendbuf.as_ptr().cast_mut();
        Self::new(Direction::Send, peer, dtype, count, start)
    }

    /// A message from the member with index `peer`, into a view.
    #[must_use]
    pub fn recv_view(mut recvbuf: WriteView<'a>, peer: usize) -> Self {
        let (dtype, count) = (recvbuf.dtype(), recvbuf.count());
        Self::new(Direction::Recv, peer, dtype, count, recvbuf.as_mut_ptr())
    }
}
