//! Whether the kernel's out-of-memory killer ended a process: what its control group counts, and what the
//! kernel's log says.
//!
//! - OOM-1: what was logged, or counted in the groups they start in, before the ranks were started says
//!   nothing of them: numbers of processes come again, and the log keeps those of weeks.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Records of the kernel's log that are read at once at most; the log itself is some MiB.
const RECORDS_MAX: usize = 65_536;
/// The first namespace of processes, whose numbers the kernel's log has: its inode is a constant
/// (`PROC_PID_INIT_INO` in the kernel's `proc_ns.h`).
const FIRST_NAMESPACE: &str = "pid:[4026531836]";
/// Limits from here on are none.
const NO_LIMIT: u64 = 1 << 60;

/// The control group of a process, as far as memory goes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Group {
    /// Counts the kills.
    events: PathBuf,
    /// What its limit is.
    limit: PathBuf,
}

/// Kills for memory since this was made.
#[derive(Debug)]
pub(super) struct Kills {
    /// Those of control groups that are accounted for already.
    known: HashMap<Group, u64>,
    groups: HashMap<i32, Group>,
    log: Option<Log>,
}

impl Kills {
    /// To be called before the processes are started that it shall tell of.
    pub(super) fn from_now() -> Self {
        Self {
            known: HashMap::new(),
            groups: HashMap::new(),
            log: kernel_log().and_then(|log| Log::from_its_end(log).ok()),
        }
    }

    /// Takes note of the group of a process that has just started.
    pub(super) fn begin(&mut self, pid: i32) {
        if let Some(group) = group_of(pid) {
            let count = count_of(&group).unwrap_or(0);
            self.known.entry(group.clone()).or_insert(count);
            self.groups.insert(pid, group);
        }
    }

    /// What says that a process that SIGKILL has ended was killed for memory; `None` where nothing
    /// does. To be called before it is reaped.
    pub(super) fn of(&mut self, pid: i32) -> Option<String> {
        // It may have moved since it started. (Groups of version 1 forget those that have ended.)
        let now = group_of(pid);
        let candidates = [now, self.groups.remove(&pid)];
        for group in candidates.into_iter().flatten() {
            let known = self.known.entry(group.clone()).or_insert(0);
            if count_of(&group).unwrap_or(0) > *known {
                *known += 1;
                let name = group
                    .events
                    .file_name()
                    .unwrap_or_default()
                    .display()
                    .to_string();
                let limit = limit_of(&group)
                    .map_or_else(String::new, |bytes| format!(", limit {} MiB", bytes >> 20));
                return Some(format!("{name}: oom_kill +1{limit}"));
            }
        }
        let log = self.log.as_mut()?;
        log.catch_up();
        log.victims
            .contains(&pid)
            .then(|| format!("the kernel's log: out of memory, killed process {pid}"))
    }
}

/// From `/proc/PID/cgroup`: a line `N:CONTROLLERS:PATH` a hierarchy, number 0 for version 2.
fn group_of(pid: i32) -> Option<Group> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    groups_in(&text, Path::new("/sys/fs/cgroup"))
        .into_iter()
        .find(|group| group.events.is_file())
}

fn groups_in(text: &str, root: &Path) -> Vec<Group> {
    let group = |line: &str| {
        let mut parts = line.splitn(3, ':');
        let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let path = path.trim_end_matches(" (deleted)").trim_start_matches('/');
        if controllers.split(',').any(|one| one == "memory") {
            let folder = root.join("memory").join(path);
            return Some(Group {
                events: folder.join("memory.oom_control"),
                limit: folder.join("memory.limit_in_bytes"),
            });
        }
        (number == "0").then(|| Group {
            events: root.join(path).join("memory.events"),
            limit: root.join(path).join("memory.max"),
        })
    };
    text.lines().filter_map(group).collect()
}

fn count_of(group: &Group) -> Option<u64> {
    let text = fs::read_to_string(&group.events).ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix("oom_kill "))
        .and_then(|count| count.trim().parse().ok())
}

fn limit_of(group: &Group) -> Option<u64> {
    let text = fs::read_to_string(&group.limit).ok()?;
    text.trim().parse().ok().filter(|bytes| *bytes < NO_LIMIT)
}

