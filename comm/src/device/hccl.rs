//! HCCL and the Ascend runtime: devices, and one rank's part of a device communicator.
//!
//! `acl`, `runtime` and `npu` drive the devices. `config` says how a communicator is made, `support`
//! what a product takes, `lower` which vendor calls carry a collective out; `calls` and `steps` make
//! them on the communicator's own thread, the vendor thread. Nothing here knows groups, names or deadlines of
//! calls: who waits, and what a missing answer means, is the business of `communicator`.
//!
//! The libraries of another vendor would be a folder beside this one with the same items.
//!
//! - `ENGINE-3`: the handle is used on the vendor thread only, so by one thread at a time and with its device
//!   current.
//! - `ENGINE-4`: whatever is dropped or given up, no thread of the program waits for the vendor
//!   longer than the bounds named here; what does not end is left to the vendor and counted.

#![expect(
    unsafe_code,
    reason = "calls of the vendor's library with addresses of device memory"
)]

mod acl;
mod calls;
mod config;
pub(crate) mod lower;
mod npu;
mod run;
mod runtime;
mod soc;
pub(crate) mod support;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) use self::acl::Acl as RuntimeCalls;
use self::calls::Calls;
use self::config::Config;
pub use self::npu::{Device, MemoryInfo};
pub use self::runtime::{Runtime, count};
pub use self::soc::{Product, Soc};
use super::error::DeviceError;
use super::leaks;
use super::memory::Storage;
use super::options::DeviceOptions;
use super::stream::{Event, Keep, Stream};
use super::vendor_call::{Handle, VendorCall};
use super::vendor_thread::{Ticket, VendorThread};
use crate::buffer::Element;
use crate::error::ErrorKind;
use crate::kernel;
use crate::sync::lock;

/// Time that destroying a communicator takes on a good day, with room.
const DESTROY_MAX: Duration = Duration::from_secs(5);
/// The same after a failure: the vendor may wait for what will not come.
const DESTROY_BROKEN_MAX: Duration = Duration::from_millis(500);

/// How the ranks of a communicator find each other.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// By what one rank got from [`Engine::root_info`].
    Root(Vec<u8>),
    /// As members of another communicator: its ranks, and a number of this one.
    Sub {
        parent: Arc<Handles>,
        ranks: Vec<u32>,
        id: u64,
    },
    /// By the vendor's rank table.
    Table(PathBuf),
}

/// The communicator's handle, once there is one. Used on its vendor thread only (ENGINE-3).
#[derive(Debug, Default)]
pub(crate) struct Handles {
    comm: Mutex<Option<Handle>>,
}

impl Handles {
    fn get(&self) -> Result<Handle, DeviceError> {
        lock(&self.comm).ok_or_else(|| DeviceError::Unavailable {
            why: "the communicator is not there".to_owned(),
            looked_for: Vec::new(),
        })
    }
}

/// One rank's part of a device communicator.
#[derive(Debug)]
pub(crate) struct Engine {
    device: Device,
    vendor_thread: Arc<VendorThread>,
    handles: Arc<Handles>,
    /// Number of ranks.
    n: usize,
    /// Scratch memory, kept for the next call that needs as much: calls of one communicator are
    /// ordered on the device, so they never use it at the same time.
    scratch: Mutex<Option<Arc<Storage>>>,
    is_broken: Mutex<bool>,
}

impl Engine {
    /// An engine without communicator. `vendor_thread` is that of the parent for a sub-communicator, whose
    /// making uses the parent's handle.
    pub(crate) fn start(
        device: &Device,
        n: usize,
        vendor_thread: Option<Arc<VendorThread>>,
    ) -> Result<Self, DeviceError> {
        let vendor_thread = match vendor_thread {
            Some(vendor_thread) => vendor_thread,
            None => Arc::new(VendorThread::start(device)?),
        };
        Ok(Self {
            device: device.clone(),
            vendor_thread,
            handles: Arc::default(),
            n,
            scratch: Mutex::default(),
            is_broken: Mutex::new(false),
        })
    }

    pub(crate) fn vendor_thread(&self) -> Arc<VendorThread> {
        Arc::clone(&self.vendor_thread)
    }

    pub(crate) fn handles(&self) -> Arc<Handles> {
        Arc::clone(&self.handles)
    }

    /// What the library makes of these options, or which of them it does not take.
    pub(crate) fn config(&self, options: &DeviceOptions) -> Result<Config, ErrorKind> {
        let capability = Calls::new(self.device.calls()).capability();
        let mut config = options.config(capability)?;
        // Older versions have only the form without settings.
        let hccl = self.device.runtime().api().hccl();
        config.is_plain |= hccl.HcclCommInitRootInfoConfig().is_err();
        Ok(config)
    }

    /// Whether sub-communicators can be made from others.
    pub(crate) fn can_split(&self) -> bool {
        self.device
            .runtime()
            .api()
            .hccl()
            .HcclCreateSubCommConfig()
            .is_ok()
    }

    /// What the others need to join.
    pub(crate) fn root_info(&self) -> Ticket<Result<Vec<u8>, DeviceError>> {
        let device = self.device.clone();
        self.vendor_thread
            .submit(move || Calls::new(device.calls()).root_info())
    }

