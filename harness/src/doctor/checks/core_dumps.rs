//! Whether a crash leaves something to look at, and not a full disk.

use super::super::system::size;
use super::super::{Finding, Problem, System};
use super::memory_lock::{limit, shown};

const FILE: &str = "/proc/sys/kernel/core_pattern";

pub(super) fn judge(system: &System) -> Finding {
    let Some(pattern) = system.read(FILE) else {
        return Finding::skip(format!("{FILE} cannot be read"));
    };
    let soft = limit(system, "Max core file size").and_then(|(soft, _)| soft);
    let evidence = format!(
        "{FILE}: {pattern}; /proc/self/limits: max core file size {}",
        shown(soft, size)
    );
    if let Some(handler) = pattern.strip_prefix('|') {
        let program = handler.split_ascii_whitespace().next().unwrap_or_default();
        // In a container the program is looked for outside, where it may well be.
        let is_host = system
            .processes()
            .iter()
            .any(|process| process.pid == 2 && process.name == "kthreadd");
        if is_host && !system.exists(program) {
            return Problem::warn(
                format!("core dumps are handed to {program}, which does not exist: a crash leaves nothing"),
                evidence,
                "sysctl -w kernel.core_pattern=/var/crash/core.%e.%p, and make that folder",
            )
            .into();
        }
        return Finding::ok(format!("core dumps are handed to {program}"), evidence);
    }
    if soft == Some(0) {
        return Finding::ok("a crash writes no core dump", evidence);
    }
    if pattern.contains('/') {
        let folder = pattern.rsplit_once('/').map_or("", |(folder, _)| folder);
        if !folder.contains('%') && !folder.is_empty() && !system.path(folder).is_dir() {
            return Problem::warn(
                format!("core dumps go to {folder}, which does not exist: a crash leaves nothing"),
                evidence,
                format!("mkdir -p {folder}"),
            )
            .into();
        }
        return Finding::ok(format!("core dumps go to {pattern}"), evidence);
    }
    if !system.devices().is_empty() {
        return Problem::warn(
            "a crash of all ranks writes a core dump of each into the working folder, as large as their memory",
            evidence,
            "ulimit -c 0, or: sysctl -w kernel.core_pattern=/var/crash/core.%e.%p",
        )
        .into();
    }
    Finding::ok(
        format!("core dumps go to the working folder as {pattern}"),
        evidence,
    )
}
