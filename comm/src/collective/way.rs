//! Which way the calls of a group go.

use super::Communicator;
use crate::sync::lock;

impl Communicator {
    /// Whether all members share memory: they are on one host, and may use it.
    #[must_use]
    pub fn shares_memory(&self) -> bool {
        self.inner.context.island_of(&self.inner.group).is_some()
    }

    /// How the last collective of this communicator went: the name of an algorithm of the registry, `entry` where
    /// the contribution rode in the exchange that begins a call, `straight` where the ranks used each
    /// other's buffers in place, `copy` in a group of one; `None` before the first. For reports and for
    /// tests; waits for a call under way.
    #[must_use]
    pub fn last_algorithm(&self) -> Option<&'static str> {
        let taken = lock(&self.inner.host).taken();
        (!taken.is_empty()).then_some(taken)
    }
}
