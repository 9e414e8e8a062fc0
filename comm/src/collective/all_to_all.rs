//! `all_to_all`, `_v`: everybody sends a block to everybody.

use super::{Buffers, Call, Communicator};
use crate::backend::Counts;
use crate::buffer::Element;
use crate::error::CommError;
use crate::types::Collective;

impl Communicator {
    /// Gives rank `i` block `i` of every rank's send buffer, in rank order.
    ///
    /// **Shape**: `sendbuf`: count × group size, block `i` for rank `i`; `recvbuf`: the same
    /// length, block `i` from rank `i`.
    /// **In place**: [`Communicator::all_to_all_in_place`]. **Zero counts**: allowed.
    /// **Errors**: `InvalidArgument` where the lengths differ or are no multiple of the group size.
    /// **Blocking and deadline**: returns when all blocks are here.
    /// **Cost**: each rank reads and writes its buffer once.
    ///
    /// **Source**: MPI-4 section 6.8 (`MPI_Alltoall`), `HcclAlltoAll`.
    #[track_caller]
    pub fn all_to_all<T: Element>(
        &self,
        sendbuf: &[T],
        recvbuf: &mut [T],
    ) -> Result<(), CommError> {
        let call = Call::new::<T>(Collective::AllToAll, sendbuf.len() / self.size());
        let count = self.check_blocks(call, "sendbuf", sendbuf.len())?;
        self.check_len(call, "recvbuf", recvbuf.len(), sendbuf.len())?;
        let buffers = Buffers::apart(sendbuf, recvbuf);
        let counts = Counts::Uniform(count);
        self.run(
            call,
            &buffers.request(Collective::AllToAll, T::DTYPE, None, 0, counts),
        )
    }

    /// [`Communicator::all_to_all`] with one buffer for what is given and what is got.
    ///
    /// # Errors
    /// As [`Communicator::all_to_all`].
    #[track_caller]
    pub fn all_to_all_in_place<T: Element>(&self, buffer: &mut [T]) -> Result<(), CommError> {
        let call = Call::new::<T>(Collective::AllToAll, buffer.len() / self.size());
        let counts = Counts::Uniform(self.check_blocks(call, "buffer", buffer.len())?);
        let buffers = Buffers::in_place(buffer, 0, 0);
        self.run(
            call,
            &buffers.request(Collective::AllToAll, T::DTYPE, None, 0, counts),
        )
    }

    /// [`Communicator::all_to_all`] with blocks of different lengths: this rank sends
    /// `send_counts[i]` elements to rank `i` and expects `recv_counts[i]` from it.
    ///
    /// **Shape**: `sendbuf`: sum of `send_counts`; `recvbuf`: sum of `recv_counts`; blocks in rank
    /// order without gaps. Zero counts are allowed anywhere.
    ///
    /// **Source**: MPI-4 section 6.8 (`MPI_Alltoallv`), `HcclAlltoAllV`.
    ///
    /// # Errors
    /// `InvalidArgument` for lengths that do not fit the counts, or where this rank's block for
    /// itself differs between the two lists. `Mismatch` of `splits`, naming the pair, where a rank
    /// sends another number than its peer expects.
    #[track_caller]
    pub fn all_to_all_v<T: Element>(
        &self,
        sendbuf: &[T],
        send_counts: &[usize],
        recvbuf: &mut [T],
        recv_counts: &[usize],
    ) -> Result<(), CommError> {
        let call = Call::new::<T>(Collective::AllToAllV, sendbuf.len());
        let sends = self.check_counts(call, "send_counts", send_counts)?;
        let recvs = self.check_counts(call, "recv_counts", recv_counts)?;
        self.check_len(call, "sendbuf", sendbuf.len(), sends)?;
        self.check_len(call, "recvbuf", recvbuf.len(), recvs)?;
        let me = self.rank();
        if send_counts[me] != recv_counts[me] {
            let want = format!("send_counts[{me}], which is {}", send_counts[me]);
            let what = format!("recv_counts[{me}], this rank's block for itself,");
            return Err(self.refuse(call, &what, recv_counts[me].to_string(), want));
        }
        let counts = Counts::Splits {
            send: send_counts,
            recv: recv_counts,
        };
        let buffers = Buffers::apart(sendbuf, recvbuf);
        self.run(
            call,
            &buffers.request(Collective::AllToAllV, T::DTYPE, None, 0, counts),
        )
    }
}
