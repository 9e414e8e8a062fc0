//! What is checked: a group on the host, or the same group on its devices.
//!
//! Checks make their calls on slices, whatever backend carries them out. For devices each call
//! copies its buffers there and back; receive buffers too, so that an element which nobody wrote
//! still holds the pattern, and send buffers are compared on the device's side of the call. So it is with
//! buffers in the region that ranks of a host share: [`region`].

pub mod region;

use std::sync::Mutex;

use muster_comm::buffer::Element;
use muster_comm::collective::{Communicator, PointToPoint};
use muster_comm::device::{DeviceBuffer, DeviceCommunicator, DeviceError, DeviceMessage};
use muster_comm::error::{CommError, ErrorKind};
use muster_comm::types::{Collective, DType, Rank, ReduceOp};

use region::OnRegion;

/// A group to check.
#[derive(Debug)]
pub enum Subject {
    /// On its devices.
    Device(OnDevice),
    /// On the host.
    Host(Communicator),
    /// On the host, with buffers in the region that local ranks share.
    Region(OnRegion),
}

/// A group on its devices.
#[derive(Debug)]
pub struct OnDevice {
    comm: DeviceCommunicator,
    /// The first call that changed its own send buffer on the device.
    spoilt: Mutex<Option<&'static str>>,
}

/// A call with a send and a receive buffer on a device, its type erased as that of a call in the region.
type DeviceCall<'a, T> =
    dyn Fn(&DeviceCommunicator, &DeviceBuffer<T>, &DeviceBuffer<T>) -> Result<(), CommError> + 'a;

/// A call with one buffer on a device.
type InPlaceCall<'a, T> =
    dyn Fn(&DeviceCommunicator, &DeviceBuffer<T>) -> Result<(), CommError> + 'a;

