//! `barrier`: nobody leaves before everybody came.

use super::{Buffers, Call, Communicator};
use crate::backend::Counts;
use crate::error::CommError;
use crate::types::{Collective, DType};

impl Communicator {
    /// Returns once every rank of the group has called it.
    ///
    /// **Errors**: `Stalled` with the ranks that did not come by the deadline.
    /// **Cost**: one exchange in shared memory; by messages ⌈log2 n⌉ rounds.
    ///
    /// **Source**: MPI-4 section 6.3 (`MPI_Barrier`), `HcclBarrier`.
    #[track_caller]
    pub fn barrier(&self) -> Result<(), CommError> {
        let buffers = Buffers::apart::<u8>(&[], &mut []);
        let counts = Counts::Uniform(0);
        let request = buffers.request(Collective::Barrier, DType::U8, None, 0, counts);
        self.run(Call::bare(Collective::Barrier), &request)
    }
}
