//! The rules of the house that a program can check: sizes, doors, directions.
//!
//! Each rule says in its message what to do. A rule that stands in the way of something better is
//! changed here, in a commit that says why.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Longest file, tests at its end not counted.
const LINES_MAX: usize = 500;

/// Files that may hold unsafe code, beside all of `hccl-sys` and `hccl-emu` and the integration tests.
const UNSAFE: &[&str] = &[
    "comm/src/backend/",
    "comm/src/buffer.rs",
    "comm/src/collective/tamper.rs",
    "comm/src/device/",
    "comm/src/kernel/",
    "comm/src/launch/exchange/pmix.rs",
    "comm/src/transport/ring.rs",
    "comm/src/transport/shm/",
    "comm/src/transport/stream.rs",
    "comm/src/transport/tcp",
    "comm/src/watch/board/memory.rs",
    "comm/src/watch/signal.rs",
    "comm/src/watch/stack.rs",
    "comm/src/watch/tap/ask.rs",
    "comm/src/watch/tap/files.rs",
    "comm/src/watch/view.rs",
    "models/src/arena.rs",
    "python/src/buffer.rs",
    "python/src/dlpack.rs",
    "python/src/interrupt.rs",
    "python/src/stack.rs",
    "python/src/table.rs",
    "python/src/threads.rs",
    "tap/src/",
];

