//! A C program, compiled by the system's compiler and linked as clients are, over the library.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::library;

const NAMES: [&str; 4] = [
    "libhccl.so",
    "libhcomm.so",
    "libascendcl.so",
    "libacl_rt.so",
];

/// A folder with the library under its four names, and the compiled client.
struct Built {
    folder: tempfile::TempDir,
    program: PathBuf,
}

fn build(libraries: &[&str]) -> Built {
    let folder = tempfile::tempdir().expect("a folder");
    let lib64 = folder.path().join("lib64");
    std::fs::create_dir(&lib64).expect("a folder");
    std::fs::copy(library(), lib64.join("libmuster_emu.so")).expect("copied");
    for name in NAMES {
        std::os::unix::fs::symlink("libmuster_emu.so", lib64.join(name)).expect("a link");
    }
    let program = folder.path().join("client");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/client.c");
    let output = Command::new("cc")
        .args([
            "-std=c11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-Wl,-z,now",
            "-Wl,--no-as-needed",
        ])
        .arg("-o")
        .arg(&program)
        .arg(source)
        .arg("-L")
        .arg(&lib64)
        .args(libraries)
        .args(["-ldl", "-lpthread"])
        .output()
        .expect("cc starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Built { folder, program }
}

fn run(built: &Built, mode: &str, variables: &[(&str, &str)]) -> Output {
    Command::new(&built.program)
        .arg(mode)
        .env_clear()
        .env("LD_LIBRARY_PATH", built.folder.path().join("lib64"))
        .envs(variables.iter().copied())
        .output()
        .expect("the client starts")
}

#[track_caller]
fn passes(built: &Built, mode: &str, variables: &[(&str, &str)]) -> String {
    let output = run(built, mode, variables);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{mode}: {:?}\n{text}{errors}",
        output.status
    );
    text
}

#[test]
fn the_four_names_are_one_library_however_a_client_names_them() {
    for libraries in [["-lhccl", "-lascendcl"], ["-lhcomm", "-lacl_rt"]] {
        let built = build(&libraries);
        passes(&built, "names", &[]);
        passes(&built, "work", &[]);
    }
}

#[test]
fn options_choose_devices_memory_and_chip() {
    let built = build(&["-lhccl", "-lascendcl"]);
    let chosen = [
        ("MUSTER_EMU_DEVICES", "3"),
        ("MUSTER_EMU_MEMORY", "1GiB"),
        ("MUSTER_EMU_SOC", "Ascend910_9391"),
        ("MUSTER_EMU_CANN", "8.1.RC1"),
    ];
    let text = passes(&built, "show", &chosen);
    assert!(text.contains("count 0 3\n"), "{text}");
    assert!(text.contains("soc Ascend910_9391\n"), "{text}");
    assert!(text.contains("memory 1073741824 1073741824\n"), "{text}");
    assert!(text.contains("emulating CANN 8.1.RC1\n"), "{text}");
}

#[test]
fn visible_devices_are_renumbered_and_cut_at_the_first_bad_item() {
    let built = build(&["-lhccl", "-lascendcl"]);
    let text = passes(&built, "show", &[("ASCEND_RT_VISIBLE_DEVICES", "5,2, 3")]);
    assert!(text.contains("count 0 2\n"), "{text}");
    assert!(text.contains("physical 5\n"), "{text}");
    for (name, value) in [
        ("MUSTER_EMU_DEVICES", "0"),
        ("ASCEND_RT_VISIBLE_DEVICES", "x"),
    ] {
        let text = passes(&built, "show", &[(name, value)]);
        assert!(text.contains("count 207004 0\n"), "{text}");
    }
}

#[test]
fn an_option_that_cannot_be_is_said_once_and_leaves_no_device() {
    let built = build(&["-lhccl", "-lascendcl"]);
    let output = run(&built, "show", &[("MUSTER_EMU_SOC", "H100")]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(
        errors.contains("MUSTER_EMU_SOC is \"H100\"; allowed: Ascend910B1"),
        "{errors}"
    );
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("count 207004"), "{text}");
}

#[test]
fn a_process_ends_while_tasks_still_run() {
    let built = build(&["-lhccl", "-lascendcl"]);
    passes(&built, "leave", &[]);
}

#[test]
fn little_address_space_means_less_memory_and_no_failure() {
    let built = build(&["-lhccl", "-lascendcl"]);
    // 4 GiB of address space for everything.
    let output = Command::new("sh")
        .args(["-c", "ulimit -v 4194304 && exec \"$0\" show"])
        .arg(&built.program)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("LD_LIBRARY_PATH", built.folder.path().join("lib64"))
        .output()
        .expect("the shell starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let total: u64 = text
        .lines()
        .find_map(|line| {
            line.strip_prefix("memory ")?
                .split(' ')
                .nth(1)?
                .parse()
                .ok()
        })
        .expect("a line on memory");
    assert!((64 << 20..4 << 30).contains(&total), "{total}");
}

/// The figure that `docs/emulator.md` states for memory of freed addresses, with 8 MiB for notes.
const RESTING_KIB: i64 = (64 + 8) << 10;
/// What a process may keep after a reset: its heap, in which were notes of 100,000 allocations.
const LEFT_KIB: i64 = 40 << 10;

#[test]
fn addresses_rest_after_a_free_and_memory_does_not() {
    let built = build(&["-lhccl", "-lascendcl"]);
    let text = passes(&built, "churn", &[]);
    let kib = |name: &str| -> i64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|line| line.trim().parse().ok());
        number.unwrap_or_else(|| panic!("no {name} in {text}"))
    };
    assert!(kib("churn") < RESTING_KIB, "{text}");
    // 100,000 allocations of 1 KiB with their alignment.
    assert!(kib("kept") > 100_000, "the test sees no memory: {text}");
    assert!(kib("freed") < RESTING_KIB, "{text}");
    assert!(kib("reset") < LEFT_KIB, "{text}");
}
