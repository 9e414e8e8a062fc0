//! The part of bring-up after the roster is known: islands of shared memory, and links between
//! them.
//!
//! - MEET-1: every rank draws the same conclusions, since all of them come from the roster and from
//!   what all ranks said in a round.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::SharedMemory;
use super::bring_up::BringUpError;
use super::island::{self, IslandKey};
use super::options::{JoinOptions, PeerReads};
use crate::config::TCP_STREAMS_MAX;
use crate::context::{Island, Net};
use crate::rendezvous::{Card, Endpoint, RendezvousError, Session, route_to};
use crate::sync::{Clock, Deadline};
use crate::transport::shm::arena::Arena;
use crate::transport::shm::heap::Heap;
use crate::transport::shm::peer_memory::{Beacon, Speeds};
use crate::transport::shm::spaces::Spaces;
use crate::transport::shm::wakers::Wakers;
use crate::transport::tcp::{LANES_MAX, Listener, TcpError};
use crate::types::Rank;
use crate::watch::wire::{self, FromRank};

/// How long a rank waits for the memory that another one brought along, before it goes on without.
const MEMORY_PATIENCE: Duration = Duration::from_secs(5);
/// Least time for a round, also where that for bring-up is over: a rank that was late itself has waited for nobody in this
/// round yet. Longer than it takes to find that a rank is stopped, which is then what is told.
const ROUND_TIME_MIN: Duration = Duration::from_secs(2);
/// Of a group of up to this many each rank tries to read the memory of all others.
const TRIED_ALL_MAX: usize = 64;
const _: () = assert!(LANES_MAX == TCP_STREAMS_MAX);

/// Name of the round that ends bring-up.
const ROUND_READY: &str = "ready";
/// Name of the round that follows where somebody could not attach.
const ROUND_ADDRESSES: &str = "addresses";

/// Name of the round in which ranks say whose memory they have mapped, where somebody brought some.
const ROUND_MEMORY: &str = "memory";

/// What a rank says of itself in the last round of bring-up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Ready {
    attached: bool,
    /// It can wake those that share memory with it, and be woken by them, while it sleeps in `poll`.
    has_wakers: bool,
    data_address: Option<SocketAddr>,
    /// It brought memory along.
    has_memory: bool,
    /// Whether it reads the memory of those that may share memory with it.
    reads: Reads,
    /// It should have made the shared memory of its host, and the system refused that.
    refused: Option<Refused>,
}

/// Why there is no shared memory, and when that was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Refused {
    why: String,
    at_unix_ms: u64,
}

/// What a rank says of reading other ranks' memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Reads {
    /// It cannot, or does not want to.
    Not,
    /// It can, and wants to whatever it costs.
    Always,
    /// It can, and wants to where that pays.
    WherePays(Speeds),
}

impl Reads {
    /// What follows from what all ranks of an island say: all must be able to. Those that have measured decide.
    fn agreed(all: impl Iterator<Item = Self> + Clone) -> bool {
        let speeds = |reads| match reads {
            Self::WherePays(speeds) => Some(speeds),
            Self::Not | Self::Always => None,
        };
        let is_open = |reads| reads == Self::Always;
        all.clone().all(|reads| reads != Self::Not)
            && (all.clone().all(is_open) || Speeds::reading_pays(all.filter_map(speeds)))
    }
}

/// The arena, and the counters that wake its ranks in `poll`, if there are any.
type Attached = (Arc<Arena>, Vec<OwnedFd>);

/// What a rank has when all have met.
pub(super) struct Met {
    pub(super) island: Option<Island>,
    pub(super) net: Option<Net>,
    /// A number for each rank that those have in common which share memory; the same list on all ranks.
    pub(super) hosts: Vec<u32>,
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

