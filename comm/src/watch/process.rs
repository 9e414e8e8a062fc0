//! What the kernel says of a process: whether it runs, and where it is if it does not.

mod container;
mod find;
mod freezer;

use serde::{Deserialize, Serialize};

pub(super) use self::container::inside;
pub use self::container::{Inside, container};
pub use self::find::own;
pub(super) use self::find::{Place, find};
pub use self::freezer::Freezer;
use super::cpu_time::{CpuTime, HostLoad};
use crate::rendezvous::ProcessId;

/// Bit of a task's flags: it is on its way out of the kernel for good.
const EXITING: u64 = 0x4;

/// A process, seen from outside.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessFacts {
    /// The kernel's letter for its state: `R` runs, `S` sleeps, `T` stopped, `t` stopped by a
    /// debugger, `D` in the kernel without a way out, `Z` ended.
    pub state: char,
    /// The function of the kernel that it sleeps in, where that may be known.
    pub wchan: String,
    /// The system call that it is in, by number, where that may be known.
    pub syscall: String,
    /// The process that debugs it.
    pub tracer: Option<u32>,
    /// The control group that is frozen, and it with that.
    #[serde(default)]
    pub freezer: Option<Freezer>,
    /// Whether it is ending: its program runs no more.
    #[serde(default)]
    pub is_exiting: bool,
    /// Processor time of its main thread; where it says so of itself, of the threads that make calls.
    #[serde(default)]
    pub cpu_time: CpuTime,
    /// How much the processors of its host are wanted.
    #[serde(default)]
    pub load: HostLoad,
}

/// What a look at a process shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sight {
    /// It is there.
    Seen(ProcessFacts),
    /// It has ended.
    Ended,
    /// It cannot be looked at from here, and why. Nothing follows from that.
    Hidden(String),
}

impl Sight {
    /// What the kernel says of it, where it is there.
    #[must_use]
    pub fn facts(&self) -> Option<&ProcessFacts> {
        match self {
            Self::Seen(facts) => Some(facts),
            Self::Ended | Self::Hidden(_) => None,
        }
    }

    /// What keeps it from running, in words; `None` where it runs or could, or nothing is known.
    #[must_use]
    pub fn frozen(&self) -> Option<String> {
        self.facts()?.frozen()
    }

    /// One line of evidence.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Seen(facts) => facts.describe(),
            Self::Ended => "its process has ended".to_owned(),
            Self::Hidden(why) => format!("its process cannot be looked at from here: {why}"),
        }
    }
}

impl ProcessFacts {
    /// What keeps it from running, in words; `None` where it runs or could.
    #[must_use]
    pub fn frozen(&self) -> Option<String> {
        let traced = self
            .tracer
            .map_or_else(String::new, |tracer| format!(", traced by pid {tracer}"));
        if let Some(freezer) = &self.freezer {
            return Some(format!("frozen by its control group {}", freezer.path));
        }
        if self.wchan.contains("freezer") || self.wchan.contains("refrigerator") {
            return Some(format!("frozen by its control group ({})", self.wchan));
        }
        match self.state {
            'T' => Some(format!("state T (stopped by a signal{traced})")),
            't' => Some(format!("state t (stopped by a debugger{traced})")),
            'D' => Some(format!("state D (in the kernel: {})", self.within())),
            _ => None,
        }
    }

    /// What keeps it from running, in words, where somebody has stopped it: a signal, a debugger, its control group. In
    /// state D a process is for moments, while it waits for its disk.
    #[must_use]
    pub fn stopped(&self) -> Option<String> {
        self.frozen().filter(|_| self.state != 'D')
    }

    /// Whether its program runs no more, though its parent has not taken note of that.
    pub(crate) fn has_ended(&self) -> bool {
        self.is_exiting || matches!(self.state, 'Z' | 'X' | 'x')
    }

    fn within(&self) -> String {
        match (self.wchan.as_str(), self.syscall.as_str()) {
            ("" | "0", "") => "place unknown".to_owned(),
            ("" | "0", syscall) => format!("system call {syscall}"),
            (wchan, "") => wchan.to_owned(),
            (wchan, syscall) => format!("{wchan}, system call {syscall}"),
        }
    }

    /// One line of evidence.
    #[must_use]
    pub fn describe(&self) -> String {
        match self.state {
            'S' | 'D' => format!("state {} in {}", self.state, self.within()),
            state => format!("state {state}"),
        }
    }
}

