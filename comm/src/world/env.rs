//! Joining the world that the environment describes: under any launcher, or in anybody's worker.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::OnceLock;
use std::time::Duration;

use super::World;
use super::bring_up::BringUpError;
use super::interface::{self, NoInterface};
use super::options::{
    BRING_UP_DEFAULT, JoinOptions, PeerReads, ServedBy, TCP_STREAMS_DEFAULT, Transport,
};
use super::selection::{Selection, SelectionError};
use crate::config::{
    self, CallSitesChoice, ConfigError, Environment, PeerReadsChoice, TransportChoice,
};
use crate::launch::rank_table::{self, RankTableError};
use crate::launch::secret::{SecretError, job_secret};
use crate::launch::{
    Contract, Detected, Exchange, ExchangeError, Identity, LaunchError, detect, own_address,
};
use crate::rendezvous::{
    Absence, Coordinator, CoordinatorOptions, Endpoint, RendezvousError, resolve,
};
use crate::sync::Deadline;
use crate::transport::shm::arena::HEAP_BYTES_DEFAULT;
use crate::types::{Rank, index};
use crate::watch::CallSites;

/// How long a rank that serves the rendezvous tells ranks that come late why bring-up failed; ranks of a job are started
/// within seconds of each other.
const LATE_RANKS: Duration = Duration::from_secs(3);

/// Where the ranks meet, once the launcher has said so. Some launchers do it once a process, and a program may join again.
static AGREED: OnceLock<Endpoint> = OnceLock::new();

/// Why the environment leads to no world.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FromEnvError {
    /// A variable is malformed.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The launcher's variables are incomplete or contradict each other.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// No launcher started this process.
    #[error("no launcher started this process: no launch contract was found in the environment")]
    Standalone,
    /// A launcher started one process a node; somebody has to start the ranks.
    #[error("{contract} starts one process a node, not one a rank")]
    PerNode {
        /// The contract.
        contract: Contract,
    },
    /// Nothing says where the ranks meet.
    #[error("nothing says where the ranks meet, and the launcher gives no way to tell")]
    NoEndpoint,
    /// The ranks are on several hosts and are to meet at an address that each host has for itself.
    #[error(
        "the ranks are to meet at {endpoint}, which every host has for itself, and of {world_size} ranks only {here} are on this host"
    )]
    Loopback {
        /// Where the ranks are to meet.
        endpoint: Endpoint,
        /// Ranks on this host, as the launcher says.
        here: u32,
        /// Ranks in all.
        world_size: u32,
    },
    /// The vendor's rank table is wrong, or contradicts the launcher.
    #[error(transparent)]
    RankTable(#[from] RankTableError),
    /// The job's secret is not to be had.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The selection table cannot be used.
    #[error(transparent)]
    Selection(#[from] SelectionError),
    /// The interface that the user names cannot be used.
    #[error(transparent)]
    Interface(#[from] NoInterface),
    /// The ranks did not come together.
    #[error(transparent)]
    BringUp(#[from] BringUpError),
}

impl FromEnvError {
    /// The documented exit code of this class of error.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::BringUp(error) => error.exit_code(),
            Self::Secret(_) => 60,
            Self::Config(_)
            | Self::Interface(_)
            | Self::Launch(_)
            | Self::Loopback { .. }
            | Self::NoEndpoint
            | Self::PerNode { .. }
            | Self::RankTable(_)
            | Self::Selection(_)
            | Self::Standalone => 2,
        }
    }

    /// One sentence on what to do.
    #[must_use]
    pub fn help(&self) -> &'static str {
        match self {
            Self::BringUp(error) => error.help(),
            Self::Secret(error) => error.help(),
            Self::Standalone => {
                "start it with mpirun, srun, torchrun, or set MUSTER_RANK and MUSTER_WORLD_SIZE"
            }
            Self::PerNode { .. } => "start the ranks of each node with a per-process launcher",
            Self::Loopback { .. } | Self::NoEndpoint => {
                "set MUSTER_RENDEZVOUS=tcp://HOST:PORT, an address of rank 0's host"
            }
            Self::Selection(_) => {
                "`muster plan table --file FILE` checks a table and says what lines may look like"
            }
            Self::Config(_) | Self::Interface(_) | Self::Launch(_) | Self::RankTable(_) => {
                "correct the variable that is named"
            }
        }
    }
}

