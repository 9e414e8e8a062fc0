//! The board of the process: its file in shared memory, and the thread that looks which calls are complete.
//!
//! SHARED-1: the board is made with the first communicator, removed when the process exits, and not a forked child's.

#![expect(unsafe_code, reason = "the board's memory")]
#![expect(
    clippy::disallowed_methods,
    reason = "the library has no configuration but variables, and does not take muster into the program"
)]

use std::fs::{self, OpenOptions};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Once, OnceLock};
use std::time::Duration;
use std::{env, process, ptr, thread};

use muster_comm::watch::tap::board::{
    Board, COMMS, MAGIC, Mark, PREFIX, RING, UNKNOWN, VERSION, hash, job_of,
};

use crate::python;
use crate::streams::{self, Progress};

/// How often the tap's thread asks which calls are complete.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Variables that hold the rank of a process, by launcher.
const RANKS: [&str; 7] = [
    "MUSTER_RANK",
    "RANK",
    "OMPI_COMM_WORLD_RANK",
    "PMIX_RANK",
    "PMI_RANK",
    "SLURM_PROCID",
    "RANK_ID",
];
/// Variables that hold the number of ranks.
const SIZES: [&str; 7] = [
    "MUSTER_WORLD_SIZE",
    "WORLD_SIZE",
    "OMPI_COMM_WORLD_SIZE",
    "PMI_SIZE",
    "SLURM_NTASKS",
    "RANK_SIZE",
    "MS_WORKER_NUM",
];
/// Variables that tell jobs of one user apart.
const JOBS: [&str; 4] = [
    "MUSTER_TAP_JOB",
    "SLURM_JOB_ID",
    "MASTER_ADDR",
    "MASTER_PORT",
];

/// The board; null where there is none, or no longer.
static BOARD: AtomicPtr<Board> = AtomicPtr::new(ptr::null_mut());
static PATH: OnceLock<PathBuf> = OnceLock::new();
/// The process that has the board.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// The board, where there is one and this process owns it.
pub(crate) fn board() -> Option<&'static Board> {
    // Acquire: pairs with the release in `make`.
    let board = BOARD.load(Ordering::Acquire);
    // SAFETY: the memory is never unmapped.
    (!board.is_null()).then(|| unsafe { &*board })
}

/// Runs a part of the tap; a panic in it ends the recording, and nothing else.
pub(crate) fn guarded<T>(part: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(part))
        .map_err(|_| disable())
        .ok()
}

/// Records nothing any more.
fn disable() {
    if let Some(board) = board() {
        board.is_disabled.store(1, Ordering::Relaxed);
    }
    BOARD.store(ptr::null_mut(), Ordering::Release);
}

pub(crate) fn now_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the answer has its place.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Makes the board with the first communicator.
pub(crate) fn start() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let is_off = env::var_os("MUSTER_TAP").is_some_and(|value| value == "0");
        if !is_off && let Some(board) = make() {
            OWNER.store(process::id(), Ordering::Relaxed);
            BOARD.store(board, Ordering::Release);
            // SAFETY: the functions may run after a fork and at the end of the process, and do not wait.
            unsafe { libc::pthread_atfork(None, None, Some(forked)) };
            // SAFETY: as above.
            unsafe { libc::atexit(remove) };
            // SAFETY: the mapping stays.
            python::prepare(unsafe { &*board });
            watch();
        }
    });
}

extern "C" fn forked() {
    BOARD.store(ptr::null_mut(), Ordering::Release);
}

extern "C" fn remove() {
    if OWNER.load(Ordering::Relaxed) == process::id()
        && let Some(path) = PATH.get()
    {
        // Who reads boards removes it otherwise.
        let _ = fs::remove_file(path);
    }
}

