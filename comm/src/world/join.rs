//! Bring-up of a rank that is a process: from an endpoint and a secret to a world.
//!
//! 1. Join the rendezvous: every rank learns every card, or what stands in the way.
//! 2. Form islands: the lowest rank of each host hands out its arena; who does not get it is an
//!    island of its own.
//! 3. One round over the control plane tells everybody who is attached and where to reach the
//!    others. It is also the barrier that ends bring-up.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::control::Control;
use super::island::{self, IslandKey};
use super::status::{Gone, Notice, Status};
use super::{DEADLINE_DEFAULT, Island, Net, World, WorldInner};
use crate::algo::Table;
use crate::rendezvous::{
    Card, Endpoint, Hello, RendezvousError, Secret, Session, SessionEvent, build_id,
};
use crate::sync::Deadline;
use crate::transport::shm::arena::{Arena, ArenaError, HEAP_BYTES_DEFAULT};
use crate::transport::shm::heap::Heap;
use crate::transport::shm::wait::Pace;
use crate::transport::tcp::{Listener, TcpError};
use crate::types::Rank;

/// How long the ranks may take to find each other unless said otherwise.
pub const BRING_UP_DEFAULT: Duration = Duration::from_secs(30);
/// While members of an island are still coming, the leader looks this often whether the others
/// have finished without them.
const HAND_OUT_STEP: Duration = Duration::from_millis(20);
/// Name of the round that ends bring-up.
const ROUND_READY: &str = "ready";
/// Name of the round that follows where somebody could not attach.
const ROUND_ADDRESSES: &str = "addresses";

/// Which transports a world may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Shared memory within a host, TCP between hosts.
    #[default]
    Auto,
    /// Shared memory only: ranks on several hosts are an error when a group first spans them.
    Shm,
    /// TCP only, also within a host.
    Tcp,
}

/// Who serves the rendezvous, and so who is gone when it is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServedBy {
    /// The process that started the ranks.
    Launcher,
    /// A rank.
    Rank(Rank),
}

/// What a rank needs to join a world.
#[derive(Clone, Debug)]
pub struct JoinOptions {
    /// Where the rendezvous is.
    pub endpoint: Endpoint,
    /// The job's secret.
    pub secret: Secret,
    /// Name of the job.
    pub job_id: String,
    /// The attempt (restart count).
    pub attempt: u32,
    /// This rank, as the launch contract gave it.
    pub rank: i64,
    /// The world size, as the launch contract gave it.
    pub world_size: i64,
    /// Which contract and variables gave the numbers, for messages.
    pub source: String,
    /// This rank's number on its host, where the contract says so.
    pub local_rank: Option<u32>,
    /// Who serves the rendezvous.
    pub served_by: ServedBy,
    /// Time for bring-up.
    pub bring_up: Duration,
    /// Deadline of every call, unless a communicator says otherwise.
    pub deadline: Duration,
    /// Transports to use.
    pub transport: Transport,
    /// The user's rules for choosing algorithms.
    pub algo_table: Option<Table>,
    /// Whether messages carry a checksum.
    pub checksum: bool,
    /// Heap of this rank's shared region, in bytes. Address space; memory is used as written.
    pub region_bytes: usize,
}

impl JoinOptions {
    /// Options with defaults for all that has a safe one.
    #[must_use]
    pub fn new(endpoint: Endpoint, secret: Secret, rank: i64, world_size: i64) -> Self {
        Self {
            endpoint,
            secret,
            job_id: String::new(),
            attempt: 0,
            rank,
            world_size,
            source: String::new(),
            local_rank: None,
            served_by: ServedBy::Launcher,
            bring_up: BRING_UP_DEFAULT,
            deadline: DEADLINE_DEFAULT,
            transport: Transport::Auto,
            algo_table: None,
            checksum: false,
            region_bytes: HEAP_BYTES_DEFAULT,
        }
    }
}