impl JoinOptions {
    /// What a rank with this identity needs to join, with the settings of the environment.
    ///
    /// # Errors
    /// [`FromEnvError`], before anything is sent.
    pub fn from_identity(
        environment: &Environment,
        identity: &Identity,
    ) -> Result<Self, FromEnvError> {
        let bring_up = BRING_UP_DEFAULT;
        let deadline = Deadline::after(bring_up);
        let mut identity = identity.clone();
        rank_table::complete(&mut identity, environment, deadline)?;
        let one_host = identity.is_on_one_host();
        let endpoint = match (&identity.endpoint, &identity.exchange) {
            (Some(hint), _) => hint.endpoint.clone(),
            (None, Some(_)) => Endpoint::from(SocketAddr::from((Ipv4Addr::LOCALHOST, 1))),
            (None, None) => return Err(FromEnvError::NoEndpoint),
        };
        let exchange = identity.exchange.clone();
        let exchange = exchange.filter(|_| identity.endpoint.is_none());
        if environment.read(&config::RENDEZVOUS)?.is_some() {
            check_reach(&endpoint, &identity)?;
        }
        let job_id = identity.job_id.clone().unwrap_or_default();
        let (secret, _) = job_secret(environment, identity.job_id.as_deref(), one_host, deadline)?;
        let own = identity.source.contract == Contract::Muster
            && environment.read(&config::LAUNCHER_PID)?.is_some();
        let served_by = if own {
            ServedBy::Launcher
        } else {
            ServedBy::Rank(Rank(0))
        };
        let options = Self {
            exchange,
            job_id,
            attempt: identity.attempt,
            source: identity.source.to_string(),
            local_rank: identity.local_rank,
            served_by,
            bring_up,
            ..Self::new(
                endpoint,
                secret,
                i64::from(identity.rank.0),
                i64::from(identity.world_size),
            )
        };
        options.with_settings(environment)
    }

    /// The same with the settings of the environment that say how a world works, not which one it is.
    ///
    /// # Errors
    /// A variable that is malformed.
    pub fn with_settings(self, environment: &Environment) -> Result<Self, FromEnvError> {
        let transport = match environment.read(&config::TRANSPORT)?.unwrap_or_default() {
            TransportChoice::Auto => Transport::Auto,
            TransportChoice::Shm => Transport::Shm,
            TransportChoice::Tcp => Transport::Tcp,
        };
        Ok(Self {
            deadline: environment
                .read(&config::DEADLINE_S)?
                .unwrap_or(self.deadline),
            transport,
            algo_table: Selection::of_environment(environment)?.table,
            dumps: environment.read(&config::DUMP_DIR)?,
            recording: environment.read(&config::RECORD_DIR)?,
            call_sites: match environment.read(&config::CALL_SITES)? {
                Some(CallSitesChoice::Off) => CallSites::Off,
                Some(CallSitesChoice::Strict) => CallSites::Strict,
                Some(CallSitesChoice::Habit) | None => CallSites::Habit,
            },
            region_bytes: environment
                .read(&config::REGION_BYTES)?
                .map_or(HEAP_BYTES_DEFAULT, index),
            listen_on: self.listening(environment)?,
            checksum: environment
                .read(&config::CHECKSUM)?
                .unwrap_or(self.checksum),
            bind: environment.read(&config::PIN)?.unwrap_or_default(),
            tcp_streams: environment
                .read(&config::TCP_STREAMS)?
                .unwrap_or(TCP_STREAMS_DEFAULT),
            kernels: environment.read(&config::ISA)?,
            peer_reads: match environment.read(&config::PEER_READS)? {
                Some(PeerReadsChoice::Never) => PeerReads::Never,
                Some(PeerReadsChoice::Always) => PeerReads::Always,
                Some(PeerReadsChoice::Auto) | None => PeerReads::Auto,
            },
            ..self
        })
    }

    /// The address of the interface that the user names, if he does.
    fn listening(&self, environment: &Environment) -> Result<Option<IpAddr>, FromEnvError> {
        let Some(names) = environment.read(&config::IFNAME)? else {
            return Ok(self.listen_on);
        };
        let is_v6 = self.endpoint.literal().is_some_and(|one| one.is_ipv6());
        Ok(Some(interface::address(&names, is_v6)?))
    }

