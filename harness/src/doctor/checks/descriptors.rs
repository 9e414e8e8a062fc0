//! Whether a process may open enough files and sockets.

use super::super::{Finding, Problem, System};
use super::memory_lock::{limit, shown};

/// For programs, libraries, logs.
const OWN: u64 = 128;
/// For each rank: links and regions of a process, and what its launcher holds.
const A_RANK: u64 = 16;
/// What a rank with torch, data loaders and the runtime takes without trouble.
const EASY: u64 = 4096;

pub(super) fn judge(system: &System) -> Finding {
    let Some((soft, hard)) = limit(system, "Max open files") else {
        return Finding::skip("/proc/self/limits does not tell the limit");
    };
    let number = |limit: u64| limit.to_string();
    let evidence = format!(
        "/proc/self/limits: max open files {}, hard limit {}",
        shown(soft, number),
        shown(hard, number)
    );
    let ranks = system.ranks().map_or(16, |ranks| ranks.count);
    let needed = OWN + A_RANK * u64::from(ranks);
    let remedy = match hard {
        Some(hard) if hard < EASY.max(needed) => {
            "raise the hard limit: \"* - nofile 65536\" in /etc/security/limits.conf, LimitNOFILE in systemd, or docker run --ulimit nofile=65536".to_owned()
        }
        Some(hard) => format!("ulimit -n {}", hard.min(65_536)),
        None => "ulimit -n 65536".to_owned(),
    };
    match soft {
        Some(soft) if soft < needed => Problem::fail(
            format!("a process may open only {soft} files and sockets, and {ranks} ranks need {needed}"),
            evidence,
            remedy,
        )
        .into(),
        Some(soft) if soft < EASY && !system.devices().is_empty() => Problem::warn(
            format!("a process may open only {soft} files and sockets; a rank with torch and data loaders takes more"),
            evidence,
            remedy,
        )
        .into(),
        _ => Finding::ok(format!("a process may open {} files and sockets", shown(soft, number)), evidence),
    }
}