/// Why a rank could not join its world.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BringUpError {
    /// The ranks did not find each other.
    #[error(transparent)]
    Rendezvous(#[from] RendezvousError),
    /// No shared memory.
    #[error(transparent)]
    Arena(#[from] ArenaError),
    /// No way to listen for links from other hosts.
    #[error("cannot listen for links: {0}")]
    Listen(#[from] TcpError),
    /// Something that a peer said during bring-up makes no sense.
    #[error("rank {peer} said what cannot be understood during bring-up: {what}")]
    Malformed {
        /// The peer.
        peer: Rank,
        /// What is wrong.
        what: String,
    },
}

impl BringUpError {
    /// The documented exit code of this class of error.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Rendezvous(error) => error.exit_code(),
            Self::Arena(_) | Self::Listen(_) => 60,
            Self::Malformed { .. } => 11,
        }
    }

    /// One sentence on what to do.
    #[must_use]
    pub fn help(&self) -> &'static str {
        match self {
            Self::Rendezvous(error) => error.help(),
            Self::Arena(_) => "raise the limits on address space and file size (ulimit -v, -f)",
            Self::Listen(_) => "raise the limit on descriptors (ulimit -n), or free the port",
            Self::Malformed { .. } => "make sure that all ranks run the same build",
        }
    }
}

/// What a rank says of itself in the last round of bring-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Ready {
    attached: bool,
    data_address: Option<SocketAddr>,
}

impl World {
    /// Joins the world that `options` describe; returns when all ranks are there.
    ///
    /// # Errors
    /// [`BringUpError`]: whatever keeps the ranks from finding each other, the same on all of them
    /// where the job itself is at fault; at the latest shortly after `options.bring_up`.
    pub fn join(options: JoinOptions) -> Result<Self, BringUpError> {
        let deadline = Deadline::after(options.bring_up);
        let status = Arc::new(Status::default());
        let door = (options.transport != Transport::Tcp)
            .then(open_door)
            .flatten();
        let unix_address = door
            .as_ref()
            .map(|(name, _)| name.clone())
            .unwrap_or_default();
        let session = join_session(&options, unix_address, &status, deadline)?;
        let bring_up = BringUp {
            options: &options,
            session: &session,
            deadline,
        };
        let (island, net) = bring_up.meet(door)?;
        let mates = bring_up.candidates(session.rank()).len();
        let size = session.roster().len();
        let inner = WorldInner {
            rank: session.rank(),
            size,
            job: job_number(&options),
            island,
            net,
            control: Box::new(session),
            status,
            deadline: options.deadline,
            pace: Pace::for_ranks(mates),
            table: options.algo_table,
            checksum: options.checksum,
            made: Mutex::default(),
            coordinator: OnceLock::new(),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }
}

/// The socket through which local peers get the arena. A host without abstract sockets just has
/// no shared memory: the ranks then talk by TCP.
fn open_door() -> Option<(String, UnixListener)> {
    let name = island::socket_name().ok()?;
    let listener = island::listen(&name).ok()?;
    Some((name, listener))
}

fn join_session(
    options: &JoinOptions,
    unix_address: String,
    status: &Arc<Status>,
    deadline: Deadline,
) -> Result<Session, RendezvousError> {
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let card = Card {
        pid: std::process::id(),
        host,
        host_identity: island::host_identity(),
        local_rank: options.local_rank,
        unix_address,
        data_address: None,
        payload: Vec::new(),
    };
    let hello = Hello {
        job_id: options.job_id.clone(),
        attempt: options.attempt,
        rank: options.rank,
        world_size: options.world_size,
        source: options.source.clone(),
        build: build_id(),
        card,
    };
    let (status, served_by) = (Arc::clone(status), options.served_by);
    let on_event = Box::new(move |event| note(&status, served_by, event));
    Session::join(
        &options.endpoint,
        &options.secret,
        hello,
        deadline,
        on_event,
    )
}

/// Records an event of the control plane where waiting ranks look.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "events to come concern no waiting rank either"
)]
fn note(status: &Status, served_by: ServedBy, event: SessionEvent) {
    match event {
        SessionEvent::Abort { origin, bytes } => {
            // Only peers that proved the secret get here; what cannot be read is no notice.
            if let Ok(notice) = postcard::from_bytes::<Notice>(&bytes) {
                status.set_notice(Notice {
                    origin: origin.0,
                    ..notice
                });
            }
        }
        SessionEvent::Down { rank, reason } => {
            status.set_gone(
                rank,
                Gone {
                    how: reason.to_string(),
                    orderly: false,
                },
            );
        }
        SessionEvent::Left { rank } => {
            status.set_gone(
                rank,
                Gone {
                    how: "left the world".to_owned(),
                    orderly: true,
                },
            );
        }
        SessionEvent::CoordinatorLost { why } => match served_by {
            ServedBy::Rank(rank) => {
                let how = format!("is gone ({why})");
                status.set_gone(
                    rank,
                    Gone {
                        how,
                        orderly: false,
                    },
                );
            }
            ServedBy::Launcher => status.set_cut_off(format!("the launcher is gone ({why})")),
        },
        // Nothing else concerns a waiting rank.
        _ => {}
    }
}

