//! Whether running out of memory takes the whole host down.

use super::super::{Finding, Problem, System};

const FILE: &str = "/proc/sys/vm/panic_on_oom";

pub(super) fn judge(system: &System) -> Finding {
    let Some(value) = system.number(FILE) else {
        return Finding::skip(format!("{FILE} cannot be read"));
    };
    let evidence = format!("{FILE}: {value}");
    match value {
        0 => Finding::ok("out of memory, the kernel kills a process, not the host", evidence),
        1 => Problem::warn(
            "one rank that runs out of memory panics the whole host, and every job on it",
            evidence,
            "sysctl -w vm.panic_on_oom=0",
        )
        .into(),
        _ => Problem::warn(
            "one rank that reaches the memory limit of its container panics the whole host, and every job on it",
            evidence,
            "sysctl -w vm.panic_on_oom=0",
        )
        .into(),
    }
}
