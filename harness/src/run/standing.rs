//! What the processes of ranks do that others wait for outside of any call: before they have joined, or after all others
//! have ended. Of joined ranks in calls the arbiter knows more, unless the ranks have given up already.

use std::collections::BTreeSet;
use std::time::Duration;

use muster_comm::rendezvous::{Absent, Coordinator};
use muster_comm::sync::{Clock, Deadline};
use muster_comm::types::Rank;
use muster_comm::watch::process;

use crate::world::RankProcess;

/// Ranks have waited for this long before the processes of those that are missing are looked at.
const FIRST_LOOK: Duration = Duration::from_millis(500);
/// Time between two looks.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Looks at a process in state D, and the pause before each: one that is stuck is there every time.
const LOOKS_AT_D: usize = 10;
const LOOK_PAUSE: Duration = Duration::from_millis(20);
/// Processes between the one that was started and the rank's program: shells, wrappers.
const DEPTH_MAX: usize = 16;

/// What a rank's process does, or the first one below it that does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) pid: u32,
    /// In words.
    pub(super) state: String,
    pub(super) is_stopped: bool,
}

/// Looks at a rank's process and at those that it has started; `None` where it is gone.
pub(super) fn standing(pid: u32) -> Option<Standing> {
    let mut last = None;
    for pid in tree(pid) {
        let Some(facts) = process::look(pid) else {
            continue;
        };
        if let Some(state) = facts.stopped() {
            return Some(Standing {
                pid,
                state,
                is_stopped: true,
            });
        }
        last = Some(Standing {
            pid,
            state: format!("it runs ({})", facts.describe()),
            is_stopped: false,
        });
    }
    last
}

/// A process and its only child, that one's only child, and so on: what wrappers start.
pub(super) fn tree(pid: u32) -> Vec<u32> {
    let mut chain = vec![pid];
    while chain.len() < DEPTH_MAX {
        let last = chain.last().copied().unwrap_or(pid);
        let path = format!("/proc/{last}/task/{last}/children");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let mut children = text.split_whitespace().filter_map(|one| one.parse().ok());
        match (children.next(), children.next()) {
            (Some(child), None) => chain.push(child),
            _ => break,
        }
    }
    chain
}

/// The state of a process that exists but does not run: `T` stopped, `t` traced, `D` stuck in the kernel. `None` for one
/// that runs or sleeps, or that cannot be looked at.
pub(super) fn not_running(pid: u32) -> Option<char> {
    let look = || process::state(pid).filter(|state| matches!(state, 'T' | 't' | 'D'));
    let state = look()?;
    // Any process is in D for moments, while a page or a file comes from a disk.
    for _ in 0..LOOKS_AT_D {
        if state != 'D' {
            break;
        }
        Clock::pause(LOOK_PAUSE);
        look()?;
    }
    Some(state)
}

/// How long a thread, or the main thread of a process, could have run and got no processor so far; zero where the kernel does not say.
pub(super) fn run_delay(pid: u32) -> Option<Duration> {
    let facts = process::look(pid)?;
    Some(Duration::from_nanos(facts.cpu_time.delayed_ns))
}

/// Who has joined and left, and when those that have not are to be looked at.
#[derive(Debug)]
pub(super) struct Arrivals {
    world_size: u32,
    joined: BTreeSet<u32>,
    /// Ranks that said goodbye.
    left: BTreeSet<u32>,
    is_over: bool,
    next: Option<Deadline>,
}

impl Arrivals {
    pub(super) fn new(world_size: u32) -> Self {
        Self {
            world_size,
            joined: BTreeSet::new(),
            left: BTreeSet::new(),
            is_over: false,
            next: None,
        }
    }

    /// A rank has joined. Programs that never do are left alone.
    pub(super) fn note(&mut self, rank: u32) {
        self.joined.insert(rank);
        self.is_over |= self.joined.len() == self.world_size as usize;
        if self.is_over {
            self.next = None;
        } else if self.next.is_none() {
            self.next = Some(Deadline::after(FIRST_LOOK));
        }
    }

    /// Whether this rank has joined.
    pub(super) fn has_joined(&self, rank: u32) -> bool {
        self.joined.contains(&rank)
    }

    /// A rank said goodbye.
    pub(super) fn note_left(&mut self, rank: u32) {
        self.left.insert(rank);
    }

    /// Whether this rank said goodbye.
    pub(super) fn has_left(&self, rank: u32) -> bool {
        self.left.contains(&rank)
    }

    /// Whether any rank did.
    pub(super) fn has_any_left(&self) -> bool {
        !self.left.is_empty()
    }

    /// Bring-up has failed: nobody waits any more.
    pub(super) fn end(&mut self) {
        self.is_over = true;
        self.next = None;
    }

    /// When to look, where somebody is missing.
    pub(super) fn next(&self) -> Option<Deadline> {
        self.next
    }

    /// Looks at the processes of those that are missing, where it is time, and lets the coordinator know.
    pub(super) fn look(&mut self, processes: &[RankProcess], coordinator: &Coordinator) {
        if self.is_over || !self.next.is_some_and(|next| next.passed()) {
            return;
        }
        self.next = Some(Deadline::after(LOOK_EVERY));
        let host = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        let missing = processes
            .iter()
            .filter(|one| one.ended().is_none() && !self.joined.contains(&one.rank()));
        for one in missing {
            if let Some(standing) = standing(one.pid()) {
                let absent = Absent {
                    host: host.clone(),
                    pid: standing.pid,
                    state: standing.state,
                    is_stopped: standing.is_stopped,
                };
                coordinator.rank_absent(Rank(one.rank()), absent);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_that_runs_is_not_stopped_and_has_not_waited_long_for_a_processor() {
        let own = std::process::id();
        assert_eq!(not_running(own), None);
        assert!(run_delay(own) < Some(Duration::from_secs(3600)));
        assert_eq!(run_delay(u32::MAX), None);
    }

    #[test]
    fn a_process_below_wrappers_is_found_and_seen_stopped() {
        let mut child = Command::new("sh")
            .args(["-c", "sh -c 'kill -STOP $$; :'; :"])
            .stdin(Stdio::null())
            .spawn()
            .expect("a shell can be started");
        let deadline = Deadline::after(Duration::from_secs(20));
        let found = loop {
            let found = standing(child.id()).filter(|found| found.is_stopped);
            if found.is_some() || deadline.passed() {
                break found;
            }
            Clock::pause(Duration::from_millis(5));
        };
        let below = tree(child.id());
        child.kill().expect("it can be killed");
        child.wait().expect("it can be waited for");
        for pid in below.iter().skip(1) {
            let pid = i32::try_from(*pid)
                .ok()
                .and_then(rustix::process::Pid::from_raw);
            let pid = pid.expect("a process id");
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        let found = found.expect("it is seen stopped");
        assert_eq!(Some(&found.pid), below.last());
        assert_ne!(found.pid, child.id());
        assert!(found.state.contains("state T"), "{found:?}");
    }
}
