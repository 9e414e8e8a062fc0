//! Objects: any value that serde can encode, over the host, never over a device.
//!
//! An object travels in an envelope: a mark, a version, the codec and the length. Nothing of it is
//! code; an envelope that is cut short, too long or of another version is refused before a byte of
//! it is decoded. Lengths are exchanged first, so no rank allocates more than the limit because a
//! peer said so, and an object over the limit is the same error on all ranks.

mod envelope;
mod lengths;
mod parts;
mod travel;

use serde::Serialize;
use serde::de::DeserializeOwned;

use self::envelope::HEADER_BYTES;
use self::lengths::{LEN_MAX, Length};
pub use self::parts::{PackedObjects, UnpackedObjects};
use self::travel::Encoded;
use super::{Buffers, Call, Communicator};
use crate::backend::{Counts, Failure, Request};
use crate::error::{CommError, ErrorKind, Field};
use crate::sync::{Deadline, Ordering};
use crate::types::{Collective, DType, Rank};

impl Communicator {
    /// Sets the largest encoded object, in bytes; must be the same on all ranks.
    pub fn set_object_bytes_max(&self, bytes: usize) {
        // Relaxed: read at the beginning of later calls, orders nothing.
        self.inner
            .object_bytes_max
            .store(bytes as u64, Ordering::Relaxed);
    }

    /// Gives every rank the objects of all ranks, in rank order.
    ///
    /// Objects may be of any size up to the limit and differ from rank to rank. The objects go
    /// over the host, whatever memory tensors lie in. Long byte strings belong into a type that
    /// serde takes for bytes (`serde_bytes::ByteBuf`), which is one copy: to serde a `Vec<u8>` is a list of
    /// numbers, encoded one by one.
    ///
    /// ```
    /// use muster_comm::World;
    ///
    /// let names = World::threads(2, |world| {
    ///     let group = world.everyone()?;
    ///     group.all_gather_object(&format!("rank {}", group.rank()))
    /// })?;
    /// for seen in names {
    ///     assert_eq!(seen?, ["rank 0", "rank 1"]);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `Resource` on all ranks where one rank's object is over the limit, naming it; `Malformed`
    /// where a peer's object does not decode as `T`; `InvalidArgument` where this rank's object
    /// cannot be encoded (its peers then get `Malformed`).
    ///
    /// **Cost**: two calls: 8 bytes a rank, then the objects. **Source**:
    /// `torch.distributed.all_gather_object`.
    #[track_caller]
    pub fn all_gather_object<T: Serialize + DeserializeOwned>(
        &self,
        object: &T,
    ) -> Result<Vec<T>, CommError> {
        let call = Call::bare(Collective::AllGatherObject);
        let (all, objects) =
            self.all_gather_envelopes::<T, _>(call, self.encode(object), |all, told| {
                self.decode_all(all, told)
            })?;
        self.spare([all]);
        Ok(objects)
    }

    /// Gives the member with index `root` the objects of all ranks, in rank order; the others get
    /// nothing.
    ///
    /// # Errors
    /// As [`Communicator::all_gather_object`], and for a root outside the group.
    #[track_caller]
    pub fn gather_object<T: Serialize + DeserializeOwned>(
        &self,
        object: &T,
        root: usize,
    ) -> Result<Option<Vec<T>>, CommError> {
        let call = Call::bare(Collective::GatherObject);
        self.check_index(call, "root", root)?;
        let encoded = self.encode(object);
        let gathered = self.gather_envelopes::<T, _>(call, encoded, root, |all, told| {
            self.decode_all(all, told)
        })?;
        Ok(gathered.map(|(all, objects)| {
            self.spare([all]);
            objects
        }))
    }

    /// Gives every rank the object of the member with index `root`. Only the root's `object` is
    /// looked at.
    ///
    /// # Errors
    /// As [`Communicator::all_gather_object`]; `InvalidArgument` where the root has `None`.
    #[track_caller]
    pub fn broadcast_object<T: Serialize + DeserializeOwned>(
        &self,
        object: Option<&T>,
        root: usize,
    ) -> Result<T, CommError> {
        let call = Call::bare(Collective::BroadcastObject);
        self.check_index(call, "root", root)?;
        let encoded = match (self.rank() == root, object) {
            (false, _) => (Vec::new(), None),
            (true, Some(object)) => self.encode(object),
            (true, None) => (Vec::new(), Some(Fault::Nothing)),
        };
        let (bytes, object) =
            self.broadcast_envelope::<T, _>(call, encoded, root, |bytes, told| {
                self.decode(bytes, root, told)
            })?;
        self.spare([bytes]);
        Ok(object)
    }

