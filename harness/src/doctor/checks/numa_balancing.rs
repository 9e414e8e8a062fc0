//! Whether the kernel moves pages between memory nodes behind a rank's back.

use super::super::{Finding, Problem, System};

const FILE: &str = "/proc/sys/kernel/numa_balancing";

pub(super) fn judge(system: &System) -> Finding {
    let is_node = |name: &String| {
        name.strip_prefix("node")
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let nodes = system
        .names("/sys/devices/system/node")
        .iter()
        .filter(|name| is_node(name))
        .count();
    let Some(value) = system.number(FILE) else {
        return Finding::skip(format!("{FILE} does not exist"));
    };
    let evidence = format!("{FILE}: {value}; {nodes} memory nodes");
    if value != 0 && nodes > 1 {
        return Problem::warn(
            "automatic NUMA balancing is on: the kernel unmaps pages of ranks to see who uses them, which shows as jitter",
            evidence,
            "sysctl -w kernel.numa_balancing=0",
        )
        .into();
    }
    Finding::ok("no pages are moved between memory nodes", evidence)
}