/// How long a process must be found in state D before it counts as stopped: a busy host keeps processes there for a while.
const IN_KERNEL_MS: u64 = 1000;

/// Since when every look at a process has found it stopped.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stop {
    /// When the first of these looks was, in milliseconds, and how long the process had run then.
    since: Option<(u64, u64)>,
    /// The last look found it in state D.
    is_in_kernel: bool,
}

impl Stop {
    /// Takes in a look. A process that has run since the last one was not stopped all the time.
    pub(super) fn take(&mut self, facts: &ProcessFacts, now_ms: u64) {
        let ran_ns = facts.cpu_time.ran_ns;
        self.is_in_kernel = facts.stopped().is_none();
        self.since = facts.frozen().map(|_| match self.since {
            Some((since_ms, before_ns)) if before_ns == ran_ns => (since_ms, ran_ns),
            _ => (now_ms, ran_ns),
        });
    }

    /// For how long it was found stopped; `None` where the last look found it running, or where it may be in state D for a
    /// moment only.
    pub(super) fn ms(&self, now_ms: u64) -> Option<u64> {
        let (since_ms, _) = self.since?;
        let ms = now_ms.saturating_sub(since_ms);
        (!self.is_in_kernel || ms >= IN_KERNEL_MS).then_some(ms)
    }
}

/// Looks at a process, wherever it runs.
#[must_use]
pub fn look_at(process: &ProcessId) -> Sight {
    match find(process) {
        Place::At(pid) => match read(pid) {
            Some((facts, stat)) if find::is_it(process, &stat) && !facts.has_ended() => {
                Sight::Seen(facts)
            }
            _ => Sight::Ended,
        },
        Place::Ended => Sight::Ended,
        Place::Hidden(why) => Sight::Hidden(why),
    }
}

/// [`ProcessFacts::stopped`] of a process, where it can be looked at.
#[must_use]
pub fn stopped(process: &ProcessId) -> Option<String> {
    look_at(process).facts()?.stopped()
}

/// Looks at the process that /proc shows under this number; `None` where there is none.
#[must_use]
pub fn look(pid: u32) -> Option<ProcessFacts> {
    read(pid).map(|(facts, _)| facts)
}

/// What /proc shows under a number, and the text of `stat`. That is read last: where it is about the process that is
/// looked for, so is all the rest.
fn read(pid: u32) -> Option<(ProcessFacts, String)> {
    let text = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}"));
    let first_word = |text: String| text.split_whitespace().next().unwrap_or("").to_owned();
    let wchan = first_word(text("wchan").unwrap_or_default());
    let syscall = first_word(text("syscall").unwrap_or_default());
    let status = text("status").unwrap_or_default();
    let tracer = status
        .lines()
        .find_map(|line| line.strip_prefix("TracerPid:"))
        .and_then(|pid| pid.trim().parse().ok())
        .filter(|pid| *pid != 0);
    let stat = text("stat").ok()?;
    // The name may hold blanks and brackets; the state follows the last one.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let flags: u64 = fields
        .nth(5)
        .and_then(|flags| flags.parse().ok())
        .unwrap_or(0);
    let facts = ProcessFacts {
        state,
        wchan,
        syscall,
        tracer,
        freezer: freezer::of(pid),
        is_exiting: flags & EXITING != 0,
        cpu_time: CpuTime::of_process(pid),
        load: HostLoad::now(),
    };
    Some((facts, stat))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_runs_and_no_process_is_none() {
        let facts = look(std::process::id()).unwrap();
        assert!(matches!(facts.state, 'R' | 'S'), "{facts:?}");
        assert_eq!(look(u32::MAX), None);
    }

    #[test]
    fn only_a_process_that_cannot_run_is_frozen() {
        let of = |state, wchan: &str| ProcessFacts {
            state,
            wchan: wchan.to_owned(),
            ..ProcessFacts::default()
        };
        assert_eq!(of('R', "").frozen(), None);
        assert_eq!(of('S', "futex_wait_queue").frozen(), None);
        assert!(
            of('T', "")
                .frozen()
                .unwrap()
                .contains("stopped by a signal")
        );
        assert!(of('t', "").frozen().unwrap().contains("debugger"));
        assert!(
            of('D', "io_schedule")
                .frozen()
                .unwrap()
                .contains("io_schedule")
        );
        assert!(
            of('S', "do_freezer_trap")
                .frozen()
                .unwrap()
                .contains("control group")
        );
    }
}
