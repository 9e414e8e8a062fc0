//! Where in its program a thread of this process is: function by function, taken by the thread itself in a
//! handler, and put into words by who asked.
//!
//! - STACK-1: in the handler nothing allocates, locks or waits. It writes addresses into memory that is
//!   always there, and leaves `errno` as it was.
//! - STACK-2: the handler is installed when a stack is wanted for the first time, which is when others
//!   have waited for this rank in vain; only for a signal that nobody else uses; and it stays, so that a
//!   signal that comes late finds it.
//!
//! A program in another language has a stack of its own, which means more: [`tell_stacks_by`].
#![expect(unsafe_code, reason = "a signal handler, and a signal to one thread")]

use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::{Mutex, Once, OnceLock, PoisonError};
use std::time::Duration;

use super::signal::{action_on, free};
use crate::sync::{AtomicU32, AtomicUsize, Clock, Deadline, Ordering};

/// Functions of which a stack consists at most; what lies further out is left out.
const FRAMES_MAX: usize = 96;
/// Functions that are told.
const TOLD_MAX: usize = 24;
/// Functions that go into a verdict's line; all of them are in the dump.
const FUNCTIONS_MAX: usize = 8;
/// Longest part of the line that one rank's functions may be, in characters.
const TEXT_MAX: usize = 500;
/// How long a thread may take to answer. One that has the signal blocked never does.
const PATIENCE: Duration = Duration::from_millis(50);
/// How often it is looked.
const STEP: Duration = Duration::from_micros(200);
/// Where the search for a free signal begins, below the last one for real-time use.
const BELOW_LAST: i32 = 2;

/// The thread whose turn it is; 0 for none. The handler does nothing in any other.
static ASKED: AtomicU32 = AtomicU32::new(0);
/// Addresses that were taken, and one more once all are there.
static TAKEN: AtomicUsize = AtomicUsize::new(0);
static FRAMES: [AtomicUsize; FRAMES_MAX] = [const { AtomicUsize::new(0) }; FRAMES_MAX];
/// The signal that was found free; one caller at a time.
static SIGNAL: Mutex<Option<i32>> = Mutex::new(None);

/// How the stack of the program's own language is told.
static PROGRAM: OnceLock<fn(i32) -> Vec<String>> = OnceLock::new();

/// From now on verdicts and dumps show what `tell` says of a thread, which it is given by the number that the system
/// has for it: functions, the innermost first, and nothing where the thread is in no function of the program. It is
/// called on a thread of this crate and takes 100 ms at most. The first one stays.
pub fn tell_stacks_by(tell: fn(i32) -> Vec<String>) {
    // Whoever comes later has the same program.
    let _ = PROGRAM.set(tell);
}

/// Where a rank is, for the evidence of a verdict: what is too long is cut.
#[must_use]
pub fn in_words(rank: u32, stack: &[String]) -> String {
    let functions = stack[..stack.len().min(FUNCTIONS_MAX)].join(" < ");
    let text: String = functions.chars().take(TEXT_MAX).collect();
    format!("rank {rank} is in {text}")
}

/// What Python's `faulthandler` wrote of one thread or of several, as the functions of the last one that is in any, which
/// is the main thread: `name (file:line)`, the innermost first. A line without its end is left out.
#[must_use]
pub fn functions_of_python(text: &str) -> Vec<String> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let frame = |line: &str| {
        let rest = line.trim_start().strip_prefix("File \"")?;
        let (file, rest) = rest.rsplit_once("\", line ")?;
        let (line, function) = rest.split_once(" in ")?;
        let name = Path::new(file).file_name()?.to_string_lossy();
        Some(format!("{function} ({name}:{line})"))
    };
    let threads = whole.split("(most recent call first):");
    let functions = threads.map(|thread| thread.lines().filter_map(frame).take(TOLD_MAX).collect());
    let functions = functions.filter(|functions: &Vec<String>| !functions.is_empty());
    functions.last().unwrap_or_default()
}

