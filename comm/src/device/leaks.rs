//! What was not given back because its end was uncertain.
//!
//! Freeing memory that a device may still write corrupts whoever gets it next; destroying a stream
//! that never ends hangs the process. Both are left alone instead, and counted here.

use crate::sync::{AtomicU64, Ordering};

static BUFFERS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
static HANDLES: AtomicU64 = AtomicU64::new(0);
static THREADS: AtomicU64 = AtomicU64::new(0);

/// What this process has left to the device so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leaks {
    /// Buffers of device or host memory.
    pub buffers: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Streams, events and communicators.
    pub handles: u64,
    /// Threads that sit in a call of the vendor which does not return.
    pub threads: u64,
}

impl Leaks {
    /// The counts now.
    #[must_use]
    pub fn now() -> Self {
        // Relaxed: counters for reports, they order nothing.
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Self {
            buffers: load(&BUFFERS),
            bytes: load(&BYTES),
            handles: load(&HANDLES),
            threads: load(&THREADS),
        }
    }

    /// Whether nothing was left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl std::fmt::Display for Leaks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} buffers of {} bytes, {} handles and {} threads left to the device",
            self.buffers, self.bytes, self.handles, self.threads
        )
    }
}

pub(crate) fn count_buffer(bytes: usize) {
    // Relaxed: see `Leaks::now`.
    BUFFERS.fetch_add(1, Ordering::Relaxed);
    BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
}

pub(crate) fn count_handle() {
    // Relaxed: see `Leaks::now`.
    HANDLES.fetch_add(1, Ordering::Relaxed);
}

pub(crate) fn count_thread() {
    // Relaxed: see `Leaks::now`.
    THREADS.fetch_add(1, Ordering::Relaxed);
}
