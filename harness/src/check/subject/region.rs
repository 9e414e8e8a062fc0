//! A group whose calls are made on buffers of the rank's shared region.
//!
//! As on a device, each call copies its buffers there and back: receive buffers too, so that an element which
//! nobody wrote still holds the pattern, and send buffers are compared on the region's side of the call.

use std::sync::{Mutex, PoisonError};

use muster_comm::buffer::Element;
use muster_comm::collective::{Communicator, PointToPoint};
use muster_comm::error::CommError;
use muster_comm::types::Collective;
use muster_comm::world::RegionBuffer;

use super::Message;

/// A call. Its type is erased: the copies around it are compiled once for each
/// element type, not once for each call.
type Call<'a, T> = dyn Fn(&Communicator, &[T], &mut [T]) -> Result<(), CommError> + 'a;

/// A group with its buffers in the region.
#[derive(Debug)]
pub struct OnRegion {
    comm: Communicator,
    /// The first thing that went wrong beside the results.
    trouble: Mutex<Option<String>>,
}

impl OnRegion {
    /// A group whose calls are made on buffers of the region.
    #[must_use]
    pub fn new(comm: Communicator) -> Self {
        Self {
            comm,
            trouble: Mutex::default(),
        }
    }

    pub(super) const fn comm(&self) -> &Communicator {
        &self.comm
    }

    /// What went wrong beside the results since somebody last asked.
    pub(super) fn take_trouble(&self) -> Option<String> {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        trouble.take()
    }

    fn note(&self, trouble: impl FnOnce() -> String) {
        let mut noted = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        noted.get_or_insert_with(trouble);
    }

    /// A copy in the region. Where that has no room the call is made on ordinary memory, so that this rank stays
    /// in step, and the case fails.
    fn there<T: Element>(&self, buffer: &[T]) -> Option<RegionBuffer<T>> {
        match self.comm.alloc(buffer.len()) {
            Ok(mut there) => {
                there.copy_from_slice(buffer);
                Some(there)
            }
            Err(error) => {
                self.note(|| format!("no buffer in the region: {error}"));
                None
            }
        }
    }

    pub(super) fn call<T: Element>(
        &self,
        collective: Collective,
        sendbuf: &[T],
        recvbuf: &mut [T],
        call: &Call<'_, T>,
    ) -> Result<(), CommError> {
        let (Some(send), Some(mut recv)) = (self.there(sendbuf), self.there(recvbuf)) else {
            return call(&self.comm, sendbuf, recvbuf);
        };
        call(&self.comm, &send, &mut recv)?;
        recvbuf.copy_from_slice(&recv);
        if bytemuck::cast_slice::<T, u8>(&send) != bytemuck::cast_slice::<T, u8>(sendbuf) {
            self.note(|| format!("{collective} changed its own send buffer in the region"));
        }
        Ok(())
    }

    pub(super) fn batch<T: Element>(
        &self,
        messages: &mut [Message<'_, T>],
    ) -> Result<(), CommError> {
        let copy = |message: &Message<'_, T>| match message {
            Message::Recv(buffer, _) => self.there(buffer),
            Message::Send(buffer, _) => self.there(buffer),
        };
        let there: Option<Vec<RegionBuffer<T>>> = messages.iter().map(copy).collect();
        let Some(mut there) = there else {
            return super::on_host(&self.comm, messages);
        };
        let named: Vec<PointToPoint<'_>> = messages
            .iter()
            .zip(&mut there)
            .map(|(message, buffer)| match message {
                Message::Recv(_, peer) => PointToPoint::recv(buffer, *peer),
                Message::Send(_, peer) => PointToPoint::send(buffer, *peer),
            })
            .collect();
        self.comm.batch_send_recv(&named)?;
        drop(named);
        for (message, buffer) in messages.iter_mut().zip(&there) {
            if let Message::Recv(target, _) = message {
                target.copy_from_slice(buffer);
            }
        }
        Ok(())
    }
}
