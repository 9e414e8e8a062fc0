//! Who am I? What the launcher that started this process says about rank and world.
//!
//! [`detect`] is pure: a snapshot of the environment in, an answer out. It must not know how ranks
//! meet or what they do then. [`secret`], [`rank_table`] and [`Exchange`] are the parts that touch files and launchers.
//!
//! - `LAUNCH-1`: an identity is what one contract says in full; nothing is guessed from another.
//! - `LAUNCH-2`: contracts that are set and contradict each other are refused, both shown, unless
//!   the variables prove that one started the other (`docs/launch.md`).
//! - `LAUNCH-3`: the answer depends on the snapshot alone.

mod ascend;
mod claim;
mod contract;
mod decide;
mod devices;
mod endpoint;
mod error;
mod exchange;
mod identity;
mod node;
pub mod notation;
mod process;
pub mod rank_table;
mod reader;
pub mod secret;
mod slurm;
mod survey;

pub use contract::Contract;
pub use devices::VisibleDevices;
pub use endpoint::{PORT_COUNT, PORT_FIRST, derive_port};
pub use error::{LaunchError, Statement};
pub use exchange::{Exchange, ExchangeError, own_address};
pub use identity::{Detected, EndpointHint, Identity, PerNode, Source};
pub use survey::{Field, Heard, survey};

use crate::config::Environment;

/// Finds out who this process is.
///
/// With `forced` only that contract is asked, and what it lacks is named.
///
/// # Errors
/// If variables are malformed, a contract is set in part or contradicts itself, two contracts
/// contradict each other, or the process is none of the ranks. All are usage errors.
pub fn detect(
    environment: &Environment,
    forced: Option<Contract>,
) -> Result<Detected, LaunchError> {
    match forced {
        Some(contract) if contract.is_per_process() => decide::forced(environment, contract),
        Some(contract) => node::forced(environment, contract).map(Detected::PerNode),
        None => decide::detect(environment),
    }
}
