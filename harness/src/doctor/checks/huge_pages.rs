//! Whether huge pages that nobody uses hold memory back.

use super::super::system::size;
use super::super::{Finding, Problem, System};
use super::memory::meminfo;

pub(super) fn judge(system: &System) -> Finding {
    let (Some(total), Some(all)) = (
        meminfo(system, "HugePages_Total"),
        meminfo(system, "MemTotal"),
    ) else {
        return Finding::skip("/proc/meminfo does not tell of huge pages");
    };
    let page = meminfo(system, "Hugepagesize").unwrap_or(2 << 20);
    let free = meminfo(system, "HugePages_Free").unwrap_or(0);
    let (reserved, idle) = (total.saturating_mul(page), free.saturating_mul(page));
    let evidence = format!(
        "/proc/meminfo: HugePages_Total {total}, HugePages_Free {free}, Hugepagesize {}",
        size(page)
    );
    // What is idle serves nobody: neither ranks nor the page cache can have it.
    if idle > all / 4 {
        return Problem::warn(
            format!(
                "{} of {} memory are reserved as huge pages that nobody uses",
                size(idle),
                size(all)
            ),
            evidence,
            "sysctl -w vm.nr_hugepages=0, unless a program is about to take them",
        )
        .into();
    }
    if total == 0 {
        return Finding::ok("no memory is reserved as huge pages", evidence);
    }
    Finding::ok(
        format!("{} are reserved as huge pages", size(reserved)),
        evidence,
    )
}
