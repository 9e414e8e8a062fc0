//! Messages between two devices, and batches of them.

use std::panic::Location;

use std::collections::VecDeque;
use std::sync::Arc;

use super::DeviceCommunicator;
use super::run::Prepared;
use crate::buffer::Element;
use crate::collective::{BATCH_MAX, Call};
use crate::device::library::support;
use crate::device::memory::{DeviceSlice, Storage};
use crate::device::vendor_call::{Handle, Item, VendorCall};
use crate::error::{CommError, ErrorKind};
use crate::sync::Deadline;
use crate::types::{Collective, DType};
use crate::watch::judge::device::Ask;

/// One message of a batch. It holds its memory.
#[derive(Clone, Debug)]
pub struct DeviceMessage {
    outgoing: bool,
    peer: usize,
    dtype: DType,
    count: usize,
    address: Handle,
    device: u32,
    storage: Arc<Storage>,
}

impl DeviceMessage {
    /// A message to the member with index `peer`.
    #[must_use]
    pub fn send<T: Element>(sendbuf: &DeviceSlice<T>, peer: usize) -> Self {
        Self::new(true, sendbuf, peer)
    }

    /// A message from the member with index `peer`.
    #[must_use]
    pub fn recv<T: Element>(recvbuf: &DeviceSlice<T>, peer: usize) -> Self {
        Self::new(false, recvbuf, peer)
    }

    fn new<T: Element>(outgoing: bool, buffer: &DeviceSlice<T>, peer: usize) -> Self {
        Self {
            outgoing,
            peer,
            dtype: T::DTYPE,
            count: buffer.len(),
            address: buffer.address(),
            device: buffer.device().logical_id(),
            storage: buffer.storage(),
        }
    }

    fn item(&self) -> Item {
        Item {
            outgoing: self.outgoing,
            buffer: self.address,
            count: self.count as u64,
            dtype: self.dtype,
            peer: self.peer_number(),
        }
    }

    fn peer_number(&self) -> u32 {
        u32::try_from(self.peer).unwrap_or(u32::MAX)
    }
}

impl DeviceCommunicator {
    pub(super) fn prepare_message(&self, message: &DeviceMessage) -> Result<Prepared, CommError> {
        let collective = if message.outgoing {
            Collective::Send
        } else {
            Collective::Recv
        };
        let call = Call {
            collective,
            dtype: Some(message.dtype),
            count: Some(message.count),
            site: Location::caller(),
        };
        self.check_messages(call, std::slice::from_ref(message))?;
        if message.peer == self.rank() {
            let want = "another member; messages to oneself need a batch".to_owned();
            return Err(self
                .host_checks()
                .refuse(call, "peer", message.peer.to_string(), want));
        }
        let step = if message.outgoing {
            VendorCall::Send(message.item())
        } else {
            VendorCall::Recv(message.item())
        };
        // Both sides skip a message without elements.
        let steps = (message.count > 0).then_some(step).into_iter().collect();
        Ok(self.prepared_messages(call, steps, std::slice::from_ref(message)))
    }

    pub(super) fn prepare_batch(&self, messages: &[DeviceMessage]) -> Result<Prepared, CommError> {
        let call = Call::bare(Collective::SendRecvBatch);
        if messages.len() > BATCH_MAX {
            let (got, want) = (messages.len(), format!("at most {BATCH_MAX} messages"));
            let checks = self.host_checks();
            return Err(checks.refuse(call, "the batch", format!("{got} messages"), want));
        }
        self.check_messages(call, messages)?;
        let mut steps = self.own_copies(call, messages)?;
        let items: Vec<Item> = messages
            .iter()
            .filter(|message| message.count > 0 && message.peer != self.rank())
            .map(DeviceMessage::item)
            .collect();
        if !items.is_empty() {
            steps.push(VendorCall::Batch(items));
        }
        Ok(self.prepared_messages(call, steps, messages))
    }

    fn prepared_messages(
        &self,
        call: Call,
        steps: Vec<VendorCall>,
        messages: &[DeviceMessage],
    ) -> Prepared {
        let moved = |message: &&DeviceMessage| message.count > 0 && message.peer != self.rank();
        Prepared {
            call,
            ask: Ask {
                collective: call.collective,
                dtype: call.dtype,
                count: call.count.unwrap_or(messages.len()) as u64,
                op: None,
                root: None,
            },
            steps,
            storages: messages
                .iter()
                .map(|message| Arc::clone(&message.storage))
                .collect(),
            messages: messages
                .iter()
                .filter(moved)
                .map(|message| (message.peer_number(), message.outgoing))
                .collect(),
        }
    }

    fn check_messages(&self, call: Call, messages: &[DeviceMessage]) -> Result<(), CommError> {
        let inner = self.shared();
        let error = |kind: ErrorKind| {
            let deadline = Deadline::after(self.deadline());
            inner.error(call, kind, 0, deadline, true)
        };
        support::check(inner.device.soc(), call.collective, None, None).map_err(error)?;
        let mine = inner.device.logical_id();
        for message in messages {
            self.host_checks().check_index(call, "peer", message.peer)?;
            if message.device != mine {
                return Err(error(ErrorKind::InvalidArgument {
                    what: "a buffer".to_owned(),
                    got: format!("memory of device {}", message.device),
                    want: format!("memory of device {mine}, which this communicator drives"),
                }));
            }
        }
        Ok(())
    }

    /// Messages to this rank itself, which the vendor does not promise to carry: copies, paired in
    /// order.
    fn own_copies(
        &self,
        call: Call,
        messages: &[DeviceMessage],
    ) -> Result<Vec<VendorCall>, CommError> {
        let me = self.rank();
        let own = |outgoing: bool| {
            let is_own =
                move |message: &&DeviceMessage| message.peer == me && message.outgoing == outgoing;
            messages.iter().filter(is_own).collect::<VecDeque<_>>()
        };
        let (sends, recvs) = (own(true), own(false));
        let alike = |(send, recv): (&&DeviceMessage, &&DeviceMessage)| {
            send.dtype == recv.dtype && send.count == recv.count
        };
        if sends.len() != recvs.len() || !sends.iter().zip(&recvs).all(alike) {
            let got = format!("{} messages to itself", sends.len());
            let want = format!(
                "as many receives from itself of the same types and counts, there are {}",
                recvs.len()
            );
            return Err(self
                .host_checks()
                .refuse(call, "what this rank sends", got, want));
        }
        let copy = |(send, recv): (&DeviceMessage, &DeviceMessage)| VendorCall::Copy {
            target: recv.address,
            source: send.address,
            bytes: send.count * send.dtype.size(),
        };
        Ok(sends
            .into_iter()
            .zip(recvs)
            .filter(|(send, recv)| send.count > 0 && send.address != recv.address)
            .map(copy)
            .collect())
    }
}