/// A crate of the workspace: its folder, its name in paths, and its floors from the bottom up. A floor is
/// a room (a module at the top of the crate, or the root file) with all that it uses beside itself.
type House = (&'static str, &'static str, &'static [Floor]);
type Floor = (&'static str, &'static [&'static str]);

/// Who uses whom. A room may use rooms that are listed before it, and crates that are listed before its own: so
/// there is no circle, and no import upward.
const HOUSES: &[House] = &[
    (
        "hccl-sys",
        "hccl_sys",
        &[
            ("codes", &[]),
            ("headers", &[]),
            ("loaded", &[]),
            ("search", &["loaded"]),
            ("types", &["headers"]),
            ("symbols", &["headers", "loaded", "search", "types"]),
            ("version", &["symbols", "types"]),
            ("lib", &[]),
        ],
    ),
    (
        "comm",
        "muster_comm",
        &[
            ("memfd", &[]),
            ("processors", &[]),
            ("host_load", &["processors"]),
            ("sync", &[]),
            ("types", &[]),
            ("vendor", &["hccl_sys"]),
            ("strangers", &["sync"]),
            ("buffer", &["types"]),
            ("layout", &["types"]),
            ("algo", &["types"]),
            ("kernel", &["sync", "types"]),
            ("transport", &["memfd", "strangers", "sync", "types"]),
            ("error", &["types", "vendor"]),
            ("rendezvous", &["host_load", "strangers", "sync", "types"]),
            (
                "config",
                &["hccl_sys", "kernel", "processors", "rendezvous", "types"],
            ),
            ("sabotage", &["config"]),
            (
                "launch",
                &["config", "hccl_sys", "rendezvous", "sync", "types"],
            ),
            (
                "watch",
                &[
                    "error",
                    "host_load",
                    "memfd",
                    "rendezvous",
                    "sabotage",
                    "sync",
                    "types",
                    "vendor",
                ],
            ),
            (
                "context",
                &[
                    "algo",
                    "error",
                    "rendezvous",
                    "sync",
                    "transport",
                    "types",
                    "watch",
                ],
            ),
            (
                "backend",
                &[
                    "algo",
                    "context",
                    "error",
                    "kernel",
                    "processors",
                    "sabotage",
                    "sync",
                    "transport",
                    "types",
                    "watch",
                ],
            ),
            (
                "collective",
                &[
                    "algo", "backend", "buffer", "context", "error", "sync", "types", "watch",
                ],
            ),
            (
                "device",
                &[
                    "backend",
                    "buffer",
                    "collective",
                    "context",
                    "error",
                    "hccl_sys",
                    "kernel",
                    "launch",
                    "sync",
                    "transport",
                    "types",
                    "vendor",
                    "watch",
                ],
            ),
            (
                "world",
                &[
                    "algo",
                    "buffer",
                    "collective",
                    "config",
                    "context",
                    "error",
                    "kernel",
                    "launch",
                    "processors",
                    "rendezvous",
                    "sabotage",
                    "sync",
                    "transport",
                    "types",
                    "watch",
                ],
            ),
            (
                "simulate",
                &[
                    "backend",
                    "context",
                    "error",
                    "host_load",
                    "rendezvous",
                    "transport",
                    "types",
                    "watch",
                    "world",
                ],
            ),
            (
                "lib",
                &[
                    "buffer",
                    "collective",
                    "config",
                    "device",
                    "error",
                    "layout",
                    "processors",
                    "types",
                    "world",
                ],
            ),
        ],
    ),
    (
        "hccl-emu",
        "muster_emu",
        &[
            ("fault", &["muster_comm"]),
            ("options", &["hccl_sys", "muster_comm"]),
            ("runtime", &["muster_comm", "options"]),
            ("acl", &["muster_comm", "options", "runtime"]),
            (
                "hccl",
                &["fault", "hccl_sys", "muster_comm", "options", "runtime"],
            ),
            ("unsupported", &["runtime"]),
            ("lib", &[]),
        ],
    ),
    (
        "tap",
        "muster_tap",
        &[
            ("real", &[]),
            ("streams", &["real"]),
            ("python", &["muster_comm", "real"]),
            ("shared", &["muster_comm", "python", "streams"]),
            ("record", &["muster_comm", "real", "shared", "streams"]),
            ("exports", &["muster_comm", "real", "record"]),
            ("lib", &[]),
        ],
    ),
    (
        "harness",
        "muster",
        &[
            ("lib", &[]),
            ("random", &[]),
            ("stats", &[]),
            ("progress", &[]),
            ("doctor", &["hccl_sys", "muster_comm"]),
            ("exit", &["muster_comm"]),
            ("fail", &["exit"]),
            ("out", &["exit", "fail", "muster_comm"]),
            ("world", &["exit", "fail", "muster_comm", "out"]),
            (
                "report",
                &[
                    "doctor",
                    "exit",
                    "fail",
                    "lib",
                    "muster_comm",
                    "out",
                    "stats",
                ],
            ),
            (
                "diagnosis",
                &[
                    "doctor",
                    "exit",
                    "fail",
                    "lib",
                    "muster_comm",
                    "out",
                    "report",
                ],
            ),
            ("live", &["fail", "muster_comm", "out", "report"]),
            (
                "explanation",
                &[
                    "exit",
                    "fail",
                    "lib",
                    "live",
                    "muster_comm",
                    "out",
                    "report",
                ],
            ),
            (
                "verify",
                &["exit", "fail", "lib", "muster_comm", "out", "report"],
            ),
            ("check", &["muster_comm", "report", "verify", "world"]),
            (
                "bench",
                &["check", "exit", "muster_comm", "out", "report", "stats"],
            ),
            ("predict", &["bench", "muster_comm", "stats"]),
            ("topology", &["fail", "muster_comm", "predict"]),
            ("replay", &["check", "muster_comm", "topology"]),
            (
                "baseline",
                &[
                    "bench",
                    "exit",
                    "fail",
                    "lib",
                    "muster_comm",
                    "out",
                    "report",
                    "stats",
                ],
            ),
            (
                "moe",
                &[
                    "bench",
                    "check",
                    "exit",
                    "fail",
                    "lib",
                    "muster_comm",
                    "out",
                    "random",
                    "report",
                    "stats",
                    "topology",
                ],
            ),
            (
                "validation",
                &[
                    "bench",
                    "exit",
                    "fail",
                    "lib",
                    "moe",
                    "muster_comm",
                    "out",
                    "report",
                    "stats",
                ],
            ),
            (
                "run",
                &[
                    "bench",
                    "check",
                    "exit",
                    "fail",
                    "moe",
                    "muster_comm",
                    "out",
                    "report",
                    "verify",
                    "world",
                ],
            ),
            ("backend", &["fail", "hccl_sys", "muster_comm", "run"]),
            (
                "drill",
                &[
                    "exit",
                    "fail",
                    "muster_comm",
                    "out",
                    "random",
                    "report",
                    "run",
                    "world",
                ],
            ),
            (
                "compare",
                &["exit", "fail", "lib", "out", "report", "stats"],
            ),
            (
                "results",
                &[
                    "baseline",
                    "bench",
                    "compare",
                    "diagnosis",
                    "drill",
                    "fail",
                    "moe",
                    "report",
                    "validation",
                    "verify",
                ],
            ),
            (
                "cmd",
                &[
                    "backend",
                    "baseline",
                    "bench",
                    "check",
                    "compare",
                    "diagnosis",
                    "doctor",
                    "drill",
                    "exit",
                    "explanation",
                    "fail",
                    "hccl_sys",
                    "lib",
                    "live",
                    "moe",
                    "muster_comm",
                    "muster_emu",
                    "out",
                    "predict",
                    "progress",
                    "replay",
                    "report",
                    "results",
                    "run",
                    "stats",
                    "topology",
                    "validation",
                    "verify",
                    "world",
                ],
            ),
            ("cli", &["cmd", "exit", "out"]),
            ("main", &[]),
        ],
    ),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace")
        .to_owned()
}

/// Every Rust file of the workspace and of `python`, as (path from the root, text).
fn sources() -> Vec<(String, String)> {
    files(&["rs"])
}

/// Every file of these kinds, as (path from the root, text).
fn files(kinds: &[&str]) -> Vec<(String, String)> {
    fn walk(dir: &Path, kinds: &[&str], found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).expect("a folder of the workspace") {
            let path = entry.expect("an entry").path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                walk(&path, kinds, found);
            } else if path
                .extension()
                .is_some_and(|extension| kinds.iter().any(|kind| extension == *kind))
            {
                found.push(path);
            }
        }
    }
    let root = root();
    let mut found = Vec::new();
    walk(&root, kinds, &mut found);
    found.sort();
    assert!(
        found.len() > 50,
        "the walk found only {} files",
        found.len()
    );
    let read = |path: PathBuf| {
        let name = path
            .strip_prefix(&root)
            .expect("below the root")
            .to_string_lossy()
            .into_owned();
        (name, fs::read_to_string(&path).expect("a readable source"))
    };
    found.into_iter().map(read).collect()
}

fn is_test(name: &str) -> bool {
    name.starts_with("tests/")
        || name.contains("/tests/")
        || name.ends_with("/tests.rs")
        || name.contains("/benches/")
        || name.contains("/examples/")
}

/// The text without the tests at its end.
fn code(text: &str) -> &str {
    text.split("\n#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or(text)
}

/// The code without comments, roughly: enough to look for words.
fn words(text: &str) -> String {
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    code(text)
        .lines()
        .filter(is_code)
        .collect::<Vec<_>>()
        .join("\n")
}

fn complain(rule: &str, offences: &[String]) {
    assert!(offences.is_empty(), "{rule}:\n  {}", offences.join("\n  "));
}

#[test]
fn files_stay_short_enough_to_be_read_at_once() {
    let long: Vec<String> = files(&["rs", "py", "cpp", "hpp"])
        .iter()
        .filter(|(name, _)| !is_test(name))
        .map(|(name, text)| (name, code(text).lines().count()))
        .filter(|(_, lines)| *lines > LINES_MAX)
        .map(|(name, lines)| format!("{name}: {lines} lines"))
        .collect();
    complain(
        "split the file by what it is about (500 lines at most, tests aside)",
        &long,
    );
}

#[test]
fn every_module_says_what_it_is_for() {
    let silent: Vec<String> = sources()
        .into_iter()
        .filter(|(_, text)| !text.starts_with("//!"))
        .map(|(name, _)| name)
        .collect();
    complain(
        "begin the file with `//!`: what it is for, what it must not know",
        &silent,
    );
}

#[test]
fn every_module_is_declared_where_rustfmt_looks() {
    let all = sources();
    let declares = |parents: &[String], stem: &str| {
        all.iter()
            .filter(|(name, _)| parents.contains(name))
            .any(|(_, text)| {
                text.lines()
                    .any(|line| line.ends_with(&format!("mod {stem};")))
            })
    };
    let mut unseen = Vec::new();
    for (name, _) in &all {
        let Some((folder, file)) = name.split_once("src/") else {
            continue;
        };
        let mut steps: Vec<&str> = file.trim_end_matches(".rs").split('/').collect();
        let Some(mut stem) = steps.pop() else {
            continue;
        };
        if stem == "mod" {
            stem = steps.pop().unwrap_or_default();
        }
        let is_root = steps.is_empty() && ["lib", "main"].contains(&stem);
        if is_root || steps.first() == Some(&"bin") {
            continue;
        }
        let place = format!("{folder}src/{}", steps.join("/"));
        let place = place.trim_end_matches('/');
        let parents = if steps.is_empty() {
            vec![format!("{place}/lib.rs"), format!("{place}/main.rs")]
        } else {
            vec![format!("{place}/mod.rs"), format!("{place}.rs")]
        };
        if !declares(&parents, stem) {
            unseen.push(name.clone());
        }
    }
    complain(
        "declare the module with a plain `mod name;`: rustfmt follows no macros",
        &unseen,
    );
}

#[test]
fn unsafe_code_stays_in_the_rooms_that_need_it() {
    let outside: Vec<String> = sources()
        .into_iter()
        .filter(|(name, _)| {
            !is_test(name) && !name.starts_with("hccl-sys/") && !name.starts_with("hccl-emu/")
        })
        .filter(|(name, _)| !UNSAFE.iter().any(|allowed| name.starts_with(allowed)))
        .filter(|(_, text)| words(text).contains("unsafe "))
        .map(|(name, _)| name)
        .collect();
    complain(
        "unsafe code outside of the rooms listed in tidy.rs",
        &outside,
    );
}

#[test]
fn the_environment_and_the_atomics_have_one_door_each() {
    let doors = [
        ("std::env::var", "comm/src/config"),
        ("env::vars", "comm/src/config"),
        ("std::sync::atomic", "comm/src/sync.rs"),
        ("core::sync::atomic", "comm/src/sync.rs"),
    ];
    let mut passed_by = Vec::new();
    for (name, text) in sources() {
        let ours = ["comm/src/", "harness/src/", "hccl-sys/src/"]
            .iter()
            .any(|house| name.starts_with(house));
        for (word, door) in doors {
            if ours && !name.starts_with(door) && words(&text).contains(word) {
                passed_by.push(format!("{name}: {word} (the door is {door})"));
            }
        }
    }
    complain("go through the one door", &passed_by);
}

#[test]
fn a_room_uses_only_what_is_listed_before_it() {
    let mut known: Vec<&str> = Vec::new();
    let mut offences = Vec::new();
    for (folder, name, floors) in HOUSES {
        let mut before = known.clone();
        for (room, uses) in *floors {
            let upward = uses.iter().filter(|used| !before.contains(used));
            offences.extend(upward.map(|used| format!("{folder}: {room} uses {used}")));
            before.push(room);
        }
        known.push(name);
    }
    complain(
        "a room uses only what is listed before it: move down what both need",
        &offences,
    );
}

#[test]
fn imports_go_down_the_house_and_the_table_is_what_they_are() {
    let mut found: BTreeMap<(&str, String), BTreeMap<String, String>> = BTreeMap::new();
    for (path, text) in sources() {
        let Some((folder, inside)) = path.split_once("/src/") else {
            continue;
        };
        let house = HOUSES.iter().find(|(listed, ..)| *listed == folder);
        let Some((folder, _, floors)) = house.filter(|_| !is_test(&path)) else {
            continue;
        };
        let module = inside.trim_end_matches(".rs").trim_end_matches("/mod");
        let room = module.split('/').next().unwrap_or(module).to_owned();
        let depth = if ["lib", "main"].contains(&module) {
            0
        } else {
            module.split('/').count()
        };
        let of_room = found.entry((folder, room.clone())).or_default();
        for used in used_rooms(&words(&text), depth, floors) {
            if used != room {
                of_room.entry(used).or_insert_with(|| path.clone());
            }
        }
    }
    let mut offences = Vec::new();
    for (folder, _, floors) in HOUSES {
        for (room, _) in *floors {
            if !found.contains_key(&(*folder, (*room).to_owned())) {
                offences.push(format!("{folder}: there is no room {room}"));
            }
        }
    }
    for ((folder, room), used) in &found {
        let floors = HOUSES.iter().find(|(listed, ..)| listed == folder);
        let floor =
            floors.and_then(|(.., floors)| floors.iter().find(|(listed, _)| listed == room));
        let Some((_, listed)) = floor else {
            offences.push(format!("{folder}: the room {room} is not listed"));
            continue;
        };
        let unlisted = used
            .iter()
            .filter(|(used, _)| !listed.contains(&used.as_str()));
        offences.extend(
            unlisted.map(|(used, path)| format!("{path}: {used} is not listed for {room}")),
        );
        let unused = listed.iter().filter(|one| !used.contains_key(**one));
        offences.extend(unused.map(|one| format!("{folder}: {room} does not use {one}")));
    }
    complain(
        "the arrows of ARCHITECTURE.md: a room uses what HOUSES lists for it, all of it and nothing else",
        &offences,
    );
}

#[test]
fn the_vendors_libraries_are_named_in_one_folder_of_the_device_floor() {
    let mut outside = Vec::new();
    for (name, text) in sources() {
        let Some(inside) = name.strip_prefix("comm/src/device/") else {
            continue;
        };
        if inside == "mod.rs" || inside == "hccl.rs" || inside.starts_with("hccl/") {
            continue;
        }
        let words = words(&text);
        let vendor = ["hccl_sys::", "hccl::", "hccl;"];
        let found = vendor.iter().filter(|word| words.contains(**word));
        outside.extend(found.map(|word| format!("{name}: {word}")));
    }
    complain(
        "take it from `device::library`, so that another vendor's libraries are a folder beside this one",
        &outside,
    );
}

/// The rooms of its crate, and the crates of the workspace, that a file names in imports and in paths. `depth` is
/// how many modules it lies in. What the root file itself defines counts as its room.
fn used_rooms(words: &str, depth: usize, floors: &[Floor]) -> BTreeSet<String> {
    let tokens = tokens(words);
    let is_room = |name: &str| floors.iter().any(|(room, _)| *room == name);
    let is_path = |at: usize| tokens.get(at + 1) == Some(&"::");
    let mut used = BTreeSet::new();
    for (at, token) in tokens.iter().enumerate() {
        let begins = at == 0 || tokens[at - 1] != "::";
        if !begins || !is_path(at) {
            continue;
        }
        let mut heads = Vec::new();
        match *token {
            "crate" => names_at(&tokens, at + 2, 0, &mut heads),
            "super" => names_at(&tokens, at, depth, &mut heads),
            name if HOUSES.iter().any(|(_, listed, _)| *listed == name) => {
                used.insert(name.to_owned());
            }
            // Modules are in reach of the root file by their names alone.
            name if depth == 0 && is_room(name) => {
                used.insert(name.to_owned());
            }
            _ => {}
        }
        let by_super = *token == "super";
        for name in heads {
            if is_room(name) {
                used.insert(name.to_owned());
            } else if !by_super {
                used.insert("lib".to_owned());
            }
        }
    }
    used
}

/// The names at this place of a path that is `up` modules below the root: one, or those of a group in braces.
fn names_at<'a>(tokens: &[&'a str], at: usize, up: usize, names: &mut Vec<&'a str>) {
    match tokens.get(at) {
        Some(&"super") if up > 0 && tokens.get(at + 1) == Some(&"::") => {
            names_at(tokens, at + 2, up - 1, names);
        }
        Some(&"{") => {
            let (mut open, mut next) = (0_usize, at);
            while let Some(token) = tokens.get(next) {
                match *token {
                    "{" => open += 1,
                    "}" => open -= 1,
                    _ => {}
                }
                if open == 0 {
                    break;
                }
                if open == 1 && ["{", ","].contains(token) {
                    names_at(tokens, next + 1, up, names);
                }
                next += 1;
            }
        }
        Some(name) if up == 0 && name.starts_with(|c: char| c.is_alphabetic() || c == '_') => {
            names.push(name);
        }
        Some(_) | None => {}
    }
}

