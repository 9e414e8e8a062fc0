//! Frames: how a body leaves, and how it is found among the bytes that have arrived.

use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;

use serde::Serialize;

use super::super::limits::HANDSHAKE_FRAME_BYTES_MAX;
use super::super::secret::{Seal, TAG_BYTES};
use super::{WireError, encode};

const LENGTH_BYTES: usize = 4;
/// Bytes before the body of a sealed frame: its length and its tag.
pub(in crate::rendezvous) const HEAD_BYTES: usize = LENGTH_BYTES + TAG_BYTES;

/// The body of a sealed frame: encoded and digested once, sent to any number of ranks.
#[derive(Clone)]
pub(crate) struct Body {
    pub(crate) bytes: Arc<[u8]>,
    digest: [u8; 32],
}

impl Body {
    pub(crate) fn new(message: &impl Serialize) -> Self {
        Self::from_bytes(encode(message))
    }

    pub(super) fn from_bytes(bytes: Vec<u8>) -> Self {
        let digest = blake3::hash(&bytes).into();
        Self {
            bytes: bytes.into(),
            digest,
        }
    }

    /// Length and tag of this body as the next frame under `seal`.
    pub(in crate::rendezvous) fn head(&self, seal: &mut Seal) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        head[..LENGTH_BYTES].copy_from_slice(&length(&self.bytes));
        head[LENGTH_BYTES..].copy_from_slice(&seal.next(&self.digest));
        head
    }
}

/// A frame of the handshake: its length and its body.
pub(in crate::rendezvous) fn plain_frame(body: &[u8]) -> Vec<u8> {
    [&length(body)[..], body].concat()
}

fn length(body: &[u8]) -> [u8; LENGTH_BYTES] {
    u32::try_from(body.len())
        .expect("every body is far below 4 GiB: limits.rs")
        .to_le_bytes()
}

/// What has arrived on a connection and was not yet taken.
#[derive(Debug, Default)]
pub(in crate::rendezvous) struct Inbox {
    bytes: Vec<u8>,
    start: usize,
}

impl Inbox {
    /// Takes one read's worth of bytes from `source`; zero is the end of the stream.
    pub(in crate::rendezvous) fn fill(
        &mut self,
        source: &mut impl Read,
        scratch: &mut [u8],
    ) -> io::Result<usize> {
        let count = source.read(scratch)?;
        self.accept(&scratch[..count]);
        Ok(count)
    }

    /// Appends bytes that have arrived.
    pub(in crate::rendezvous) fn accept(&mut self, arrived: &[u8]) {
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
        }
        self.bytes.extend_from_slice(arrived);
    }

    /// Bytes that were not yet taken.
    pub(in crate::rendezvous) fn pending(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// The next frame of the handshake, if all of it is there.
    pub(in crate::rendezvous) fn plain(&mut self) -> Result<Option<Vec<u8>>, WireError> {
        let Some(body) = self.frame(LENGTH_BYTES, HANDSHAKE_FRAME_BYTES_MAX)? else {
            return Ok(None);
        };
        let body = self.bytes[body].to_vec();
        self.compact();
        Ok(Some(body))
    }

    /// The next sealed frame, if all of it is there and `seal` admits it.
    pub(in crate::rendezvous) fn sealed(
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
    use crate::rendezvous::secret::{Secret, Transcript};

    fn seals() -> (Seal, Seal) {
        let transcript = Transcript::new(&Secret::from_bytes([1; 32]), b"opening", &[2; 32]);
        (transcript.joiner_seal(), transcript.joiner_seal())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

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
}
