//! Frames and messages of the control protocol. `docs/protocol.md` describes them for people.
//!
//! Knows bytes and limits; no sockets, no clocks, no state of a job.
//!
//! - `WIRE-1`: every frame begins with its length; a length over the limit of the moment ends the
//!   connection before anything is allocated for it.
//! - `WIRE-2`: a buffer grows with the bytes that arrived, never with the length announced.
//! - `WIRE-3`: the handshake and the introduction keep their layout in all versions of the
//!   protocol, so that builds that differ can tell each other so.

use std::io::{self, Read};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use super::card::{Card, DownReason};
use super::error::RendezvousError;
use super::limits::{HANDSHAKE_FRAME_BYTES_MAX, JOB_ID_BYTES_MAX};
use super::secret::{NONCE_BYTES, PROOF_BYTES, Seal, TAG_BYTES};
use crate::types::Rank;

/// Version of everything after the introduction.
pub(super) const PROTOCOL: u32 = 1;

const OPENING_MAGIC: [u8; 8] = *b"muster>1";
const CHALLENGE_MAGIC: [u8; 8] = *b"muster<1";
const LENGTH_BYTES: usize = 4;
/// Bytes before the body of a sealed frame: its length and its tag.
pub(super) const HEAD_BYTES: usize = LENGTH_BYTES + TAG_BYTES;

/// What this crate was built from, as far as two ranks must read it alike: the version of the
/// package and a digest of the sources that define messages, frames, what lies in shared memory,
/// and the algorithms. Ranks with different builds refuse each other by name instead of misreading
/// each other.
#[must_use]
pub fn build_id() -> String {
    static BUILD: OnceLock<String> = OnceLock::new();
    let digest = || {
        let mut hasher = blake3::Hasher::new();
        for source in [
            include_str!("wire.rs"),
            include_str!("card.rs"),
            include_str!("error.rs"),
            include_str!("../algo/registry.rs"),
            include_str!("../backend/local.rs"),
            include_str!("../backend/segment.rs"),
            include_str!("../transport/frame.rs"),
            include_str!("../transport/ring.rs"),
            include_str!("../transport/shm/arena.rs"),
            include_str!("../transport/shm/directory.rs"),
            include_str!("../transport/shm/slot.rs"),
            include_str!("../types.rs"),
            include_str!("../world/meet.rs"),
        ] {
            hasher.update(source.as_bytes());
        }
        let digest = hasher.finalize().to_hex();
        format!("{}+{}", env!("CARGO_PKG_VERSION"), &digest[..8])
    };
    BUILD.get_or_init(digest).clone()
}

/// Why bytes are no frame or no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum WireError {
    #[error("a frame of {bytes} bytes, at most {max} are allowed here")]
    TooLong { bytes: u64, max: usize },
    #[error("a frame whose tag does not fit")]
    Tag,
    #[error("bytes that are no {0}")]
    Malformed(&'static str),
}

/// The joiner's first frame. Nothing in it is secret and nothing in it is believed: job and attempt
/// only serve to word a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Opening {
    pub(super) nonce: [u8; NONCE_BYTES],
    pub(super) attempt: u32,
    pub(super) job_id: String,
}

impl Opening {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut body = OPENING_MAGIC.to_vec();
        body.extend_from_slice(&self.nonce);
        body.extend_from_slice(&self.attempt.to_le_bytes());
        body.extend_from_slice(self.job_id.as_bytes());
        body
    }

    pub(super) fn decode(body: &[u8]) -> Option<Self> {
        let rest = body.strip_prefix(&OPENING_MAGIC)?;
        let (nonce, rest) = rest.split_first_chunk()?;
        let (attempt, job_id) = rest.split_first_chunk()?;
        if job_id.len() > JOB_ID_BYTES_MAX {
            return None;
        }
        Some(Self {
            nonce: *nonce,
            attempt: u32::from_le_bytes(*attempt),
            job_id: std::str::from_utf8(job_id).ok()?.to_owned(),
        })
    }
}

/// The coordinator's answer to an opening.
pub(super) fn encode_challenge(nonce: &[u8; NONCE_BYTES]) -> Vec<u8> {
    let mut body = CHALLENGE_MAGIC.to_vec();
    body.extend_from_slice(nonce);
    body
}

/// The nonce of a challenge.
pub(super) fn decode_challenge(body: &[u8]) -> Option<[u8; NONCE_BYTES]> {
    body.strip_prefix(&CHALLENGE_MAGIC)?.try_into().ok()
}

/// What follows the joiner's proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// The proof holds; here is the coordinator's.
    Welcome([u8; PROOF_BYTES]),
    /// It does not hold. What the coordinator serves tells the joiner why; see [`Opening`].
    Refused { attempt: u32, job_id: String },
}