/// Names, `::`, and single signs.
fn tokens(words: &str) -> Vec<&str> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut tokens = Vec::new();
    let mut rest = words.trim_start();
    while let Some(first) = rest.chars().next() {
        let end = if is_name(first) {
            rest.find(|c| !is_name(c)).unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        let (token, after) = rest.split_at(end);
        tokens.push(token);
        rest = after.trim_start();
    }
    tokens
}

#[test]
fn a_path_is_found_however_it_is_written() {
    let floors: &[Floor] = &[("error", &[]), ("types", &[]), ("watch", &[])];
    let used = |text: &str, depth| {
        let used = used_rooms(text, depth, floors);
        used.into_iter().collect::<Vec<_>>().join(" ")
    };
    for (text, depth, rooms) in [
        ("use crate::types::Rank;", 1, "types"),
        (
            "use crate::{error::{Kind, Field}, watch};",
            2,
            "error watch",
        ),
        ("fn f() { crate::watch::look(); }", 3, "watch"),
        ("use super::types::Rank;", 1, "types"),
        ("use super::super::{types, error::Kind};", 2, "error types"),
        ("use super::{own, super::types};", 2, "types"),
        ("use super::types::Rank;", 2, ""),
        (
            "macro_rules! m { () => { $crate::types::Rank } }",
            1,
            "types",
        ),
        ("pub use types::Rank;", 0, "types"),
        ("pub use types::Rank;", 1, ""),
        ("use crate::OfTheRoot;", 1, "lib"),
        ("use hccl_sys::types::AclError;", 1, "hccl_sys"),
        ("use other::error::Kind;", 1, ""),
    ] {
        assert_eq!(used(text, depth), rooms, "{text}");
    }
}

