//! Events: order between streams, the three questions with their opposite answers, reuse.

use crate::support::*;

fn asked(question: fn(Pointer, *mut i32) -> i32, event: Pointer) -> i32 {
    let mut status = -1;
    ok(question(event, &raw mut status));
    status
}

#[test]
fn the_questions_about_an_event_have_opposite_answers() {
    const DEVICE: i32 = 12;
    let _device = Device::set(DEVICE);
    let (stream, event) = (stream(), event());
    assert_eq!(
        asked(aclrtQueryEventStatus, event),
        0,
        "never recorded: not complete is 0 here"
    );
    assert_eq!(
        asked(aclrtQueryEvent, event),
        0,
        "and no record is under way: complete is 0 there"
    );
    let gate = Gate::close(stream);
    ok(aclrtRecordEvent(event, stream));
    assert_eq!(asked(aclrtQueryEvent, event), 1);
    assert_eq!(asked(aclrtQueryEventStatus, event), 0);
    refused(
        aclrtSynchronizeEventWithTimeout(event, 20),
        507_047,
        &["not reached"],
    );
    refused(
        aclrtSynchronizeEventWithTimeout(event, -2),
        RT_PARAM,
        &["timeout is -2"],
    );
    gate.open();
    ok(aclrtSynchronizeEvent(event));
    assert_eq!(asked(aclrtQueryEvent, event), 0);
    assert_eq!(asked(aclrtQueryEventStatus, event), 1);
    ok(aclrtDestroyEvent(event));
    let mut status = -1;
    refused(
        aclrtQueryEventStatus(event, &raw mut status),
        107_017,
        &["was destroyed"],
    );
    refused(aclrtDestroyEvent(event), 107_017, &["was destroyed"]);
    refused(
        aclrtRecordEvent(std::ptr::null_mut(), stream),
        INVALID_PARAM,
        &["event is null"],
    );
    refused(aclrtRecordEvent(stream, stream), 107_017, &["is no event"]);
}

#[test]
fn a_stream_waits_for_the_record_that_was_last_when_the_wait_was_asked_for() {
    const DEVICE: i32 = 13;
    let _device = Device::set(DEVICE);
    let (first, second, event) = (stream(), stream(), event());
    let pointer = malloc(8);
    ok(aclrtMemset(pointer, 8, 0, 8));
    let gate = Gate::close(first);
    ok(aclrtMemsetAsync(pointer, 8, 1, 8, first));
    ok(aclrtRecordEvent(event, first));
    ok(aclrtStreamWaitEvent(second, event));
    let copy = malloc(8);
    ok(aclrtMemcpyAsync(copy, 8, pointer, 8, D2D, second));
    assert_eq!(
        asked(aclrtQueryEventWaitStatus, event),
        1,
        "a stream waits: 1 is not ready"
    );
    // Recorded again on a stream that never gets there: the wait above is for the first record.
    let third = stream();
    let closed = Gate::close(third);
    ok(aclrtRecordEvent(event, third));
    gate.open();
    ok(aclrtSynchronizeStream(second));
    assert_eq!(read(copy, 8), [1; 8]);
    assert_eq!(asked(aclrtQueryEventWaitStatus, event), 0);
    assert_eq!(
        asked(aclrtQueryEventStatus, event),
        0,
        "the second record is not reached"
    );
    closed.open();
    ok(aclrtSynchronizeEvent(event));
}

#[test]
fn an_event_that_was_never_recorded_follows_the_rules_of_its_kind() {
    const DEVICE: i32 = 14;
    let _device = Device::set(DEVICE);
    let (stream, plain) = (stream(), event());
    refused(
        aclrtStreamWaitEvent(stream, plain),
        RT_PARAM,
        &["never recorded"],
    );
    ok(aclrtSynchronizeEvent(plain));
    let mut extended = std::ptr::null_mut();
    ok(aclrtCreateEventExWithFlag(&raw mut extended, 1));
    ok(aclrtStreamWaitEvent(stream, extended));
    ok(aclrtSynchronizeStream(stream));
    assert_eq!(asked(aclrtQueryEventStatus, extended), 1);
    refused(
        aclrtCreateEventWithFlag(&raw mut extended, 1 << 20),
        RT_PARAM,
        &["flag"],
    );
}

#[test]
fn a_reset_makes_waits_wait_for_the_next_record() {
    const DEVICE: i32 = 15;
    let _device = Device::set(DEVICE);
    let (stream, other, event) = (stream(), stream(), event());
    ok(aclrtRecordEvent(event, stream));
    ok(aclrtResetEvent(event, stream));
    ok(aclrtSynchronizeStream(stream));
    assert_eq!(asked(aclrtQueryEventStatus, event), 0);
    ok(aclrtStreamWaitEvent(other, event));
    // On a busy machine the stream's thread comes to it later.
    let is_there = |_| {
        let got = aclrtSynchronizeStreamWithTimeout(other, 20);
        assert_eq!(got, 507_046);
        recent().contains("aclrtStreamWaitEvent")
    };
    assert!((0..500).any(is_there), "{}", recent());
    ok(aclrtRecordEvent(event, stream));
    ok(aclrtSynchronizeStream(other));
    assert_eq!(asked(aclrtQueryEventStatus, event), 1);
}

#[test]
fn times_lie_between_events_that_take_them() {
    const DEVICE: i32 = 12;
    let _device = Device::set(DEVICE);
    let (stream, start, end) = (stream(), event(), event());
    let mut passed = -1.0;
    refused(
        aclrtEventElapsedTime(&raw mut passed, start, end),
        RT_PARAM,
        &["never recorded"],
    );
    ok(aclrtRecordEvent(start, stream));
    let gate = Gate::close(stream);
    ok(aclrtRecordEvent(end, stream));
    refused(
        aclrtEventElapsedTime(&raw mut passed, start, end),
        107_006,
        &["not been recorded yet"],
    );
    gate.open();
    ok(aclrtSynchronizeStream(stream));
    ok(aclrtEventElapsedTime(&raw mut passed, start, end));
    assert!(passed >= 0.0);
    let mut back = 1.0;
    ok(aclrtEventElapsedTime(&raw mut back, end, start));
    assert!((passed + back).abs() < f32::EPSILON);
    let mut untimed = std::ptr::null_mut();
    ok(aclrtCreateEventWithFlag(&raw mut untimed, 1));
    ok(aclrtRecordEvent(untimed, stream));
    ok(aclrtSynchronizeStream(stream));
    refused(
        aclrtEventElapsedTime(&raw mut passed, start, untimed),
        107_006,
        &["TIME_LINE"],
    );
}

#[test]
fn a_wait_for_an_event_ends_at_its_limit_and_with_the_stream_that_should_have_recorded() {
    const DEVICE: i32 = 13;
    let _device = Device::set(DEVICE);
    let (stream, other, event) = (stream(), stream(), event());
    let gate = Gate::close(other);
    ok(aclrtRecordEvent(event, other));
    ok(aclrtStreamWaitEventWithTimeout(stream, event, 20));
    refused(
        aclrtSynchronizeStream(stream),
        107_020,
        &["was not recorded"],
    );
    ok(aclrtStreamWaitEvent(stream, event));
    gate.await_reached();
    // The function at the gate cannot be ended, so the abort returns while it runs.
    let opener = std::thread::spawn(move || gate.open());
    ok(aclrtStreamAbort(other));
    opener.join().expect("the opener");
    refused(aclrtSynchronizeStream(stream), 107_023, &["aborted before"]);
    refused(aclrtSynchronizeEvent(event), 107_023, &["aborted before"]);
}
