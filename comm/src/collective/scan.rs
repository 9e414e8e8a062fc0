//! `scan` and `exclusive_scan`: every rank gets the reduction of the ranks in front of it.

use super::{Buffers, Call, Communicator, Work};
use crate::backend::Counts;
use crate::buffer::Element;
use crate::error::CommError;
use crate::types::{Collective, ReduceOp};

impl Communicator {
    /// Gives rank `i` the reduction of the send buffers of ranks 0 to `i`, element by element: an inclusive prefix
    /// reduction.
    ///
    /// **Shape**: `sendbuf`: count, `recvbuf`: count; the same count on all ranks.
    /// **In place**: [`Communicator::scan_in_place`].
    /// **Zero counts**: allowed; the ranks still meet.
    /// **Order and determinism**: elements are combined strictly in ascending rank order, `((0 op 1) op 2) op …`, over shared
    /// memory and by messages alike; so the result is the same, bit by bit, on every run and on every way. f16 and bf16
    /// accumulate in f32 and round once. `Avg` on rank `i` is the average of `i + 1` ranks.
    /// **Errors**: as [`Communicator::all_reduce`].
    /// **Blocking and deadline**: by messages a rank may return before the ranks behind it have their results.
    /// **Cost**: small buffers one exchange; with shared memory rank `i` reads i + 1 buffers; by messages the vector goes
    /// from rank to rank, in segments, see `muster plan describe`.
    ///
    /// ```
    /// use muster_comm::{ReduceOp, World};
    ///
    /// let sums = World::threads(3, |world| {
    ///     let group = world.everyone()?;
    ///     let (mut upto, mut before) = ([0], [0]);
    ///     group.scan(&[group.rank() as u32 + 1], &mut upto, ReduceOp::Sum)?;
    ///     group.exclusive_scan(&[group.rank() as u32 + 1], &mut before, ReduceOp::Sum)?;
    ///     Ok::<_, muster_comm::CommError>((before[0], upto[0]))
    /// })?;
    /// let sums: Result<Vec<_>, _> = sums.into_iter().collect();
    /// assert_eq!(sums?, [(0, 1), (1, 3), (3, 6)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// **Source**: MPI-4 section 6.11.1 (`MPI_Scan`). HCCL and NCCL have none.
    #[track_caller]
    pub fn scan<T: Element>(
        &self,
        sendbuf: &[T],
        recvbuf: &mut [T],
        op: ReduceOp,
    ) -> Result<(), CommError> {
        let call = Call::new::<T>(Collective::Scan, sendbuf.len());
        self.scan_apart(call, sendbuf, recvbuf, op)
    }

    /// [`Communicator::scan`] with one buffer for what is given and what is got.
    ///
    /// # Errors
    /// As [`Communicator::scan`].
    #[track_caller]
    pub fn scan_in_place<T: Element>(
        &self,
        buffer: &mut [T],
        op: ReduceOp,
    ) -> Result<(), CommError> {
        let call = Call::new::<T>(Collective::Scan, buffer.len());
        self.scan_within(call, buffer, op)
    }

    /// Gives rank `i` the reduction of the send buffers of the ranks before it, 0 to `i - 1`: an exclusive prefix reduction.
    ///
    /// Rank 0 gets the identity of the reduction ([`ReduceOp::identity`]) in every element: 0 for `Sum`, 1 for `Prod`, the
    /// greatest element of the type for `Min` and the least for `Max`, which for floats are the infinities. (MPI leaves
    /// rank 0 undefined.) `Avg` has no identity and is refused.
    ///
    /// **Shape**, **zero counts**, **order and determinism**, **blocking** and **cost**: as [`Communicator::scan`].
    /// **In place**: [`Communicator::exclusive_scan_in_place`].
    /// **Errors**: as [`Communicator::all_reduce`]; `InvalidArgument` for `Avg`.
    ///
    /// **Source**: MPI-4 section 6.11.2 (`MPI_Exscan`). HCCL and NCCL have none.
    #[track_caller]
    pub fn exclusive_scan<T: Element>(
        &self,
        sendbuf: &[T],
        recvbuf: &mut [T],
        op: ReduceOp,
    ) -> Result<(), CommError> {
        let call = Call::new::<T>(Collective::ExclusiveScan, sendbuf.len());
        self.scan_apart(call, sendbuf, recvbuf, op)
    }

    /// [`Communicator::exclusive_scan`] with one buffer for what is given and what is got.
    ///
    /// # Errors
    /// As [`Communicator::exclusive_scan`].
    #[track_caller]
    pub fn exclusive_scan_in_place<T: Element>(
        &self,
        buffer: &mut [T],
        op: ReduceOp,
    ) -> Result<(), CommError> {
        let call = Call::new::<T>(Collective::ExclusiveScan, buffer.len());
        self.scan_within(call, buffer, op)
    }

    /// [`Communicator::scan_in_place`] without waiting; the buffer comes back with the result.
    #[track_caller]
    pub fn scan_async<T: Element>(&self, buffer: Vec<T>, op: ReduceOp) -> Work<Vec<T>> {
        self.start(move |comm| {
            let mut buffer = buffer;
            comm.scan_in_place(&mut buffer, op).map(|()| buffer)
        })
    }

    /// [`Communicator::exclusive_scan_in_place`] without waiting; the buffer comes back with the result.
    #[track_caller]
    pub fn exclusive_scan_async<T: Element>(&self, buffer: Vec<T>, op: ReduceOp) -> Work<Vec<T>> {
        self.start(move |comm| {
            let mut buffer = buffer;
            comm.exclusive_scan_in_place(&mut buffer, op)
                .map(|()| buffer)
        })
    }

    fn scan_apart<T: Element>(
        &self,
        call: Call,
        sendbuf: &[T],
        recvbuf: &mut [T],
        op: ReduceOp,
    ) -> Result<(), CommError> {
        self.check_op(call, op)?;
        self.check_len(call, "recvbuf", recvbuf.len(), sendbuf.len())?;
        let counts = Counts::Uniform(sendbuf.len());
        let buffers = Buffers::apart(sendbuf, recvbuf);
        self.run(
            call,
            &buffers.request(call.collective, T::DTYPE, Some(op), 0, counts),
        )
    }

    fn scan_within<T: Element>(
        &self,
        call: Call,
        buffer: &mut [T],
        op: ReduceOp,
    ) -> Result<(), CommError> {
        self.check_op(call, op)?;
        let counts = Counts::Uniform(buffer.len());
        let buffers = Buffers::in_place(buffer, 0, 0);
        self.run(
            call,
            &buffers.request(call.collective, T::DTYPE, Some(op), 0, counts),
        )
    }
}
