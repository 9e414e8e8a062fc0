//! muster-comm: collective communication between ranks.

pub mod algo;
pub mod backend;
pub mod buffer;
pub mod collective;
pub mod config;
pub mod error;
mod group;
pub mod kernel;
pub mod launch;
pub mod layout;
pub mod rendezvous;
pub mod sync;
pub mod transport;
pub mod types;
pub mod watch;
pub mod world;
