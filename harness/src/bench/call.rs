//! The buffers of a cell and the one call that is repeated on them.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "each match picks the few calls that it concerns"
)]

use std::ops::{Deref, DerefMut};

use muster_comm::algo::choices_for;
use muster_comm::buffer::Element;
use muster_comm::collective::{Communicator, PointToPoint};
use muster_comm::error::CommError;
use muster_comm::types::{Collective, ReduceOp};
use muster_comm::world::{AllocError, RegionBuffer};
use serde_bytes::ByteBuf;

use crate::bench::data::{self, Data, Stretch};
use crate::bench::ground::{Form, Ground, There, no_room};
use crate::bench::plan::{Cell, Memory, carries_objects};

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
    Private(Vec<T>),
    Region(RegionBuffer<T>),
}

impl<T: Element> Store<T> {
    /// Zeroed elements.
    fn take(comm: &Communicator, memory: Memory, elements: usize) -> Result<Self, AllocError> {
        Ok(match memory {
            Memory::Device | Memory::Private => Self::Private(vec![T::zeroed(); elements]),
            Memory::Region => Self::Region(comm.alloc(elements)?),
        })
    }
}

impl<T: Element> Deref for Store<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::Private(buffer) => buffer,
            Self::Region(buffer) => buffer,
        }
    }
}

