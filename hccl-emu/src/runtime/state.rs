//! The one state of the process behind all four library names.

use std::io::Write as _;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use muster_comm::config::Environment;
use muster_comm::sync::Clock;

use super::callback::Reporters;
use super::device::{Context, Device, Process, visible};
use super::errors::{AclError, RuntimeError};
use super::event::Event;
use super::handles::Handles;
use super::installed;
use super::memory::host::HostMemory;
use super::memory::virt::{Physical, Virtual};
use super::memory::{Memory, Rules};
use super::operator::{Block, Description};
use super::stream::Stream;
use crate::options::{CANN_DEFAULT, Options, OptionsError};

/// Everything that the emulator knows, made at the first call.
#[derive(Debug)]
pub struct State {
    /// The environment at the first call: the emulator reads it once, as the vendor does.
    pub environment: Environment,
    options: Result<Options, OptionsError>,
    /// The visible devices, by logical number.
    devices: Vec<Arc<Device>>,
    /// Contexts by handle.
    pub contexts: Handles<Context>,
    /// Streams by handle.
    pub streams: Handles<Stream>,
    /// Events by handle.
    pub events: Handles<Event>,
    /// Descriptions of tensors by handle.
    pub descriptions: Handles<Description>,
    /// Descriptions of the memory of tensors, by handle.
    pub buffers: Handles<Block>,
    /// Host memory that the runtime gave out.
    pub host: HostMemory,
    /// Physical memory by handle.
    pub physical: Handles<Physical>,
    /// Reserved addresses.
    pub reserved: Virtual,
    /// Threads that run functions for streams.
    pub reporters: Reporters,
    /// How often `aclInit` was called, and other things of the process.
    pub process: Process,
    /// When the state was made.
    pub began: Instant,
    cann: String,
}

/// The state; the first call reads the environment and costs some microseconds.
pub fn state() -> &'static State {
    static STATE: OnceLock<State> = OnceLock::new();
    STATE.get_or_init(|| {
        let state = State::new(Environment::capture());
        if let Err(error) = &state.options {
            // The one line that the emulator prints: without it a foreign program would only say
            // that it found no device.
            let _ = writeln!(std::io::stderr(), "muster-emu (emulated): {error}");
        }
        state
    })
}

impl State {
    fn new(environment: Environment) -> Self {
        let options = Options::from_environment(&environment);
        // Without options there is no device.
        let chosen = options.clone().unwrap_or_else(|_| Options {
            devices: 0,
            ..Options::default()
        });
        let rules = Rules {
            poison: chosen.poison,
            bounds: chosen.bounds,
        };
        let list = environment.text("ASCEND_RT_VISIBLE_DEVICES").ok().flatten();
        let cann = options
            .as_ref()
            .ok()
            .and_then(|options| options.cann.clone())
            .or_else(installed::cann)
            .unwrap_or_else(|| CANN_DEFAULT.to_owned());
        let devices = visible(list, chosen.devices)
            .into_iter()
            .zip(0..)
            .map(|(physical, logical)| {
                let memory = Memory::new(logical, chosen.memory_bytes, rules);
                Arc::new(Device::new(logical, physical, memory))
            })
            .collect();
        Self {
            environment,
            options,
            devices,
            contexts: Handles::new(1),
            streams: Handles::new(2),
            events: Handles::new(3),
            descriptions: Handles::new(6),
            buffers: Handles::new(7),
            host: HostMemory::default(),
            physical: Handles::new(4),
            reserved: Virtual::default(),
            reporters: Reporters::default(),
            process: Process::default(),
            began: Clock::now(),
            cann,
        }
    }

    /// What the user chose.
    ///
    /// # Errors
    /// If a variable cannot be used: then there is no device.
    pub fn options(&self) -> Result<&Options, RuntimeError> {
        self.options
            .as_ref()
            .map_err(|error| RuntimeError::new(AclError::RT_NO_DEVICE, error.to_string()))
    }

    /// The CANN version that is played: as chosen, else that of the installed tree.
    #[must_use]
    pub fn cann(&self) -> &str {
        &self.cann
    }

    /// The visible devices, by logical number.
    #[must_use]
    pub fn devices(&self) -> &[Arc<Device>] {
        &self.devices
    }

    /// The device with this logical number.
    ///
    /// # Errors
    /// `RT_INVALID_DEVICEID` with how many there are, or why there is none.
    pub fn device(&self, logical: i32) -> Result<&Arc<Device>, RuntimeError> {
        self.options()?;
        let found = usize::try_from(logical)
            .ok()
            .and_then(|logical| self.devices.get(logical));
        found.ok_or_else(|| {
            let count = self.devices.len();
            RuntimeError::new(
                AclError::RT_INVALID_DEVICEID,
                format!(
                    "device {logical} does not exist: {count} devices are visible, numbered from 0"
                ),
            )
        })
    }
}
