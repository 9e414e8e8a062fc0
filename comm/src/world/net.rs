//! Links to ranks that share no memory with this one.

use std::net::SocketAddr;

use crate::backend::links::Plane;
use crate::backend::vigil::Vigil;
use crate::error::ErrorKind;
use crate::transport::Stream;
use crate::transport::tcp::{LinkName, Listener, ParkedKey, SECRET_BYTES, TcpError, connect};

/// Where the others are, and the door through which they come.
pub(crate) struct Net {
    pub(crate) listener: Listener,
    /// Where each world rank listens.
    pub(crate) addresses: Vec<Option<SocketAddr>>,
    pub(crate) secret: [u8; SECRET_BYTES],
}

impl Net {
    /// Makes the stream to a member with a higher index.
    pub(crate) fn open(
        &self,
        vigil: &Vigil<'_>,
        plane: Plane,
        peer: usize,
    ) -> Result<Box<dyn Stream>, ErrorKind> {
        let group = vigil.group;
        let (mine, theirs) = (group.members[group.me], group.members[peer]);
        let Some(address) = self.addresses[theirs.index()] else {
            let what = "it does not listen for links".to_owned();
            return Err(ErrorKind::Transport { peer: theirs, what });
        };
        let name = LinkName {
            group: group.key,
            plane: plane as u8,
            from: mine.0,
            to: theirs.0,
        };
        match connect(address, name, &self.secret, vigil.deadline) {
            Ok(link) => Ok(Box::new(link)),
            Err(TcpError::TimedOut { .. }) => Err(vigil.stalled(&[peer])),
            // A peer that is gone does not listen: say that rather than how the connection failed.
            Err(error) => Err(vigil
                .look(&[peer])
                .err()
                .unwrap_or_else(|| ErrorKind::Transport {
                    peer: theirs,
                    what: error.to_string(),
                })),
        }
    }

    /// The stream that a member with a lower index has made, if it has.
    pub(crate) fn take(
        &self,
        vigil: &Vigil<'_>,
        plane: Plane,
        peer: usize,
    ) -> Option<Box<dyn Stream>> {
        let key = ParkedKey {
            group: vigil.group.key,
            plane: plane as u8,
            peer: vigil.group.members[peer].0,
        };
        let link = self.listener.try_take(key)?;
        Some(Box::new(link))
    }
}

impl std::fmt::Debug for Net {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the secret.
        f.debug_struct("Net")
            .field("listener", &self.listener)
            .finish_non_exhaustive()
    }
}
