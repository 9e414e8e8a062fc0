//! The device of a rank, and how its communicators are made.

use std::time::Duration;

use muster_comm::collective::Communicator;
use muster_comm::config::{DEVICE_MAP, Environment, HCCL_EXEC_TIMEOUT};
use muster_comm::device::{
    Device, DeviceCommunicator, DeviceError, DeviceMap, DeviceOptions, Runtime, SelectionError,
    select,
};
use muster_comm::error::CommError;

use crate::check::subject::Subject;
use crate::exit::Exit;
use crate::fail::Failure;
use crate::run::job::Hccl;
use crate::run::joined;

/// Size of a communicator's own buffer in MiB where the user does not say: verify makes many of
/// them, and each takes twice as much of the device's memory.
const BUFFER_MIB: u32 = 32;

/// A rank's device.
#[derive(Debug)]
pub struct Npu {
    device: Device,
    options: DeviceOptions,
}

impl Npu {
    /// Opens the device that this rank is to drive.
    ///
    /// # Errors
    /// A failure of class RESOURCE where there is none, or it does not open; USAGE where the
    /// variables that choose it contradict each other.
    pub fn open(environment: &Environment, job: &Hccl) -> Result<Self, Failure> {
        let unreadable =
            |error: muster_comm::config::ConfigError| Failure::usage(error.to_string());
        let places = environment.vendor_places().map_err(unreadable)?;
        let map = environment.read(&DEVICE_MAP).map_err(unreadable)?;
        let map = map.and_then(DeviceMap::new);
        let set = environment.read(&HCCL_EXEC_TIMEOUT).map_err(unreadable)?;
        let has_buffer_size = environment
            .text("HCCL_BUFFSIZE")
            .map_err(unreadable)?
            .is_some();
        let identity = joined::identity(environment, None)?;
        let local_rank = identity.as_ref().and_then(|identity| {
            let only_host = identity.is_on_one_host().then_some(identity.rank.0);
            identity.local_rank.or(only_host)
        });
        let mask = identity.and_then(|identity| identity.devices);
        let runtime = Runtime::load(&places).map_err(failure)?;
        let chosen = select(
            local_rank,
            runtime.device_count(),
            mask.as_ref(),
            map.as_ref(),
        )
        .map_err(|error: SelectionError| {
            Failure::new(Exit::Resource, error.to_string()).with_help(error.help())
        })?;
        let device = runtime.device(chosen.logical).map_err(failure)?;
        let mut options = DeviceOptions::default();
        options.buffer_mib = (!has_buffer_size).then_some(BUFFER_MIB);
        options.exec_timeout_of_environment = set;
        // What the launcher set in the environment stands for the same limit.
        options.exec_timeout = job.exec_timeout_ms.map(Duration::from_millis);
        Ok(Self { device, options })
    }

    /// The device side of a group.
    ///
    /// # Errors
    /// As [`Communicator::on_device`].
    pub(super) fn subject(&self, group: &Communicator) -> Result<Subject, CommError> {
        self.on_device(group).map(Subject::from)
    }

    /// The device communicator of a group.
    ///
    /// # Errors
    /// As [`Communicator::on_device`].
    pub fn on_device(&self, group: &Communicator) -> Result<DeviceCommunicator, CommError> {
        group.on_device(&self.device, &self.options)
    }

    /// Free bytes of the device's memory, where it tells.
    #[must_use]
    pub(super) fn free(&self) -> Option<u64> {
        self.device.memory().ok().map(|memory| memory.free)
    }
}

/// The failure that an error of the device is.
fn failure(error: DeviceError) -> Failure {
    let help = error.help();
    let mut text = error.to_string();
    if let DeviceError::Vendor { detail, .. } = &error
        && !detail.is_empty()
    {
        text = format!("{text}: {detail}");
    }
    Failure::new(Exit::Resource, text).with_help(help)
}
