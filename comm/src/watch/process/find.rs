//! Which number /proc shows a process under: that of its own PID namespace, or another one where the observer
//! stands in an ancestor of that namespace.
//!
//! - FIND-1: a number is only given for a process whose namespace and number there are those that are looked for, and that
//!   did not start after the time that the wanted process gave as its own start. It has held the number since then, so it is
//!   that process. An emulator of a processor gives a program a start time that is a little late.
//! - FIND-2: "it has ended" is only said where the process would be seen if it lived.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::process::{Pid, test_kill_process};

use crate::rendezvous::ProcessId;
use crate::sync::Clock;

/// Start times of one process, seen from two time namespaces, may be rounded differently.
const ROUNDING_TICKS: u64 = 1;
/// Nanoseconds until a process that was not found is searched for again: reading all of /proc takes a while.
const SEARCH_AGAIN_NS: u64 = 1_000_000_000;
/// Processes that are remembered; a world has fewer.
const KNOWN_MAX: usize = 4096;

/// Where a process is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::watch) enum Place {
    /// Under this number in /proc.
    At(u32),
    /// Nowhere any more.
    Ended,
    /// Where this process cannot look, and why.
    Hidden(String),
}

/// What this process sees of others.
#[derive(Debug)]
struct View {
    boot: u64,
    namespace: u64,
    /// Whether /proc shows the namespace of this process, and not an ancestor of it.
    is_own: bool,
    /// By how much times in /proc are ahead of those of the first time namespace.
    ahead_ticks: i64,
}

impl View {
    fn own() -> &'static Self {
        static VIEW: OnceLock<View> = OnceLock::new();
        VIEW.get_or_init(|| Self {
            boot: boot(),
            namespace: namespace_of("self").unwrap_or(0),
            is_own: numbers_of("self").is_none_or(|numbers| numbers.len() == 1),
            ahead_ticks: std::fs::read_to_string("/proc/self/timens_offsets")
                .map_or(0, |offsets| ahead_ticks(&offsets)),
        })
    }

    /// A start time as the first time namespace has it.
    fn normal(&self, ticks: u64) -> u64 {
        ticks.saturating_add_signed(self.ahead_ticks.saturating_neg())
    }
}

/// What tells this process from all others.
#[must_use]
pub fn own() -> ProcessId {
    let view = View::own();
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    ProcessId {
        boot: view.boot,
        namespace: view.namespace,
        pid: std::process::id(),
        started_ticks: started(&stat).map_or(0, |ticks| view.normal(ticks)),
    }
}

/// Whether the process that this text of /proc/PID/stat is about may be the one that is looked for.
pub(super) fn is_it(wanted: &ProcessId, stat: &str) -> bool {
    let Some(ticks) = started(stat) else {
        return false;
    };
    let ticks = View::own().normal(ticks);
    wanted.started_ticks == 0 || ticks <= wanted.started_ticks.saturating_add(ROUNDING_TICKS)
}

/// Looks for a process.
pub(in crate::watch) fn find(wanted: &ProcessId) -> Place {
    let view = View::own();
    if wanted.boot == 0 || wanted.boot != view.boot {
        return Place::Hidden("it runs on another host".to_owned());
    }
    if wanted.namespace == 0 || view.namespace == 0 {
        return Place::Hidden("its PID namespace is not known".to_owned());
    }
    if wanted.namespace == view.namespace && view.is_own {
        let place = check(wanted, wanted.pid);
        let pid = wanted.pid;
        if place == Place::Ended && is_there(pid) && !is_shown(pid) {
            return Place::Hidden("/proc does not show it (hidepid)".to_owned());
        }
        return place;
    }
    let mut known = known();
    let now_ns = Clock::nanos();
    match known.get(wanted) {
        Some(Known::At(pid)) => return check(wanted, *pid),
        Some(Known::NotSince(ns)) if now_ns.saturating_sub(*ns) < SEARCH_AGAIN_NS => {
            return hidden(wanted);
        }
        Some(Known::NotSince(_)) | None => {}
    }
    if known.len() >= KNOWN_MAX {
        known.clear();
    }
    let found = search(wanted);
    known.insert(*wanted, found.map_or(Known::NotSince(now_ns), Known::At));
    found.map_or_else(|| hidden(wanted), Place::At)
}

fn hidden(wanted: &ProcessId) -> Place {
    Place::Hidden(format!(
        "it runs in another PID namespace ({}), which /proc does not show here",
        wanted.namespace
    ))
}

