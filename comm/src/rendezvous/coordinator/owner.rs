//! Who owns a TCP port of this host: for the message that says so when a coordinator finds its
//! port taken, and for ranks that get no answer there. Reads /proc; whatever cannot be read is simply not named.

use std::fs;
use std::io::{BufRead, BufReader};
use std::sync::{Mutex, PoisonError};

use crate::rendezvous::text::Plain;

/// Socket table entries that are looked at: bounds the work on a host with very many connections.
const SOCKETS_MAX: usize = 200_000;
/// Characters of a command line that a message shows.
const COMMAND_CHARS_MAX: usize = 120;
/// The kernel's number for a listening socket in its tables.
const LISTENING: &str = "0A";

/// Process id and command line of whoever listens on `port`, where this user may see them.
pub(super) fn of_port(port: u16) -> Option<String> {
    let pid = listener(port)?;
    if pid == std::process::id() {
        return Some(format!("pid {pid} (this very process)"));
    }
    Some(format!("pid {pid} ({})", command(pid)))
}

/// Whether the process that listens on `port` is seen not to run: a signal, a debugger or its control group has stopped it.
pub(in crate::rendezvous) fn is_stopped(port: u16) -> bool {
    let Some(pid) = known_listener(port) else {
        return false;
    };
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    let within = fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
    matches!(state, Some('T' | 't')) || within.contains("freezer")
}

/// The process that listens on `port`, as it was found last while that process lives: to find it is to read a link for each
/// descriptor of the host, and a thousand ranks may look at once.
fn known_listener(port: u16) -> Option<u32> {
    static KNOWN: Mutex<Option<(u16, u32, u64)>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((of, pid, since)) = *known
        && of == port
        && since == started(pid)
    {
        return Some(pid);
    }
    let pid = listener(port)?;
    *known = Some((port, pid, started(pid)));
    Some(pid)
}

/// The process that listens on `port`: where it started this one, nobody else is looked at.
fn listener(port: u16) -> Option<u32> {
    let inode = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|table| fs::File::open(table).ok())
        .find_map(|table| {
            let lines = BufReader::new(table).lines();
            listener_inode(lines.map_while(Result::ok), port)
        })?;
    let parent = std::os::unix::process::parent_id();
    if holds(parent, &link(inode)) {
        return Some(parent);
    }
    process_with_socket(inode)
}

/// The inode of the listening socket on `port` in the lines of a table as /proc/net/tcp has it: those come first.
fn listener_inode(lines: impl Iterator<Item = String>, port: u16) -> Option<u64> {
    lines.skip(1).take(SOCKETS_MAX).find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let (_, local_port) = fields.nth(1)?.rsplit_once(':')?;
        let state = fields.nth(1)?;
        let inode = fields.nth(5)?;
        if state == LISTENING && u16::from_str_radix(local_port, 16) == Ok(port) {
            return inode.parse().ok();
        }
        None
    })
}

fn link(inode: u64) -> String {
    format!("socket:[{inode}]")
}

/// Whether a process holds a descriptor of this name.
fn holds(pid: u32, link: &str) -> bool {
    fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|fd| fs::read_link(fd.path()).ok())
        .any(|target| target.to_str() == Some(link))
}

/// The process that has held this socket longest: one that it has just forked holds it too.
fn process_with_socket(inode: u64) -> Option<u32> {
    let link = link(inode);
    fs::read_dir("/proc")
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| holds(*pid, &link))
        .min_by_key(|pid| started(*pid))
}

/// When a process started, in ticks since the machine did.
fn started(pid: u32) -> u64 {
    /// Field 22 of `stat`, counted from the state, which is the third.
    const START_TIME: usize = 19;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_ascii_whitespace().nth(START_TIME);
    ticks
        .and_then(|ticks| ticks.parse().ok())
        .unwrap_or(u64::MAX)
}

fn command(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let line = String::from_utf8_lossy(&line).replace('\0', " ");
    let line: String = line.trim_end().chars().take(COMMAND_CHARS_MAX).collect();
    if line.is_empty() {
        return "command line not readable".to_owned();
    }
    Plain(&line).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_listener_of_a_port_is_found_in_the_socket_table() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
             0: 0100007F:B3B4 0200007F:0016 01 00000000:00000000 00:00000000 00000000     0        0 11 1 0 20 0 0 10 -1\n\
             1: 0100007F:B3B4 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0\n\
             short line\n";
        let inode = |table: &str, port| listener_inode(table.lines().map(str::to_owned), port);
        assert_eq!(inode(table, 0xB3B4), Some(4711));
        assert_eq!(inode(table, 0x16), None);
        assert_eq!(inode("", 1), None);
    }

    #[test]
    fn the_owner_of_our_own_port_is_this_process() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let owner = of_port(port).expect("our own sockets are visible to us");
        assert!(owner.contains(&std::process::id().to_string()), "{owner}");
        assert_eq!(known_listener(port), Some(std::process::id()));
        // A process that is gone, or another one of its number, is not taken for it.
        drop(listener);
        let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = other.local_addr().unwrap().port();
        assert_eq!(known_listener(port), Some(std::process::id()));
    }
}
