//! Which calls have begun and which are complete: an event before a call of a stream and one behind it, for one call at a time,
//! which the tap's thread asks for.
//!
//! - STREAM-1: the events of one call at most are pending on a stream, and at most those of one a millisecond are put there. Of
//!   calls behind it nothing is known.
//! - STREAM-2: nothing is recorded on a stream that is being captured: that would end the program's capture.
//! - STREAM-3: streams are never asked, only events of the tap: the program may have destroyed a stream.

#![expect(unsafe_code, reason = "functions of the vendor's runtime")]

use std::ffi::c_void;
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::real::Function;

/// Streams that are looked at.
const STREAMS: usize = 64;
/// Kind of events that take no hardware event and no room of others: `ACL_EVENT_CAPTURE_STREAM_PROGRESS`.
const STREAM_PROGRESS: u32 = 0x2;
/// What `aclrtQueryEventStatus` answers of a complete one.
const COMPLETE: i32 = 1;
/// What `aclmdlRICaptureGetInfo` answers of a stream that is not captured.
const NOT_CAPTURED: i32 = 0;

/// Least time between two events on a stream.
const MARK_EVERY_NS: u64 = 1_000_000;

/// Errors of the runtime that tell of the device, and not of how a function was used.
const DEVICE_ERRORS: std::ops::RangeInclusive<i32> = 507_000..=507_999;

/// The last of them.
static ERROR: AtomicI32 = AtomicI32::new(0);

/// The error of the device, where one was seen.
pub(crate) fn error() -> Option<i32> {
    let code = ERROR.load(Ordering::Relaxed);
    (code != 0).then_some(code)
}

const FREE: u32 = 0;
const IDLE: u32 = 1;
const RECORDING: u32 = 2;
const PENDING: u32 = 3;
const BROKEN: u32 = 4;

static CREATE: Function = Function::new(c"aclrtCreateEventExWithFlag");
static RECORD: Function = Function::new(c"aclrtRecordEvent");
static QUERY: Function = Function::new(c"aclrtQueryEventStatus");
static CAPTURE: Function = Function::new(c"aclmdlRICaptureGetInfo");
static CONTEXT: Function = Function::new(c"aclrtGetCurrentContext");
static SET_CONTEXT: Function = Function::new(c"aclrtSetCurrentContext");

type Create = unsafe extern "C" fn(*mut *mut c_void, u32) -> i32;
type Record = unsafe extern "C" fn(*mut c_void, *mut c_void) -> i32;
type Query = unsafe extern "C" fn(*mut c_void, *mut i32) -> i32;
type Capture = unsafe extern "C" fn(*mut c_void, *mut i32, *mut *mut c_void) -> i32;
type Context = unsafe extern "C" fn(*mut *mut c_void) -> i32;
type SetContext = unsafe extern "C" fn(*mut c_void) -> i32;

/// A stream, and the events around one of its calls.
#[derive(Debug)]
pub(crate) struct Stream {
    state: AtomicU32,
    stream: AtomicPtr<c_void>,
    before: AtomicPtr<c_void>,
    behind: AtomicPtr<c_void>,
    context: AtomicPtr<c_void>,
    /// The call that has the events, and when they were put there.
    order: AtomicU64,
    marked_ns: AtomicU64,
    /// The last call that is complete.
    complete: AtomicU64,
    /// The call that the tap's thread has told of last.
    told: AtomicU64,
}

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// What is ahead of it on its stream is not complete.
    Behind,
    /// The device has begun it.
    Begun,
    /// It is complete, and all before it on its stream.
    Complete,
}

static ALL: [Stream; STREAMS] = [const {
    Stream {
        state: AtomicU32::new(FREE),
        stream: AtomicPtr::new(ptr::null_mut()),
        before: AtomicPtr::new(ptr::null_mut()),
        behind: AtomicPtr::new(ptr::null_mut()),
        context: AtomicPtr::new(ptr::null_mut()),
        order: AtomicU64::new(0),
        marked_ns: AtomicU64::new(0),
        complete: AtomicU64::new(0),
        told: AtomicU64::new(0),
    }
}; STREAMS];

