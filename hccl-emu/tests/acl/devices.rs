//! Devices, contexts, and what belongs to the calling thread.

use std::ffi::CStr;

use crate::support::*;

#[test]
fn a_thread_has_no_device_until_it_sets_one() {
    const DEVICE: i32 = 0;
    let mut current = -1;
    refused(
        aclrtGetDevice(&raw mut current),
        107_002,
        &["aclrtGetDevice", "no current device"],
    );
    let mut pointer = std::ptr::null_mut();
    refused(aclrtMalloc(&raw mut pointer, 8, 0), 107_002, &[]);
    let _device = Device::set(DEVICE);
    ok(aclrtGetDevice(&raw mut current));
    assert_eq!(current, DEVICE);
    std::thread::spawn(|| {
        let mut current = -1;
        refused(aclrtGetDevice(&raw mut current), 107_002, &[]);
    })
    .join()
    .expect("the other thread");
}

#[test]
fn devices_that_do_not_exist_are_named_with_how_many_there_are() {
    let mut count = 0;
    ok(aclrtGetDeviceCount(&raw mut count));
    assert_eq!(count, 16);
    for bad in [-1, 16, i32::MAX] {
        refused(
            aclrtSetDevice(bad),
            107_001,
            &["aclrtSetDevice", "16 devices are visible"],
        );
    }
    refused(
        aclrtGetDeviceCount(std::ptr::null_mut()),
        INVALID_PARAM,
        &["count is null"],
    );
}

#[test]
fn the_last_reset_frees_the_memory_and_ends_streams_and_context() {
    const DEVICE: i32 = 1;
    let guard = own(DEVICE);
    ok(aclrtSetDevice(DEVICE));
    ok(aclrtSetDevice(DEVICE));
    let memory = malloc(100);
    let stream = stream();
    let mut status = -1;
    ok(aclrtResetDevice(DEVICE));
    ok(aclrtStreamQuery(stream, &raw mut status));
    ok(aclrtResetDevice(DEVICE));
    refused(
        aclrtStreamQuery(stream, &raw mut status),
        107_002,
        &["has ended"],
    );
    refused(aclrtResetDevice(DEVICE), 107_002, &["never set"]);
    drop(guard);
    let _device = Device::set(DEVICE);
    refused(aclrtFree(memory), RT_PARAM, &["freed by aclrtResetDevice"]);
    refused(
        aclrtStreamQuery(stream, &raw mut status),
        107_017,
        &["was destroyed"],
    );
}

#[test]
fn a_stream_of_another_context_is_refused() {
    const DEVICE: i32 = 2;
    let _device = Device::set(DEVICE);
    let stream = stream();
    let mut primary = std::ptr::null_mut();
    ok(aclrtGetCurrentContext(&raw mut primary));
    let mut own = std::ptr::null_mut();
    ok(aclrtCreateContext(&raw mut own, DEVICE));
    refused(
        aclrtSynchronizeStream(stream),
        107_003,
        &["another context"],
    );
    ok(aclrtSetCurrentContext(primary));
    ok(aclrtSynchronizeStream(stream));
    refused(
        aclrtDestroyContext(primary),
        RT_PARAM,
        &["aclrtResetDevice"],
    );
    ok(aclrtDestroyContext(own));
    refused(aclrtSetCurrentContext(own), 107_002, &["was destroyed"]);
    refused(aclrtDestroyContext(own), 107_002, &["was destroyed"]);
    refused(aclrtSetCurrentContext(stream), 107_002, &["no context"]);
}

#[test]
fn the_start_of_the_runtime_is_counted() {
    ok(aclInit(std::ptr::null()));
    refused(aclInit(std::ptr::null()), 100_002, &["already initialised"]);
    let missing = c"/nonexistent/acl.json";
    refused(
        aclInit(missing.as_ptr()),
        100_003,
        &["/nonexistent/acl.json"],
    );
    let mut left = 9;
    ok(aclFinalizeReference(&raw mut left));
    assert_eq!(left, 1);
    ok(aclFinalize());
    refused(aclFinalize(), 100_037, &["not initialised"]);
}

#[test]
fn versions_and_names_say_emulated() {
    // SAFETY: the text stays for the life of the process.
    let version = unsafe { CStr::from_ptr(muster_emu_version()) };
    let version = version.to_str().expect("UTF-8");
    assert!(version.starts_with("muster-emu "), "{version}");
    assert!(version.contains("emulating CANN 8.5.0"), "{version}");
    // SAFETY: as above.
    let soc = unsafe { CStr::from_ptr(aclrtGetSocName()) };
    assert_eq!(soc, c"Ascend910B2");
    let mut text = [0; 128];
    ok(aclsysGetVersionStr(c"hccl".as_ptr(), text.as_mut_ptr()));
    // SAFETY: the function wrote a NUL at the end.
    let text = unsafe { CStr::from_ptr(text.as_ptr()) };
    assert_eq!(text, c"8.5.0-emulated");
    let mut number = 0;
    ok(aclsysGetVersionNum(c"runtime".as_ptr(), &raw mut number));
    assert_eq!(number, 80_500_000);
    refused(
        aclsysGetVersionNum(std::ptr::null(), &raw mut number),
        INVALID_PARAM,
        &["pkgName"],
    );
}

#[test]
fn errors_are_read_once_latest_first_and_belong_to_their_thread() {
    assert_eq!(recent(), "");
    aclrtSetDevice(77);
    aclrtSetDevice(78);
    assert_eq!(aclrtPeekAtLastError(0), 107_001);
    std::thread::spawn(|| assert_eq!(recent(), ""))
        .join()
        .expect("the other thread");
    let text = recent();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2);
    assert!(
        lines[0].contains("device 78") && lines[1].contains("device 77"),
        "{text}"
    );
    for line in lines {
        let head = format!("[PID: {}] ", std::process::id());
        assert!(line.starts_with(&head), "{line}");
        assert!(
            line.contains("Invalid_Argument(EE1001): emulated: "),
            "{line}"
        );
    }
    assert_eq!(recent(), "");
    assert_eq!(aclrtGetLastError(0), 107_001);
    assert_eq!(aclrtGetLastError(0), OK);
    refused(aclrtGetLastError(1), INVALID_PARAM, &["level is 1"]);
}
