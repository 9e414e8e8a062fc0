//! The rules of the house that a program can check: sizes, doors, directions.
//!
//! Each rule says in its message what to do. A rule that stands in the way of something better is
//! changed here, in a commit that says why.

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
    "comm/src/transport/ring.rs",
    "comm/src/transport/shm/",
    "comm/src/transport/stream.rs",
    "comm/src/transport/tcp",
    "comm/src/watch/board/memory.rs",
    "comm/src/watch/stack.rs",
    "models/src/arena.rs",
];

/// Which rooms of `comm` a room may use, beside itself. What is not listed may use everything.
const IMPORTS: &[(&str, &[&str])] = &[
    ("algo", &["types"]),
    ("buffer.rs", &["types"]),
    (
        "device",
        &[
            "buffer", "config", "error", "launch", "sync", "types", "vendor",
        ],
    ),
    ("error.rs", &["types", "vendor", "watch"]),
    ("kernel", &["sync", "types"]),
    ("layout", &["types"]),
    ("sync.rs", &[]),
    ("transport", &["memfd", "strangers", "sync", "types"]),
    ("types", &[]),
    ("vendor.rs", &[]),
    ("rendezvous", &["strangers", "sync", "types"]),
    (
        "watch",
        &[
            "error",
            "memfd",
            "rendezvous",
            "sabotage",
            "sync",
            "types",
            "vendor",
        ],
    ),
    ("config", &["kernel", "rendezvous", "types"]),
    ("launch", &["config", "rendezvous", "sync", "types"]),
    (
        "backend",
        &[
            "algo",
            "buffer",
            "device",
            "error",
            "group",
            "kernel",
            "sabotage",
            "sync",
            "transport",
            "types",
            "watch",
            "world",
        ],
    ),
];

/// The rooms of `harness`, from the bottom up, each with the rooms that it uses. A room may use rooms that are listed
/// before it: so there is no circle, and no import upward.
const HARNESS: &[(&str, &[&str])] = &[
    ("random", &[]),
    ("stats", &[]),
    ("progress", &[]),
    ("doctor", &[]),
    ("exit", &[]),
    ("fail", &["exit"]),
    ("out", &["exit", "fail"]),
    ("world", &["exit", "fail", "out"]),
    ("report", &["doctor", "exit", "fail", "out", "stats"]),
    ("verify", &["exit", "fail", "out", "report"]),
    ("check", &["report", "verify", "world"]),
    ("bench", &["check", "out", "report", "stats"]),
    (
        "moe",
        &["bench", "check", "out", "random", "report", "stats"],
    ),
    (
        "run",
        &[
            "bench", "check", "exit", "fail", "moe", "out", "report", "verify", "world",
        ],
    ),
    ("backend", &["fail", "run"]),
    (
        "drill",
        &["exit", "fail", "out", "random", "report", "run", "world"],
    ),
    ("compare", &["exit", "fail", "out", "report", "stats"]),
    (
        "results",
        &[
            "bench", "compare", "drill", "fail", "moe", "report", "verify",
        ],
    ),
    (
        "cmd",
        &[
            "backend", "bench", "check", "compare", "doctor", "drill", "exit", "fail", "moe",
            "out", "progress", "report", "results", "run", "verify", "world",
        ],
    ),
    ("cli", &["cmd", "exit", "out"]),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace")
        .to_owned()
}

/// Every Rust file of the workspace, as (path from the root, text).
fn sources() -> Vec<(String, String)> {
    fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).expect("a folder of the workspace") {
            let path = entry.expect("an entry").path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                walk(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    let root = root();
    let mut found = Vec::new();
    walk(&root, &mut found);
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
    let long: Vec<String> = sources()
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
fn imports_go_down_the_house() {
    let mut upward = Vec::new();
    for (name, text) in sources() {
        let Some(inside) = name.strip_prefix("comm/src/") else {
            continue;
        };
        let room = inside.split('/').next().unwrap_or(inside);
        let bare = room.trim_end_matches(".rs");
        let Some((_, allowed)) = IMPORTS
            .iter()
            .find(|(listed, _)| *listed == room || *listed == bare)
        else {
            continue;
        };
        for (at, _) in words(&text).match_indices("crate::") {
            let words = words(&text);
            let used: String = words[at + "crate::".len()..]
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            if !used.is_empty() && used != bare && !allowed.contains(&used.as_str()) {
                upward.push(format!(
                    "{name}: crate::{used} (allowed: {})",
                    allowed.join(", ")
                ));
            }
        }
    }
    upward.dedup();
    complain(
        "this import runs against the arrows of ARCHITECTURE.md",
        &upward,
    );
}

/// The rooms of the crate that code uses, in the order in which it names them.
fn rooms_used(words: &str) -> Vec<&str> {
    let after = words.split("crate::").skip(1);
    let name = |rest: &'_ str| -> usize {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
        end.unwrap_or(rest.len())
    };
    after
        .map(|rest| &rest[..name(rest)])
        .filter(|name| name.starts_with(|c: char| c.is_ascii_lowercase()))
        .collect()
}

#[test]
fn the_rooms_of_harness_stand_on_those_below() {
    let mut offences = Vec::new();
    for (place, (room, uses)) in HARNESS.iter().enumerate() {
        let is_below = |used: &&str| HARNESS[..place].iter().any(|(below, _)| below == used);
        let above = uses.iter().filter(|used| !is_below(used));
        offences.extend(above.map(|used| format!("{used} does not stand before {room}")));
    }
    let (mut seen, mut used_by_room) = (Vec::new(), Vec::new());
    for (name, text) in sources() {
        let Some(inside) = name.strip_prefix("harness/src/") else {
            continue;
        };
        let room = inside.split('/').next().unwrap_or(inside);
        let room = room.trim_end_matches(".rs").to_owned();
        if room == "lib" || room == "main" {
            continue;
        }
        let Some((_, uses)) = HARNESS.iter().find(|(listed, _)| *listed == room) else {
            offences.push(format!("{name}: {room} is not in the list"));
            continue;
        };
        let words = words(&text);
        for used in rooms_used(&words) {
            if used != room && !is_test(&name) && !uses.contains(&used) {
                offences.push(format!("{name}: crate::{used}"));
            }
            used_by_room.push((room.clone(), used.to_owned()));
        }
        seen.push(room);
    }
    for (room, uses) in HARNESS {
        if !seen.iter().any(|seen| seen == room) {
            offences.push(format!("{room} is no room"));
        }
        let is_used = |used: &&&str| {
            let all = &mut used_by_room.iter();
            all.any(|(by, of)| by == room && of == **used)
        };
        let unused = uses.iter().filter(|used| !is_used(used));
        offences.extend(unused.map(|used| format!("{room} does not use {used}")));
    }
    offences.dedup();
    complain(
        "an arrow between rooms of harness that is not in the list, or not in the code",
        &offences,
    );
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
