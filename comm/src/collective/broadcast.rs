//! `broadcast`: everybody gets the root's buffer.

use super::{Buffers, Call, Communicator};
use crate::backend::Counts;
use crate::buffer::Element;
use crate::error::CommError;
use crate::types::Collective;

impl Communicator {
    /// Gives every rank the contents of the root's buffer.
    ///
    /// **Shape**: `buffer`: count, the same on all ranks; read on the root, written elsewhere.
    /// **In place**: always. **Zero counts**: allowed.
    /// **Errors**: `InvalidArgument` for a root outside the group.
    /// **Blocking and deadline**: returns when this rank has its data; the root may return before
    /// others have theirs, and may then change its buffer.
    /// **Cost**: each rank but the root reads and writes the buffer once.
    ///
    /// **Source**: MPI-4 section 6.4 (`MPI_Bcast`), `HcclBroadcast`, `ncclBroadcast`.
    #[track_caller]
    pub fn broadcast<T: Element>(&self, buffer: &mut [T], root: usize) -> Result<(), CommError> {
        let call = Call::new::<T>(Collective::Broadcast, buffer.len());
        self.check_index(call, "root", root)?;
        let counts = Counts::Uniform(buffer.len());
        let buffers = Buffers::in_place(buffer, 0, 0);
        self.run(
            call,
            &buffers.request(Collective::Broadcast, T::DTYPE, None, root, counts),
        )
    }
}
