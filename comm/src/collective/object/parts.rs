//! Objects that the caller has encoded, in parts: for callers in other languages, whose encodings keep large memory
//! apart from the rest.
//!
//! The body of such an envelope has the number of parts, their lengths and the parts, each of them behind zeroes up
//! to a multiple of 16 bytes from the start of the envelope. So is the length of the whole, and what lies in a part
//! of received memory is aligned as the system aligns memory. What parts mean is no business of this crate.

use std::ops::Range;

use super::envelope::{self, CODEC_PARTS, HEADER_BYTES};
use super::lengths::Length;
use super::{Encoded, Fault, malformed};
use crate::backend::Failure;
use crate::buffer::ReadView;
use crate::collective::{Call, Communicator};
use crate::error::CommError;
use crate::types::Collective;

/// What every number type is aligned to.
const ALIGNMENT: usize = 16;
/// What stands in front of the lengths.
const COUNT_BYTES: usize = size_of::<u32>();
const LEN_BYTES: usize = size_of::<u64>();

/// Objects of this rank, each in parts, ready to be sent: it has a copy of them.
#[derive(Debug)]
pub struct PackedObjects {
    bytes: Vec<u8>,
    lens: Vec<usize>,
}

/// Objects of other ranks.
#[derive(Debug, Default)]
pub struct UnpackedObjects {
    /// The memory in which they lie.
    pub memory: Vec<u8>,
    /// Of each object where its parts lie.
    pub objects: Vec<Vec<Range<usize>>>,
}