    /// Starts the rendezvous that these options lead to, where this rank is to serve it; and tells the others where it is, where
    /// they do not know.
    ///
    /// # Errors
    /// [`BringUpError`], such as a port that is taken.
    pub fn serve(&mut self) -> Result<Option<Coordinator>, BringUpError> {
        if self.served_by != ServedBy::Rank(Rank(0)) || self.rank != 0 {
            return Ok(None);
        }
        if let Some(exchange) = self.take_exchange() {
            let own = self.listen_on.map_or_else(own_address, Ok)?;
            let coordinator = self.serve_at((own, 0).into())?;
            let deadline = Deadline::after(self.bring_up);
            self.endpoint = coordinator.address().into();
            exchange.tell(&self.endpoint, deadline)?;
            self.agree(deadline);
            return Ok(Some(coordinator));
        }
        // Where nobody can find out where to connect nobody needs to be waited for.
        let addresses = resolve(&self.endpoint, Deadline::after(self.bring_up))?;
        let loopback = (IpAddr::V4(Ipv4Addr::LOCALHOST), self.endpoint.port()).into();
        let bind = addresses.first().copied().unwrap_or(loopback);
        Ok(Some(self.serve_at(bind)?))
    }

    /// The same, once this rank has heard where the rendezvous is, where it does not know.
    pub(super) fn find(mut self) -> Result<Self, BringUpError> {
        let Some(exchange) = self.take_exchange() else {
            return Ok(self);
        };
        let deadline = Deadline::after(self.bring_up);
        let rank = Rank(u32::try_from(self.rank).unwrap_or(u32::MAX));
        self.endpoint = match exchange.ask(rank, deadline) {
            Err(ExchangeError::RankZero { waited_ms }) => {
                return Err(self.without_rank_0(waited_ms));
            }
            answer => answer?,
        };
        self.agree(deadline);
        Ok(self)
    }

    /// The way to find out where the ranks meet, if it is not known.
    fn take_exchange(&mut self) -> Option<Exchange> {
        let exchange = self.exchange.take()?;
        match AGREED.get() {
            Some(endpoint) => {
                self.endpoint = endpoint.clone();
                None
            }
            None => Some(exchange),
        }
    }

    /// Remembers where the ranks meet, and leaves the rest of the time to what comes then.
    fn agree(&mut self, deadline: Deadline) {
        // Only the first is remembered: no second one is asked for.
        let _ = AGREED.set(self.endpoint.clone());
        self.bring_up = deadline.left();
    }

    /// The error of a rank that has heard nothing of rank 0.
    fn without_rank_0(&self, waited_ms: u64) -> BringUpError {
        let absence = Box::new(Absence {
            world_size: u32::try_from(self.world_size).unwrap_or(0),
            waited_ms,
            missing: vec![Rank(0)],
            missing_more: 0,
            present: Vec::new(),
            seen: Vec::new(),
            late: None,
        });
        RendezvousError::Missing { absence }.into()
    }

    fn serve_at(&self, bind: SocketAddr) -> Result<Coordinator, RendezvousError> {
        let world_size = u32::try_from(self.world_size).unwrap_or(0);
        let mut options =
            CoordinatorOptions::new(self.secret.clone(), self.job_id.clone(), world_size);
        options.bind = bind;
        options.attempt = self.attempt;
        options.deadline = self.bring_up;
        options.arbiter = Some(crate::watch::arbiter::arbiter);
        Coordinator::start(options)
    }
}

/// Whether ranks on other hosts can get to the endpoint: not where it leads to whichever host asks for it.
fn check_reach(endpoint: &Endpoint, identity: &Identity) -> Result<(), FromEnvError> {
    let is_loopback = match endpoint.literal() {
        Some(address) => address.ip().is_loopback(),
        None => endpoint.host() == "localhost",
    };
    match identity.local_world_size {
        Some(here) if is_loopback && here < identity.world_size => Err(FromEnvError::Loopback {
            endpoint: endpoint.clone(),
            here,
            world_size: identity.world_size,
        }),
        _ => Ok(()),
    }
}

impl World {
    /// Joins the world that the environment describes: as started by muster, torchrun, Open MPI,
    /// MPICH, Intel MPI, Slurm, … (`docs/launch.md`). Rank 0 serves the rendezvous where no
    /// launcher of ours does.
    ///
    /// # Errors
    /// [`FromEnvError`]; among others where no launcher started this process: a world of one is
    /// never made in silence (see [`World::threads`] for one on purpose).
    pub fn from_env() -> Result<Self, FromEnvError> {
        Self::from_env_with(|_| {})
    }

