//! `muster emu install`: from the built program to a client that runs on what was installed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn muster(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_muster"))
        .args(arguments)
        .env("NO_COLOR", "1")
        .output()
        .expect("the tool starts")
}

#[track_caller]
fn passed(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{:?}\n{text}{errors}",
        output.status
    );
    text
}

/// The client of the emulator's own tests, linked against the installed tree.
fn compile(root: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../hccl-emu/tests/data/client.c");
    let program = root.join("client");
    let output = Command::new("cc")
        .args(["-Wl,-z,now", "-Wl,--no-as-needed", "-o"])
        .arg(&program)
        .arg(source)
        .arg("-L")
        .arg(root.join("tree/latest/lib64"))
        .args(["-lhccl", "-lascendcl", "-ldl"])
        .output()
        .expect("cc starts");
    passed(&output);
    program
}

#[test]
fn a_client_runs_on_the_installed_tree_after_its_script_was_sourced() {
    let folder = tempfile::tempdir().expect("a folder");
    let tree = folder.path().join("tree");
    let tree_text = tree.to_str().expect("UTF-8");
    let said = passed(&muster(&["emu", "install", tree_text, "--cann", "8.1.RC1"]));
    assert!(
        said.starts_with("emulated CANN 8.1.RC1 installed in "),
        "{said}"
    );
    let program = compile(folder.path());
    for (mode, expected) in [
        ("names", ""),
        ("work", ""),
        ("show", "emulating CANN 8.1.RC1\n"),
    ] {
        let output = Command::new("sh")
            .args(["-c", ". \"$0/set_env.sh\" && exec \"$1\" \"$2\""])
            .args([tree.as_os_str(), program.as_os_str(), mode.as_ref()])
            .env_remove("LD_LIBRARY_PATH")
            .output()
            .expect("the shell starts");
        let text = passed(&output);
        assert!(text.contains(expected), "{text}");
    }
    // Again, as another version: the client finds that one.
    passed(&muster(&["emu", "install", tree_text, "--cann", "9.0.0"]));
    let output = Command::new(&program)
        .arg("show")
        .env("LD_LIBRARY_PATH", tree.join("lib64"))
        .output()
        .expect("the client starts");
    assert!(passed(&output).contains("emulating CANN 9.0.0\n"));
}

#[test]
fn a_wrong_version_and_a_foreign_folder_are_refused_with_exit_2() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("x"), "y").expect("written");
    let theirs = folder.path().to_str().expect("UTF-8");
    let output = muster(&["emu", "install", theirs]);
    assert_eq!(output.status.code(), Some(2));
    let output = muster(&["emu", "install", theirs, "--cann", "newest"]);
    assert_eq!(output.status.code(), Some(2));
    let output = muster(&["emu", "env"]);
    assert!(passed(&output).contains("MUSTER_EMU_DEVICES"));
}

#[test]
fn the_tool_itself_exports_none_of_the_vendors_names() {
    let output = Command::new("nm")
        .args(["-D", "--defined-only", env!("CARGO_BIN_EXE_muster")])
        .output()
        .expect("nm starts");
    let names = passed(&output);
    let vendors = names
        .lines()
        .filter_map(|line| line.rsplit(' ').next())
        .filter(|name| name.starts_with("acl") || name.starts_with("Hccl"))
        .count();
    assert_eq!(vendors, 0, "{names}");
}