impl Communicator {
    /// Copies objects into memory from which they can be sent, each in parts.
    #[must_use]
    pub fn pack_objects(&self, objects: &[Vec<ReadView<'_>>]) -> PackedObjects {
        let total = objects.iter().map(|parts| packed_len(parts)).sum();
        let mut bytes = self.context().life.spare.take(total);
        bytes.reserve_exact(total);
        let lens = objects.iter().map(|parts| pack(&mut bytes, parts));
        PackedObjects {
            lens: lens.collect(),
            bytes,
        }
    }

    /// [`Communicator::all_gather_object`] of one packed object.
    ///
    /// # Errors
    /// As [`Communicator::all_gather_object`].
    #[track_caller]
    pub fn all_gather_packed(&self, object: PackedObjects) -> Result<UnpackedObjects, CommError> {
        let call = Call::bare(Collective::AllGatherObject);
        let encoded = self.one(object);
        let (memory, objects) =
            self.all_gather_envelopes::<PackedObjects, _>(call, encoded, |all, told| {
                self.unpack(all, told)
            })?;
        Ok(UnpackedObjects { memory, objects })
    }

    /// [`Communicator::gather_object`] of one packed object.
    ///
    /// # Errors
    /// As [`Communicator::gather_object`].
    #[track_caller]
    pub fn gather_packed(
        &self,
        object: PackedObjects,
        root: usize,
    ) -> Result<Option<UnpackedObjects>, CommError> {
        let call = Call::bare(Collective::GatherObject);
        self.check_index(call, "root", root)?;
        let encoded = self.one(object);
        let gathered =
            self.gather_envelopes::<PackedObjects, _>(call, encoded, root, |all, told| {
                self.unpack(all, told)
            })?;
        Ok(gathered.map(|(memory, objects)| UnpackedObjects { memory, objects }))
    }

    /// [`Communicator::broadcast_object`] of one packed object, which only the root has.
    ///
    /// # Errors
    /// As [`Communicator::broadcast_object`].
    #[track_caller]
    pub fn broadcast_packed(
        &self,
        object: PackedObjects,
        root: usize,
    ) -> Result<UnpackedObjects, CommError> {
        let call = Call::bare(Collective::BroadcastObject);
        self.check_index(call, "root", root)?;
        let encoded = match self.rank() == root {
            true => self.one(object),
            false => (Vec::new(), None),
        };
        let (memory, object) =
            self.broadcast_envelope::<PackedObjects, _>(call, encoded, root, |bytes, _| {
                self.unpack_one(bytes, root, 0)
            })?;
        Ok(UnpackedObjects {
            memory,
            objects: vec![object],
        })
    }

    /// [`Communicator::scatter_object`] of packed objects, which only the root has.
    ///
    /// # Errors
    /// As [`Communicator::scatter_object`].
    #[track_caller]
    pub fn scatter_packed(
        &self,
        objects: PackedObjects,
        root: usize,
    ) -> Result<UnpackedObjects, CommError> {
        let call = Call::bare(Collective::ScatterObject);
        self.check_index(call, "root", root)?;
        let n = self.size();
        let (encoded, lens) = if self.rank() == root {
            let PackedObjects { bytes, lens } = objects;
            let over = lens.iter().find(|len| **len > self.envelope_bytes_max());
            match over {
                _ if lens.len() != n => {
                    ((Vec::new(), Some(Fault::Objects(lens.len()))), vec![0; n])
                }
                Some(len) => {
                    let fault = Fault::TooLarge(len - HEADER_BYTES);
                    ((Vec::new(), Some(fault)), vec![0; n])
                }
                None => ((bytes, None), lens),
            }
        } else {
            ((Vec::new(), None), vec![0; n])
        };
        let (memory, object) =
            self.scatter_envelopes::<PackedObjects, _>(call, encoded, &lens, root, |mine, _| {
                self.unpack_one(mine, root, 0)
            })?;
        Ok(UnpackedObjects {
            memory,
            objects: vec![object],
        })
    }

    /// Leaves the memory of objects that nobody needs any more to the next call.
    pub fn give_back(&self, objects: UnpackedObjects) {
        self.spare([objects.memory]);
    }

    fn one(&self, object: PackedObjects) -> Encoded {
        match *object.lens {
            [] => (Vec::new(), Some(Fault::Nothing)),
            [len, ..] if len > self.envelope_bytes_max() => {
                (Vec::new(), Some(Fault::TooLarge(len - HEADER_BYTES)))
            }
            [..] => (object.bytes, None),
        }
    }

    fn unpack(&self, all: &[u8], told: &[Length]) -> Result<Vec<Vec<Range<usize>>>, Failure> {
        let mut at = 0;
        let mut objects = Vec::with_capacity(told.len());
        for (member, length) in told.iter().enumerate() {
            let end = at + length.bytes();
            objects.push(self.unpack_one(&all[at..end], member, at)?);
            at = end;
        }
        Ok(objects)
    }

    /// Where the parts of an envelope lie, which begins at `base`.
    fn unpack_one(
        &self,
        envelope: &[u8],
        member: usize,
        base: usize,
    ) -> Result<Vec<Range<usize>>, Failure> {
        parts_of(envelope, base).map_err(|detail| Failure {
            culprit: Some(self.members()[member]),
            usable: true,
            ..Failure::from(malformed(self.members()[member], detail))
        })
    }
}

/// Where the first part begins, from the start of the envelope.
fn first_part(count: usize) -> usize {
    (HEADER_BYTES + COUNT_BYTES + count * LEN_BYTES).next_multiple_of(ALIGNMENT)
}

/// Length of an envelope.
fn packed_len(parts: &[ReadView<'_>]) -> usize {
    let padded = |part: &ReadView<'_>| part.bytes().next_multiple_of(ALIGNMENT);
    first_part(parts.len()) + parts.iter().map(padded).sum::<usize>()
}

/// Appends the envelope of an object; its length.
fn pack(bytes: &mut Vec<u8>, parts: &[ReadView<'_>]) -> usize {
    let begin = bytes.len();
    let len = packed_len(parts);
    envelope::begin(bytes, CODEC_PARTS, len - HEADER_BYTES);
    let count = u32::try_from(parts.len()).unwrap_or(u32::MAX);
    bytes.extend(count.to_le_bytes());
    for part in parts {
        bytes.extend((part.bytes() as u64).to_le_bytes());
    }
    for part in parts {
        bytes.resize(begin + (bytes.len() - begin).next_multiple_of(ALIGNMENT), 0);
        part.append_to(bytes);
    }
    bytes.resize(begin + len, 0);
    len
}

/// Where the parts lie that an envelope says it has; it begins at `base`.
fn parts_of(envelope: &[u8], base: usize) -> Result<Vec<Range<usize>>, String> {
    let body = envelope::open(envelope, CODEC_PARTS)?;
    let cut = || format!("{} bytes are too few for its parts", body.len());
    let (count, rest) = body.split_first_chunk::<COUNT_BYTES>().ok_or_else(cut)?;
    let count = crate::types::index(u64::from(u32::from_le_bytes(*count)));
    let lens = count
        .checked_mul(LEN_BYTES)
        .and_then(|bytes| rest.get(..bytes));
    let mut at = first_part(count);
    let mut parts = Vec::with_capacity(count.min(rest.len() / LEN_BYTES));
    for len in lens.ok_or_else(cut)?.chunks_exact(LEN_BYTES) {
        let len = len
            .iter()
            .rev()
            .fold(0_u64, |len, byte| len << 8 | u64::from(*byte));
        let end = usize::try_from(len)
            .ok()
            .and_then(|len| at.checked_add(len));
        let end = end.filter(|end| *end <= envelope.len()).ok_or_else(cut)?;
        parts.push(base + at..base + end);
        at = end.next_multiple_of(ALIGNMENT);
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::World;
    use proptest::prelude::*;

    fn view(bytes: &[u8]) -> ReadView<'_> {
        ReadView::new(bytes)
    }

    fn text(objects: &UnpackedObjects) -> Vec<Vec<String>> {
        let part = |range: &Range<usize>| {
            String::from_utf8(objects.memory[range.clone()].to_vec()).unwrap()
        };
        let object = |parts: &Vec<Range<usize>>| parts.iter().map(part).collect();
        objects.objects.iter().map(object).collect()
    }

    #[test]
    fn objects_in_parts_travel_as_other_objects_do() {
        World::threads(3, |world| {
            let group = world.everyone().unwrap();
            let me = group.rank();
            let large = "x".repeat(me * 40_000);
            let own = |rank: usize| vec![format!("rank {rank}"), "x".repeat(rank * 40_000)];
            let name = format!("rank {me}");
            let pack =
                || group.pack_objects(&[vec![view(name.as_bytes()), view(large.as_bytes())]]);
            let everyone: Vec<_> = (0..3).map(own).collect();
            let all = group.all_gather_packed(pack()).unwrap();
            assert_eq!(text(&all), everyone);
            let starts = all
                .objects
                .iter()
                .flatten()
                .map(|part| part.start % ALIGNMENT);
            assert_eq!(starts.sum::<usize>(), 0);
            group.give_back(all);
            let gathered = group.gather_packed(pack(), 1).unwrap();
            assert_eq!(
                gathered.as_ref().map(text),
                (me == 1).then(|| everyone.clone())
            );
            let object = group.broadcast_packed(pack(), 2).unwrap();
            assert_eq!(text(&object), [own(2)]);
            let texts: Vec<Vec<String>> = (0..3).map(own).collect();
            let each: Vec<Vec<ReadView<'_>>> = texts
                .iter()
                .map(|parts| parts.iter().map(|part| view(part.as_bytes())).collect())
                .collect();
            let given = if me == 0 { &each[..] } else { &[] };
            let object = group.scatter_packed(group.pack_objects(given), 0).unwrap();
            assert_eq!(text(&object), [own(me)]);
        })
        .unwrap();
    }

    #[test]
    fn what_cannot_be_sent_is_refused_on_all_ranks_and_the_group_stays_usable() {
        use crate::error::ErrorKind as Kind;
        World::threads(2, |world| {
            let group = world.everyone().unwrap();
            let me = group.rank();
            group.set_object_bytes_max(1000);
            let long = vec![7; 2000 * me];
            let failed = group.all_gather_packed(group.pack_objects(&[vec![view(&long)]]));
            let kind = failed.unwrap_err().kind().clone();
            assert!(matches!(kind, Kind::Resource { .. }), "{kind:?}");
            let none = group.scatter_packed(group.pack_objects(&[]), 0);
            let kind = none.unwrap_err().kind().clone();
            let is_argument = matches!(kind, Kind::InvalidArgument { .. });
            assert_eq!(is_argument, me == 0, "{kind:?}");
            let mixed = match me {
                0 => group.all_gather_object(&7_u8).map(|_| ()),
                _ => group
                    .all_gather_packed(group.pack_objects(&[vec![]]))
                    .map(|_| ()),
            };
            assert!(mixed.is_err());
            let all = group.all_gather_packed(group.pack_objects(&[vec![view(b"a")]]));
            assert_eq!(text(&all.unwrap()), [["a"], ["a"]]);
        })
        .unwrap();
    }

    proptest! {
        #[test]
        fn parts_come_back_from_their_envelope(parts: Vec<Vec<u8>>, before in 0_usize..3) {
            let mut bytes = vec![0; before * ALIGNMENT];
            let views: Vec<ReadView<'_>> = parts.iter().map(|part| view(part)).collect();
            let len = pack(&mut bytes, &views);
            let base = before * ALIGNMENT;
            prop_assert_eq!(bytes.len(), base + len);
            prop_assert_eq!(len % ALIGNMENT, 0);
            let found = parts_of(&bytes[base..], base).unwrap();
            let found: Vec<&[u8]> = found.into_iter().map(|range| &bytes[range]).collect();
            prop_assert_eq!(found, parts);
        }

        #[test]
        fn arbitrary_bodies_are_refused_or_lie_inside(body: Vec<u8>) {
            let mut bytes = Vec::new();
            envelope::begin(&mut bytes, CODEC_PARTS, body.len());
            bytes.extend(&body);
            for range in parts_of(&bytes, 0).into_iter().flatten() {
                prop_assert!(range.end <= bytes.len());
            }
        }
    }
}
