//! The accepting side: a thread that lets peers in, and a table of links that wait to be taken.
//!
//! The thread never blocks on one connection: it polls all of them and drops whoever is slow. So a
//! rank that is busy, or stopped in a debugger's other thread, still accepts.
//!
//! - LISTEN-1: at most [`PENDING_MAX`] strangers are listened to at once, none longer than
//!   [`HANDSHAKE_MAX`]; the one that waited longest makes room.
//! - LISTEN-2: a parked link belongs to exactly one name; a newer one replaces it, because a peer
//!   connects again only when the older link is of no use to it.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags};

use super::super::poll::poll_by;
use super::hello::{self, HELLO_BYTES, Key, LinkName, PROOF_BYTES, Refusal, Role, SECRET_BYTES};
use super::{TcpError, TcpLink};
use crate::strangers::Stranger;
use crate::sync::Deadline;
use crate::transport::shm::wakers::Wakers;
use crate::transport::stream::Stream;

/// Strangers that are listened to at once. A world of ranks that all start together stays below
/// it, since each is a stranger for microseconds only.
const PENDING_MAX: usize = 256;
/// Time in which a stranger must prove who it is.
const HANDSHAKE_MAX: Duration = Duration::from_secs(2);
/// Links that may wait to be taken: more than any group has peers on one host's descriptors.
const PARKED_MAX: usize = 1 << 14;
/// Ended groups that are known: half a megabyte. A link of a further one is parked and never taken.
const ENDED_MAX: usize = 1 << 15;
/// Connections that the system may hold before they are accepted.
const BACKLOG: i32 = 1024;
/// Longest sleep of the thread when nothing happens.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// Pause after the system could not give a descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
/// The thread's stack: it calls nothing deep.
const STACK_BYTES: usize = 256 * 1024;

/// What a parked link is taken by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ParkedKey {
    /// The key that all ranks of the group derive.
    pub group: u64,
    /// Which of several links between the same two ranks of the group.
    pub plane: u8,
    /// World rank of the peer that connected.
    pub peer: u32,
}

/// Accepts links from the ranks of one job, for one rank.
///
/// Dropping it ends its thread, closes the port and all links that were not taken.
#[derive(Debug)]
pub struct Listener {
    shared: Arc<Shared>,
    addr: SocketAddr,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    table: Mutex<Table>,
    arrived: Condvar,
    /// What wakes threads of this rank that sleep in `poll`, where they do.
    wakers: OnceLock<Arc<Wakers>>,
}

#[derive(Debug, Default)]
struct Table {
    parked: HashMap<ParkedKey, TcpLink>,
    /// Groups whose links nobody takes any more; at most [`ENDED_MAX`].
    ended: HashSet<u64>,
}

impl Shared {
    /// The table. A thread that panicked while it held the lock left it whole: each change of it
    /// is one call of the map.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the peer know and parks its link, under one lock: whoever has seen that the peer got
    /// its link finds it in the table.
    fn park(&self, key: ParkedKey, mut link: TcpLink) {
        let mut table = self.table();
        if table.ended.contains(&key.group) {
            // If even that cannot be sent, the peer learns it from the close.
            let _ = link.try_write(&Refusal::Ended.code().to_le_bytes());
        } else if link.try_write(&hello::CONSENT) == Ok(hello::CONSENT.len()) {
            table.parked.insert(key, link);
            drop(table);
            self.arrived.notify_all();
            if let Some(wakers) = self.wakers.get() {
                wakers.ring_own();
            }
        }
    }
}

impl Listener {
    /// Listens on `addr` (port 0: one that is free) for links to the world rank `me`.
    ///
    /// # Errors
    /// [`TcpError::Bind`] if the address cannot be had, [`TcpError::System`].
    pub fn bind(addr: SocketAddr, me: u32, secret: &[u8; SECRET_BYTES]) -> Result<Self, TcpError> {
        let bind_error = |error: io::Error| TcpError::Bind {
            addr,
            error: error.kind(),
        };
        let listener = open(addr).map_err(bind_error)?;
        let addr = listener.local_addr().map_err(bind_error)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = rustix::event::eventfd(0, flags).map_err(|error| TcpError::System {
            what: "eventfd",
            error: io::Error::from(error).kind(),
        })?;
        let (wake, shared) = (Arc::new(wake), Arc::new(Shared::default()));
        let acceptor = Acceptor {
            listener,
            wake: Arc::clone(&wake),
            shared: Arc::clone(&shared),
            me,
            key: Key::new(secret),
            pending: Vec::new(),
            paused: None,
        };
        let thread = std::thread::Builder::new()
            .name("muster-accept".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || acceptor.run())
            .map_err(|error| TcpError::System {
                what: "starting the accepting thread",
                error: error.kind(),
            })?;
        Ok(Self {
            shared,
            addr,
            wake,
            thread: Some(thread),
        })
    }

