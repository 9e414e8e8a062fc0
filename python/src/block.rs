//! Memory of ours that Python uses: an address and a length. `muster/_memory.py` makes arrays of it, which keep it.

use std::sync::{Mutex, PoisonError};

use muster_comm::world::RegionBuffer;
use pyo3::prelude::*;

use crate::world;

/// Whose memory it is.
#[expect(dead_code, reason = "kept, not used")]
enum Owner {
    Received(Vec<u8>),
    Region(RegionBuffer<u8>),
}

/// A block of memory, there as long as this object.
#[pyclass(frozen, module = "muster._muster")]
pub(crate) struct Block {
    address: usize,
    length: usize,
    owner: Mutex<Option<Owner>>,
}

impl Block {
    /// Of what a call has received.
    pub(crate) fn received(mut memory: Vec<u8>) -> Self {
        Self {
            address: memory.as_mut_ptr() as usize,
            length: memory.len(),
            owner: Mutex::new(Some(Owner::Received(memory))),
        }
    }

    /// Of this rank's region.
    pub(crate) fn region(mut memory: RegionBuffer<u8>) -> Self {
        Self {
            address: memory.as_mut_ptr() as usize,
            length: memory.len(),
            owner: Mutex::new(Some(Owner::Region(memory))),
        }
    }
}

#[pymethods]
impl Block {
    #[getter]
    fn address(&self) -> usize {
        self.address
    }

    #[getter]
    fn length(&self) -> usize {
        self.length
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let mut owner = self.owner.lock().unwrap_or_else(PoisonError::into_inner);
        let owner = owner.take();
        // The region of the parent is that of a forked child too: what the child frees, the parent still uses.
        if matches!(owner, Some(Owner::Region(_))) && !world::check_process_quietly() {
            // LEAK: it belongs to the process that joined.
            std::mem::forget(owner);
        }
    }
}