/// Where a thread is in the program, and where the program does not tell, in this process; empty where neither can be
/// had.
pub(super) fn told_by_thread(tid: i32) -> Vec<String> {
    let told = PROGRAM.get().map(|tell| tell(tid));
    told.filter(|told| !told.is_empty())
        .unwrap_or_else(|| of_thread(tid))
}

/// The stack of a thread of this process, innermost function first; empty where it cannot be had.
fn of_thread(tid: i32) -> Vec<String> {
    let mut signal = SIGNAL.lock().unwrap_or_else(PoisonError::into_inner);
    if signal.is_none_or(|signal| !is_ours(signal)) {
        *signal = install();
    }
    let Some(signal) = *signal else {
        return Vec::new();
    };
    // The first walk of a process looks up tables, which must not happen in a handler.
    backtrace::trace(|_| false);
    TAKEN.store(0, Ordering::Relaxed);
    // SYNC: pairs with the Acquire in the handler: it sees the count that was reset.
    ASKED.store(tid.cast_unsigned(), Ordering::Release);
    let process = rustix::process::getpid().as_raw_nonzero().get();
    // SAFETY: the three numbers are all that the call takes.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, process, tid, signal) } == 0;
    let deadline = Deadline::after(PATIENCE);
    // SYNC: pairs with the Release in the handler: the addresses are there.
    while sent && TAKEN.load(Ordering::Acquire) == 0 && !deadline.passed() {
        Clock::pause(STEP);
    }
    // SYNC: as above, for a handler that comes late.
    ASKED.store(0, Ordering::Release);
    let taken = TAKEN.load(Ordering::Acquire).saturating_sub(1);
    let frames = FRAMES[..taken.min(FRAMES_MAX)]
        .iter()
        // Relaxed: ordered by TAKEN.
        .map(|frame| frame.load(Ordering::Relaxed));
    told(&frames.collect::<Vec<_>>())
}

/// Looks up what names of functions are made of, on a thread of its own: some tenths of a second for the first
/// name of a large program.
pub(super) fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let thread = std::thread::Builder::new().name("muster-names".to_owned());
        // Without the thread the first names only come later.
        let _ = thread.spawn(|| {
            let own: fn() = prepare;
            backtrace::resolve(own as *mut std::ffi::c_void, |_| {});
        });
    });
}

/// The number by which the system knows the calling thread.
pub(super) fn own_tid() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

type Handler = extern "C" fn(i32);

extern "C" fn handler(_: i32) {
    // SAFETY: the location of this thread's errno is always valid.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let kept = unsafe { errno.read() };
    // SYNC: pairs with the Release in `of_thread`.
    if ASKED.load(Ordering::Acquire) == own_tid().cast_unsigned() {
        let mut taken = 0;
        let take = |frame: &backtrace::Frame| {
            // Relaxed: ordered by TAKEN below.
            FRAMES[taken].store(frame.ip().addr(), Ordering::Relaxed);
            taken += 1;
            taken < FRAMES_MAX
        };
        // SAFETY: `ASKED` lets one thread in at a time, and nothing here needs the lock of the
        // synchronised form, which a handler must not take.
        unsafe { backtrace::trace_unsynchronized(take) };
        // SYNC: pairs with the Acquire in `of_thread`.
        TAKEN.store(taken + 1, Ordering::Release);
    }
    // SAFETY: as above.
    unsafe { errno.write(kept) };
}

fn is_ours(signal: i32) -> bool {
    action_on(signal) == Some((handler as Handler) as usize)
}

/// Takes a signal that nobody uses.
fn install() -> Option<i32> {
    let signal = free(BELOW_LAST)?;
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    let place = action.as_mut_ptr();
    // SAFETY: `place` is valid memory, and all zeroes are a valid action.
    unsafe { (*place).sa_sigaction = (handler as Handler) as usize };
    // SAFETY: as above.
    unsafe { (*place).sa_flags = libc::SA_RESTART | libc::SA_ONSTACK };
    // SAFETY: the handler keeps STACK-1, and lives as long as the process.
    let set = unsafe { libc::sigaction(signal, place, std::ptr::null_mut()) };
    (set == 0).then_some(signal)
}

