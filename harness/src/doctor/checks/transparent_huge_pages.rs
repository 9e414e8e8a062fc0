//! Whether the kernel stops processes to make huge pages for them.

use super::super::{Finding, Problem, System};

const FOLDER: &str = "/sys/kernel/mm/transparent_hugepage";

/// The word in brackets: the choice in force.
fn chosen(text: &str) -> Option<&str> {
    Some(text.split_once('[')?.1.split_once(']')?.0)
}

pub(super) fn judge(system: &System) -> Finding {
    let read = |name: &str| {
        let text = system.read(format!("{FOLDER}/{name}"))?;
        chosen(&text).map(str::to_owned)
    };
    let Some(enabled) = read("enabled") else {
        return Finding::skip(format!("{FOLDER}/enabled cannot be read"));
    };
    let defrag = read("defrag").unwrap_or_default();
    let shared = read("shmem_enabled").unwrap_or_default();
    let evidence = format!("{FOLDER}: enabled {enabled}, defrag {defrag}, shmem_enabled {shared}");
    if defrag == "always" && enabled != "never" {
        return Problem::warn(
            "the kernel stops a process in mid-run to make huge pages for it (defrag=always), which looks like a slow rank",
            evidence,
            format!("echo madvise > {FOLDER}/defrag"),
        )
        .into();
    }
    if enabled == "never" {
        return Problem::warn(
            "transparent huge pages are off: large buffers cost more time at first touch",
            evidence,
            format!("echo madvise > {FOLDER}/enabled"),
        )
        .into();
    }
    Finding::ok(format!("transparent huge pages: {enabled}"), evidence)
}