fn make() -> Option<*mut Board> {
    let started = started_ticks()?;
    // SAFETY: it only asks.
    let user = unsafe { libc::getuid() };
    let path = PathBuf::from(format!(
        "/dev/shm/{PREFIX}{user}-{}-{started}",
        process::id()
    ));
    let mut options = OpenOptions::new();
    let file = options
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .ok()?;
    let bytes = size_of::<Board>();
    file.set_len(bytes as u64).ok()?;
    // SAFETY: a new mapping of a file that has this length.
    let memory = unsafe {
        libc::mmap(
            ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    if memory == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the mapping was just made; a child does not need it.
    unsafe { libc::madvise(memory, bytes, libc::MADV_DONTFORK) };
    let board = memory.cast::<Board>();
    // SAFETY: zeroes are a board, and the mapping stays.
    let shared = unsafe { &*board };
    let number = |names: &[&str]| {
        let of = |name: &&str| env::var(name).ok()?.parse().ok();
        names.iter().find_map(of).unwrap_or(UNKNOWN)
    };
    shared.version.store(VERSION, Ordering::Relaxed);
    shared.pid.store(process::id(), Ordering::Relaxed);
    shared.world_rank.store(number(&RANKS), Ordering::Relaxed);
    shared.world_size.store(number(&SIZES), Ordering::Relaxed);
    let namespace = fs::metadata("/proc/self/ns/pid").map_or(0, |about| about.ino());
    shared.namespace.store(namespace, Ordering::Relaxed);
    shared.job.store(job(), Ordering::Relaxed);
    shared.magic.store(MAGIC, Ordering::Release);
    // The first caller wins; there is only one.
    let _ = PATH.set(path);
    Some(board)
}

/// A number for the job: the first variable that says one, or else the address of its master.
fn job() -> u64 {
    let of = |name: &&str| env::var(name).ok().filter(|value| !value.is_empty());
    match JOBS[..2].iter().find_map(of) {
        Some(name) => job_of(&name),
        None => JOBS[2..]
            .iter()
            .filter_map(of)
            .fold(0, |seed, value| hash(value.as_bytes(), seed)),
    }
}

/// When the process started, as its host counts, which tells it from a later one of the same number.
fn started_ticks() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/stat").ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    rest.split_whitespace().nth(19)?.parse().ok()
}

/// The tap's thread, which looks what is complete.
fn watch() {
    let is_off = env::var_os("MUSTER_TAP_EVENTS").is_some_and(|value| value == "0");
    if is_off || !streams::are_observable() {
        return;
    }
    let looks = || {
        while let Some(board) = board() {
            if guarded(|| {
                python::check(board);
                streams::look(|stream, order, progress| tell(board, stream, order, progress));
                if let Some(code) = streams::error() {
                    note_error(board, code, None);
                }
            })
            .is_none()
            {
                return;
            }
            thread::sleep(LOOK_EVERY);
        }
    };
    let thread = thread::Builder::new().name("muster-tap".to_owned());
    if thread.spawn(looks).is_ok()
        && let Some(board) = board()
    {
        board.has_events.store(1, Ordering::Relaxed);
    }
}

/// Writes down the first error that the vendor's libraries report, and the slot of the communicator that has it.
pub(crate) fn note_error(board: &Board, code: i32, slot: Option<usize>) {
    let number = code.cast_unsigned();
    let is_first = board
        .error
        .compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed)
        .is_ok();
    if is_first {
        let slot = slot.and_then(|slot| u32::try_from(slot).ok());
        board
            .error_comm
            .store(slot.unwrap_or(UNKNOWN), Ordering::Relaxed);
        board.error_ns.store(now_ns(), Ordering::Release);
    }
}

/// Writes down how far a stream has come: with the call of this number.
fn tell(board: &Board, stream: u64, order: u64, progress: Progress) {
    let now = now_ns();
    let mark = match progress {
        Progress::Complete => None,
        Progress::Behind => Some(Mark::Behind),
        Progress::Begun => Some(Mark::Begun),
    };
    let used = usize::try_from(board.comms_used.load(Ordering::Relaxed)).unwrap_or(0);
    for comm in &board.comms[..used.min(COMMS)] {
        let calls = comm.calls.load(Ordering::Acquire);
        let oldest = calls.saturating_sub(RING as u64 - 1).max(1);
        for ticket in (oldest..=calls).rev() {
            let Ok(place) = usize::try_from(ticket % RING as u64) else {
                return;
            };
            let call = &comm.ring[place];
            let is_it = call.ticket.load(Ordering::Acquire) == ticket
                && call.stream.load(Ordering::Relaxed) == stream
                && call.order.load(Ordering::Relaxed) <= order;
            if !is_it {
                continue;
            }
            if let Some(mark) = mark {
                if call.order.load(Ordering::Relaxed) == order {
                    call.mark.store(mark as u32, Ordering::Release);
                }
                break;
            }
            if call.finished_ns.load(Ordering::Relaxed) != 0 {
                break;
            }
            call.finished_ns.store(now, Ordering::Relaxed);
        }
    }
}
