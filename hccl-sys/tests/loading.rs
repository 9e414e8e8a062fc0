//! Functions are found one by one in whatever loads; what is missing is said, with the loader's words.
//!
//! The libraries are small ones, compiled here by the system's C compiler.

#![expect(unsafe_code, reason = "functions of libraries made here are called")]

use std::ffi::CStr;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use hccl_sys::headers::Headers;
use hccl_sys::search::{Library, Places, Why};
use hccl_sys::symbols::{Api, EMULATOR_VERSION_SYMBOL};
use hccl_sys::types::{AclError, HcclResult};
use hccl_sys::version::{CallError, api_version, package_version};
use tempfile::TempDir;

/// Compiles `source` to the shared library `name` in `folder`.
fn build(folder: &Path, name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let file = folder.join(name);
    let code = folder.join(format!("{name}.c"));
    fs::write(&code, source).expect("a source file");
    let output = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&file)
        .arg(&code)
        .args(flags)
        .output()
        .expect("the system's C compiler");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {words}");
    file
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

/// Only what lies in this folder, before all other places.
fn places(folder: &Path) -> Places {
    Places {
        hccl_so_path: Some(folder.join("libhccl.so")),
        installations: Vec::new(),
        device_folder: folder.join("dev"),
        ..Places::default()
    }
}

fn found_in(api: &Api, name: &str) -> Option<(Library, PathBuf)> {
    let capability = api.capabilities().iter().find(|one| one.row.name == name);
    let found = capability.expect("a row of the table").found.as_ref()?;
    Some((found.library, found.file.clone()))
}

