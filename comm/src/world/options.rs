//! What a rank that is a process needs to join a world.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::{DEADLINE_DEFAULT, SharedMemory};
use crate::algo::Table;
use crate::kernel::Kernels;
use crate::launch::Exchange;
use crate::processors::Bind;
use crate::rendezvous::{Endpoint, Secret};
use crate::transport::shm::arena::HEAP_BYTES_DEFAULT;
use crate::types::Rank;
use crate::watch::{CallSites, Mode};

/// How long the ranks may take to find each other unless said otherwise.
pub const BRING_UP_DEFAULT: Duration = Duration::from_secs(30);
/// Connections of a stream between hosts unless said otherwise; `docs/performance.md` has what more of them do.
pub const TCP_STREAMS_DEFAULT: u8 = 1;
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
    /// One of the ranks, and this one does not know which.
    Member,
    /// A rank.
    Rank(Rank),
}

/// Whether ranks of one host read each other's ordinary memory by system call, instead of staging it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PeerReads {
    /// Where the system lets all of them, and it is faster on this machine.
    #[default]
    Auto,
    /// Nowhere.
    Never,
    /// Where the system lets all of them.
    Always,
}

/// What a rank needs to join a world.
#[derive(Clone, Debug)]
pub struct JoinOptions {
    /// Where the rendezvous is.
    pub endpoint: Endpoint,
    /// How rank 0 tells the others where it is, where nobody knows that in advance: `endpoint` then only takes its place.
    pub exchange: Option<Exchange>,
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
    /// Folder for dumps, which are written with a verdict and on SIGUSR1; `None` for none.
    pub dumps: Option<PathBuf>,
    /// Folder into which the calls of this rank are recorded; `None` for none.
    pub recording: Option<PathBuf>,
    /// What is made of the places in the program that calls come from. The ranks should agree.
    pub call_sites: CallSites,
    /// Heap of this rank's shared region, in bytes. Address space; memory is used as written.
    pub region_bytes: usize,
    /// Whether the rank is watched. Off only to measure what watching costs.
    pub watched: bool,
    /// Memory that is older than the world, from which buffers of calls will come; see
    /// [`SharedMemory`]. Peers on this host map it at bring-up.
    pub memory: Option<Arc<SharedMemory>>,
    /// Which processors the rank keeps to: the thread that joins, and those that it makes later. A rank to which its launcher has
    /// given a part of its own processors stays there.
    pub bind: Bind,
    /// The address under which other hosts reach this rank's links, where that is not the one on which it
    /// listens: behind a proxy, or a port that a container forwards.
    pub advertise: Option<SocketAddr>,
    /// The address on which this rank listens for ranks of other hosts; `None` for that of the interface that leads to the
    /// rendezvous.
    pub listen_on: Option<IpAddr>,
    /// Connections between two ranks that share no memory, for each group: 1 to 16. Of two ranks that differ, the
    /// one with the lower index in the group decides.
    pub tcp_streams: u8,
    /// Kernels that the process is to use instead of the best ones; see
    /// [`Kernels::use_everywhere`].
    pub kernels: Option<Kernels>,
    /// Whether large blocks of ordinary memory are read by system call. All ranks of a host must want it.
    pub peer_reads: PeerReads,
}

impl JoinOptions {
    /// What is made of call sites: nothing by a rank that is not watched.
    pub(super) fn sites(&self) -> CallSites {
        if self.watched {
            self.call_sites
        } else {
            CallSites::Off
        }
    }

    pub(super) fn mode(&self) -> Mode {
        if self.watched {
            Mode::Process
        } else {
            Mode::Off
        }
    }

    /// Options with defaults for all that has a safe one.
    #[must_use]
    pub fn new(endpoint: Endpoint, secret: Secret, rank: i64, world_size: i64) -> Self {
        Self {
            endpoint,
            exchange: None,
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
            dumps: None,
            recording: None,
            call_sites: CallSites::default(),
            region_bytes: HEAP_BYTES_DEFAULT,
            watched: true,
            memory: None,
            bind: Bind::None,
            advertise: None,
            listen_on: None,
            tcp_streams: TCP_STREAMS_DEFAULT,
            kernels: None,
            peer_reads: PeerReads::default(),
        }
    }
}
