//! How many connections of this process have proved nothing: anybody can make them, so they say nothing about
//! the work of a rank.

use crate::sync::{AtomicU64, Ordering};

static OPEN: AtomicU64 = AtomicU64::new(0);

/// How many there are now.
#[must_use]
pub fn count() -> u64 {
    // Relaxed: a count, orders nothing.
    OPEN.load(Ordering::Relaxed)
}

/// One of them, until this is dropped.
#[derive(Debug)]
pub(crate) struct Stranger(());

impl Stranger {
    pub(crate) fn new() -> Self {
        // Relaxed: see `count`.
        OPEN.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        // Relaxed: see `count`.
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}