impl<T: Element> DerefMut for Store<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Self::Private(buffer) => buffer,
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
        let is_object = carries_objects(collective);
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
        let (send_counts, recv_counts) = match collective {
            Collective::AllToAllV => (
                members.clone().map(|to| shape.pair(me, to)).collect(),
                members.map(|from| shape.pair(from, me)).collect(),
            ),
            Collective::AllGatherV
            | Collective::GatherV
            | Collective::ReduceScatterV
            | Collective::ScatterV => (shape.parts(), Vec::new()),
            _ => (Vec::new(), Vec::new()),
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
            objects: match collective {
                Collective::ScatterObject if me == shape.root => {
                    (0..shape.n).map(|to| object_of(to, shape.count)).collect()
                }
                _ => Vec::new(),
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
        if carries_objects(self.collective) {
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
        let elements = self.recv.len();
        let buffer: &mut [u8] = bytemuck::cast_slice_mut(&mut self.recv);
        if timed && self.collective.reduces() {
            return data::write(&[self.data.neutral(elements)], size, buffer);
        }
        let sent = self.data.sent();
        match self.collective {
            // The own block lies in its place among the others.
            Collective::AllGather => {
                let own = self.data.me * self.data.shape.count * size;
                data::blank(buffer);
                let end = own + self.data.shape.count * size;
                data::write(&sent, size, &mut buffer[own..end]);
            }
            Collective::Gather if self.data.me == self.root => {
                let own = self.root * self.data.shape.count * size;
                data::blank(buffer);
                let end = own + self.data.shape.count * size;
                data::write(&sent, size, &mut buffer[own..end]);
            }
            Collective::Broadcast if self.data.me == self.root => {
                data::write(&self.data.received(), size, buffer);
            }
            Collective::Broadcast => data::blank(buffer),
            _ => data::write(&sent, size, buffer),
        }
    }

    /// Makes the call once.
    ///
    /// # Errors
    /// The error of the call.
    #[inline]
    pub fn make(&mut self) -> Result<(), CommError> {
        let (comm, op, root) = (self.comm, self.op, self.root);
        if let Some(there) = &self.there {
            return there.make(&Form {
                collective: self.collective,
                op,
                root,
                in_place: self.in_place,
                send_counts: &self.send_counts,
                recv_counts: &self.recv_counts,
            });
        }
        if self.in_place {
            let buffer = &mut self.recv[..];
            return match self.collective {
                Collective::AllReduce => comm.all_reduce_in_place(buffer, op),
                Collective::AllGather => comm.all_gather_in_place(buffer),
                Collective::AllToAll => comm.all_to_all_in_place(buffer),
                Collective::Gather => comm.gather_in_place(buffer, root),
                Collective::Reduce => comm.reduce_in_place(buffer, op, root),
                Collective::ReduceScatter => comm.reduce_scatter_in_place(buffer, op),
                Collective::Scatter => comm.scatter_in_place(buffer, root),
                _ => comm.broadcast(buffer, root),
            };
        }
        let (send, recv) = (&self.send[..], &mut self.recv[..]);
        let (sends, recvs) = (&self.send_counts[..], &self.recv_counts[..]);
        match self.collective {
            Collective::AllReduce => comm.all_reduce(send, recv, op),
            Collective::AllGather => comm.all_gather(send, recv),
            Collective::AllGatherV => comm.all_gather_v(send, recv, sends),
            Collective::AllToAll => comm.all_to_all(send, recv),
            Collective::AllToAllV => comm.all_to_all_v(send, sends, recv, recvs),
            Collective::Gather => comm.gather(send, recv, root),
            Collective::GatherV => comm.gather_v(send, recv, sends, root),
            Collective::Reduce => comm.reduce(send, recv, op, root),
            Collective::ReduceScatter => comm.reduce_scatter(send, recv, op),
            Collective::ReduceScatterV => comm.reduce_scatter_v(send, sends, recv, op),
            Collective::Scatter => comm.scatter(send, recv, root),
            Collective::ScatterV => comm.scatter_v(send, sends, recv, root),
            Collective::Broadcast => comm.broadcast(recv, root),
            Collective::SendRecvBatch | Collective::Send | Collective::Recv => {
                let (n, me) = (comm.size(), comm.rank());
                comm.batch_send_recv(&[
                    PointToPoint::send(send, (me + 1) % n),
                    PointToPoint::recv(recv, (me + n - 1) % n),
                ])
            }
            Collective::Barrier => comm.barrier(),
            Collective::AllGatherObject
            | Collective::BroadcastObject
            | Collective::GatherObject
            | Collective::ScatterObject => self.objects().map(drop),
        }
    }

    /// How the last call went, where the host backend carries it out by an algorithm.
    #[must_use]
    pub fn taken(&self) -> Option<&'static str> {
        let is_selected = choices_for(self.collective).next().is_some();
        let is_here = self.there.is_none() && (is_selected || carries_objects(self.collective));
        is_here.then(|| self.comm.last_algorithm()).flatten()
    }

    /// Makes the call on fresh inputs and looks at every element of the result.
    ///
    /// # Errors
    /// The error of the call.
    pub fn check(&mut self) -> Result<Checked, CommError> {
        if carries_objects(self.collective) {
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
        if self.in_place && self.collective == Collective::AllToAll {
            return Ok(Checked::default());
        }
        self.look(true)
    }

    fn look(&mut self, timed: bool) -> Result<Checked, CommError> {
        if let Some(there) = &self.there {
            there.get(&mut self.recv)?;
        }
        let size = T::DTYPE.size();
        let expected: Vec<Stretch> = if timed && self.in_place && self.collective.reduces() {
            vec![self.data.neutral(self.recv.len())]
        } else {
            self.data.received()
        };
        let elements: usize = expected.iter().map(|stretch| stretch.elements).sum();
        let (me, count) = (self.data.me, self.data.shape.count);
        // In place the result may lie behind other blocks.
        let begin = match self.collective {
            Collective::ReduceScatter if self.in_place && !timed => me * count,
            Collective::Scatter if self.in_place && me == self.root => me * count,
            _ => 0,
        };
        let got = &self.recv[begin..begin + elements];
        let (wrong, first) = data::wrong(&expected, size, bytemuck::cast_slice(got));
        Ok(Checked { wrong, first })
    }

    /// Makes a call with objects: whose they are and what arrived.
    fn objects(&self) -> Result<Vec<(usize, ByteBuf)>, CommError> {
        let (comm, root) = (self.comm, self.root);
        Ok(match self.collective {
            Collective::AllGatherObject => {
                (0..).zip(comm.all_gather_object(&self.object)?).collect()
            }
            Collective::GatherObject => {
                let all = comm.gather_object(&self.object, root)?;
                (0..).zip(all.unwrap_or_default()).collect()
            }
            Collective::BroadcastObject => {
                let mine = (comm.rank() == root).then_some(&self.object);
                vec![(root, comm.broadcast_object(mine, root)?)]
            }
            _ => vec![(comm.rank(), comm.scatter_object(&self.objects, root)?)],
        })
    }

    /// How many bytes of the objects of a call are wrong or missing.
    fn objects_wrong(&self, objects: &[(usize, ByteBuf)]) -> u64 {
        let (n, count) = (self.data.shape.n, self.data.shape.count);
        let wanted = match self.collective {
            Collective::AllGatherObject => n,
            Collective::GatherObject if self.comm.rank() != self.root => 0,
            Collective::GatherObject => n,
            _ => 1,
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
