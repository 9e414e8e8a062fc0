//! `send`, `recv` and batches of them.

use std::marker::PhantomData;
use std::panic::Location;

use super::{Call, Communicator, record};
use crate::backend::host::Host;
use crate::backend::links::{Message, first};
use crate::backend::message::Direction;
use crate::backend::wait_context::{Limit, WaitContext};
use crate::buffer::Element;
use crate::error::CommError;
use crate::sync::Deadline;
use crate::types::{Collective, DType};

/// One message of a batch.
#[derive(Debug)]
pub struct PointToPoint<'a> {
    message: Message,
    buffer: PhantomData<&'a mut [u8]>,
}

impl<'a> PointToPoint<'a> {
    /// A message to the member with index `peer`.
    #[must_use]
    pub fn send<T: Element>(sendbuf: &'a [T], peer: usize) -> Self {
        let start = sendbuf.as_ptr().cast::<u8>().cast_mut();
        Self::new(Direction::Send, peer, T::DTYPE, sendbuf.len(), start)
    }

    /// A message from the member with index `peer`.
    #[must_use]
    pub fn recv<T: Element>(recvbuf: &'a mut [T], peer: usize) -> Self {
        let start = recvbuf.as_mut_ptr().cast();
        Self::new(Direction::Recv, peer, T::DTYPE, recvbuf.len(), start)
    }

    pub(super) fn new(
        direction: Direction,
        peer: usize,
        dtype: DType,
        count: usize,
        buffer: *mut u8,
    ) -> Self {
        let message = Message {
            direction,
            peer,
            dtype,
            count,
            buffer,
        };
        Self {
            message,
            buffer: PhantomData,
        }
    }
}

/// Most messages of one batch: bounds what one call allocates.
pub const BATCH_MAX: usize = 65_536;

impl Communicator {
    /// Sends a message to the member with index `peer`, which must receive it with the same
    /// element type and count.
    ///
    /// Messages between two ranks arrive in the order of the calls. The call returns when
    /// `sendbuf` may be reused: for a short message that can be before the peer receives it, for a
    /// long one it is not. Sending to oneself is possible only in a batch with its receive.
    ///
    /// # Errors
    /// `InvalidArgument` for a peer outside the group or this rank itself.
    ///
    /// **Source**: MPI-4 section 3.2 (`MPI_Send`), `HcclSend`, `ncclSend`.
    #[track_caller]
    pub fn send<T: Element>(&self, sendbuf: &[T], peer: usize) -> Result<(), CommError> {
        let call = Call::new::<T>(Collective::Send, sendbuf.len());
        self.batch(call, &[PointToPoint::send(sendbuf, peer)])
    }

    /// Receives a message from the member with index `peer`.
    ///
    /// # Errors
    /// `InvalidArgument` for a peer outside the group or this rank itself; `Mismatch` where the
    /// message has another type or count, after which the group cannot be used for messages or
    /// anything else.
    ///
    /// **Source**: MPI-4 section 3.2 (`MPI_Recv`), `HcclRecv`, `ncclRecv`.
    #[track_caller]
    pub fn recv<T: Element>(&self, recvbuf: &mut [T], peer: usize) -> Result<(), CommError> {
        let call = Call::new::<T>(Collective::Recv, recvbuf.len());
        self.batch(call, &[PointToPoint::recv(recvbuf, peer)])
    }

