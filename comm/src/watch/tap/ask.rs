//! Asks a process under the tap where its Python program is.
//!
//! ASK-1: the signal is sent only while the process has the file that Python writes to, and catches the signal.

#![expect(unsafe_code, reason = "a signal for real-time use to a process")]

use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::ptr;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::board::{Board, STACK_FILE};
use crate::rendezvous::ProcessId;
use crate::sync::{Clock, Deadline, Ordering};
use crate::watch::process::number;
use crate::watch::signal::is_in;
use crate::watch::stack::functions_of_python;

/// How long Python may take to write.
const PATIENCE: Duration = Duration::from_millis(300);
/// How often it is looked; what has not grown meanwhile is whole.
const STEP: Duration = Duration::from_millis(5);
/// Longest text that is read.
const BYTES_MAX: usize = 64 << 10;

/// Where the main thread of a Python program is; empty where that cannot be had.
pub(super) fn stack_of(board: &Board, process: &ProcessId) -> Vec<String> {
    ask(board, process).map_or_else(Vec::new, |text| functions_of_python(&text))
}

fn ask(board: &Board, process: &ProcessId) -> Option<String> {
    // Acquire: the descriptor was written before it.
    let signal = i32::try_from(board.stack_signal.load(Ordering::Acquire)).ok()?;
    let descriptor = board.stack_file.load(Ordering::Relaxed);
    let pid = number(process)?;
    let pidfd = pidfd_open(
        Pid::from_raw(i32::try_from(pid).ok()?)?,
        PidfdFlags::empty(),
    )
    .ok()?;
    let path = format!("/proc/{pid}/fd/{descriptor}");
    let is_there = || {
        let target = fs::read_link(&path).ok()?;
        let name = target.to_str()?.strip_prefix("/memfd:")?;
        name.starts_with(STACK_FILE.to_str().ok()?).then_some(())
    };
    is_there()?;
    let file = File::open(&path).ok()?;
    let length = || file.metadata().map_or(0, |file| file.len());
    let before = length();
    // The descriptor is of this process, and so what is seen here is too.
    if number(process) != Some(pid) || !catches(pid, signal) {
        return None;
    }
    let nothing = ptr::null::<libc::siginfo_t>();
    // SAFETY: it takes three numbers and no memory.
    let sent = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal,
            nothing,
            0,
        )
    };
    if sent != 0 {
        return None;
    }
    let (deadline, mut seen) = (Deadline::after(PATIENCE), before);
    while !deadline.passed() {
        Clock::pause(STEP);
        let now = length();
        if now > before && now == seen {
            break;
        }
        seen = now;
    }
    let mut bytes = vec![0; BYTES_MAX];
    let read = file.read_at(&mut bytes, before).ok()?;
    Some(String::from_utf8_lossy(&bytes[..read]).into_owned())
}

/// Whether a process has a handler for a signal, without which that might end it.
fn catches(pid: u32, signal: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    is_in(&status, "SigCgt:", signal)
}
