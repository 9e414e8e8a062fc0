//! A wire with faults: a proxy in front of each rank's door, through which all links of TCP go.
//!
//! It knows bytes, not frames. Until a fault is set it passes everything on as it is.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use muster_comm::sync::{Clock, Deadline};

use crate::fail::Failure;

/// How long a read waits before the state of the wire is looked at again.
const TURN: Duration = Duration::from_millis(20);
/// Bytes that are passed on at once.
const CHUNK: usize = 16 << 10;
/// Shortest chunk in which a bit is flipped: long enough to hold data and not only a header.
const DATA_MIN: usize = 128;

/// What is wrong with the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WireFault {
    /// Nothing.
    #[default]
    None,
    /// Everything arrives this many milliseconds late.
    Delay(u64),
    /// One bit of the next data is wrong.
    Flip,
    /// One bit of the next header is wrong.
    FlipHeader,
    /// The connection ends in the middle of a message.
    Truncate,
    /// Nothing is passed on any more, and the connection stays.
    Stall,
    /// A few bytes at a time.
    Trickle,
    /// A piece of what was sent is sent once more.
    Repeat,
}

/// The wires of a drill.
#[derive(Debug)]
pub struct Wires {
    /// The port in front of each rank.
    pub ports: Vec<u16>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    fault: WireFault,
    /// In front of which rank.
    rank: usize,
    /// When it struck, and the port of the peer whose connection it was.
    struck: Option<(u64, u16)>,
    /// Where each rank really listens.
    doors: Vec<Option<u16>>,
    is_over: bool,
}

impl Shared {
    fn with<R>(&self, look: impl FnOnce(&mut State) -> R) -> R {
        look(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Wires {
    /// Opens a door in front of each of this many ranks.
    ///
    /// # Errors
    /// A failure of class RESOURCE where there is no port or no thread.
    pub fn open(ranks: u32) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::resource(format!("no wire: {error}"));
        let state = State {
            doors: vec![None; ranks as usize],
            ..State::default()
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
        });
        let mut ports = Vec::new();
        for rank in 0..ranks as usize {
            let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(failed)?;
            ports.push(listener.local_addr().map_err(failed)?.port());
            listener.set_nonblocking(true).map_err(failed)?;
            let shared = Arc::clone(&shared);
            spawn(move || accept(&listener, rank, &shared)).map_err(failed)?;
        }
        Ok(Self { ports, shared })
    }

    /// Says where a rank really listens.
    pub fn lead(&self, rank: u32, port: u16) {
        self.shared.with(|state| {
            if let Some(door) = state.doors.get_mut(rank as usize) {
                *door = Some(port);
            }
        });
    }

    /// Spoils what goes to or from a rank, from now on.
    pub fn spoil(&self, rank: u32, fault: WireFault) {
        self.shared.with(|state| {
            state.rank = rank as usize;
            state.fault = fault;
        });
    }

    /// When the fault struck, and the port of the peer whose connection it was.
    #[must_use]
    pub fn struck(&self) -> Option<(u64, u16)> {
        self.shared.with(|state| state.struck)
    }
}

impl Drop for Wires {
    fn drop(&mut self) {
        self.shared.with(|state| state.is_over = true);
    }
}

fn spawn(work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    std::thread::Builder::new()
        .name("drill-wire".to_owned())
        .spawn(work)
        .map(drop)
}

fn accept(listener: &TcpListener, rank: usize, shared: &Arc<Shared>) {
    while !shared.with(|state| state.is_over) {
        match listener.accept() {
            Ok((peer, _)) => {
                let door = await_door(rank, shared);
                let Some(own) = door.and_then(|port| TcpStream::connect(("127.0.0.1", port)).ok())
                else {
                    continue;
                };
                connect(peer, own, rank, shared);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                Clock::pause(Duration::from_millis(1));
            }
            Err(_) => Clock::pause(TURN),
        }
    }
}

/// Where a rank really listens, once that is known.
fn await_door(rank: usize, shared: &Shared) -> Option<u16> {
    let deadline = Deadline::after(Duration::from_secs(5));
    loop {
        let door = shared.with(|state| state.doors.get(rank).copied().flatten());
        if door.is_some() || deadline.passed() || shared.with(|state| state.is_over) {
            return door;
        }
        Clock::pause(Duration::from_millis(1));
    }
}

fn connect(peer: TcpStream, own: TcpStream, rank: usize, shared: &Arc<Shared>) {
    let port = peer.peer_addr().map_or(0, |address| address.port());
    for (from, to) in [(&peer, &own), (&own, &peer)] {
        let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else {
            return;
        };
        // The listener does not block, and some systems hand that on.
        let set = from
            .set_nonblocking(false)
            .and_then(|()| from.set_nodelay(true))
            .and_then(|()| from.set_read_timeout(Some(TURN)));
        let shared = Arc::clone(shared);
        let copied = set.and_then(|()| spawn(move || copy(from, to, rank, port, &shared)));
        if copied.is_err() {
            return;
        }
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, rank: usize, port: u16, shared: &Shared) {
    let mut chunk = vec![0; CHUNK];
    loop {
        let (is_over, fault) = shared.with(|state| {
            let here = state.rank == rank;
            let fault = if here { state.fault } else { WireFault::None };
            (state.is_over, fault)
        });
        if is_over {
            break;
        }
        if fault == WireFault::Stall {
            shared.with(|state| {
                state.struck.get_or_insert_with(|| (Clock::nanos(), port));
            });
            Clock::pause(TURN);
            continue;
        }
        let room = if fault == WireFault::Trickle {
            1
        } else {
            CHUNK
        };
        let count = match from.read(&mut chunk[..room]) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                continue;
            }
            Err(_) => break,
        };
        match pass(&mut chunk[..count], fault, port, shared) {
            Some(kept) if to.write_all(&chunk[..kept]).is_ok() => {}
            Some(_) | None => break,
        }
        if fault == WireFault::Repeat && strike(shared, port) {
            let _ = to.write_all(&chunk[..count]);
        }
    }
    // Whoever is left at either end sees that it is over.
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

/// Spoils a chunk; gives back how much of it goes on, or that the connection ends.
fn pass(chunk: &mut [u8], fault: WireFault, port: u16, shared: &Shared) -> Option<usize> {
    match fault {
        WireFault::Delay(ms) => Clock::pause(Duration::from_millis(ms)),
        WireFault::Flip if chunk.len() >= DATA_MIN && strike(shared, port) => {
            let last = chunk.len() - 1;
            chunk[last] ^= 0x10;
        }
        WireFault::FlipHeader if chunk.len() > 8 && strike(shared, port) => chunk[4] ^= 0x10,
        WireFault::Truncate if chunk.len() >= DATA_MIN => {
            strike(shared, port);
            return None;
        }
        WireFault::Trickle => Clock::pause(Duration::from_millis(20)),
        WireFault::None
        | WireFault::Flip
        | WireFault::FlipHeader
        | WireFault::Repeat
        | WireFault::Stall
        | WireFault::Truncate => {}
    }
    Some(chunk.len())
}

/// Notes that the fault strikes now; false where it has struck already.
fn strike(shared: &Shared, port: u16) -> bool {
    shared.with(|state| {
        if state.struck.is_some() {
            return false;
        }
        state.struck = Some((Clock::nanos(), port));
        true
    })
}
