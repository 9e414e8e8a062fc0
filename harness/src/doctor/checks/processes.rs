//! Whether there is room for the threads of all ranks.

use super::super::cgroup::lowest;
use super::super::system::count;
use super::super::{Finding, Problem, System};
use super::memory_lock::limit;

/// Threads of one rank of ours.
const A_RANK_MIN: u64 = 8;
/// Threads of a rank with torch and the runtime loaded.
const A_RANK_EASY: u64 = 256;

pub(super) fn judge(system: &System) -> Finding {
    let Some((left, evidence, remedy)) = rooms(system).into_iter().min_by_key(|(left, _, _)| *left)
    else {
        return Finding::skip("nothing tells how many processes are allowed");
    };
    let ranks = system.ranks().map_or(16, |ranks| ranks.count);
    let easy = A_RANK_EASY * u64::from(ranks);
    if left < A_RANK_MIN * u64::from(ranks) {
        return Problem::fail(
            format!(
                "only {left} more processes and threads are allowed, too few for {}",
                count(ranks, "rank")
            ),
            evidence,
            remedy,
        )
        .into();
    }
    if left < easy && !system.devices().is_empty() {
        return Problem::warn(
            format!("only {left} more processes and threads are allowed; {} with torch take about {easy}", count(ranks, "rank")),
            evidence,
            remedy,
        )
        .into();
    }
    Finding::ok(
        format!("{left} more processes and threads are allowed"),
        evidence,
    )
}

/// Every limit: how many more it allows, where it stands, and how to raise it.
fn rooms(system: &System) -> Vec<(u64, String, &'static str)> {
    let mut room = Vec::new();
    if let Some(limit) = lowest(system, "pids", ["pids.max", "pids.max"]) {
        let used = system
            .number(format!("{}/pids.current", limit.folder))
            .unwrap_or(0);
        room.push((
            limit.value.saturating_sub(used),
            format!("{}: {}, used {used}", limit.file, limit.value),
            "raise the limit of the container: docker run --pids-limit=-1, or podPidsLimit of the kubelet",
        ));
    }
    let is_root = system
        .read("/proc/self/status")
        .is_some_and(|status| status.lines().any(|line| line.starts_with("Uid:\t0\t")));
    if let Some((Some(soft), _)) = limit(system, "Max processes").filter(|_| !is_root) {
        room.push((
            soft,
            format!("/proc/self/limits: max processes {soft}, for all processes of this user"),
            "ulimit -u 65536; for good: \"* - nproc 65536\" in /etc/security/limits.conf",
        ));
    }
    // The last number of loadavg but one is `running/all` of the host's threads.
    let all = system.read("/proc/loadavg").and_then(|text| {
        text.split_ascii_whitespace()
            .nth(3)?
            .split_once('/')?
            .1
            .parse::<u64>()
            .ok()
    });
    for (file, name) in [
        ("/proc/sys/kernel/threads-max", "kernel.threads-max"),
        ("/proc/sys/kernel/pid_max", "kernel.pid_max"),
    ] {
        if let Some(max) = system.number(file) {
            let remedy = if name == "kernel.pid_max" {
                "sysctl -w kernel.pid_max=4194304"
            } else {
                "sysctl -w kernel.threads-max=1000000"
            };
            room.push((
                max.saturating_sub(all.unwrap_or(0)),
                format!("{file}: {max}"),
                remedy,
            ));
        }
    }
    room
}
