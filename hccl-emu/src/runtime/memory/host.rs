//! Host memory that the runtime gives out (`aclrtMallocHost`): real, and known to be pinned.

use std::alloc::{Layout, alloc, dealloc};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::super::errors::{AclError, RuntimeError};

/// Alignment of host memory: a page, as the vendor's is.
const ALIGN: usize = 4096;

/// Live blocks, by address.
#[derive(Debug, Default)]
pub struct HostMemory {
    blocks: Mutex<BTreeMap<usize, Layout>>,
}

impl HostMemory {
    /// Takes `bytes`.
    ///
    /// # Errors
    /// `RT_PARAM_INVALID` for 0 bytes, `RT_MEMORY_ALLOCATION` if the host has no more.
    pub fn allocate(&self, bytes: usize) -> Result<*mut c_void, RuntimeError> {
        if bytes == 0 {
            return Err(RuntimeError::argument("aclrtMallocHost of 0 bytes"));
        }
        let failed = || {
            RuntimeError::new(
                AclError::RT_MEMORY_ALLOCATION,
                format!("the host has no {bytes} bytes"),
            )
        };
        let layout = Layout::from_size_align(bytes, ALIGN).map_err(|_| failed())?;
        // SAFETY: the layout has a size above 0.
        let block = unsafe { alloc(layout) };
        if block.is_null() {
            return Err(failed());
        }
        self.blocks().insert(block.addr(), layout);
        Ok(block.cast())
    }

    /// Frees a block.
    ///
    /// # Errors
    /// If `pointer` is not the start of a live one.
    pub fn free(&self, pointer: *mut c_void) -> Result<(), RuntimeError> {
        let layout = self.blocks().remove(&pointer.addr()).ok_or_else(|| {
            RuntimeError::argument(format!(
                "{pointer:p} is not the start of host memory that aclrtMallocHost gave out"
            ))
        })?;
        // SAFETY: the block came from `alloc` with this layout, and was taken off the list just
        // now, so nobody frees it again.
        unsafe { dealloc(pointer.cast(), layout) };
        Ok(())
    }

    /// Whether `pointer` lies in a live block.
    #[must_use]
    pub fn holds(&self, pointer: *const c_void) -> bool {
        let blocks = self.blocks();
        let before = blocks.range(..=pointer.addr()).next_back();
        before.is_some_and(|(start, layout)| pointer.addr() - start < layout.size())
    }

    fn blocks(&self) -> MutexGuard<'_, BTreeMap<usize, Layout>> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
