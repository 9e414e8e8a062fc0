//! The one state of the collectives in a process: settings, faults, communicators.

use std::collections::HashMap;
use std::io::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use hccl_sys::types::HcclResult;
use muster_comm::sync::{AtomicU64, Ordering};

use super::comm::Comm;
use super::fail::{Answer, EI0001, Fail};
use super::meeting::Served;
use super::settings::Settings;
use crate::fault::{self, Fault};
use crate::options::{Product, cann_version};
use crate::runtime::device::{self, Device};
use crate::runtime::handles::{Found, Handles};
use crate::runtime::state;

/// Kind of the handles of communicators, after those of the runtime.
const HANDLE_KIND: u16 = 16;
/// Nothing was set by `HcclSetConfig`.
const NOT_SET: u64 = u64::MAX;

/// Everything that the collectives of a process share.
#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) settings: Settings,
    pub(crate) product: Product,
    /// The chip's name.
    pub(crate) soc: &'static str,
    /// Major and minor number of the CANN version that is played: 805 for 8.5.
    pub(crate) cann: u32,
    pub(crate) faults: Vec<Fault>,
    pub(crate) comms: Handles<Comm>,
    names: Mutex<Names>,
    /// What `HcclSetConfig` was given last.
    deterministic: AtomicU64,
    pid: u32,
}

/// Communicators by the device and the name that they have there.
#[derive(Debug, Default)]
struct Names {
    /// Handle; 0 while the communicator is being made.
    taken: HashMap<(u32, String), u64>,
    /// Devices that ever joined a communicator.
    joined: Vec<u32>,
    /// Jobs whose rendezvous this process serves, or has served.
    served: Vec<(String, Arc<Served>)>,
}

/// The state; the first call reads the variables.
///
/// # Errors
/// What is wrong with a variable, at every call; or that the process was forked.
pub(crate) fn library(call: &str) -> Answer<&'static Library> {
    static LIBRARY: OnceLock<Answer<Library>> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| {
        let made = Library::new();
        if let Err(fail) = &made {
            // A foreign program may never ask for the text of an error.
            let _ = writeln!(std::io::stderr(), "muster-emu (emulated): {}", fail.text);
        }
        made
    });
    let library = library.as_ref().map_err(|fail| Fail {
        text: format!("{call}: {}", fail.text),
        ..fail.clone()
    })?;
    if library.pid != std::process::id() {
        let text = format!(
            "{call}: this process was forked from {} after HCCL was used there; start processes anew instead",
            library.pid
        );
        return Err(Fail::new(
            HcclResult::HCCL_E_INTERNAL,
            super::fail::EI0016,
            text,
        ));
    }
    Ok(library)
}

impl Library {
    fn new() -> Answer<Self> {
        let state = state();
        let options = state.options().map_err(|error| Fail::runtime(&error))?;
        let product = options.soc.product;
        let bad = |text: String| Fail::new(HcclResult::HCCL_E_PARA, EI0001, text);
        let settings = Settings::read(&state.environment, product)
            .map_err(|variable| bad(variable.to_string()))?;
        let faults = fault::parse(options.fault.as_deref().unwrap_or_default())
            .map_err(|error| bad(format!("environment variable MUSTER_EMU_FAULT: {error}")))?;
        let version = cann_version(state.cann());
        let numbers = version
            .as_ref()
            .map_or(&[][..], |version| version.numbers());
        let (major, minor) = match numbers {
            [major, minor, ..] => (*major, *minor),
            _ => (0, 0),
        };
        Ok(Self {
            settings,
            product,
            soc: options.soc.name,
            cann: major * 100 + minor.min(99),
            faults,
            comms: Handles::new(HANDLE_KIND),
            names: Mutex::default(),
            deterministic: AtomicU64::new(NOT_SET),
            pid: std::process::id(),
        })
    }

    /// What `HcclSetConfig` was given last; the variable wins.
    pub(crate) fn deterministic(&self) -> i32 {
        // Relaxed: one number that orders nothing.
        let set = self.deterministic.load(Ordering::Relaxed);
        let set = i32::try_from(set).unwrap_or(0);
        self.settings.deterministic.unwrap_or(set)
    }

    /// Takes what `HcclSetConfig` was given.
    pub(crate) fn set_deterministic(&self, value: i32) {
        let value = u64::try_from(value).unwrap_or(0);
        // Relaxed: one number that orders nothing.
        self.deterministic.store(value, Ordering::Relaxed);
    }

    /// Takes a name on a device for a communicator of so many ranks that is about to be made; says
    /// whether it is the first one in which the device meets others.
    pub(crate) fn take_name(&self, device: u32, name: &str, ranks: usize) -> Option<bool> {
        let mut names = self.names();
        let key = (device, name.to_owned());
        if names.taken.contains_key(&key) {
            return None;
        }
        names.taken.insert(key, 0);
        let is_first = ranks > 1 && !names.joined.contains(&device);
        if is_first {
            names.joined.push(device);
        }
        Some(is_first)
    }

    /// Says which communicator has the name.
    pub(crate) fn give_name(&self, device: u32, name: &str, handle: u64) {
        self.names().taken.insert((device, name.to_owned()), handle);
    }

    /// Notes that this process serves the rendezvous of a job.
    pub(crate) fn note_served(&self, job_id: &str, served: Arc<Served>) {
        self.names().served.push((job_id.to_owned(), served));
    }

    /// After a failed exchange: lets the others be told, if this process serves them.
    pub(crate) fn settle_served(&self, job_id: &str) {
        let served = {
            let names = self.names();
            let found = names.served.iter().find(|(known, _)| known == job_id);
            found.map(|(_, served)| Arc::clone(served))
        };
        if let Some(served) = served {
            served.settle();
        }
    }

    /// Whether this process serves the rendezvous of a job.
    pub(crate) fn serves(&self, job_id: &str) -> bool {
        self.names().served.iter().any(|(known, _)| known == job_id)
    }

    /// Frees a name.
    pub(crate) fn free_name(&self, device: u32, name: &str) {
        self.names().taken.remove(&(device, name.to_owned()));
    }

    /// The communicator of this name on a device.
    pub(crate) fn named(&self, device: u32, name: &str) -> Option<Arc<Comm>> {
        let handle = *self.names().taken.get(&(device, name.to_owned()))?;
        self.by_number(handle)
    }

    /// The communicator of this name on whichever device has it.
    pub(crate) fn named_anywhere(&self, name: &str) -> Option<Arc<Comm>> {
        let names = self.names();
        let found = names.taken.iter().find(|((_, known), _)| known == name);
        let handle = found.map(|(_, handle)| *handle)?;
        drop(names);
        self.by_number(handle)
    }

    fn by_number(&self, handle: u64) -> Option<Arc<Comm>> {
        let handle = std::ptr::without_provenance(usize::try_from(handle).ok()?);
        match self.comms.find(handle) {
            Found::Live(comm) => Some(comm),
            Found::Alien | Found::Gone => None,
        }
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The device of the calling thread, which every initialisation and destruction asks for.
pub(crate) fn current_device(call: &str) -> Answer<Arc<Device>> {
    let context = device::current().map_err(|error| Fail {
        text: format!("{call}: {} ({})", error.text, error.code.0),
        ..Fail::runtime(&error)
    })?;
    context
        .device
        .check_alive()
        .map_err(|error| Fail::runtime(&error))?;
    Ok(Arc::clone(&context.device))
}
