//! How a device communicator is made: the user's wishes.

use std::path::PathBuf;
use std::time::Duration;

/// Whether results of a reduction are the same bits in every run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Determinism {
    /// Not promised; the fastest.
    Off,
    /// The same in every run on the same topology.
    On,
    /// In one order on every topology; Atlas A2 only.
    Strict,
}

/// Where the steps of a collective are scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expansion {
    /// The AI CPUs of the device.
    AiCpu,
    /// The vector cores, where that is possible.
    Aiv,
    /// The vector cores, or refused.
    AivOnly,
    /// The host.
    Host,
}

/// How a device communicator is made. The default leaves every choice to the vendor, that is to
/// the `HCCL_…` variables and its own defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceOptions {
    /// Size of the communicator's own buffer in MiB, at least 1; it takes twice as much of the
    /// device's memory on first use.
    pub buffer_mib: Option<u32>,
    /// Compares the calls of all ranks over the host before each one is enqueued: a mismatch is an
    /// error on all of them, and the communicator stays usable. Costs an exchange a call.
    pub checked: bool,
    /// Whether reductions repeat bit for bit.
    pub deterministic: Option<Determinism>,
    /// How long a device waits for its peers before the vendor reports an error; whole seconds,
    /// rounded up. Needs CANN 8.5; see [`crate::device::DeviceCommunicator::exec_timeout`].
    pub exec_timeout: Option<Duration>,
    /// What `HCCL_EXEC_TIMEOUT` says in this process, for the case that the library takes no limit
    /// for one communicator: it sets nothing, it only tells when a device must have complained.
    pub exec_timeout_of_environment: Option<Duration>,
    /// Where collectives are scheduled.
    pub expansion: Option<Expansion>,
    /// Name of the communicator in the vendor's logs, up to 127 bytes; unique in the process.
    pub name: Option<String>,
    /// The vendor's rank table; without one the ranks exchange root information over the host
    /// group.
    pub rank_table: Option<PathBuf>,
}
