//! Where recorded calls are made again: on memory of the host, or on devices. Element types are erased.

use half::{bf16, f16};
use muster_comm::buffer::{Element, ReadView, WriteView};
use muster_comm::collective::{Communicator, PointToPoint, ViewCall, ViewCounts};
use muster_comm::device::{DeviceBuffer, DeviceCommunicator, DeviceError, DeviceMessage};
use muster_comm::error::{CommError, ErrorKind};
use muster_comm::sync::Clock;
use muster_comm::types::{Collective, DType, ReduceOp};

use super::program::{Counts, Message};
use crate::check::call_args::CallArgs;

/// A communicator on which recorded calls are made.
#[derive(Clone, Debug)]
pub enum Target {
    /// On memory of the host.
    Host(Communicator),
    /// On the devices of its ranks.
    Device(DeviceCommunicator),
}

/// A collective, but for its buffers.
pub(super) struct Asked<'a> {
    pub(super) collective: Collective,
    pub(super) dtype: DType,
    pub(super) op: ReduceOp,
    pub(super) root: usize,
    pub(super) counts: &'a Counts,
    /// To and from each member, where lengths are splits.
    pub(super) splits: &'a (Vec<usize>, Vec<usize>),
}

/// A buffer of a message.
pub(super) type Words = Vec<u64>;

/// Words that hold so many elements.
pub(super) fn words(dtype: DType, count: usize) -> usize {
    (count * dtype.size()).div_ceil(size_of::<u64>())
}

/// Bytes in memory that suits every element type.
pub(super) fn aligned(bytes: &[u8]) -> Words {
    let mut words = vec![0; bytes.len().div_ceil(size_of::<u64>())];
    bytemuck::cast_slice_mut::<u64, u8>(&mut words)[..bytes.len()].copy_from_slice(bytes);
    words
}

/// Does something with the Rust type of an element type.
macro_rules! typed {
    ($dtype:expr, $do:ident ( $($with:expr),* )) => {
        match $dtype {
            DType::Bf16 => $do::<bf16>($($with),*),
            DType::F16 => $do::<f16>($($with),*),
            DType::F32 => $do::<f32>($($with),*),
            DType::F64 => $do::<f64>($($with),*),
            DType::I8 => $do::<i8>($($with),*),
            DType::I16 => $do::<i16>($($with),*),
            DType::I32 => $do::<i32>($($with),*),
            DType::I64 => $do::<i64>($($with),*),
            DType::U8 => $do::<u8>($($with),*),
            DType::U16 => $do::<u16>($($with),*),
            DType::U32 => $do::<u32>($($with),*),
            DType::U64 => $do::<u64>($($with),*),
        }
    };
}

fn elements<T: Element>(words: &[u64], count: usize) -> &[T] {
    &bytemuck::cast_slice(words)[..count]
}

fn elements_mut<T: Element>(words: &mut [u64], count: usize) -> &mut [T] {
    &mut bytemuck::cast_slice_mut(words)[..count]
}

impl Target {
    /// The communicator of the host; that of devices has one too.
    #[must_use]
    pub fn host(&self) -> &Communicator {
        match self {
            Self::Host(comm) => comm,
            Self::Device(comm) => comm.host(),
        }
    }

    /// Whether a call can be made here: devices lack some. All members answer alike.
    pub(super) fn has(&self, collective: Collective, dtype: DType, op: Option<ReduceOp>) -> bool {
        match self {
            Self::Host(_) => true,
            Self::Device(comm) => comm.supports(collective, dtype, op).is_ok(),
        }
    }

    /// Makes a collective on so many elements to send and to receive; the nanoseconds that it took.
    pub(super) fn collective(
        &self,
        asked: &Asked<'_>,
        (send, sends): (&[u64], usize),
        (recv, gets): (&mut [u64], usize),
    ) -> Result<u64, CommError> {
        match self {
            Self::Host(comm) => {
                let call = asked.on_host((send, sends), (recv, gets));
                let begun = Clock::nanos();
                comm.run_views(call)?;
                Ok(Clock::nanos().saturating_sub(begun))
            }
            Self::Device(comm) => {
                let args = asked.on_device();
                typed!(
                    asked.dtype,
                    on_device(comm, &args, (send, sends), (recv, gets))
                )
            }
        }
    }

    /// Makes messages that are posted together, each with its buffer; the nanoseconds that they took.
    pub(super) fn messages(
        &self,
        call: Collective,
        all: &[Message],
        buffers: &mut [Words],
    ) -> Result<u64, CommError> {
        match self {
            Self::Host(comm) => {
                let begun = Clock::nanos();
                messages_on_host(comm, call, all, buffers)?;
                Ok(Clock::nanos().saturating_sub(begun))
            }
            Self::Device(comm) => messages_on_device(comm, call, all, buffers),
        }
    }
}

// ---- On the host ----

