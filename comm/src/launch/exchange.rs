//! Bringing the meeting place from rank 0 to the others by the launcher's own means, where it is not known otherwise.
//!
//! [`Exchange`] is what the environment shows of these means; [`Exchange::tell`] and [`Exchange::ask`] use them, once a rank:
//! PMI-1 then ends, and a PMIx server would give the old place to a second process that asks early.
//! It must not know how ranks meet then.
//!
//! - `EXCHANGE-1`: nothing here waits longer than the deadline that it is given.
//! - `EXCHANGE-2`: a launcher may say anything: it leads to an endpoint or to an error that shows what was said.

mod pmi;
mod pmix;

use std::fmt;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;

use super::contract::Contract;
use super::error::LaunchError;
use super::reader::small;
use crate::config::{ConfigError, Environment, shown};
use crate::rendezvous::{Endpoint, local_v4, route_to};
use crate::sync::Deadline;
use crate::types::Rank;

/// Addresses of documentation, which the default route leads to; nothing is sent there.
const ANYWHERE: [&str; 2] = ["192.0.2.1:9", "[2001:db8::1]:9"];

/// Means of a launcher by which its processes tell each other where to meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// The line protocol PMI-1 over an inherited descriptor (`PMI_FD`).
    Pmi {
        /// The descriptor.
        descriptor: i32,
    },
    /// The launcher's PMIx server, through its client library.
    Pmix {
        /// Folders whose `lib` may hold the library, as the environment shows them.
        prefixes: Vec<PathBuf>,
        /// Processes above this one: the launcher's own may have loaded the library.
        ancestors: Vec<u32>,
    },
}

impl Exchange {
    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Pmi { .. } => "PMI-1",
            Self::Pmix { .. } => "PMIx",
        }
    }

    /// Tells the others where to meet; what rank 0 does. With PMI-1 it returns when all ranks have asked.
    ///
    /// # Errors
    /// [`ExchangeError`].
    pub fn tell(&self, endpoint: &Endpoint, deadline: Deadline) -> Result<(), ExchangeError> {
        self.pass(Rank(0), Some(endpoint), deadline).map(|_| ())
    }

    /// Hears from rank 0 where to meet; what this `rank` does, which is another one.
    ///
    /// # Errors
    /// [`ExchangeError`].
    pub fn ask(&self, rank: Rank, deadline: Deadline) -> Result<Endpoint, ExchangeError> {
        let said = self.pass(rank, None, deadline)?;
        said.parse().map_err(|_| ExchangeError::Place {
            way: self.name(),
            said: shown(&said),
        })
    }

    fn pass(
        &self,
        rank: Rank,
        endpoint: Option<&Endpoint>,
        deadline: Deadline,
    ) -> Result<String, ExchangeError> {
        let endpoint = endpoint.map(ToString::to_string);
        match self {
            Self::Pmi { descriptor } => {
                let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
                if let Some(library) = mapped(&maps, "libmpi").next() {
                    let library = library.display().to_string();
                    return Err(ExchangeError::Mpi { library });
                }
                let descriptor = pmix::duplicate(*descriptor)?;
                pmi::exchange(descriptor, endpoint.as_deref(), deadline)
            }
            Self::Pmix {
                prefixes,
                ancestors,
            } => pmix::exchange(
                &libraries(prefixes, ancestors),
                rank,
                endpoint.as_deref(),
                deadline,
            ),
        }
    }
}

/// `by PMI-1 of the launcher`
impl fmt::Display for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "by {} of the launcher", self.name())
    }
}

/// Why the launcher did not bring the meeting place to this rank.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExchangeError {
    /// The launcher says something else than the protocol allows.
    #[error("PMI-1: the launcher answered {said:?} to {asked:?}; allowed is {allowed:?} with rc=0")]
    Answer {
        /// The command.
        asked: String,
        /// The answer.
        said: String,
        /// The command of an answer to that.
        allowed: &'static str,
    },
    /// Not all ranks came to the launcher's barrier. PMI-1 does not tell which.
    #[error(
        "PMI-1: the barrier of the launcher did not end within {:.1} s: not all ranks have come to it", seconds(*waited_ms)
    )]
    Barrier {
        /// How long it was waited for, in milliseconds.
        waited_ms: u64,
    },
    /// A function of the PMIx library failed.
    #[error("PMIx: {call} failed: {why} ({code})")]
    Call {
        /// The function.
        call: &'static str,
        /// The code, in the library's words.
        why: String,
        /// The code.
        code: i32,
    },
    /// The launcher does not listen on the descriptor, or no more.
    #[error("PMI-1: PMI_FD cannot be used at {asked:?}: {why}")]
    Descriptor {
        /// The command.
        asked: String,
        /// What the system said.
        why: String,
    },
    /// There is no library that speaks PMIx.
    #[error("the launcher speaks PMIx, and no library for that was found: {looked}")]
    Library {
        /// Where it was looked for, and what the loader said.
        looked: String,
    },
    /// An MPI library in this process has the descriptor.
    #[error("PMI-1: {library} in this process speaks over PMI_FD, which has one user only")]
    Mpi {
        /// Its file.
        library: String,
    },
    /// This host cannot be reached from another one.
    #[error("this host has no address but loopback, and ranks are on other hosts")]
    NoAddress,
    /// What rank 0 said is no place.
    #[error("{way}: rank 0 said {said:?}; allowed is HOST:PORT")]
    Place {
        /// By which means.
        way: &'static str,
        /// What it said.
        said: String,
    },
    /// Rank 0 did not say where the ranks meet.
    #[error("PMIx: rank 0 did not say within {:.1} s where the ranks meet", seconds(*waited_ms))]
    RankZero {
        /// How long it was waited for, in milliseconds.
        waited_ms: u64,
    },
    /// The launcher does not answer.
    #[error("{way}: the launcher did not answer {asked:?} within {:.1} s", seconds(*waited_ms))]
    Silent {
        /// By which means.
        way: &'static str,
        /// The command or function.
        asked: String,
        /// How long it was waited for, in milliseconds.
        waited_ms: u64,
    },
}

