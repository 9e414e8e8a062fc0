//! Where the ranks are that share no memory with this one, and the door through which they come.

use std::net::SocketAddr;

use crate::transport::tcp::{Listener, SECRET_BYTES};

/// Where the others are, and the door through which they come.
pub(crate) struct Net {
    pub(crate) listener: Listener,
    /// Where each world rank listens.
    pub(crate) addresses: Vec<Option<SocketAddr>>,
    pub(crate) secret: [u8; SECRET_BYTES],
    /// Connections of each stream that this rank makes.
    pub(crate) lanes: u8,
}

impl std::fmt::Debug for Net {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the secret.
        f.debug_struct("Net")
            .field("listener", &self.listener)
            .finish_non_exhaustive()
    }
}
