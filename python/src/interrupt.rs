//! Ctrl-C during a call: Python's own handler only sets a flag, and a thread that waits in a call does not look at it.
//!
//! A handler in front of Python's writes a byte into a pipe and calls Python's. A thread reads the pipe and cancels
//! the blocking calls of the process. They return, and then Python raises `KeyboardInterrupt` as usual.
//!
//! INTERRUPT-1: nothing is installed where the program has no handler for SIGINT. What a program installs later is
//! found and put behind this handler within 100 ms of the next call.

#![expect(unsafe_code, reason = "a signal handler and its pipe")]

use std::ffi::c_int;
use std::io::Read as _;
use std::mem;
use std::os::fd::{FromRawFd as _, IntoRawFd as _};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use muster_comm::collective::Communicator;
use muster_comm::sync::{AtomicU32, AtomicUsize, Clock, Ordering};

/// How often it is checked that the handler is still in place.
const CHECK_EVERY: Duration = Duration::from_millis(100);
/// What cancelled calls say.
const WHY: &str = "interrupted by Ctrl-C";

/// The end of the pipe that the handler writes to, and the process whose pipe it is; a forked child has none.
static PIPE: AtomicU32 = AtomicU32::new(0);
static OWNER: AtomicU32 = AtomicU32::new(0);
/// Python's handler: its address and flags.
static BEHIND: AtomicUsize = AtomicUsize::new(0);
static BEHIND_FLAGS: AtomicU32 = AtomicU32::new(0);

static CALLS: Mutex<Calls> = Mutex::new(Calls {
    next: 0,
    blocking: Vec::new(),
    checked: None,
});

struct Calls {
    next: u64,
    blocking: Vec<(u64, Communicator)>,
    checked: Option<Instant>,
}

/// A blocking call, as long as it lasts.
pub(crate) struct Blocking(u64);

/// A blocking call begins.
pub(crate) fn enter(comm: &Communicator) -> Blocking {
    let mut calls = CALLS.lock().unwrap_or_else(PoisonError::into_inner);
    let now = Clock::now();
    if calls
        .checked
        .is_none_or(|checked| now.duration_since(checked) >= CHECK_EVERY)
    {
        calls.checked = Some(now);
        install();
    }
    calls.next += 1;
    let number = calls.next;
    calls.blocking.push((number, comm.clone()));
    Blocking(number)
}

impl Drop for Blocking {
    fn drop(&mut self) {
        let mut calls = CALLS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = calls
            .blocking
            .iter()
            .position(|(number, _)| *number == self.0)
        {
            let gone = calls.blocking.swap_remove(at);
            drop(calls);
            // The last clone of a communicator destroys its group, which takes locks of its own.
            drop(gone);
        }
    }
}

extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // Relaxed: written before the handler was installed.
    let (pipe, owner) = (PIPE.load(Ordering::Relaxed), OWNER.load(Ordering::Relaxed));
    // SAFETY: getpid may be called in a handler.
    if owner == unsafe { libc::getpid() }.cast_unsigned() {
        // SAFETY: write may be called in a handler; the pipe does not block, and a byte too few does no harm.
        unsafe { libc::write(pipe.cast_signed(), [1_u8].as_ptr().cast(), 1) };
    }
    // Relaxed: as above.
    let behind = BEHIND.load(Ordering::Relaxed);
    if BEHIND_FLAGS.load(Ordering::Relaxed).cast_signed() & libc::SA_SIGINFO == 0 {
        // SAFETY: it was installed as a handler of this kind.
        let handler = unsafe { mem::transmute::<usize, extern "C" fn(c_int)>(behind) };
        handler(signal);
    } else {
        type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut libc::c_void);
        // SAFETY: it was installed as a handler of this kind.
        let handler = unsafe { mem::transmute::<usize, Handler>(behind) };
        handler(signal, info, context);
    }
}

/// Puts the handler in front of the program's, where that is not so already.
fn install() {
    // SAFETY: an all-zero sigaction is one.
    let mut now: libc::sigaction = unsafe { mem::zeroed() };
    // SAFETY: it only reads the handler.
    let read = unsafe { libc::sigaction(libc::SIGINT, std::ptr::null(), &raw mut now) };
    let ours = on_signal as *const () as usize;
    let none = [libc::SIG_DFL, libc::SIG_IGN, ours];
    if read != 0 || none.contains(&now.sa_sigaction) || !has_pipe() {
        return;
    }
    // Relaxed: read by the handler, which is installed after this.
    BEHIND.store(now.sa_sigaction, Ordering::Relaxed);
    BEHIND_FLAGS.store(now.sa_flags.cast_unsigned(), Ordering::Relaxed);
    let mut next = now;
    next.sa_sigaction = ours;
    next.sa_flags |= libc::SA_SIGINFO;
    // SAFETY: the handler does only what handlers may, and lives as long as the process.
    unsafe { libc::sigaction(libc::SIGINT, &raw const next, std::ptr::null_mut()) };
}

/// Whether this process has the pipe and the thread that reads it; makes them.
fn has_pipe() -> bool {
    let process = std::process::id();
    // Relaxed: under the lock of `CALLS`.
    if OWNER.load(Ordering::Relaxed) == process {
        return true;
    }
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return false;
    }
    // SAFETY: the descriptor was just made and is owned by nobody else.
    let mut reader = unsafe { std::fs::File::from_raw_fd(ends[0]) };
    // SAFETY: as for the reader.
    let writer = unsafe { std::fs::File::from_raw_fd(ends[1]) };
    let started = thread::Builder::new()
        .name("muster-sigint".to_owned())
        .spawn(move || {
            let mut byte = [0];
            while reader.read_exact(&mut byte).is_ok() {
                cancel_all();
            }
        });
    if started.is_err() {
        return false;
    }
    // Relaxed: the handler is installed after this.
    PIPE.store(writer.into_raw_fd().cast_unsigned(), Ordering::Relaxed);
    OWNER.store(process, Ordering::Relaxed);
    true
}

fn cancel_all() {
    let calls = CALLS.lock().unwrap_or_else(PoisonError::into_inner);
    for (_, comm) in &calls.blocking {
        comm.cancel(WHY);
    }
}