/// Rooms of `harness` that a check of the doctor must not know: it judges what it is shown.
const DOCTOR_MUST_NOT: &[&str] = &[
    "backend", "check", "cmd", "exit", "fail", "out", "report", "run", "world",
];

#[test]
fn the_doctor_judges_and_does_nothing_else() {
    let mut offences = Vec::new();
    for (name, text) in sources() {
        if !name.starts_with("harness/src/doctor/") {
            continue;
        }
        let words = words(&text);
        for room in DOCTOR_MUST_NOT {
            if words.contains(&format!("crate::{room}")) {
                offences.push(format!("{name}: crate::{room}"));
            }
        }
        for deed in [
            "Command::new",
            "fs::write",
            "File::create",
            "remove_file",
            "TcpListener",
            "TcpStream",
        ] {
            if words.contains(deed) {
                offences.push(format!("{name}: {deed}"));
            }
        }
    }
    complain("a check only looks (DOCTOR-1, DOCTOR-2)", &offences);
}

/// Python's part is no member of the workspace: nothing else rewrites its lock when a crate below it gets a dependency, and
/// its build with `--locked` then fails.
#[test]
fn the_lock_of_python_has_the_dependencies_of_our_crates() {
    let read = |path: &str| fs::read_to_string(root().join(path)).expect("a file of the project");
    let lock = read("python/Cargo.lock");
    let locked = |name: &str| -> BTreeSet<String> {
        let head = format!("name = \"{name}\"\n");
        let package = lock
            .split("[[package]]\n")
            .find(|one| one.starts_with(&head));
        let lines = package.unwrap_or_default().lines();
        let entries = lines.filter_map(|line| line.strip_prefix(" \"")?.strip_suffix("\","));
        let first = |entry: &str| entry.split(' ').next().map(ToOwned::to_owned);
        entries.filter_map(first).collect()
    };
    let mut offences = Vec::new();
    for (folder, name) in [
        ("hccl-sys", "hccl-sys"),
        ("comm", "muster-comm"),
        ("hccl-emu", "muster-emu"),
        ("tap", "muster-tap"),
        ("harness", "muster"),
        ("python", "muster-py"),
    ] {
        let manifest = read(&format!("{folder}/Cargo.toml"));
        let (mut all, mut needed) = (BTreeSet::new(), BTreeSet::new());
        let mut is_inside = false;
        for line in manifest.lines() {
            if line.starts_with('[') {
                is_inside = line.ends_with("dependencies]") && !line.contains("dev-");
            } else if is_inside && let Some((key, value)) = line.split_once('=') {
                let key = key.trim().trim_end_matches(".workspace").to_owned();
                if !value.contains("optional = true") {
                    needed.insert(key.clone());
                }
                all.insert(key);
            }
        }
        let locked = locked(name);
        offences.extend(
            needed
                .difference(&locked)
                .map(|one| format!("{name}: {one} is not locked")),
        );
        offences.extend(
            locked
                .difference(&all)
                .map(|one| format!("{name}: {one} is no dependency")),
        );
        assert!(!needed.is_empty(), "{folder}/Cargo.toml has dependencies");
    }
    complain(
        "run `cargo metadata --manifest-path python/Cargo.toml`",
        &offences,
    );
}

#[test]
fn nothing_is_left_open_and_no_test_is_switched_off() {
    let marks = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("#[ig", "nore"),
        concat!("todo", "!("),
    ];
    let mut open = Vec::new();
    for (name, text) in sources() {
        for (number, line) in text.lines().enumerate() {
            if let Some(mark) = marks.iter().find(|mark| line.contains(**mark)) {
                open.push(format!("{name}:{}: {mark}", number + 1));
            }
        }
    }
    complain("finish it, or open an issue", &open);
}