    /// Where peers connect to.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// From now on a link that comes wakes threads of this rank that sleep in `poll`.
    pub fn set_wakers(&self, wakers: Arc<Wakers>) {
        // The first ones stay.
        let _ = self.shared.wakers.set(wakers);
    }

    /// The link of this name, as soon as the peer has connected it.
    ///
    /// # Errors
    /// [`TcpError::TimedOut`] if the peer has not connected by the deadline.
    pub fn take(&self, key: ParkedKey, deadline: Deadline) -> Result<TcpLink, TcpError> {
        let mut table = self.shared.table();
        loop {
            if let Some(link) = table.parked.remove(&key) {
                return Ok(link);
            }
            if deadline.passed() {
                return Err(TcpError::TimedOut {
                    what: "waiting for a peer to connect",
                    budget: deadline.budget(),
                });
            }
            table = self
                .shared
                .arrived
                .wait_timeout(table, deadline.left())
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// The link of this name, if the peer has connected it.
    #[must_use]
    pub fn try_take(&self, key: ParkedKey) -> Option<TcpLink> {
        self.shared.table().parked.remove(&key)
    }

    /// Connections of the stream that the link of this name is part of, if the peer has connected it.
    #[must_use]
    pub fn lanes_of(&self, key: ParkedKey) -> Option<u8> {
        self.shared.table().parked.get(&key).map(TcpLink::lanes)
    }

    /// Whether the peer has connected the link of this name.
    #[must_use]
    pub fn has(&self, key: ParkedKey) -> bool {
        self.shared.table().parked.contains_key(&key)
    }

    /// Refuses links of a group from now on. Those that are here can still be taken.
    pub fn end(&self, group: u64) {
        let mut table = self.shared.table();
        if table.ended.len() < ENDED_MAX {
            table.ended.insert(group);
        }
    }

    /// Ends a group and closes its links, which nobody will take any more.
    pub fn forget(&self, group: u64) {
        self.end(group);
        let mut table = self.shared.table();
        table.parked.retain(|key, _| key.group != group);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // An event counter takes a write unless it is near its maximum; and if it failed, the
        // thread would end within IDLE_MAX, since it holds no other reason to live.
        let woken = rustix::io::write(&self.wake, &1u64.to_ne_bytes()).is_ok();
        if let Some(thread) = self.thread.take()
            && woken
        {
            // The thread never blocks on anything but the poll that was woken.
            let _ = thread.join();
        }
    }
}

fn open(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket2::Socket::new(
        socket2::Domain::for_address(addr),
        socket2::Type::STREAM,
        Some(socket2::Protocol::TCP),
    )?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// The thread's own state.
#[derive(Debug)]
struct Acceptor {
    listener: TcpListener,
    wake: Arc<OwnedFd>,
    shared: Arc<Shared>,
    me: u32,
    key: Key,
    /// Oldest first.
    pending: Vec<Pending>,
    paused: Option<Deadline>,
}

/// A connection that has not proved anything yet.
#[derive(Debug)]
struct Pending {
    /// The first field: it is dropped before the socket.
    stranger: Stranger,
    socket: TcpStream,
    deadline: Deadline,
    /// The hello, as far as it has come.
    hello: [u8; HELLO_BYTES],
    proof: [u8; PROOF_BYTES],
    /// Bytes of the message that is awaited.
    filled: usize,
    /// What was asked for and the proof that is expected, once the hello was answered.
    challenged: Option<(LinkName, blake3::Hash)>,
}

/// What becomes of a pending connection.
enum Fate {
    Admit(LinkName),
    Drop,
    Keep,
}

impl Acceptor {
    fn run(mut self) {
        loop {
            let Some(ready) = self.wait() else { return };
            let mut kept = Vec::with_capacity(self.pending.len());
            for (at, mut pending) in std::mem::take(&mut self.pending).into_iter().enumerate() {
                let fate = if ready.get(at).copied().unwrap_or(false) {
                    pending.progress(&self.key, self.me)
                } else {
                    Fate::Keep
                };
                match fate {
                    Fate::Keep if pending.deadline.passed() => {}
                    Fate::Keep => kept.push(pending),
                    Fate::Admit(name) => {
                        drop(pending.stranger);
                        self.admit(pending.socket, name);
                    }
                    Fate::Drop => {}
                }
            }
            self.pending = kept;
            self.accept();
        }
    }

    /// Waits until something happens; tells which strangers have sent something, or `None` when
    /// the listener is gone.
    fn wait(&mut self) -> Option<Vec<bool>> {
        if self.paused.is_some_and(|pause| pause.passed()) {
            self.paused = None;
        }
        let waits = self.pending.iter().map(|stranger| stranger.deadline);
        let until = waits
            .chain(self.paused)
            .min_by_key(Deadline::left)
            .unwrap_or_else(|| Deadline::after(IDLE_MAX));
        let mut fds: Vec<PollFd<'_>> = self
            .pending
            .iter()
            .map(|stranger| PollFd::new(&stranger.socket, PollFlags::IN))
            .collect();
        fds.push(PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::IN));
        if self.paused.is_none() {
            fds.push(PollFd::new(&self.listener, PollFlags::IN));
        }
        // Without poll there is nothing this thread can do for anybody.
        poll_by(&mut fds, until).ok()?;
        let strangers = self.pending.len();
        if !fds[strangers].revents().is_empty() {
            return None;
        }
        let ready = fds[..strangers].iter();
        Some(ready.map(|fd| !fd.revents().is_empty()).collect())
    }

    fn accept(&mut self) {
        if self.paused.is_some() {
            return;
        }
        // Bounded, so that strangers already here are served under a flood of new ones.
        for _ in 0..PENDING_MAX {
            match self.listener.accept() {
                Ok((socket, _)) => {
                    if self.pending.len() == PENDING_MAX {
                        self.pending.remove(0);
                    }
                    if let Ok(stranger) = Pending::new(socket) {
                        self.pending.push(stranger);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted
                    ) => {}
                Err(_) => {
                    // Out of descriptors or memory: a stranger's may be had, and a pause costs
                    // less than a loop.
                    if !self.pending.is_empty() {
                        self.pending.remove(0);
                    }
                    self.paused = Some(Deadline::after(ACCEPT_PAUSE));
                    return;
                }
            }
        }
    }

    /// Lets a peer in that has proved the secret.
    fn admit(&self, mut socket: TcpStream, name: LinkName) {
        let key = ParkedKey {
            group: name.group,
            plane: name.plane,
            peer: name.from,
        };
        if self.is_full(key) {
            // If even that cannot be sent, the peer learns it from the close.
            let _ = socket.write(&Refusal::Full.code().to_le_bytes());
        } else if let Ok(mut link) = TcpLink::new(socket) {
            link.lanes = name.lanes;
            self.shared.park(key, link);
        }
    }

    /// Whether there is no place for one more link, even after the dead ones are thrown out.
    fn is_full(&self, key: ParkedKey) -> bool {
        let parked = &mut self.shared.table().parked;
        if parked.len() >= PARKED_MAX && !parked.contains_key(&key) {
            parked.retain(|_, link| !link.is_stale());
        }
        parked.len() >= PARKED_MAX && !parked.contains_key(&key)
    }
}

impl Pending {
    fn new(socket: TcpStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        Ok(Self {
            stranger: Stranger::new(),
            socket,
            deadline: Deadline::after(HANDSHAKE_MAX),
            hello: [0; HELLO_BYTES],
            proof: [0; PROOF_BYTES],
            filled: 0,
            challenged: None,
        })
    }

    /// Takes what has come, and answers it if it is complete.
    fn progress(&mut self, key: &Key, me: u32) -> Fate {
        loop {
            let awaited: &mut [u8] = if self.challenged.is_some() {
                &mut self.proof
            } else {
                &mut self.hello
            };
            match self.socket.read(&mut awaited[self.filled..]) {
                Ok(0) => return Fate::Drop,
                Ok(len) => self.filled += len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Fate::Keep,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return Fate::Drop,
            }
            if self.filled < awaited.len() {
                continue;
            }
            self.filled = 0;
            let Some((name, expected)) = self.challenged else {
                match self.challenge(key, me) {
                    Some(challenged) => self.challenged = Some(challenged),
                    None => return Fate::Drop,
                }
                continue;
            };
            if expected == self.proof {
                return Fate::Admit(name);
            }
            self.say(&Refusal::Job.code().to_le_bytes());
            return Fate::Drop;
        }
    }

    /// Answers the hello; `None` if that is the end of it.
    fn challenge(&mut self, key: &Key, me: u32) -> Option<(LinkName, blake3::Hash)> {
        let name = match hello::parse(&self.hello, me) {
            Ok(name) => name,
            Err(reason) => {
                if let Some(reason) = reason {
                    self.say(&hello::refuse(reason));
                }
                return None;
            }
        };
        let (answer, nonce) = hello::answer(key, &self.hello).ok()?;
        self.say(&answer)
            .then(|| (name, key.mac(Role::Connector, &self.hello, &nonce)))
    }

    /// Sends a few bytes. They fit into the buffer of a fresh connection, so a peer for which they
    /// do not is none worth waiting for.
    fn say(&mut self, bytes: &[u8]) -> bool {
        matches!(self.socket.write(bytes), Ok(len) if len == bytes.len())
    }
}
