//! The buffers of a cell and the one call that is repeated on them.

use std::ops::{Deref, DerefMut, Range};

use muster_comm::algo::choices_for;
use muster_comm::buffer::Element;
use muster_comm::collective::Communicator;
use muster_comm::error::CommError;
use muster_comm::types::{Collective, Counting, Extent, Pattern, ReduceOp};
use muster_comm::world::{AllocError, RegionBuffer};
use serde_bytes::ByteBuf;

use crate::bench::data::{self, Data, Stretch};
use crate::bench::ground::{Ground, There, no_room};
use crate::bench::sweep::{Cell, Memory};
use crate::check::call_args::CallArgs;

/// Bytes within which processors compare places.
const PAGE: usize = 4096;

/// One member's buffers, with all that a call needs beside them.
#[derive(Debug)]
pub struct Call<'a, T> {
    comm: &'a Communicator,
    collective: Collective,
    op: ReduceOp,
    root: usize,
    in_place: bool,
    send: Store<T>,
    recv: Store<T>,
    /// The buffers on a device; those above are what is copied there and back, then.
    there: Option<There<T>>,
    send_counts: Vec<usize>,
    recv_counts: Vec<usize>,
    object: ByteBuf,
    objects: Vec<ByteBuf>,
    data: Data,
}

/// A buffer, wherever it lies.
#[derive(Debug)]
enum Store<T> {
    Private(Paged<T>),
    Region(RegionBuffer<T>),
}

/// Ordinary memory that begins at a page. How two buffers lie within their pages decides how fast some processors copy between
/// them, and what was allocated before would decide that.
#[derive(Debug)]
struct Paged<T> {
    memory: Vec<T>,
    start: usize,
    elements: usize,
}

impl<T: Element> Paged<T> {
    fn zeroed(elements: usize) -> Self {
        let memory = vec![T::zeroed(); elements + PAGE / size_of::<T>()];
        Self {
            start: memory.as_ptr().align_offset(PAGE),
            memory,
            elements,
        }
    }

    fn place(&self) -> Range<usize> {
        self.start..self.start + self.elements
    }
}

impl<T: Element> Store<T> {
    /// Zeroed elements.
    fn take(comm: &Communicator, memory: Memory, elements: usize) -> Result<Self, AllocError> {
        Ok(match memory {
            Memory::Device | Memory::Private => Self::Private(Paged::zeroed(elements)),
            Memory::Region => Self::Region(comm.alloc(elements)?),
        })
    }
}

impl<T: Element> Deref for Store<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::Private(buffer) => &buffer.memory[buffer.place()],
            Self::Region(buffer) => buffer,
        }
    }
}

impl<T: Element> DerefMut for Store<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Self::Private(buffer) => {
                let place = buffer.place();
                &mut buffer.memory[place]
            }
            Self::Region(buffer) => buffer,
        }
    }
}

/// Why a cell has no buffers.
#[derive(Debug)]
pub enum Unfit {
    /// The device failed.
    Failed(CommError),
    /// There is no room: another cell may have it.
    NoRoom(String),
}

impl From<AllocError> for Unfit {
    fn from(error: AllocError) -> Self {
        Self::NoRoom(error.to_string())
    }
}

impl From<CommError> for Unfit {
    fn from(error: CommError) -> Self {
        if no_room(&error) {
            Self::NoRoom(error.kind().to_string())
        } else {
            Self::Failed(error)
        }
    }
}

/// What came of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Wrong elements.
    pub wrong: u64,
    /// The first of them, in the receive buffer.
    pub first: Option<usize>,
}

