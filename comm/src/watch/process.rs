//! What the kernel says of a process: whether it runs, and where it is if it does not.

mod container;
mod environment;
mod find;
mod freezer;

use serde::{Deserialize, Serialize};

pub(super) use self::container::inside;
pub use self::container::{Inside, container};
pub use self::environment::environment;
pub use self::find::own;
pub(super) use self::find::{Place, find};
pub use self::freezer::Freezer;
use super::cpu_time::CpuTime;
use super::signal::mask;
use crate::host_load::HostLoad;
use crate::rendezvous::{DownReason, ProcessId};

/// Bit of a task's flags: it is on its way out of the kernel for good.
const EXITING: u64 = 0x4;

/// Signals that end no process by default, a bit each: CHLD, CONT, STOP, TSTP, TTIN, TTOU, URG, WINCH.
const HARMLESS: u64 = 1 << 16 | 1 << 17 | 1 << 18 | 1 << 19 | 1 << 20 | 1 << 21 | 1 << 22 | 1 << 27;

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
    /// Whether a signal waits for it that ends it as soon as it runs.
    #[serde(default)]
    pub is_dying: bool,
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

/// Whether a process has ended, or ends as soon as it gets a processor.
#[must_use]
pub(super) fn is_ending(process: &ProcessId) -> bool {
    match look_at(process) {
        Sight::Seen(facts) => facts.has_ended() || facts.is_dying,
        Sight::Ended => true,
        Sight::Hidden(_) => false,
    }
}

/// The number under which this process sees it, where it does.
#[must_use]
pub fn number(process: &ProcessId) -> Option<u32> {
    match find(process) {
        Place::At(pid) => Some(pid),
        Place::Ended | Place::Hidden(_) => None,
    }
}

/// How a process ended whose parent has not asked for that so far; [`DownReason::Ended`] after that.
#[must_use]
pub fn how_it_ended(process: &ProcessId) -> DownReason {
    let Some(status) = exit_status(process) else {
        return DownReason::Ended;
    };
    if libc::WIFSIGNALED(status) {
        DownReason::Killed {
            signal: libc::WTERMSIG(status),
        }
    } else {
        DownReason::Exited {
            code: libc::WEXITSTATUS(status),
        }
    }
}

/// What `waitpid` will tell the parent.
fn exit_status(process: &ProcessId) -> Option<i32> {
    /// Field 52 of `stat`, counted from the state, which is the third.
    const EXIT_CODE: usize = 49;
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", number(process)?)).ok()?;
    let is_zombie = matches!(state_and_flags(&stat), Some(('Z', _)));
    if !is_zombie || !find::is_it(process, &stat) {
        return None;
    }
    let fields = stat.rsplit_once(')')?.1;
    fields.split_ascii_whitespace().nth(EXIT_CODE)?.parse().ok()
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

/// The kernel's letter for the state of the process that /proc shows under this number; `None` where there is none.
#[must_use]
pub fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    state_and_flags(&stat).map(|(state, _)| state)
}

/// Fields 3 and 9 of a text of `stat`. The name before them may hold blanks and brackets; the state follows the last one.
fn state_and_flags(stat: &str) -> Option<(char, u64)> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let flags = fields.nth(5).and_then(|flags| flags.parse().ok());
    Some((state, flags.unwrap_or(0)))
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
    let (state, flags) = state_and_flags(&stat)?;
    let facts = ProcessFacts {
        state,
        wchan,
        syscall,
        tracer,
        freezer: freezer::of(pid),
        is_exiting: flags & EXITING != 0,
        is_dying: is_dying(&status),
        cpu_time: CpuTime::of_process(pid),
        load: HostLoad::now(),
    };
    Some((facts, stat))
}

/// Whether `/proc/PID/status` shows a signal that waits and that the process neither blocks, ignores nor handles, of those that end
/// a process by default.
fn is_dying(status: &str) -> bool {
    let of = |fields: &[&str]| {
        let masks = fields.iter().map(|field| mask(status, field));
        masks.fold(0, |all, one| all | one)
    };
    let pending = of(&["SigPnd:", "ShdPnd:"]);
    let is_held = of(&["SigBlk:", "SigIgn:", "SigCgt:"]);
    pending & !is_held & !HARMLESS != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_dying_where_a_fatal_signal_waits_for_it() {
        let status = |pending: u64, caught: u64| {
            format!(
                "SigPnd:\t0\nShdPnd:\t{pending:016x}\nSigBlk:\t0\nSigIgn:\t0\nSigCgt:\t{caught:016x}\n"
            )
        };
        let bit = |signal: u32| 1_u64 << (signal - 1);
        assert!(is_dying(&status(bit(9), 0)));
        assert!(is_dying(&status(bit(15), 0)));
        assert!(!is_dying(&status(bit(15), bit(15))), "it is handled");
        assert!(!is_dying(&status(bit(17) | bit(19), 0)), "they end nothing");
        assert!(!is_dying(""));
        assert!(!look(std::process::id()).unwrap().is_dying);
    }

    #[test]
    fn this_process_runs_and_no_process_is_none() {
        let facts = look(std::process::id()).unwrap();
        assert!(matches!(facts.state, 'R' | 'S'), "{facts:?}");
        assert_eq!(look(u32::MAX), None);
        assert!(matches!(state(std::process::id()), Some('R' | 'S')));
        assert_eq!(state(u32::MAX), None);
    }

    #[test]
    fn the_state_is_found_behind_any_name() {
        assert_eq!(state_and_flags("12 (a) R 1"), Some(('R', 0)));
        assert_eq!(
            state_and_flags("12 (a) T) (b) D 1 2 3 4 5 64"),
            Some(('D', 64))
        );
        assert_eq!(state_and_flags(""), None);
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
