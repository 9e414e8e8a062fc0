//! Toolkits made with the system's compiler: the checks that load libraries, through the command.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::command::{doctor, find};

/// What a client of HCCL calls at least.
const HCCL: [&str; 11] = [
    "HcclGetRootInfo",
    "HcclCommInitRootInfo",
    "HcclCommDestroy",
    "HcclGetErrorString",
    "HcclAllReduce",
    "HcclBroadcast",
    "HcclReduceScatter",
    "HcclAllGather",
    "HcclAlltoAllV",
    "HcclSend",
    "HcclRecv",
];
const ACL: [&str; 9] = [
    "aclInit",
    "aclrtGetDeviceCount",
    "aclrtSetDevice",
    "aclrtMalloc",
    "aclrtFree",
    "aclrtMemcpy",
    "aclrtCreateStream",
    "aclrtDestroyStream",
    "aclrtSynchronizeStreamWithTimeout",
];

/// A toolkit in a folder.
struct Toolkit {
    folder: tempfile::TempDir,
}

impl Toolkit {
    /// One of this version, whose libraries export these names.
    fn new(version: &str, hccl: &[&str], acl: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let toolkit = Self { folder };
        std::fs::create_dir_all(toolkit.lib64()).expect("a folder");
        std::fs::create_dir_all(toolkit.root().join("x86_64-linux")).expect("a folder");
        let info = toolkit
            .root()
            .join("x86_64-linux/ascend_toolkit_install.info");
        std::fs::write(info, format!("version={version}\n")).expect("a file");
        toolkit.library("libhccl.so", hccl, &[]);
        toolkit.library("libascendcl.so", acl, &[]);
        toolkit
    }

    fn root(&self) -> &Path {
        self.folder.path()
    }

    fn lib64(&self) -> PathBuf {
        self.root().join("lib64")
    }

    /// Compiles a library that exports these names.
    fn library(&self, name: &str, exports: &[&str], flags: &[&str]) {
        let calls = exports
            .iter()
            .map(|name| format!("int {name}(void) {{ return 0; }}\n"));
        let text: String = std::iter::once("int nothing_else;\n".to_owned())
            .chain(calls)
            .collect();
        self.compile(name, &text, flags);
    }

    fn compile(&self, name: &str, text: &str, flags: &[&str]) {
        let source = self.root().join(format!("{name}.c"));
        std::fs::write(&source, text).expect("a file");
        let output = Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .arg(self.lib64().join(name))
            .arg(&source)
            .args(flags)
            .output()
            .expect("the system's compiler, which linking needs too");
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words}");
    }

    /// What the doctor says of it.
    fn judged(&self) -> Value {
        let home = self.root().display().to_string();
        let only = ["--only", "toolkit,versions,libraries,symbols"];
        doctor(&only, &[("ASCEND_HOME_PATH", &home)]).0
    }
}

#[test]
fn a_toolkit_with_every_needed_call_loads() {
    let judged = Toolkit::new("8.1.RC1", &HCCL, &ACL).judged();
    assert_eq!(find(&judged, "toolkit")["status"], "ok", "{judged}");
    assert_eq!(find(&judged, "versions")["status"], "ok", "{judged}");
    assert_eq!(find(&judged, "libraries")["status"], "ok", "{judged}");
    // It has far fewer calls than its version promises, and that is told.
    assert_eq!(find(&judged, "symbols")["status"], "warn", "{judged}");
    assert_eq!(judged["emulated"], false);
}

#[test]
fn a_missing_call_is_named() {
    let without: Vec<&str> = HCCL
        .into_iter()
        .filter(|name| *name != "HcclAllReduce")
        .collect();
    let judged = Toolkit::new("8.1.RC1", &without, &ACL).judged();
    let symbols = find(&judged, "symbols");
    assert_eq!(symbols["status"], "fail", "{judged}");
    let what = symbols["finding"].as_str().expect("text");
    assert!(what.contains("HcclAllReduce"), "{what}");
    assert!(
        symbols["remedy"]
            .as_str()
            .expect("text")
            .contains("install the toolkit again")
    );
}

#[test]
fn a_driver_library_that_is_not_found_leads_to_the_driver() {
    let toolkit = Toolkit::new("8.1.RC1", &HCCL, &ACL);
    toolkit.library("libascend_hal.so", &["halGetDeviceInfo"], &[]);
    let folder = format!("-L{}", toolkit.lib64().display());
    let flags = [folder.as_str(), "-Wl,--no-as-needed", "-l:libascend_hal.so"];
    toolkit.library("libascendcl.so", &ACL, &flags);
    std::fs::remove_file(toolkit.lib64().join("libascend_hal.so")).expect("removed");
    let judged = toolkit.judged();
    let libraries = find(&judged, "libraries");
    assert_eq!(libraries["status"], "fail", "{judged}");
    assert!(
        libraries["finding"]
            .as_str()
            .expect("text")
            .contains("libascendcl.so")
    );
    assert!(
        libraries["evidence"]
            .as_str()
            .expect("text")
            .contains("libascend_hal.so")
    );
    assert!(
        libraries["remedy"]
            .as_str()
            .expect("text")
            .contains("/usr/local/Ascend/driver")
    );
}

#[test]
fn a_damaged_library_is_named() {
    let toolkit = Toolkit::new("8.1.RC1", &HCCL, &ACL);
    std::fs::write(toolkit.lib64().join("libhccl.so"), "no library").expect("a file");
    let judged = toolkit.judged();
    let libraries = find(&judged, "libraries");
    assert_eq!(libraries["status"], "fail", "{judged}");
    assert!(
        libraries["finding"]
            .as_str()
            .expect("text")
            .contains("libhccl.so")
    );
}

#[test]
fn a_version_whose_libraries_are_of_another_generation_is_told() {
    let toolkit = Toolkit::new("8.5.0", &HCCL, &ACL);
    let judged = toolkit.judged();
    let versions = find(&judged, "versions");
    assert_eq!(versions["status"], "fail", "{judged}");
    assert!(
        versions["finding"]
            .as_str()
            .expect("text")
            .contains("libhcomm.so")
    );
}

#[test]
fn an_emulated_toolkit_is_told_as_one_everywhere() {
    let toolkit = Toolkit::new("8.1.RC1", &HCCL, &ACL);
    let calls = HCCL
        .iter()
        .map(|name| format!("int {name}(void) {{ return 0; }}\n"));
    let mark = "const char *muster_emu_version(void) { return \"1.0 emulated\"; }\n".to_owned();
    let text: String = std::iter::once(mark).chain(calls).collect();
    toolkit.compile("libhccl.so", &text, &[]);
    let judged = toolkit.judged();
    assert_eq!(judged["emulated"], true, "{judged}");
    for id in ["toolkit", "libraries"] {
        let what = find(&judged, id)["finding"]
            .as_str()
            .expect("text")
            .to_owned();
        assert!(what.contains("emulated"), "{id}: {what}");
    }
}