impl Admission {
    const REFUSED: u8 = 0;
    const WELCOME: u8 = 1;

    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Welcome(proof) => [&[Self::WELCOME], &proof[..]].concat(),
            Self::Refused { attempt, job_id } => [
                &[Self::REFUSED],
                &attempt.to_le_bytes()[..],
                job_id.as_bytes(),
            ]
            .concat(),
        }
    }

    pub(super) fn decode(body: &[u8]) -> Option<Self> {
        match body.split_first()? {
            (&Self::WELCOME, proof) => Some(Self::Welcome(proof.try_into().ok()?)),
            (&Self::REFUSED, rest) => {
                let (attempt, job_id) = rest.split_first_chunk()?;
                if job_id.len() > JOB_ID_BYTES_MAX {
                    return None;
                }
                Some(Self::Refused {
                    attempt: u32::from_le_bytes(*attempt),
                    job_id: std::str::from_utf8(job_id).ok()?.to_owned(),
                })
            }
            _ => None,
        }
    }
}

/// The first sealed frame of a joiner; its layout never changes (`WIRE-3`). The card behind it
/// belongs to the protocol's version and is read only if that fits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Introduction {
    pub(super) protocol: u32,
    pub(super) build: String,
    pub(super) rank: i64,
    pub(super) world_size: i64,
    pub(super) source: String,
    pub(super) host: String,
    pub(super) pid: u32,
}

/// The introduction and the card, as one body.
pub(super) fn encode_introduction(introduction: &Introduction, card: &Card) -> Body {
    let mut bytes = encode(introduction);
    bytes.extend_from_slice(&encode(card));
    Body::from_bytes(bytes)
}

/// The introduction, and the bytes of the card.
pub(super) fn decode_introduction(body: &[u8]) -> Result<(Introduction, &[u8]), WireError> {
    postcard::take_from_bytes(body).map_err(|_| WireError::Malformed("introduction"))
}

/// What a joined rank says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ToCoordinator {
    /// To every other rank.
    Abort {
        #[serde(with = "super::blob")]
        bytes: Vec<u8>,
    },
    /// Goodbye: the connection ends in good order.
    Bye,
    /// My time is up and the world is not complete: who is missing?
    GiveUp,
    /// My part of a round.
    Part {
        round: String,
        budget_ms: u64,
        #[serde(with = "super::blob")]
        bytes: Vec<u8>,
    },
    /// To the coordinator's owner.
    Report {
        #[serde(with = "super::blob")]
        bytes: Vec<u8>,
    },
    /// To the arbiter.
    Watch {
        #[serde(with = "super::blob")]
        bytes: Vec<u8>,
    },
}

/// What the coordinator says to a joined rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ToSession {
    /// A rank wants everybody to stop.
    Abort {
        origin: Rank,
        #[serde(with = "super::blob")]
        bytes: Vec<u8>,
    },
    /// A rank is gone without a goodbye.
    Down { rank: Rank, reason: DownReason },
    /// Bring-up has failed, or this joiner is refused.
    Failed { error: RendezvousError },
    /// Ranks said goodbye. Those of one turn of the coordinator come together: when a whole world
    /// leaves, the frames would otherwise be as many as its ranks squared.
    Left { ranks: Vec<Rank> },
    /// From the coordinator's owner.
    Message {
        #[serde(with = "super::blob")]
        bytes: Vec<u8>,
    },
    /// I live, and these are missing.
    Progress {
        missing: Vec<Rank>,
        missing_more: u32,
    },
    /// The world is complete: one card a rank, in rank order.
    Roster { cards: Vec<Card> },
    /// A round is complete: one part a rank, in rank order.
    Round { round: String, parts: Vec<Part> },
    /// A round cannot be completed.
    RoundFailed {
        round: String,
        error: RendezvousError,
    },
    /// From the arbiter.
    Watch {
        #[serde(with = "super::blob")]
        bytes: Vec<u8>,
    },
}

/// One rank's part of a round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Part(#[serde(with = "super::blob")] pub(super) Vec<u8>);

/// Reads one message that must fill `body`.
pub(super) fn decode<'a, M: Deserialize<'a>>(
    what: &'static str,
    body: &'a [u8],
) -> Result<M, WireError> {
    match postcard::take_from_bytes(body) {
        Ok((message, [])) => Ok(message),
        Ok(_) | Err(_) => Err(WireError::Malformed(what)),
    }
}

fn encode(message: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(message).expect("our messages hold nothing that the codec cannot write")
}

/// The body of a sealed frame: encoded and digested once, sent to any number of ranks.
#[derive(Clone)]
pub(super) struct Body {
    pub(super) bytes: Arc<[u8]>,
    digest: [u8; 32],
}

