//! `reduce`: the root gets the reduction of everybody's buffer.

use super::{Buffers, Call, Communicator};
use crate::backend::Counts;
use crate::buffer::Element;
use crate::error::CommError;
use crate::types::{Collective, ReduceOp};

impl Communicator {
    /// Reduces the send buffers of all ranks, element by element, into the root's receive buffer.
    ///
    /// **Shape**: `sendbuf`: count; `recvbuf`: count on the root, elsewhere it is not touched and
    /// may be empty.
    /// **In place**: [`Communicator::reduce_in_place`].
    /// **Zero counts**: allowed. **Order and determinism**: as [`Communicator::all_reduce`].
    /// **Errors**: `InvalidArgument` for a wrong length on the root or a root outside the group.
    /// **Blocking and deadline**: a rank other than the root may return before the root has the
    /// result. **Cost**: the root reads n buffers; by messages see `muster plan describe`.
    ///
    /// **Source**: MPI-4 section 6.9.1 (`MPI_Reduce`), `HcclReduce`, `ncclReduce`.
    #[track_caller]
    pub fn reduce<T: Element>(
        &self,
        sendbuf: &[T],
        recvbuf: &mut [T],
        op: ReduceOp,
        root: usize,
    ) -> Result<(), CommError> {
        let call = Call::new::<T>(Collective::Reduce, sendbuf.len());
        self.check_index(call, "root", root)?;
        if self.rank() == root {
            self.check_len(call, "recvbuf", recvbuf.len(), sendbuf.len())?;
        }
        let counts = Counts::Uniform(sendbuf.len());
        let buffers = Buffers::apart(sendbuf, recvbuf);
        self.run(
            call,
            &buffers.request(Collective::Reduce, T::DTYPE, Some(op), root, counts),
        )
    }

    /// [`Communicator::reduce`] where the root's buffer holds its contribution before and the
    /// result after; on the other ranks the buffer is only read.
    ///
    /// # Errors
    /// As [`Communicator::reduce`].
    #[track_caller]
    pub fn reduce_in_place<T: Element>(
        &self,
        buffer: &mut [T],
        op: ReduceOp,
        root: usize,
    ) -> Result<(), CommError> {
        let call = Call::new::<T>(Collective::Reduce, buffer.len());
        self.check_index(call, "root", root)?;
        let counts = Counts::Uniform(buffer.len());
        let buffers = Buffers::in_place(buffer, 0, 0);
        self.run(
            call,
            &buffers.request(Collective::Reduce, T::DTYPE, Some(op), root, counts),
        )
    }
}
