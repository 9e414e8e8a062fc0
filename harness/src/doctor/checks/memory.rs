//! Whether there is memory left for ranks, within the limits of the control groups.

use super::super::cgroup::lowest;
use super::super::system::{count, size};
use super::super::{Finding, Problem, System};

/// Below this a rank of any training stack does not start.
const A_RANK_MIN: u64 = 128 << 20;
/// Below this a rank with torch and the runtime loaded is likely to be killed.
const A_RANK_EASY: u64 = 1 << 30;

/// A number of `/proc/meminfo`, in bytes.
pub(super) fn meminfo(system: &System, key: &str) -> Option<u64> {
    let text = system.read("/proc/meminfo")?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    let number: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(if line.trim_end().ends_with("kB") {
        number << 10
    } else {
        number
    })
}

pub(super) fn judge(system: &System) -> Finding {
    let Some(available) = meminfo(system, "MemAvailable") else {
        return Finding::skip("/proc/meminfo does not tell what is available");
    };
    let limit = lowest(system, "memory", ["memory.max", "memory.limit_in_bytes"]);
    let mut left = available;
    let mut evidence = format!("/proc/meminfo: MemAvailable {}", size(available));
    let mut who = "the host";
    if let Some(limit) = &limit {
        let used = ["memory.current", "memory.usage_in_bytes"]
            .iter()
            .find_map(|file| system.number(format!("{}/{file}", limit.folder)))
            .unwrap_or(0);
        let cache = cache(system, &limit.folder);
        let inside = limit.value.saturating_sub(used.saturating_sub(cache));
        evidence = format!(
            "{evidence}; {}: {}, used {}",
            limit.file,
            size(limit.value),
            size(used)
        );
        if inside < left {
            left = inside;
            who = "the control group";
        }
    }
    let ranks = system.ranks().map_or(1, |ranks| ranks.count);
    let each = left / u64::from(ranks);
    let remedy = if who == "the host" {
        "end what takes the memory (`ps aux --sort=-rss | head`), or start fewer ranks"
    } else {
        "raise the memory limit of the container (docker run --memory, or resources.limits.memory in Kubernetes), or start fewer ranks"
    };
    if each < A_RANK_MIN || (each < A_RANK_EASY && !system.devices().is_empty()) {
        let what = format!(
            "{who} has {} left for {}, {} each",
            size(left),
            count(ranks, "rank"),
            size(each)
        );
        return if each < A_RANK_MIN {
            Problem::fail(what, evidence, remedy).into()
        } else {
            Problem::warn(what, evidence, remedy).into()
        };
    }
    Finding::ok(format!("{} of memory are left", size(left)), evidence)
}

/// Page cache counts as used and is given back when it is needed.
fn cache(system: &System, folder: &str) -> u64 {
    let text = system
        .read(format!("{folder}/memory.stat"))
        .unwrap_or_default();
    let number = |key: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.parse().ok())
    };
    let files: [Option<u64>; 2] = [number("inactive_file"), number("active_file")];
    files.into_iter().flatten().sum()
}
