//! Handles that a client holds: numbers that look like pointers, never used twice (`EMU-1`).

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, PoisonError, RwLock};

use muster_comm::sync::{AtomicU64, Ordering};

/// Distance between two handles: they look aligned, as pointers would.
const STEP: u64 = 64;

/// A handle as clients see it.
#[must_use]
pub fn pointer(handle: u64) -> *mut c_void {
    std::ptr::without_provenance_mut(handle as usize)
}

/// What a handle stands for.
#[derive(Debug)]
pub enum Found<T> {
    /// Nothing: this table never gave out such a handle.
    Alien,
    /// It was destroyed.
    Gone,
    /// This.
    Live(Arc<T>),
}

/// A table of handles of one kind.
#[derive(Debug)]
pub struct Handles<T> {
    /// The first handle of the kind; kinds are far apart, and far from every address.
    first: u64,
    next: AtomicU64,
    live: RwLock<HashMap<u64, Arc<T>>>,
}

impl<T> Handles<T> {
    /// A table of kind `kind` (1 to 65535): the upper half of its handles.
    #[must_use]
    pub fn new(kind: u16) -> Self {
        // Bit 63 and below are no user address on any system of today, so following such a handle
        // as a pointer faults.
        let first = 0xE000_0000_0000_0000 | (u64::from(kind) << 40) | STEP;
        Self {
            first,
            next: AtomicU64::new(first),
            live: RwLock::new(HashMap::new()),
        }
    }

    /// Makes a handle for what `make` builds, which is told its handle.
    pub fn insert(&self, make: impl FnOnce(u64) -> Arc<T>) -> Arc<T> {
        // Relaxed: the number only has to be unique.
        let handle = self.next.fetch_add(STEP, Ordering::Relaxed);
        let value = make(handle);
        let mut live = self.live.write().unwrap_or_else(PoisonError::into_inner);
        live.insert(handle, Arc::clone(&value));
        value
    }

    /// What `handle` stands for.
    #[must_use]
    pub fn find(&self, handle: *const c_void) -> Found<T> {
        let handle = handle.addr() as u64;
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        match live.get(&handle) {
            Some(value) => Found::Live(Arc::clone(value)),
            None if self.was_given(handle) => Found::Gone,
            None => Found::Alien,
        }
    }

    /// Takes `handle` out of the table, once.
    pub fn remove(&self, handle: u64) -> Option<Arc<T>> {
        let mut live = self.live.write().unwrap_or_else(PoisonError::into_inner);
        live.remove(&handle)
    }

    /// Everything alive for which `keep` holds.
    pub fn filter(&self, keep: impl Fn(&T) -> bool) -> Vec<Arc<T>> {
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        live.values().filter(|value| keep(value)).cloned().collect()
    }

    fn was_given(&self, handle: u64) -> bool {
        // Relaxed: whoever holds a real handle got it after it was counted.
        let given = self.first..self.next.load(Ordering::Relaxed);
        given.contains(&handle) && (handle - self.first).is_multiple_of(STEP)
    }
}
