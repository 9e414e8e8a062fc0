//! The calls of HCCL that this library makes, each checked and with the vendor's words.
//!
//! All of them run on the communicator's vendor thread, a thread on which its device is current.

use std::ffi::{CStr, CString};
use std::path::Path;
use std::ptr::null_mut;

use hccl_sys::symbols::Api;
use hccl_sys::types::{HcclCommConfig, HcclResult, HcclRootInfo};

use super::acl::{Acl, pointer};
use crate::device::error::DeviceError;
use crate::device::vendor_call::Handle;

/// Longest path of a rank table, in bytes; the vendor's own limit.
const PATH_BYTES_MAX: usize = 4096;

/// HCCL's functions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Calls<'a> {
    pub(super) acl: &'a Acl,
}

impl<'a> Calls<'a> {
    pub(super) fn new(acl: &'a Acl) -> Self {
        Self { acl }
    }

    pub(super) fn api(&self) -> &'a Api {
        self.acl.api()
    }

    pub(super) fn check(&self, call: &'static str, code: HcclResult) -> Result<(), DeviceError> {
        if code.0 == 0 {
            return Ok(());
        }
        let mut detail = self.acl.recent_words();
        if detail.is_empty() {
            detail = self.text_of(code);
        }
        Err(DeviceError::Vendor {
            call,
            code: code.0,
            detail,
        })
    }

    /// The library's own text for a number.
    pub(super) fn text_of(&self, code: HcclResult) -> String {
        let Ok(function) = self.api().hccl().HcclGetErrorString() else {
            return code.text().to_owned();
        };
        // SAFETY: takes a number and returns a text of the library, or null.
        let text = unsafe { function(code) };
        if text.is_null() {
            return code.text().to_owned();
        }
        // SAFETY: closed with a zero, and the library's for ever.
        let text = unsafe { CStr::from_ptr(text) };
        text.to_string_lossy().into_owned()
    }

    /// How many settings of a communicator the library knows; none where it cannot say.
    pub(super) fn capability(&self) -> u32 {
        let Ok(function) = self.api().hccl().HcclGetCommConfigCapability() else {
            return 0;
        };
        // SAFETY: takes nothing and returns a number.
        unsafe { function() }
    }

    pub(super) fn root_info(&self) -> Result<Vec<u8>, DeviceError> {
        let function = self.api().hccl().HcclGetRootInfo()?;
        let mut info = HcclRootInfo::zeroed();
        // SAFETY: writes the struct.
        let code = unsafe { function(&raw mut info) };
        self.check("HcclGetRootInfo", code)
            .map(|()| info.as_bytes().to_vec())
    }

    /// Joins a communicator of `n` ranks by root information. May block for as long as the vendor's
    /// connect timeout.
    pub(super) fn init(
        &self,
        n: u32,
        root_info: &[u8],
        rank: u32,
        config: Option<&HcclCommConfig>,
    ) -> Result<Handle, DeviceError> {
        let Some(info) = HcclRootInfo::from_bytes(root_info) else {
            return Err(DeviceError::InvalidArgument {
                what: "the root information".to_owned(),
                got: format!("{} bytes", root_info.len()),
                want: "what HcclGetRootInfo wrote".to_owned(),
            });
        };
        let mut comm = null_mut();
        let (call, code) = match config {
            Some(config) => {
                let function = self.api().hccl().HcclCommInitRootInfoConfig()?;
                // SAFETY: both structs live through the call, which writes one handle.
                let code = unsafe { function(n, &raw const info, rank, config, &raw mut comm) };
                ("HcclCommInitRootInfoConfig", code)
            }
            None => {
                let function = self.api().hccl().HcclCommInitRootInfo()?;
                // SAFETY: the struct lives through the call, which writes one handle.
                let code = unsafe { function(n, &raw const info, rank, &raw mut comm) };
                ("HcclCommInitRootInfo", code)
            }
        };
        self.check(call, code).map(|()| comm.expose_provenance())
    }

    /// Joins the communicator that a rank table describes. May block as [`Calls::init`] does.
    pub(super) fn init_table(
        &self,
        table: &Path,
        rank: u32,
        config: Option<&HcclCommConfig>,
    ) -> Result<Handle, DeviceError> {
        let bytes = table.as_os_str().as_encoded_bytes();
        let path = CString::new(bytes)
            .ok()
            .filter(|_| bytes.len() <= PATH_BYTES_MAX);
        let Some(path) = path else {
            return Err(DeviceError::InvalidArgument {
                what: "the path of the rank table".to_owned(),
                got: table.display().to_string(),
                want: format!("at most {PATH_BYTES_MAX} bytes, none of them zero"),
            });
        };
        let mut comm = null_mut();
        let (call, code) = match config {
            Some(config) => {
                let function = self.api().hccl().HcclCommInitClusterInfoConfig()?;
                let mut config = *config;
                // SAFETY: text and struct live through the call, which writes one handle.
                let code = unsafe { function(path.as_ptr(), rank, &raw mut config, &raw mut comm) };
                ("HcclCommInitClusterInfoConfig", code)
            }
            None => {
                let function = self.api().hccl().HcclCommInitClusterInfo()?;
                // SAFETY: the text lives through the call, which writes one handle.
                let code = unsafe { function(path.as_ptr(), rank, &raw mut comm) };
                ("HcclCommInitClusterInfo", code)
            }
        };
        self.check(call, code).map(|()| comm.expose_provenance())
    }

    /// Makes a communicator of some ranks of another one.
    pub(super) fn init_sub(
        &self,
        parent: Handle,
        ranks: &[u32],
        id: u64,
        index: u32,
        config: &HcclCommConfig,
    ) -> Result<Handle, DeviceError> {
        let function = self.api().hccl().HcclCreateSubCommConfig()?;
        let (mut parent, mut ranks, mut config) = (pointer(parent), ranks.to_vec(), *config);
        let count = u32::try_from(ranks.len()).unwrap_or(u32::MAX);
        let (list, settings) = (ranks.as_mut_ptr(), &raw mut config);
        let mut comm = null_mut();
        // SAFETY: handle, list and struct live through the call, which writes one handle. The
        // parent is passed by its address, as the vendor wants it.
        let code = unsafe {
            function(
                &raw mut parent,
                count,
                list,
                id,
                index,
                settings,
                &raw mut comm,
            )
        };
        self.check("HcclCreateSubCommConfig", code)
            .map(|()| comm.expose_provenance())
    }

    /// # Safety
    /// - The communicator is alive, and nobody uses it during or after the call.
    pub(super) unsafe fn destroy(&self, comm: Handle) -> Result<(), DeviceError> {
        let function = self.api().hccl().HcclCommDestroy()?;
        // SAFETY: the caller's promise.
        let code = unsafe { function(pointer(comm)) };
        self.check("HcclCommDestroy", code)
    }

    /// The asynchronous error of a communicator, if it has one.
    ///
    /// # Safety
    /// - The communicator is alive.
    pub(super) unsafe fn async_error(&self, comm: Handle) -> Result<(), DeviceError> {
        let Ok(function) = self.api().hccl().HcclGetCommAsyncError() else {
            return Ok(());
        };
        let mut error = HcclResult(0);
        // SAFETY: the caller's promise; writes one number.
        let code = unsafe { function(pointer(comm), &raw mut error) };
        self.check("HcclGetCommAsyncError", code)?;
        self.check("HcclGetCommAsyncError", error)
    }
}
