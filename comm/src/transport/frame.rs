//! The frame: 64 bytes in front of every message of the host engine.
//!
//! A frame says which call of which group its message belongs to and how the sender was called, so
//! the receiver compares before it lets a byte of payload near a buffer. The call is described by
//! plain numbers ([`CallTag`]): this file knows no collectives and no element types.
//!
//! Invariants:
//! - FRAME-1: `decode(encode(frame)) == frame`, and any single corrupt byte is an error.
//! - FRAME-2: no number of a decoded frame exceeds its limit, whatever the peer sent.

use std::fmt;

use bytemuck::{Pod, Zeroable};

/// Bytes of a frame on the wire.
pub const FRAME_BYTES: usize = 64;

/// Longest payload that one frame may announce. A length beyond it is an attack or garbage.
pub const PAYLOAD_MAX: u64 = (1 << 40) - 1;

/// "muSt" in a dump of a little-endian wire.
const MAGIC: u32 = u32::from_le_bytes(*b"muSt");
/// Changes with the meaning of any field.
const VERSION: u16 = 2;
/// Where the mark lies in the word of the payload's length.
const MARK_SHIFT: u32 = 40;
const _: () = assert!(PAYLOAD_MAX < 1 << MARK_SHIFT);

const KIND_DATA: u8 = 1;
const KIND_ABORT: u8 = 2;
const KIND_CLOSED: u8 = 3;
/// The frame carries a checksum of its payload.
const FLAG_CHECKSUM: u8 = 1;

/// How a rank was called, as numbers that ranks can compare.
///
/// The caller chooses the numbers; equal calls must give equal tags on all ranks. What may
/// legally differ from rank to rank (the counts of an all-to-all with uneven blocks) stays out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CallTag {
    /// The collective.
    pub collective: u8,
    /// The element type.
    pub dtype: u8,
    /// The reduction; 0 for none.
    pub op: u8,
    /// The algorithm; 0 where there is only one.
    pub algo: u8,
    /// The root; [`CallTag::NO_ROOT`] for none.
    pub root: u32,
    /// Elements, in the sense of the collective.
    pub count: u64,
    /// A hash over whatever else must agree, a table of counts for instance; 0 for nothing.
    pub count_hash: u32,
}

impl CallTag {
    /// The root of a call that has none.
    pub const NO_ROOT: u32 = u32::MAX;

    /// The first field in which two tags differ, the most telling one first.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Option<TagField> {
        [
            (TagField::Collective, self.collective != other.collective),
            (TagField::DType, self.dtype != other.dtype),
            (TagField::Op, self.op != other.op),
            (TagField::Root, self.root != other.root),
            (TagField::Count, self.count != other.count),
            (TagField::CountHash, self.count_hash != other.count_hash),
            (TagField::Algo, self.algo != other.algo),
        ]
        .into_iter()
        .find_map(|(field, differs)| differs.then_some(field))
    }
}

/// A field of a [`CallTag`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TagField {
    /// The algorithm.
    Algo,
    /// The collective.
    Collective,
    /// The number of elements.
    Count,
    /// The hash over further counts.
    CountHash,
    /// The element type.
    DType,
    /// The reduction.
    Op,
    /// The root.
    Root,
}

impl TagField {
    /// The word used in messages and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Algo => "algorithm",
            Self::Collective => "collective",
            Self::Count => "count",
            Self::CountHash => "counts",
            Self::DType => "dtype",
            Self::Op => "op",
            Self::Root => "root",
        }
    }
}

impl fmt::Display for TagField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The group, as the key that all its ranks derive.
    pub group: u64,
    /// The number of the call within the group.
    pub seq: u64,
    /// How the sender was called.
    pub tag: CallTag,
    /// Where in its program the sender makes the call, as 24 bits; 0 for unknown. Ranks may differ in
    /// it by right.
    pub mark: u32,
    /// What the frame is for.
    pub kind: FrameKind,
}

/// What a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// The sender gave up on the call; nothing follows on this stream.
    Abort {
        /// The rank of the group at which it began, as far as the sender knows.
        origin: u32,
        /// A number that the layers above agree on.
        reason: u32,
    },
    /// The sender takes no more messages from this stream. `seq` is the number of those that it has taken.
    Closed,
    /// A message; its payload follows.
    Data {
        /// The round of the plan that it belongs to.
        round: u32,
        /// Bytes of payload.
        payload: u64,
        /// CRC-32 of the payload, if the sender made one.
        checksum: Option<u32>,
    },
}

/// The frame as it lies on the wire: every number little endian.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Wire {
    magic: u32,
    version: u16,
    kind: u8,
    flags: u8,
    group: u64,
    seq: u64,
    /// Round of a message, origin of an abort.
    place: u32,
    /// Checksum of a message, reason of an abort.
    detail: u32,
    /// Bytes of payload, and the mark above them.
    payload: u64,
    collective: u8,
    dtype: u8,
    op: u8,
    algo: u8,
    root: u32,
    count: u64,
    count_hash: u32,
    /// CRC-32 of the 60 bytes before.
    check: u32,
}

