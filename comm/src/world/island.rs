//! How the ranks of one host come to share an arena.
//!
//! Candidates for one island have the same host identity: boot id and the namespaces that decide
//! whether a unix socket and a memory descriptor reach. The lowest of them makes the arena and
//! hands its descriptor, over an abstract unix socket, to each candidate that proves the job's
//! secret. Whoever cannot be reached that way is an island of its own: locality is what was shown
//! to work, never what an environment variable claims.
//!
//! - ISLAND-1: nothing here has a name in a file system, so SIGKILL at any moment leaves nothing.
//! - ISLAND-2: the socket's name is random and its answer is given only after the keyed proof, so
//!   neither guessing nor listening in gets an arena.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::sync::{Clock, Deadline};

/// A peer that connected and says nothing for this long loses its connection.
const PROOF_TIMEOUT: Duration = Duration::from_secs(2);
/// Connections that may fail their proof before the leader stops listening: somebody is trying.
const FAILED_PROOFS_MAX: u32 = 1000;
/// How often who waits for a peer looks at first whether that still has a point.
const FETCH_STEP: Duration = Duration::from_millis(20);
/// How seldom at most: of a thousand ranks that wait for one.
const FETCH_STEP_MAX: Duration = Duration::from_millis(160);
/// Peers that prove themselves at one time; more wait to be taken in.
const CALLERS_MAX: usize = 256;
const NONCE_BYTES: usize = 32;
const MAC_BYTES: usize = 32;
/// Of the number of descriptors.
const COUNT_BYTES: usize = 4;
/// Descriptors in one message: the system takes 253 at most.
const FILES_MAX: usize = 250;

/// Key of the island's handshake, derived from the job's secret.
#[derive(Clone)]
pub(crate) struct IslandKey([u8; 32]);

impl IslandKey {
    /// For the arena.
    pub(crate) fn derive(secret: &[u8; 32]) -> Self {
        Self(blake3::derive_key(
            "muster 2026 island handshake v1",
            secret,
        ))
    }

    /// For the memory that a rank brought along: another key, so that a rank that comes for the one
    /// never gets the other.
    pub(crate) fn for_memory(secret: &[u8; 32]) -> Self {
        Self(blake3::derive_key(
            "muster 2026 memory handshake v1",
            secret,
        ))
    }

    fn mac(&self, role: u8, parts: &[&[u8]]) -> [u8; MAC_BYTES] {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(&[role]);
        for part in parts {
            hasher.update(part);
        }
        *hasher.finalize().as_bytes()
    }
}

/// What decides whether two processes may share an arena: equal strings are candidates.
pub(crate) fn host_identity() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = |kind: &str| {
        std::fs::read_link(format!("/proc/self/ns/{kind}"))
            .map(|link| link.to_string_lossy().into_owned())
            .unwrap_or_default()
    };
    let uid = rustix::process::getuid().as_raw();
    format!(
        "{} {} {} uid:{uid}",
        boot.trim(),
        namespace("net"),
        namespace("user")
    )
}

/// A random name in the abstract name space.
pub(crate) fn socket_name() -> io::Result<String> {
    let mut bytes = [0_u8; 16];
    random(&mut bytes)?;
    Ok(format!(
        "muster-{}",
        blake3::Hash::from(widen(bytes)).to_hex().split_at(32).0
    ))
}

fn widen(bytes: [u8; 16]) -> [u8; 32] {
    let mut wide = [0; 32];
    wide[..16].copy_from_slice(&bytes);
    wide
}

fn random(bytes: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        let flags = rustix::rand::GetRandomFlags::empty();
        filled += rustix::rand::getrandom(&mut bytes[filled..], flags)?;
    }
    Ok(())
}

/// Listens under an abstract name.
pub(crate) fn listen(name: &str) -> io::Result<UnixListener> {
    UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)
}

