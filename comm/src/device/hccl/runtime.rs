//! The loaded libraries of the vendor, initialised for this process.

use std::sync::{Arc, OnceLock};

use hccl_sys::search::Places;
use hccl_sys::symbols::Api;

use super::acl::Acl;
use super::npu::Device;
use super::soc::Soc;
use crate::device::error::DeviceError;

/// Number of devices that a process with these libraries sees, without initialising anything.
///
/// # Errors
/// As the vendor says; among others where there is none.
pub fn count(api: &Api) -> Result<u32, DeviceError> {
    Acl::new(api.clone()).device_count()
}

/// HCCL and the runtime of this machine, or an emulator of both. Cheap to clone.
///
/// Nothing is ever unloaded and ACL is never finalised: threads of the libraries stay alive, and
/// other libraries of this process may use them too.
#[derive(Clone, Debug)]
pub struct Runtime {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    acl: Acl,
    devices: u32,
    soc: OnceLock<Soc>,
}

impl Runtime {
    /// Loads the libraries from these places and initialises ACL.
    ///
    /// A process that will `fork` must do so before: ACL does not survive it.
    ///
    /// # Errors
    /// [`DeviceError::Unavailable`] with everything that was looked for, where the libraries or
    /// devices are missing; an error of the vendor's where they are there and do not start.
    pub fn load(places: &Places) -> Result<Self, DeviceError> {
        Self::start(Api::load(places))
    }

    /// Initialises ACL over libraries that were loaded before.
    ///
    /// # Errors
    /// As [`Runtime::load`].
    pub fn start(api: Api) -> Result<Self, DeviceError> {
        let unavailable = |why: String| DeviceError::Unavailable {
            why,
            looked_for: api.probe().lines(),
        };
        for (name, missing) in [
            ("HcclCommDestroy", api.hccl().HcclCommDestroy().err()),
            ("HcclGetRootInfo", api.hccl().HcclGetRootInfo().err()),
            ("aclrtSetDevice", api.acl().aclrtSetDevice().err()),
        ] {
            if let Some(missing) = missing {
                return Err(unavailable(format!("{name} is missing: {missing}")));
            }
        }
        let acl = Acl::new(api.clone());
        // Before aclInit: the count is known without it, and without a device there is no need.
        let devices = acl
            .device_count()
            .map_err(|error| unavailable(format!("the runtime finds no device: {error}")))?;
        if devices == 0 {
            return Err(unavailable("the runtime finds no device".to_owned()));
        }
        acl.init()?;
        let inner = Inner {
            acl,
            devices,
            soc: OnceLock::new(),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Number of devices that this process sees. Logical ids are below it.
    #[must_use]
    pub fn device_count(&self) -> u32 {
        self.inner.devices
    }

    /// A device by its logical id, which counts what `ASCEND_RT_VISIBLE_DEVICES` leaves from 0.
    ///
    /// # Errors
    /// [`DeviceError::InvalidArgument`] beyond [`Runtime::device_count`]; an error of the vendor's
    /// where the device cannot be opened.
    pub fn device(&self, logical: u32) -> Result<Device, DeviceError> {
        Device::open(self, logical)
    }

    /// Version of the emulator, if these libraries are one. Then no result says anything about
    /// hardware.
    #[must_use]
    pub fn emulated(&self) -> Option<&str> {
        self.inner.acl.api().emulated()
    }

    /// The functions that were found.
    #[must_use]
    pub fn api(&self) -> &Api {
        self.inner.acl.api()
    }

    /// The product. Some device must have been opened before.
    pub(super) fn soc(&self) -> Result<Soc, DeviceError> {
        if let Some(soc) = self.inner.soc.get() {
            return Ok(soc.clone());
        }
        let soc = Soc::named(&self.inner.acl.soc_name()?);
        Ok(self.inner.soc.get_or_init(|| soc).clone())
    }

    pub(crate) fn acl(&self) -> &Acl {
        &self.inner.acl
    }
}