impl<'a, T: Element> Call<'a, T> {
    /// Takes the memory and writes the inputs.
    ///
    /// # Errors
    /// Where the region or the device has no room, or the device fails.
    pub fn new(
        ground: &'a Ground,
        cell: &Cell,
        collective: Collective,
        seed: u64,
    ) -> Result<Self, Unfit> {
        let comm = ground.host();
        let (me, shape) = (comm.rank(), cell.shape);
        let data = Data {
            shape,
            dtype: cell.dtype,
            op: cell.op,
            me,
            seed,
        };
        let is_object = collective.is_of_objects();
        let (sends, recvs) = if is_object {
            (0, 0)
        } else {
            (shape.send_elements(me), shape.recv_elements(me))
        };
        let take = |elements| Store::take(comm, cell.memory, elements);
        // In place the larger buffer serves as both.
        let (send, recv) = if cell.in_place {
            (take(0)?, take(sends.max(recvs))?)
        } else {
            (take(sends)?, take(recvs)?)
        };
        let members = 0..shape.n;
        let (send_counts, recv_counts) = match collective.counting() {
            Counting::Splits => (
                members.clone().map(|to| shape.pair(me, to)).collect(),
                members.map(|from| shape.pair(from, me)).collect(),
            ),
            Counting::Blocks => (shape.parts(), Vec::new()),
            Counting::Buffers | Counting::Messages | Counting::Objects | Counting::Uniform => {
                (Vec::new(), Vec::new())
            }
        };
        let there = match ground {
            Ground::Device(comm) => Some(There::new(comm, collective, send.len(), recv.len())?),
            Ground::Host(_) => None,
        };
        let mut call = Self {
            comm,
            there,
            collective,
            op: cell.op,
            root: shape.root,
            in_place: cell.in_place,
            send,
            recv,
            send_counts,
            recv_counts,
            object: if is_object {
                object_of(me, shape.count)
            } else {
                ByteBuf::new()
            },
            objects: if collective == Collective::ScatterObject && me == shape.root {
                (0..shape.n).map(|to| object_of(to, shape.count)).collect()
            } else {
                Vec::new()
            },
            data,
        };
        call.fill(true)?;
        Ok(call)
    }

    /// Writes the inputs anew. For timed calls in place that reduce, values that do not change.
    ///
    /// # Errors
    /// Those of copies to the device.
    pub fn fill(&mut self, timed: bool) -> Result<(), CommError> {
        self.write(timed);
        match &self.there {
            Some(there) => there.put(&self.send, &self.recv),
            None => Ok(()),
        }
    }

    fn write(&mut self, timed: bool) {
        let size = T::DTYPE.size();
        if self.collective.is_of_objects() {
            return;
        }
        if !self.in_place {
            data::write(
                &self.data.sent(),
                size,
                bytemuck::cast_slice_mut(&mut self.send),
            );
            data::blank(bytemuck::cast_slice_mut(&mut self.recv));
            return;
        }
        let (elements, (begin, _)) = (self.recv.len(), self.starts());
        let buffer: &mut [u8] = bytemuck::cast_slice_mut(&mut self.recv);
        if timed && self.collective.reduces() {
            return data::write(&[self.data.neutral(elements)], size, buffer);
        }
        if self.collective.has_one_buffer() {
            let given = self.data.received();
            let is_given = self.data.me == self.root;
            return data::write(if is_given { &given } else { &[] }, size, buffer);
        }
        // The part that is sent may lie behind other blocks.
        let (before, own) = buffer.split_at_mut(begin * size);
        data::blank(before);
        data::write(&self.data.sent(), size, own);
    }

    /// Where in the one buffer of a call in place what is sent and what is received begin, in elements.
    fn starts(&self) -> (usize, usize) {
        let (me, count) = (self.data.me, self.data.shape.count);
        let pattern = self.collective.pattern().filter(|_| self.in_place);
        let starts = pattern.and_then(|pattern| pattern.in_place(me == self.root, me));
        let (sends, gets) = starts.unwrap_or_default();
        (sends * count, gets * count)
    }

    /// Makes the call once.
    ///
    /// # Errors
    /// The error of the call.
    #[inline]
    pub fn make(&mut self) -> Result<(), CommError> {
        let args = CallArgs {
            collective: self.collective,
            op: self.op,
            root: self.root,
            in_place: self.in_place,
            send_counts: &self.send_counts,
            recv_counts: &self.recv_counts,
        };
        if let Some(there) = &self.there {
            return there.make(&args);
        }
        if self.collective.is_of_objects() {
            return self.objects().map(drop);
        }
        args.on_host(self.comm, &self.send, &mut self.recv)
    }

