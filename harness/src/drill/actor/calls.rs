//! The calls that ranks of a drill make, and what must come out of them.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "kinds of calls are told apart step by step"
)]

use std::ops::{Deref, DerefMut};

use muster_comm::buffer::Element;
use muster_comm::collective::{Communicator, PointToPoint};
use muster_comm::error::CommError;
use muster_comm::types::ReduceOp;
use muster_comm::world::RegionBuffer;

use crate::drill::script::{CallKind, CallSpec, Kind, MessageSpec, ObjectSpec, Place};

/// Largest object in drills of objects, in bytes.
pub(super) const OBJECT_MAX: usize = 64 << 10;
/// Contributions to calls in a row differ, so that the result of one is not taken for that of the next.
const SALTS: usize = 5;

/// What a rank contributes: its number in the group, counted from 1, and the salt of the call.
fn share<T: From<u16>>(rank: usize, salt: usize) -> T {
    number(rank + 1 + salt % SALTS)
}

fn number<T: From<u16>>(number: usize) -> T {
    T::from(u16::try_from(number).unwrap_or(u16::MAX))
}

/// Elements of a call, in ordinary memory or in such that local peers reach.
enum Elements<T> {
    Ordinary(Vec<T>),
    Region(RegionBuffer<T>),
}

impl<T: Element> Elements<T> {
    /// This many elements of one value.
    fn of(group: &Communicator, in_region: bool, count: usize, value: T) -> Self {
        let region = in_region.then(|| group.alloc(count).ok()).flatten();
        match region {
            Some(mut region) => {
                region.fill(value);
                Self::Region(region)
            }
            // A region that is full is no matter of these drills.
            None => Self::Ordinary(vec![value; count]),
        }
    }
}

impl<T: Element> Deref for Elements<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::Ordinary(elements) => elements,
            Self::Region(elements) => elements,
        }
    }
}

impl<T: Element> DerefMut for Elements<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Self::Ordinary(elements) => elements,
            Self::Region(elements) => elements,
        }
    }
}

/// Makes a call; says whether the result is right. `salt` is the number of the call on the group.
pub(super) fn make(
    group: &Communicator,
    call: &CallSpec,
    place: Place,
    salt: usize,
) -> Result<bool, CommError> {
    if let Some(outcome) = objects(group, call, salt) {
        return outcome;
    }
    match call.dtype {
        Kind::F32 => make_of::<f32>(group, call, place, salt),
        Kind::F64 => make_of::<f64>(group, call, place, salt),
        Kind::I32 => make_of::<i32>(group, call, place, salt),
        Kind::I64 => make_of::<i64>(group, call, place, salt),
    }
}

/// A call with elements of one type.
struct Maker<'a, T> {
    group: &'a Communicator,
    call: &'a CallSpec,
    salt: usize,
    op: ReduceOp,
    /// What a reduction comes to.
    reduced: T,
}

fn make_of<T: Element + From<u16>>(
    group: &Communicator,
    call: &CallSpec,
    place: Place,
    salt: usize,
) -> Result<bool, CommError> {
    let n = group.size();
    let (op, reduced) = if call.takes_max {
        (ReduceOp::Max, share(n - 1, salt))
    } else {
        (ReduceOp::Sum, number(n * (n + 1) / 2 + n * (salt % SALTS)))
    };
    let maker = Maker::<T> {
        group,
        call,
        salt,
        op,
        reduced,
    };
    match call.kind {
        CallKind::Broadcast | CallKind::Gather | CallKind::Reduce | CallKind::Scatter => {
            maker.rooted()
        }
        CallKind::Recv | CallKind::Send => maker.message(),
        _ => maker.of_all(place),
    }
}

fn all<T: PartialEq>(got: &[T], want: &T) -> bool {
    got.iter().all(|one| one == want)
}

