//! A look at other processes of this host, and at files that could outlive them. It changes nothing.
//!
//! Processes of one run are told from others by a mark: an assignment in the environment that they were
//! started with, which their children inherit.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use muster_comm::watch::process;

/// Folders in which a file outlives the process that made it.
const LASTING: [&str; 3] = ["/dev/shm", "/tmp", "/var/tmp"];

/// The processes that were started with `assignment`, a `NAME=value`, in their environment and run, or
/// could.
#[must_use]
pub fn marked(assignment: &str) -> Vec<i32> {
    processes()
        .filter(|pid| carries(*pid, assignment) && is_alive(*pid))
        .collect()
}

/// All processes of this host.
pub fn processes() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// Whether a process was started with this `NAME=value` in its environment. False for one that may not
/// be looked at, and for a moment while a program is being loaded: its environment is there a little later
/// than itself.
#[must_use]
pub fn carries(pid: i32, assignment: &str) -> bool {
    fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environ| {
        environ
            .split(|byte| *byte == 0)
            .any(|one| one == assignment.as_bytes())
    })
}

/// Whether a process runs, or could: it exists, and is neither a zombie nor about to be gone.
#[must_use]
pub fn is_alive(pid: i32) -> bool {
    let state = u32::try_from(pid).ok().and_then(process::state);
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// Files of anybody called muster in folders that outlive all of us.
#[must_use]
pub fn lasting_files() -> BTreeSet<PathBuf> {
    let entries = LASTING
        .iter()
        .flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    entries
        .filter(|entry| entry.file_name().to_string_lossy().contains("muster"))
        .map(|entry| entry.path())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use muster_comm::sync::{Clock, Deadline};

    use super::*;

    #[test]
    fn a_process_is_found_by_its_mark_until_it_has_ended() {
        let mark = format!("LOOKED_AT_BY={}", std::process::id());
        let (name, value) = mark.split_once('=').expect("an assignment");
        let mut child = Command::new("sleep")
            .arg("60")
            .env(name, value)
            .spawn()
            .expect("sleep can be started");
        let pid = i32::try_from(child.id()).expect("a process id");
        let deadline = Deadline::after(Duration::from_secs(20));
        let mut found = marked(&mark);
        while found.is_empty() && !deadline.passed() {
            Clock::pause(Duration::from_millis(1));
            found = marked(&mark);
        }
        child.kill().expect("it can be killed");
        // It is a zombie from its end to the wait.
        let deadline = Deadline::after(Duration::from_secs(20));
        while is_alive(pid) {
            assert!(!deadline.passed(), "it was killed");
            Clock::pause(Duration::from_millis(1));
        }
        let of_a_zombie = marked(&mark);
        child.wait().expect("it can be waited for");
        assert_eq!(found, [pid]);
        assert_eq!(of_a_zombie, [0; 0]);
        assert!(!is_alive(pid), "it is gone");
        assert_eq!(marked("LOOKED_AT_BY=nobody"), [0; 0]);
    }
}
