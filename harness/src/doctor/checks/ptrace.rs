//! Whether the stack of a rank that hangs can be looked at.

use super::super::{Finding, Problem, System};

const FILE: &str = "/proc/sys/kernel/yama/ptrace_scope";

pub(super) fn judge(system: &System) -> Finding {
    let Some(scope) = system.number(FILE) else {
        return Finding::ok(
            "processes of one user may look at each other",
            format!("{FILE} does not exist"),
        );
    };
    let evidence = format!("{FILE}: {scope}");
    match scope {
        0 => Finding::ok("processes of one user may look at each other", evidence),
        1 => Finding::ok("a process may be looked at by its parents, and by root", evidence),
        2 => Problem::warn(
            "only root can look at the stack of a rank that hangs (py-spy, gdb)",
            evidence,
            "sysctl -w kernel.yama.ptrace_scope=1; in a container: docker run --cap-add=SYS_PTRACE",
        )
        .into(),
        _ => Problem::warn(
            "nobody can look at the stack of a rank that hangs (py-spy, gdb), and only a reboot changes that",
            evidence,
            "boot with kernel.yama.ptrace_scope=1 in /etc/sysctl.conf",
        )
        .into(),
    }
}
