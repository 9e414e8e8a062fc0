//! What a rank tells the launcher, and what it costs on the wire.
//!
//! The launcher believes none of it blindly: a message that cannot be read, or that names a case
//! which the rank has no part in, is a failure of that rank.

use muster_comm::error::ErrorKind;
use muster_comm::types::ReduceOp;
use serde::{Deserialize, Serialize};

/// A message of a rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum RankMessage {
    /// All cases are done.
    Done,
    /// The rank cannot go on.
    Failed(Failed),
    /// Every rank came, and the first barrier is behind this one.
    Joined {
        /// Microseconds since the process started.
        elapsed_us: u64,
    },
    /// A cell was measured in one round: the bytes of what the kind of work tells.
    Measured(Vec<u8>),
    /// A case that came out wrong was tried again while one member of the group stayed away.
    Probe {
        /// Number of the case.
        case: u32,
        /// World rank of the member that stayed away.
        absent: u32,
        /// Whether it came out wrong again.
        wrong: bool,
    },
    /// Results of some cases.
    Results(Vec<CaseResult>),
}

/// Why a rank cannot go on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failed {
    /// Number of the case, if one was under way.
    pub case: Option<u32>,
    /// The error of the call, if it was one of a communicator.
    pub kind: Option<ErrorKind>,
    /// Exit code of the class, where there is no `kind` to tell it.
    pub exit: u8,
    /// The error in words.
    pub text: String,
    /// What to do next.
    pub help: Option<String>,
}

/// The result of one case on one rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseResult {
    /// Number of the case.
    pub case: u32,
    /// Time that it took here, in microseconds.
    pub elapsed_us: u64,
    /// How long each of its calls lasted here, in microseconds, where all members leave a call together; else empty.
    pub calls_us: Vec<u64>,
    /// The algorithm of the last call of the case, where one was selected.
    pub algo: Option<String>,
    /// What was wrong, if anything.
    pub wrong: Option<Wrong>,
    /// What of the case this rank's device does not have; all of it, where one has no reduction.
    pub refused: Vec<Refusal>,
}

/// A call that a product does not have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The reduction, where only that is missing.
    pub op: Option<ReduceOp>,
    /// Why, with what there is.
    pub why: String,
}

/// What a rank found wrong.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Wrong {
    /// Index of the first wrong element of the receive buffer.
    pub element: Option<u64>,
    /// Number of wrong elements.
    pub differing: Option<u64>,
    /// What it should have been.
    pub expected: String,
    /// What it was.
    pub got: String,
    /// World ranks that explain it, if the place of the element tells.
    pub blamed: Vec<u32>,
    /// The circumstances: reduction, root, in place or not, or what else there is to say.
    pub text: String,
}

/// Largest message that the launcher looks at.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Why a message cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// Too long to look at.
    #[error("the message is {0} bytes long, allowed are {MESSAGE_BYTES_MAX}")]
    TooLong(usize),
    /// Not one of ours, or cut off.
    #[error("the message cannot be understood: {0}")]
    Unreadable(#[from] postcard::Error),
}

impl RankMessage {
    /// The bytes of a message.
    ///
    /// # Errors
    /// If it cannot be encoded, or would be longer than the launcher takes.
    pub fn encode(&self) -> Result<Vec<u8>, MessageError> {
        let bytes = postcard::to_stdvec(self)?;
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(MessageError::TooLong(bytes.len()));
        }
        Ok(bytes)
    }

    /// The message that some bytes are.
    ///
    /// # Errors
    /// If they are none.
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(MessageError::TooLong(bytes.len()));
        }
        Ok(postcard::from_bytes(bytes)?)
    }
}

#[cfg(test)]
mod tests {
    use muster_comm::types::Rank;

    use super::*;

    #[test]
    fn messages_survive_the_wire_and_garbage_does_not_pass() {
        let messages = [
            RankMessage::Done,
            RankMessage::Probe {
                case: 3,
                absent: 2,
                wrong: true,
            },
            RankMessage::Joined { elapsed_us: 5 },
            RankMessage::Failed(Failed {
                case: Some(9),
                kind: Some(ErrorKind::PeerClosed {
                    peer: Rank(3),
                    how: "was killed by signal 9".to_owned(),
                    orderly: false,
                }),
                exit: 20,
                text: "x".to_owned(),
                help: None,
            }),
            RankMessage::Results(vec![CaseResult {
                algo: Some("ring".to_owned()),
                case: 1,
                elapsed_us: 2,
                calls_us: vec![3],
                wrong: Some(Wrong {
                    element: Some(4),
                    ..Wrong::default()
                }),
                refused: Vec::new(),
            }]),
        ];
        for message in messages {
            let bytes = message.encode().expect("encodes");
            assert_eq!(RankMessage::decode(&bytes).expect("decodes"), message);
            for cut in 0..bytes.len() {
                assert!(
                    RankMessage::decode(&bytes[..cut]).is_err(),
                    "{message:?} cut at {cut}"
                );
            }
        }
        assert!(RankMessage::decode(&vec![0; MESSAGE_BYTES_MAX + 1]).is_err());
        assert!(RankMessage::decode(&[250, 1, 2, 3]).is_err());
    }
}