    pub(super) fn meet(&self, mut door: Option<UnixListener>) -> Result<Met, BringUpError> {
        let me = self.session.rank();
        let size = self.session.roster().len();
        let group = self.candidates(me);
        let mut listener = if group.len() < size {
            Some(self.listen()?)
        } else {
            None
        };
        let (attached, mut all) = self.attach(&mut door, &group, listener.as_ref())?;
        if self.somebody_stands_apart(&all) {
            // Now even ranks that expected none need links.
            let listener = match &mut listener {
                Some(listener) => listener,
                none => none.insert(self.listen()?),
            };
            let data_address = Some(self.address(listener));
            all = self.round(
                ROUND_ADDRESSES,
                Ready {
                    data_address,
                    ..all[me.index()].clone()
                },
            )?;
        }
        let net = listener.map(|listener| Net {
            listener,
            addresses: all.iter().map(|ready| ready.data_address).collect(),
            secret: *self.options.secret.expose(),
            lanes: self.options.tcp_streams.clamp(1, LANES_MAX),
        });
        let memories = if all.iter().any(|ready| ready.has_memory) {
            self.share_memory(door.as_ref().filter(|_| attached.is_some()), &group, &all)?
        } else {
            vec![None; group.len()]
        };
        let island = attached.map(|(arena, counters)| {
            let mut island = island_of(arena, memories, me, &group, &all, size);
            let is_woken = |rank: &usize| !all[*rank].attached || all[*rank].has_wakers;
            if group.iter().all(is_woken) {
                let wakers = Wakers::new(Arc::clone(&island.arena), island.local, counters);
                island.wakers = wakers.map(Arc::new);
            }
            if Reads::agreed(group.iter().map(|rank| all[*rank].reads)) {
                let pids = group
                    .iter()
                    .map(|rank| self.session.roster()[*rank].process.pid);
                island.spaces.let_all_read(pids.collect());
            }
            island
        });
        let hosts = self.hosts(&all);
        Ok(Met { island, net, hosts })
    }

    /// For each rank the lowest of those that share memory with it: one number for each island.
    fn hosts(&self, all: &[Ready]) -> Vec<u32> {
        let mut lowest = HashMap::new();
        let mut hosts = Vec::with_capacity(all.len());
        for (rank, (card, ready)) in (0_u32..).zip(self.session.roster().iter().zip(all)) {
            // Who shares no memory is a host of its own.
            let host = if ready.attached {
                *lowest.entry(card.host_identity.as_str()).or_insert(rank)
            } else {
                rank
            };
            hosts.push(host);
        }
        hosts
    }

    /// Maps what the ranks of the island have brought along, and ends with the round that tells whose
    /// memory all of them have mapped (SPACE-1).
    fn share_memory(
        &self,
        door: Option<&UnixListener>,
        group: &[usize],
        all: &[Ready],
    ) -> Result<Vec<Option<Arc<SharedMemory>>>, BringUpError> {
        let me = self.session.rank().index();
        let key = IslandKey::for_memory(self.options.secret.expose());
        let attached = |rank: &usize| all[*rank].attached;
        let mates = group.iter().filter(|rank| attached(rank)).count();
        let own = self.options.memory.as_ref();
        let finished = OnceLock::new();
        let patience = Deadline::after(MEMORY_PATIENCE.min(self.deadline.left()));
        let mut memories = vec![None; group.len()];
        let is_over = || self.session.is_over();
        let rows = std::thread::scope(|scope| {
            if let (Some(door), Some(own)) = (door, own) {
                scope.spawn(|| self.hand_out(door, &[own.file()], &key, mates - 1, &finished));
            }
            for (memory, rank) in memories.iter_mut().zip(group) {
                if door.is_none() || !attached(rank) || !all[*rank].has_memory {
                    continue;
                }
                *memory = if *rank == me {
                    own.map(Arc::clone)
                } else {
                    let address = &self.session.roster()[*rank].unix_address;
                    let files = island::fetch(address, &key, patience, &is_over).ok();
                    let file = files.and_then(|files| files.into_iter().next());
                    file.and_then(|file| SharedMemory::attach(file).ok())
                };
            }
            let mapped: Vec<bool> = memories.iter().map(Option::is_some).collect();
            let rows: Result<Vec<Vec<bool>>, _> = self.tell(ROUND_MEMORY, &mapped);
            let _ = finished.set(());
            rows
        })?;
        for (local, memory) in memories.iter_mut().enumerate() {
            let has = |rank: &usize| rows[*rank].get(local) == Some(&true);
            if !group.iter().filter(|rank| attached(rank)).all(has) {
                *memory = None;
            }
        }
        Ok(memories)
    }

