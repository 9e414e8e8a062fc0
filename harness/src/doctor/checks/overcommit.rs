//! Whether address space may be reserved before it is used.

use super::super::system::size;
use super::super::{Finding, Problem, System};
use super::memory::meminfo;

const FILE: &str = "/proc/sys/vm/overcommit_memory";

pub(super) fn judge(system: &System) -> Finding {
    let Some(mode) = system.number(FILE) else {
        return Finding::skip(format!("{FILE} cannot be read"));
    };
    if mode != 2 {
        return Finding::ok(
            "address space may be reserved before it is used",
            format!("{FILE}: {mode}"),
        );
    }
    let limit = meminfo(system, "CommitLimit").unwrap_or(0);
    let taken = meminfo(system, "Committed_AS").unwrap_or(0);
    Problem::warn(
        format!(
            "every reservation counts as used memory (vm.overcommit_memory=2) and {} are left: torch, the runtime and muster reserve far more than they use",
            size(limit.saturating_sub(taken))
        ),
        format!("{FILE}: 2; CommitLimit {}, Committed_AS {}", size(limit), size(taken)),
        "sysctl -w vm.overcommit_memory=0; for muster alone: export MUSTER_REGION_BYTES=256MiB",
    )
    .into()
}
