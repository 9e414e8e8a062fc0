//! The litmus test of a machine's memory, between the members of a group: for `muster drill`.

use std::time::Duration;

use super::Communicator;
pub use crate::backend::litmus::{LitmusCounts, LitmusError};

impl Communicator {
    /// Uses slots, bells and rings as calls do, for this long, and checks every word. The group has two members that share memory, and
    /// both call this once.
    ///
    /// # Errors
    /// [`LitmusError`]: memory that is not in order, or another rank that does not come.
    pub fn litmus(&self, time: Duration) -> Result<LitmusCounts, LitmusError> {
        crate::backend::litmus::run(self.context(), self.identity(), time)
    }
}