impl<'a> Asked<'a> {
    fn on_host(
        &self,
        (send, sends): (&'a [u64], usize),
        (recv, gets): (&'a mut [u64], usize),
    ) -> ViewCall<'a> {
        let reads = sends > 0 && !self.collective.has_one_buffer();
        ViewCall {
            collective: self.collective,
            dtype: self.dtype,
            op: self.op,
            root: self.root,
            counts: match self.counts {
                Counts::Uniform(count) => ViewCounts::Uniform(*count),
                Counts::Blocks(counts) => ViewCounts::Blocks(counts),
                Counts::Splits(_) => ViewCounts::Splits {
                    send: &self.splits.0,
                    recv: &self.splits.1,
                },
            },
            send: reads.then(|| read(self.dtype, send, sends)),
            recv: (gets > 0).then(|| write(self.dtype, recv, gets)),
        }
    }

    fn on_device(&self) -> CallArgs<'a> {
        CallArgs {
            op: self.op,
            root: self.root,
            send_counts: match self.counts {
                Counts::Uniform(_) => &[],
                Counts::Blocks(counts) => counts,
                Counts::Splits(_) => &self.splits.0,
            },
            recv_counts: &self.splits.1,
            ..CallArgs::new(self.collective)
        }
    }
}

fn read(dtype: DType, words: &[u64], count: usize) -> ReadView<'_> {
    fn of<T: Element>(words: &[u64], count: usize) -> ReadView<'_> {
        ReadView::new(elements::<T>(words, count))
    }
    typed!(dtype, of(words, count))
}

fn write(dtype: DType, words: &mut [u64], count: usize) -> WriteView<'_> {
    fn of<T: Element>(words: &mut [u64], count: usize) -> WriteView<'_> {
        WriteView::new(elements_mut::<T>(words, count))
    }
    typed!(dtype, of(words, count))
}

fn messages_on_host(
    comm: &Communicator,
    call: Collective,
    all: &[Message],
    buffers: &mut [Words],
) -> Result<(), CommError> {
    fn send<T: Element>(
        comm: &Communicator,
        message: &Message,
        words: &[u64],
    ) -> Result<(), CommError> {
        comm.send(elements::<T>(words, message.count), message.peer)
    }
    fn recv<T: Element>(
        comm: &Communicator,
        message: &Message,
        words: &mut [u64],
    ) -> Result<(), CommError> {
        comm.recv(elements_mut::<T>(words, message.count), message.peer)
    }
    match (call, all, &mut *buffers) {
        (Collective::Send, [message], [buffer]) => {
            typed!(message.dtype, send(comm, message, buffer))
        }
        (Collective::Recv, [message], [buffer]) => {
            typed!(message.dtype, recv(comm, message, buffer))
        }
        (_, _, buffers) => {
            let posted = all.iter().zip(buffers).map(|(message, buffer)| {
                let (dtype, count, peer) = (message.dtype, message.count, message.peer);
                if message.sends {
                    PointToPoint::send_view(read(dtype, buffer, count), peer)
                } else {
                    PointToPoint::recv_view(write(dtype, buffer, count), peer)
                }
            });
            comm.batch_send_recv(&posted.collect::<Vec<_>>())
        }
    }
}

// ---- On devices ----

fn on_device<T: Element>(
    comm: &DeviceCommunicator,
    args: &CallArgs<'_>,
    (send, sends): (&[u64], usize),
    (recv, gets): (&mut [u64], usize),
) -> Result<u64, CommError> {
    let failed = |error: DeviceError| comm.error_of(args.collective, ErrorKind::from(error));
    // The root's one buffer is where it receives, too.
    let sends = if args.collective.has_one_buffer() {
        0
    } else {
        sends
    };
    let device = comm.device();
    let there = DeviceBuffer::from_slice(device, elements::<T>(send, sends)).map_err(failed)?;
    let back = DeviceBuffer::from_slice(device, elements::<T>(recv, gets)).map_err(failed)?;
    let begun = Clock::nanos();
    args.on_device(comm, &there, &back)?;
    let took = Clock::nanos().saturating_sub(begun);
    back.copy_to(elements_mut::<T>(recv, gets))
        .map_err(failed)?;
    Ok(took)
}

/// Copies what came.
type Fetch = dyn Fn(&mut [u64]) -> Result<(), DeviceError>;

/// A message on a device.
struct Posted {
    message: DeviceMessage,
    fetch: Box<Fetch>,
}

fn post<T: Element>(
    comm: &DeviceCommunicator,
    message: &Message,
    words: &[u64],
) -> Result<Posted, DeviceError> {
    let Message { count, peer, .. } = *message;
    let there = DeviceBuffer::from_slice(comm.device(), elements::<T>(words, count))?;
    Ok(Posted {
        message: if message.sends {
            DeviceMessage::send(&there, peer)
        } else {
            DeviceMessage::recv(&there, peer)
        },
        fetch: Box::new(move |words| there.copy_to(elements_mut::<T>(words, count))),
    })
}

/// All are batches: the other end of a send may have been part of one.
fn messages_on_device(
    comm: &DeviceCommunicator,
    call: Collective,
    all: &[Message],
    buffers: &mut [Words],
) -> Result<u64, CommError> {
    let failed = |error: DeviceError| comm.error_of(call, ErrorKind::from(error));
    let post = |(message, buffer): (&Message, &Words)| {
        typed!(message.dtype, post(comm, message, buffer)).map_err(failed)
    };
    let posted: Vec<Posted> = all
        .iter()
        .zip(&*buffers)
        .map(post)
        .collect::<Result<_, _>>()?;
    let messages: Vec<DeviceMessage> = posted.iter().map(|one| one.message.clone()).collect();
    let begun = Clock::nanos();
    comm.batch_send_recv(&messages)?;
    let took = Clock::nanos().saturating_sub(begun);
    for ((message, one), buffer) in all.iter().zip(&posted).zip(buffers) {
        if !message.sends {
            (one.fetch)(buffer).map_err(failed)?;
        }
    }
    Ok(took)
}
