//! The rank table of HCCL: a file that lists all servers, devices and ranks of a job.
//!
//! A table is checked in full before anything is believed, and all that is wrong with it is told at
//! once, each with its place in the file. Then it completes what the variables leave open: on which
//! server a rank is, and where rank 0 is. Versions 1.0 and 1.2 are read, the ones that list servers.
//!
//! - `TABLE-1`: a [`RankTable`] that exists has ranks 0 to W-1, each once.
//! - `TABLE-2`: a table never replaces what a launch contract says; what differs is refused.

mod audit;
mod legacy;
mod ranks;
mod servers;
mod write;

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use serde_json::Value;

pub use audit::{Audit, AuditServer, Version};
pub use write::{ServerSketch, Sketch, SketchError};

use super::endpoint::{self, Place};
use super::error::LaunchError;
use super::exchange;
use super::identity::Identity;
use super::reader::host;
use crate::config::Environment;
use crate::sync::{Clock, Deadline};
use crate::types::Rank;

/// Largest table that is read: some 500 bytes for each of 128 K ranks.
pub const TABLE_BYTES_MAX: u64 = 64 << 20;
/// Most findings that are told of one table.
pub const FINDINGS_MAX: usize = 50;
/// Pause between two looks at a table that is not complete yet.
const PAUSE: Duration = Duration::from_millis(200);

/// A rank's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seat {
    server: u32,
    device: u32,
}

/// A server of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Server {
    host: Option<String>,
    ranks: u32,
}

/// A checked rank table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankTable {
    servers: Vec<Server>,
    seats: Vec<Seat>,
    digest: String,
}

/// One thing that is wrong with a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// JSON pointer to the place.
    pub pointer: String,
    /// What is there, and what should be.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.pointer.is_empty() {
            "the table"
        } else {
            &self.pointer
        };
        write!(f, "{place}: {}", self.what)
    }
}

/// Why a rank table cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RankTableError {
    /// The table is fine and says something else than the launch contract.
    #[error("{what} is {mine} by {source_name} where the rank table {} says {theirs}", path.display())]
    Differs {
        /// The number in question.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the contract says.
        mine: u32,
        /// What the table says.
        theirs: u32,
        /// The contract.
        source_name: &'static str,
    },
    /// The table breaks rules.
    #[error("the rank table {} is wrong: {}", path.display(), join(findings))]
    Findings {
        /// The file.
        path: PathBuf,
        /// All that was found, up to [`FINDINGS_MAX`].
        findings: Vec<Finding>,
    },
    /// A variable beside it is malformed.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The table was still being made when time was up.
    #[error("the rank table {} still has status {status:?} after {seconds:.1} s", path.display())]
    NotReady {
        /// The file.
        path: PathBuf,
        /// Its status.
        status: String,
        /// How long it was waited for.
        seconds: f64,
    },
    /// The file cannot be read.
    #[error("cannot read the rank table {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

fn join(findings: &[Finding]) -> String {
    let texts: Vec<String> = findings.iter().map(ToString::to_string).collect();
    texts.join("; ")
}

/// What one look at a table gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// The table is complete and right.
    Ready(RankTable),
    /// The table is still being made; its status.
    NotReady(String),
}

/// Completes `identity` by the file that `RANK_TABLE_FILE` names; without it nothing happens.
///
/// Waits until `deadline` for a table that is still being made.
///
/// # Errors
/// If the table cannot be read, is not completed in time, is wrong, or contradicts the identity.
pub fn complete(
    identity: &mut Identity,
    environment: &Environment,
    deadline: Deadline,
) -> Result<(), RankTableError> {
    let path = environment
        .text("RANK_TABLE_FILE")
        .map_err(LaunchError::from)?;
    let Some(path) = path.map(Path::new) else {
        return Ok(());
    };
    let table = load(path, deadline)?;
    table.complete(identity, environment, path)
}

/// Reads a table, waiting for it to be completed.
///
/// # Errors
/// If the file cannot be read, is wrong, or is not completed before `deadline`.
pub fn load(path: &Path, deadline: Deadline) -> Result<RankTable, RankTableError> {
    loop {
        let text = read(path)?;
        let look = look(&text).map_err(|findings| RankTableError::Findings {
            path: path.to_owned(),
            findings,
        })?;
        let status = match look {
            Look::Ready(table) => return Ok(table),
            Look::NotReady(status) => status,
        };
        if deadline.passed() {
            return Err(RankTableError::NotReady {
                path: path.to_owned(),
                status,
                seconds: deadline.budget().as_secs_f64(),
            });
        }
        Clock::pause(PAUSE.min(deadline.left()));
    }
}