    /// [`World::from_env`], with options that the program changes.
    ///
    /// # Errors
    /// As [`World::from_env`].
    pub fn from_env_with(change: impl FnOnce(&mut JoinOptions)) -> Result<Self, FromEnvError> {
        let environment = Environment::capture();
        let identity = match detect(&environment, None)? {
            Detected::Identity(identity) => identity,
            Detected::PerNode(node) => {
                return Err(FromEnvError::PerNode {
                    contract: node.source.contract,
                });
            }
            Detected::Standalone { .. } => return Err(FromEnvError::Standalone),
        };
        let mut options = JoinOptions::from_identity(&environment, &identity)?;
        change(&mut options);
        Ok(Self::serve_and_join(options)?)
    }

    /// [`World::join`], and serves the rendezvous where that is this rank's to do: until all others have left, where this rank
    /// leaves in good order.
    ///
    /// # Errors
    /// As [`World::join`], or where the rendezvous cannot be served.
    pub fn serve_and_join(options: JoinOptions) -> Result<Self, BringUpError> {
        let mut options = options;
        let coordinator = options.serve().inspect_err(BringUpError::tell)?;
        Self::join_served(options, coordinator)
    }

    /// [`World::serve_and_join`] for a rank 0 that chooses where the ranks meet: at a free port of `bind`. `tell` gets
    /// the address, and has to bring it to the other ranks.
    ///
    /// # Errors
    /// As [`World::serve_and_join`].
    pub fn serve_at_and_join(
        mut options: JoinOptions,
        bind: IpAddr,
        tell: impl FnOnce(SocketAddr),
    ) -> Result<Self, BringUpError> {
        options.served_by = ServedBy::Rank(Rank(0));
        options.exchange = None;
        let coordinator = options
            .serve_at((bind, 0).into())
            .map_err(BringUpError::from)
            .inspect_err(BringUpError::tell)?;
        let address = coordinator.address();
        options.endpoint = address.into();
        tell(address);
        Self::join_served(options, Some(coordinator))
    }

    fn join_served(
        options: JoinOptions,
        coordinator: Option<Coordinator>,
    ) -> Result<Self, BringUpError> {
        let world = Self::join(options);
        match (&world, coordinator) {
            (Ok(world), Some(coordinator)) => world.keep(coordinator),
            // Who comes a little later is to hear why there is no world, and not to look for this rank in vain.
            (Err(_), Some(coordinator)) => coordinator.finish(Deadline::after(LATE_RANKS)),
            (_, None) => {}
        }
        world
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::rendezvous::Secret;

    /// A rank of a world of four, two of which are on its host.
    fn identity(endpoint: &str) -> (Environment, Identity) {
        let environment = Environment::from_pairs([
            ("MUSTER_RANK", "0"),
            ("MUSTER_WORLD_SIZE", "4"),
            ("MUSTER_LOCAL_RANK", "0"),
            ("MUSTER_LOCAL_WORLD_SIZE", "2"),
            ("MUSTER_JOB_ID", "job"),
            ("MUSTER_RENDEZVOUS", endpoint),
        ]);
        let Ok(Detected::Identity(identity)) = detect(&environment, None) else {
            panic!("no identity");
        };
        (environment, identity)
    }

    #[test]
    fn ranks_of_several_hosts_cannot_meet_on_a_loopback_address() {
        for endpoint in ["127.0.0.1:46004", "[::1]:46004", "localhost:46004"] {
            let (environment, identity) = identity(endpoint);
            let error = JoinOptions::from_identity(&environment, &identity).unwrap_err();
            assert!(matches!(
                error,
                FromEnvError::Loopback {
                    here: 2,
                    world_size: 4,
                    ..
                }
            ));
            assert_eq!(error.exit_code(), 2);
        }
        let (_, identity) = identity("10.0.0.1:46004");
        let hint = identity.endpoint.clone().unwrap();
        assert!(check_reach(&hint.endpoint, &identity).is_ok());
    }

    #[test]
    fn where_the_name_of_the_rendezvous_does_not_resolve_rank_0_says_so() {
        let secret = Secret::random().unwrap();
        let endpoint: Endpoint = "no-such-host.invalid:46004".parse().unwrap();
        let mut options = JoinOptions {
            served_by: ServedBy::Rank(Rank(0)),
            bring_up: Duration::from_millis(300),
            ..JoinOptions::new(endpoint, secret, 0, 2)
        };
        let error = options.serve().unwrap_err();
        assert!(
            matches!(
                error,
                BringUpError::Rendezvous {
                    error: RendezvousError::NameUnresolved { .. },
                    ..
                }
            ),
            "{error}"
        );
    }
}