    /// Joins the communicator as rank `rank`.
    pub(crate) fn join(
        &self,
        rank: u32,
        origin: Origin,
        config: Config,
    ) -> Ticket<Result<(), DeviceError>> {
        let n = u32::try_from(self.n).unwrap_or(u32::MAX);
        let (device, handles) = (self.device.clone(), Arc::clone(&self.handles));
        self.vendor_thread.submit(move || {
            let calls = Calls::new(device.calls());
            let vendor = (!config.is_plain).then_some(&config.vendor);
            let comm = match origin {
                Origin::Root(info) => calls.init(n, &info, rank, vendor),
                Origin::Table(path) => calls.init_table(&path, rank, vendor),
                Origin::Sub { parent, ranks, id } => {
                    let parent = parent.get()?;
                    calls.init_sub(parent, &ranks, id, rank, &config.vendor)
                }
            }?;
            *lock(&handles.comm) = Some(comm);
            Ok(())
        })
    }

    /// Scratch memory of at least this many bytes.
    pub(crate) fn scratch(&self, bytes: usize) -> Result<Arc<Storage>, DeviceError> {
        let mut scratch = lock(&self.scratch);
        if let Some(known) = scratch.as_ref().filter(|known| known.bytes() >= bytes) {
            return Ok(Arc::clone(known));
        }
        let larger = Storage::new(&self.device, bytes)?;
        *scratch = Some(Arc::clone(&larger));
        Ok(larger)
    }

    /// Enqueues steps on a stream, and an event behind them where one is wanted. The stream holds
    /// `storages` until it has gone past them.
    ///
    /// # Errors
    /// Before anything is enqueued: where a step names memory outside of `storages`.
    pub(crate) fn enqueue(
        &self,
        steps: Vec<VendorCall>,
        storages: Vec<Arc<Storage>>,
        stream: &Stream,
        wants_event: bool,
    ) -> Result<Ticket<Result<Option<Event>, DeviceError>>, DeviceError> {
        self.check_memory(&steps, &storages)?;
        let (device, handles) = (self.device.clone(), Arc::clone(&self.handles));
        let stream = stream.clone();
        Ok(self.vendor_thread.submit(move || {
            let calls = Calls::new(device.calls());
            let run = |step: &VendorCall| {
                let comm = handles.get()?;
                // SAFETY: the communicator is alive, since it is destroyed on this thread only
                // and its handle taken away then; this is the one thread that uses it, with its
                // device current. The stream is held by this closure, the buffers lie in the
                // storages (checked above), which this closure and then the stream hold.
                unsafe { calls.run(step, comm, stream.handle()) }
            };
            let outcome = steps.iter().try_for_each(run);
            let keep = Keep::new(storages);
            // What was enqueued before an error is under way.
            let event = outcome.and_then(|()| wants_event.then(|| stream.record()).transpose());
            match &event {
                Ok(Some(event)) => stream.hold_until(event.clone(), keep),
                Ok(None) | Err(_) => stream.hold(keep),
            }
            event
        }))
    }

    /// Every range that a step names must lie in one of the storages that will be held.
    fn check_memory(
        &self,
        steps: &[VendorCall],
        storages: &[Arc<Storage>],
    ) -> Result<(), DeviceError> {
        let is_held = |(start, bytes): &(Handle, usize)| {
            storages.iter().any(|storage| {
                let end = storage.address() + storage.bytes();
                (storage.address()..=end).contains(start) && *bytes <= end - *start
            })
        };
        let outside = steps
            .iter()
            .flat_map(|step| step.ranges(self.n))
            .find(|range| !is_held(range));
        match outside {
            None => Ok(()),
            Some((start, bytes)) => Err(DeviceError::InvalidArgument {
                what: "the memory of a device call".to_owned(),
                got: format!("{bytes} bytes at {start:#x}, outside of its buffers"),
                want: "memory that the call holds".to_owned(),
            }),
        }
    }

    /// Asks for the asynchronous error of the communicator; `Ok` where it has none.
    pub(crate) fn async_error(&self) -> Ticket<Result<(), DeviceError>> {
        let (device, handles) = (self.device.clone(), Arc::clone(&self.handles));
        self.vendor_thread.submit(move || {
            let comm = handles.get()?;
            // SAFETY: alive, as in `enqueue`.
            unsafe { Calls::new(device.calls()).async_error(comm) }
        })
    }

    /// Believes nothing of the communicator any more: its end will not be waited for.
    pub(crate) fn set_broken(&self) {
        *lock(&self.is_broken) = true;
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let is_broken = *lock(&self.is_broken);
        let (device, handles) = (self.device.clone(), Arc::clone(&self.handles));
        if is_broken && let Some(scratch) = lock(&self.scratch).take() {
            leaks::count_buffer(scratch.bytes());
            #[expect(
                clippy::mem_forget,
                reason = "LEAK: the device may still write it, and nothing tells when it stops"
            )]
            std::mem::forget(scratch);
        }
        let destroyed = self.vendor_thread.submit(move || {
            let Some(comm) = lock(&handles.comm).take() else {
                return Ok(());
            };
            // SAFETY: the handle was taken away, so nobody can use it any more.
            unsafe { Calls::new(device.calls()).destroy(comm) }
        });
        let time = if is_broken {
            DESTROY_BROKEN_MAX
        } else {
            DESTROY_MAX
        };
        match destroyed.wait(time) {
            Some(Ok(())) => {}
            Some(Err(_)) => leaks::count_handle(),
            // The vendor thread sits in a call that does not return.
            None => {
                leaks::count_handle();
                leaks::count_thread();
            }
        }
    }
}

/// Divides sums by the number of ranks: floats round once, integers truncate toward zero.
pub(crate) fn average<T: Element>(values: &mut [T], ranks: usize) {
    let divisor = u32::try_from(ranks).unwrap_or(u32::MAX);
    // SAFETY: the slice holds its elements, and nobody else has it.
    unsafe { kernel::finish_avg(T::DTYPE, values.as_mut_ptr().cast(), values.len(), divisor) };
}
