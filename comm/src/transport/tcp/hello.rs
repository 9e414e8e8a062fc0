//! The handshake: which link this is to be, and a proof of the job's secret from both sides.
//!
//! ```text
//! connector                                  acceptor
//!   hello: magic, version, link, nonce  ->
//!                                       <-   answer: status, nonce, MAC("accept", hello, nonce)
//!   proof: MAC("connect", hello, nonce) ->
//!                                       <-   verdict: status
//! ```
//!
//! All messages have a fixed length. The MACs are keyed with a key that is derived from the secret
//! for this purpose only, so that no proof made elsewhere fits here.
//!
//! - HELLO-1: neither side acts on anything but the format of what it reads until the other side
//!   has proved the secret under a nonce of this side's own making.

use std::fmt;
use std::io;

use bytemuck::{Pod, Zeroable};

use super::LANES_MAX;

/// Bytes of a job's secret.
pub const SECRET_BYTES: usize = 32;

/// "muHi" in a dump of a little-endian wire.
const MAGIC: u32 = u32::from_le_bytes(*b"muHi");
/// Changes with the meaning of any field.
const VERSION: u16 = 2;
/// Names what the derived key is for.
const KEY_CONTEXT: &str = "muster 2026 tcp link handshake v1";

pub(super) const HELLO_BYTES: usize = size_of::<Hello>();
pub(super) const PROOF_BYTES: usize = 32;
pub(super) const NONCE_BYTES: usize = 32;
/// Status, nonce and proof of the acceptor.
pub(super) const ANSWER_BYTES: usize = STATUS_BYTES + NONCE_BYTES + PROOF_BYTES;
pub(super) const STATUS_BYTES: usize = 4;
/// The verdict that lets the connector in.
pub(super) const CONSENT: [u8; STATUS_BYTES] = [0; STATUS_BYTES];

/// Which link two ranks make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkName {
    /// The key that all ranks of the group derive.
    pub group: u64,
    /// Which of several links between the same two ranks of the group.
    pub plane: u8,
    /// Connections of the stream that this one is part of, 1 to [`super::LANES_MAX`].
    pub lanes: u8,
    /// World rank of the connector.
    pub from: u32,
    /// World rank of the acceptor.
    pub to: u32,
}

/// The first message, as it lies on the wire: every number little endian.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Hello {
    magic: u32,
    version: u16,
    plane: u8,
    lanes: u8,
    group: u64,
    from: u32,
    to: u32,
    nonce: [u8; NONCE_BYTES],
}

const _: () = assert!(HELLO_BYTES == 56);

impl Hello {
    /// The first message for this link, with a nonce that nobody has used.
    pub(super) fn of(name: LinkName) -> io::Result<Self> {
        Ok(Self {
            magic: MAGIC.to_le(),
            version: VERSION.to_le(),
            plane: name.plane,
            lanes: name.lanes,
            group: name.group.to_le(),
            from: name.from.to_le(),
            to: name.to.to_le(),
            nonce: nonce()?,
        })
    }
}

/// The key of all MACs of a job's handshakes.
#[derive(Clone)]
pub(super) struct Key([u8; 32]);

impl Key {
    pub(super) fn new(secret: &[u8; SECRET_BYTES]) -> Self {
        Self(blake3::derive_key(KEY_CONTEXT, secret))
    }

    /// What `role` proves with. Comparing two of these takes the same time wherever they differ.
    pub(super) fn mac(
        &self,
        role: Role,
        hello: &[u8; HELLO_BYTES],
        nonce: &[u8; NONCE_BYTES],
    ) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(role.label());
        hasher.update(hello);
        hasher.update(nonce);
        hasher.finalize()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(secret)")
    }
}

/// Who proves: a proof of one side is none of the other's.
#[derive(Clone, Copy, Debug)]
pub(super) enum Role {
    Acceptor,
    Connector,
}

impl Role {
    /// Labels of one length, so that no two inputs of the MAC read alike.
    const fn label(self) -> &'static [u8; 8] {
        match self {
            Self::Acceptor => b"accept: ",
            Self::Connector => b"connect:",
        }
    }
}

/// Why an acceptor wants no link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// It has ended the group.
    Ended,
    /// It holds as many links as it may that its rank has not taken.
    Full,
    /// The connector does not know the job's secret: it belongs to another job.
    Job,
    /// It is another rank than the one that was meant.
    Rank,
    /// It speaks another version.
    Version,
}

impl Refusal {
    const ALL: [Self; 5] = [
        Self::Ended,
        Self::Full,
        Self::Job,
        Self::Rank,
        Self::Version,
    ];

    /// The number on the wire; 0 is consent.
    pub(super) const fn code(self) -> u32 {
        match self {
            Self::Full => 1,
            Self::Job => 2,
            Self::Rank => 3,
            Self::Version => 4,
            Self::Ended => 5,
        }
    }

    pub(super) fn from_code(code: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.code() == code)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ended => "it has ended the group",
            Self::Full => "too many links wait to be taken there",
            Self::Job => "it belongs to a job with another secret",
            Self::Rank => "another rank listens there",
            Self::Version => "it speaks another version",
        })
    }
}

/// What an acceptor reads from a hello.
pub(super) fn parse(bytes: &[u8; HELLO_BYTES], me: u32) -> Result<LinkName, Option<Refusal>> {
    let hello: Hello = bytemuck::pod_read_unaligned(bytes);
    if u32::from_le(hello.magic) != MAGIC {
        // No rank of ours: no answer.
        return Err(None);
    }
    let lanes = 1..=LANES_MAX;
    if u16::from_le(hello.version) != VERSION || !lanes.contains(&hello.lanes) {
        return Err(Some(Refusal::Version));
    }
    let name = LinkName {
        group: u64::from_le(hello.group),
        plane: hello.plane,
        lanes: hello.lanes,
        from: u32::from_le(hello.from),
        to: u32::from_le(hello.to),
    };
    if name.to != me || name.from == me {
        return Err(Some(Refusal::Rank));
    }
    Ok(name)
}

/// The acceptor's answer to a hello that it can serve, and the nonce in it.
pub(super) fn answer(
    key: &Key,
    hello: &[u8; HELLO_BYTES],
) -> io::Result<([u8; ANSWER_BYTES], [u8; NONCE_BYTES])> {
    let nonce = nonce()?;
    let mut bytes = [0; ANSWER_BYTES];
    bytes[STATUS_BYTES..STATUS_BYTES + NONCE_BYTES].copy_from_slice(&nonce);
    let mac = key.mac(Role::Acceptor, hello, &nonce);
    bytes[STATUS_BYTES + NONCE_BYTES..].copy_from_slice(mac.as_bytes());
    Ok((bytes, nonce))
}

/// The acceptor's answer to a hello that it cannot serve: as long as the other, so that the
/// connector reads one length.
pub(super) fn refuse(reason: Refusal) -> [u8; ANSWER_BYTES] {
    let mut bytes = [0; ANSWER_BYTES];
    bytes[..STATUS_BYTES].copy_from_slice(&reason.code().to_le_bytes());
    bytes
}

fn nonce() -> io::Result<[u8; NONCE_BYTES]> {
    let mut nonce = [0; NONCE_BYTES];
    let len = rustix::rand::getrandom(&mut nonce[..], rustix::rand::GetRandomFlags::empty())?;
    // The system never cuts requests of up to 256 bytes short.
    if len == NONCE_BYTES {
        Ok(nonce)
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}
