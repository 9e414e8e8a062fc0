//! Everything that can go wrong while ranks find each other, as data: it travels in frames, so that
//! every rank reports the same cause in the same words.
//!
//! Messages name what was seen and what was expected; advice is [`RendezvousError::help`].

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::card::{Claimant, DownReason};
use super::endpoint::Endpoint;
use super::presence::Absence;
use super::text::{Claims, Late, Ranks, Seconds, Short, at, held};
use crate::host_load::HostLoad;
use crate::types::Rank;

/// Exit codes of the classes below; the table of all codes is part of the tool's documentation.
mod exit {
    pub(super) const MISSING: u8 = 10;
    pub(super) const CONFLICT: u8 = 11;
    pub(super) const UNREACHABLE: u8 = 12;
    pub(super) const PEER_DEAD: u8 = 20;
    pub(super) const PEER_FROZEN: u8 = 21;
    pub(super) const NOT_JOINED: u8 = 22;
    pub(super) const LINK: u8 = 23;
    pub(super) const RESOURCE: u8 = 60;
    pub(super) const INTERNAL: u8 = 70;
}

/// Why ranks did not find each other, or lost each other in a round over the control plane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum RendezvousError {
    /// The joiner belongs to another attempt of the job (a leftover of a restart).
    #[error(
        "attempt {given} of job {:?} tried to join attempt {wanted}",
        Short(job_id)
    )]
    Attempt {
        /// The job.
        job_id: String,
        /// The joiner's attempt.
        given: u32,
        /// The coordinator's attempt.
        wanted: u32,
    },
    /// The coordinator cannot listen there.
    #[error("cannot listen on {address}: {why}")]
    Bind {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the system said.
        why: String,
    },
    /// Ranks run different builds.
    #[error("build: rank {} on {claimant} runs {given:?}, the coordinator runs {wanted:?}", claimant.rank)]
    Build {
        /// The joiner.
        claimant: Box<Claimant>,
        /// The joiner's build.
        given: String,
        /// The coordinator's build.
        wanted: String,
    },
    /// The world is complete, and somebody else claims one of its ranks.
    #[error(
        "the world of {world_size} ranks is complete since {} and rank {} is {}; {} came too late",
        Seconds(*since_ms), late.rank, held(holder.as_deref()), late
    )]
    Complete {
        /// Ranks of the world.
        world_size: u32,
        /// How long the world had been complete.
        since_ms: u64,
        /// Who holds the rank; nobody if it has left or does not exist.
        holder: Option<Box<Claimant>>,
        /// Who came too late.
        late: Box<Claimant>,
    },
    /// The coordinator went away: its process ended, or the connection to it broke.
    #[error("the coordinator at {endpoint} went away after {}: {why}", Seconds(*after_ms))]
    CoordinatorGone {
        /// Where it was.
        endpoint: Endpoint,
        /// How long it had been there for this rank.
        after_ms: u64,
        /// What was seen.
        why: String,
    },
    /// The process may not open enough descriptors for this world.
    #[error(
        "{limit} descriptors are allowed, {in_use} are in use, and a world of {world_size} ranks \
         needs {need} more"
    )]
    Descriptors {
        /// The soft limit.
        limit: u64,
        /// Descriptors in use.
        in_use: u64,
        /// Descriptors that the coordinator needs besides.
        need: u64,
        /// Ranks of the world.
        world_size: u32,
    },
    /// Two processes claim the same rank.
    #[error("rank {} is claimed by {first} and by {second}", first.rank)]
    Duplicate {
        /// Who came first.
        first: Box<Claimant>,
        /// Who came second.
        second: Box<Claimant>,
    },
    /// The joiner belongs to another job.
    #[error(
        "a rank of job {:?} tried to join job {:?}",
        Short(given),
        Short(wanted)
    )]
    ForeignJob {
        /// The joiner's job.
        given: String,
        /// The coordinator's job.
        wanted: String,
    },
    /// What answers there does not know the secret of the job.
    #[error("what answers on {endpoint} cannot prove that it knows the secret of this job")]
    Impostor {
        /// Where it was.
        endpoint: Endpoint,
    },
    /// Two ranks of one host have the same local rank.
    #[error(
        "local rank {local_rank} of host {} is claimed by rank {} ({first}) and by rank {} ({second})",
        Short(host), first.rank, second.rank
    )]
    LocalRank {
        /// The local rank.
        local_rank: u32,
        /// The host's name.
        host: String,
        /// Who came first.
        first: Box<Claimant>,
        /// Who came second.
        second: Box<Claimant>,
    },
    /// The process of a rank that the others wait for is there and does not run.
    #[error("rank {rank}{} does not run: {how}", at(host, *pid))]
    RankFrozen {
        /// The rank.
        rank: Rank,
        /// Its host name.
        host: String,
        /// Its process id there.
        pid: u32,
        /// What keeps it from running.
        how: String,
        /// How long the others waited, in milliseconds.
        waited_ms: u64,
    },
    /// Ranks did not arrive in time.
    #[error("{absence}")]
    Missing {
        /// Who is missing and who is there.
        absence: Box<Absence>,
    },
    /// A host name does not resolve.
    #[error("name {host:?} does not resolve ({}, {tries} tries): {why}", Seconds(*waited_ms))]
    NameUnresolved {
        /// The name.
        host: String,
        /// What the resolver said last.
        why: String,
        /// How long it was tried.
        waited_ms: u64,
        /// How often.
        tries: u32,
    },
    /// Something else answers there.
    #[error(
        "what answers on {endpoint} is no coordinator: it said {:?}",
        Short(said)
    )]
    NotACoordinator {
        /// Where it was.
        endpoint: Endpoint,
        /// The beginning of what it said.
        said: String,
    },
    /// The coordinator's port belongs to somebody else.
    #[error("{address} is already bound by {}", owner.as_deref().unwrap_or("a process that this user cannot see"))]
    PortTaken {
        /// The address that was asked for.
        address: SocketAddr,
        /// Process id and command line of its owner, where they can be seen.
        owner: Option<String>,
    },
    /// The joiner speaks another version of the control protocol.
    #[error(
        "protocol: rank {} on {claimant} speaks version {given} ({build:?}), the coordinator \
         speaks version {wanted}", claimant.rank
    )]
    Protocol {
        /// The joiner.
        claimant: Box<Claimant>,
        /// The joiner's version.
        given: u32,
        /// The coordinator's version.
        wanted: u32,
        /// The joiner's build.
        build: String,
    },
    /// The other side sent what the protocol does not know.
    #[error("{who} broke the control protocol: {}", Short(what))]
    ProtocolBroken {
        /// Who did.
        who: String,
        /// What was wrong.
        what: String,
    },
    /// A rank went down.
    #[error("rank {rank}{} {reason}", at(host, *pid))]
    RankDown {
        /// The rank.
        rank: Rank,
        /// Its host; empty if it never joined.
        host: String,
        /// Its process id there; zero if it never joined.
        pid: u32,
        /// Why it is no longer there.
        reason: DownReason,
    },
    /// A rank left in good order, and others need it.
    #[error("rank {rank} has left the job")]
    RankLeft {
        /// The rank.
        rank: Rank,
    },
    /// A rank that this world does not have.
    #[error(
        "rank {} is outside 0..{world_size}: {claimant}", claimant.rank
    )]
    RankRange {
        /// Who claims it, and where the number came from.
        claimant: Box<Claimant>,
        /// Ranks of the world.
        world_size: u32,
    },
    /// The system refused something that this process needs.
    #[error("{what}: {why}")]
    Resource {
        /// What was needed.
        what: String,
        /// What the system said.
        why: String,
    },
    /// A rank cannot make the shared memory of its host.
    #[error("rank {rank} cannot make the shared memory of its host: {why}")]
    SharedMemory {
        /// The rank.
        rank: Rank,
        /// Its host.
        host: String,
        /// Its process.
        pid: u32,
        /// What the system said.
        why: String,
    },
    /// A rank did not contribute to a round in time.
    #[error(
        "round {round:?} over the control plane: rank {} of {world_size} missing after {}{}",
        Ranks(missing), Seconds(*waited_ms), Late(*late)
    )]
    RoundMissing {
        /// The round.
        round: String,
        /// Who did not contribute.
        missing: Vec<Rank>,
        /// Ranks of the world.
        world_size: u32,
        /// How long it was waited for, in milliseconds.
        waited_ms: u64,
        /// As in [`Absence::late`].
        late: Option<HostLoad>,
    },
    /// A round was used in a way that it cannot be.
    #[error("round {round:?} over the control plane: {why}")]
    RoundMisused {
        /// The round.
        round: String,
        /// What is wrong.
        why: String,
    },
    /// The session or the coordinator was closed by its own process.
    #[error("this session is closed")]
    SessionClosed,
    /// The coordinator accepts connections and says nothing.
    #[error("the coordinator at {endpoint} accepts TCP but does not answer ({})", Seconds(*waited_ms))]
    Silent {
        /// Where it is.
        endpoint: Endpoint,
        /// How long it was silent.
        waited_ms: u64,
    },
    /// Something is longer than its limit.
    #[error("{what} of {bytes} bytes exceeds the limit of {max} bytes")]
    TooLarge {
        /// What it is.
        what: String,
        /// How long it is.
        bytes: u64,
        /// How long it may be.
        max: u64,
    },
    /// Nobody listens there, or the way there is broken.
    #[error("cannot reach {endpoint} ({}, {tries} tries): {why}", Seconds(*waited_ms))]
    Unreachable {
        /// Where to.
        endpoint: Endpoint,
        /// What the system said last.
        why: String,
        /// How long it was tried.
        waited_ms: u64,
        /// How often.
        tries: u32,
    },
    /// The coordinator does not accept the secret of this joiner.
    #[error(
        "the coordinator at {endpoint} serves job {:?} but with another secret",
        Short(job_id)
    )]
    WrongSecret {
        /// Where it is.
        endpoint: Endpoint,
        /// The job.
        job_id: String,
    },
    /// A world of no rank, or of more than one coordinator serves.
    #[error("a world of {given} ranks; allowed are 1 to {max}")]
    WorldRange {
        /// The size that was asked for.
        given: u32,
        /// The largest that is served.
        max: u32,
    },
    /// Ranks disagree on the size of the world.
    #[error("world size: {}", Claims(claims))]
    WorldSize {
        /// Who says what; what the coordinator was told comes first.
        claims: Vec<WorldClaim>,
    },
}