    /// How the last call went, where the host backend carries it out by an algorithm.
    #[must_use]
    pub fn taken(&self) -> Option<&'static str> {
        let is_selected = choices_for(self.collective).next().is_some();
        let is_here = self.there.is_none() && (is_selected || self.collective.is_of_objects());
        is_here.then(|| self.comm.last_algorithm()).flatten()
    }

    /// Makes the call on fresh inputs and looks at every element of the result.
    ///
    /// # Errors
    /// The error of the call.
    pub fn check(&mut self) -> Result<Checked, CommError> {
        if self.collective.is_of_objects() {
            let wrong = self.objects_wrong(&self.objects()?);
            return Ok(Checked { wrong, first: None });
        }
        self.fill(false)?;
        self.make()?;
        self.look(false)
    }

    /// Looks at the result of the last timed call, where repeated calls leave one that can be told.
    ///
    /// # Errors
    /// Those of copies from the device.
    pub fn look_after_timing(&mut self) -> Result<Checked, CommError> {
        // In place an all_to_all changes its own input; reductions had neutral values.
        if self.in_place && self.collective.pattern() == Some(Pattern::AllToAll) {
            return Ok(Checked::default());
        }
        self.look(true)
    }

    fn look(&mut self, timed: bool) -> Result<Checked, CommError> {
        if let Some(there) = &self.there {
            there.get(&mut self.recv)?;
        }
        let size = T::DTYPE.size();
        let is_neutral = timed && self.in_place && self.collective.reduces();
        let expected: Vec<Stretch> = if is_neutral {
            vec![self.data.neutral(self.recv.len())]
        } else {
            self.data.received()
        };
        let elements: usize = expected.iter().map(|stretch| stretch.elements).sum();
        // In place the result may lie behind other blocks. Where neutral values are reduced all blocks hold it.
        let begin = if is_neutral { 0 } else { self.starts().1 };
        let got = &self.recv[begin..begin + elements];
        let (wrong, first) = data::wrong(&expected, size, bytemuck::cast_slice(got));
        Ok(Checked { wrong, first })
    }

    /// Makes a call with objects: whose they are and what arrived.
    fn objects(&self) -> Result<Vec<(usize, ByteBuf)>, CommError> {
        let (comm, root) = (self.comm, self.root);
        Ok(if self.collective == Collective::AllGatherObject {
            (0..).zip(comm.all_gather_object(&self.object)?).collect()
        } else if self.collective == Collective::GatherObject {
            let all = comm.gather_object(&self.object, root)?;
            (0..).zip(all.unwrap_or_default()).collect()
        } else if self.collective == Collective::BroadcastObject {
            let mine = (comm.rank() == root).then_some(&self.object);
            vec![(root, comm.broadcast_object(mine, root)?)]
        } else {
            vec![(comm.rank(), comm.scatter_object(&self.objects, root)?)]
        })
    }

    /// How many bytes of the objects of a call are wrong or missing.
    fn objects_wrong(&self, objects: &[(usize, ByteBuf)]) -> u64 {
        let (n, count) = (self.data.shape.n, self.data.shape.count);
        let pattern = self.collective.pattern();
        let wanted = match pattern.map(|pattern| pattern.recv(self.data.me == self.root)) {
            Some(Extent::AllBlocks) => n,
            Some(Extent::OwnBlock | Extent::Vector) => 1,
            Some(Extent::Nothing) | None => 0,
        };
        let differing = |(from, object): &(usize, ByteBuf)| {
            let right = object_of(*from, count);
            let wrong = object
                .iter()
                .zip(right.iter())
                .filter(|(got, right)| got != right);
            wrong.count() + object.len().abs_diff(count)
        };
        let wrong: usize = objects.iter().map(differing).sum();
        (wrong + wanted.abs_diff(objects.len()) * count) as u64
    }
}

/// The object that a member gives, or that is meant for it: bytes, as a pickle is.
fn object_of(member: usize, count: usize) -> ByteBuf {
    let bytes = (0..count).map(|at| (at * 31 + member * 7).to_le_bytes()[0]);
    ByteBuf::from(bytes.collect::<Vec<u8>>())
}