const _: () = assert!(size_of::<Wire>() == FRAME_BYTES);

/// Where the header's own checksum lies.
const CHECK_AT: usize = FRAME_BYTES - size_of::<u32>();

impl Frame {
    /// The frame as it goes on the wire.
    #[must_use]
    pub fn encode(&self) -> [u8; FRAME_BYTES] {
        let (kind, flags, place, detail, payload) = match self.kind {
            FrameKind::Abort { origin, reason } => (KIND_ABORT, 0, origin, reason, 0),
            FrameKind::Closed => (KIND_CLOSED, 0, 0, 0, 0),
            FrameKind::Data {
                round,
                payload,
                checksum,
            } => {
                let flags = if checksum.is_some() { FLAG_CHECKSUM } else { 0 };
                (KIND_DATA, flags, round, checksum.unwrap_or(0), payload)
            }
        };
        let wire = Wire {
            magic: MAGIC.to_le(),
            version: VERSION.to_le(),
            kind,
            flags,
            group: self.group.to_le(),
            seq: self.seq.to_le(),
            place: place.to_le(),
            detail: detail.to_le(),
            payload: (payload | u64::from(self.mark) << MARK_SHIFT).to_le(),
            collective: self.tag.collective,
            dtype: self.tag.dtype,
            op: self.tag.op,
            algo: self.tag.algo,
            root: self.tag.root.to_le(),
            count: self.tag.count.to_le(),
            count_hash: self.tag.count_hash.to_le(),
            check: 0,
        };
        let mut bytes: [u8; FRAME_BYTES] = bytemuck::cast(wire);
        let check = crc32fast::hash(&bytes[..CHECK_AT]);
        bytes[CHECK_AT..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// The frame that these bytes stand for.
    ///
    /// # Errors
    /// [`FrameError`] unless every field holds what a frame of this version can hold.
    pub fn decode(bytes: &[u8; FRAME_BYTES]) -> Result<Self, FrameError> {
        let wire: Wire = bytemuck::cast(*bytes);
        let magic = u32::from_le(wire.magic);
        if magic != MAGIC {
            return Err(FrameError::Magic { got: magic });
        }
        let version = u16::from_le(wire.version);
        if version != VERSION {
            return Err(FrameError::Version { got: version });
        }
        let (stated, computed) = (
            u32::from_le(wire.check),
            crc32fast::hash(&bytes[..CHECK_AT]),
        );
        if stated != computed {
            return Err(FrameError::Checksum { stated, computed });
        }
        Ok(Self {
            group: u64::from_le(wire.group),
            seq: u64::from_le(wire.seq),
            tag: CallTag {
                collective: wire.collective,
                dtype: wire.dtype,
                op: wire.op,
                algo: wire.algo,
                root: u32::from_le(wire.root),
                count: u64::from_le(wire.count),
                count_hash: u32::from_le(wire.count_hash),
            },
            mark: u32::try_from(u64::from_le(wire.payload) >> MARK_SHIFT).unwrap_or(0),
            kind: kind_of(&wire)?,
        })
    }
}

/// The part of a frame that depends on its kind.
fn kind_of(wire: &Wire) -> Result<FrameKind, FrameError> {
    let (place, detail) = (u32::from_le(wire.place), u32::from_le(wire.detail));
    let payload = u64::from_le(wire.payload) & ((1 << MARK_SHIFT) - 1);
    let (payload_max, flags_known) = match wire.kind {
        KIND_ABORT | KIND_CLOSED => (0, 0),
        KIND_DATA => (PAYLOAD_MAX, FLAG_CHECKSUM),
        got => return Err(FrameError::Kind { got }),
    };
    if payload > payload_max {
        return Err(FrameError::Payload {
            got: payload,
            max: payload_max,
        });
    }
    if wire.flags & !flags_known != 0 {
        return Err(FrameError::Flags { got: wire.flags });
    }
    Ok(match wire.kind {
        KIND_ABORT => FrameKind::Abort {
            origin: place,
            reason: detail,
        },
        KIND_CLOSED => FrameKind::Closed,
        _ => FrameKind::Data {
            round: place,
            payload,
            checksum: (wire.flags & FLAG_CHECKSUM != 0).then_some(detail),
        },
    })
}

/// Why 64 bytes are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The header's checksum does not fit its bytes.
    #[error("frame header states checksum {stated:#010x}, but its bytes have {computed:#010x}")]
    Checksum {
        /// What the header says.
        stated: u32,
        /// What its bytes give.
        computed: u32,
    },
    /// A flag that this version does not know.
    #[error("unknown frame flags {got:#04x}")]
    Flags {
        /// All flags.
        got: u8,
    },
    /// A kind that this version does not know.
    #[error("unknown frame kind {got}")]
    Kind {
        /// Its number.
        got: u8,
    },
    /// The first four bytes are not ours: the peer is no muster, or we lost our place.
    #[error("frame begins with {got:#010x}, expected {MAGIC:#010x}")]
    Magic {
        /// What was there.
        got: u32,
    },
    /// The payload is longer than its kind allows.
    #[error("frame announces {got} bytes of payload, allowed are {max}")]
    Payload {
        /// Announced.
        got: u64,
        /// Allowed.
        max: u64,
    },
    /// Another version of the wire format.
    #[error("frame has version {got}, this side speaks {VERSION}")]
    Version {
        /// The peer's version.
        got: u16,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tag() -> CallTag {
        CallTag {
            collective: 4,
            dtype: 3,
            op: 5,
            algo: 2,
            root: CallTag::NO_ROOT,
            count: 4096,
            count_hash: 7,
        }
    }

    fn data() -> Frame {
        Frame {
            group: 0x1234_5678_9abc_def0,
            seq: 41,
            tag: tag(),
            mark: 0x12_3456,
            kind: FrameKind::Data {
                round: 7,
                payload: 16384,
                checksum: Some(0xdead_beef),
            },
        }
    }

    /// Sets one byte and makes the header's own checksum right again.
    fn forged(frame: &Frame, at: usize, value: u8) -> [u8; FRAME_BYTES] {
        let mut bytes = frame.encode();
        bytes[at] = value;
        let check = crc32fast::hash(&bytes[..CHECK_AT]);
        bytes[CHECK_AT..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    proptest! {
        #[test]
        fn a_frame_survives_the_wire(
            group: u64, seq: u64, place: u32, detail: u32, kind in 0..3, sum: bool,
            payload in 0..=PAYLOAD_MAX,
            collective: u8, dtype: u8, op: u8, algo: u8, root: u32, count: u64, count_hash: u32,
            mark in 0..1_u32 << 24,
        ) {
            let kind = match kind {
                0 => FrameKind::Abort { origin: place, reason: detail },
                1 => FrameKind::Closed,
                _ => FrameKind::Data { round: place, payload, checksum: sum.then_some(detail) },
            };
            let tag = CallTag { collective, dtype, op, algo, root, count, count_hash };
            let frame = Frame { group, seq, tag, mark, kind };
            prop_assert_eq!(Frame::decode(&frame.encode()), Ok(frame));
        }

        #[test]
        fn garbage_is_an_error_and_never_a_panic(bytes in proptest::array::uniform32(any::<u8>())) {
            let mut frame = [0u8; FRAME_BYTES];
            frame[..32].copy_from_slice(&bytes);
            prop_assert!(Frame::decode(&frame).is_err());
        }
    }

    #[test]
    fn every_corrupt_byte_of_a_frame_is_noticed() {
        let good = data().encode();
        for at in 0..FRAME_BYTES {
            let mut bytes = good;
            bytes[at] ^= 0x10;
            assert!(Frame::decode(&bytes).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_frame_lies_on_the_wire_as_documented() {
        let bytes = data().encode();
        assert_eq!(&bytes[..4], b"muSt");
        assert_eq!(bytes[8], 0xf0, "numbers are little endian");
        assert_eq!(bytes[32..40], (16384 | 0x12_3456_u64 << 40).to_le_bytes());
    }

    #[test]
    fn a_frame_with_a_valid_checksum_is_still_held_to_its_limits() {
        let frame = data();
        assert_eq!(
            Frame::decode(&forged(&frame, 6, 9)),
            Err(FrameError::Kind { got: 9 })
        );
        assert_eq!(
            Frame::decode(&forged(&frame, 7, 0x80)),
            Err(FrameError::Flags { got: 0x80 })
        );
        assert_eq!(
            Frame::decode(&forged(&frame, 4, 3)),
            Err(FrameError::Version { got: 3 })
        );
        assert_eq!(
            Frame::decode(&forged(&frame, 6, KIND_ABORT)),
            Err(FrameError::Payload { got: 16384, max: 0 })
        );
    }

    #[test]
    fn tags_name_the_most_telling_field_in_which_they_differ() {
        let mine = tag();
        assert_eq!(mine.difference(&mine), None);
        let theirs = CallTag {
            collective: 5,
            count: 1,
            ..mine
        };
        assert_eq!(mine.difference(&theirs), Some(TagField::Collective));
        let theirs = CallTag { algo: 3, ..mine };
        assert_eq!(mine.difference(&theirs), Some(TagField::Algo));
        let theirs = CallTag {
            count_hash: 8,
            algo: 3,
            ..mine
        };
        assert_eq!(mine.difference(&theirs), Some(TagField::CountHash));
    }
}
