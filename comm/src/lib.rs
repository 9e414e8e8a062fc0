//! Collective communication between the ranks of a job, on the CPUs and memory of the hosts.
//!
//! A **rank** is a process (or a thread) with a number. The ranks of a job form a [`World`]. A
//! [`Communicator`] is an ordered list of some of them that make *collective* calls together: every
//! member calls, say, [`all_reduce`], and every member gets its part of the result. Members make the
//! same calls in the same order; the library compares the calls before it uses their data, and a
//! rank that called something else is named to all.
//!
//! [`World`]: world::World
//! [`Communicator`]: collective::Communicator
//! [`all_reduce`]: collective::Communicator::all_reduce
//!
//! # Example
//!
//! Four ranks, here as threads of one process. Pairs of neighbours are tensor parallel groups; the
//! ranks of equal place in them are data parallel groups. The lists come from
//! [`layout`], which computes them as Megatron-LM does.
//!
//! ```
//! use muster_comm::error::CommError;
//! use muster_comm::layout::{GroupKind, Layout};
//! use muster_comm::types::ReduceOp;
//! use muster_comm::world::World;
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
//! [`World::from_env`]: world::World::from_env
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
//! [`Communicator::set_deadline`]: collective::Communicator::set_deadline
//! [`CommError`]: error::CommError
//! [`blame`]: error::CommError::blame
//! [`is_recoverable`]: error::CommError::is_recoverable
//!
//! # The modules
//!
//! | module | what it is |
//! |---|---|
//! | [`world`] | bring-up, all ranks of a job as one rank sees it, the making of groups |
//! | [`collective`] | the communicator, one file a collective, asynchronous calls, the naive reference |
//! | [`types`], [`buffer`], [`error`] | ranks, element types, reductions; erased views; the one error, with the verdict on it |
//! | [`layout`] | which ranks form which group: arithmetic only |
//! | [`launch`] | who this process is, by the launcher's environment |
//! | [`rendezvous`] | how ranks find each other, and hear of each other's end |
//! | [`backend`] | carries a checked call out: entry exchange, direct plans, message plans |
//! | [`algo`] | algorithms as plans: made, proved, priced, drawn, selected |
//! | [`transport`] | bytes between ranks: shared memory, TCP, the simulated network |
//! | [`kernel`] | reductions and conversions over raw memory |
//! | [`device`] | Ascend NPUs: devices, device memory, streams, events, collectives on them |
//! | [`vendor`] | what the numbers and codes of the vendor's libraries mean |
//! | [`config`], [`sync`] | the one reader of the environment; the one door to atomics and time |
//! | [`watch`] | what every rank is doing, and one verdict where they wait in vain |
//!
//! Most programs need [`world`], [`collective`], [`types`], [`error`] and perhaps [`layout`]. The
//! other modules are public for the harness, the tests and the curious. `ARCHITECTURE.md` follows a
//! call and a failure through them.

pub mod algo;
pub mod backend;
pub mod buffer;
pub mod collective;
pub mod config;
mod context;
pub mod device;
pub mod error;
pub mod kernel;
pub mod launch;
pub mod layout;
mod memfd;
pub mod rendezvous;
mod sabotage;
pub mod simulate;
pub mod strangers;
pub mod sync;
pub mod transport;
pub mod types;
pub mod vendor;
pub mod watch;
pub mod world;
