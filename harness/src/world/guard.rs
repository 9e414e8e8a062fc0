//! The guard: a process that outlives a killed launcher for a moment and ends what that has left.
//!
//! Ranks end with their launcher by themselves (`tether`), but what ranks have started does not. The guard
//! holds one end of a pipe; when the launcher is gone without a word it kills the process groups of the
//! ranks, and then every process that carries the launcher's mark in its environment, until there is
//! none.
//!
//! - GUARD-1: it never kills by number alone: a process is held by a pidfd, looked at, and then killed.
//! - GUARD-2: it carries neither the mark nor anything else of the launcher: no descriptor, no
//!   terminal, no environment.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use muster_comm::sync::{Clock, Deadline};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::world::look;
use crate::world::ranks::own_program;

/// What a launcher that ends in order says.
const DONE: u8 = b'.';
/// How long the guard looks for processes that are left.
const SEARCH: Duration = Duration::from_secs(5);
/// Between two looks. What is killed needs a moment, and what was being started shows then.
const PAUSE: Duration = Duration::from_millis(20);
/// Looks in a row that must find nothing.
const QUIET: u32 = 3;

/// The variable that marks what belongs to a launcher: all its ranks get it, and what they start
/// inherits it.
fn mark(launcher: u32) -> String {
    format!("MUSTER_LAUNCHER_PID={launcher}")
}

/// The launcher's side. Dropping it tells the guard that all is in order, and waits for its end.
#[derive(Debug)]
pub struct Guard {
    child: Child,
}

impl Guard {
    /// Starts a guard over this process.
    pub fn start() -> std::io::Result<Self> {
        let child = Command::new(own_program())
            .args(["__guard", "--launcher", &std::process::id().to_string()])
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C on the terminal is not for it.
            .process_group(0)
            .current_dir("/")
            .spawn()?;
        Ok(Self { child })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(mut pipe) = self.child.stdin.take() {
            // One that is gone needs no word.
            let _ = pipe.write_all(&[DONE]);
        }
        let _ = self.child.wait();
    }
}

/// The guard itself: waits for the end of the launcher, and ends what that leaves behind.
pub fn watch(launcher: u32) {
    let mut byte = [0_u8];
    // An error is an end as well.
    if matches!(std::io::stdin().lock().read(&mut byte), Ok(1)) {
        return;
    }
    let deadline = Deadline::after(SEARCH);
    let mut quiet = 0;
    while quiet < QUIET && !deadline.passed() {
        let killed = marked(&mark(launcher))
            .iter()
            .filter(|process| pidfd_send_signal(process, Signal::KILL).is_ok())
            .count();
        quiet = if killed == 0 { quiet + 1 } else { 0 };
        Clock::pause(PAUSE);
    }
}

/// Processes that carry the mark and run (GUARD-1).
fn marked(mark: &str) -> Vec<OwnedFd> {
    let held = |pid| {
        let held = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        look::carries(pid, mark).then_some(held)
    };
    look::processes().filter_map(held).collect()
}
