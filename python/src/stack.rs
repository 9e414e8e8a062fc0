//! Where in its Python program a thread is, for verdicts and dumps on a rank that others wait for.
//!
//! Python's own `faulthandler` writes the stack of the thread that gets a signal into a file: in the handler, without
//! the GIL, so that it works for a thread that sleeps, computes or hangs in a library and keeps the GIL. Here the
//! signal is sent to one thread, and the file, which lies in memory, is read.
//!
//! PYSTACK-1: the signal is a real-time one that nobody used when the first world was joined; if another handler is
//! there by now, nothing is sent.

#![expect(
    unsafe_code,
    reason = "a signal to one thread, and a file by its number"
)]

use std::fs::{self, File};
use std::os::fd::FromRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::sync::{Mutex, Once, PoisonError};
use std::time::Duration;

use muster_comm::sync::{Clock, Deadline};
use muster_comm::watch;
use muster_comm::watch::signal::{action_on, free, is_in};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// How long a thread may take to answer. One that has the signal blocked never does.
const PATIENCE: Duration = Duration::from_millis(100);
/// How often it is looked.
const STEP: Duration = Duration::from_micros(200);
/// Where the search for a free signal begins, below the last one for real-time use; those above are for stacks of other
/// programs.
const BELOW_LAST: i32 = 11;
/// Longest file that is read.
const BYTES_MAX: usize = 64 << 10;

struct Handler {
    signal: i32,
    /// What `faulthandler` has installed.
    address: usize,
    /// Where it writes.
    file: File,
}

static HANDLER: Mutex<Option<Handler>> = Mutex::new(None);

/// Makes stacks of this process known to verdicts. Called with the first world of a process that is a rank.
pub(crate) fn prepare(py: Python<'_>) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Without it verdicts show less: no reason to refuse a world.
        let Some(handler) = install(py) else { return };
        *HANDLER.lock().unwrap_or_else(PoisonError::into_inner) = Some(handler);
        watch::tell_stacks_by(of_thread);
    });
}

fn install(py: Python<'_>) -> Option<Handler> {
    let signal = free(BELOW_LAST)?;
    // SAFETY: the name is a C string; nothing else is asked of memory.
    let number = unsafe { libc::memfd_create(c"muster-stack".as_ptr(), libc::MFD_CLOEXEC) };
    if number < 0 {
        return None;
    }
    // SAFETY: the descriptor was just made and is owned by nobody else.
    let file = unsafe { File::from_raw_fd(number) };
    // SAFETY: it only sets a flag of our descriptor. A file that was cut to nothing is so written from its start.
    if unsafe { libc::fcntl(number, libc::F_SETFL, libc::O_APPEND) } != 0 {
        return None;
    }
    let options = PyDict::new(py);
    options.set_item("file", number).ok()?;
    options.set_item("all_threads", false).ok()?;
    let faulthandler = py.import("faulthandler").ok()?;
    faulthandler
        .call_method("register", (signal,), Some(&options))
        .ok()?;
    let address = action_on(signal)?;
    (address != libc::SIG_DFL).then_some(Handler {
        signal,
        address,
        file,
    })
}

/// The stack of a thread of this process; empty where it is not to be had.
fn of_thread(tid: i32) -> Vec<String> {
    let handler = HANDLER.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(handler) = &*handler else {
        return Vec::new();
    };
    if action_on(handler.signal) != Some(handler.address) || handler.file.set_len(0).is_err() {
        return Vec::new();
    }
    // SAFETY: the three numbers are all that the call takes.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), tid, handler.signal) };
    if sent != 0 {
        return Vec::new();
    }
    let deadline = Deadline::after(PATIENCE);
    loop {
        Clock::pause(STEP);
        let length = handler.file.metadata().map_or(0, |file| file.len());
        // While the handler writes, its signal is blocked.
        if length > 0 && is_through(tid, handler.signal) {
            break;
        }
        if deadline.passed() {
            break;
        }
    }
    let mut bytes = vec![0; BYTES_MAX];
    let read = handler.file.read_at(&mut bytes, 0).unwrap_or(0);
    watch::functions_of_python(&String::from_utf8_lossy(&bytes[..read]))
}

/// Whether a signal is neither on its way to a thread nor in its handler there.
fn is_through(tid: i32, signal: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/self/task/{tid}/status"));
    let Ok(status) = status else { return true };
    !is_in(&status, "SigPnd:", signal) && !is_in(&status, "SigBlk:", signal)
}
