//! Whether the libraries that every program is to load first are there, and are libraries.

use super::super::{Finding, Problem, System};

/// Where the loader looks for bare names, beside `LD_LIBRARY_PATH` and its cache.
const FOLDERS: [&str; 8] = [
    "/lib",
    "/usr/lib",
    "/lib64",
    "/usr/lib64",
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
];

pub(super) fn judge(system: &System) -> Finding {
    let listed = system.text("LD_PRELOAD").unwrap_or_default().to_owned();
    let by_file = system.read("/etc/ld.so.preload").unwrap_or_default();
    let mut problems = Vec::new();
    let mut found = Vec::new();
    for (text, place) in [
        (listed.as_str(), "LD_PRELOAD"),
        (by_file.as_str(), "/etc/ld.so.preload"),
    ] {
        for item in text.split([' ', ':', '\n']).filter(|item| !item.is_empty()) {
            let path = place_of(system, item);
            // `$LIB` and `$ORIGIN` are the loader's own words.
            let is_open = item.contains('$');
            let is_elf = path.as_ref().map(|path| system.is_elf(path) != Some(false));
            if is_open || is_elf == Some(true) {
                found.push(item.to_owned());
                continue;
            }
            let is_path = item.contains('/') || is_elf.is_some();
            let state = if is_elf.is_some() {
                "is no library (its file does not begin as ELF files do)"
            } else {
                "does not exist"
            };
            let what = format!(
                "{place} names {item}, which {state}: every program starts without it and says so on stderr"
            );
            let remedy = if place == "LD_PRELOAD" {
                "unset LD_PRELOAD, or name a library that exists".to_owned()
            } else {
                format!("install {item}, or take it out of {place}")
            };
            let evidence = format!("{place}: {item}");
            problems.push(if is_path {
                Problem::fail(what, evidence, remedy)
            } else {
                // The loader's cache may know it; we do not read that.
                Problem::warn(what, evidence, remedy)
            });
        }
    }
    Finding::of(problems, || {
        if found.is_empty() {
            return Finding::ok("nothing is preloaded", "LD_PRELOAD is not set");
        }
        Finding::ok(
            "all preloaded files exist and are libraries",
            found.join(" "),
        )
    })
}

/// Where a library lies that is named by its path or by its bare name.
fn place_of(system: &System, item: &str) -> Option<String> {
    if item.contains('/') {
        return system.exists(item).then(|| item.to_owned());
    }
    system
        .library_folders()
        .chain(FOLDERS)
        .map(|folder| format!("{folder}/{item}"))
        .find(|place| system.exists(place))
}
