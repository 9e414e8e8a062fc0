//! Streams: order, limits of waits, aborts, failures, functions of the host.

use std::sync::mpsc::{Sender, channel};

use crate::support::*;

#[test]
fn a_wait_with_a_limit_ends_while_the_work_goes_on() {
    const DEVICE: i32 = 5;
    let _device = Device::set(DEVICE);
    let stream = stream();
    let gate = Gate::close(stream);
    gate.await_reached();
    let words = ["aclrtLaunchHostFunc", "task 1 of 1"];
    refused(
        aclrtSynchronizeStreamWithTimeout(stream, 20),
        507_046,
        &words,
    );
    refused(aclrtSynchronizeDeviceWithTimeout(20), 507_046, &[]);
    refused(
        aclrtSynchronizeStreamWithTimeout(stream, -2),
        RT_PARAM,
        &["timeout is -2"],
    );
    let mut status = -1;
    ok(aclrtStreamQuery(stream, &raw mut status));
    assert_eq!(status, 1);
    gate.open();
    ok(aclrtSynchronizeStreamWithTimeout(stream, -1));
    ok(aclrtStreamQuery(stream, &raw mut status));
    assert_eq!(status, 0);
}

#[test]
fn no_stream_is_ever_captured() {
    const DEVICE: i32 = 5;
    let _device = Device::set(DEVICE);
    for stream in [stream(), std::ptr::null_mut()] {
        let (mut status, mut model) = (-1, std::ptr::dangling_mut());
        ok(aclmdlRICaptureGetInfo(
            stream,
            &raw mut status,
            &raw mut model,
        ));
        assert_eq!(status, 0);
        assert!(model.is_null());
    }
    let (mut status, mut model) = (-1, std::ptr::null_mut());
    let code = aclmdlRICaptureGetInfo(std::ptr::dangling_mut(), &raw mut status, &raw mut model);
    refused(code, 107_017, &["aclmdlRICaptureGetInfo"]);
    let code = aclmdlRICaptureGetInfo(std::ptr::null_mut(), std::ptr::null_mut(), &raw mut model);
    refused(code, INVALID_PARAM, &["status is null"]);
}

#[test]
fn an_abort_drops_tasks_ends_waits_and_leaves_the_stream_usable() {
    const DEVICE: i32 = 0;
    let _device = Device::set(DEVICE);
    let (stream, other) = (stream(), stream());
    let never = event();
    let gate = Gate::close(other);
    ok(aclrtRecordEvent(never, other));
    ok(aclrtStreamWaitEvent(stream, never));
    let pointer = malloc(8);
    ok(aclrtMemset(pointer, 8, 1, 8));
    ok(aclrtMemsetAsync(pointer, 8, 2, 8, stream));
    let raw = stream.expose_provenance();
    let mut context = std::ptr::null_mut();
    ok(aclrtGetCurrentContext(&raw mut context));
    let context = context.expose_provenance();
    let (waits, waiting) = channel();
    let waiter = std::thread::spawn(move || {
        ok(aclrtSetCurrentContext(
            std::ptr::with_exposed_provenance_mut(context),
        ));
        let stream = std::ptr::with_exposed_provenance_mut(raw);
        assert_eq!(aclrtSynchronizeStreamWithTimeout(stream, 1), 507_046);
        waits.send(()).expect("the test listens");
        // Between an abort and the next wait the stream is idle for a moment.
        let code = loop {
            match aclrtSynchronizeStream(stream) {
                OK => {}
                code => break code,
            }
        };
        refused(code, 107_023, &["aborted"]);
    });
    waiting.recv().expect("the waiter");
    // The waiter may be between the two calls: abort until it has seen one.
    while !waiter.is_finished() {
        ok(aclrtStreamAbort(stream));
        ok(aclrtStreamWaitEvent(stream, never));
        std::thread::yield_now();
    }
    waiter.join().expect("the waiter");
    ok(aclrtStreamAbort(stream));
    assert_eq!(read(pointer, 8), [1; 8]);
    ok(aclrtMemsetAsync(pointer, 8, 3, 8, stream));
    ok(aclrtSynchronizeStream(stream));
    assert_eq!(read(pointer, 8), [3; 8]);
    gate.open();
}

#[test]
fn a_task_abort_of_the_device_ends_all_its_waits() {
    const DEVICE: i32 = 7;
    let _device = Device::set(DEVICE);
    let (stream, other) = (stream(), stream());
    let never = event();
    let gate = Gate::close(other);
    ok(aclrtRecordEvent(never, other));
    ok(aclrtStreamWaitEvent(stream, never));
    // What does not run yet is taken out of the stream, and nothing is left to report.
    gate.await_reached();
    let aborter = std::thread::spawn(move || {
        // The gate is a function of the host, which cannot be ended: that is reported.
        refused(aclrtDeviceTaskAbort(DEVICE, 50), 107_019, &["still ran"]);
    });
    aborter.join().expect("the aborter");
    gate.open();
    ok(aclrtDeviceTaskAbort(DEVICE, 0));
    ok(aclrtSynchronizeStream(stream));
    refused(
        aclrtDeviceTaskAbort(DEVICE, 3_000_000),
        RT_PARAM,
        &["3000000"],
    );
    refused(aclrtDeviceTaskAbort(99, 0), 107_001, &[]);
}

