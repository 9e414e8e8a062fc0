//! What a rank says about itself when it joins, and what every rank learns about every other.
//!
//! Plain data with limits; knows nothing of sockets. Who fills in a card and who reads it is no
//! business of the rendezvous.

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::error::RendezvousError;
use super::limits;
use super::text::Plain;

/// Which process: told apart from every other one, of any host and any container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    /// The boot of its kernel, as a number; 0 where unknown.
    pub boot: u64,
    /// The inode of its PID namespace; 0 where unknown.
    pub namespace: u64,
    /// Its number in that namespace.
    pub pid: u32,
    /// When it started, in hundredths of a second since the boot; 0 where unknown.
    pub started_ticks: u64,
}

/// What peers need to know in order to reach a rank. The roster holds one a rank, in rank order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card {
    /// The rank's process.
    pub process: ProcessId,
    /// The container that it runs in, for messages. Empty where there is none, or it is unknown.
    pub container: String,
    /// Host name, for messages.
    pub host: String,
    /// Opaque identity of the host: equal exactly where two ranks may share memory (boot id and
    /// namespaces). Empty where unknown.
    pub host_identity: String,
    /// The rank's number among those of its host, where the launch contract gives one.
    pub local_rank: Option<u32>,
    /// Where local peers reach the rank's unix socket. Empty where there is none.
    pub unix_address: String,
    /// Where remote peers reach the rank's data socket.
    pub data_address: Option<SocketAddr>,
    /// Whatever else the runtime wants its peers to know; at most
    /// [`limits::CARD_PAYLOAD_BYTES_MAX`].
    #[serde(with = "super::blob")]
    pub payload: Vec<u8>,
}

impl Card {
    /// Checks every limit.
    ///
    /// # Errors
    /// [`RendezvousError::TooLarge`] naming the field that is too long.
    pub fn check(&self) -> Result<(), RendezvousError> {
        within("host name", self.host.len(), limits::NAME_BYTES_MAX)?;
        within(
            "container name",
            self.container.len(),
            limits::NAME_BYTES_MAX,
        )?;
        within(
            "host identity",
            self.host_identity.len(),
            limits::NAME_BYTES_MAX,
        )?;
        within(
            "unix address",
            self.unix_address.len(),
            limits::NAME_BYTES_MAX,
        )?;
        within(
            "card payload",
            self.payload.len(),
            limits::CARD_PAYLOAD_BYTES_MAX,
        )
    }
}

/// What a rank says in order to join. The numbers are as the launch contract gave them, so that
/// nonsense can be reported as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The job; at most [`limits::JOB_ID_BYTES_MAX`] bytes. Not a secret.
    pub job_id: String,
    /// The attempt of the job (restart count).
    pub attempt: u32,
    /// The rank that is claimed.
    pub rank: i64,
    /// The world size that is claimed.
    pub world_size: i64,
    /// Which launch contract and variables gave the numbers, for messages: `SLURM_PROCID`.
    pub source: String,
    /// What was built: see [`build_id`](super::build_id).
    pub build: String,
    /// What the others learn.
    pub card: Card,
}

impl Hello {
    /// Checks every limit.
    ///
    /// # Errors
    /// [`RendezvousError::TooLarge`] naming the field that is too long.
    pub fn check(&self) -> Result<(), RendezvousError> {
        within("job id", self.job_id.len(), limits::JOB_ID_BYTES_MAX)?;
        within(
            "source of the rank",
            self.source.len(),
            limits::NAME_BYTES_MAX,
        )?;
        within("build name", self.build.len(), limits::NAME_BYTES_MAX)?;
        self.card.check()
    }
}

/// Refuses what is longer than its limit.
pub(super) fn within(what: &'static str, bytes: usize, max: usize) -> Result<(), RendezvousError> {
    if bytes <= max {
        return Ok(());
    }
    Err(RendezvousError::TooLarge {
        what: what.to_owned(),
        bytes: bytes as u64,
        max: max as u64,
    })
}

/// A process that claims to be some rank: what both sides of a conflict are told about each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claimant {
    /// The rank it claims, as its launch contract gave it.
    pub rank: i64,
    /// Its host name.
    pub host: String,
    /// Its process id there.
    pub pid: u32,
    /// Which launch contract and variables gave it its numbers.
    pub source: String,
}

impl Claimant {
    /// The process alone: `node1 pid 4711`.
    #[must_use]
    pub fn process(&self) -> String {
        format!("{} pid {}", Plain(&self.host), self.pid)
    }
}

impl fmt::Display for Claimant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.process())?;
        if self.source.is_empty() {
            return Ok(());
        }
        write!(f, " (numbers from {})", Plain(&self.source))
    }
}

/// Why a rank is no longer there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum DownReason {
    /// Its connection was closed without a goodbye, and its process goes on.
    Deserted {
        /// The program that the process runs.
        program: String,
    },
    /// Its connection was reset, and its process lives: it was not the rank that ended it.
    Disconnected {
        /// What the system said.
        why: String,
    },
    /// Its process has ended, and nobody saw how.
    Ended,
    /// Its process ended with this code and without saying goodbye; zero is no success either.
    Exited {
        /// The exit code.
        code: i32,
    },
    /// Its connection was closed without a goodbye, and nobody knows more.
    HungUp,
    /// A signal ended its process.
    Killed {
        /// The signal's number.
        signal: i32,
    },
    /// The kernel killed it for want of memory.
    OutOfMemory {
        /// What says so: `memory.events: oom_kill +1, limit 256 MiB`.
        evidence: String,
    },
    /// It takes nothing off its connection.
    NotReading {
        /// Bytes that wait for it.
        bytes_queued: u64,
    },
    /// It panicked, with this message.
    Panicked {
        /// Message and place.
        text: String,
    },
    /// It sent what no rank sends.
    ProtocolBroken {
        /// What was wrong with it.
        what: String,
    },
    /// The connection to it broke; whether its process lives is not known.
    Unreachable {
        /// What the system said.
        why: String,
    },
}

impl fmt::Display for DownReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deserted { program } => write!(
                f,
                "left the world without a goodbye, and its process goes on (it runs {})",
                Plain(program)
            ),
            Self::Disconnected { why } => write!(
                f,
                "lost its connection to the rendezvous ({}), and its process lives",
                Plain(why)
            ),
            Self::Ended => f.write_str("ended, and nobody saw how"),
            Self::Exited { code } => write!(f, "exited with code {code}"),
            Self::HungUp => f.write_str("closed its connection without a goodbye"),
            Self::Killed { signal } => write!(f, "was killed by signal {signal}"),
            Self::NotReading { bytes_queued } => {
                write!(f, "does not read: {bytes_queued} bytes wait for it")
            }
            Self::OutOfMemory { evidence } => write!(
                f,
                "was killed by the kernel for want of memory ({})",
                Plain(evidence)
            ),
            Self::Panicked { text } => write!(f, "panicked: {}", Plain(text)),
            Self::ProtocolBroken { what } => write!(f, "broke the protocol: {}", Plain(what)),
            Self::Unreachable { why } => write!(f, "cannot be reached: {}", Plain(why)),
        }
    }
}

/// A duration in whole milliseconds, as it travels and as messages show it.
pub(super) fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
