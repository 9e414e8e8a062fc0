//! Whether the processors that this process may use suffice for the ranks.

use muster_comm::processors::CpuList;

use super::super::system::count;
use super::super::{Finding, Problem, System};

/// Processors of a list as in `0-3,8`.
fn of_list(text: &str) -> Option<u32> {
    u32::try_from(CpuList::parse(text)?.count()).ok()
}

fn list(system: &System) -> Option<String> {
    let status = system.read("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(line.trim().to_owned())
}

/// Processors that this process may use.
pub(super) fn allowed(system: &System) -> Option<u32> {
    of_list(&list(system)?).filter(|number| *number > 0)
}

pub(super) fn judge(system: &System) -> Finding {
    let Some((list, allowed)) = list(system).zip(allowed(system)) else {
        return Finding::skip("/proc/self/status does not tell the processors");
    };
    let online = system
        .read("/sys/devices/system/cpu/online")
        .and_then(|text| of_list(&text));
    let evidence = format!(
        "/proc/self/status: Cpus_allowed_list {list}; online {}",
        online.map_or_else(|| "unknown".to_owned(), |online| online.to_string())
    );
    let Some(ranks) = system.ranks() else {
        return Finding::ok(
            format!("{} may be used", count(allowed, "processor")),
            evidence,
        );
    };
    if allowed < ranks.count {
        let bound = online.is_some_and(|online| allowed < online);
        let remedy = if bound {
            "bind each rank to processors of its own, not all to the same: taskset -pc, mpirun --bind-to none, srun --cpu-bind=none"
        } else {
            "start fewer ranks on this host"
        };
        let what = format!(
            "{} may use {} together, so ranks wait for each other's time slices",
            count(ranks.count, "rank"),
            count(allowed, "processor")
        );
        return Problem::warn(what, format!("{evidence}; ranks by {}", ranks.how), remedy).into();
    }
    Finding::ok(
        format!(
            "{} for {}",
            count(allowed, "processor"),
            count(ranks.count, "rank")
        ),
        evidence,
    )
}