    /// Gives the member with index `i` object `i` of the member with index `root`. Only the root's
    /// `objects` are looked at; it has one for each member.
    ///
    /// # Errors
    /// As [`Communicator::all_gather_object`]; `InvalidArgument` where the root has not one object
    /// a member.
    #[track_caller]
    pub fn scatter_object<T: Serialize + DeserializeOwned>(
        &self,
        objects: &[T],
        root: usize,
    ) -> Result<T, CommError> {
        let call = Call::bare(Collective::ScatterObject);
        self.check_index(call, "root", root)?;
        let n = self.size();
        let mut lens = vec![0; n];
        let mut bytes = Vec::new();
        let mut fault = None;
        if self.rank() == root {
            if objects.len() != n {
                fault = Some(Fault::Objects(objects.len()));
            }
            bytes = self.context().life.spare.take(HEADER_BYTES);
            for (object, len) in objects.iter().zip(&mut lens) {
                let before = bytes.len();
                let bad;
                (bytes, bad) = self.append(bytes, object);
                if bad.is_some() {
                    fault = fault.or(bad);
                    break;
                }
                *len = bytes.len() - before;
            }
        }
        let (mine, object) =
            self.scatter_envelopes::<T, _>(call, (bytes, fault), &lens, root, |mine, told| {
                self.decode(mine, root, told)
            })?;
        self.spare([mine]);
        Ok(object)
    }

    /// Longest envelope.
    fn envelope_bytes_max(&self) -> usize {
        self.limit().saturating_add(HEADER_BYTES)
    }

    fn limit(&self) -> usize {
        // Relaxed: see `set_object_bytes_max`.
        let limit = crate::types::index(self.inner.object_bytes_max.load(Ordering::Relaxed));
        limit.min(LEN_MAX - HEADER_BYTES)
    }

    /// The envelope of an object, or why there is none.
    fn encode<T: Serialize>(&self, object: &T) -> Encoded {
        self.append(self.context().life.spare.take(HEADER_BYTES), object)
    }

    /// These bytes and the envelope of an object behind them; no bytes where there is none.
    fn append<T: Serialize>(&self, bytes: Vec<u8>, object: &T) -> Encoded {
        let before = bytes.len();
        match envelope::append(bytes, object) {
            Ok(bytes) => {
                let len = bytes.len() - before - HEADER_BYTES;
                if len > self.limit() {
                    return (Vec::new(), Some(Fault::TooLarge(len)));
                }
                (bytes, None)
            }
            Err(why) => (Vec::new(), Some(Fault::Encode(why))),
        }
    }

    /// Tells all ranks the length of this rank's envelope, or that it has none to send. All ranks
    /// go through this, also those whose object was refused: so nobody waits for them in vain.
    fn exchange_lens<T>(
        &self,
        call: Call,
        len: usize,
        fault: Option<Fault>,
        root: usize,
    ) -> Result<Vec<Length>, CommError> {
        let mine = match &fault {
            None => Length::of::<T>(len),
            Some(Fault::TooLarge(len)) => Length::refused::<T>(*len),
            Some(Fault::Encode(_) | Fault::Nothing | Fault::Objects(_)) => Length::refused::<T>(0),
        };
        let mut words = vec![0; self.size()];
        let mine = [mine.word()];
        let buffers = Buffers::apart(&mine, &mut words);
        let request = Request {
            called: call.collective,
            ..buffers.request(
                Collective::AllGather,
                DType::U64,
                None,
                root,
                Counts::Uniform(1),
            )
        };
        let is_argument = matches!(&fault, Some(fault) if !matches!(fault, Fault::TooLarge(_)));
        let mut lengths = Vec::new();
        self.run_and(call, &request, || {
            // What went through shared memory says nothing about this rank's own buffer.
            words[self.rank()] = mine[0];
            lengths = words.iter().map(|word| Length::from_word(*word)).collect();
            // A rank knows best itself what is wrong with its arguments.
            if is_argument {
                return Ok(());
            }
            self.check_lens(&lengths)
        })?;
        if let Some(fault) = fault {
            return Err(fault.refuse(self, call));
        }
        Ok(lengths)
    }