    /// Sends and receives several messages at once; returns when all are through.
    ///
    /// All progress together, so ranks may send to and receive from each other in any order
    /// without blocking each other. Messages to this rank itself are matched with the receives
    /// from itself in the same batch, in order.
    ///
    /// # Errors
    /// `InvalidArgument` for a peer outside the group, more than [`BATCH_MAX`] messages, or
    /// messages to itself without a receive that fits.
    ///
    /// **Source**: `HcclBatchSendRecv`, `ncclGroupStart`/`ncclGroupEnd`.
    #[track_caller]
    pub fn batch_send_recv(&self, messages: &[PointToPoint<'_>]) -> Result<(), CommError> {
        self.batch(Call::bare(Collective::SendRecvBatch), messages)
    }

    /// Receives a message from whichever channel has one first, and returns the index of that channel.
    ///
    /// A channel is a communicator of this rank and another member of this group, which sends over it by [`send`](Self::send).
    /// Receives that other threads make on a channel come first. Nobody else makes a group of this
    /// communicator: its name stands for the call in verdicts. The time of the call is that of this communicator.
    ///
    /// # Errors
    /// `InvalidArgument` where there is no channel, or one that is none; `PeerClosed` where the other rank of a channel has died,
    /// or all have left; else as [`recv`](Self::recv), which the channel cannot be used after.
    ///
    /// **Source**: MPI-4 section 3.2.4 (`MPI_ANY_SOURCE`).
    #[track_caller]
    pub fn recv_any<T: Element>(
        &self,
        channels: &[Self],
        recvbuf: &mut [T],
    ) -> Result<usize, CommError> {
        self.recv_any_view(channels, PointToPoint::recv(recvbuf, 0))
    }

    /// [`recv_any`](Self::recv_any) of a message with an erased buffer, whose peer is not looked at.
    ///
    /// # Errors
    /// As there.
    #[track_caller]
    pub fn recv_any_view(
        &self,
        channels: &[Self],
        message: PointToPoint<'_>,
    ) -> Result<usize, CommError> {
        let message = message.message;
        let call = Call {
            collective: Collective::RecvAny,
            dtype: Some(message.dtype),
            count: Some(message.count),
            site: Location::caller(),
        };
        let peers: Option<Vec<usize>> = channels.iter().map(|one| self.other_of(one)).collect();
        let peers = peers.filter(|peers| !peers.is_empty() && message.direction == Direction::Recv);
        let Some(peers) = peers else {
            let want = "at least one communicator of this rank and another member".to_owned();
            return Err(self.refuse(call, "the channels", format!("{channels:?}"), want));
        };
        let mut taken = None;
        self.guarded(call, call.code(None), |_, wait_context| {
            first(wait_context, peers.clone(), |peer| {
                let at = peers.iter().position(|other| *other == peer);
                taken = at.and_then(|at| Some((at, channels[at].take(call, message)?)));
                taken.is_some()
            })
        })?;
        let Some((at, result)) = taken else {
            unreachable!("a wait that has ended well has taken a message")
        };
        result.map(|()| at)
    }

    /// The member of this group that a channel leads to.
    fn other_of(&self, channel: &Self) -> Option<usize> {
        let peer = match channel.members() {
            [peer, _] if channel.rank() == 1 => peer,
            [_, peer] => peer,
            _ => return None,
        };
        self.members().iter().position(|member| member == peer)
    }

    /// Receives the next message of a channel if it has begun to come; `None` where it has not, or where a receive of
    /// another thread is under way, which comes first.
    fn take(&self, call: Call, message: Message) -> Option<Result<(), CommError>> {
        let inner = &*self.inner;
        if let Some(cause) = self.failure() {
            return Some(Err(cause));
        }
        if inner.worker.is_busy() {
            return None;
        }
        let mut host = inner.host.try_lock().ok()?;
        let call = Call {
            collective: Collective::Recv,
            ..call
        };
        let message = Message {
            peer: 1 - self.rank(),
            ..message
        };
        let limit = Limit::At(Deadline::after(self.deadline()));
        let look = self.wait_context(limit, host.seq() + 1, call);
        let begun = host.links().begun(&look, &message).transpose()?;
        let code = call.code(None);
        let finish = |host: &mut Host, wait_context: &WaitContext<'_>| {
            record::messages(&inner.place, wait_context.seq, call, &[message]);
            host.links().finish(wait_context, begun?)
        };
        Some(self.carry_out(call, code, None, &mut host, finish))
    }

    fn batch(&self, call: Call, messages: &[PointToPoint<'_>]) -> Result<(), CommError> {
        if messages.len() > BATCH_MAX {
            let (got, want) = (messages.len(), format!("at most {BATCH_MAX} messages"));
            return Err(self.refuse(call, "the batch", format!("{got} messages"), want));
        }
        for message in messages {
            self.check_index(call, "peer", message.message.peer)?;
        }
        self.check_own(call, messages)?;
        let messages: Vec<Message> = messages.iter().map(|one| one.message).collect();
        self.guarded(call, call.code(None), |host, wait_context| {
            record::messages(&self.inner.place, wait_context.seq, call, &messages);
            host.links().exchange(wait_context, &messages)
        })
    }

    /// Messages to this rank itself must come in fitting pairs.
    fn check_own(&self, call: Call, messages: &[PointToPoint<'_>]) -> Result<(), CommError> {
        let me = self.rank();
        let own = |direction| {
            messages
                .iter()
                .map(|one| one.message)
                .filter(move |one| one.peer == me && one.direction == direction)
                .map(|one| (one.dtype, one.count))
        };
        let (sends, recvs) = (own(Direction::Send), own(Direction::Recv));
        if sends.clone().eq(recvs.clone()) {
            return Ok(());
        }
        let show = |messages: &mut dyn Iterator<Item = (DType, usize)>| {
            let list: Vec<String> = messages.map(|(t, count)| format!("{t}[{count}]")).collect();
            if list.is_empty() {
                "none".to_owned()
            } else {
                list.join(", ")
            }
        };
        let got = format!("{} to itself", show(&mut { sends }));
        let want = format!(
            "what it receives from itself in the same batch, {}",
            show(&mut { recvs })
        );
        Err(self.refuse(call, "what this rank sends", got, want))
    }
}