/// The kernel's log, where it may be read and speaks of processes by the numbers that we see.
fn kernel_log() -> Option<File> {
    let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
    if namespace != Path::new(FIRST_NAMESPACE) {
        return None;
    }
    let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).ok()?;
    File::options()
        .read(true)
        .custom_flags(nonblocking)
        .open("/dev/kmsg")
        .ok()
}

/// What a log of the kernel's form (a record a read) tells from some moment on.
#[derive(Debug)]
struct Log {
    records: File,
    /// Whom it says were killed for memory.
    victims: HashSet<i32>,
}

impl Log {
    fn from_its_end(mut records: File) -> std::io::Result<Self> {
        records.seek(SeekFrom::End(0))?;
        Ok(Self {
            records,
            victims: HashSet::new(),
        })
    }

    fn catch_up(&mut self) {
        let mut record = [0_u8; 8192];
        for _ in 0..RECORDS_MAX {
            match self.records.read(&mut record) {
                Ok(0) => break,
                Ok(length) => {
                    let text = String::from_utf8_lossy(&record[..length]);
                    self.victims.extend(text.lines().filter_map(victim_in));
                }
                // Records that were overwritten before they were read.
                Err(error)
                    if error.raw_os_error() == Some(rustix::io::Errno::PIPE.raw_os_error()) => {}
                Err(_) => break,
            }
        }
    }
}

/// Whom a line of the kernel's log says was killed for memory: `… Killed process PID (NAME) …`.
fn victim_in(line: &str) -> Option<i32> {
    let (_, after) = line.split_once("Killed process ")?;
    after.split_once(" (")?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn both_versions_of_control_groups_are_found() {
        let root = Path::new("/cg");
        let old = "8:pids:/\n4:memory:/job/a\n0::/\n";
        assert_eq!(
            groups_in(old, root)[0].events,
            Path::new("/cg/memory/job/a/memory.oom_control")
        );
        let new = "0::/user.slice/job (deleted)\n";
        assert_eq!(
            groups_in(new, root)[0].limit,
            Path::new("/cg/user.slice/job/memory.max")
        );
        assert!(groups_in("nonsense\n", root).is_empty());
    }

    #[test]
    fn a_kill_counts_once_and_none_before_the_start_does() {
        let folder = tempfile::tempdir().expect("a folder");
        let group = Group {
            events: folder.path().join("memory.events"),
            limit: folder.path().join("memory.max"),
        };
        let set = |count: u64| {
            fs::write(&group.events, format!("oom 9\noom_kill {count}\n")).expect("a file");
        };
        fs::write(&group.limit, "268435456\n").expect("a file");
        set(3);
        let mut kills = Kills::from_now();
        kills.known.insert(group.clone(), 3);
        let victim = |kills: &mut Kills| {
            kills.groups.insert(i32::MAX, group.clone());
            kills.of(i32::MAX)
        };
        assert_eq!(victim(&mut kills), None);
        set(4);
        assert_eq!(
            victim(&mut kills).as_deref(),
            Some("memory.events: oom_kill +1, limit 256 MiB")
        );
        assert_eq!(victim(&mut kills), None);
    }

    #[test]
    fn what_the_log_said_before_tells_nothing_of_a_process_of_the_same_number() {
        let mut file = tempfile::tempfile().expect("a file");
        let line = |pid: i32| {
            format!(
                "3,36,7218969290,-;Memory cgroup out of memory: Killed process {pid} (muster) total-vm:284960kB\n"
            )
        };
        file.write_all(line(71).as_bytes()).expect("written");
        file.rewind().expect("to its beginning");
        let mut log = Log::from_its_end(file.try_clone().expect("a second")).expect("its end");
        log.catch_up();
        assert_eq!(log.victims, HashSet::new());
        // The log reads through a copy of the descriptor, so the place in the file is one for both.
        file.write_all_at(line(72).as_bytes(), line(71).len() as u64)
            .expect("written");
        log.catch_up();
        assert_eq!(log.victims, HashSet::from([72]));
    }
}