impl<T: Element + From<u16>> Maker<'_, T> {
    /// What a rank contributes.
    fn share(&self, rank: usize) -> T {
        share(rank, self.salt)
    }

    fn of(&self, count: usize, value: T) -> Elements<T> {
        Elements::of(self.group, self.call.in_region, count, value)
    }

    /// This rank's contribution, of this many elements.
    fn mine(&self, count: usize) -> Elements<T> {
        self.of(count, self.share(self.group.rank()))
    }

    fn empty(&self, count: usize) -> Elements<T> {
        self.of(count, T::zeroed())
    }

    /// Whether everybody's block is there.
    fn blocks(&self, got: &[T]) -> bool {
        let mut blocks = got.chunks(self.call.count.max(1)).enumerate();
        blocks.all(|(rank, block)| all(block, &self.share(rank)))
    }

    fn of_all(&self, place: Place) -> Result<bool, CommError> {
        let (group, call, n) = (self.group, self.call, self.group.size());
        Ok(match call.kind {
            CallKind::AllReduce => {
                let mut buffer = self.mine(call.count);
                all_reduce(group, &mut buffer, self.op, place)?;
                all(&buffer, &self.reduced)
            }
            CallKind::AllReduceAsync => {
                let mine = self.mine(call.count).to_vec();
                all(
                    &group.all_reduce_async(mine, self.op).wait()?,
                    &self.reduced,
                )
            }
            CallKind::AllGather => {
                let mut got = self.empty(call.count * n);
                group.all_gather(&self.mine(call.count), &mut got)?;
                self.blocks(&got)
            }
            CallKind::AllToAll => {
                let mut got = self.empty(call.count * n);
                group.all_to_all(&self.mine(call.count * n), &mut got)?;
                self.blocks(&got)
            }
            CallKind::AllToAllV => {
                let send = self.mine(call.send_counts.iter().sum());
                let mut got = self.empty(call.recv_counts.iter().sum());
                group.all_to_all_v(&send, &call.send_counts, &mut got, &call.recv_counts)?;
                let mut at = 0;
                call.recv_counts.iter().enumerate().all(|(rank, count)| {
                    let part = &got[at..at + count];
                    at += count;
                    all(part, &self.share(rank))
                })
            }
            CallKind::ReduceScatter => {
                let mut got = self.empty(call.count);
                group.reduce_scatter(&self.mine(call.count * n), &mut got, self.op)?;
                all(&got, &self.reduced)
            }
            _ => {
                group.barrier()?;
                true
            }
        })
    }

    fn rooted(&self) -> Result<bool, CommError> {
        let (group, call, root) = (self.group, self.call, self.call.peer);
        let of_root = |count: usize| if group.rank() == root { count } else { 0 };
        let of_all = of_root(call.count * group.size());
        Ok(match call.kind {
            CallKind::Gather => {
                let mut got = self.empty(of_all);
                group.gather(&self.mine(call.count), &mut got, root)?;
                self.blocks(&got)
            }
            CallKind::Reduce => {
                let mut got = self.empty(of_root(call.count));
                group.reduce(&self.mine(call.count), &mut got, self.op, root)?;
                all(&got, &self.reduced)
            }
            CallKind::Scatter => {
                let mut got = self.empty(call.count);
                group.scatter(&self.mine(of_all), &mut got, root)?;
                all(&got, &self.share(root))
            }
            _ => {
                let mut buffer = self.mine(call.count);
                group.broadcast(&mut buffer, root)?;
                all(&buffer, &self.share(root))
            }
        })
    }

    fn message(&self) -> Result<bool, CommError> {
        let (group, call) = (self.group, self.call);
        if call.kind == CallKind::Send {
            group.send(&self.mine(call.count), call.peer)?;
            return Ok(true);
        }
        let mut got = self.empty(call.count);
        group.recv(&mut got, call.peer)?;
        Ok(all(&got, &self.share(call.peer)))
    }
}

/// The same call from several places of the program.
fn all_reduce<T: Element>(
    group: &Communicator,
    buffer: &mut [T],
    op: ReduceOp,
    place: Place,
) -> Result<(), CommError> {
    match place {
        Place::First => group.all_reduce_in_place(buffer, op),
        Place::Second => group.all_reduce_in_place(buffer, op),
        Place::Third => group.all_reduce_in_place(buffer, op),
    }
}

/// Makes a call of objects, where it is one.
fn objects(group: &Communicator, call: &CallSpec, salt: usize) -> Option<Result<bool, CommError>> {
    // Objects may be of any length; what they hold says whose they are.
    let byte = |rank: usize| u8::try_from((rank + salt) % 251).unwrap_or(0);
    let object = |rank: usize| vec![byte(rank); call.count];
    let is_of = |rank: usize, got: &[u8]| got.iter().all(|one| *one == byte(rank));
    let are_all = |got: &[Vec<u8>]| got.iter().enumerate().all(|(rank, one)| is_of(rank, one));
    let me = group.rank();
    let root = call.peer;
    Some(match (call.kind, call.object) {
        (CallKind::AllGatherObject, ObjectSpec::Usual) => group
            .all_gather_object(&object(me))
            .map(|got| are_all(&got)),
        (CallKind::AllGatherObject, ObjectSpec::Other) => {
            group.all_gather_object(&1_u8).map(|_| true)
        }
        (CallKind::AllGatherObject, ObjectSpec::Huge) => group
            .all_gather_object(&vec![7_u8; 2 * OBJECT_MAX])
            .map(|_| true),
        (CallKind::GatherObject, ObjectSpec::Other) => {
            group.gather_object(&1_u8, root).map(|_| true)
        }
        (CallKind::GatherObject, _) => group
            .gather_object(&object(me), root)
            .map(|got| got.is_none_or(|got| are_all(&got))),
        (CallKind::BroadcastObject, ObjectSpec::Other) => {
            group.broadcast_object(Some(&1_u8), root).map(|_| true)
        }
        (CallKind::BroadcastObject, _) => group
            .broadcast_object(Some(&object(me)), root)
            .map(|got| is_of(root, &got)),
        _ => return None,
    })
}

/// Sends and receives messages at once; `salts` are their numbers between the two ranks.
pub(super) fn batch(
    group: &Communicator,
    messages: &[MessageSpec],
    salts: &[usize],
) -> Result<bool, CommError> {
    let value = |message: &MessageSpec, salt: usize| -> i32 {
        share(
            if message.is_sent {
                group.rank()
            } else {
                message.peer
            },
            salt,
        )
    };
    let sent = |message: &MessageSpec, salt| {
        let value = if message.is_sent {
            value(message, salt)
        } else {
            0
        };
        vec![value; message.count]
    };
    let with_salts = || messages.iter().zip(salts.iter().copied());
    let mut buffers: Vec<Vec<i32>> = with_salts().map(|(one, salt)| sent(one, salt)).collect();
    let posted: Vec<PointToPoint<'_>> = buffers
        .iter_mut()
        .zip(messages)
        .map(|(buffer, message)| {
            if message.is_sent {
                PointToPoint::send(buffer, message.peer)
            } else {
                PointToPoint::recv(buffer, message.peer)
            }
        })
        .collect();
    group.batch_send_recv(&posted)?;
    drop(posted);
    let is_right = |(got, (message, salt)): (&Vec<i32>, (&MessageSpec, usize))| {
        let want = value(message, salt);
        got.iter().all(|one| *one == want)
    };
    Ok(buffers.iter().zip(with_salts()).all(is_right))
}