    /// Whether all ranks can send what they have; all come to the same conclusion.
    fn check_lens(&self, lengths: &[Length]) -> Result<(), Failure> {
        let limit = self.limit();
        for (length, peer) in lengths.iter().zip(self.members()) {
            if length.is_refused(limit) {
                let kind = match length.bytes() {
                    0 => malformed(*peer, "it could not be encoded there".to_owned()),
                    over => too_large(*peer, over, limit),
                };
                return Err(Failure {
                    culprit: Some(*peer),
                    ..Failure::from(kind)
                });
            }
        }
        Ok(())
    }

    /// Leaves buffers to the next call.
    fn spare<const N: usize>(&self, buffers: [Vec<u8>; N]) {
        for buffer in buffers {
            self.context().life.spare.give(buffer);
        }
    }

    /// A buffer for envelopes of these lengths.
    fn room(&self, call: Call, lens: &[usize]) -> Result<Vec<u8>, CommError> {
        let total: usize = lens.iter().sum();
        let mut all = self.context().life.spare.take(total);
        let is_new = all.capacity() < total;
        if all.try_reserve_exact(total).is_err() {
            let kind = ErrorKind::Resource {
                what: "memory for the objects of all ranks".to_owned(),
                need: format!("{total} bytes"),
                have: "less than that".to_owned(),
            };
            return Err(self.object_error(call, kind));
        }
        if is_new {
            // The system gives zeroes: nothing is written twice.
            drop(all);
            return Ok(vec![0; total]);
        }
        all.resize(total, 0);
        Ok(all)
    }

    fn decode_all<T: DeserializeOwned>(
        &self,
        all: &[u8],
        told: &[Length],
    ) -> Result<Vec<T>, Failure> {
        let mut rest = all;
        let mut objects = Vec::with_capacity(told.len());
        for (member, length) in told.iter().enumerate() {
            let (envelope, after) = rest.split_at(length.bytes());
            objects.push(self.decode(envelope, member, told)?);
            rest = after;
        }
        Ok(objects)
    }

    /// The object of a member. Where it is none of type `T`, what all ranks have told of their types says who is
    /// the odd one, to all of them alike.
    fn decode<T: DeserializeOwned>(
        &self,
        envelope: &[u8],
        member: usize,
        told: &[Length],
    ) -> Result<T, Failure> {
        let members = self.members();
        envelope::decode(envelope).map_err(|detail| {
            let (kind, culprit) = match lengths::odd_type(told) {
                Some((usual, odd)) => {
                    let kind = ErrorKind::Mismatch {
                        field: Field::Dtype,
                        rank: members[usual],
                        mine: "an object of the usual type".to_owned(),
                        peer: members[odd],
                        theirs: "one of another type".to_owned(),
                    };
                    (kind, None)
                }
                None => (malformed(members[member], detail), Some(members[member])),
            };
            Failure {
                culprit,
                usable: true,
                ..Failure::from(kind)
            }
        })
    }

    fn object_error(&self, call: Call, kind: ErrorKind) -> CommError {
        self.error(call, kind, 0, None, Deadline::after(self.deadline()), true)
    }
}

/// Why this rank's object is not sent.
enum Fault {
    /// It has no encoding.
    Encode(String),
    /// The root has none.
    Nothing,
    /// The root has another number of objects than there are members.
    Objects(usize),
    /// It is over the limit.
    TooLarge(usize),
}

impl Fault {
    fn refuse(self, comm: &Communicator, call: Call) -> CommError {
        let n = comm.size();
        match self {
            Self::Encode(why) => comm.refuse(
                call,
                "the object",
                format!("not encodable ({why})"),
                "one that is".to_owned(),
            ),
            Self::Nothing => comm.refuse(
                call,
                "the root's object",
                "none".to_owned(),
                "one".to_owned(),
            ),
            Self::Objects(got) => {
                let want = format!("one for each of the {n} members");
                comm.refuse(call, "the root's list", format!("{got} objects"), want)
            }
            Self::TooLarge(bytes) => {
                // The ranks have found this together, and refused the call.
                let mine = comm.members()[comm.rank()];
                comm.object_error(call, too_large(mine, bytes, comm.limit()))
            }
        }
    }
}

fn malformed(peer: Rank, detail: String) -> ErrorKind {
    ErrorKind::Malformed {
        what: "object".to_owned(),
        peer,
        detail,
    }
}

fn too_large(rank: Rank, bytes: usize, limit: usize) -> ErrorKind {
    ErrorKind::Resource {
        what: format!("the object of rank {rank}"),
        need: format!("{bytes} bytes"),
        have: format!("a limit of {limit} bytes (set_object_bytes_max)"),
    }
}
