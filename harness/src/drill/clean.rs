//! What a run has left behind: processes, files, ports, descriptors of the drill itself.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use muster_comm::sync::{Clock, Deadline};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::world::look;

/// Variable that marks the processes of one run.
pub const MARK: &str = "DRILL_RUN";
/// Time in which what is on its way out must be gone.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often that is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What was there before a run.
#[derive(Clone, Debug)]
pub struct Before {
    files: BTreeSet<PathBuf>,
    descriptors: usize,
}

impl Before {
    /// Looks now.
    #[must_use]
    pub fn look() -> Self {
        Self {
            files: look::lasting_files(),
            descriptors: descriptors(),
        }
    }

    /// What is left of the run with this mark, in words; empty where all is as before. `ports` are those
    /// on which its processes listened.
    #[must_use]
    pub fn leaks(&self, mark: &str, ports: &[u16]) -> Vec<String> {
        let deadline = Deadline::after(PATIENCE);
        loop {
            let leaks = self.leaks_now(mark, ports);
            if leaks.is_empty() || deadline.passed() {
                return leaks;
            }
            Clock::pause(LOOK_EVERY);
        }
    }

    fn leaks_now(&self, mark: &str, ports: &[u16]) -> Vec<String> {
        let mut leaks: Vec<String> = marked(mark)
            .into_iter()
            .map(|pid| format!("process {pid} ({})", name_of(pid)))
            .collect();
        leaks.extend(
            look::lasting_files()
                .difference(&self.files)
                .map(|file| format!("file {}", file.display())),
        );
        let listening = listening_ports();
        let held = ports.iter().filter(|port| listening.contains(port));
        leaks.extend(held.map(|port| format!("port {port}")));
        leaks
    }

    /// Descriptors that the drill itself has more than before.
    #[must_use]
    pub fn own_leak(&self) -> Option<String> {
        let deadline = Deadline::after(PATIENCE);
        loop {
            let more = descriptors().saturating_sub(self.descriptors);
            if more == 0 || deadline.passed() {
                return (more > 0).then(|| format!("{more} descriptors of the drill itself"));
            }
            Clock::pause(LOOK_EVERY);
        }
    }
}

/// The processes with this mark that are no zombies.
#[must_use]
pub fn marked(mark: &str) -> Vec<i32> {
    look::marked(&format!("{MARK}={mark}"))
}

/// Further descriptors of everything that a process has open: what it holds open outlives it, as with a child
/// that it has forked.
#[must_use]
pub fn descriptors_of(pid: i32) -> Vec<OwnedFd> {
    let process = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let Some(process) = process else {
        return Vec::new();
    };
    let entries = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten();
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    // One that has just been closed is none.
    numbers
        .filter_map(|number| pidfd_getfd(&process, number, PidfdGetfdFlags::empty()).ok())
        .collect()
}

/// Connections of a process: its own port and the other side's.
#[must_use]
pub fn connections_of(pid: i32) -> Vec<(u16, u16)> {
    // 01 is ESTABLISHED.
    sockets_of(pid, "01")
}

/// Ports of TCP on which these processes listen.
#[must_use]
pub fn ports_of(pids: &[i32]) -> Vec<u16> {
    // 0A is LISTEN.
    let mut ports: Vec<u16> = pids
        .iter()
        .flat_map(|pid| sockets_of(*pid, "0A"))
        .map(|(own, _)| own)
        .collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

/// The sockets of TCP of a process in this state: its own port and the other side's.
fn sockets_of(pid: i32, state: &str) -> Vec<(u16, u16)> {
    let inodes: BTreeSet<String> = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .filter_map(|target| {
            let text = target.to_string_lossy().into_owned();
            Some(text.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
        })
        .collect();
    ["tcp", "tcp6"]
        .iter()
        .flat_map(|table| {
            let path = format!("/proc/{pid}/net/{table}");
            rows(&fs::read_to_string(path).unwrap_or_default(), state)
        })
        .filter(|row| inodes.contains(&row.inode))
        .map(|row| (row.own, row.theirs))
        .collect()
}

fn listening_ports() -> BTreeSet<u16> {
    ["tcp", "tcp6"]
        .iter()
        .flat_map(|table| {
            let path = format!("/proc/self/net/{table}");
            rows(&fs::read_to_string(path).unwrap_or_default(), "0A")
        })
        .map(|row| row.own)
        .collect()
}

/// A socket in the kernel's table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    own: u16,
    theirs: u16,
    inode: String,
}

/// The sockets in this state, from the kernel's table.
fn rows(table: &str, state: &str) -> Vec<Row> {
    let port = |word: &str| u16::from_str_radix(word.rsplit_once(':')?.1, 16).ok();
    table
        .lines()
        .skip(1)
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            (words.get(3) == Some(&state)).then_some(())?;
            Some(Row {
                own: port(words.get(1)?)?,
                theirs: port(words.get(2)?)?,
                inode: (*words.get(9)?).to_owned(),
            })
        })
        .collect()
}

fn name_of(pid: i32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm"))
        .map_or_else(|_| "?".to_owned(), |name| name.trim().to_owned())
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_told_from_connections() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
             0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4242 1 0 100 0 0 10 0\n\
             1: 0100007F:1F91 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 4243 1 0 100 0 0 10 0\n";
        let of = |state| -> Vec<(u16, u16)> {
            rows(table, state)
                .iter()
                .map(|row| (row.own, row.theirs))
                .collect()
        };
        assert_eq!(of("0A"), [(8080, 0)]);
        assert_eq!(of("01"), [(8081, 8080)]);
    }

    #[test]
    fn a_port_that_is_held_is_a_leak_and_one_that_is_free_is_none() {
        let before = Before::look();
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let pid = i32::try_from(std::process::id()).unwrap();
        assert!(ports_of(&[pid]).contains(&port));
        let leaks = before.leaks_now("nobody", &[port]);
        assert!(leaks.contains(&format!("port {port}")), "{leaks:?}");
        drop(listener);
        let leaks = before.leaks_now("nobody", &[port]);
        assert!(!leaks.contains(&format!("port {port}")), "{leaks:?}");
    }
}