    /// Hands descriptors out until `count` peers have it or the round that follows is over.
    fn hand_out(
        &self,
        door: &UnixListener,
        files: &[BorrowedFd<'_>],
        key: &IslandKey,
        count: usize,
        finished: &OnceLock<()>,
    ) {
        // Those who come later do not get it, and say so in the round.
        let _ = island::hand_out(door, files, key, count, self.deadline, &|| {
            finished.get().is_some()
        });
    }

    /// Whether a rank that might share memory with others does not.
    fn somebody_stands_apart(&self, all: &[Ready]) -> bool {
        let apart = |(rank, ready): (usize, &Ready)| {
            !ready.attached && self.candidates(Rank::from_index(rank)).len() > 1
        };
        all.iter().enumerate().any(apart)
    }

    /// Makes or fetches the arena, and what wakes its ranks where they have links too. Ends with the round that tells everybody
    /// how that went.
    fn attach(
        &self,
        door: &mut Option<UnixListener>,
        group: &[usize],
        listener: Option<&Listener>,
    ) -> Result<(Option<Attached>, Vec<Ready>), BringUpError> {
        let me = self.session.rank();
        let ready = |attached, counters: &[OwnedFd]| Ready {
            attached,
            has_wakers: counters.len() == group.len(),
            data_address: listener.map(|listener| self.address(listener)),
            has_memory: self.options.memory.is_some(),
            reads: self.reads(group),
            refused: None,
        };
        let key = IslandKey::derive(self.options.secret.expose());
        let (Some(listening), true) = (door.as_ref(), group.len() > 1) else {
            return Ok((None, self.round(ROUND_READY, ready(false, &[]))?));
        };
        if group[0] != me.index() {
            let leader = &self.session.roster()[group[0]].unix_address;
            let fetched =
                island::fetch(leader, &key, self.deadline, &|| self.session.is_over()).ok();
            let mut counters = fetched.unwrap_or_default();
            let file = (!counters.is_empty()).then(|| counters.remove(0));
            let arena = file
                .and_then(|file| Arena::attach(file, group.len()).ok())
                .map(Arc::new);
            let all = self.round(ROUND_READY, ready(arena.is_some(), &counters))?;
            return Ok((arena.map(|arena| (arena, counters)), all));
        }
        let arena = match Arena::create(group.len(), self.options.region_bytes) {
            Ok(arena) => Arc::new(arena),
            Err(error) => {
                // Nobody gets anything here, and all hear why.
                *door = None;
                let refused = Some(Refused {
                    why: error.to_string(),
                    at_unix_ms: Clock::wall_ms(),
                });
                let all = self.round(
                    ROUND_READY,
                    Ready {
                        refused,
                        ..ready(false, &[])
                    },
                )?;
                return Ok((None, all));
            }
        };
        // Without them ranks that wait look up now and then.
        let counters = listener.and_then(|_| Wakers::make_counters(group.len()).ok());
        let counters = counters.unwrap_or_default();
        let files: Vec<BorrowedFd<'_>> = std::iter::once(arena.file())
            .chain(counters.iter().map(AsFd::as_fd))
            .collect();
        let finished = OnceLock::new();
        let all = std::thread::scope(|scope| {
            scope.spawn(|| self.hand_out(listening, &files, &key, group.len() - 1, &finished));
            let all = self.round(ROUND_READY, ready(true, &counters));
            let _ = finished.set(());
            all
        })?;
        drop(files);
        Ok((Some((arena, counters)), all))
    }

    /// What this rank says of reading the memory of these ranks by system call.
    fn reads(&self, group: &[usize]) -> Reads {
        let roster = self.session.roster();
        let is_seen = |rank: &usize| {
            let card = &roster[*rank];
            let beacon = postcard::from_bytes::<Beacon>(&card.payload);
            beacon.is_ok_and(|beacon| beacon.is_seen_in(card.process.pid))
        };
        let can_read = || group.len() > 1 && self.tried(group).iter().all(is_seen);
        match self.options.peer_reads {
            PeerReads::Always if can_read() => Reads::Always,
            PeerReads::Auto if can_read() => {
                Speeds::measured().map_or(Reads::Not, Reads::WherePays)
            }
            PeerReads::Never | PeerReads::Always | PeerReads::Auto => Reads::Not,
        }
    }

    /// The ranks of these whose memory this rank tries to read: all; of a large group whose processes all know each other by the same
    /// numbers those at distances of powers of two, as each rank is tried by others then.
    fn tried(&self, group: &[usize]) -> Vec<usize> {
        let roster = self.session.roster();
        let home = |rank: &usize| {
            let process = roster[*rank].process;
            (process.boot, process.namespace)
        };
        let me = self.session.rank().index();
        let at = group.iter().position(|rank| *rank == me).unwrap_or(0);
        let is_one_home = group.iter().all(|rank| home(rank) == home(&me)) && home(&me).1 != 0;
        if group.len() <= TRIED_ALL_MAX || !is_one_home {
            return group.to_vec();
        }
        let distances = std::iter::successors(Some(1_usize), |distance| distance.checked_mul(2));
        distances
            .take_while(|distance| *distance < group.len())
            .map(|distance| group[(at + distance) % group.len()])
            .collect()
    }

    /// Tells all ranks how far this one is; fails on all of them where one gets no shared memory.
    fn round(&self, name: &str, mine: Ready) -> Result<Vec<Ready>, BringUpError> {
        let all: Vec<Ready> = self.tell(name, &mine)?;
        let mut refusals = all.iter().enumerate();
        let first = refusals.find_map(|(rank, ready)| Some((rank, ready.refused.clone()?)));
        let Some((rank, refused)) = first else {
            return Ok(all);
        };
        let card = &self.session.roster()[rank];
        let error = RendezvousError::SharedMemory {
            rank: Rank::from_index(rank),
            host: card.host.clone(),
            pid: card.process.pid,
            why: refused.why,
        };
        let error = BringUpError::Rendezvous {
            error,
            at_unix_ms: refused.at_unix_ms,
        };
        if rank == self.session.rank().index()
            && let Some(verdict) = error.verdict()
        {
            // Who does not hear it sees how the ranks end.
            let _ = self
                .session
                .watch(wire::encode(&FromRank::Judged(Box::new(verdict))));
        }
        Err(error)
    }

    /// Tells all ranks `mine`, and returns what all of them said.
    fn tell<T: Serialize + DeserializeOwned>(
        &self,
        name: &str,
        mine: &T,
    ) -> Result<Vec<T>, BringUpError> {
        let bytes = postcard::to_allocvec(mine).unwrap_or_default();
        let deadline = Deadline::after(self.deadline.left().max(ROUND_TIME_MIN));
        let gathered = self.session.gather(name, bytes, deadline);
        let all = gathered.map_err(|error| match self.session.failed_unix_ms() {
            Some(at_unix_ms) => BringUpError::Rendezvous { error, at_unix_ms },
            None => error.into(),
        })?;
        let read = |(rank, bytes): (usize, &Vec<u8>)| {
            postcard::from_bytes(bytes).map_err(|error| BringUpError::Malformed {
                peer: Rank::from_index(rank),
                what: error.to_string(),
            })
        };
        all.iter().enumerate().map(read).collect()
    }

    /// Where the other ranks reach this one.
    fn address(&self, listener: &Listener) -> SocketAddr {
        self.options
            .advertise
            .unwrap_or_else(|| listener.local_addr())
    }

    /// Listens where the other ranks can reach this one.
    fn listen(&self) -> Result<Listener, TcpError> {
        let own = self.options.listen_on;
        let own = own.unwrap_or_else(|| local_address(&self.options.endpoint));
        let address = SocketAddr::new(own, 0);
        Listener::bind(address, self.session.rank().0, self.options.secret.expose())
    }
}

/// The address of this host towards the rendezvous: loopback where that is on loopback.
fn local_address(endpoint: &Endpoint) -> IpAddr {
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let target = endpoint.literal().or_else(|| {
        (endpoint.host(), endpoint.port())
            .to_socket_addrs()
            .ok()?
            .next()
    });
    target.and_then(route_to).unwrap_or(loopback)
}

fn island_of(
    arena: Arc<Arena>,
    memories: Vec<Option<Arc<SharedMemory>>>,
    me: Rank,
    group: &[usize],
    all: &[Ready],
    size: usize,
) -> Island {
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
        spaces: Spaces::new(Arc::clone(&arena), memories, Some(local)),
        arena,
        local,
        locals,
        wakers: None,
        retired: Mutex::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_must_be_able_to_read_and_who_has_measured_decides() {
        let measured = |read_ns| {
            Reads::WherePays(Speeds {
                read_ns,
                copy_ns: 100,
            })
        };
        let (fast, slow) = (measured(300), measured(900));
        let agreed = |all: &[Reads]| Reads::agreed(all.iter().copied());
        assert!(agreed(&[fast, slow]));
        assert!(agreed(&[Reads::Always, fast]));
        assert!(agreed(&[Reads::Always, Reads::Always]));
        assert!(!agreed(&[Reads::Always, slow]));
        assert!(!agreed(&[slow, slow]));
        assert!(!agreed(&[fast, Reads::Not]));
        assert!(!agreed(&[Reads::Always, Reads::Not]));
    }
}
