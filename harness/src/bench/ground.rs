//! Where a group's calls are made: on the host, or on the devices of its ranks.
//!
//! GROUND-1: between two readings of the clock there is only the call: buffers on a device are taken
//! once for each cell, and what lies in them is copied before and after what is timed.

use muster_comm::buffer::Element;
use muster_comm::collective::Communicator;
use muster_comm::device::{DeviceBuffer, DeviceCommunicator, DeviceError};
use muster_comm::error::{CommError, ErrorKind};
use muster_comm::types::Collective;
use muster_comm::vendor::{self, Fault};

use crate::check::call_args::CallArgs;

/// A group to measure.
#[derive(Clone, Debug)]
pub enum Ground {
    /// On the devices of its ranks.
    Device(DeviceCommunicator),
    /// On the host.
    Host(Communicator),
}

impl From<Communicator> for Ground {
    fn from(comm: Communicator) -> Self {
        Self::Host(comm)
    }
}

impl From<DeviceCommunicator> for Ground {
    fn from(comm: DeviceCommunicator) -> Self {
        Self::Device(comm)
    }
}

impl Ground {
    /// The group's host communicator.
    #[must_use]
    pub fn host(&self) -> &Communicator {
        match self {
            Self::Device(comm) => comm.host(),
            Self::Host(comm) => comm,
        }
    }

    /// `barrier`.
    ///
    /// # Errors
    /// As the call of the communicator.
    pub fn barrier(&self) -> Result<(), CommError> {
        match self {
            Self::Device(comm) => comm.barrier(),
            Self::Host(comm) => comm.barrier(),
        }
    }
}

/// The buffers of a cell on this rank's device.
#[derive(Debug)]
pub(super) struct There<T> {
    comm: DeviceCommunicator,
    collective: Collective,
    send: DeviceBuffer<T>,
    recv: DeviceBuffer<T>,
}

impl<T: Element> There<T> {
    /// Takes memory for so many elements to send and to receive.
    ///
    /// # Errors
    /// Those of the device; see [`no_room`].
    pub(super) fn new(
        comm: &DeviceCommunicator,
        collective: Collective,
        sends: usize,
        recvs: usize,
    ) -> Result<Self, CommError> {
        let failed = |error: DeviceError| comm.error_of(collective, ErrorKind::from(error));
        let device = comm.device();
        Ok(Self {
            send: DeviceBuffer::new(device, sends).map_err(failed)?,
            recv: DeviceBuffer::new(device, recvs).map_err(failed)?,
            comm: comm.clone(),
            collective,
        })
    }

    fn failed(&self, error: DeviceError) -> CommError {
        self.comm.error_of(self.collective, ErrorKind::from(error))
    }

    /// Copies inputs to the device, and what the receive buffer is to hold before the call.
    pub(super) fn put(&self, send: &[T], recv: &[T]) -> Result<(), CommError> {
        let both = self.send.copy_from(send);
        both.and_then(|()| self.recv.copy_from(recv))
            .map_err(|error| self.failed(error))
    }

    /// Copies the result from the device.
    pub(super) fn get(&self, recv: &mut [T]) -> Result<(), CommError> {
        self.recv.copy_to(recv).map_err(|error| self.failed(error))
    }

    /// Makes the call once, and waits until the device has carried it out.
    pub(super) fn make(&self, args: &CallArgs<'_>) -> Result<(), CommError> {
        args.on_device(&self.comm, &self.send, &self.recv)
    }
}

/// Whether an error says that the device has no memory for the buffers: then the line cannot be
/// measured, and others can.
pub(super) fn no_room(error: &CommError) -> bool {
    let ErrorKind::Vendor { code, detail, .. } = error.kind() else {
        return false;
    };
    vendor::fault_of(*code, detail) == Fault::Memory
}
