//! `gather`, `_v`: the root gets everybody's block.

use super::rooted::Sides;
use super::{Buffers, Call, Communicator};
use crate::backend::Counts;
use crate::buffer::Element;
use crate::error::CommError;
use crate::types::Collective;

impl Communicator {
    /// Gives the root the blocks of all ranks, in rank order.
    ///
    /// **Shape**: `sendbuf`: count; `recvbuf`: count × group size on the root, elsewhere it is not
    /// touched and may be empty.
    /// **In place**: [`Communicator::gather_in_place`]. **Zero counts**: allowed.
    /// **Errors**: `InvalidArgument` for a wrong length on the root or a root outside the group.
    /// **Blocking and deadline**: a rank other than the root may return before the root has its
    /// data. **Cost**: the root reads and writes count × group size elements.
    ///
    /// **Source**: MPI-4 section 6.5 (`MPI_Gather`); HCCL has no gather.
    #[track_caller]
    pub fn gather<T: Element>(
        &self,
        sendbuf: &[T],
        recvbuf: &mut [T],
        root: usize,
    ) -> Result<(), CommError> {
        let call = Call::new::<T>(Collective::Gather, sendbuf.len());
        let sides = Sides {
            block: ("sendbuf", sendbuf.len()),
            whole: ("recvbuf", recvbuf.len()),
            counts: None,
        };
        let counts = self.check_sides(call, root, &sides)?;
        let buffers = Buffers::apart(sendbuf, recvbuf);
        self.run(
            call,
            &buffers.request(Collective::Gather, T::DTYPE, None, root, counts),
        )
    }

    /// [`Communicator::gather`] where the root's own block lies in its place in the root's buffer
    /// before. On the root the buffer holds all blocks, elsewhere it is this rank's block.
    ///
    /// # Errors
    /// As [`Communicator::gather`]; on the root the length must be a multiple of the group size.
    #[track_caller]
    pub fn gather_in_place<T: Element>(
        &self,
        buffer: &mut [T],
        root: usize,
    ) -> Result<(), CommError> {
        let call = Call::new::<T>(Collective::Gather, buffer.len());
        let (count, own) = self.check_sides_in_place(call, root, buffer.len())?;
        let buffers = Buffers::in_place(buffer, own, 0);
        let counts = Counts::Uniform(count);
        self.run(
            call,
            &buffers.request(Collective::Gather, T::DTYPE, None, root, counts),
        )
    }

    /// [`Communicator::gather`] with blocks of different lengths: rank `i` gives `recv_counts[i]`
    /// elements. All ranks name the same counts.
    ///
    /// **Shape**: `sendbuf`: this rank's count; `recvbuf`: sum of the counts on the root, elsewhere
    /// not touched.
    ///
    /// **Source**: MPI-4 section 6.5 (`MPI_Gatherv`); unlike there the counts matter on all ranks,
    /// so that a wrong one is found.
    ///
    /// # Errors
    /// `InvalidArgument` for lengths that do not fit the counts, or not one count a member.
    #[track_caller]
    pub fn gather_v<T: Element>(
        &self,
        sendbuf: &[T],
        recvbuf: &mut [T],
        recv_counts: &[usize],
        root: usize,
    ) -> Result<(), CommError> {
        let call = Call::new::<T>(Collective::GatherV, sendbuf.len());
        let sides = Sides {
            block: ("sendbuf", sendbuf.len()),
            whole: ("recvbuf", recvbuf.len()),
            counts: Some(("recv_counts", recv_counts)),
        };
        let counts = self.check_sides(call, root, &sides)?;
        let buffers = Buffers::apart(sendbuf, recvbuf);
        self.run(
            call,
            &buffers.request(Collective::GatherV, T::DTYPE, None, root, counts),
        )
    }
}
