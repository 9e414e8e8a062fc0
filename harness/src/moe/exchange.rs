//! A group in which rows move: on the host, or on the devices of its ranks.
//!
//! Routing, permutation and the experts are work of the host here, whatever moves the rows. On
//! devices each call therefore stands between two copies, which are a phase of their own
//! ([`Phase::Staging`]): a layer that computes on the device does not have them.
//!
//! EXCHANGE-1: what a call leaves unwritten on a device reads as NaN or -1, never as what an earlier
//! step left there.

use muster_comm::buffer::Element;
use muster_comm::device::{DeviceBuffer, DeviceCommunicator, DeviceError, DeviceSlice};
use muster_comm::error::{CommError, ErrorKind};
use muster_comm::types::{Collective, ReduceOp};

use super::dispatch::{Phase, Watch};
use crate::bench::ground::Ground;

/// What an element holds on a device before it is received.
const UNWRITTEN: u8 = 0xff;

/// A group in which rows move.
#[derive(Clone, Debug)]
pub struct Exchange(Ground);

impl From<Ground> for Exchange {
    fn from(ground: Ground) -> Self {
        Self(ground)
    }
}

/// Declares a call: its host form, and its device form between two copies.
macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident($($before:ident: $kind:ty),*; $($after:ident: $late:ty),*)
        => $collective:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// All of it is `phase`, but for copies to devices and back.
        ///
        /// # Errors
        /// As the call of the communicator, and those of copies.
        pub fn $name<T: Element>(
            &self,
            phase: Phase,
            watch: &mut Watch,
            sendbuf: &[T],
            $($before: $kind,)*
            recvbuf: &mut [T],
            $($after: $late),*
        ) -> Result<(), CommError> {
            match &self.0 {
                Ground::Host(comm) => watch.run(phase, || {
                    comm.$name(sendbuf, $($before,)* recvbuf, $($after),*)
                }),
                Ground::Device(comm) => over_device(
                    (comm, Collective::$collective, phase),
                    watch,
                    sendbuf,
                    recvbuf,
                    |send, recv| comm.$name(send, $($before,)* recv, $($after),*),
                ),
            }
        }
    )*};
}

impl Exchange {
    /// Number of members.
    #[must_use]
    pub fn size(&self) -> usize {
        self.0.host().size()
    }

    calls! {
        /// `all_gather`.
        all_gather(;) => AllGather;
        /// `all_gather_v`.
        all_gather_v(; recv_counts: &[usize]) => AllGatherV;
        /// `all_to_all`.
        all_to_all(;) => AllToAll;
        /// `all_to_all_v`.
        all_to_all_v(send_counts: &[usize]; recv_counts: &[usize]) => AllToAllV;
        /// `reduce_scatter_v`.
        reduce_scatter_v(recv_counts: &[usize]; op: ReduceOp) => ReduceScatterV;
    }
}

fn over_device<T: Element>(
    (comm, collective, phase): (&DeviceCommunicator, Collective, Phase),
    watch: &mut Watch,
    sendbuf: &[T],
    recvbuf: &mut [T],
    call: impl FnOnce(&DeviceSlice<T>, &DeviceSlice<T>) -> Result<(), CommError>,
) -> Result<(), CommError> {
    let failed = |error: DeviceError| comm.error_of(collective, ErrorKind::from(error));
    let (send, recv) = watch.run(Phase::Staging, || {
        let device = comm.device();
        let send = DeviceBuffer::from_slice(device, sendbuf).map_err(failed)?;
        let recv = DeviceBuffer::new(device, recvbuf.len()).map_err(failed)?;
        recv.fill_bytes(UNWRITTEN).map_err(failed)?;
        Ok((send, recv))
    })?;
    watch.run(phase, || call(&send, &recv))?;
    watch.run(Phase::Staging, || {
        recv.copy_to(recvbuf).map_err(failed)?;
        // Giving memory back takes its time, which is no part of the next phase.
        drop((send, recv));
        Ok(())
    })
}