impl ExchangeError {
    /// The documented exit code of this class of error.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Library { .. } | Self::Mpi { .. } | Self::NoAddress => 2,
            Self::Barrier { .. } | Self::RankZero { .. } => 10,
            Self::Answer { .. }
            | Self::Call { .. }
            | Self::Descriptor { .. }
            | Self::Place { .. }
            | Self::Silent { .. } => 12,
        }
    }

    /// One sentence on what to do.
    #[must_use]
    pub fn help(&self) -> &'static str {
        match self {
            Self::Barrier { .. } | Self::RankZero { .. } => {
                "look at whether all ranks started and what they said last, or give them more time"
            }
            Self::Descriptor { .. } => {
                "PMI-1 serves one program of a rank: for a second one set MUSTER_RENDEZVOUS=tcp://HOST:PORT, an address of rank 0's host"
            }
            Self::Answer { .. }
            | Self::Call { .. }
            | Self::Library { .. }
            | Self::Mpi { .. }
            | Self::NoAddress
            | Self::Place { .. }
            | Self::Silent { .. } => {
                "set MUSTER_RENDEZVOUS=tcp://HOST:PORT, an address of rank 0's host"
            }
        }
    }
}

/// Milliseconds as a message shows them.
#[expect(
    clippy::cast_precision_loss,
    reason = "a time to wait is far below 2^52 ms"
)]
fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