/// Whether the runtime has what is needed.
pub(crate) fn are_observable() -> bool {
    [&CREATE, &RECORD, &QUERY, &CONTEXT, &SET_CONTEXT]
        .into_iter()
        .all(|function| !function.runtime().is_null())
}

/// Whether calls on this stream are captured into a graph.
pub(crate) fn is_captured(stream: *mut c_void) -> bool {
    let address = CAPTURE.runtime();
    if address.is_null() {
        return false;
    }
    // SAFETY: the runtime's function of this name has this signature.
    let capture = unsafe { mem::transmute::<*mut c_void, Capture>(address) };
    let (mut status, mut model) = (NOT_CAPTURED, ptr::null_mut());
    // SAFETY: the program has just used the stream, and the answers have their places.
    let code = unsafe { capture(stream, &raw mut status, &raw mut model) };
    code == 0 && status != NOT_CAPTURED
}

/// Puts an event before the next call of a stream, unless one of an earlier call is pending there. The caller goes on with
/// [`Stream::end`] or [`Stream::release`].
pub(crate) fn begin(stream: *mut c_void, now_ns: u64) -> Option<&'static Stream> {
    let slot = slot_of(stream)?;
    let last_ns = slot.marked_ns.load(Ordering::Relaxed);
    if now_ns.saturating_sub(last_ns) < MARK_EVERY_NS {
        return None;
    }
    let take = |state| {
        // Acquire, with the release below: who takes the slot sees its events.
        slot.state
            .compare_exchange(state, RECORDING, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    };
    if !take(IDLE) {
        if !take(PENDING) {
            return None;
        }
        // The thread of the program has a context in which the event can be asked.
        if query(&slot.behind) != Some(true) {
            slot.state.store(PENDING, Ordering::Release);
            return None;
        }
        let before = slot.order.load(Ordering::Relaxed);
        slot.complete.store(before, Ordering::Relaxed);
    }
    let is_recorded = slot.keep_context() && record(&slot.before, stream);
    let next = if is_recorded { RECORDING } else { BROKEN };
    slot.state.store(next, Ordering::Release);
    is_recorded.then_some(slot)
}

impl Stream {
    /// Puts an event behind the call of this number. Says whether it did.
    pub(crate) fn end(&self, stream: *mut c_void, order: u64, now_ns: u64) -> bool {
        let is_recorded = record(&self.behind, stream);
        self.order.store(order, Ordering::Relaxed);
        self.marked_ns.store(now_ns, Ordering::Relaxed);
        let next = if is_recorded { PENDING } else { BROKEN };
        self.state.store(next, Ordering::Release);
        is_recorded
    }

    /// The call was not carried out.
    pub(crate) fn release(&self) {
        self.state.store(IDLE, Ordering::Release);
    }

    /// Keeps the context of this thread, in which the tap's thread asks later.
    fn keep_context(&self) -> bool {
        // SAFETY: the runtime's function of this name has this signature.
        let context = unsafe { mem::transmute::<*mut c_void, Context>(CONTEXT.runtime()) };
        let mut current = ptr::null_mut();
        // SAFETY: the answer has its place.
        let is_known = unsafe { context(&raw mut current) } == 0;
        self.context.store(current, Ordering::Relaxed);
        is_known
    }
}

/// Records an event on a stream, made the first time.
fn record(event: &AtomicPtr<c_void>, stream: *mut c_void) -> bool {
    let mut known = event.load(Ordering::Relaxed);
    if known.is_null() {
        known = create();
        event.store(known, Ordering::Relaxed);
    }
    if known.is_null() {
        return false;
    }
    // SAFETY: the runtime's function of this name has this signature.
    let record = unsafe { mem::transmute::<*mut c_void, Record>(RECORD.runtime()) };
    // SAFETY: the event is the tap's, and the program has just used the stream on this thread.
    is_well(unsafe { record(known, stream) })
}

