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

/// A client as its author writes it, in the part of C that is C++ too.
const SUM: &str = r#"
#include <stdio.h>
#include "acl/acl.h"
#include "hccl/hccl.h"
#include "hccl/hccl_types.h"

#define NEED(call) do { int code = (int)(call); if (code != 0) { \
    fprintf(stderr, "%s: %d %s\n", #call, code, aclGetRecentErrMsg()); return 1; } } while (0)

int main(void)
{
    int32_t device = 0;
    HcclComm comm = NULL;
    HcclRootInfo root;
    HcclCommConfig config;
    aclrtStream stream;
    void *data;
    float values[3] = {1, 2, 3}, sums[3] = {0, 0, 0};
    HcclCommConfigInit(&config);
    printf("config %zu\n", sizeof config);
    NEED(aclInit(NULL));
    NEED(aclrtSetDevice(device));
    NEED(aclrtCreateStream(&stream));
    NEED(HcclGetRootInfo(&root));
    NEED(HcclCommInitRootInfoConfig(1, &root, 0, &config, &comm));
    NEED(aclrtMalloc(&data, sizeof values, ACL_MEM_MALLOC_HUGE_FIRST));
    NEED(aclrtMemcpy(data, sizeof values, values, sizeof values, ACL_MEMCPY_HOST_TO_DEVICE));
    NEED(HcclAllReduce(data, data, 3, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, stream));
    NEED(aclrtSynchronizeStream(stream));
    NEED(aclrtMemcpy(sums, sizeof sums, data, sizeof sums, ACL_MEMCPY_DEVICE_TO_HOST));
    NEED(HcclCommDestroy(comm));
    printf("sums %g %g %g\n", sums[0], sums[1], sums[2]);
    return 0;
}
"#;

#[test]
fn c_and_cxx_programs_build_against_the_installed_headers_and_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let tree = folder.path().join("tree");
    for (cann, config_bytes) in [("8.1.RC1", 300), ("8.5.0", 2104), ("9.0.0", 2240)] {
        let tree_text = tree.to_str().expect("UTF-8");
        passed(&muster(&["emu", "install", tree_text, "--cann", cann]));
        let home = tree.join("latest");
        for (compiler, standard, name) in [("cc", "c99", "sum.c"), ("g++", "c++11", "sum.cc")] {
            if Command::new(compiler).arg("--version").output().is_err() {
                eprintln!("skipped: this machine has no {compiler}");
                continue;
            }
            let (source, program) = (folder.path().join(name), folder.path().join("sum"));
            std::fs::write(&source, SUM).expect("written");
            let output = Command::new(compiler)
                .arg(format!("-std={standard}"))
                .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"])
                .arg(home.join("include"))
                .arg(&source)
                .arg("-o")
                .arg(&program)
                .arg("-L")
                .arg(home.join("lib64"))
                .args(["-Wl,-z,now", "-lhccl", "-lascendcl"])
                .output()
                .expect("the compiler starts");
            passed(&output);
            let output = Command::new(&program)
                .env("LD_LIBRARY_PATH", home.join("lib64"))
                .env("XDG_RUNTIME_DIR", folder.path())
                .env("HCCL_HOST_SOCKET_PORT_RANGE", "auto")
                .output()
                .expect("the client starts");
            let said = passed(&output);
            assert_eq!(
                said,
                format!("config {config_bytes}\nsums 1 2 3\n"),
                "{cann}"
            );
        }
    }
}
