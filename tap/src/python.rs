//! Where a Python program is: Python's own `faulthandler` writes the stacks of all threads into a file in memory when a
//! signal comes, also of a thread that sleeps or hangs in a library.
//!
//! PYTHON-1: Python is called only where it calls us, in its main thread: nothing waits for it.

#![expect(unsafe_code, reason = "calls into Python, and a file")]
#![expect(
    clippy::disallowed_methods,
    reason = "the library has no configuration but variables"
)]

use std::env;
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use muster_comm::watch::signal::{action_on, free};
use muster_comm::watch::tap::board::{Board, STACK_FILE};

use crate::real::of_program;

/// Where the search for a free signal begins, below the last one for real-time use: those above are for stacks of other
/// programs.
const BELOW_LAST: i32 = 20;

/// What Python does on the signal; written before the signal is told.
static ACTION: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);

/// Has the handler installed as soon as the main thread of a Python program runs.
pub(crate) fn prepare(board: &'static Board) {
    let is_off = env::var_os("MUSTER_TAP_STACKS").is_some_and(|value| value == "0");
    let add = of_program(c"Py_AddPendingCall");
    let is_there = of_program(c"Py_IsInitialized");
    if is_off || add.is_null() || is_there.is_null() {
        return;
    }
    type IsThere = unsafe extern "C" fn() -> c_int;
    // SAFETY: Python's function, which has no arguments.
    let is_there = unsafe { std::mem::transmute::<*mut c_void, IsThere>(is_there) };
    // SAFETY: any thread may call it, at any time.
    if (unsafe { is_there() }) == 0 {
        return;
    }
    type Add = unsafe extern "C" fn(extern "C" fn(*mut c_void) -> c_int, *mut c_void) -> c_int;
    // SAFETY: Python's function, with the arguments that it has had since 2.7.
    let add = unsafe { std::mem::transmute::<*mut c_void, Add>(add) };
    let argument = std::ptr::from_ref(board).cast_mut().cast();
    // SAFETY: any thread may call it, at any time; the board stays.
    unsafe { add(install, argument) };
}

/// Called by Python in its main thread.
extern "C" fn install(board: *mut c_void) -> c_int {
    // SAFETY: it is what `prepare` gave, which is never unmapped.
    let board = unsafe { &*board.cast::<Board>() };
    let signal = free(BELOW_LAST);
    let run = of_program(c"PyRun_SimpleString");
    if let (Some(signal), false) = (signal, run.is_null()) {
        type Run = unsafe extern "C" fn(*const c_char) -> c_int;
        // SAFETY: Python's function, with the argument that it has always had.
        let run = unsafe { std::mem::transmute::<*mut c_void, Run>(run) };
        register(board, signal, |code| {
            CString::new(code).is_ok_and(|code| {
                // SAFETY: Python called this, so that its lock is held; the text is a C string.
                (unsafe { run(code.as_ptr()) }) == 0
            })
        });
    }
    0
}

fn register(board: &Board, signal: i32, run: impl FnOnce(String) -> bool) {
    // SAFETY: the name is a C string; nothing else is asked of memory.
    let file = unsafe { libc::memfd_create(STACK_FILE.as_ptr(), libc::MFD_CLOEXEC) };
    if file < 0 {
        return;
    }
    // SAFETY: it only sets a flag of our descriptor.
    unsafe { libc::fcntl(file, libc::F_SETFL, libc::O_APPEND) };
    let has_run = run(format!(
        "try:\n    __import__('faulthandler').register({signal}, file={file}, all_threads=True)\n\
         except Exception:\n    pass\n"
    ));
    let action = action_on(signal).unwrap_or(libc::SIG_DFL);
    if !has_run || action == libc::SIG_DFL {
        // SAFETY: the descriptor is ours, and nobody else has it.
        unsafe { libc::close(file) };
        return;
    }
    ACTION.store(action, Ordering::Relaxed);
    board
        .stack_file
        .store(file.cast_unsigned(), Ordering::Relaxed);
    board
        .stack_signal
        .store(signal.cast_unsigned(), Ordering::Release);
}

/// Nobody is to send the signal any more where the program has taken it for itself.
pub(crate) fn check(board: &Board) {
    let signal = board.stack_signal.load(Ordering::Acquire);
    let action = action_on(signal.cast_signed());
    if signal != 0 && action != Some(ACTION.load(Ordering::Relaxed)) {
        board.stack_signal.store(0, Ordering::Release);
    }
}
