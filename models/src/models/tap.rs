//! The tap's board: what is read of a call or a communicator belongs to one of them.

use std::sync::Arc;

use loom::thread;

use crate::board::tap::{read_call, read_slot, set_state, take_over, write_call};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

const FIELDS: usize = 2;
const LIVE: u32 = 2;
const GONE: u32 = 4;

#[derive(Debug, Default)]
struct Shared {
    ticket: AtomicU64,
    state: AtomicU32,
    generation: AtomicU32,
    fields: [AtomicU64; FIELDS],
}

impl Shared {
    fn fill(&self, value: u64) {
        for field in &self.fields {
            field.store(value, Ordering::Relaxed);
        }
    }

    /// Reads the fields, which must belong together.
    fn read(&self) -> [u64; FIELDS] {
        [0, 1].map(|at| self.fields[at].load(Ordering::Relaxed))
    }
}

/// Calls are written into one place, one after the other; a reader gets one of them whole, or none.
///
/// # Panics
/// Where it gets parts of several, or another one.
pub fn a_call_is_read_whole_or_not_at_all(calls: u64) {
    let shared = Arc::new(Shared::default());
    let writer = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || {
            for call in 1..=calls {
                write_call(&shared.ticket, call, || shared.fill(call));
            }
        })
    };
    for call in 1..=calls {
        let read = read_call(&shared.ticket, call, || Some(shared.read()));
        assert!(
            read.is_none_or(|fields| fields == [call; FIELDS]),
            "{read:?}"
        );
    }
    writer.join().expect("the writer ends well");
    let read = read_call(&shared.ticket, calls, || Some(shared.read()));
    assert_eq!(read, Some([calls; FIELDS]));
}

/// A communicator is made, goes, and another one gets its slot; a reader gets one of them whole, or none.
///
/// # Panics
/// Where it gets parts of both, or the state of the other one.
pub fn a_slot_is_read_as_one_communicators() {
    let shared = Arc::new(Shared::default());
    let writer = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || {
            shared.fill(1);
            set_state(&shared.state, LIVE);
            set_state(&shared.state, GONE);
            take_over(&shared.state, &shared.generation);
            shared.fill(2);
            set_state(&shared.state, LIVE);
        })
    };
    let read = read_slot(&shared.state, &shared.generation, |state| {
        Some((state, shared.read()))
    });
    if let Some((state, fields)) = read {
        assert!(fields == [1; FIELDS] || fields == [2; FIELDS], "{fields:?}");
        assert!(
            state == LIVE || fields == [1; FIELDS],
            "the first one's end"
        );
    }
    writer.join().expect("the writer ends well");
}