#[test]
fn functions_split_over_both_libraries_are_found_where_they_are_and_can_be_called() {
    let folder = folder();
    let hccl = build(
        folder.path(),
        "libhccl.so",
        "int HcclGroupStart(void) { return 5; }",
        &[],
    );
    let hcomm = build(
        folder.path(),
        "libhcomm.so",
        "int HcclGetRankSize(void *comm, unsigned *size) { *size = comm ? 16 : 0; return 0; }
         const char *HcclGetErrorString(int code) { return code == 9 ? \"timeout\" : \"?\"; }",
        &[],
    );
    let acl = build(
        folder.path(),
        "libacl_rt.so",
        "int aclrtGetDeviceCount(unsigned *count) { *count = 0; return 207004; }",
        &[],
    );
    let api = Api::load(&places(folder.path()));
    assert_eq!(
        found_in(&api, "HcclGroupStart"),
        Some((Library::Hccl, hccl))
    );
    assert_eq!(
        found_in(&api, "HcclGetRankSize"),
        Some((Library::Hcomm, hcomm))
    );
    assert_eq!(
        found_in(&api, "aclrtGetDeviceCount"),
        Some((Library::AclRt, acl))
    );
    assert!(api.has("HcclGetErrorString"));
    assert!(!api.has("HcclCommDestroy"));
    assert!(!api.has("no such function"));

    let start = api.hccl().HcclGroupStart().expect("found");
    // SAFETY: takes nothing.
    let result = unsafe { start() };
    assert_eq!(result, HcclResult::HCCL_E_NOT_SUPPORT);
    let rank_size = api.hccl().HcclGetRankSize().expect("found");
    let mut size = 0;
    let mut comm = 0_u8;
    // SAFETY: the function above writes one number and only compares the communicator.
    let result = unsafe { rank_size((&raw mut comm).cast(), &raw mut size) };
    assert_eq!((result, size), (HcclResult::HCCL_SUCCESS, 16));
    let text = api.hccl().HcclGetErrorString().expect("found");
    // SAFETY: takes a number and returns a text.
    let text = unsafe { text(HcclResult::HCCL_E_TIMEOUT) };
    // SAFETY: the text is a constant of the library above, which stays loaded.
    let text = unsafe { CStr::from_ptr(text) };
    assert_eq!(text.to_str(), Ok(HcclResult::HCCL_E_TIMEOUT.text()));
    let count = api.acl().aclrtGetDeviceCount().expect("found");
    let mut devices = 7;
    // SAFETY: writes one number.
    let result = unsafe { count(&raw mut devices) };
    assert_eq!(
        (result, devices),
        (AclError::ACL_ERROR_RT_NO_DEVICE, 0),
        "{result}"
    );
}

#[test]
fn a_missing_function_names_itself_its_version_and_the_files_that_were_asked() {
    let folder = folder();
    let hccl = build(
        folder.path(),
        "libhccl.so",
        "int HcclGetRootInfo(void *info) { return 0; }",
        &[],
    );
    let api = Api::load(&places(folder.path()));
    let missing = api.hccl().HcclGroupEnd().expect_err("not there");
    assert_eq!(missing.name, "HcclGroupEnd");
    assert_eq!(missing.since.since(), Some(Headers::Cann9_0_0));
    assert_eq!(missing.looked_in, std::slice::from_ref(&hccl));
    assert_eq!(
        missing.to_string(),
        format!(
            "HcclGroupEnd (since CANN 9.0.0) is not in {}",
            hccl.display()
        )
    );
    let missing = api.acl().aclrtMalloc().expect_err("no runtime at all");
    assert!(missing.looked_in.is_empty());
    assert_eq!(
        missing.to_string(),
        "aclrtMalloc (since CANN 8.1.RC1) is missing: no library that could have it is loaded"
    );
    let count = |found: bool| {
        let all = api.capabilities().iter();
        all.filter(|one| one.found.is_some() == found).count()
    };
    assert_eq!(count(true), 1);
    assert!(count(false) > 200);
    assert_eq!(api.emulated(), None);
}

#[test]
fn a_function_of_a_dependency_is_found_with_the_file_that_really_has_it() {
    let folder = folder();
    let elsewhere = folder.path().join("elsewhere");
    fs::create_dir(&elsewhere).expect("a folder");
    let below = build(
        &elsewhere,
        "libmuster_below.so",
        "int HcclCommDestroy(void *comm) { return 1; }",
        &[],
    );
    let search = format!("-L{}", elsewhere.display());
    let path = format!("-Wl,--no-as-needed,-rpath,{}", elsewhere.display());
    build(
        folder.path(),
        "libhccl.so",
        "int HcclGroupStart(void) { return 0; }",
        &[&search, &path, "-lmuster_below"],
    );
    let api = Api::load(&places(folder.path()));
    assert_eq!(
        found_in(&api, "HcclCommDestroy"),
        Some((Library::Hccl, below))
    );
    let destroy = api.hccl().HcclCommDestroy().expect("found");
    // SAFETY: ignores its argument.
    let result = unsafe { destroy(std::ptr::null_mut()) };
    assert_eq!(result, HcclResult::HCCL_E_PARA);
}

/// What the loader said of `libhccl.so` in this folder.
fn refusal(folder: &Path) -> String {
    let api = Api::load(&places(folder));
    let outcome = api.probe().outcome(Library::Hccl).expect("an outcome");
    assert_eq!(outcome.loaded, None);
    assert_eq!(outcome.file, None);
    let failure = &outcome.failures[0];
    assert_eq!(failure.candidate.why, Why::HcclSoPath);
    assert!(failure.exists);
    let obstacle = api.probe().obstacle().expect("an obstacle");
    assert!(obstacle.contains(&failure.message), "{obstacle}");
    assert!(api.hccl().HcclAllReduce().is_err());
    failure.message.clone()
}

#[test]
fn a_library_whose_dependency_is_missing_is_refused_in_the_loaders_words() {
    let folder = folder();
    let driver = build(
        folder.path(),
        "libmuster_driver.so",
        "int halNothing(void) { return 0; }",
        &[],
    );
    let search = format!("-L{}", folder.path().display());
    build(
        folder.path(),
        "libhccl.so",
        "int halNothing(void); int HcclAllReduce(void) { return halNothing(); }",
        &[&search, "-lmuster_driver"],
    );
    fs::remove_file(driver).expect("removed");
    let words = refusal(folder.path());
    assert!(words.contains("libmuster_driver.so"), "{words}");
    assert!(words.contains("cannot open shared object file"), "{words}");
}

#[test]
fn a_library_that_lacks_a_symbol_is_refused_while_loading_and_not_in_a_call() {
    let folder = folder();
    build(
        folder.path(),
        "libhccl.so",
        "int muster_nowhere(void); int HcclAllReduce(void) { return muster_nowhere(); }",
        &[],
    );
    let words = refusal(folder.path());
    assert!(words.contains("muster_nowhere"), "{words}");
}

#[test]
fn garbage_and_a_library_of_another_machine_are_refused() {
    let folder = folder();
    let file = folder.path().join("libhccl.so");
    fs::write(&file, "#!/bin/sh\n").expect("a file");
    refusal(folder.path());
    fs::write(&file, "").expect("a file");
    refusal(folder.path());

    let other = tempfile::tempdir().expect("a folder");
    let file = build(
        other.path(),
        "libhccl.so",
        "int HcclAllReduce(void) { return 0; }",
        &[],
    );
    let mut bytes = fs::read(&file).expect("the library");
    // The machine stands in the two bytes at 18 of an ELF file; 8 is MIPS.
    bytes[18..20].copy_from_slice(&8_u16.to_ne_bytes());
    fs::write(&file, bytes).expect("the library");
    refusal(other.path());
}

#[test]
fn a_newer_library_of_another_installation_is_left_alone() {
    let folder = folder();
    let installation = |name: &str, libraries: &[&str]| {
        let root = folder.path().join(name);
        let lib64 = root.join("lib64");
        fs::create_dir_all(&lib64).expect("a folder");
        for library in libraries {
            let code = format!("int muster_{name}(void) {{ return 0; }}");
            build(&lib64, library, &code, &[]);
        }
        root
    };
    let old = installation("old", &["libhccl.so", "libascendcl.so"]);
    let new = installation("new", &["libhccl.so", "libhcomm.so", "libacl_rt.so"]);
    let places = Places {
        hccl_so_path: Some(old.join("lib64/libhccl.so")),
        installations: vec![new.clone()],
        device_folder: folder.path().join("dev"),
        ..Places::default()
    };
    let api = Api::load(&places);
    for library in [Library::Hcomm, Library::AclRt] {
        let outcome = api.probe().outcome(library).expect("an outcome");
        assert_eq!(outcome.loaded, None, "{library}");
        let last = outcome.failures.last().expect("a failure");
        assert_eq!(
            last.candidate.path.parent(),
            Some(new.join("lib64").as_path())
        );
        assert!(last.exists);
        assert!(last.message.starts_with("left alone"), "{}", last.message);
    }
    // Alone, the same installation is taken whole.
    let places = Places {
        ascend_home_path: Some(new),
        hccl_so_path: None,
        installations: Vec::new(),
        ..places
    };
    let probe = hccl_sys::search::probe(&places);
    let outcome = probe.outcome(Library::Hcomm).expect("an outcome");
    assert!(outcome.loaded.is_some(), "{:#?}", outcome.failures);
}

#[test]
fn an_emulator_is_recognised_in_whichever_library_it_is() {
    let folder = folder();
    build(
        folder.path(),
        "libhccl.so",
        "int HcclAllReduce(void) { return 0; }",
        &[],
    );
    let emulator = format!("const char *{EMULATOR_VERSION_SYMBOL}(void) {{ return \"0.1.0\"; }}");
    build(folder.path(), "libascendcl.so", &emulator, &[]);
    let api = Api::load(&places(folder.path()));
    assert_eq!(api.emulated(), Some("0.1.0"));
    let api = api.clone();
    let told = std::thread::spawn(move || api.emulated().map(str::to_owned)).join();
    assert_eq!(told.expect("the thread ended"), Some("0.1.0".to_owned()));
}

#[test]
fn versions_are_asked_of_the_libraries_that_can_say_them() {
    let folder = folder();
    build(
        folder.path(),
        "libascendcl.so",
        "#include <string.h>
         int aclsysGetVersionStr(char *name, char *version) {
             if (strcmp(name, \"hccl\")) return 100003;
             strcpy(version, \"9.0.0\");
             return 0;
         }
         int aclrtGetVersion(int *a, int *b, int *c) { *a = 1; *b = 14; *c = 3; return 0; }",
        &[],
    );
    let api = Api::load(&places(folder.path()));
    assert_eq!(package_version(&api, "hccl"), Ok("9.0.0".to_owned()));
    assert_eq!(
        package_version(&api, "toolkit"),
        Err(CallError::Refused(AclError::ACL_ERROR_INVALID_FILE))
    );
    assert_eq!(package_version(&api, "a\0b"), Err(CallError::Name));
    assert_eq!(api_version(&api), Ok([1, 14, 3]));
    let nothing = Api::load(&places(&folder.path().join("empty")));
    let missing = package_version(&nothing, "hccl").expect_err("no library");
    assert!(matches!(missing, CallError::Missing(_)), "{missing}");
}

#[test]
fn every_function_of_the_table_can_be_found_in_a_library_that_has_it() {
    let folder = folder();
    let nothing = Api::load(&Places {
        installations: Vec::new(),
        ..places(folder.path())
    });
    let mut hccl = String::new();
    let mut acl = String::new();
    for one in nothing.capabilities() {
        let code = if one.row.name.starts_with("Hccl") {
            &mut hccl
        } else {
            &mut acl
        };
        writeln!(code, "int {}(void) {{ return 0; }}", one.row.name).expect("a string");
    }
    build(folder.path(), "libhccl.so", &hccl, &[]);
    build(folder.path(), "libascendcl.so", &acl, &[]);
    let api = Api::load(&places(folder.path()));
    let missing: Vec<&str> = api
        .capabilities()
        .iter()
        .filter(|one| one.found.is_none())
        .map(|one| one.row.name)
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(api.hccl().HcclAlltoAllVC().is_ok());
    assert!(api.acl().aclrtSynchronizeStreamWithTimeout().is_ok());
}
