//! Streams, and functions of the host in them.

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

use super::abi::{Out, exports, null};
use super::device::limit;
use crate::options::Product;
use crate::runtime::callback::{Call, Callback, Reporter};
use crate::runtime::device::{self, Context, FORCE_GRACE};
use crate::runtime::errors::{AclError, RuntimeError};
use crate::runtime::stream::{Stream, TaskContext};
use crate::runtime::{handles, state};

/// Flags of a stream that mean something somewhere; here none changes anything.
const FLAGS: u32 = 0x3F;
/// Lowest priority.
const PRIORITY_MAX: u32 = 7;

/// The stream that a caller means: null is the default one of the current context.
pub(super) fn of(handle: *mut c_void) -> Result<Arc<Stream>, RuntimeError> {
    if handle.is_null() {
        return Ok(device::current()?.default_stream());
    }
    Stream::find(handle)
}

exports! {
    /// Makes a stream of the current context.
    fn aclrtCreateStream(stream: Out<*mut c_void>) {
        create(stream, 0, 0)
    }

    /// The same; priority and flags are kept.
    fn aclrtCreateStreamWithConfig(stream: Out<*mut c_void>, priority: u32, flags: u32) {
        create(stream, priority, flags)
    }

    /// Ends a stream after its tasks.
    fn aclrtDestroyStream(stream: *mut c_void) {
        let stream = created(stream)?;
        // Without a limit, as with the vendor; the way out is to abort the stream.
        let _ = stream.settle(None);
        end(&stream)
    }

    /// Ends a stream and drops its tasks.
    fn aclrtDestroyStreamForce(stream: *mut c_void) {
        let stream = created(stream)?;
        stream.abort(&aborted(&stream, "destroyed by force"));
        // A task that does not notice keeps its thread until it does.
        let _ = stream.settle(Some(FORCE_GRACE));
        end(&stream)
    }

    /// Waits for the tasks of a stream.
    fn aclrtSynchronizeStream(stream: *mut c_void) {
        of(stream)?.synchronize(None)
    }

    /// The same with a limit in milliseconds; -1 is none.
    fn aclrtSynchronizeStreamWithTimeout(stream: *mut c_void, milliseconds: i32) {
        let limit = limit(milliseconds)?;
        of(stream)?.synchronize(limit)
    }

    /// Whether the tasks of a stream have ended: 0 if so, else 1.
    fn aclrtStreamQuery(stream: *mut c_void, status: Out<i32>) {
        let status = status.check("status")?;
        status.set("status", i32::from(!of(stream)?.is_idle()))
    }

    /// Whether the calls on a stream are being captured: never (0, and no model), which clients ask
    /// before they do anything else.
    fn aclmdlRICaptureGetInfo(stream: *mut c_void, status: Out<i32>, model: Out<*mut c_void>) {
        let status = status.check("status")?;
        let model = model.check("modelRI")?;
        of(stream)?;
        status.set("status", 0)?;
        model.set("modelRI", std::ptr::null_mut())
    }

    /// Drops the tasks of a stream; who waits for one gets `RT_STREAM_ABORT`.
    fn aclrtStreamAbort(stream: *mut c_void) {
        let stream = of(stream)?;
        stream.abort(&aborted(&stream, "aborted"));
        let _ = stream.settle(Some(FORCE_GRACE));
        Ok(())
    }

    /// As [`aclrtStreamAbort`].
    fn aclrtStreamStop(stream: *mut c_void) {
        let stream = of(stream)?;
        stream.abort(&aborted(&stream, "stopped"));
        let _ = stream.settle(Some(FORCE_GRACE));
        Ok(())
    }

    /// What a failing task does to those behind it: 0 goes on, 1 stops.
    fn aclrtSetStreamFailureMode(stream: *mut c_void, mode: u64) {
        if mode > 1 {
            return Err(RuntimeError::argument(format!("mode is {mode}; allowed: 0, 1")));
        }
        if stream.is_null() {
            return Err(RuntimeError::argument("the default stream has no failure mode"));
        }
        of(stream)?.set_stops_on_failure(mode == 1);
        Ok(())
    }

    /// Number of a stream on its device.
    fn aclrtStreamGetId(stream: *mut c_void, id: Out<i32>) {
        let id = id.check("streamId")?;
        id.set("streamId", of(stream)?.id)
    }

    /// As it was created with.
    fn aclrtStreamGetPriority(stream: *mut c_void, priority: Out<u32>) {
        let priority = priority.check("priority")?;
        priority.set("priority", of(stream)?.priority)
    }

    /// As it was created with.
    fn aclrtStreamGetFlags(stream: *mut c_void, flags: Out<u32>) {
        let flags = flags.check("flags")?;
        flags.set("flags", of(stream)?.flags)
    }

    /// How many more streams the device can have.
    fn aclrtGetStreamAvailableNum(count: Out<u32>) {
        let count = count.check("streamCount")?;
        let context = device::current()?;
        let (alive, most) = (alive(&context), streams_max()?);
        count.set("streamCount", u32::try_from(most.saturating_sub(alive)).unwrap_or(0))
    }

    /// Runs a function in the thread that the stream reports to; with 1 the stream waits for it.
    fn aclrtLaunchCallback(function: Option<Callback>, data: *mut c_void, block: i32, stream: *mut c_void) {
        let function = function.ok_or_else(|| null("fn"))?;
        if !(0..=1).contains(&block) {
            let text = format!("blockType is {block}; allowed: 0, 1");
            return Err(RuntimeError::new(AclError::INVALID_PARAM, text));
        }
        let stream = of(stream)?;
        let reporter = Reporter::of(&stream).ok_or_else(|| {
            let text = format!("no thread reports for stream {}: aclrtSubscribeReport comes first", stream.id);
            RuntimeError::new(AclError::RT_STREAM_NO_CB_REG, text)
        })?;
        let call = Call::new(function, data);
        let work = move |context: &TaskContext| reporter.hand_over(call, block == 1, context);
        stream.enqueue("aclrtLaunchCallback", Box::new(work)).map(drop)
    }

    /// Runs a function of the host in its place among the tasks, on a thread of the runtime.
    fn aclrtLaunchHostFunc(stream: *mut c_void, function: Option<Callback>, data: *mut c_void) {
        let function = function.ok_or_else(|| null("fn"))?;
        let stream = of(stream)?;
        let call = Call::new(function, data);
        let work = move |_: &TaskContext| {
            call.run();
            Ok(())
        };
        stream.enqueue("aclrtLaunchHostFunc", Box::new(work)).map(drop)
    }

    /// Names the thread that runs the functions of a stream.
    fn aclrtSubscribeReport(thread: u64, stream: *mut c_void) {
        Reporter::subscribe(thread, &*of(stream)?)
    }

    /// Ends that.
    fn aclrtUnSubscribeReport(thread: u64, stream: *mut c_void) {
        Reporter::unsubscribe(thread, &*of(stream)?)
    }

    /// Runs one function that streams handed to the calling thread; waits for one, in
    /// milliseconds, or -1 without limit.
    fn aclrtProcessReport(milliseconds: i32) {
        if milliseconds < -1 || milliseconds == 0 {
            let text = format!("timeout is {milliseconds}; allowed: -1, or above 0");
            return Err(RuntimeError::new(AclError::INVALID_PARAM, text));
        }
        let limit = u64::try_from(milliseconds).ok().map(Duration::from_millis);
        Reporter::process(limit)
    }
}

