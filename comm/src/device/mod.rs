//! Ascend NPUs: the loaded runtime, devices, device memory, streams and events, and collectives on them.
//!
//! What the vendor's headers leave to the caller is a type here: memory is owned and typed, work
//! holds what it uses, every wait has a limit, and the thread's current device is set where a call
//! needs it. Only `communicator` knows ranks and groups: it makes a [`DeviceCommunicator`] of the
//! members of a [`Communicator`](crate::collective::Communicator). Only `hccl` knows the vendor's
//! libraries.
//!
//! ```no_run
//! use std::time::Duration;
//! use muster_comm::{DeviceBuffer, Environment, Runtime, Stream};
//!
//! let places = Environment::capture().vendor_places()?;
//! let runtime = Runtime::load(&places)?;
//! let device = runtime.device(0)?;
//! println!("{device}, emulated: {}", runtime.emulated().is_some());
//! let buffer = DeviceBuffer::from_slice(&device, &[1.0_f32, 2.0, 3.0])?;
//! let stream = Stream::new(&device)?;
//! let back = buffer.slice(1..).copy_to_async(&stream)?;
//! assert_eq!(back.wait(Duration::from_secs(1))?, [2.0, 3.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Threads
//!
//! Everything may be used from any thread and dropped on any. A call makes the device current in
//! its thread and restores the former one.
//!
//! # Ends
//!
//! Dropping never waits longer than half a second and never panics. Where the end of work is
//! uncertain its memory is left to the device; [`Leaks::now`] says how much that is.

#![expect(
    unsafe_code,
    reason = "calls of the vendor's libraries with addresses of device memory"
)]

mod backends;
mod communicator;
mod error;
mod hccl;
mod leaks;
mod memory;
mod options;
mod select;
mod stream;
mod vendor_call;
mod vendor_thread;

pub use backends::{Backends, UnknownBackends};
pub use communicator::{DeviceCommunicator, DeviceMessage, DeviceWork, OnStream};
pub use error::DeviceError;
pub use hccl::{Device, MemoryInfo, Product, Runtime, Soc, count};
pub use leaks::Leaks;
pub use memory::{DeviceBuffer, DeviceSlice};
pub use options::{Determinism, DeviceOptions, Expansion};
pub use select::{DeviceMap, Selection, SelectionError, select};
pub use stream::{Event, Stream, Transfer};

/// The vendor's libraries. Everything here but their own folder knows them by this name only.
use hccl as library;
