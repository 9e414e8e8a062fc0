//! Frames and messages of the control protocol. `docs/protocol.md` describes them for people.
//!
//! Knows bytes and limits; no sockets, no clocks, no state of a job.
//!
//! - `WIRE-1`: every frame begins with its length; a length over the limit of the moment ends the
//!   connection before anything is allocated for it.
//! - `WIRE-2`: a buffer grows with the bytes that arrived, never with the length announced.
//! - `WIRE-3`: the handshake and the introduction keep their layout in all versions of the
//!   protocol, so that builds that differ can tell each other so.

mod frame;

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

pub(crate) use self::frame::Body;
pub(super) use self::frame::{HEAD_BYTES, Inbox, plain_frame};
use super::card::{Card, DownReason, ProcessId};
use super::error::RendezvousError;
use super::limits::JOB_ID_BYTES_MAX;
use super::secret::{NONCE_BYTES, PROOF_BYTES};
use crate::types::Rank;

/// Version of everything after the introduction.
pub(crate) const PROTOCOL: u32 = 1;

const OPENING_MAGIC: [u8; 8] = *b"muster>1";
const CHALLENGE_MAGIC: [u8; 8] = *b"muster<1";

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
            include_str!("wire/frame.rs"),
            include_str!("card.rs"),
            include_str!("error.rs"),
            include_str!("../algo/registry.rs"),
            include_str!("../backend/shm_exchange.rs"),
            include_str!("../backend/shm_exchange/assembly.rs"),
            include_str!("../backend/segment.rs"),
            include_str!("../transport/frame.rs"),
            include_str!("../transport/ring.rs"),
            include_str!("../transport/shm/arena.rs"),
            include_str!("../transport/shm/directory.rs"),
            include_str!("../transport/shm/slot.rs"),
            include_str!("../transport/shm/slot/entry.rs"),
            include_str!("../transport/shm/tree.rs"),
            include_str!("../types/collective.rs"),
            include_str!("../types/mod.rs"),
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
pub(crate) enum WireError {
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
pub(crate) struct Introduction {
    pub(crate) protocol: u32,
    pub(crate) build: String,
    pub(crate) rank: i64,
    pub(crate) world_size: i64,
    pub(crate) source: String,
    pub(crate) host: String,
    pub(crate) pid: u32,
}

/// The introduction and the card, as one body.
pub(crate) fn encode_introduction(introduction: &Introduction, card: &Card) -> Body {
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
pub(crate) enum ToCoordinator {
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
pub(crate) enum ToSession {
    /// A rank wants everybody to stop.
    Abort {
        origin: Rank,
        #[serde(with = "super::blob")]
        bytes: Vec<u8>,
    },
    /// A rank is gone without a goodbye.
    Down { rank: Rank, reason: DownReason },
    /// Bring-up has failed, or this joiner is refused, at this time of day.
    Failed {
        error: RendezvousError,
        at_unix_ms: u64,
    },
    /// Your goodbye was read, and the others have been told. The last message of a connection.
    Goodbye,
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
    Roster {
        cards: Vec<Card>,
        /// The process that serves the rendezvous; unknown where nobody judges there.
        server: ProcessId,
    },
    /// A rank cannot come any more, and the ranks were not through their rounds: bring-up has failed, at this time of day.
    Over {
        error: RendezvousError,
        at_unix_ms: u64,
    },
    /// A round is complete: one part a rank, in rank order.
    Round { round: String, parts: Vec<Part> },
    /// A round cannot be completed.
    RoundFailed {
        round: String,
        error: RendezvousError,
        at_unix_ms: u64,
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
pub(crate) struct Part(#[serde(with = "super::blob")] pub(crate) Vec<u8>);

/// Reads one message that must fill `body`.
pub(crate) fn decode<'a, M: Deserialize<'a>>(
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rendezvous::limits::HANDSHAKE_FRAME_BYTES_MAX;
    use crate::rendezvous::presence::{Absence, Presence};

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
                late: None,
                seen: Vec::new(),
            }),
        };
        let message = ToSession::Failed {
            error,
            at_unix_ms: 7,
        };
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
