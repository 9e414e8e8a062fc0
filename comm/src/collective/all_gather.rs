//! `all_gather`, `_v`: everybody gets everybody's block.

use super::{Buffers, Call, Communicator};
use crate::backend::Counts;
use crate::buffer::Element;
use crate::error::CommError;
use crate::types::Collective;

impl Communicator {
    /// Gives every rank the blocks of all ranks, in rank order.
    ///
    /// **Shape**: `sendbuf`: count; `recvbuf`: count × group size.
    /// **In place**: [`Communicator::all_gather_in_place`]. **Zero counts**: allowed.
    /// **Errors**: `InvalidArgument` where `recvbuf` is not count × group size long.
    /// **Blocking and deadline**: returns when all blocks are here.
    /// **Cost**: each rank reads and writes count × group size elements.
    ///
    /// ```
    /// use muster_comm::World;
    ///
    /// let all = World::threads(3, |world| {
    ///     let group = world.everyone()?;
    ///     let mut all = [0_u32; 3];
    ///     group.all_gather(&[10 + group.rank() as u32], &mut all)?;
    ///     Ok::<_, muster_comm::CommError>(all)
    /// })?;
    /// for seen in all {
    ///     assert_eq!(seen?, [10, 11, 12]);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// **Source**: MPI-4 section 6.7 (`MPI_Allgather`), `HcclAllGather`, `ncclAllGather`.
    #[track_caller]
    pub fn all_gather<T: Element>(
        &self,
        sendbuf: &[T],
        recvbuf: &mut [T],
    ) -> Result<(), CommError> {
        let call = Call::new::<T>(Collective::AllGather, sendbuf.len());
        let want = self.blocks_len(call, sendbuf.len())?;
        self.check_len(call, "recvbuf", recvbuf.len(), want)?;
        let counts = Counts::Uniform(sendbuf.len());
        let buffers = Buffers::apart(sendbuf, recvbuf);
        self.run(
            call,
            &buffers.request(Collective::AllGather, T::DTYPE, None, 0, counts),
        )
    }

    /// [`Communicator::all_gather`] where this rank's block lies in its place in the buffer before.
    ///
    /// # Errors
    /// As [`Communicator::all_gather`]; the length must be a multiple of the group size.
    #[track_caller]
    pub fn all_gather_in_place<T: Element>(&self, buffer: &mut [T]) -> Result<(), CommError> {
        let call = Call::new::<T>(Collective::AllGather, buffer.len() / self.size());
        let count = self.check_blocks(call, "buffer", buffer.len())?;
        let counts = Counts::Uniform(count);
        let buffers = Buffers::in_place(buffer, self.rank() * count, 0);
        self.run(
            call,
            &buffers.request(Collective::AllGather, T::DTYPE, None, 0, counts),
        )
    }

    /// [`Communicator::all_gather`] with blocks of different lengths: rank `i` gives
    /// `recv_counts[i]` elements. All ranks name the same counts.
    ///
    /// **Shape**: `sendbuf`: this rank's count; `recvbuf`: sum of the counts, blocks in rank order
    /// without gaps.
    ///
    /// **Source**: MPI-4 section 6.7 (`MPI_Allgatherv`), `HcclAllGatherV`.
    ///
    /// # Errors
    /// `InvalidArgument` for lengths that do not fit the counts, or not one count a member.
    #[track_caller]
    pub fn all_gather_v<T: Element>(
        &self,
        sendbuf: &[T],
        recvbuf: &mut [T],
        recv_counts: &[usize],
    ) -> Result<(), CommError> {
        let call = Call::new::<T>(Collective::AllGatherV, sendbuf.len());
        let total = self.check_counts(call, "recv_counts", recv_counts)?;
        self.check_len(call, "sendbuf", sendbuf.len(), recv_counts[self.rank()])?;
        self.check_len(call, "recvbuf", recvbuf.len(), total)?;
        let counts = Counts::Blocks(recv_counts);
        let buffers = Buffers::apart(sendbuf, recvbuf);
        self.run(
            call,
            &buffers.request(Collective::AllGatherV, T::DTYPE, None, 0, counts),
        )
    }
}
