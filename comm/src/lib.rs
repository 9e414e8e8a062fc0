//! Collective communication between the ranks of a job, on the CPUs and memory of the hosts.
//!
//! A **rank** is a process (or a thread) with a number. The ranks of a job form a [`World`]. A
//! [`Communicator`] is an ordered list of some of them that make *collective* calls together: every
//! member calls, say, [`all_reduce`], and every member gets its part of the result. Members make the
//! same calls in the same order; the library compares the calls before it uses their data, and a
//! rank that called something else is named to all.
//!
//! [`all_reduce`]: Communicator::all_reduce
//!
//! # Example
//!
//! Four ranks, here as threads of one process. Pairs of neighbours are tensor parallel groups; the
//! ranks of equal place in them are data parallel groups. The lists come from
//! [`Layout`], which computes them as Megatron-LM does.
//!
//! ```
//! use muster_comm::{CommError, GroupKind, Layout, ReduceOp, World};
//!
//! fn step(world: &World, layout: &Layout) -> Result<(f32, Vec<String>), CommError> {
//!     // Making a group sends nothing; its members meet in their first call.
//!     let members = |kind| layout.group_of(kind, world.rank()).unwrap_or_default();
//!     let tp = world.group("tp", &members(GroupKind::Tp))?;
//!     let dp = world.group("dp", &members(GroupKind::Dp))?;
//!
//!     // Tensors: slices of any of the twelve element types.
//!     let mut activations = vec![world.rank().0 as f32; 1000];
//!     tp.all_reduce_in_place(&mut activations, ReduceOp::Sum)?;
//!
//!     // Objects: any value that serde can encode.
//!     let seen = dp.all_gather_object(&format!("rank {}", world.rank()))?;
//!     Ok((activations[0], seen))
//! }
//!
//! let layout = Layout::builder().world(4).tp(2).build()?;
//! let results = World::threads(4, |world| step(&world, &layout))?;
//! let (sum, seen) = results[3].clone()?;
//! assert_eq!(sum, 2.0 + 3.0);
//! assert_eq!(seen, ["rank 1", "rank 3"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Ranks that are processes get their world from [`World::from_env`], which understands what
//! torchrun, mpirun, srun and others tell the processes that they start. `examples/hello_world.rs`
//! does both and is as long as this example.
//!
//! # What holds for every call
//!
//! - It ends by its deadline ([`Communicator::set_deadline`], 30 s unless set otherwise), and as soon
//!   as a rank that it needs is known to be gone. The library never repeats a failed call.
//! - Wrong arguments are refused before anything is sent, and the group stays usable.
//! - Any other failure is a [`CommError`]: what, on which group and call, whose doing
//!   ([`blame`]). [`is_recoverable`] says whether the group can be used after it. If it cannot, the
//!   other members' calls end too, and every later call on the group returns the first cause.
//! - Calls on one communicator go one after the other. Different communicators are independent and
//!   may be used from several threads at once.
//! - A reduction gives the same bits on every rank and in every run with the same ranks, counts and
//!   algorithm. `docs/numerics.md` says what each operation means.
//!
//! [`blame`]: CommError::blame
//! [`is_recoverable`]: CommError::is_recoverable
//!
//! # Names
//!
//! All that a program needs is here, at the root. With the feature `internals` the modules below it are public too: algorithms as
//! plans, transports, the rendezvous, the arbiter, the simulator. The `muster` tool and the tests use them; they may change in
//! any version. `ARCHITECTURE.md` describes them and follows a call and a failure through them.

#![cfg_attr(
    not(feature = "internals"),
    allow(
        dead_code,
        rustdoc::private_intra_doc_links,
        unnameable_types,
        unreachable_pub,
        unused_imports,
        reason = "the modules are public with the feature `internals`"
    )
)]

#[cfg(not(feature = "internals"))]
mod algo;
#[cfg(feature = "internals")]
pub mod algo;
#[cfg(not(feature = "internals"))]
mod backend;
#[cfg(feature = "internals")]
pub mod backend;
#[cfg(not(feature = "internals"))]
mod buffer;
#[cfg(feature = "internals")]
pub mod buffer;
#[cfg(not(feature = "internals"))]
mod collective;
#[cfg(feature = "internals")]
pub mod collective;
#[cfg(not(feature = "internals"))]
mod config;
#[cfg(feature = "internals")]
pub mod config;
mod context;
#[cfg(not(feature = "internals"))]
mod device;
#[cfg(feature = "internals")]
pub mod device;
#[cfg(not(feature = "internals"))]
mod error;
#[cfg(feature = "internals")]
pub mod error;
#[cfg(not(feature = "internals"))]
mod host_load;
#[cfg(feature = "internals")]
pub mod host_load;
#[cfg(not(feature = "internals"))]
mod kernel;
#[cfg(feature = "internals")]
pub mod kernel;
#[cfg(not(feature = "internals"))]
mod launch;
#[cfg(feature = "internals")]
pub mod launch;
#[cfg(not(feature = "internals"))]
mod layout;
#[cfg(feature = "internals")]
pub mod layout;
mod memfd;
#[cfg(not(feature = "internals"))]
mod processors;
#[cfg(feature = "internals")]
pub mod processors;
#[cfg(not(feature = "internals"))]
mod rendezvous;
#[cfg(feature = "internals")]
pub mod rendezvous;
mod sabotage;
#[cfg(not(feature = "internals"))]
mod simulate;
#[cfg(feature = "internals")]
pub mod simulate;
#[cfg(not(feature = "internals"))]
mod strangers;
#[cfg(feature = "internals")]
pub mod strangers;
#[cfg(not(feature = "internals"))]
mod sync;
#[cfg(feature = "internals")]
pub mod sync;
#[cfg(not(feature = "internals"))]
mod transport;
#[cfg(feature = "internals")]
pub mod transport;
#[cfg(not(feature = "internals"))]
mod types;
#[cfg(feature = "internals")]
pub mod types;
#[cfg(not(feature = "internals"))]
mod vendor;
#[cfg(feature = "internals")]
pub mod vendor;
#[cfg(not(feature = "internals"))]
mod watch;
#[cfg(feature = "internals")]
pub mod watch;
#[cfg(not(feature = "internals"))]
mod world;
#[cfg(feature = "internals")]
pub mod world;

pub use buffer::Element;
pub use collective::{Communicator, PointToPoint, Work};
pub use config::Environment;
pub use device::{
    Device, DeviceBuffer, DeviceCommunicator, DeviceError, DeviceOptions, Event, Runtime, Stream,
};
pub use error::verdict::{Class, Confidence, Verdict};
pub use error::{CommError, ErrorKind};
pub use layout::{GroupKind, Layout, LayoutBuilder, LayoutError, Preset};
pub use processors::Bind;
pub use types::{Collective, DType, Rank, ReduceOp};
pub use world::{
    AllocError, BringUpError, FromEnvError, JoinOptions, RegionBuffer, SharedMemory, ThreadOptions,
    World,
};
