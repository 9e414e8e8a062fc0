//! How ranks find each other: one coordinator a job, one session a rank.
//!
//! A [`Coordinator`] is a thread in the launcher, or in rank 0 where there is no launcher of ours.
//! Every rank holds one [`Session`] with it, which is one TCP connection. The coordinator waits
//! until every rank has proved the job's secret and introduced itself, hands everybody the roster
//! of all [`Card`]s, and then stays: as the place for a world-wide round or two
//! ([`Session::gather`]), and as the channel on which a rank that dies, leaves or aborts is known
//! to all others at once.
//!
//! It must not know what a card's payload means, what collectives are, or who its owner is.
//!
//! - `RDV-1`: nothing waits without a deadline, whatever the other side does or does not do.
//! - `RDV-2`: nothing a connection says is believed before it has proved the secret; until then it
//!   costs a few hundred bytes and at most two seconds.
//! - `RDV-3`: ranks of one job that contradict each other end the bring-up with the same error on
//!   every rank; strangers, other jobs and other attempts are refused and change nothing.
//! - `RDV-4`: every rank is reported down or left at most once, and never both.
//! - `RDV-5`: a rank whose goodbye is answered has been reported to all others before.
//!
//! ```
//! use std::time::Duration;
//! use muster_comm::rendezvous::{
//!     Card, Coordinator, CoordinatorOptions, Hello, ProcessId, Secret, Session, build_id,
//! };
//! use muster_comm::sync::Deadline;
//!
//! let secret = Secret::random()?;
//! let coordinator = Coordinator::start(CoordinatorOptions::new(secret.clone(), "job-7", 1))?;
//! let hello = Hello {
//!     job_id: "job-7".to_owned(),
//!     attempt: 0,
//!     rank: 0,
//!     world_size: 1,
//!     source: "an example".to_owned(),
//!     build: build_id(),
//!     card: Card {
//!         process: ProcessId { pid: std::process::id(), ..ProcessId::default() },
//!         ..Card::default()
//!     },
//! };
//! let deadline = Deadline::after(Duration::from_secs(10));
//! let endpoint = coordinator.address().into();
//! let session = Session::join(&endpoint, &secret, hello, deadline, Box::new(|_event| {}))?;
//! assert_eq!(session.gather("ports", vec![4, 2], deadline)?, [[4, 2]]);
//! session.leave();
//! coordinator.finish(deadline);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod arbiter;
mod blob;
mod card;
mod coordinator;
mod endpoint;
mod error;
pub mod limits;
mod presence;
mod secret;
mod session;
mod text;
mod wire;

pub use arbiter::{Act, Arbiter, Eyes, Liveness, Seen};
pub use card::{Card, Claimant, DownReason, Hello, ProcessId};
pub(crate) use coordinator::membership::{Membership, Rules, Task};
pub use coordinator::{
    Absent, Coordinator, CoordinatorEvent, CoordinatorEvents, CoordinatorOptions, Refusal,
    Refusals, Stopped,
};
pub(crate) use endpoint::route_to;
pub use endpoint::{Endpoint, EndpointError, local_v4};
pub use error::{RendezvousError, WorldClaim};
pub use presence::{Absence, Presence};
pub use secret::Secret;
pub(crate) use session::resolve;
pub use session::{EventHandler, Session, SessionEvent, Watcher};
pub use wire::build_id;
pub(crate) use wire::{
    Body, Introduction, PROTOCOL, ToCoordinator, ToSession, decode, encode_introduction,
};
