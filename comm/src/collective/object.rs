//! Objects: any value that serde can encode, over the host, never over a device.
//!
//! An object travels in an envelope: a mark, a version, the codec and the length. Nothing of it is
//! code; an envelope that is cut short, too long or of another version is refused before a byte of
//! it is decoded. Lengths are exchanged first, so no rank allocates more than the limit because a
//! peer said so, and an object over the limit is the same error on all ranks.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Buffers, Call, Communicator};
use crate::backend::{Counts, Failure, Request};
use crate::error::{CommError, ErrorKind};
use crate::sync::{Deadline, Ordering};
use crate::types::{Collective, DType, Rank};

/// Largest encoded object unless set otherwise: training stacks gather configurations and
/// statistics, not tensors, this way.
pub const OBJECT_BYTES_MAX_DEFAULT: usize = 64 << 20;

const MARK: [u8; 2] = *b"mo";
const VERSION: u8 = 1;
const CODEC_POSTCARD: u8 = 1;
const HEADER_BYTES: usize = MARK.len() + 2 + size_of::<u64>();
/// In the exchange of lengths: this rank's object cannot be sent.
const REFUSED: u64 = 1 << 63;

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
    /// use muster_comm::world::World;
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
        let (bytes, fault) = self.encode(object);
        let lens = self.exchange_lens(call, bytes.len(), fault, 0)?;
        let mut all = self.room(call, &lens)?;
        let buffers = Buffers::apart(&bytes, &mut all);
        let counts = Counts::Blocks(&lens);
        self.part(call, buffers, Collective::AllGatherV, DType::U8, counts, 0)?;
        let objects = self.decode_all(call, &all, &lens);
        self.spare([bytes, all]);
        objects
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
        let (bytes, fault) = self.encode(object);
        let lens = self.exchange_lens(call, bytes.len(), fault, root)?;
        let here = self.rank() == root;
        let mut all = if here {
            self.room(call, &lens)?
        } else {
            Vec::new()
        };
        let buffers = Buffers::apart(&bytes, &mut all);
        let counts = Counts::Blocks(&lens);
        self.part(call, buffers, Collective::GatherV, DType::U8, counts, root)?;
        let objects = here.then(|| self.decode_all(call, &all, &lens)).transpose();
        self.spare([bytes, all]);
        objects
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
        let (mut bytes, fault) = match (self.rank() == root, object) {
            (false, _) => (Vec::new(), None),
            (true, Some(object)) => self.encode(object),
            (true, None) => (Vec::new(), Some(Fault::Nothing)),
        };
        let lens = self.exchange_lens(call, bytes.len(), fault, root)?;
        if self.rank() != root {
            bytes = self.room(call, &lens[root..=root])?;
        }
        let buffers = Buffers::in_place(&mut bytes, 0, 0);
        let counts = Counts::Uniform(lens[root]);
        self.part(
            call,
            buffers,
            Collective::Broadcast,
            DType::U8,
            counts,
            root,
        )?;
        let object = self.decode(call, &bytes, root);
        self.spare([bytes]);
        object
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
        let mut lens = vec![0_u64; n];
        let mut bytes = Vec::new();
        let mut fault = None;
        if self.rank() == root {
            if objects.len() != n {
                fault = Some(Fault::Objects(objects.len()));
            }
            bytes = self.world().spare.take(HEADER_BYTES);
            for (object, len) in objects.iter().zip(&mut lens) {
                let before = bytes.len();
                let bad;
                (bytes, bad) = self.append(bytes, object);
                if bad.is_some() {
                    fault = fault.or(bad);
                    break;
                }
                *len = (bytes.len() - before) as u64;
            }
        }
        self.exchange_lens(call, 0, fault, root)?;
        let buffers = Buffers::in_place(&mut lens, 0, 0);
        let counts = Counts::Uniform(n);
        self.part(
            call,
            buffers,
            Collective::Broadcast,
            DType::U64,
            counts,
            root,
        )?;
        let lens: Vec<usize> = lens.into_iter().map(crate::types::index).collect();
        // The root keeps the limit; a root that does not is found out by all ranks alike.
        if let Some(over) = lens
            .iter()
            .find(|len| **len > self.limit().saturating_add(HEADER_BYTES))
        {
            let kind = too_large(self.members()[root], *over, self.limit());
            return Err(self.object_error(call, kind));
        }
        let mut mine = self.room(call, &lens[self.rank()..=self.rank()])?;
        let buffers = Buffers::apart(&bytes, &mut mine);
        let counts = Counts::Blocks(&lens);
        self.part(call, buffers, Collective::ScatterV, DType::U8, counts, root)?;
        let object = self.decode(call, &mine, root);
        self.spare([bytes, mine]);
        object
    }

    fn limit(&self) -> usize {
        // Relaxed: see `set_object_bytes_max`.
        crate::types::index(self.inner.object_bytes_max.load(Ordering::Relaxed))
    }

    /// The envelope of an object, or why there is none.
    fn encode<T: Serialize>(&self, object: &T) -> (Vec<u8>, Option<Fault>) {
        self.append(self.world().spare.take(HEADER_BYTES), object)
    }

    /// These bytes and the envelope of an object behind them; no bytes where there is none.
    fn append<T: Serialize>(&self, mut bytes: Vec<u8>, object: &T) -> (Vec<u8>, Option<Fault>) {
        bytes.extend(MARK);
        bytes.extend([VERSION, CODEC_POSTCARD]);
        let len_at = bytes.len();
        bytes.extend([0; 8]);
        let body_at = bytes.len();
        match postcard::to_extend(object, bytes) {
            Ok(mut bytes) => {
                let len = bytes.len() - body_at;
                if len > self.limit() {
                    return (Vec::new(), Some(Fault::TooLarge(len)));
                }
                bytes[len_at..body_at].copy_from_slice(&(len as u64).to_le_bytes());
                (bytes, None)
            }
            Err(error) => (Vec::new(), Some(Fault::Encode(error.to_string()))),
        }
    }

    /// Tells all ranks the length of this rank's envelope, or that it has none to send. All ranks
    /// go through this, also those whose object was refused: so nobody waits for them in vain.
    fn exchange_lens(
        &self,
        call: Call,
        len: usize,
        fault: Option<Fault>,
        root: usize,
    ) -> Result<Vec<usize>, CommError> {
        let mine = match &fault {
            None => len as u64,
            Some(Fault::TooLarge(len)) => REFUSED | *len as u64,
            Some(Fault::Encode(_) | Fault::Nothing | Fault::Objects(_)) => REFUSED,
        };
        let mut lens = vec![0; self.size()];
        let mine = [mine];
        let buffers = Buffers::apart(&mine, &mut lens);
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
        self.run_and(call, &request, || {
            // What went through shared memory says nothing about this rank's own buffer.
            lens[self.rank()] = mine[0];
            // A rank knows best itself what is wrong with its arguments.
            if is_argument {
                return Ok(());
            }
            self.check_lens(&lens)
        })?;
        if let Some(fault) = fault {
            return Err(fault.refuse(self, call));
        }
        Ok(lens.into_iter().map(crate::types::index).collect())
    }

    /// Whether all ranks can send what they have; all come to the same conclusion.
    fn check_lens(&self, lens: &[u64]) -> Result<(), Failure> {
        let limit = self.limit();
        for (len, peer) in lens.iter().zip(self.members()) {
            let over = crate::types::index(*len & !REFUSED);
            if len & REFUSED != 0 || over > limit.saturating_add(HEADER_BYTES) {
                let kind = if over == 0 {
                    malformed(*peer, "it could not be encoded there".to_owned())
                } else {
                    too_large(*peer, over, limit)
                };
                return Err(Failure {
                    culprit: Some(*peer),
                    ..Failure::from(kind)
                });
            }
        }
        Ok(())
    }

    /// One of the collectives that a call is made of. The counts fit the buffers.
    fn part(
        &self,
        call: Call,
        buffers: Buffers,
        collective: Collective,
        dtype: DType,
        counts: Counts<'_>,
        root: usize,
    ) -> Result<(), CommError> {
        let request = Request {
            called: call.collective,
            ..buffers.request(collective, dtype, None, root, counts)
        };
        self.run(call, &request)
    }

    /// Leaves buffers to the next call.
    fn spare<const N: usize>(&self, buffers: [Vec<u8>; N]) {
        for buffer in buffers {
            self.world().spare.give(buffer);
        }
    }

    /// A buffer for envelopes of these lengths.
    fn room(&self, call: Call, lens: &[usize]) -> Result<Vec<u8>, CommError> {
        let total: usize = lens.iter().sum();
        let mut all = self.world().spare.take(total);
        if all.try_reserve_exact(total).is_err() {
            let kind = ErrorKind::Resource {
                what: "memory for the objects of all ranks".to_owned(),
                need: format!("{total} bytes"),
                have: "less than that".to_owned(),
            };
            return Err(self.object_error(call, kind));
        }
        all.resize(total, 0);
        Ok(all)
    }

    fn decode_all<T: DeserializeOwned>(
        &self,
        call: Call,
        all: &[u8],
        lens: &[usize],
    ) -> Result<Vec<T>, CommError> {
        let mut rest = all;
        let mut objects = Vec::with_capacity(lens.len());
        for (member, len) in lens.iter().enumerate() {
            let (envelope, after) = rest.split_at(*len);
            objects.push(self.decode(call, envelope, member)?);
            rest = after;
        }
        Ok(objects)
    }

    fn decode<T: DeserializeOwned>(
        &self,
        call: Call,
        envelope: &[u8],
        member: usize,
    ) -> Result<T, CommError> {
        let peer = self.members()[member];
        open(envelope)
            .and_then(|body| {
                let (object, rest) =
                    postcard::take_from_bytes(body).map_err(|error| error.to_string())?;
                match rest.len() {
                    0 => Ok(object),
                    left => Err(format!("{left} bytes are left over: another type was sent")),
                }
            })
            .map_err(|detail| self.object_error(call, malformed(peer, detail)))
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

/// The body of an envelope.
fn open(envelope: &[u8]) -> Result<&[u8], String> {
    let Some((header, body)) = envelope.split_at_checked(HEADER_BYTES) else {
        return Err(format!(
            "{} bytes, an envelope has at least {HEADER_BYTES}",
            envelope.len()
        ));
    };
    if header[..2] != MARK {
        return Err("it does not begin as an object".to_owned());
    }
    if header[2..4] != [VERSION, CODEC_POSTCARD] {
        return Err(format!(
            "version {} codec {}, known is version {VERSION} codec {CODEC_POSTCARD}",
            header[2], header[3]
        ));
    }
    let len = header[4..]
        .iter()
        .rev()
        .fold(0_u64, |len, byte| len << 8 | u64::from(*byte));
    if len != body.len() as u64 {
        return Err(format!("it says {len} bytes and has {}", body.len()));
    }
    Ok(body)
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn arbitrary_bytes_are_refused_or_opened_and_never_panic(bytes: Vec<u8>) {
            let opened = open(&bytes);
            prop_assert!(opened.is_err() || bytes.starts_with(&MARK));
        }
    }
}