/// Addresses in words: `function (file:line)`.
fn told(frames: &[usize]) -> Vec<String> {
    let mut told: Vec<String> = Vec::new();
    for ip in frames {
        if told.len() == TOLD_MAX {
            break;
        }
        // The address of a return lies behind the call that it belongs to.
        let address = std::ptr::without_provenance_mut(ip.saturating_sub(1));
        let mut is_named = false;
        backtrace::resolve(address, |symbol| {
            is_named = true;
            told.push(words(symbol));
        });
        if !is_named {
            told.push(format!("{ip:#x}"));
        }
    }
    // What lies inside is the handler itself, down to where the system entered it.
    let own = told.iter().rposition(|one| is_handler(one));
    let mut told = told.split_off(own.map_or(0, |own| own + 1));
    let is_entry = |one: &String| one.contains("restore_rt") || one.starts_with("0x");
    let entry = told.iter().take_while(|one| is_entry(one)).count();
    told.drain(..entry);
    // What started the program or the thread is the same everywhere.
    let start = told.iter().position(|one| {
        one.contains("__rust_begin_short_backtrace") || one.contains("__libc_start")
    });
    told.truncate(start.unwrap_or(told.len()));
    told
}

/// Whether this is the handler. Without more than line tables it has no path in front of its name.
fn is_handler(function: &str) -> bool {
    function.contains("watch::stack::handler") || function.starts_with("handler (stack.rs:")
}

fn words(symbol: &backtrace::Symbol) -> String {
    let name = symbol.name().map_or_else(
        || "a function without a name".to_owned(),
        // Without the hash.
        |name| format!("{name:#}"),
    );
    let file = symbol.filename().and_then(|file| file.file_name());
    match (file, symbol.lineno()) {
        (Some(file), Some(line)) => format!("{name} ({}:{line})", file.to_string_lossy()),
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[inline(never)]
    fn stuck_in_here(ready: &std::sync::mpsc::Sender<i32>, end: &std::sync::mpsc::Receiver<()>) {
        ready.send(own_tid()).unwrap();
        let _ = end.recv();
        std::hint::black_box(());
    }

    #[test]
    fn of_what_python_wrote_the_main_thread_is_told_and_a_half_line_is_not() {
        let text = "Thread 0x7f12 (most recent call first):\n  File \"/a/queue.py\", line 5 in get\n\n\
                    Current thread 0x7f34 (most recent call first):\n  File \"/a/b/train.py\", line 57 in load\n  \
                    File \"/a/b/train.py\", line 80 in <module>\n  File \"/a/b/ru";
        assert_eq!(
            functions_of_python(text),
            ["load (train.py:57)", "<module> (train.py:80)"]
        );
        assert!(functions_of_python("Thread 0x7f12 (most recent call first):\n").is_empty());
    }

    #[test]
    fn a_thread_that_waits_tells_where_and_goes_on() {
        let (ready, tid) = channel();
        let (end, over) = channel::<()>();
        let thread = std::thread::spawn(move || {
            stuck_in_here(&ready, &over);
            7
        });
        let tid = tid.recv().unwrap();
        for _ in 0..3 {
            let stack = of_thread(tid);
            let is_there = |one: &String| one.contains("stuck_in_here");
            assert!(stack.iter().any(is_there), "{stack:#?}");
            let is_ours = |one: &String| one.contains("backtrace") || one.contains("handler");
            assert!(!stack.iter().any(is_ours), "{stack:#?}");
            assert!(!stack[0].starts_with("0x"), "{stack:#?}");
        }
        drop(end);
        assert_eq!(thread.join().unwrap(), 7);
        assert_eq!(of_thread(tid), [""; 0]);
    }

    #[test]
    fn a_signal_that_others_use_is_left_to_them() {
        assert_eq!(action_on(libc::SIGUSR2), Some(libc::SIG_DFL));
        assert!(!is_ours(libc::SIGUSR2));
    }
}
