//! `all_reduce`: everybody gets the reduction of everybody's buffer.

use super::{Buffers, Call, Communicator};
use crate::backend::Counts;
use crate::buffer::Element;
use crate::error::CommError;
use crate::types::{Collective, ReduceOp};

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
    /// use muster_comm::types::ReduceOp;
    /// use muster_comm::world::World;
    ///
    /// let sums = World::threads(2, |world| {
    ///     let group = world.everyone()?;
    ///     let mine = [1.0_f32, 10.0 * (group.rank() + 1) as f32];
    ///     let mut sum = [0.0; 2];
    ///     group.all_reduce(&mine, &mut sum, ReduceOp::Sum)?;
    ///     Ok::<_, muster_comm::error::CommError>(sum)
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
}
