//! Processes and sockets, as `/proc` shows them.

use std::collections::BTreeMap;

use super::System;

/// Most descriptors of one process that are looked at.
const DESCRIPTORS_MAX: usize = 100_000;
/// Longest part of a command line that is shown, in characters.
const COMMAND_CHARS_MAX: usize = 60;

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its parent's id.
    pub parent: u32,
    /// The kernel's name of it.
    pub name: String,
    /// State letter of proc(5): R, S, D, Z, T...
    pub state: char,
    /// Where its descriptors lead; empty where they cannot be seen.
    pub open: Vec<String>,
    /// Whether its descriptors can be seen.
    pub visible: bool,
}

impl Process {
    /// `python3 (pid 4711)`.
    pub(super) fn called(&self) -> String {
        format!("{} (pid {})", self.name, self.pid)
    }
}

/// The command line of a process, cut to what fits a line.
pub(super) fn command(system: &System, pid: u32) -> String {
    let text = system.try_read(format!("/proc/{pid}/cmdline"));
    let text = text.unwrap_or_default().replace('\0', " ");
    let text = text.trim();
    match text.char_indices().nth(COMMAND_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

pub(super) fn all(system: &System) -> Vec<Process> {
    let pids = system.names("/proc");
    let mut found: Vec<Process> = pids
        .iter()
        .filter_map(|name| read(system, name.parse().ok()?))
        .collect();
    found.sort_by_key(|process| process.pid);
    found
}

fn read(system: &System, pid: u32) -> Option<Process> {
    let stat = system.try_read(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in brackets and may hold brackets itself.
    let (_, rest) = stat.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(") ")?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let folder = format!("/proc/{pid}/fd");
    let visible = std::fs::read_dir(system.path(&folder)).is_ok();
    let open = system.names(&folder).into_iter().take(DESCRIPTORS_MAX);
    let open = open.filter_map(|number| system.link(format!("{folder}/{number}")));
    Some(Process {
        pid,
        parent,
        name: name.to_owned(),
        state,
        open: open.collect(),
        visible,
    })
}

/// Inode of each socket to the place of its holder in `processes`.
pub(super) fn holders(processes: &[Process]) -> BTreeMap<u64, usize> {
    let mut found = BTreeMap::new();
    for (place, process) in processes.iter().enumerate() {
        for open in &process.open {
            let inode = open
                .strip_prefix("socket:[")
                .and_then(|rest| rest.strip_suffix(']'))
                .and_then(|inode| inode.parse().ok());
            if let Some(inode) = inode {
                found.entry(inode).or_insert(place);
            }
        }
    }
    found
}

/// A TCP socket of this network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Socket {
    /// Its own port.
    pub(super) port: u16,
    /// It listens; else it is a connection, or what is left of one.
    pub(super) listens: bool,
    /// The connection is closed and only waits for stragglers: nobody holds it.
    pub(super) over: bool,
    /// User id of its owner.
    pub(super) uid: u32,
    /// Inode by which its holder is found.
    pub(super) inode: u64,
    /// The file it is listed in.
    pub(super) file: &'static str,
}

/// All TCP sockets; `None` where the system does not tell.
pub(super) fn sockets(system: &System) -> Option<Vec<Socket>> {
    let mut found = Vec::new();
    let mut told = false;
    for file in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let Ok(text) = system.try_read(file) else {
            continue;
        };
        told = true;
        found.extend(text.lines().filter_map(|line| socket(line, file)));
    }
    told.then_some(found)
}

/// `0: 00000000:EA60 00000000:0000 0A … uid timeout inode`.
fn socket(line: &str, file: &'static str) -> Option<Socket> {
    const LISTEN: &str = "0A";
    const TIME_WAIT: &str = "06";
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let (_, port) = fields.get(1)?.rsplit_once(':')?;
    let state = *fields.get(3)?;
    Some(Socket {
        port: u16::from_str_radix(port, 16).ok()?,
        listens: state == LISTEN,
        over: state == TIME_WAIT,
        uid: fields.get(7)?.parse().ok()?,
        inode: fields.get(9)?.parse().ok()?,
        file,
    })
}

/// Who holds a port, and where that was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) port: u16,
    /// It listens there; else it has a connection from there.
    pub(super) listens: bool,
    /// `python3 (pid 4711)`, or what is known of somebody who cannot be seen.
    pub(super) who: String,
    pub(super) pid: Option<u32>,
    pub(super) evidence: String,
}

/// All ports that somebody holds.
pub(super) fn taken_ports(system: &System) -> Vec<u16> {
    let held = held(system, |_| true).unwrap_or_default();
    held.into_iter().map(|held| held.port).collect()
}

/// Everybody who holds a port among `wanted`, one entry a port, listeners first.
pub(super) fn held(system: &System, wanted: impl Fn(u16) -> bool) -> Option<Vec<Held>> {
    let mut sockets = sockets(system)?;
    sockets.retain(|socket| wanted(socket.port) && !socket.over);
    sockets.sort_by_key(|socket| (socket.port, !socket.listens));
    sockets.dedup_by_key(|socket| socket.port);
    let held = |socket: Socket| {
        let holder = system.holder_of(socket.inode);
        let who = holder.map_or_else(
            || {
                format!(
                    "a process of user id {} that cannot be seen from here",
                    socket.uid
                )
            },
            Process::called,
        );
        let state = if socket.listens {
            "LISTEN"
        } else {
            "connected"
        };
        let by = holder.map(|holder| {
            let command = command(system, holder.pid);
            format!(", /proc/{}/fd, {command:?}", holder.pid)
        });
        Held {
            port: socket.port,
            listens: socket.listens,
            who,
            pid: holder.map(|holder| holder.pid),
            evidence: format!(
                "{}: port {} {state}{}",
                socket.file,
                socket.port,
                by.unwrap_or_default()
            ),
        }
    };
    Some(sockets.into_iter().map(held).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_socket_list_is_read() {
        let line = "   0: 0100007F:EA60 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4242 1 0 100 0 0 10 0";
        let socket = socket(line, "/proc/net/tcp").expect("a socket");
        assert_eq!(socket.port, 60_000);
        assert!(socket.listens);
        assert_eq!(socket.uid, 1000);
        assert_eq!(socket.inode, 4242);
        assert_eq!(
            super::socket("  sl  local_address rem_address st", "x"),
            None
        );
    }
}
