//! How the tap writes calls and communicators down, and how others read them without a lock. It knows none of their fields.
//!
//! - TICKET-1: a call is valid where its ticket is the same before and after its fields were read: it is 0 while they are written.
//! - TICKET-2: a communicator's slot is valid where its state is not [`FREE`] and its generation is the same before and after. It is free
//!   while it goes over to another communicator, and the generation moves before the first field of that is written.

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// Nobody uses the slot, or it goes over to another communicator.
pub const FREE: u32 = 0;

/// Writes a call down, which gets this ticket. Tickets are not 0.
pub fn write_call(ticket: &AtomicU64, number: u64, fill: impl FnOnce()) {
    // Relaxed: ordered by the fence.
    ticket.store(0, Ordering::Relaxed);
    // SYNC: pairs with the fence in `read_call`: who sees a field of this call sees that the old ticket is gone.
    fence(Ordering::Release);
    fill();
    // SYNC: pairs with the Acquire in `read_call`: who sees the ticket sees the fields.
    ticket.store(number, Ordering::Release);
}

/// Reads the call of this ticket; `None` where it is not there, or not any more.
pub fn read_call<T>(
    ticket: &AtomicU64,
    number: u64,
    read: impl FnOnce() -> Option<T>,
) -> Option<T> {
    // SYNC: pairs with the Release in `write_call`.
    if ticket.load(Ordering::Acquire) != number {
        return None;
    }
    let read = read();
    // SYNC: pairs with the fence in `write_call`.
    fence(Ordering::Acquire);
    // Relaxed: ordered by the fence.
    (ticket.load(Ordering::Relaxed) == number).then_some(read)?
}

/// Hands a slot over: nobody reads it as the old communicator's from now on, nor as the new one's before it has a state.
pub fn take_over(state: &AtomicU32, generation: &AtomicU32) {
    // Relaxed: ordered by the Release below.
    state.store(FREE, Ordering::Relaxed);
    // SYNC: pairs with the Acquire in `read_slot`: who sees the new generation sees no state of the old communicator.
    generation.fetch_add(1, Ordering::Release);
    // SYNC: pairs with the fence in `read_slot`: who sees a field of the new communicator sees the new generation.
    fence(Ordering::Release);
}

/// Gives a slot this state, after the fields that belong to it.
pub fn set_state(state: &AtomicU32, to: u32) {
    // SYNC: pairs with the Acquire in `read_slot`.
    state.store(to, Ordering::Release);
}

/// Reads a slot in its state; `None` where nobody uses it, or another communicator does meanwhile.
pub fn read_slot<T>(
    state: &AtomicU32,
    generation: &AtomicU32,
    read: impl FnOnce(u32) -> Option<T>,
) -> Option<T> {
    // SYNC: pairs with the Release in `take_over`.
    let before = generation.load(Ordering::Acquire);
    // SYNC: pairs with the Release in `set_state`.
    let state = state.load(Ordering::Acquire);
    if state == FREE {
        return None;
    }
    let read = read(state);
    // SYNC: pairs with the fence in `take_over`.
    fence(Ordering::Acquire);
    // Relaxed: ordered by the fence.
    (generation.load(Ordering::Relaxed) == before).then_some(read)?
}
