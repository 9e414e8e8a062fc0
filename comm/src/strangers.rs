//! How many connections of this process have proved nothing: anybody can make them, so they say nothing about
//! the work of a rank.
//!
//! A connection is counted after its descriptor was opened and until before it is closed or kept. So a descriptor
//! that is counted here is open.

use crate::sync::{AtomicU64, Ordering};

static CAME: AtomicU64 = AtomicU64::new(0);
static LEFT: AtomicU64 = AtomicU64::new(0);

/// Looks at the descriptors before they are left uncounted, because strangers come and go at each.
const LOOKS_MAX: u32 = 1000;

/// What was counted so far. Between two equal counts nobody came and nobody left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Count {
    came: u64,
    left: u64,
}

/// How many there are now.
#[must_use]
pub fn open() -> u64 {
    let count = count();
    count.came.saturating_sub(count.left)
}

/// Descriptors of this process, without those of strangers. It never tells fewer than there are. One that is
/// being accepted or closed at that moment may be among them. `None` where strangers come and go too fast.
#[must_use]
pub fn own_descriptors() -> Option<u64> {
    (0..LOOKS_MAX).find_map(|_| {
        let before = count();
        let all = std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
        let strangers = before.came.saturating_sub(before.left);
        (count() == before).then(|| all.saturating_sub(strangers))
    })
}

fn count() -> Count {
    // Acquire: a look at the descriptors comes after the first count, and before the second.
    let left = LEFT.load(Ordering::Acquire);
    let came = CAME.load(Ordering::Acquire);
    Count { came, left }
}

/// One of them, until this is dropped: before its descriptor is closed.
#[derive(Debug)]
pub(crate) struct Stranger(());

impl Stranger {
    pub(crate) fn new() -> Self {
        // Release: after the descriptor was opened.
        CAME.fetch_add(1, Ordering::Release);
        Self(())
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        // Release: see `new`.
        LEFT.fetch_add(1, Ordering::Release);
    }
}
