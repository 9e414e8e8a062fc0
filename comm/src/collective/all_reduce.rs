//! `all_reduce`: everybody gets the reduction of everybody's buffer.

use super::{Buffers, Call, Communicator, Work};
use crate::backend::{Counts, Request};
use crate::buffer::{Element, WriteView};
use crate::error::CommError;
use crate::types::{Collective, DType, ReduceOp};

/// Most buffers that are packed at once: their lengths fit the exchange that begins a call.
const PACKED_MAX: usize = 1024;

impl Communicator {
    /// Reduces the send buffers of all ranks, element by element, and gives every rank the result.
    ///
    /// **Shape**: `sendbuf`: count, `recvbuf`: count; the same count on all ranks.
    /// **In place**: [`Communicator::all_reduce_in_place`].
    /// **Zero counts**: allowed; the ranks still meet.
    /// **Order and determinism**: every rank gets the same bits, and so does every run with the
    /// same ranks, counts and algorithm. With shared memory elements are combined in ascending rank
    /// order; f16 and bf16 accumulate in f32 and round once. NaN and overflow: see [`ReduceOp`].
    /// **Errors**: `InvalidArgument` where the lengths differ; `Mismatch`, `Stalled`, `PeerClosed`,
    /// `PeerAborted` as every call.
    /// **Blocking and deadline**: returns when this rank's result is complete, or by the deadline.
    /// **Cost**: small buffers one exchange; with shared memory each rank reads n and writes two
    /// n-ths of the data in two rounds; by messages see `muster plan describe`.
    ///
    /// ```
    /// use muster_comm::{ReduceOp, World};
    ///
    /// let sums = World::threads(2, |world| {
    ///     let group = world.everyone()?;
    ///     let mine = [1.0_f32, 10.0 * (group.rank() + 1) as f32];
    ///     let mut sum = [0.0; 2];
    ///     group.all_reduce(&mine, &mut sum, ReduceOp::Sum)?;
    ///     Ok::<_, muster_comm::CommError>(sum)
    /// })?;
    /// for sum in sums {
    ///     assert_eq!(sum?, [2.0, 30.0]);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// **Source**: MPI-4 section 6.9.6 (`MPI_Allreduce`), `HcclAllReduce`, `ncclAllReduce`.
    #[track_caller]
    pub fn all_reduce<T: Element>(
        &self,
        sendbuf: &[T],
        recvbuf: &mut [T],
        op: ReduceOp,
    ) -> Result<(), CommError> {
        let call = Call::new::<T>(Collective::AllReduce, sendbuf.len());
        self.check_len(call, "recvbuf", recvbuf.len(), sendbuf.len())?;
        let counts = Counts::Uniform(sendbuf.len());
        let buffers = Buffers::apart(sendbuf, recvbuf);
        self.run(
            call,
            &buffers.request(Collective::AllReduce, T::DTYPE, Some(op), 0, counts),
        )
    }

    /// [`Communicator::all_reduce`] with one buffer for what is given and what is got.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce`].
    #[track_caller]
    pub fn all_reduce_in_place<T: Element>(
        &self,
        buffer: &mut [T],
        op: ReduceOp,
    ) -> Result<(), CommError> {
        let call = Call::new::<T>(Collective::AllReduce, buffer.len());
        let counts = Counts::Uniform(buffer.len());
        let buffers = Buffers::in_place(buffer, 0, 0);
        self.run(
            call,
            &buffers.request(Collective::AllReduce, T::DTYPE, Some(op), 0, counts),
        )
    }