fn waited_ms(deadline: Deadline) -> u64 {
    u64::try_from(deadline.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// The address of this host that others are most likely to reach: that of the default route, else the first that is not
/// loopback.
///
/// # Errors
/// [`ExchangeError::NoAddress`].
pub fn own_address() -> Result<IpAddr, ExchangeError> {
    let targets = ANYWHERE.iter().filter_map(|target| target.parse().ok());
    let by_route = targets.filter_map(route_to);
    let trie = fs::read_to_string("/proc/net/fib_trie").unwrap_or_default();
    let others = local_v4(&trie).into_iter();
    by_route
        .chain(others.filter(|one| !one.is_link_local()).map(IpAddr::V4))
        .find(|address| !address.is_loopback())
        .ok_or(ExchangeError::NoAddress)
}

/// Why there is no exchange where the launcher serves PMI on a port.
const PORT_ONLY: &str = "the launcher serves PMI on a port (PMI_PORT), and muster speaks it over an inherited descriptor \
                         (PMI_FD) only: set MUSTER_RENDEZVOUS=tcp://HOST:PORT alike for all ranks";

/// The means that the launcher gives this rank, or a remark on why they are not used.
///
/// Only where its own numbers are those of this rank: what a launcher further out left behind is not for us.
///
/// # Errors
/// If a variable is malformed.
pub(super) fn find(
    environment: &Environment,
    contract: Contract,
    rank: u32,
    world_size: u32,
) -> Result<Result<Exchange, Option<&'static str>>, LaunchError> {
    // Slurm names the host of rank 0 itself, and its PMI_FD speaks PMI-2; torchrun passes on what its own launcher set.
    if matches!(contract, Contract::Slurm | Contract::Torchrun) {
        return Ok(Err(None));
    }
    let number = |name| Ok::<_, ConfigError>(environment.text(name)?.and_then(small));
    let is_ours = number("PMI_RANK")? == Some(rank) && number("PMI_SIZE")? == Some(world_size);
    if let Some(text) = environment.text("PMI_FD")?
        && is_ours
    {
        let descriptor = text.parse().ok().filter(|number| *number > 2);
        let allowed = "a descriptor number above 2";
        let descriptor =
            descriptor.ok_or_else(|| ConfigError::malformed("PMI_FD", text, allowed))?;
        return Ok(Ok(Exchange::Pmi { descriptor }));
    }
    if environment.text("PMIX_NAMESPACE")?.is_some() && number("PMIX_RANK")? == Some(rank) {
        let mut prefixes = Vec::new();
        for name in ["PMIX_PREFIX", "OPAL_PREFIX"] {
            prefixes.extend(environment.text(name)?.map(PathBuf::from));
        }
        let above = environment.ancestors().iter();
        let ancestors = above.map(|process| process.pid).collect();
        return Ok(Ok(Exchange::Pmix {
            prefixes,
            ancestors,
        }));
    }
    let by_port = environment.text("PMI_PORT")?.is_some();
    Ok(Err(by_port.then_some(PORT_ONLY)))
}

/// Whether a remark is one of [`find`].
pub(super) fn is_remark(note: &str) -> bool {
    note == PORT_ONLY
}

/// Where the library may be: where the loader looks, where the launcher's processes have it, and where the launcher lies.
fn libraries(prefixes: &[PathBuf], ancestors: &[u32]) -> Vec<PathBuf> {
    const NAMES: [&str; 2] = ["libpmix.so.2", "libpmix.so"];
    let mut found = NAMES.map(PathBuf::from).to_vec();
    let own = std::process::id();
    for process in ancestors.iter().chain([&own]) {
        let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
        found.extend(mapped(&maps, "libpmix.so").take(1));
        let beside = mapped(&maps, "libmpi").take(1);
        found.extend(beside.map(|library| library.with_file_name(NAMES[0])));
    }
    for prefix in prefixes {
        found.extend(["lib", "lib64"].map(|folder| prefix.join(folder).join(NAMES[0])));
    }
    let mut seen = Vec::new();
    found.retain(|path| {
        let is_new = !seen.contains(path);
        seen.push(path.clone());
        is_new
    });
    found
}

/// Files of a process's memory map whose names begin like this.
fn mapped<'a>(maps: &'a str, name: &'a str) -> impl Iterator<Item = PathBuf> + 'a {
    maps.lines().filter_map(move |line| {
        let path = PathBuf::from(line.get(line.find('/')?..)?);
        let is_it = path.file_name()?.to_str()?.starts_with(name);
        is_it.then_some(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(
        pairs: &[(&str, &str)],
    ) -> Result<Result<Exchange, Option<&'static str>>, LaunchError> {
        let environment = Environment::from_pairs(pairs.iter().copied());
        find(&environment, Contract::Hydra, 1, 2)
    }

    #[test]
    fn means_are_taken_only_where_they_are_this_ranks() {
        let pmi = |rank, size| found(&[("PMI_FD", "11"), ("PMI_RANK", rank), ("PMI_SIZE", size)]);
        let expected = Exchange::Pmi { descriptor: 11 };
        assert_eq!(pmi("1", "2").unwrap(), Ok(expected));
        assert_eq!(pmi("0", "2").unwrap(), Err(None));
        assert_eq!(pmi("1", "4").unwrap(), Err(None));
        let pmix = |rank| found(&[("PMIX_NAMESPACE", "job"), ("PMIX_RANK", rank)]).unwrap();
        assert_eq!(pmix("1").unwrap().to_string(), "by PMIx of the launcher");
        assert_eq!(pmix("0"), Err(None));
        assert_eq!(found(&[("PMI_PORT", "a:1")]).unwrap(), Err(Some(PORT_ONLY)));
    }

    #[test]
    fn slurm_and_torchrun_are_left_alone_and_a_malformed_descriptor_is_told() {
        let pairs = [("PMI_FD", "x"), ("PMI_RANK", "1"), ("PMI_SIZE", "2")];
        let environment = Environment::from_pairs(pairs);
        for contract in [Contract::Slurm, Contract::Torchrun] {
            assert_eq!(find(&environment, contract, 1, 2).unwrap(), Err(None));
        }
        let error = found(&pairs).unwrap_err();
        assert!(error.to_string().contains("PMI_FD"), "{error}");
    }

    #[test]
    fn libraries_of_a_process_are_read_from_its_map() {
        let maps = "7f0-7f1 r-xp 0000 08:01 42   /opt/mpi/lib/libmpi.so.40\n\
                    7f1-7f2 rw-p 0000 00:00 0\n\
                    7f2-7f3 r-xp 0000 08:01 43   /opt/my pmix/libpmix.so.2.6.2\n";
        let all = |name| mapped(maps, name).collect::<Vec<_>>();
        assert_eq!(all("libmpi"), [PathBuf::from("/opt/mpi/lib/libmpi.so.40")]);
        assert_eq!(
            all("libpmix.so"),
            [PathBuf::from("/opt/my pmix/libpmix.so.2.6.2")]
        );
    }

    #[test]
    fn a_library_is_looked_for_once_in_each_place() {
        let all = libraries(&["/opt/pmix".into(), "/opt/pmix".into()], &[]);
        let expected = [
            "libpmix.so.2",
            "libpmix.so",
            "/opt/pmix/lib/libpmix.so.2",
            "/opt/pmix/lib64/libpmix.so.2",
        ];
        assert_eq!(all, expected.map(PathBuf::from));
    }
}