/// What is known of a process of another namespace.
#[derive(Clone, Copy, Debug)]
enum Known {
    /// It was found under this number.
    At(u32),
    /// It was not found at this time.
    NotSince(u64),
}

fn known() -> std::sync::MutexGuard<'static, HashMap<ProcessId, Known>> {
    static KNOWN: OnceLock<Mutex<HashMap<ProcessId, Known>>> = OnceLock::new();
    KNOWN
        .get_or_init(Mutex::default)
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

/// Whether the process is still the one with this number in /proc.
fn check(wanted: &ProcessId, pid: u32) -> Place {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) if is_it(wanted, &stat) => Place::At(pid),
        _ => Place::Ended,
    }
}

/// Whether the kernel knows a process by this number, in the namespace of this one.
fn is_there(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

fn is_shown(pid: u32) -> bool {
    std::fs::exists(format!("/proc/{pid}/stat")).unwrap_or(false)
}

/// Looks through all of /proc for a process of another namespace.
fn search(wanted: &ProcessId) -> Option<u32> {
    let pids = std::fs::read_dir("/proc").ok()?.flatten();
    let mut pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.find(|pid| {
        let name = pid.to_string();
        namespace_of(&name) == Some(wanted.namespace)
            && numbers_of(&name).is_some_and(|numbers| numbers.last() == Some(&wanted.pid))
            && check(wanted, *pid) == Place::At(*pid)
    })
}

/// The inode of the PID namespace of a process, where that may be known.
fn namespace_of(process: &str) -> Option<u64> {
    let link = std::fs::read_link(format!("/proc/{process}/ns/pid")).ok()?;
    let inode = link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?;
    inode.parse().ok()
}

/// The numbers of a process, from the namespace that /proc shows down to its own.
fn numbers_of(process: &str) -> Option<Vec<u32>> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let numbers = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers
        .split_whitespace()
        .map(|number| number.parse().ok())
        .collect()
}

/// The boot of this kernel as a number: the first half of its random id.
fn boot() -> u64 {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = id
        .chars()
        .filter(char::is_ascii_hexdigit)
        .take(16)
        .collect();
    u64::from_str_radix(&digits, 16).unwrap_or(0)
}

/// When a process started, in hundredths of a second since the boot: field 22 of /proc/PID/stat.
fn started(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(19)?.parse().ok()
}

/// By how much a time namespace is ahead of the first one, from /proc/self/timens_offsets.
fn ahead_ticks(offsets: &str) -> i64 {
    let line = offsets
        .lines()
        .find_map(|line| line.strip_prefix("boottime"));
    let mut numbers = line
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|number| number.parse::<i64>().ok());
    let (seconds, nanos) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    seconds.saturating_mul(100) + nanos / 10_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_found_by_number_and_start_and_no_other_is_taken_for_it() {
        let me = own();
        assert!(
            me.boot != 0 && me.namespace != 0 && me.started_ticks != 0,
            "{me:?}"
        );
        assert_eq!(find(&me), Place::At(me.pid));
        let earlier = ProcessId {
            started_ticks: me.started_ticks.saturating_sub(2),
            ..me
        };
        assert_eq!(find(&earlier), Place::Ended);
        let emulated = ProcessId {
            started_ticks: me.started_ticks + 500,
            ..me
        };
        assert_eq!(find(&emulated), Place::At(me.pid));
        let nobody = ProcessId {
            pid: 4_194_304,
            ..me
        };
        assert_eq!(find(&nobody), Place::Ended);
    }

    #[test]
    fn what_is_elsewhere_is_hidden_and_has_not_ended() {
        let me = own();
        let far = ProcessId {
            boot: me.boot ^ 1,
            ..me
        };
        // The same number and start, in another container.
        let inside = ProcessId { namespace: 1, ..me };
        let unknown = ProcessId { namespace: 0, ..me };
        for other in [far, inside, unknown, ProcessId::default()] {
            assert!(matches!(find(&other), Place::Hidden(_)), "{other:?}");
        }
    }

    #[test]
    fn start_times_are_read_behind_any_name_and_without_the_offset_of_a_time_namespace() {
        let fields = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        assert_eq!(started(&format!("7 (a) b) {fields}")), Some(4711));
        assert_eq!(started("7 (a) S 1"), None);
        let offsets = "monotonic           0         0\nboottime          -90 500000000\n";
        assert_eq!(ahead_ticks(offsets), -8950);
        assert_eq!(ahead_ticks(""), 0);
        let view = View {
            boot: 1,
            namespace: 1,
            is_own: true,
            ahead_ticks: -8950,
        };
        assert_eq!(view.normal(50), 9000);
    }
}