/// The text of a table.
///
/// # Errors
/// If the file cannot be read, is no regular file, no text, or larger than [`TABLE_BYTES_MAX`].
pub fn read(path: &Path) -> Result<String, RankTableError> {
    let unreadable = |source| RankTableError::Unreadable {
        path: path.to_owned(),
        source,
    };
    // Without NONBLOCK a pipe of that name would be waited for.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let opened = rustix::fs::open(path, flags, Mode::empty());
    let file = std::fs::File::from(opened.map_err(|errno| unreadable(errno.into()))?);
    if !file.metadata().map_err(unreadable)?.is_file() {
        return Err(unreadable(std::io::Error::other("it is no regular file")));
    }
    let mut text = String::new();
    let bytes = file
        .take(TABLE_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .map_err(unreadable)?;
    if bytes as u64 > TABLE_BYTES_MAX {
        let what = format!("it is larger than {TABLE_BYTES_MAX} bytes");
        return Err(unreadable(std::io::Error::other(what)));
    }
    Ok(text)
}

/// Goes through the text of a table. Of one that is still being made nothing but that is told.
#[must_use]
pub fn audit(text: &str) -> Audit {
    let mut look = audit::Look::default();
    let table: Value = match serde_json::from_str(text) {
        Ok(table) => table,
        Err(error) => {
            look.find("", format!("is no JSON: {error}"));
            return look.audit;
        }
    };
    let Some(table) = table.as_object() else {
        look.find("", "is no JSON object".to_owned());
        return look.audit;
    };
    let version = look.version(table);
    look.audit.version = version;
    if !look.status(table, version) {
        return look.audit;
    }
    match version {
        Some(Version::Legacy) => legacy::groups(&mut look, table),
        Some(Version::V1_0) => servers::list(&mut look, table, false),
        Some(Version::V1_2) => servers::list(&mut look, table, true),
        Some(Version::V2_0) => ranks::list(&mut look, table),
        None => {}
    }
    look.audit
}

/// Reads the text of a table.
///
/// # Errors
/// All that is wrong with it, up to [`FINDINGS_MAX`].
pub fn look(text: &str) -> Result<Look, Vec<Finding>> {
    let audit = audit(text);
    if !audit.findings.is_empty() {
        return Err(audit.findings);
    }
    if !audit.completed {
        return Ok(Look::NotReady("initializing".to_owned()));
    }
    if !matches!(audit.version, Some(Version::V1_0 | Version::V1_2)) {
        let found = audit.version.map(|version| version.to_string());
        return Err(vec![Finding {
            pointer: "/version".to_owned(),
            what: format!(
                "is {}; a rank joins by tables of version 1.0 or 1.2 only",
                found.unwrap_or_default()
            ),
        }]);
    }
    // The audit has shown that ranks are 0 to W-1, each once.
    let mut seats: BTreeMap<u32, Seat> = BTreeMap::new();
    let mut servers = Vec::new();
    for (number, server) in (0_u32..).zip(&audit.servers) {
        for (rank, device) in server.seats.iter().copied() {
            let server = number;
            seats.insert(rank, Seat { server, device });
        }
        servers.push(Server {
            host: host(&server.host),
            ranks: u32::try_from(server.seats.len()).unwrap_or(u32::MAX),
        });
    }
    let digest = blake3::hash(text.as_bytes()).to_hex()[..16].to_owned();
    Ok(Look::Ready(RankTable {
        servers,
        seats: seats.into_values().collect(),
        digest,
    }))
}

impl RankTable {
    /// Number of ranks.
    #[must_use]
    pub fn world_size(&self) -> u32 {
        u32::try_from(self.seats.len()).unwrap_or(u32::MAX)
    }

    /// Physical device of a rank.
    #[must_use]
    pub fn device_of(&self, rank: Rank) -> Option<u32> {
        self.seats.get(rank.index()).map(|seat| seat.device)
    }

    /// Name or address of the server that a rank is on, where the table gives one.
    #[must_use]
    pub fn host_of(&self, rank: Rank) -> Option<&str> {
        self.server_of(rank)?.1.host.as_deref()
    }

    fn server_of(&self, rank: Rank) -> Option<(u32, &Server)> {
        let server = self.seats.get(rank.index())?.server;
        Some((server, self.servers.get(server as usize)?))
    }

    /// Fills in what the contract left open, and refuses what differs (`TABLE-2`).
    fn complete(
        &self,
        identity: &mut Identity,
        environment: &Environment,
        path: &Path,
    ) -> Result<(), RankTableError> {
        let source_name = identity.source.contract.name();
        let same = |what, mine: u32, theirs: u32| {
            if mine == theirs {
                return Ok(());
            }
            Err(RankTableError::Differs {
                what,
                path: path.to_owned(),
                mine,
                theirs,
                source_name,
            })
        };
        same("world size", identity.world_size, self.world_size())?;
        let Some((node, server)) = self.server_of(identity.rank) else {
            return Ok(());
        };
        if let Some(here) = identity.local_world_size {
            same("local world size", here, server.ranks)?;
        } else {
            // Until here a device id stood for the local rank; ranks of a server are contiguous.
            let before = self.seats.iter().take_while(|seat| seat.server != node);
            let first = u32::try_from(before.count()).unwrap_or(u32::MAX);
            identity.local_rank = identity.rank.0.checked_sub(first);
            identity.local_world_size = Some(server.ranks);
            identity.node_rank = Some(node);
            identity.nnodes = u32::try_from(self.servers.len()).ok();
        }
        if identity.job_id.is_none() {
            identity.job_id = Some(format!("ranktable:{}", self.digest));
        }
        if identity.endpoint.is_some() {
            return Ok(());
        }
        let host = self.host_of(Rank(0)).map(str::to_owned);
        let place = Place {
            host: host.map(|host| (host, "server of rank 0 in the rank table")),
            taken: None,
        };
        let on_one_host = identity.is_on_one_host();
        let job_id = identity.job_id.as_deref();
        let (hint, remark) =
            endpoint::choose(environment, place, on_one_host, job_id, identity.attempt)?;
        if hint.is_some() {
            identity
                .notes
                .retain(|note| !endpoint::is_remark(note) && !exchange::is_remark(note));
        }
        identity.endpoint = hint;
        identity.notes.extend(remark);
        Ok(())
    }
}