/// One opinion about the size of the world, and who holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorldClaim {
    /// The size, as the launch contract gave it.
    pub world_size: i64,
    /// The ranks that say so; empty for the coordinator's own.
    pub ranks: Vec<Rank>,
    /// Where they have it from.
    pub source: String,
}

impl RendezvousError {
    /// Whether ranks are missing that may only be late.
    #[must_use]
    pub fn is_late(&self) -> bool {
        matches!(self, Self::Missing { absence } if absence.late.is_some())
            || matches!(self, Self::RoundMissing { late: Some(_), .. })
    }

    /// The exit code of the error's class: 10 missing, 11 conflict, 12 unreachable, 20 dead peer, 21 frozen peer,
    /// 60 resource, 70 misuse of this crate.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            error if error.is_late() => exit::RESOURCE,
            Self::Missing { .. } | Self::RoundMissing { .. } => exit::MISSING,
            Self::Attempt { .. }
            | Self::Build { .. }
            | Self::Complete { .. }
            | Self::Duplicate { .. }
            | Self::ForeignJob { .. }
            | Self::Impostor { .. }
            | Self::LocalRank { .. }
            | Self::Protocol { .. }
            | Self::ProtocolBroken { .. }
            | Self::RankRange { .. }
            | Self::WorldRange { .. }
            | Self::WorldSize { .. }
            | Self::WrongSecret { .. } => exit::CONFLICT,
            Self::Bind { .. }
            | Self::NameUnresolved { .. }
            | Self::NotACoordinator { .. }
            | Self::PortTaken { .. }
            | Self::Silent { .. }
            | Self::Unreachable { .. } => exit::UNREACHABLE,
            Self::CoordinatorGone { .. } | Self::RankLeft { .. } => exit::PEER_DEAD,
            Self::RankDown { reason, .. } => match reason {
                DownReason::Ended
                | DownReason::Exited { .. }
                | DownReason::HungUp
                | DownReason::Killed { .. }
                | DownReason::OutOfMemory { .. }
                | DownReason::Panicked { .. } => exit::PEER_DEAD,
                // Its process lives, or may live.
                DownReason::Deserted { .. } => exit::NOT_JOINED,
                DownReason::Disconnected { .. }
                | DownReason::NotReading { .. }
                | DownReason::Unreachable { .. } => exit::LINK,
                DownReason::ProtocolBroken { .. } => exit::INTERNAL,
            },
            Self::RankFrozen { .. } => exit::PEER_FROZEN,
            Self::Descriptors { .. }
            | Self::Resource { .. }
            | Self::SharedMemory { .. }
            | Self::TooLarge { .. } => exit::RESOURCE,
            Self::RoundMisused { .. } | Self::SessionClosed => exit::INTERNAL,
        }
    }

    /// What to do about it, in one sentence.
    #[must_use]
    pub fn help(&self) -> &'static str {
        match self {
            Self::Attempt { .. } => {
                "end what is left of the earlier attempt, or give the restart a port of its own"
            }
            Self::Bind { .. } => "give an address of this host, or port 0 for any free one",
            Self::Build { .. } | Self::Protocol { .. } => "start every rank from the same build",
            Self::Complete { .. } => "give the second job a job id and a port of its own",
            Self::CoordinatorGone { .. } => {
                "look at the process that ran the coordinator: the launcher, or rank 0 where there was none"
            }
            Self::Descriptors { .. } => "raise the limit: ulimit -n",
            Self::Duplicate { .. } => {
                "two processes have the same rank number: look at where each got it from"
            }
            Self::ForeignJob { .. } => "two jobs share an endpoint: give each a port of its own",
            Self::Impostor { .. } | Self::WrongSecret { .. } => {
                "give every rank of the job the same secret, by the launcher or by a file"
            }
            Self::LocalRank { .. } => {
                "local ranks count the processes of one host from 0: look at where each got it from"
            }
            error if error.is_late() => {
                "give the ranks more time, or start fewer programs on the host"
            }
            Self::Missing { .. } => {
                "look at whether the missing ranks started and what they said last, or give them more time"
            }
            Self::NameUnresolved { .. } => "look at the name, or give an address instead",
            Self::NotACoordinator { .. } => "another service has this port: choose another one",
            Self::PortTaken { .. } => {
                "choose another port, or 0 for any free one, or end its owner"
            }
            Self::ProtocolBroken { .. } => {
                "run it again; if it happens again, this is a fault worth reporting"
            }
            Self::RankDown { .. } => "look at what that rank said last",
            Self::RankFrozen { .. } => {
                "continue the process with `kill -CONT`, or see who stopped it"
            }
            Self::RankLeft { .. } => {
                "ranks disagree on when the job is over: look at why that one left first"
            }
            Self::RankRange { .. } => {
                "rank numbers run from 0 to the world size less one: look at the variable named"
            }
            Self::Resource { .. } => "look at the limits of this process and this host",
            Self::SharedMemory { .. } => {
                "raise the limits on address space and file size (ulimit -v, -f)"
            }
            Self::RoundMissing { .. } => {
                "the missing ranks are alive and have not called: look at what they are doing"
            }
            Self::RoundMisused { .. } | Self::SessionClosed => {
                "this is a mistake in the calling program"
            }
            Self::Silent { .. } => {
                "the process that runs the coordinator is stopped or overloaded: look at its state"
            }
            Self::TooLarge { .. } => "send less, or in pieces",
            Self::Unreachable { .. } => {
                "look at whether the coordinator runs and listens there; a loopback address reaches its own host only"
            }
            Self::WorldRange { .. } => "give at least one rank",
            Self::WorldSize { .. } => {
                "ranks were started with different world sizes: look at the sources named"
            }
        }
    }
}