impl Body {
    pub(super) fn new(message: &impl Serialize) -> Self {
        Self::from_bytes(encode(message))
    }

    fn from_bytes(bytes: Vec<u8>) -> Self {
        let digest = blake3::hash(&bytes).into();
        Self {
            bytes: bytes.into(),
            digest,
        }
    }

    /// Length and tag of this body as the next frame under `seal`.
    pub(super) fn head(&self, seal: &mut Seal) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        head[..LENGTH_BYTES].copy_from_slice(&length(&self.bytes));
        head[LENGTH_BYTES..].copy_from_slice(&seal.next(&self.digest));
        head
    }
}

/// A frame of the handshake: its length and its body.
pub(super) fn plain_frame(body: &[u8]) -> Vec<u8> {
    [&length(body)[..], body].concat()
}

fn length(body: &[u8]) -> [u8; LENGTH_BYTES] {
    u32::try_from(body.len())
        .expect("every body is far below 4 GiB: limits.rs")
        .to_le_bytes()
}

/// What has arrived on a connection and was not yet taken.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
    start: usize,
}

impl Inbox {
    /// Takes one read's worth of bytes from `source`; zero is the end of the stream.
    pub(super) fn fill(&mut self, source: &mut impl Read, scratch: &mut [u8]) -> io::Result<usize> {
        let count = source.read(scratch)?;
        self.accept(&scratch[..count]);
        Ok(count)
    }