/// The part of bring-up after the roster is known.
struct BringUp<'a> {
    options: &'a JoinOptions,
    session: &'a Session,
    deadline: Deadline,
}

impl BringUp<'_> {
    /// The ranks that may share memory with `rank`, itself included.
    fn candidates(&self, rank: Rank) -> Vec<usize> {
        let roster = self.session.roster();
        let mine = &roster[rank.index()];
        let near = |card: &Card| {
            !card.unix_address.is_empty()
                && !card.host_identity.is_empty()
                && card.host_identity == mine.host_identity
        };
        (0..roster.len())
            .filter(|other| *other == rank.index() || near(&roster[*other]))
            .collect()
    }

    fn meet(
        &self,
        door: Option<(String, UnixListener)>,
    ) -> Result<(Option<Island>, Option<Net>), BringUpError> {
        let me = self.session.rank();
        let size = self.session.roster().len();
        let group = if door.is_some() {
            self.candidates(me)
        } else {
            vec![me.index()]
        };
        let mut listener = if group.len() < size {
            Some(self.listen()?)
        } else {
            None
        };
        let (arena, mut all) = self.attach(door, &group, listener.as_ref())?;
        let split = |all: &[Ready]| group.iter().any(|member| !all[*member].attached);
        if group.len() > 1 && all.iter().any(|ready| !ready.attached) && size > 1 {
            // Somebody is an island of its own against expectation: now everybody needs links.
            if listener.is_none() {
                listener = Some(self.listen()?);
            }
        }
        if all.iter().enumerate().any(|(rank, ready)| {
            !ready.attached && self.candidates(Rank::from_index(rank)).len() > 1
        }) {
            if listener.is_none() {
                listener = Some(self.listen()?);
            }
            let again = Ready {
                attached: all[me.index()].attached,
                data_address: address(&listener),
            };
            all = self.round(ROUND_ADDRESSES, again)?;
        }
        let whole = group.len() == size && !split(&all);
        let island = arena.map(|arena| island_of(arena, me, &group, &all, size));
        let net = match listener {
            Some(listener) if !whole => Some(Net {
                listener,
                addresses: all.iter().map(|ready| ready.data_address).collect(),
                secret: *self.options.secret.expose(),
            }),
            _ => None,
        };
        Ok((island, net))
    }

    /// Makes or fetches the arena, and ends with the round that tells everybody how that went.
    fn attach(
        &self,
        door: Option<(String, UnixListener)>,
        group: &[usize],
        listener: Option<&Listener>,
    ) -> Result<(Option<Arc<Arena>>, Vec<Ready>), BringUpError> {
        let me = self.session.rank();
        let data_address = listener.map(Listener::local_addr);
        let key = IslandKey::derive(self.options.secret.expose());
        let (Some((_, door)), true) = (door, group.len() > 1) else {
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

fn address(listener: &Option<Listener>) -> Option<SocketAddr> {
    listener.as_ref().map(Listener::local_addr)
}

/// The address of this host towards the rendezvous: loopback where that is on loopback.
fn local_address(endpoint: &Endpoint) -> IpAddr {
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let route = |target: SocketAddr| {
        let any: SocketAddr = if target.is_ipv6() {
            (std::net::Ipv6Addr::UNSPECIFIED, 0).into()
        } else {
            (Ipv4Addr::UNSPECIFIED, 0).into()
        };
        // Connecting a datagram socket sends nothing; it only asks the routing table.
        let socket = UdpSocket::bind(any).ok()?;
        socket.connect(target).ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    let target = endpoint.literal().or_else(|| {
        use std::net::ToSocketAddrs;
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

/// Tells this job and attempt from others in the keys of groups.
fn job_number(options: &JoinOptions) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(options.job_id.as_bytes());
    hasher.update(&options.attempt.to_le_bytes());
    let mut word = [0; 8];
    hasher.finalize_xof().fill(&mut word);
    u64::from_le_bytes(word)
}

impl Control for Session {
    fn give_up(&self, notice: &Notice) {
        let Ok(bytes) = postcard::to_allocvec(notice) else {
            return;
        };
        // A control plane that is gone has been noticed already.
        let _ = self.abort(bytes);
    }

    fn report(&self, bytes: &[u8]) -> Result<(), String> {
        Self::report(self, bytes.to_vec()).map_err(|error| error.to_string())
    }

    fn leave(&self) {
        Self::leave(self);
    }
}
