//! `reduce_scatter`, `_v`: each rank gets its block of the reduction.

use super::{Buffers, Call, Communicator};
use crate::backend::Counts;
use crate::buffer::Element;
use crate::error::CommError;
use crate::types::{Collective, ReduceOp};

impl Communicator {
    /// Reduces the send buffers of all ranks and gives rank `i` block `i` of the result.
    ///
    /// **Shape**: `sendbuf`: count × group size, blocks in rank order; `recvbuf`: count.
    /// **In place**: [`Communicator::reduce_scatter_in_place`].
    /// **Zero counts**: allowed. **Order and determinism**: as [`Communicator::all_reduce`].
    /// **Errors**: `InvalidArgument` where `sendbuf` is not count × group size long.
    /// **Blocking and deadline**: returns when this rank's block is complete.
    /// **Cost**: each rank reads its block n times and writes it once.
    ///
    /// **Source**: MPI-4 section 6.10.1 (`MPI_Reduce_scatter_block`), `HcclReduceScatter`,
    /// `ncclReduceScatter`.
    #[track_caller]
    pub fn reduce_scatter<T: Element>(
        &self,
        sendbuf: &[T],
        recvbuf: &mut [T],
        op: ReduceOp,
    ) -> Result<(), CommError> {
        let call = Call::new::<T>(Collective::ReduceScatter, recvbuf.len());
        let want = self.blocks_len(call, recvbuf.len())?;
        self.check_len(call, "sendbuf", sendbuf.len(), want)?;
        let counts = Counts::Uniform(recvbuf.len());
        let buffers = Buffers::apart(sendbuf, recvbuf);
        self.run(
            call,
            &buffers.request(Collective::ReduceScatter, T::DTYPE, Some(op), 0, counts),
        )
    }

    /// [`Communicator::reduce_scatter`] whose result replaces this rank's block of the buffer; the
    /// other blocks stay as they were.
    ///
    /// # Errors
    /// As [`Communicator::reduce_scatter`]; the length must be a multiple of the group size.
    #[track_caller]
    pub fn reduce_scatter_in_place<T: Element>(
        &self,
        buffer: &mut [T],
        op: ReduceOp,
    ) -> Result<(), CommError> {
        let call = Call::new::<T>(Collective::ReduceScatter, buffer.len() / self.size());
        let count = self.check_blocks(call, "buffer", buffer.len())?;
        let counts = Counts::Uniform(count);
        let buffers = Buffers::in_place(buffer, 0, self.rank() * count);
        self.run(
            call,
            &buffers.request(Collective::ReduceScatter, T::DTYPE, Some(op), 0, counts),
        )
    }

    /// [`Communicator::reduce_scatter`] with blocks of different lengths: rank `i` gets
    /// `recv_counts[i]` elements. All ranks name the same counts.
    ///
    /// **Shape**: `sendbuf`: sum of the counts, blocks in rank order without gaps; `recvbuf`: this
    /// rank's count.
    ///
    /// **Source**: MPI-4 section 6.10.2 (`MPI_Reduce_scatter`), `HcclReduceScatterV`.
    ///
    /// # Errors
    /// `InvalidArgument` for lengths that do not fit the counts, or not one count a member.
    #[track_caller]
    pub fn reduce_scatter_v<T: Element>(
        &self,
        sendbuf: &[T],
        recv_counts: &[usize],
        recvbuf: &mut [T],
        op: ReduceOp,
    ) -> Result<(), CommError> {
        let call = Call::new::<T>(Collective::ReduceScatterV, recvbuf.len());
        let total = self.check_counts(call, "recv_counts", recv_counts)?;
        self.check_len(call, "sendbuf", sendbuf.len(), total)?;
        self.check_len(call, "recvbuf", recvbuf.len(), recv_counts[self.rank()])?;
        let counts = Counts::Blocks(recv_counts);
        let buffers = Buffers::apart(sendbuf, recvbuf);
        self.run(
            call,
            &buffers.request(Collective::ReduceScatterV, T::DTYPE, Some(op), 0, counts),
        )
    }
}
