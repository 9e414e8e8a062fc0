//! One device.
//!
//! The runtime keeps a current device for each thread and looks handles up there: a stream that is
//! destroyed from a thread with another device, or with none, is not found. So everything here
//! makes its device current first ([`Device::enter`]) and gives the thread its former one back.

use std::sync::Arc;

use super::acl::Acl;
use super::runtime::Runtime;
use super::soc::Soc;
use crate::device::error::DeviceError;

/// A device that this process drives. Cheap to clone; usable from any thread.
#[derive(Clone, Debug)]
pub struct Device {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    runtime: Runtime,
    logical: i32,
    physical: Option<u32>,
    soc: Soc,
}

/// Memory of a device in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Not used by anybody.
    pub free: u64,
    /// In all.
    pub total: u64,
}

/// While this lives, the device is current in this thread.
#[derive(Debug)]
pub(crate) struct Entered<'a> {
    acl: &'a Acl,
    former: Option<i32>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if let Some(former) = self.former {
            // It was current a moment ago; if it cannot be now, the next call on it will say so.
            let _ = self.acl.set_device(former);
        }
    }
}

impl Device {
    pub(super) fn open(runtime: &Runtime, logical: u32) -> Result<Self, DeviceError> {
        let count = runtime.device_count();
        let number = i32::try_from(logical).ok().filter(|_| logical < count);
        let Some(number) = number else {
            return Err(DeviceError::InvalidArgument {
                what: "the device".to_owned(),
                got: logical.to_string(),
                want: format!("a logical id below {count}, the number of visible devices"),
            });
        };
        runtime.acl().set_device(number)?;
        let soc = runtime.soc()?;
        // Versions before 8.5 cannot tell.
        let physical = runtime.acl().physical_id(number).ok();
        let inner = Inner {
            runtime: runtime.clone(),
            logical: number,
            physical: physical.and_then(|id| u32::try_from(id).ok()),
            soc,
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Its number among those that this process sees.
    #[must_use]
    pub fn logical_id(&self) -> u32 {
        self.inner.logical.unsigned_abs()
    }

    /// Its number on the host, where the runtime can tell (from CANN 8.5 on).
    #[must_use]
    pub fn physical_id(&self) -> Option<u32> {
        self.inner.physical
    }

    /// The chip.
    #[must_use]
    pub fn soc(&self) -> &Soc {
        &self.inner.soc
    }

    /// The libraries that drive it.
    #[must_use]
    pub fn runtime(&self) -> &Runtime {
        &self.inner.runtime
    }

    /// Free and total memory now.
    ///
    /// # Errors
    /// As the vendor says.
    pub fn memory(&self) -> Result<MemoryInfo, DeviceError> {
        let _here = self.enter()?;
        let (free, total) = self.calls().memory()?;
        Ok(MemoryInfo { free, total })
    }

    /// Makes the device current in this thread until the guard is dropped.
    pub(crate) fn enter(&self) -> Result<Entered<'_>, DeviceError> {
        let acl = self.calls();
        let former = acl.current_device()?;
        if former == Some(self.inner.logical) {
            return Ok(Entered { acl, former: None });
        }
        acl.set_device(self.inner.logical)?;
        Ok(Entered { acl, former })
    }

    pub(crate) fn calls(&self) -> &Acl {
        self.inner.runtime.acl()
    }
}

impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "device {}", self.inner.logical)?;
        if let Some(physical) = self.inner.physical {
            write!(f, " (physical {physical})")?;
        }
        write!(f, ", {}", self.inner.soc.name)
    }
}
