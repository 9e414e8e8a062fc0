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
fn features_and_figures_are_those_of_the_chip() {
    let mut value = -1;
    for feature in 0..3 {
        ok(aclGetCannAttribute(feature, &raw mut value));
        assert_eq!(value, 1, "feature {feature}");
    }
    for bad in [-1, 3] {
        let name = format!("cannAttr is {bad}");
        let code = aclGetCannAttribute(bad, &raw mut value);
        refused(code, INVALID_PARAM, &["aclGetCannAttribute", &name]);
    }
    let code = aclGetCannAttribute(0, std::ptr::null_mut());
    refused(code, INVALID_PARAM, &["value is null"]);
    let (mut list, mut count) = (std::ptr::null(), 0);
    ok(aclGetCannAttributeList(&raw mut list, &raw mut count));
    // SAFETY: the call gave as many numbers, which stay.
    let list = unsafe { std::slice::from_raw_parts(list, count) };
    assert_eq!(list, [0, 1, 2]);
    let mut figure = 0;
    for (asked, expected) in [(0, 24), (1, 48), (2, 192 << 20)] {
        ok(aclGetDeviceCapability(0, asked, &raw mut figure));
        assert_eq!(figure, expected, "figure {asked}");
    }
    let code = aclGetDeviceCapability(0, 3, &raw mut figure);
    refused(code, INVALID_PARAM, &["deviceInfo is 3"]);
    let code = aclGetDeviceCapability(16, 0, &raw mut figure);
    refused(code, 107_001, &["16 devices are visible"]);
}

#[test]
fn system_options_are_kept_for_the_process_and_for_each_context() {
    const DEVICE: i32 = 2;
    let _device = Device::set(DEVICE);
    let mut value = -1;
    // 0: the sums are deterministic.
    ok(aclrtGetSysParamOpt(0, &raw mut value));
    assert_eq!(value, 0, "what is not set for the process is 0");
    let code = aclrtCtxGetSysParamOpt(0, &raw mut value);
    refused(code, 107_021, &["never set in this context"]);
    for get in [aclrtGetSysParamOpt, aclrtCtxGetSysParamOpt] {
        refused(get(3, &raw mut value), INVALID_PARAM, &["option 3"]);
    }
    ok(aclrtSetSysParamOpt(0, 1));
    ok(aclrtGetSysParamOpt(0, &raw mut value));
    assert_eq!(value, 1);
    refused(aclrtCtxGetSysParamOpt(0, &raw mut value), 107_021, &[]);
    ok(aclrtCtxSetSysParamOpt(0, 0));
    ok(aclrtCtxGetSysParamOpt(0, &raw mut value));
    assert_eq!(value, 0);
    ok(aclrtGetSysParamOpt(0, &raw mut value));
    assert_eq!(value, 1);
    refused(aclrtSetSysParamOpt(-1, 1), INVALID_PARAM, &["option -1"]);
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
