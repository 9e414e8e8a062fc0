//! Whether the libraries that every program is to load first are there.

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
            if is_there(system, item) {
                found.push(item.to_owned());
                continue;
            }
            let is_path = item.contains('/');
            let what = format!(
                "{place} names {item}, which does not exist: every program starts without it and says so on stderr"
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
        Finding::ok("all preloaded libraries exist", found.join(" "))
    })
}

fn is_there(system: &System, item: &str) -> bool {
    // `$LIB` and `$ORIGIN` are the loader's own words.
    if item.contains('/') {
        return item.contains('$') || system.exists(item);
    }
    let path = system.text("LD_LIBRARY_PATH").unwrap_or_default();
    path.split(':')
        .filter(|folder| !folder.is_empty())
        .chain(FOLDERS)
        .any(|folder| system.exists(format!("{folder}/{item}")))
}
