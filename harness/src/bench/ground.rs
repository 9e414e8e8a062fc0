//! Where a group's calls are made: on the host, or on the devices of its ranks.
//!
//! GROUND-1: between two readings of the clock there is only the call: buffers on a device are taken
//! once for each cell, and what lies in them is copied before and after what is timed.

use muster_comm::buffer::Element;
use muster_comm::collective::Communicator;
use muster_comm::device::{DeviceBuffer, DeviceCommunicator, DeviceError, DeviceMessage};
use muster_comm::error::{CommError, ErrorKind};
use muster_comm::types::{Collective, ReduceOp};
use muster_comm::vendor::{self, Fault};

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

/// What tells one call from another, beside its buffers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form<'a> {
    pub(super) collective: Collective,
    pub(super) op: ReduceOp,
    pub(super) root: usize,
    pub(super) in_place: bool,
    pub(super) send_counts: &'a [usize],
    pub(super) recv_counts: &'a [usize],
}

/// The call of a form, on the host or on a device: the calls that both have, and what else there is in arms of their own.
macro_rules! make_call {
    ($form:expr, $comm:expr, $send:expr, $recv:expr, { $($others:tt)* }) => {{
        let form = $form;
        let (op, root) = (form.op, form.root);
        let (sends, recvs) = (form.send_counts, form.recv_counts);
        match form.collective {
            Collective::AllGather if form.in_place => $comm.all_gather_in_place($recv),
            Collective::AllGather => $comm.all_gather($send, $recv),
            Collective::AllGatherV => $comm.all_gather_v($send, $recv, sends),
            Collective::AllReduce if form.in_place => $comm.all_reduce_in_place($recv, op),
            Collective::AllReduce => $comm.all_reduce($send, $recv, op),
            Collective::AllToAll if form.in_place => $comm.all_to_all_in_place($recv),
            Collective::AllToAll => $comm.all_to_all($send, $recv),
            Collective::AllToAllV => $comm.all_to_all_v($send, sends, $recv, recvs),
            Collective::Barrier => $comm.barrier(),
            Collective::Broadcast => $comm.broadcast($recv, root),
            Collective::Gather if form.in_place => $comm.gather_in_place($recv, root),
            Collective::Gather => $comm.gather($send, $recv, root),
            Collective::GatherV => $comm.gather_v($send, $recv, sends, root),
            Collective::Reduce if form.in_place => $comm.reduce_in_place($recv, op, root),
            Collective::Reduce => $comm.reduce($send, $recv, op, root),
            Collective::ReduceScatter if form.in_place => $comm.reduce_scatter_in_place($recv, op),
            Collective::ReduceScatter => $comm.reduce_scatter($send, $recv, op),
            Collective::ReduceScatterV => $comm.reduce_scatter_v($send, sends, $recv, op),
            Collective::Scatter if form.in_place => $comm.scatter_in_place($recv, root),
            Collective::Scatter => $comm.scatter($send, $recv, root),
            Collective::ScatterV => $comm.scatter_v($send, sends, $recv, root),
            $($others)*
        }
    }};
}
pub(super) use make_call;

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
    pub(super) fn make(&self, form: &Form<'_>) -> Result<(), CommError> {
        let (comm, send, recv) = (&self.comm, &*self.send, &*self.recv);
        make_call!(form, comm, send, recv, {
            Collective::Recv
            | Collective::RecvAny
            | Collective::Send
            | Collective::SendRecvBatch => {
                let (n, me) = (comm.size(), comm.rank());
                comm.batch_send_recv(&[
                    DeviceMessage::send(send, (me + 1) % n),
                    DeviceMessage::recv(recv, (me + n - 1) % n),
                ])
            }
            Collective::AllGatherObject
            | Collective::AllReduceCoalesced
            | Collective::BroadcastObject
            | Collective::ExclusiveScan
            | Collective::GatherObject
            | Collective::Scan
            | Collective::ScatterObject => Err(comm.lacking(form.collective)),
        })
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