    /// Appends bytes that have arrived.
    pub(super) fn accept(&mut self, arrived: &[u8]) {
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
        }
        self.bytes.extend_from_slice(arrived);
    }

    /// Bytes that were not yet taken.
    pub(super) fn pending(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// The next frame of the handshake, if all of it is there.
    pub(super) fn plain(&mut self) -> Result<Option<Vec<u8>>, WireError> {
        let Some(body) = self.frame(LENGTH_BYTES, HANDSHAKE_FRAME_BYTES_MAX)? else {
            return Ok(None);
        };
        let body = self.bytes[body].to_vec();
        self.compact();
        Ok(Some(body))
    }

    /// The next sealed frame, if all of it is there and `seal` admits it.
    pub(super) fn sealed(
        &mut self,
        seal: &mut Seal,
        bytes_max: usize,
    ) -> Result<Option<Vec<u8>>, WireError> {
        let Some(body) = self.frame(HEAD_BYTES, bytes_max)? else {
            return Ok(None);
        };
        let mut tag = [0; TAG_BYTES];
        tag.copy_from_slice(&self.bytes[body.start - TAG_BYTES..body.start]);
        let body = self.bytes[body].to_vec();
        self.compact();
        if !seal.admits(&body, &tag) {
            return Err(WireError::Tag);
        }
        Ok(Some(body))
    }

    /// Where the next frame's body lies, if all of it is there; takes the frame.
    fn frame(
        &mut self,
        head_bytes: usize,
        bytes_max: usize,
    ) -> Result<Option<Range<usize>>, WireError> {
        let Some((length, _)) = self.pending().split_first_chunk() else {
            return Ok(None);
        };
        let bytes = u64::from(u32::from_le_bytes(*length));
        if bytes > bytes_max as u64 {
            return Err(WireError::TooLong {
                bytes,
                max: bytes_max,
            });
        }
        let body = self.start + head_bytes;
        let end = body + crate::types::index(bytes);
        if self.bytes.len() < end {
            return Ok(None);
        }
        self.start = end;
        Ok(Some(body..end))
    }

    /// Gives back memory once everything was taken, and what was taken once it is the larger part.
    fn compact(&mut self) {
        /// Memory that an idle connection may keep.
        const KEEP_BYTES: usize = 4 * 1024;
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.bytes.shrink_to(KEEP_BYTES);
            self.start = 0;
        } else if self.start > self.bytes.len() / 2 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rendezvous::error::{Absence, Presence};
    use crate::rendezvous::secret::{Secret, Transcript};

    fn seals() -> (Seal, Seal) {
        let transcript = Transcript::new(&Secret::from_bytes([1; 32]), b"opening", &[2; 32]);
        (transcript.joiner_seal(), transcript.joiner_seal())
    }

    fn arbitrary() -> impl Strategy<Value = Vec<u8>> {
        // Small first bytes are the numbers of variants and short lengths: more of them gets past
        // the first check.
        let head = proptest::collection::vec(0..12u8, 0..6);
        let rest = proptest::collection::vec(any::<u8>(), 0..600);
        (head, rest).prop_map(|(head, rest)| [head, rest].concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever is decoded holds no more than the bytes that it was decoded from.
        #[test]
        fn arbitrary_bytes_are_refused_or_mean_what_they_encode(bytes in arbitrary()) {
            let _ = decode_challenge(&bytes);
            if let Some(opening) = Opening::decode(&bytes) {
                prop_assert_eq!(opening.encode(), bytes.clone());
            }
            if let Some(admission) = Admission::decode(&bytes) {
                prop_assert_eq!(admission.encode(), bytes.clone());
            }
            if let Ok((introduction, card)) = decode_introduction(&bytes) {
                prop_assert!(encode(&introduction).len() + card.len() <= bytes.len());
            }
            if let Ok(message) = decode::<ToCoordinator>("", &bytes) {
                prop_assert!(encode(&message).len() <= bytes.len());
            }
            if let Ok(message) = decode::<ToSession>("", &bytes) {
                prop_assert!(encode(&message).len() <= bytes.len());
            }
            if let Ok(card) = decode::<Card>("", &bytes) {
                prop_assert!(encode(&card).len() <= bytes.len());
            }
        }

        /// `WIRE-1` and `WIRE-2`, for bytes that come in pieces of any size.
        #[test]
        fn an_inbox_never_holds_more_than_has_arrived(
            bytes in proptest::collection::vec(any::<u8>(), 0..3000),
            piece in 1..700usize,
            is_sealed in any::<bool>(),
        ) {
            let (mut seal, _) = seals();
            let mut inbox = Inbox::default();
            let mut arrived = 0;
            for piece in bytes.chunks(piece) {
                arrived += piece.len();
                inbox.accept(piece);
                let frame = if is_sealed { inbox.sealed(&mut seal, 1000) } else { inbox.plain() };
                // A vector doubles, so its capacity may be twice what it holds.
                prop_assert!(inbox.bytes.capacity() <= 2 * arrived.max(8 * 1024));
                prop_assert!(inbox.pending().len() <= arrived);
                if frame.is_err() {
                    break;
                }
            }
        }

        #[test]
        fn frames_arrive_whole_and_in_order_however_the_bytes_are_cut(
            bodies in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..8),
            piece in 1..700usize,
        ) {
            let (mut write, mut read) = seals();
            let mut stream = Vec::new();
            for body in &bodies {
                let body = Body::from_bytes(body.clone());
                stream.extend_from_slice(&body.head(&mut write));
                stream.extend_from_slice(&body.bytes);
            }
            let mut inbox = Inbox::default();
            let mut arrived = Vec::new();
            for piece in stream.chunks(piece) {
                inbox.accept(piece);
                while let Some(body) = inbox.sealed(&mut read, 300).unwrap() {
                    arrived.push(body);
                }
            }
            prop_assert_eq!(arrived, bodies);
            prop_assert!(inbox.pending().is_empty());
        }
    }

    #[test]
    fn a_length_over_the_limit_is_refused_before_its_bytes_arrive() {
        let mut inbox = Inbox::default();
        inbox.accept(&513u32.to_le_bytes());
        let (bytes, max) = (513, HANDSHAKE_FRAME_BYTES_MAX);
        assert_eq!(inbox.plain(), Err(WireError::TooLong { bytes, max }));
        let (mut seal, _) = seals();
        let mut inbox = Inbox::default();
        inbox.accept(&u32::MAX.to_le_bytes());
        let (bytes, max) = (u64::from(u32::MAX), 1000);
        assert_eq!(
            inbox.sealed(&mut seal, 1000),
            Err(WireError::TooLong { bytes, max })
        );
    }

    #[test]
    fn a_message_with_bytes_after_it_is_malformed() {
        let mut bytes = encode(&ToCoordinator::Bye);
        assert_eq!(decode("m", &bytes), Ok(ToCoordinator::Bye));
        bytes.push(0);
        let decoded = decode::<ToCoordinator>("m", &bytes);
        assert_eq!(decoded, Err(WireError::Malformed("m")));
    }

    #[test]
    fn an_error_arrives_as_it_was_sent() {
        let error = RendezvousError::Missing {
            absence: Box::new(Absence {
                world_size: 3,
                waited_ms: 17,
                missing: vec![Rank(1)],
                missing_more: 0,
                present: vec![Presence {
                    rank: Rank(0),
                    host: "n1".to_owned(),
                    pid: 4711,
                    since_ms: 5,
                }],
            }),
        };
        let message = ToSession::Failed { error };
        assert_eq!(decode("m", &encode(&message)), Ok(message));
    }

    #[test]
    fn the_longest_honest_opening_fits_the_handshake() {
        let opening = Opening {
            nonce: [0; NONCE_BYTES],
            attempt: u32::MAX,
            job_id: "j".repeat(JOB_ID_BYTES_MAX),
        };
        let body = opening.encode();
        assert!(body.len() <= HANDSHAKE_FRAME_BYTES_MAX);
        assert_eq!(Opening::decode(&body), Some(opening));
    }
}
