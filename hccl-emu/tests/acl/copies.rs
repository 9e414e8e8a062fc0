//! Copies: kinds against addresses, rows, and copies that are tasks.

use std::ffi::c_void;

use crate::support::*;

#[test]
fn a_kind_that_does_not_fit_the_addresses_is_refused_with_the_side_that_is_wrong() {
    const DEVICE: i32 = 0;
    let _device = Device::set(DEVICE);
    let device = malloc(64);
    let other = malloc(64);
    let mut host = [0_u8; 64];
    let host: *mut c_void = host.as_mut_ptr().cast();
    for (to, from, kind, word) in [
        (device, host, D2H, "dst"),
        (device, host, D2D, "src"),
        (device, host, H2H, "dst"),
        (host, device, H2D, "dst"),
        (host, device, D2D, "dst"),
        (host, host, D2H, "src"),
        (device, other, H2D, "src"),
        (device, other, D2H, "dst"),
    ] {
        refused(
            aclrtMemcpy(to, 64, from, 64, kind),
            RT_PARAM,
            &[word, "needs", "memory"],
        );
    }
    for (to, from) in [
        (device, host),
        (host, device),
        (device, other),
        (host, host),
    ] {
        ok(aclrtMemcpy(to, 64, from, 64, DEFAULT));
    }
    ok(aclrtMemcpy(device, 64, other, 64, D2D));
    refused(
        aclrtMemcpy(device, 64, host, 64, 9),
        INVALID_PARAM,
        &["kind is 9"],
    );
    refused(
        aclrtMemcpy(device, 10, host, 11, H2D),
        RT_PARAM,
        &["count is 11, destMax is 10"],
    );
    refused(
        aclrtMemcpy(device, 8, std::ptr::null(), 8, H2D),
        INVALID_PARAM,
        &["src is null"],
    );
    ok(aclrtMemcpy(
        std::ptr::null_mut(),
        0,
        std::ptr::null(),
        0,
        H2D,
    ));
}

#[test]
fn memory_of_another_device_is_reached_only_after_it_was_allowed() {
    const MINE: i32 = 10;
    const THEIRS: i32 = 11;
    let _theirs = Device::set(THEIRS);
    let theirs = malloc(64);
    write(theirs, &[5; 64]);
    let _mine = Device::set(MINE);
    let mine = malloc(64);
    let words = ["from device 11 to device 10", "aclrtDeviceEnablePeerAccess"];
    refused(aclrtMemcpy(mine, 64, theirs, 64, D2D), RT_PARAM, &words);
    let mut can = 0;
    ok(aclrtDeviceCanAccessPeer(&raw mut can, MINE, THEIRS));
    assert_eq!(can, 1);
    refused(
        aclrtDeviceEnablePeerAccess(THEIRS, 1),
        INVALID_PARAM,
        &["flags"],
    );
    refused(aclrtDeviceEnablePeerAccess(MINE, 0), 107_001, &["itself"]);
    ok(aclrtDeviceEnablePeerAccess(THEIRS, 0));
    ok(aclrtMemcpy(mine, 64, theirs, 64, D2D));
    assert_eq!(read(mine, 64), [5; 64]);
}

#[test]
fn rows_are_copied_and_what_lies_between_them_is_not() {
    const DEVICE: i32 = 1;
    let _device = Device::set(DEVICE);
    let pointer = malloc(100);
    ok(aclrtMemset(pointer, 100, 9, 100));
    let host: Vec<u8> = (0..50).collect();
    ok(aclrtMemcpy2d(
        pointer,
        20,
        host.as_ptr().cast(),
        10,
        4,
        5,
        H2D,
    ));
    let seen = read(pointer, 100);
    for (at, byte) in seen.iter().enumerate() {
        let (row, column) = (at / 20, at % 20);
        let expected = if column < 4 { row * 10 + column } else { 9 };
        assert_eq!(usize::from(*byte), expected, "byte {at}");
    }
    let from = host.as_ptr().cast();
    refused(
        aclrtMemcpy2d(pointer, 3, from, 10, 4, 5, H2D),
        INVALID_PARAM,
        &["dpitch 3"],
    );
    refused(
        aclrtMemcpy2d(pointer, 30, from, 10, 4, 5, H2D),
        RT_PARAM,
        &["24 beyond its end"],
    );
}

#[test]
fn copies_in_a_stream_keep_its_order() {
    const DEVICE: i32 = 2;
    let _device = Device::set(DEVICE);
    let stream = stream();
    let (a, b) = (malloc(1 << 20), malloc(1 << 20));
    let gate = Gate::close(stream);
    ok(aclrtMemsetAsync(a, 1 << 20, 1, 1 << 20, stream));
    ok(aclrtMemcpyAsync(b, 1 << 20, a, 1 << 20, D2D, stream));
    ok(aclrtMemsetAsync(a, 1 << 20, 2, 1 << 20, stream));
    gate.open();
    ok(aclrtSynchronizeStream(stream));
    assert!(read(a, 1 << 20).iter().all(|byte| *byte == 2));
    assert!(read(b, 1 << 20).iter().all(|byte| *byte == 1));
    let host = [0_u8; 8];
    let host: *mut c_void = host.as_ptr().cast_mut().cast();
    refused(
        aclrtMemcpyAsync(host, 8, host, 8, H2H, stream),
        207_000,
        &["host to host"],
    );
}

#[test]
fn ordinary_host_memory_makes_a_copy_wait_and_pinned_does_not() {
    const DEVICE: i32 = 3;
    let _device = Device::set(DEVICE);
    let stream = stream();
    let pointer = malloc(8);
    let mut pinned = std::ptr::null_mut();
    ok(aclrtMallocHost(&raw mut pinned, 8));
    ok(aclrtMemset(pinned, 8, 3, 8));
    let gate = Gate::close(stream);
    ok(aclrtMemcpyAsync(pointer, 8, pinned, 8, H2D, stream));
    let mut status = -1;
    ok(aclrtStreamQuery(stream, &raw mut status));
    assert_eq!(status, 1);
    gate.open();
    let mut ordinary = [0_u8; 8];
    ok(aclrtMemcpyAsync(
        ordinary.as_mut_ptr().cast(),
        8,
        pointer,
        8,
        D2H,
        stream,
    ));
    assert_eq!(ordinary, [3; 8]);
    ok(aclrtFreeHost(pinned));
}

#[test]
fn memory_that_is_freed_before_its_task_runs_fails_the_stream() {
    const DEVICE: i32 = 4;
    let _device = Device::set(DEVICE);
    let stream = stream();
    let pointer = malloc(1000);
    let gate = Gate::close(stream);
    ok(aclrtMemsetAsync(pointer, 1000, 1, 1000, stream));
    ok(aclrtFree(pointer));
    gate.open();
    refused(
        aclrtSynchronizeStream(stream),
        507_053,
        &["freed by aclrtFree"],
    );
    ok(aclrtSynchronizeStream(stream));
}
