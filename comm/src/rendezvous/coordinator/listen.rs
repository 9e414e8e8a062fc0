//! The coordinator's socket, and whether this process may open as many as the world needs.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream};

use rustix::process::{Resource, getrlimit};
use socket2::{Domain, SockRef, Socket, TcpKeepalive, Type};

use super::owner;
use crate::rendezvous::error::RendezvousError;
use crate::rendezvous::limits::{
    ACKNOWLEDGED_WITHIN, PROBE_EVERY, PROBES, STRANGERS_MAX, STRANGERS_MIN,
};

/// Connections that the kernel holds for us until we accept them; it cuts this to its own limit.
/// Enough for a large world that starts all at once.
const BACKLOG: i32 = 4096;

/// Descriptors for the listener, the poller, the waker, and what the rest of the process opens
/// meanwhile.
const RESERVE: u64 = 16;

/// How many strangers at a time this process has descriptors for, besides the whole world.
pub(super) fn strangers_allowed(world_size: u32) -> Result<usize, RendezvousError> {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    // Without /proc the count is unknown; the limit is then taken as if nothing were open.
    let in_use = fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
    let strangers = allowed(limit, in_use, world_size);
    strangers.ok_or_else(|| RendezvousError::Descriptors {
        limit,
        in_use,
        need: u64::from(world_size) + RESERVE + STRANGERS_MIN as u64,
        world_size,
    })
}

fn allowed(limit: u64, in_use: u64, world_size: u32) -> Option<usize> {
    let spare = limit
        .checked_sub(in_use)?
        .checked_sub(u64::from(world_size) + RESERVE)?;
    let spare = crate::types::index(spare.min(STRANGERS_MAX as u64));
    (spare >= STRANGERS_MIN).then_some(spare)
}

/// A listening, non-blocking socket, and the address that it got.
pub(super) fn listen(bind: SocketAddr) -> Result<(TcpListener, SocketAddr), RendezvousError> {
    let open = || -> io::Result<(TcpListener, SocketAddr)> {
        let socket = Socket::new(Domain::for_address(bind), Type::STREAM, None)?;
        socket.set_cloexec(true)?;
        socket.set_nonblocking(true)?;
        // A port whose last connections still linger in the kernel is free for a restart.
        socket.set_reuse_address(true)?;
        socket.bind(&bind.into())?;
        socket.listen(BACKLOG)?;
        let listener = TcpListener::from(socket);
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    open().map_err(|error| {
        if error.kind() == ErrorKind::AddrInUse {
            return RendezvousError::PortTaken {
                address: bind,
                owner: owner::of_port(bind.port()),
            };
        }
        RendezvousError::Bind {
            address: bind,
            why: error.to_string(),
        }
    })
}

/// Makes a connection prompt, and dead hosts noticeable while it is idle. Both ends do this.
pub(in crate::rendezvous) fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(
        &TcpKeepalive::new()
            .with_time(PROBE_EVERY)
            .with_interval(PROBE_EVERY)
            .with_retries(PROBES),
    )?;
    socket.set_tcp_user_timeout(Some(ACKNOWLEDGED_WITHIN))
}

/// Whether an error says that no more descriptors are to be had.
pub(super) fn is_out_of_descriptors(error: &io::Error) -> bool {
    let errno = error.raw_os_error();
    let full = [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE];
    full.iter().any(|full| errno == Some(full.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_get_what_the_world_leaves_and_a_world_without_room_for_any_is_refused() {
        assert_eq!(allowed(20_000, 10, 256), Some(STRANGERS_MAX));
        assert_eq!(allowed(100, 10, 50), Some(24));
        assert_eq!(allowed(100, 10, 66), Some(STRANGERS_MIN));
        assert_eq!(allowed(100, 10, 67), None);
        assert_eq!(allowed(5, 10, 1), None);
        assert_eq!(allowed(100, 10, u32::MAX), None);
    }
}
