//! The boards of all processes of this user on this host, looked at again and again. Nothing is written to them, and the processes
//! need not do anything.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::map::{Head, MAGIC};
use super::read::{Part, boards, report as report_of, word};
use crate::sync::Clock;
use crate::watch::process;
use crate::watch::report::Report;

/// How often new boards are looked for.
const FIND_EVERY: Duration = Duration::from_secs(2);

/// What one look at a board shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The job: the same for all ranks of one world, another one for each world.
    pub job: u64,
    /// The name of its host where another process told of it; empty where its board was read here.
    pub host: String,
    /// Where the rank is: ranks with different numbers are in different network namespaces, as in containers. 0 where the system
    /// does not tell.
    pub network: u64,
    /// The number under which the caller sees the process.
    pub pid: u32,
    /// Whether its process has ended.
    pub has_ended: bool,
    /// What its board shows, with as many of the last calls as it has.
    pub report: Report,
}

/// A board of a process.
#[derive(Debug)]
struct Open {
    pid: u32,
    process: OwnedFd,
    file: File,
    job: u64,
    rank: u64,
    network: u64,
    /// Once its process has ended: what it showed last.
    last: Option<Report>,
}

/// All boards that were found.
#[derive(Debug, Default)]
pub struct LiveBoards {
    boards: Vec<Open>,
    found: Option<Instant>,
}

impl LiveBoards {
    /// One look at all of them. Every two seconds new ones are looked for. A board whose process has ended is shown as long as
    /// another process of its job lives, and once more after that.
    pub fn look(&mut self) -> Vec<Seen> {
        self.read(Part::All)
    }

    /// The same without call sites and the last calls, for a tenth of the time.
    pub fn glance(&mut self) -> Vec<Seen> {
        self.read(Part::Groups)
    }

    fn read(&mut self, part: Part) -> Vec<Seen> {
        let now = Clock::now();
        let is_due = |found: Instant| now.saturating_duration_since(found) >= FIND_EVERY;
        if self.found.is_none_or(is_due) {
            self.find();
            self.found = Some(now);
        }
        let seen: Vec<Seen> = self
            .boards
            .iter_mut()
            .filter_map(|board| board.look(part))
            .collect();
        let lives = |job: u64| seen.iter().any(|one| one.job == job && !one.has_ended);
        self.boards.retain(|board| lives(board.job));
        seen
    }

    /// Looks for boards that are not known yet.
    fn find(&mut self) {
        let own = std::process::id();
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        for pid in pids.filter(|pid| *pid != own) {
            for file in boards(pid, File::options().read(true)).unwrap_or_default() {
                self.add(pid, file);
            }
        }
    }

    fn add(&mut self, pid: u32, file: File) {
        let head = |head| word(&file, head);
        // One that is being made has no words yet; one that another process reads is not that process's.
        if head(Head::Magic) != Some(MAGIC) || head(Head::Pid) != inner_number(pid).map(u64::from) {
            return;
        }
        let (Some(job), Some(rank)) = (head(Head::Job), head(Head::Rank)) else {
            return;
        };
        let is_known = |one: &Open| one.job == job && one.rank == rank && one.last.is_none();
        let process = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let process = process.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let Some(process) = process.filter(|_| !self.boards.iter().any(is_known)) else {
            return;
        };
        self.boards.push(Open {
            pid,
            process,
            file,
            job,
            rank,
            network: network(pid),
            last: None,
        });
    }
}

impl Open {
    fn look(&mut self, part: Part) -> Option<Seen> {
        let seen = |report: Report, has_ended| Seen {
            job: self.job,
            host: String::new(),
            network: self.network,
            pid: self.pid,
            has_ended,
            report,
        };
        if let Some(last) = &self.last {
            return Some(seen(last.clone(), true));
        }
        let mut report = report_of(&self.file, part)?;
        report.process = process::look(self.pid);
        // After that, so that it is certainly about this process.
        if !has_ended(&self.process) {
            return Some(seen(report, false));
        }
        let mut report = report_of(&self.file, Part::All)?;
        report.process = None;
        self.last = Some(report.clone());
        Some(seen(report, true))
    }
}

/// Whether a process has ended.
fn has_ended(process: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(process, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// The number of a process in its own PID namespace.
fn inner_number(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    // Kernels without PID namespaces have no such line.
    line.map_or(Some(pid), |line| {
        line.split_whitespace().last()?.parse().ok()
    })
}

/// The network namespace of a process.
fn network(pid: u32) -> u64 {
    let link = std::fs::read_link(format!("/proc/{pid}/ns/net")).unwrap_or_default();
    let link = link.to_string_lossy();
    let inode = link
        .strip_prefix("net:[")
        .and_then(|rest| rest.strip_suffix(']'));
    inode.and_then(|inode| inode.parse().ok()).unwrap_or(0)
}

impl Seen {
    /// The network namespace of the calling process, for [`Seen::network`].
    #[must_use]
    pub fn network_of_caller() -> u64 {
        network(std::process::id())
    }
}
