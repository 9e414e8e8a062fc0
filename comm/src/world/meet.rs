//! The part of bring-up after the roster is known: islands of shared memory, and links between
//! them.
//!
//! - MEET-1: every rank draws the same conclusions, since all of them come from the roster and from
//!   what all ranks said in a round.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::island::{self, IslandKey};
use super::join::{BringUpError, JoinOptions};
use super::{Island, Net};
use crate::rendezvous::{Card, Endpoint, Session};
use crate::sync::Deadline;
use crate::transport::shm::arena::Arena;
use crate::transport::shm::heap::Heap;
use crate::transport::tcp::{Listener, TcpError};
use crate::types::Rank;

/// While members of an island are still coming, the leader looks this often whether the others
/// have finished without them.
const HAND_OUT_STEP: Duration = Duration::from_millis(20);
/// Name of the round that ends bring-up.
const ROUND_READY: &str = "ready";
/// Name of the round that follows where somebody could not attach.
const ROUND_ADDRESSES: &str = "addresses";

/// What a rank says of itself in the last round of bring-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Ready {
    attached: bool,
    data_address: Option<SocketAddr>,
}

/// The part of bring-up after the roster is known.
pub(super) struct BringUp<'a> {
    pub(super) options: &'a JoinOptions,
    pub(super) session: &'a Session,
    pub(super) deadline: Deadline,
}

impl BringUp<'_> {
    /// The ranks that may share memory with `rank`, itself included.
    pub(super) fn candidates(&self, rank: Rank) -> Vec<usize> {
        let roster = self.session.roster();
        let mine = &roster[rank.index()];
        let open = |card: &Card| !card.unix_address.is_empty() && !card.host_identity.is_empty();
        let near = |card: &Card| open(card) && card.host_identity == mine.host_identity;
        if !open(mine) {
            return vec![rank.index()];
        }
        (0..roster.len())
            .filter(|other| near(&roster[*other]))
            .collect()
    }

    pub(super) fn meet(
        &self,
        door: Option<UnixListener>,
    ) -> Result<(Option<Island>, Option<Net>), BringUpError> {
        let me = self.session.rank();
        let size = self.session.roster().len();
        let group = self.candidates(me);
        let mut listener = if group.len() < size {
            Some(self.listen()?)
        } else {
            None
        };
        let (arena, mut all) = self.attach(door, &group, listener.as_ref())?;
        if self.somebody_stands_apart(&all) {
            // Now even ranks that expected none need links.
            let listener = match &mut listener {
                Some(listener) => listener,
                none => none.insert(self.listen()?),
            };
            let data_address = Some(listener.local_addr());
            all = self.round(
                ROUND_ADDRESSES,
                Ready {
                    data_address,
                    ..all[me.index()]
                },
            )?;
        }
        let net = listener.map(|listener| Net {
            listener,
            addresses: all.iter().map(|ready| ready.data_address).collect(),
            secret: *self.options.secret.expose(),
        });
        let island = arena.map(|arena| island_of(arena, me, &group, &all, size));
        Ok((island, net))
    }

    /// Whether a rank that might share memory with others does not.
    fn somebody_stands_apart(&self, all: &[Ready]) -> bool {
        let apart = |(rank, ready): (usize, &Ready)| {
            !ready.attached && self.candidates(Rank::from_index(rank)).len() > 1
        };
        all.iter().enumerate().any(apart)
    }

    /// Makes or fetches the arena, and ends with the round that tells everybody how that went.
    fn attach(
        &self,
        door: Option<UnixListener>,
        group: &[usize],
        listener: Option<&Listener>,
    ) -> Result<(Option<Arc<Arena>>, Vec<Ready>), BringUpError> {
        let me = self.session.rank();
        let data_address = listener.map(Listener::local_addr);
        let key = IslandKey::derive(self.options.secret.expose());
        let (Some(door), true) = (door, group.len() > 1) else {
            let all = self.round(
                ROUND_READY,
                Ready {
                    attached: false,
                    data_address,
                },
            )?;
            return Ok((None, all));
        };
        if group[0] != me.index() {
            let leader = &self.session.roster()[group[0]].unix_address;
            let arena = island::fetch(leader, &key, self.deadline)
                .ok()
                .and_then(|file| Arena::attach(file, group.len()).ok())
                .map(Arc::new);
            let all = self.round(
                ROUND_READY,
                Ready {
                    attached: arena.is_some(),
                    data_address,
                },
            )?;
            return Ok((arena, all));
        }
        let arena = Arc::new(Arena::create(group.len(), self.options.region_bytes)?);
        let finished = OnceLock::new();
        let all = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut missing = group.len() - 1;
                while missing > 0 && finished.get().is_none() && !self.deadline.passed() {
                    let step = Deadline::after(HAND_OUT_STEP.min(self.deadline.left()));
                    match island::hand_out(&door, &arena, &key, missing, step) {
                        Ok(served) => missing -= served.min(missing),
                        // Those who come now do not get it, and say so in the round.
                        Err(_) => break,
                    }
                }
            });
            let all = self.round(
                ROUND_READY,
                Ready {
                    attached: true,
                    data_address,
                },
            );
            let _ = finished.set(());
            all
        })?;
        Ok((Some(arena), all))
    }

    fn round(&self, name: &str, mine: Ready) -> Result<Vec<Ready>, BringUpError> {
        let bytes = postcard::to_allocvec(&mine).unwrap_or_default();
        let all = self.session.gather(name, bytes, self.deadline)?;
        let read = |(rank, bytes): (usize, &Vec<u8>)| {
            postcard::from_bytes(bytes).map_err(|error| BringUpError::Malformed {
                peer: Rank::from_index(rank),
                what: error.to_string(),
            })
        };
        all.iter().enumerate().map(read).collect()
    }

    /// Listens where the other ranks can reach this one.
    fn listen(&self) -> Result<Listener, TcpError> {
        let address = SocketAddr::new(local_address(&self.options.endpoint), 0);
        Listener::bind(address, self.session.rank().0, self.options.secret.expose())
    }
}

/// The address of this host towards the rendezvous: loopback where that is on loopback.
fn local_address(endpoint: &Endpoint) -> IpAddr {
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let route = |target: SocketAddr| {
        let any: SocketAddr = if target.is_ipv6() {
            (Ipv6Addr::UNSPECIFIED, 0).into()
        } else {
            (Ipv4Addr::UNSPECIFIED, 0).into()
        };
        // Connecting a datagram socket sends nothing; it only asks the routing table.
        let socket = UdpSocket::bind(any).ok()?;
        socket.connect(target).ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    let target = endpoint.literal().or_else(|| {
        (endpoint.host(), endpoint.port())
            .to_socket_addrs()
            .ok()?
            .next()
    });
    target.and_then(route).unwrap_or(loopback)
}

fn island_of(arena: Arc<Arena>, me: Rank, group: &[usize], all: &[Ready], size: usize) -> Island {
    let mut locals = vec![None; size];
    for (local, member) in group.iter().enumerate() {
        if all[*member].attached {
            locals[*member] = Some(local);
        }
    }
    let local = group
        .iter()
        .position(|member| *member == me.index())
        .unwrap_or(0);
    Island {
        heap: Arc::new(Heap::new(Arc::clone(&arena), local)),
        arena,
        local,
        locals,
        retired: Mutex::default(),
    }
}
