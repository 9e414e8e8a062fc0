//! Who may use the memory of a block: its creator, both sides, or its creator again.
//!
//! It touches no data. A model checker runs this file, so it needs nothing but atomics.
//!
//! - BLOCK-1: the second side is taken once, by who sees the first side's headers, and never after the creator has withdrawn it.
//! - BLOCK-2: the creator uses the memory for something else only after the other side has touched it for the last time.

use super::cursor::OPEN;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The block's state: created and waiting for the other side. ("ring" read as a number.)
const CREATED: u32 = u32::from_le_bytes(*b"ring");
/// The block's state: both sides are there.
pub(super) const ATTACHED: u32 = u32::from_le_bytes(*b"RING");

/// The headers are there: the other side may come.
pub(crate) fn open(block: &AtomicU32) {
    // SYNC: Release pairs with the exchange in `attach`: the other side sees fresh headers.
    block.store(CREATED, Ordering::Release);
}

/// Takes the second side; the state of the block where it is not to be had.
pub(crate) fn attach(block: &AtomicU32) -> Result<(), u32> {
    // SYNC: Acquire pairs with the Release in `open`. Relaxed on failure: nothing is read.
    block
        .compare_exchange(CREATED, ATTACHED, Ordering::Acquire, Ordering::Relaxed)
        .map(drop)
}

/// Whether the creator, whose own side is closed, may use the memory for something else: the other side has closed too, or was
/// never taken and now never can be. A ring that holds units waits for its other side, since they were sent.
pub(crate) fn is_over(block: &AtomicU32, written: &AtomicU64, states: [&AtomicU32; 4]) -> bool {
    // Relaxed: written by this rank.
    let written = written.load(Ordering::Relaxed);
    // Relaxed: a side that is being taken right now is found when this is asked again.
    if written > 0 && block.load(Ordering::Relaxed) == CREATED {
        return false;
    }
    // Relaxed twice: one word says who wins, here or in `attach`; what the other side did is ordered by its states.
    let untaken = block.compare_exchange(CREATED, 0, Ordering::Relaxed, Ordering::Relaxed);
    if matches!(untaken, Ok(_) | Err(0)) {
        return true;
    }
    states
        .iter()
        // SYNC: Acquire pairs with the Release in `Told::leave`: the side touches nothing after it.
        .all(|state| state.load(Ordering::Acquire) != OPEN)
}
