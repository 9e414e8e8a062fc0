//! `scatter`, `_v`: each rank gets its block of the root's buffer.

use super::rooted::Sides;
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
        let sides = Sides {
            block: ("recvbuf", recvbuf.len()),
            whole: ("sendbuf", sendbuf.len()),
            counts: None,
        };
        let counts = self.check_sides(call, root, &sides)?;
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
        let (count, own) = self.check_sides_in_place(call, root, buffer.len())?;
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
        let sides = Sides {
            block: ("recvbuf", recvbuf.len()),
            whole: ("sendbuf", sendbuf.len()),
            counts: Some(("send_counts", send_counts)),
        };
        let counts = self.check_sides(call, root, &sides)?;
        let buffers = Buffers::apart(sendbuf, recvbuf);
        self.run(
            call,
            &buffers.request(Collective::ScatterV, T::DTYPE, None, root, counts),
        )
    }
}