#[test]
fn destroying_waits_for_the_tasks_and_by_force_it_does_not() {
    const DEVICE: i32 = 8;
    let _device = Device::set(DEVICE);
    let pointer = malloc(8);
    let first = stream();
    ok(aclrtMemsetAsync(pointer, 8, 1, 8, first));
    ok(aclrtDestroyStream(first));
    assert_eq!(read(pointer, 8), [1; 8]);
    for call in [
        aclrtDestroyStream,
        aclrtDestroyStreamForce,
        aclrtSynchronizeStream,
        aclrtStreamAbort,
    ] {
        refused(call(first), 107_017, &["was destroyed"]);
    }
    let (second, other) = (stream(), stream());
    let never = event();
    let gate = Gate::close(other);
    ok(aclrtRecordEvent(never, other));
    ok(aclrtStreamWaitEvent(second, never));
    ok(aclrtDestroyStreamForce(second));
    refused(aclrtSynchronizeStream(second), 107_017, &["was destroyed"]);
    refused(aclrtSynchronizeStream(pointer), 107_017, &["no stream"]);
    refused(
        aclrtDestroyStream(std::ptr::null_mut()),
        INVALID_PARAM,
        &["stream is null"],
    );
    gate.open();
}

#[test]
fn a_failure_goes_on_or_stops_the_stream_as_it_was_told() {
    const DEVICE: i32 = 9;
    let _device = Device::set(DEVICE);
    let pointer = malloc(8);
    for stops in [false, true] {
        let stream = stream();
        ok(aclrtSetStreamFailureMode(stream, u64::from(stops)));
        ok(aclrtMemset(pointer, 8, 1, 8));
        let gate = Gate::close(stream);
        let victim = malloc(8);
        ok(aclrtMemsetAsync(victim, 8, 0, 8, stream));
        ok(aclrtMemsetAsync(pointer, 8, 2, 8, stream));
        ok(aclrtFree(victim));
        gate.open();
        refused(aclrtSynchronizeStream(stream), 507_053, &["freed"]);
        if stops {
            assert_eq!(
                read(pointer, 8),
                [1; 8],
                "the task behind the failure was dropped"
            );
            refused(aclrtSynchronizeStream(stream), 507_053, &["freed"]);
            refused(
                aclrtMemsetAsync(pointer, 8, 3, 8, stream),
                507_053,
                &["freed"],
            );
            ok(aclrtStreamAbort(stream));
        } else {
            assert_eq!(read(pointer, 8), [2; 8], "the task behind the failure ran");
        }
        ok(aclrtSynchronizeStream(stream));
        ok(aclrtDestroyStream(stream));
    }
    refused(
        aclrtSetStreamFailureMode(stream(), 2),
        RT_PARAM,
        &["mode is 2"],
    );
    refused(
        aclrtSetStreamFailureMode(std::ptr::null_mut(), 1),
        RT_PARAM,
        &["default stream"],
    );
}

#[test]
fn null_is_the_default_stream_of_the_context() {
    const DEVICE: i32 = 10;
    let _device = Device::set(DEVICE);
    let pointer = malloc(8);
    ok(aclrtMemsetAsync(pointer, 8, 4, 8, std::ptr::null_mut()));
    ok(aclrtSynchronizeStream(std::ptr::null_mut()));
    assert_eq!(read(pointer, 8), [4; 8]);
}

extern "C" fn send(data: Pointer) {
    // SAFETY: `data` is a sender that the test keeps until the function has run.
    let sender = unsafe { &*data.cast::<Sender<std::thread::ThreadId>>() };
    let _ = sender.send(std::thread::current().id());
}

#[test]
fn a_callback_runs_in_the_thread_that_reports_and_in_its_place() {
    const DEVICE: i32 = 11;
    let _device = Device::set(DEVICE);
    let stream = stream();
    let (sender, receiver) = channel();
    let data: Pointer = (&raw const sender).cast_mut().cast();
    refused(
        aclrtLaunchCallback(send, data, 1, stream),
        107_015,
        &["aclrtSubscribeReport"],
    );
    refused(aclrtProcessReport(10), 107_012, &["no stream reports"]);
    refused(aclrtProcessReport(0), INVALID_PARAM, &["timeout is 0"]);
    // SAFETY: it takes nothing and always succeeds.
    let thread = unsafe { libc::pthread_self() };
    ok(aclrtSubscribeReport(thread, stream));
    refused(aclrtSubscribeReport(thread, stream), 107_011, &["already"]);
    refused(aclrtProcessReport(10), 507_012, &["in time"]);
    let pointer = malloc(8);
    ok(aclrtMemset(pointer, 8, 1, 8));
    ok(aclrtLaunchCallback(send, data, 1, stream));
    ok(aclrtMemsetAsync(pointer, 8, 2, 8, stream));
    refused(
        aclrtSynchronizeStreamWithTimeout(stream, 20),
        507_046,
        &["aclrtLaunchCallback"],
    );
    assert_eq!(read(pointer, 8), [1; 8]);
    ok(aclrtProcessReport(-1));
    assert_eq!(receiver.recv(), Ok(std::thread::current().id()));
    ok(aclrtSynchronizeStream(stream));
    assert_eq!(read(pointer, 8), [2; 8]);
    ok(aclrtLaunchCallback(send, data, 0, stream));
    ok(aclrtSynchronizeStream(stream));
    ok(aclrtProcessReport(-1));
    ok(aclrtUnSubscribeReport(thread, stream));
    refused(aclrtUnSubscribeReport(thread, stream), 107_012, &[]);
    refused(
        aclrtLaunchCallback(send, data, 7, stream),
        INVALID_PARAM,
        &["blockType"],
    );
}
