//! What a viewer is told of a world whose ranks lie on several hosts, by the process that serves the rendezvous.
//!
//! A viewer connects to an abstract socket of that process on its host, reads one JSON document, and looks again by another
//! connection. Both sides see by the kernel that the other one is a process of the same user, or of root.

#![expect(unsafe_code, reason = "the user at the other end of a socket")]

use std::fs;
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::ptr;
use std::time::Duration;

use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use super::report::Report;
use crate::sync::Clock;

/// How the names of sockets begin.
const PREFIX: &str = "muster-view-";
/// How long a process may take to answer: ranks that do not answer cost it some time.
const PATIENCE: Duration = Duration::from_secs(3);
/// Longest document that is read.
const BYTES_MAX: u64 = 256 << 20;

/// All ranks of a world, as they answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// Name and version of the document.
    pub(super) schema: String,
    /// The job, as the boards of its ranks have it.
    pub job: u64,
    /// Which look at the ranks this is: a number that grows.
    pub round: u64,
    /// The ranks that answered.
    pub ranks: Vec<ViewedRank>,
}

/// A rank of a [`View`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewedRank {
    /// The name of its host.
    pub host: String,
    /// Ranks of one host have the same number.
    pub host_number: u32,
    /// What its board shows, with its last calls.
    pub report: Report,
}

impl View {
    /// Name and version of the document.
    pub(super) const SCHEMA: &str = "muster.view/1";

    /// What the processes of this host that serve a rendezvous of several hosts show. Takes as long as the slowest one, which is given up
    /// after three seconds.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let table = fs::read_to_string("/proc/net/unix").unwrap_or_default();
        let names = table.lines().filter_map(|line| {
            let name = line.split_whitespace().next_back()?.strip_prefix('@')?;
            name.starts_with(PREFIX).then_some(name)
        });
        let mut names: Vec<&str> = names.collect();
        // A connection that waits to be accepted has the name too.
        names.sort_unstable();
        names.dedup();
        names
            .into_iter()
            .filter_map(|name| look(name).ok())
            .collect()
    }
}

fn look(name: &str) -> io::Result<View> {
    read(UnixStream::connect_addr(&SocketAddr::from_abstract_name(
        name,
    )?)?)
}

/// Reads what a process of the same user, or of root, shows.
pub(super) fn read(mut stream: UnixStream) -> io::Result<View> {
    if !is_allowed(&stream) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut text = Vec::new();
    (&mut stream).take(BYTES_MAX).read_to_end(&mut text)?;
    let view: View = serde_json::from_slice(&text)?;
    if view.schema != View::SCHEMA {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(view)
}

/// A name for a socket: another one for each world, also where containers with processes of one number share a network.
pub(super) fn socket_name() -> String {
    format!("{PREFIX}{}-{:x}", std::process::id(), Clock::nanos())
}

/// Whether the process at the other end is of this user, or of root.
pub(super) fn is_allowed(stream: &UnixStream) -> bool {
    peer(stream).is_some_and(|uid| uid == 0 || uid == geteuid().as_raw())
}

/// The user of the process at the other end. By hand: a process in a PID namespace that this one cannot see has the number 0, which rustix
/// takes for one that cannot be.
fn peer(stream: &UnixStream) -> Option<libc::uid_t> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: libc::uid_t::MAX,
        gid: libc::gid_t::MAX,
    };
    let size = size_of::<libc::ucred>();
    let mut length = libc::socklen_t::try_from(size).ok()?;
    // SAFETY: the kernel writes at most `length` bytes to `peer`, which has as many, and their number to `length`.
    let answer = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            ptr::from_mut(&mut peer).cast(),
            &raw mut length,
        )
    };
    (answer == 0 && length as usize == size).then_some(peer.uid)
}
