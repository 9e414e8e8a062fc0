//! `scatter`, `_v`: each rank gets its block of the root's buffer.

use super::{Buffers, Call, Communicator};
use crate::backend::Counts;
use crate::buffer::Element;
use crate::error::CommError;
use crate::types::Collective;

impl Communicator {
    /// Gives rank `i` block `i` of the root's send buffer.
    ///
    /// **Shape**: `sendbuf`: count × group size on the root, elsewhere not read, may be empty;
    /// `recvbuf`: count.
    /// **In place**: [`Communicator::scatter_in_place`]. **Zero counts**: allowed.
    /// **Errors**: `InvalidArgument` for a wrong length on the root or a root outside the group.
    /// **Blocking and deadline**: returns when this rank has its block.
    /// **Cost**: each rank reads and writes one block.
    ///
    /// **Source**: MPI-4 section 6.6 (`MPI_Scatter`), `HcclScatter`.
    #[track_caller]
    pub fn scatter<T: Element>(
        &self,
        sendbuf: &[T],
        recvbuf: &mut [T],
        root: usize,
    ) -> Result<(), CommError> {
        let call = Call::new::<T>(Collective::Scatter, recvbuf.len());
        self.check_index(call, "root", root)?;
        if self.rank() == root {
            let want = self.blocks_len(call, recvbuf.len())?;
            self.check_len(call, "sendbuf", sendbuf.len(), want)?;
        }
        let counts = Counts::Uniform(recvbuf.len());
        let buffers = Buffers::apart(sendbuf, recvbuf);
        self.run(
            call,
            &buffers.request(Collective::Scatter, T::DTYPE, None, root, counts),
        )
    }

    /// [`Communicator::scatter`] where the root's own block stays in its place in the root's
    /// buffer. On the root the buffer holds all blocks, elsewhere it becomes this rank's block.
    ///
    /// # Errors
    /// As [`Communicator::scatter`]; on the root the length must be a multiple of the group size.
    #[track_caller]
    pub fn scatter_in_place<T: Element>(
        &self,
        buffer: &mut [T],
        root: usize,
    ) -> Result<(), CommError> {
        let call = Call::new::<T>(Collective::Scatter, buffer.len());
        self.check_index(call, "root", root)?;
        let (count, own) = if self.rank() == root {
            let count = self.check_blocks(call, "buffer", buffer.len())?;
            (count, root * count)
        } else {
            (buffer.len(), 0)
        };
        let buffers = Buffers::in_place(buffer, 0, own);
        let counts = Counts::Uniform(count);
        self.run(
            call,
            &buffers.request(Collective::Scatter, T::DTYPE, None, root, counts),
        )
    }

    /// [`Communicator::scatter`] with blocks of different lengths: rank `i` gets `send_counts[i]`
    /// elements. All ranks name the same counts.
    ///
    /// **Shape**: `sendbuf`: sum of the counts on the root, elsewhere not read; `recvbuf`: this
    /// rank's count.
    ///
    /// **Source**: MPI-4 section 6.6 (`MPI_Scatterv`); unlike there the counts matter on all ranks.
    ///
    /// # Errors
    /// `InvalidArgument` for lengths that do not fit the counts, or not one count a member.
    #[track_caller]
    pub fn scatter_v<T: Element>(
        &self,
        sendbuf: &[T],
        send_counts: &[usize],
        recvbuf: &mut [T],
        root: usize,
    ) -> Result<(), CommError> {
        let call = Call::new::<T>(Collective::ScatterV, recvbuf.len());
        self.check_index(call, "root", root)?;
        let total = self.check_counts(call, "send_counts", send_counts)?;
        self.check_len(call, "recvbuf", recvbuf.len(), send_counts[self.rank()])?;
        if self.rank() == root {
            self.check_len(call, "sendbuf", sendbuf.len(), total)?;
        }
        let counts = Counts::Blocks(send_counts);
        let buffers = Buffers::apart(sendbuf, recvbuf);
        self.run(
            call,
            &buffers.request(Collective::ScatterV, T::DTYPE, None, root, counts),
        )
    }
}
