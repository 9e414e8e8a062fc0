//! Links to ranks that share no memory with this one.

use std::net::SocketAddr;

use crate::backend::links::Plane;
use crate::backend::vigil::Vigil;
use crate::error::ErrorKind;
use crate::group::Identity;
use crate::sync::Clock;
use crate::transport::Stream;
use crate::transport::tcp::{
    Bundle, LinkName, Listener, ParkedKey, SECRET_BYTES, TcpError, TcpLink, connect,
};

/// Where the others are, and the door through which they come.
pub(crate) struct Net {
    pub(crate) listener: Listener,
    /// Where each world rank listens.
    pub(crate) addresses: Vec<Option<SocketAddr>>,
    pub(crate) secret: [u8; SECRET_BYTES],
    /// Connections of each stream that this rank makes.
    pub(crate) lanes: u8,
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
        let lane = |lane: u8| {
            let name = LinkName {
                group: group.key,
                plane: lane_of(plane, lane),
                lanes: self.lanes,
                from: mine.0,
                to: theirs.0,
            };
            connect(address, name, &self.secret, vigil.deadline())
        };
        // The other side may be stopped: who looks at the board is to see for whom this call waits.
        vigil.enter();
        vigil.place.waits(Clock::now(), &[peer], true);
        let links: Result<Vec<TcpLink>, TcpError> = (0..self.lanes).map(lane).collect();
        if links.is_ok() {
            vigil.place.goes_on();
        }
        match links {
            Ok(links) => Ok(stream_of(links)),
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
        group: &Identity,
        plane: Plane,
        peer: usize,
    ) -> Option<Box<dyn Stream>> {
        let key = |lane: u8| ParkedKey {
            group: group.key,
            plane: lane_of(plane, lane),
            peer: group.members[peer].0,
        };
        // The connector says how many there are to be, and makes them in this order: with the last one all
        // are here.
        let lanes = self.listener.lanes_of(key(0))?;
        if lanes > 1 && !self.listener.has(key(lanes - 1)) {
            return None;
        }
        let links: Option<Vec<TcpLink>> = (0..lanes)
            .map(|lane| self.listener.try_take(key(lane)))
            .collect();
        links.map(stream_of)
    }
}

/// The number of a connection among those of two ranks in a group.
fn lane_of(plane: Plane, lane: u8) -> u8 {
    plane as u8 | lane << 1
}

fn stream_of(mut links: Vec<TcpLink>) -> Box<dyn Stream> {
    match links.pop() {
        Some(link) if links.is_empty() => Box::new(link),
        last => {
            links.extend(last);
            Box::new(Bundle::new(links))
        }
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