    /// [`Communicator::all_reduce_in_place`] of several buffers in one call.
    ///
    /// The buffers are copied into one, that is reduced, and the results are copied back: one synchronisation instead of one a
    /// buffer. That is worth it for many small buffers; large ones are as fast one by one.
    ///
    /// **Shape**: any number of buffers of any lengths, the same number and lengths on all ranks, in the same order.
    /// **In place**: always. **Zero counts**: allowed, also no buffers at all; the ranks still meet.
    /// **Order and determinism**: as one [`Communicator::all_reduce`] of all elements.
    /// **Errors**: as [`Communicator::all_reduce`]. Ranks with another number of buffers, or with other lengths, get a
    /// `Mismatch`; buffers are as they were after an error.
    /// **Blocking and deadline**: as [`Communicator::all_reduce`].
    /// **Cost**: that of one `all_reduce`, and two copies. More than 1024 buffers are several such calls.
    ///
    /// ```
    /// use muster_comm::{ReduceOp, World};
    ///
    /// World::threads(2, |world| {
    ///     let group = world.everyone()?;
    ///     let (mut weights, mut bias) = ([1.0_f32; 6], [2.0_f32; 2]);
    ///     group.all_reduce_coalesced(&mut [&mut weights, &mut bias], ReduceOp::Sum)?;
    ///     assert_eq!((weights, bias), ([2.0; 6], [4.0; 2]));
    ///     Ok::<_, muster_comm::CommError>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// **Source**: `torch.distributed.all_reduce_coalesced`.
    #[track_caller]
    pub fn all_reduce_coalesced<T: Element>(
        &self,
        buffers: &mut [&mut [T]],
        op: ReduceOp,
    ) -> Result<(), CommError> {
        let mut views: Vec<_> = buffers
            .iter_mut()
            .map(|buffer| WriteView::new(buffer))
            .collect();
        self.all_reduce_views(&mut views, T::DTYPE, op)
    }

    /// [`Communicator::all_reduce_coalesced`] of erased views, all of type `dtype`.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce_coalesced`]; `InvalidArgument` too where a view has another type.
    #[track_caller]
    pub fn all_reduce_views(
        &self,
        buffers: &mut [WriteView<'_>],
        dtype: DType,
        op: ReduceOp,
    ) -> Result<(), CommError> {
        let site = Call {
            dtype: Some(dtype),
            count: Some(0),
            ..Call::bare(Collective::AllReduceCoalesced)
        };
        self.check_op(site, op)?;
        if let Some(other) = buffers.iter().find(|buffer| buffer.dtype() != dtype) {
            let got = other.dtype().to_string();
            return Err(self.refuse(site, "a buffer", got, dtype.to_string()));
        }
        if buffers.is_empty() {
            return self.all_reduce_packed(site, &mut [], dtype, op);
        }
        buffers
            .chunks_mut(PACKED_MAX)
            .try_for_each(|some| self.all_reduce_packed(site, some, dtype, op))
    }

    /// [`Communicator::all_reduce_coalesced`] without waiting; the buffers come back with the results.
    #[track_caller]
    pub fn all_reduce_coalesced_async<T: Element>(
        &self,
        buffers: Vec<Vec<T>>,
        op: ReduceOp,
    ) -> Work<Vec<Vec<T>>> {
        self.start(move |comm| {
            let mut buffers = buffers;
            let mut each: Vec<&mut [T]> = buffers.iter_mut().map(Vec::as_mut_slice).collect();
            comm.all_reduce_coalesced(&mut each, op).map(|()| buffers)
        })
    }

    /// One call over buffers whose lengths fit the exchange.
    fn all_reduce_packed(
        &self,
        site: Call,
        buffers: &mut [WriteView<'_>],
        dtype: DType,
        op: ReduceOp,
    ) -> Result<(), CommError> {
        let lengths = || buffers.iter().map(WriteView::count);
        // Buffers are apart from each other, so that the sum of their lengths is less than the address space.
        let count = lengths().sum();
        let packed: Vec<usize> = std::iter::once(buffers.len()).chain(lengths()).collect();
        let call = Call {
            count: Some(count),
            ..site
        };
        let run = |all: *mut u8| {
            let buffers = Buffers {
                send: all.cast_const(),
                recv: all,
            };
            let counts = Counts::Uniform(count);
            let request = Request {
                called: call.collective,
                packed: &packed,
                ..buffers.request(Collective::AllReduce, dtype, Some(op), 0, counts)
            };
            self.run(call, &request)
        };
        if let [one] = buffers {
            return run(one.as_mut_ptr());
        }
        let (spare, size) = (&self.context().life.spare, dtype.size());
        // One element more, for the gap in front of the first that is aligned.
        let room = (count + 1) * size;
        let mut bytes = spare.take(room);
        bytes.reserve_exact(room);
        let begin = bytes.as_ptr().align_offset(size);
        bytes.resize(begin, 0);
        for buffer in buffers.iter() {
            buffer.as_read().append_to(&mut bytes);
        }
        run(bytes[begin..].as_mut_ptr())?;
        let mut rest = &bytes[begin..];
        for buffer in buffers.iter_mut() {
            let (result, behind) = rest.split_at(buffer.bytes());
            buffer.copy_from(result);
            rest = behind;
        }
        spare.give(bytes);
        Ok(())
    }
}
