//! Events.

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

use muster_comm::sync::Ordering;

use super::abi::{Out, exports, null};
use super::device::limit;
use super::stream::of;
use crate::runtime::device;
use crate::runtime::errors::{AclError, RuntimeError};
use crate::runtime::event::{Event, Mode};
use crate::runtime::handles::{self, Found};
use crate::runtime::state;

/// Flags of an event: what it is for, and whether it takes times.
const FLAGS: u32 = 0x7F;

exports! {
    /// Makes an event that can do everything.
    fn aclrtCreateEvent(event: Out<*mut c_void>) {
        create(event, Mode::Plain, None)
    }

    /// Makes an event for what the flags say.
    fn aclrtCreateEventWithFlag(event: Out<*mut c_void>, flags: u32) {
        create(event, Mode::Plain, Some(flags))
    }

    /// The same; waiting for it before it was recorded waits for nothing.
    fn aclrtCreateEventExWithFlag(event: Out<*mut c_void>, flags: u32) {
        create(event, Mode::Extended, Some(flags))
    }

    /// Ends an event.
    fn aclrtDestroyEvent(event: *mut c_void) {
        let event = find(event, "event")?;
        state().events.remove(event.handle);
        Ok(())
    }

    /// Puts a record of the event into a stream.
    fn aclrtRecordEvent(event: *mut c_void, stream: *mut c_void) {
        let event = find(event, "event")?;
        event.record(&*of(stream)?)
    }

    /// Puts a reset of the event into a stream.
    fn aclrtResetEvent(event: *mut c_void, stream: *mut c_void) {
        let event = find(event, "event")?;
        event.reset(&*of(stream)?)
    }

    /// Lets a stream wait for an event, as long as `aclrtSetOpWaitTimeout` says.
    fn aclrtStreamWaitEvent(stream: *mut c_void, event: *mut c_void) {
        let event = find(event, "event")?;
        // Relaxed: a setting on its own.
        let seconds = state().process.op_wait_timeout_s.load(Ordering::Relaxed);
        let limit = (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)));
        event.wait_on(&*of(stream)?, limit)
    }

    /// Lets a stream wait for an event for so many milliseconds; 0 is for ever.
    fn aclrtStreamWaitEventWithTimeout(stream: *mut c_void, event: *mut c_void, milliseconds: i32) {
        let event = find(event, "event")?;
        let limit = limit(milliseconds)?.filter(|limit| !limit.is_zero());
        event.wait_on(&*of(stream)?, limit)
    }

    /// Waits for the last record of an event.
    fn aclrtSynchronizeEvent(event: *mut c_void) {
        device::current()?;
        find(event, "event")?.synchronize(None)
    }

    /// The same with a limit in milliseconds; -1 is none.
    fn aclrtSynchronizeEventWithTimeout(event: *mut c_void, milliseconds: i32) {
        let limit = limit(milliseconds)?;
        device::current()?;
        find(event, "event")?.synchronize(limit)
    }

    /// The old question: 0 if no record is under way, else 1.
    fn aclrtQueryEvent(event: *mut c_void, status: Out<i32>) {
        let status = status.check("status")?;
        status.set("status", i32::from(find(event, "event")?.is_under_way()))
    }

    /// The new question: 1 if the last record was reached, else 0. The device must not be lost.
    fn aclrtQueryEventStatus(event: *mut c_void, status: Out<i32>) {
        let status = status.check("status")?;
        if let Ok(context) = device::current() {
            context.device.check_alive()?;
        }
        status.set("status", i32::from(find(event, "event")?.is_recorded()))
    }

    /// 0 if no stream waits for the event, else 1.
    fn aclrtQueryEventWaitStatus(event: *mut c_void, status: Out<i32>) {
        let status = status.check("status")?;
        status.set("status", i32::from(!find(event, "event")?.is_waited_out()))
    }

    /// Milliseconds from one event to another.
    fn aclrtEventElapsedTime(milliseconds: Out<f32>, start: *mut c_void, end: *mut c_void) {
        let place = milliseconds.check("ms")?;
        let from = find(start, "startEvent")?.time()?;
        let to = find(end, "endEvent")?.time()?;
        let passed = match to.checked_duration_since(from) {
            Some(passed) => passed.as_secs_f32(),
            None => -from.duration_since(to).as_secs_f32(),
        };
        place.set("ms", passed * 1000.0)
    }

    /// When the event was recorded, in microseconds since the emulator began.
    fn aclrtEventGetTimestamp(event: *mut c_void, timestamp: Out<u64>) {
        let place = timestamp.check("timestamp")?;
        let time = find(event, "event")?.time()?;
        let since = time.saturating_duration_since(state().began);
        place.set("timestamp", u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
    }

    /// A number of the event.
    fn aclrtGetEventId(event: *mut c_void, id: Out<u32>) {
        let event = find(event, "event")?;
        id.set("eventId", (event.handle >> 6 & 0xFFFF) as u32)
    }
}

fn create(place: Out<*mut c_void>, mode: Mode, flags: Option<u32>) -> Result<(), RuntimeError> {
    let place = place.check("event")?;
    let context = device::current()?;
    if flags.is_some_and(|flags| flags & !FLAGS != 0) {
        let text = format!(
            "flag is {:#x}; allowed: 0 to 0x7f",
            flags.unwrap_or_default()
        );
        return Err(RuntimeError::argument(text));
    }
    context.device.check_alive()?;
    let made = state()
        .events
        .insert(|handle| Arc::new(Event::new(handle, mode, flags)));
    place.set("event", handles::pointer(made.handle))
}

fn find(handle: *mut c_void, what: &str) -> Result<Arc<Event>, RuntimeError> {
    if handle.is_null() {
        return Err(null(what));
    }
    let text = match state().events.find(handle) {
        Found::Live(event) => return Ok(event),
        Found::Gone => "was destroyed",
        Found::Alien => "is no event",
    };
    Err(RuntimeError::new(
        AclError::RT_INVALID_HANDLE,
        format!("{what} {handle:p} {text}"),
    ))
}