/// An event, of the context of this thread.
fn create() -> *mut c_void {
    // SAFETY: the runtime's function of this name has this signature.
    let create = unsafe { mem::transmute::<*mut c_void, Create>(CREATE.runtime()) };
    let mut event = ptr::null_mut();
    // SAFETY: the answer has its place.
    let code = unsafe { create(&raw mut event, STREAM_PROGRESS) };
    if code == 0 { event } else { ptr::null_mut() }
}

fn slot_of(stream: *mut c_void) -> Option<&'static Stream> {
    for slot in &ALL {
        let state = slot.state.load(Ordering::Acquire);
        if state == FREE {
            let taken =
                slot.state
                    .compare_exchange(FREE, RECORDING, Ordering::Acquire, Ordering::Acquire);
            if taken.is_ok() {
                slot.stream.store(stream, Ordering::Relaxed);
                slot.state.store(IDLE, Ordering::Release);
                return Some(slot);
            }
        }
        if ptr::eq(slot.stream.load(Ordering::Relaxed), stream) {
            return Some(slot);
        }
    }
    None
}

/// Asks the events that are pending; tells of each stream how far it has come, where that is news: of the call of which number.
pub(crate) fn look(mut tell: impl FnMut(u64, u64, Progress)) {
    for slot in &ALL {
        let stream = || slot.stream.load(Ordering::Relaxed).addr() as u64;
        let take = |state| {
            slot.state
                .compare_exchange(state, RECORDING, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        };
        if !slot.behind.load(Ordering::Relaxed).is_null() && take(IDLE) {
            // Calls without events may have failed: then the old ones give the error, which is noted. A context that is gone is
            // no error: the next call brings another one.
            let _ = slot.progress();
            slot.state.store(IDLE, Ordering::Release);
        } else if take(PENDING) {
            let order = slot.order.load(Ordering::Relaxed);
            let progress = slot.progress();
            let next = match progress {
                Some(Progress::Complete) => {
                    slot.complete.store(order, Ordering::Relaxed);
                    IDLE
                }
                Some(Progress::Behind | Progress::Begun) => PENDING,
                // The device has an error: what is pending stays so.
                None => BROKEN,
            };
            slot.state.store(next, Ordering::Release);
            if let Some(progress @ (Progress::Behind | Progress::Begun)) = progress {
                tell(stream(), order, progress);
            }
        }
        let known = slot.complete.load(Ordering::Relaxed);
        if slot.told.swap(known, Ordering::Relaxed) != known {
            tell(stream(), known, Progress::Complete);
        }
    }
}

impl Stream {
    fn progress(&self) -> Option<Progress> {
        // SAFETY: the runtime's function of this name has this signature.
        let set = unsafe { mem::transmute::<*mut c_void, SetContext>(SET_CONTEXT.runtime()) };
        // SAFETY: the program's thread had this context when it made the call.
        let code = unsafe { set(self.context.load(Ordering::Relaxed)) };
        if is_well(code) { self.asked() } else { None }
    }

    /// What the events say, in the context of this thread.
    fn asked(&self) -> Option<Progress> {
        Some(match query(&self.behind)? {
            true => Progress::Complete,
            false if query(&self.before)? => Progress::Begun,
            false => Progress::Behind,
        })
    }
}

/// Asks an event, in the context of this thread.
fn query(event: &AtomicPtr<c_void>) -> Option<bool> {
    // SAFETY: the runtime's function of this name has this signature.
    let query = unsafe { mem::transmute::<*mut c_void, Query>(QUERY.runtime()) };
    let mut status = 0;
    // SAFETY: the event is the tap's and is never destroyed, and the answer has its place.
    let code = unsafe { query(event.load(Ordering::Relaxed), &raw mut status) };
    is_well(code).then_some(status == COMPLETE)
}

/// Whether a function of the runtime did its work. An error of the device is noted.
fn is_well(code: i32) -> bool {
    if DEVICE_ERRORS.contains(&code) {
        // Relaxed: a number on its own.
        ERROR.store(code, Ordering::Relaxed);
    }
    code == 0
}
