//! What the kernel says of a process: whether it runs, and where it is if it does not.

use serde::{Deserialize, Serialize};

use super::cpu_time::CpuTime;

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
    /// Whether it is ending: its program runs no more.
    #[serde(default)]
    pub is_exiting: bool,
    /// Processor time of its threads.
    #[serde(default)]
    pub cpu_time: CpuTime,
}

impl ProcessFacts {
    /// What keeps it from running, in words; `None` where it runs or could.
    #[must_use]
    pub fn frozen(&self) -> Option<String> {
        let traced = self
            .tracer
            .map_or_else(String::new, |tracer| format!(", traced by pid {tracer}"));
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

    /// Whether its program runs no more, though its parent has not taken note of that.
    pub(crate) fn has_ended(&self) -> bool {
        self.is_exiting || matches!(self.state, 'Z' | 'X' | 'x')
    }

    /// Whether it cannot run until somebody else continues it.
    pub(crate) fn is_stopped(&self) -> bool {
        self.state != 'D' && self.frozen().is_some()
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

/// Looks at a process of this host; `None` where there is none.
#[must_use]
pub fn look(pid: u32) -> Option<ProcessFacts> {
    let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}"));
    let stat = read("stat").ok()?;
    // The name may hold blanks and brackets; the state follows the last one.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let flags: u64 = fields
        .nth(5)
        .and_then(|flags| flags.parse().ok())
        .unwrap_or(0);
    let status = read("status").unwrap_or_default();
    let tracer = status
        .lines()
        .find_map(|line| line.strip_prefix("TracerPid:"))
        .and_then(|pid| pid.trim().parse().ok())
        .filter(|pid| *pid != 0);
    let first_word = |text: String| text.split_whitespace().next().unwrap_or("").to_owned();
    Some(ProcessFacts {
        state,
        wchan: first_word(read("wchan").unwrap_or_default()),
        syscall: first_word(read("syscall").unwrap_or_default()),
        tracer,
        is_exiting: flags & EXITING != 0,
        cpu_time: CpuTime::of_process(pid),
    })
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
