//! The coordinator's socket, and whether this process may open as many as the world needs.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};

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
///
/// Within a host nothing but the end of a process ends a connection. Time limits would do harm there: where hundreds of threads
/// want the processors, the kernel acknowledges seconds late, and a rank that does not get to read would lose its connection.
pub(in crate::rendezvous) fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    if let (Ok(own), Ok(peer)) = (stream.local_addr(), stream.peer_addr())
        && is_within_host(own.ip(), peer.ip())
    {
        return Ok(());
    }
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(
        &TcpKeepalive::new()
            .with_time(PROBE_EVERY)
            .with_interval(PROBE_EVERY)
            .with_retries(PROBES),
    )?;
    socket.set_tcp_user_timeout(Some(ACKNOWLEDGED_WITHIN))
}

fn is_within_host(own: IpAddr, peer: IpAddr) -> bool {
    let (own, peer) = (own.to_canonical(), peer.to_canonical());
    own == peer || peer.is_loopback()
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
    fn only_connections_between_hosts_have_time_limits() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let within = |own, peer| is_within_host(address(own), address(peer));
        assert!(within("127.0.0.1", "127.0.0.2"));
        assert!(within("::1", "::1"));
        assert!(within("10.1.2.3", "::ffff:10.1.2.3"));
        assert!(!within("10.1.2.3", "10.1.2.4"));
        assert!(!within("fe80::1", "fe80::2"));

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        tune(&stream).unwrap();
        let socket = SockRef::from(&stream);
        assert!(!socket.keepalive().unwrap());
        assert_eq!(socket.tcp_user_timeout().unwrap(), None);
    }

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