fn create(place: Out<*mut c_void>, priority: u32, flags: u32) -> Result<(), RuntimeError> {
    let place = place.check("stream")?;
    let context = device::current()?;
    if priority > PRIORITY_MAX || flags & !FLAGS != 0 {
        let text =
            format!("priority is {priority}, flag is {flags:#x}; allowed: 0 to 7, and 0 to 0x3f");
        return Err(RuntimeError::argument(text));
    }
    context.device.check_alive()?;
    let most = streams_max()?;
    if alive(&context) >= most {
        let text = format!(
            "device {} already has {most} streams",
            context.device.logical
        );
        return Err(RuntimeError::new(AclError::RT_NO_STREAM_RESOURCE, text));
    }
    place.set(
        "stream",
        handles::pointer(context.create_stream(priority, flags).handle),
    )
}

/// A stream that the caller made and may end.
fn created(handle: *mut c_void) -> Result<Arc<Stream>, RuntimeError> {
    if handle.is_null() {
        return Err(null("stream"));
    }
    let stream = Stream::find(handle)?;
    let context = device::current()?;
    if context.is_default(&stream) {
        let text = "the default stream of a context ends with the context";
        return Err(RuntimeError::argument(text));
    }
    Ok(stream)
}

fn end(stream: &Stream) -> Result<(), RuntimeError> {
    stream.end();
    let taken = state().streams.remove(stream.handle);
    taken.map(drop).ok_or_else(|| {
        let text = "two threads destroy the stream at once";
        RuntimeError::new(AclError::RT_INVALID_HANDLE, text)
    })
}

fn aborted(stream: &Stream, how: &str) -> RuntimeError {
    let text = format!("stream {} was {how}", stream.id);
    RuntimeError::new(AclError::RT_STREAM_ABORT, text)
}

fn alive(context: &Context) -> usize {
    let logical = context.device.logical;
    let own = |stream: &Stream| stream.device.logical == logical;
    state().streams.filter(own).len()
}

/// Streams that a device can have.
fn streams_max() -> Result<usize, RuntimeError> {
    Ok(match state().options()?.soc.product {
        Product::A2 | Product::A3 | Product::Atlas950 => 1984,
        Product::Atlas310P => 1024,
        Product::Atlas910 => 2048,
    })
}
