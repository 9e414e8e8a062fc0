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

use super::call_args::CallArgs;
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

/// A call on a device, its type erased as that of a call in the region.
type DeviceCall<'a, T> =
    dyn Fn(&DeviceCommunicator, &DeviceBuffer<T>, &DeviceBuffer<T>) -> Result<(), CommError> + 'a;

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

    /// Makes a call. In place `sendbuf` is empty.
    ///
    /// # Errors
    /// As the call of the communicator.
    pub fn make<T: Element>(
        &self,
        args: &CallArgs<'_>,
        sendbuf: &[T],
        recvbuf: &mut [T],
    ) -> Result<(), CommError> {
        let collective = args.collective;
        match self {
            Self::Host(comm) => args.on_host(comm, sendbuf, recvbuf),
            Self::Region(region) => {
                region.call(collective, sendbuf, recvbuf, &|comm, send, recv| {
                    args.on_host(comm, send, recv)
                })
            }
            Self::Device(device) => {
                device.call(collective, sendbuf, recvbuf, &|comm, send, recv| {
                    args.on_device(comm, send, recv)
                })
            }
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
                region.call(Collective::Send, sendbuf, &mut [], &|comm, send, _| {
                    comm.send(send, peer)
                })
            }
            Self::Device(device) => {
                device.call(Collective::Send, sendbuf, &mut [], &|comm, send, _| {
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
                region.call(Collective::Recv, &[], recvbuf, &|comm, _, recv| {
                    comm.recv(recv, peer)
                })
            }
            Self::Device(device) => {
                device.call(Collective::Recv, &[], recvbuf, &|comm, _, recv| {
                    comm.recv(recv, peer)
                })
            }
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

    fn call<T: Element>(
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