/// A message of a batch.
#[derive(Debug)]
pub enum Message<'a, T> {
    /// From the member with this index.
    Recv(&'a mut [T], usize),
    /// To the member with this index.
    Send(&'a [T], usize),
}

impl From<Communicator> for Subject {
    fn from(comm: Communicator) -> Self {
        Self::Host(comm)
    }
}

impl From<DeviceCommunicator> for Subject {
    fn from(comm: DeviceCommunicator) -> Self {
        Self::Device(OnDevice {
            comm,
            spoilt: Mutex::default(),
        })
    }
}

/// Declares a call of two buffers: its host form, and its device form between two copies.
macro_rules! apart {
    ($($(#[$doc:meta])* $name:ident($($before:ident: $kind:ty),*; $($after:ident: $late:ty),*)
        => $collective:ident, |$comm:ident, $send:ident, $recv:ident| $call:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        /// As the call of the communicator.
        pub fn $name<T: Element>(
            &self,
            sendbuf: &[T],
            $($before: $kind,)*
            recvbuf: &mut [T],
            $($after: $late),*
        ) -> Result<(), CommError> {
            match self {
                Self::Host(comm) => comm.$name(sendbuf, $($before,)* recvbuf, $($after),*),
                Self::Region(region) => {
                    region.apart(Collective::$collective, sendbuf, recvbuf, &|comm, send, recv| {
                        comm.$name(send, $($before,)* recv, $($after),*)
                    })
                }
                Self::Device(device) => device.apart(
                    Collective::$collective,
                    sendbuf,
                    recvbuf,
                    &|$comm, $send, $recv| $call,
                ),
            }
        }
    )*};
}

/// Declares a call of one buffer.
macro_rules! in_place {
    ($($(#[$doc:meta])* $name:ident($($after:ident: $late:ty),*) => $collective:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        /// As the call of the communicator.
        pub fn $name<T: Element>(&self, buffer: &mut [T], $($after: $late),*) -> Result<(), CommError> {
            match self {
                Self::Host(comm) => comm.$name(buffer, $($after),*),
                Self::Region(region) => {
                    region.in_place(buffer, &|comm, buffer| comm.$name(buffer, $($after),*))
                }
                Self::Device(device) => device.in_place(Collective::$collective, buffer, &|comm, buffer| {
                    comm.$name(buffer, $($after),*)
                }),
            }
        }
    )*};
}

impl Subject {
    /// The group's host communicator: objects go over it whatever is checked.
    #[must_use]
    pub fn host(&self) -> &Communicator {
        match self {
            Self::Device(device) => device.comm.host(),
            Self::Host(comm) => comm,
            Self::Region(region) => region.comm(),
        }
    }

    /// Name of the group.
    #[must_use]
    pub fn name(&self) -> &str {
        self.host().name()
    }

    /// This rank's index.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.host().rank()
    }

    /// Number of members.
    #[must_use]
    pub fn size(&self) -> usize {
        self.host().size()
    }

    /// The members' world ranks.
    #[must_use]
    pub fn members(&self) -> &[Rank] {
        self.host().members()
    }

    /// Why a call cannot be checked here, if it cannot: the product does not have it.
    #[must_use]
    pub fn refusal(
        &self,
        collective: Collective,
        dtype: DType,
        op: Option<ReduceOp>,
    ) -> Option<String> {
        let Self::Device(device) = self else {
            return None;
        };
        let refused = device.comm.supports(collective, dtype, op).err()?;
        Some(refused.to_string())
    }

    /// What went wrong beside the results since somebody last asked: a call that changed its own send buffer
    /// where that lay, or a buffer that was not to be had there.
    #[must_use]
    pub fn take_trouble(&self) -> Option<String> {
        match self {
            Self::Device(device) => {
                let spoilt = device
                    .spoilt
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner)
                    .take();
                spoilt.map(|call| format!("{call} changed its own send buffer on the device"))
            }
            Self::Host(_) => None,
            Self::Region(region) => region.take_trouble(),
        }
    }

    /// `barrier`.
    ///
    /// # Errors
    /// As the call of the communicator.
    pub fn barrier(&self) -> Result<(), CommError> {
        match self {
            Self::Device(device) => device.comm.barrier(),
            Self::Host(comm) => comm.barrier(),
            Self::Region(region) => region.comm().barrier(),
        }
    }

    apart! {
        /// `all_reduce`.
        all_reduce(; op: ReduceOp) => AllReduce, |comm, send, recv| comm.all_reduce(send, recv, op);
        /// `reduce`.
        reduce(; op: ReduceOp, root: usize) => Reduce, |comm, send, recv| comm.reduce(send, recv, op, root);
        /// `reduce_scatter`.
        reduce_scatter(; op: ReduceOp) => ReduceScatter, |comm, send, recv| comm.reduce_scatter(send, recv, op);
        /// `reduce_scatter_v`.
        reduce_scatter_v(recv_counts: &[usize]; op: ReduceOp)
            => ReduceScatterV, |comm, send, recv| comm.reduce_scatter_v(send, recv_counts, recv, op);
        /// `all_gather`.
        all_gather(;) => AllGather, |comm, send, recv| comm.all_gather(send, recv);
        /// `all_gather_v`.
        all_gather_v(; recv_counts: &[usize])
            => AllGatherV, |comm, send, recv| comm.all_gather_v(send, recv, recv_counts);
        /// `all_to_all`.
        all_to_all(;) => AllToAll, |comm, send, recv| comm.all_to_all(send, recv);
        /// `all_to_all_v`.
        all_to_all_v(send_counts: &[usize]; recv_counts: &[usize])
            => AllToAllV, |comm, send, recv| comm.all_to_all_v(send, send_counts, recv, recv_counts);
        /// `gather`.
        gather(; root: usize) => Gather, |comm, send, recv| comm.gather(send, recv, root);
        /// `gather_v`.
        gather_v(; recv_counts: &[usize], root: usize)
            => GatherV, |comm, send, recv| comm.gather_v(send, recv, recv_counts, root);
        /// `scatter`.
        scatter(; root: usize) => Scatter, |comm, send, recv| comm.scatter(send, recv, root);
        /// `scatter_v`.
        scatter_v(send_counts: &[usize]; root: usize)
            => ScatterV, |comm, send, recv| comm.scatter_v(send, send_counts, recv, root);
    }

    in_place! {
        /// `all_reduce_in_place`.
        all_reduce_in_place(op: ReduceOp) => AllReduce;
        /// `reduce_in_place`.
        reduce_in_place(op: ReduceOp, root: usize) => Reduce;
        /// `reduce_scatter_in_place`.
        reduce_scatter_in_place(op: ReduceOp) => ReduceScatter;
        /// `all_gather_in_place`.
        all_gather_in_place() => AllGather;
        /// `all_to_all_in_place`.
        all_to_all_in_place() => AllToAll;
        /// `gather_in_place`.
        gather_in_place(root: usize) => Gather;
        /// `scatter_in_place`.
        scatter_in_place(root: usize) => Scatter;
        /// `broadcast`.
        broadcast(root: usize) => Broadcast;
    }

    /// `all_reduce_coalesced`. Devices do not have it.
    ///
    /// # Errors
    /// As the call of the communicator.
    pub fn all_reduce_coalesced<T: Element>(
        &self,
        buffers: &mut [&mut [T]],
        op: ReduceOp,
    ) -> Result<(), CommError> {
        match self {
            Self::Host(comm) => comm.all_reduce_coalesced(buffers, op),
            // The buffers are packed into private memory, wherever they lie.
            Self::Region(region) => region.comm().all_reduce_coalesced(buffers, op),
            Self::Device(device) => Err(device.comm.lacking(Collective::AllReduceCoalesced)),
        }
    }

    /// `scan` or `exclusive_scan`, as the collective says. Devices have neither.
    ///
    /// # Errors
    /// As the call of the communicator.
    pub fn scan<T: Element>(
        &self,
        collective: Collective,
        sendbuf: &[T],
        recvbuf: &mut [T],
        op: ReduceOp,
    ) -> Result<(), CommError> {
        let call = |comm: &Communicator, send: &[T], recv: &mut [T]| {
            if collective == Collective::ExclusiveScan {
                comm.exclusive_scan(send, recv, op)
            } else {
                comm.scan(send, recv, op)
            }
        };
        match self {
            Self::Host(comm) => call(comm, sendbuf, recvbuf),
            Self::Region(region) => region.apart(collective, sendbuf, recvbuf, &call),
            Self::Device(device) => Err(device.comm.lacking(collective)),
        }
    }

    /// [`Self::scan`] with one buffer.
    ///
    /// # Errors
    /// As the call of the communicator.
    pub fn scan_in_place<T: Element>(
        &self,
        collective: Collective,
        buffer: &mut [T],
        op: ReduceOp,
    ) -> Result<(), CommError> {
        let call = |comm: &Communicator, buffer: &mut [T]| {
            if collective == Collective::ExclusiveScan {
                comm.exclusive_scan_in_place(buffer, op)
            } else {
                comm.scan_in_place(buffer, op)
            }
        };
        match self {
            Self::Host(comm) => call(comm, buffer),
            Self::Region(region) => region.in_place(buffer, &call),
            Self::Device(device) => Err(device.comm.lacking(collective)),
        }
    }

    /// `send`.
    ///
    /// # Errors
    /// As the call of the communicator.
    pub fn send<T: Element>(&self, sendbuf: &[T], peer: usize) -> Result<(), CommError> {
        match self {
            Self::Host(comm) => comm.send(sendbuf, peer),
            Self::Region(region) => {
                region.apart(Collective::Send, sendbuf, &mut [], &|comm, send, _| {
                    comm.send(send, peer)
                })
            }
            Self::Device(device) => {
                device.apart(Collective::Send, sendbuf, &mut [], &|comm, send, _| {
                    comm.send(send, peer)
                })
            }
        }
    }

    /// `recv`.
    ///
    /// # Errors
    /// As the call of the communicator.
    pub fn recv<T: Element>(&self, recvbuf: &mut [T], peer: usize) -> Result<(), CommError> {
        match self {
            Self::Host(comm) => comm.recv(recvbuf, peer),
            Self::Region(region) => {
                region.in_place(recvbuf, &|comm, buffer| comm.recv(buffer, peer))
            }
            Self::Device(device) => device.in_place(Collective::Recv, recvbuf, &|comm, buffer| {
                comm.recv(buffer, peer)
            }),
        }
    }

    /// `batch_send_recv`.
    ///
    /// # Errors
    /// As the call of the communicator.
    pub fn batch_send_recv<T: Element>(
        &self,
        messages: &mut [Message<'_, T>],
    ) -> Result<(), CommError> {
        match self {
            Self::Host(comm) => on_host(comm, messages),
            Self::Device(device) => device.batch(messages),
            Self::Region(region) => region.batch(messages),
        }
    }
}

/// Messages between buffers where they lie.
fn on_host<T: Element>(
    comm: &Communicator,
    messages: &mut [Message<'_, T>],
) -> Result<(), CommError> {
    let messages: Vec<PointToPoint<'_>> = messages
        .iter_mut()
        .map(|message| match message {
            Message::Recv(buffer, peer) => PointToPoint::recv(buffer, *peer),
            Message::Send(buffer, peer) => PointToPoint::send(buffer, *peer),
        })
        .collect();
    comm.batch_send_recv(&messages)
}

impl OnDevice {
    /// The device's own errors as those of a call of the group.
    fn failed(&self, collective: Collective, error: DeviceError) -> CommError {
        self.comm.error_of(collective, ErrorKind::from(error))
    }

    fn apart<T: Element>(
        &self,
        collective: Collective,
        sendbuf: &[T],
        recvbuf: &mut [T],
        call: &DeviceCall<'_, T>,
    ) -> Result<(), CommError> {
        let device = self.comm.device();
        let failed = |error| self.failed(collective, error);
        let send = DeviceBuffer::from_slice(device, sendbuf).map_err(failed)?;
        let recv = DeviceBuffer::from_slice(device, recvbuf).map_err(failed)?;
        call(&self.comm, &send, &recv)?;
        recv.copy_to(recvbuf).map_err(failed)?;
        let after = send.to_vec().map_err(failed)?;
        let bytes = |values: &[T]| bytemuck::cast_slice::<T, u8>(values).to_vec();
        if bytes(&after) != bytes(sendbuf) {
            let mut spoilt = self
                .spoilt
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            spoilt.get_or_insert(collective.name());
        }
        Ok(())
    }

    fn in_place<T: Element>(
        &self,
        collective: Collective,
        buffer: &mut [T],
        call: &InPlaceCall<'_, T>,
    ) -> Result<(), CommError> {
        let failed = |error| self.failed(collective, error);
        let there = DeviceBuffer::from_slice(self.comm.device(), buffer).map_err(failed)?;
        call(&self.comm, &there)?;
        there.copy_to(buffer).map_err(failed)
    }

    fn batch<T: Element>(&self, messages: &mut [Message<'_, T>]) -> Result<(), CommError> {
        let collective = Collective::SendRecvBatch;
        let failed = |error| self.failed(collective, error);
        let device = self.comm.device();
        let mut there = Vec::with_capacity(messages.len());
        for message in messages.iter() {
            let buffer: &[T] = match message {
                Message::Recv(buffer, _) => buffer,
                Message::Send(buffer, _) => buffer,
            };
            there.push(DeviceBuffer::from_slice(device, buffer).map_err(failed)?);
        }
        let named: Vec<DeviceMessage> = messages
            .iter()
            .zip(&there)
            .map(|(message, buffer)| match message {
                Message::Recv(_, peer) => DeviceMessage::recv(buffer, *peer),
                Message::Send(_, peer) => DeviceMessage::send(buffer, *peer),
            })
            .collect();
        self.comm.batch_send_recv(&named)?;
        for (message, buffer) in messages.iter_mut().zip(&there) {
            if let Message::Recv(target, _) = message {
                buffer.copy_to(target).map_err(failed)?;
            }
        }
        Ok(())
    }
}
