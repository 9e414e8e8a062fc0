//! From the arguments of a call in Python to a call on views: which buffer is which, and how many elements go where.
//!
//! What a collective asks of counts and overlaps is checked below, in `muster-comm`. Here a missing buffer becomes the
//! in-place form, and a wrong object an error that names the argument.

use muster_comm::collective::{Communicator, PointToPoint, ViewCall, ViewCounts};
use muster_comm::error::CommError;
use muster_comm::types::{Collective, DType, ReduceOp};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::buffer::{Memory, Span};

/// The counts of a call.
pub(crate) enum Lengths {
    Uniform(usize),
    Blocks(Vec<usize>),
    Splits(Vec<usize>, Vec<usize>),
}

/// A call with its buffers, as another thread can make it.
pub(crate) struct Request {
    pub(crate) collective: Collective,
    pub(crate) dtype: DType,
    pub(crate) op: ReduceOp,
    pub(crate) root: usize,
    pub(crate) lengths: Lengths,
    pub(crate) send: Option<Span>,
    pub(crate) recv: Option<Span>,
}

impl Request {
    /// Makes the call.
    pub(crate) fn run(&self, comm: &Communicator) -> Result<(), CommError> {
        match self.collective {
            Collective::Send => {
                let message = self
                    .send
                    .map(|span| PointToPoint::send_view(span.read(), self.root));
                comm.batch_send_recv(message.as_slice())
            }
            Collective::Recv => {
                let message = self
                    .recv
                    .map(|span| PointToPoint::recv_view(span.write(), self.root));
                comm.batch_send_recv(message.as_slice())
            }
            collective => comm.run_views(ViewCall {
                collective,
                dtype: self.dtype,
                op: self.op,
                root: self.root,
                counts: match &self.lengths {
                    Lengths::Uniform(count) => ViewCounts::Uniform(*count),
                    Lengths::Blocks(counts) => ViewCounts::Blocks(counts),
                    Lengths::Splits(send, recv) => ViewCounts::Splits { send, recv },
                },
                send: self.send.map(Span::read),
                recv: self.recv.map(Span::write),
            }),
        }
    }
}

/// The arguments of a call.
pub(crate) struct Arguments<'a, 'py> {
    pub(crate) collective: Collective,
    pub(crate) sendbuf: Option<&'a Bound<'py, PyAny>>,
    pub(crate) recvbuf: Option<&'a Bound<'py, PyAny>>,
    pub(crate) op: ReduceOp,
    pub(crate) root: usize,
    pub(crate) counts: Option<Vec<usize>>,
    pub(crate) recv_counts: Option<Vec<usize>>,
}

impl Arguments<'_, '_> {
    /// The request, and the memory to keep until it has ended.
    pub(crate) fn prepare(self, comm: &Communicator) -> PyResult<(Request, Vec<Memory>)> {
        use Collective as C;
        let place = self.collective;
        let is_root = comm.rank() == self.root;
        let sends = !matches!(place, C::Scatter | C::ScatterV) || is_root;
        let receives = !matches!(place, C::Gather | C::GatherV | C::Reduce) || is_root;
        let in_place = matches!(
            place,
            C::AllReduce | C::AllToAll | C::ExclusiveScan | C::ReduceScatter | C::Scan
        ) || (is_root && place == C::Reduce);
        let mut kept = Vec::new();
        let send_object = self.sendbuf.filter(|_| sends);
        let writes = in_place && self.recvbuf.is_none();
        let send = self.take(send_object, "sendbuf", writes, &mut kept)?;
        // The root of a broadcast only reads its buffer.
        let writes = !(place == C::Broadcast && is_root);
        let recv_object = self.recvbuf.filter(|_| receives);
        let recv = self.take(recv_object, "recvbuf", writes, &mut kept)?;
        if let (Some(send), Some(recv)) = (send, recv)
            && send.dtype != recv.dtype
        {
            let (theirs, ours) = (recv.dtype, send.dtype);
            let what =
                format!("recvbuf holds {theirs}, and sendbuf {ours}; they must hold the same");
            return Err(PyTypeError::new_err(what));
        }
        let mut request = Request {
            collective: place,
            dtype: send.or(recv).map_or(DType::U8, |span| span.dtype),
            op: self.op,
            root: self.root,
            lengths: Lengths::Uniform(uniform_count(place, send, recv, comm.size())),
            send,
            recv,
        };
        match (self.counts, self.recv_counts) {
            (Some(send), Some(recv)) => request.lengths = Lengths::Splits(send, recv),
            (Some(blocks), None) => request.lengths = Lengths::Blocks(blocks),
            (None, _) => request.set_in_place(comm.rank()),
        }
        request.check_present(sends, receives)?;
        Ok((request, kept))
    }

    /// The memory of an argument, if it is given.
    fn take(
        &self,
        object: Option<&Bound<'_, PyAny>>,
        name: &str,
        write: bool,
        kept: &mut Vec<Memory>,
    ) -> PyResult<Option<Span>> {
        let Some(object) = object else {
            return Ok(None);
        };
        let memory = Memory::of(object, name, write)?;
        let span = memory.span();
        if self.collective.reduces() {
            memory.check_numbers(name, self.op)?;
        }
        kept.push(memory);
        Ok(Some(span))
    }
}

/// The count that all ranks share: of the whole vector, or of each of `n` blocks.
fn uniform_count(
    collective: Collective,
    send: Option<Span>,
    recv: Option<Span>,
    n: usize,
) -> usize {
    use Collective as C;
    let count = |span: Option<Span>| span.map_or(0, |span| span.count);
    match collective {
        C::AllGather | C::Gather if send.is_none() => count(recv) / n,
        C::AllReduce | C::Reduce | C::AllGather | C::Gather => count(send),
        C::Scan | C::ExclusiveScan => count(send),
        C::AllToAll | C::ReduceScatter => count(send) / n,
        C::Scatter if recv.is_none() => count(send) / n,
        _ => count(recv.or(send)),
    }
}

impl Request {
    /// Where one buffer was given for both, the other is (a block of) the same.
    fn set_in_place(&mut self, me: usize) {
        use Collective as C;
        let Lengths::Uniform(count) = self.lengths else {
            return;
        };
        let is_root = me == self.root;
        match (self.collective, self.send, self.recv) {
            (C::AllGather, None, Some(all)) => self.send = Some(all.block(me, count)),
            (C::Gather, None, Some(all)) if is_root => self.send = Some(all.block(me, count)),
            (C::AllReduce | C::AllToAll | C::Scan | C::ExclusiveScan, Some(all), None) => {
                self.recv = Some(all);
            }
            (C::Reduce, Some(all), None) if is_root => self.recv = Some(all),
            (C::ReduceScatter, Some(all), None) => self.recv = Some(all.block(me, count)),
            (C::Scatter, Some(all), None) if is_root => self.recv = Some(all.block(me, count)),
            _ => {}
        }
    }

    /// Whether every buffer that this rank needs is there.
    fn check_present(&self, sends: bool, receives: bool) -> PyResult<()> {
        use Collective as C;
        let place = self.collective;
        let sends = sends && !matches!(place, C::Barrier | C::Broadcast | C::Recv);
        let receives = receives && !matches!(place, C::Barrier | C::Send);
        let missing = match (self.send, self.recv) {
            (None, _) if sends => "sendbuf",
            (_, None) if receives => "recvbuf",
            _ => return Ok(()),
        };
        let what = format!("{place} needs {missing} on this rank");
        Err(PyValueError::new_err(what))
    }
}