/// Hands descriptors to `expected` peers, all of which may be at it at once; returns how many got them before the deadline, or
/// before it `is_over`.
pub(crate) fn hand_out(
    listener: &UnixListener,
    files: &[BorrowedFd<'_>],
    key: &IslandKey,
    expected: usize,
    deadline: Deadline,
    is_over: &dyn Fn() -> bool,
) -> io::Result<usize> {
    listener.set_nonblocking(true)?;
    let mut callers = Vec::new();
    let (mut served, mut failed) = (0, 0);
    while served < expected && failed < FAILED_PROOFS_MAX && !deadline.passed() && !is_over() {
        failed += welcome(listener, &mut callers)?;
        wait_for_callers(listener, &callers, deadline)?;
        callers.retain_mut(|caller: &mut Caller| {
            let said = match caller.listen(key) {
                Ok(false) if caller.until.passed() => Err(io::ErrorKind::TimedOut.into()),
                Ok(false) => return true,
                Ok(true) => caller.give(files, key),
                Err(error) => Err(error),
            };
            match said {
                Ok(()) => served += 1,
                Err(_) => failed += 1,
            }
            false
        });
    }
    Ok(served)
}

/// A peer that has connected, and has not proved itself so far.
struct Caller {
    stream: UnixStream,
    nonce: [u8; NONCE_BYTES],
    answer: [u8; NONCE_BYTES + MAC_BYTES],
    /// Bytes of its answer that have come.
    heard: usize,
    until: Deadline,
}

/// Takes in those who wait, as many as there is room for; says how many of them failed at once.
fn welcome(listener: &UnixListener, callers: &mut Vec<Caller>) -> io::Result<u32> {
    let mut failed = 0;
    while callers.len() < CALLERS_MAX {
        match listener.accept() {
            Ok((stream, _)) => match Caller::greet(stream) {
                Ok(caller) => callers.push(caller),
                Err(_) => failed += 1,
            },
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(failed)
}

/// Waits a moment until somebody connects or says something.
fn wait_for_callers(
    listener: &UnixListener,
    callers: &[Caller],
    deadline: Deadline,
) -> io::Result<()> {
    use rustix::event::{PollFd, PollFlags, poll};
    let mut polled: Vec<PollFd<'_>> = callers
        .iter()
        .map(|caller| PollFd::new(&caller.stream, PollFlags::IN))
        .collect();
    if callers.len() < CALLERS_MAX {
        polled.push(PollFd::new(listener, PollFlags::IN));
    }
    let timeout = rustix::time::Timespec::try_from(deadline.left().min(FETCH_STEP))
        .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    match poll(&mut polled, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

impl Caller {
    fn greet(mut stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let mut nonce = [0; NONCE_BYTES];
        random(&mut nonce)?;
        // The first bytes of a connection always fit.
        stream.write_all(&nonce)?;
        Ok(Self {
            stream,
            nonce,
            answer: [0; NONCE_BYTES + MAC_BYTES],
            heard: 0,
            until: Deadline::after(PROOF_TIMEOUT),
        })
    }

    /// Takes in what it has said; whether it has proved that it knows the secret.
    fn listen(&mut self, key: &IslandKey) -> io::Result<bool> {
        while self.heard < self.answer.len() {
            match self.stream.read(&mut self.answer[self.heard..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.heard += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let (theirs, proof) = self.answer.split_at(NONCE_BYTES);
        check_proof(proof, key.mac(b'j', &[&self.nonce, theirs]))?;
        Ok(true)
    }

    /// Proves the secret itself, and gives the descriptors.
    fn give(&self, files: &[BorrowedFd<'_>], key: &IslandKey) -> io::Result<()> {
        self.stream.set_nonblocking(false)?;
        self.stream.set_write_timeout(Some(PROOF_TIMEOUT))?;
        let count = u32::try_from(files.len()).map_err(io::Error::other)?;
        let count = count.to_le_bytes();
        let theirs = &self.answer[..NONCE_BYTES];
        let proof = key.mac(b'l', &[theirs, &self.nonce, &count]);
        let reply = [&count[..], &proof].concat();
        let mut bytes = &reply[..];
        for some in files.chunks(FILES_MAX) {
            send_files(&self.stream, bytes, some)?;
            bytes = &[0];
        }
        Ok(())
    }
}

/// Waits until there is something to take in; false where that took too long.
fn wait_readable(socket: &impl AsFd, deadline: Deadline) -> io::Result<bool> {
    use rustix::event::{PollFd, PollFlags, poll};
    let timeout = rustix::time::Timespec::try_from(deadline.left())
        .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&timeout)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Sends some descriptors with these bytes.
fn send_files(stream: &UnixStream, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::Error::other("no room for the descriptors"));
    }
    let flags = SendFlags::NOSIGNAL;
    let sent = sendmsg(stream, &[IoSlice::new(bytes)], &mut control, flags)?;
    if sent == bytes.len() {
        Ok(())
    } else {
        Err(io::ErrorKind::WriteZero.into())
    }
}

fn check_proof(proof: &[u8], expected: [u8; MAC_BYTES]) -> io::Result<()> {
    let proof: [u8; MAC_BYTES] = proof
        .try_into()
        .map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    // blake3::Hash compares in constant time.
    if blake3::Hash::from(proof) == blake3::Hash::from(expected) {
        Ok(())
    } else {
        Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the peer does not know the secret",
        ))
    }
}

/// Fetches the descriptors that a peer hands out, unless it `is_over` before: the peer may stand still. They are fewer than it
/// gave where the system has no room for more, and one at least.
pub(crate) fn fetch(
    name: &str,
    key: &IslandKey,
    deadline: Deadline,
    is_over: &dyn Fn() -> bool,
) -> io::Result<Vec<OwnedFd>> {
    let mut stream = connect(name, deadline, is_over)?;
    let patience = deadline.left().max(Duration::from_millis(1));
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    let mut theirs = [0; NONCE_BYTES];
    await_bytes(&stream, deadline, is_over)?;
    stream.read_exact(&mut theirs)?;
    let mut answer = [0; NONCE_BYTES + MAC_BYTES];
    random(&mut answer[..NONCE_BYTES])?;
    let mine: [u8; NONCE_BYTES] = answer[..NONCE_BYTES]
        .try_into()
        .map_err(|_| io::Error::from(io::ErrorKind::Other))?;
    answer[NONCE_BYTES..].copy_from_slice(&key.mac(b'j', &[&theirs, &mine]));
    stream.write_all(&answer)?;
    await_bytes(&stream, deadline, is_over)?;
    let mut reply = [0; COUNT_BYTES + MAC_BYTES];
    let mut files = Vec::new();
    receive_files(&stream, &mut reply, &mut files)?;
    let (count, proof) = reply.split_at(COUNT_BYTES);
    check_proof(proof, key.mac(b'l', &[&mine, &theirs, count]))?;
    let count = count
        .iter()
        .rev()
        .fold(0, |count, byte| count << 8 | usize::from(*byte));
    let mut before = 0;
    while files.len() < count && files.len() - before == FILES_MAX {
        before = files.len();
        receive_files(&stream, &mut [0], &mut files)?;
    }
    if files.is_empty() {
        let what = "no descriptor came along";
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(files)
}

/// Receives as many bytes as there is room for, and the descriptors that came with them.
fn receive_files(
    stream: &UnixStream,
    bytes: &mut [u8],
    files: &mut Vec<OwnedFd>,
) -> io::Result<()> {
    let expected = bytes.len();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL;
    let received = recvmsg(stream, &mut [IoSliceMut::new(bytes)], &mut control, flags)?;
    if received.bytes != expected {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            files.extend(descriptors);
        }
    }
    Ok(())
}

/// Connects to a peer. Where more have come than it has taken in, that takes until it does.
fn connect(name: &str, deadline: Deadline, is_over: &dyn Fn() -> bool) -> io::Result<UnixStream> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
    let mut step = FETCH_STEP;
    loop {
        match rustix::net::connect(&socket, &address) {
            Ok(()) => break,
            Err(rustix::io::Errno::AGAIN) => check_time(deadline, is_over)?,
            Err(errno) => return Err(errno.into()),
        }
        Clock::pause(step);
        step = FETCH_STEP_MAX.min(step * 2);
    }
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Waits until the peer has said something.
fn await_bytes(
    stream: &UnixStream,
    deadline: Deadline,
    is_over: &dyn Fn() -> bool,
) -> io::Result<()> {
    let mut step = FETCH_STEP;
    loop {
        if wait_readable(stream, Deadline::after(step.min(deadline.left())))? {
            return Ok(());
        }
        check_time(deadline, is_over)?;
        step = FETCH_STEP_MAX.min(step * 2);
    }
}

fn check_time(deadline: Deadline, is_over: &dyn Fn() -> bool) -> io::Result<()> {
    if is_over() || deadline.passed() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::shm::arena::{Arena, HEAP_BYTES_MIN};

    #[test]
    fn who_knows_the_secret_gets_the_descriptors_and_nobody_else() {
        let arena = Arena::create(1, HEAP_BYTES_MIN).unwrap();
        let name = socket_name().unwrap();
        let listener = listen(&name).unwrap();
        let deadline = Deadline::after(Duration::from_secs(20));
        let key = IslandKey::derive(&[7; 32]);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let wrong = IslandKey::derive(&[8; 32]);
                assert!(fetch(&name, &wrong, deadline, &|| false).is_err());
                let mut garbage =
                    UnixStream::connect_addr(&SocketAddr::from_abstract_name(&name).unwrap())
                        .unwrap();
                garbage.write_all(&[0xff; 200]).unwrap();
                let mut files = fetch(&name, &key, deadline, &|| false).unwrap();
                assert_eq!(files.len(), 2 * FILES_MAX + 1);
                assert!(Arena::attach(files.remove(0), 1).is_ok());
            });
            let files = vec![arena.file(); 2 * FILES_MAX + 1];
            let served = hand_out(&listener, &files, &key, 1, deadline, &|| false);
            assert_eq!(served.unwrap(), 1);
        });
    }

    #[test]
    fn a_peer_that_says_nothing_keeps_nobody_waiting() {
        let arena = Arena::create(1, HEAP_BYTES_MIN).unwrap();
        let name = socket_name().unwrap();
        let listener = listen(&name).unwrap();
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let silent: Vec<UnixStream> = (0..3)
            .map(|_| UnixStream::connect_addr(&address).unwrap())
            .collect();
        let key = IslandKey::derive(&[7; 32]);
        let begun = Deadline::after(Duration::from_secs(20));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(fetch(&name, &key, begun, &|| false).unwrap().len(), 1);
            });
            let files = [arena.file()];
            let served = hand_out(&listener, &files, &key, 1, begun, &|| false);
            assert_eq!(served.unwrap(), 1);
        });
        // One after the other they would have had their whole time first.
        assert!(begun.elapsed() < 3 * PROOF_TIMEOUT, "{:?}", begun.elapsed());
        drop(silent);
    }
}
