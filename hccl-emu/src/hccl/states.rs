//! Who is told when a communicator is destroyed or resumed.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hccl_sys::types::{HcclCommStatePhase, HcclResult};

use super::comm::Comm;

/// Longest name of a registration.
pub(crate) const NAME_BYTES_MAX: usize = 160;

/// What a client registers.
pub(crate) type Callback =
    extern "C" fn(*mut c_void, HcclCommStatePhase, *mut c_void) -> HcclResult;

#[derive(Clone, Copy, Debug)]
struct Registered {
    callback: Callback,
    /// The client's own pointer, handed back and never followed.
    arguments: usize,
}

fn books() -> MutexGuard<'static, BTreeMap<String, Registered>> {
    static BOOKS: Mutex<BTreeMap<String, Registered>> = Mutex::new(BTreeMap::new());
    BOOKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers under a name, in place of what had it before; without callback takes that back.
pub(crate) fn register(name: &str, callback: Option<Callback>, arguments: *mut c_void) {
    let arguments = arguments.expose_provenance();
    match callback {
        Some(callback) => {
            let registered = Registered {
                callback,
                arguments,
            };
            books().insert(name.to_owned(), registered);
        }
        None => {
            books().remove(name);
        }
    }
}

/// Tells everybody, without a lock: a callback may register.
pub(crate) fn tell(comm: &Comm, phase: HcclCommStatePhase) {
    let all: Vec<Registered> = books().values().copied().collect();
    for registered in all {
        let handle = std::ptr::without_provenance_mut(comm.handle as usize);
        let arguments = std::ptr::with_exposed_provenance_mut(registered.arguments);
        // What a callback answers changes nothing: the communicator goes its way.
        let _ = (registered.callback)(handle, phase, arguments);
    }
}
