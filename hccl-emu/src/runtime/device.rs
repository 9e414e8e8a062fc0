//! Devices, contexts, and which of them is current in the calling thread.
//!
//! A device has one *primary* context, which all threads share that set the device, and any number
//! of contexts that were created explicitly. Each context has a default stream. A thread has no
//! current context until it sets one.

use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use muster_comm::sync::{AtomicBool, AtomicU32, Deadline, Ordering};

use super::errors::{AclError, RuntimeError};
use super::handles::Found;
use super::memory::Memory;
use super::state::state;
use super::stream::Stream;
use super::system_options::SystemOptions;

/// How long an orderly end of a context waits for its tasks before it drops them.
const RESET_GRACE: Duration = Duration::from_secs(5);
/// How long a forced end waits for a running task to notice.
pub const FORCE_GRACE: Duration = Duration::from_secs(2);

/// Counters and switches of the process.
#[derive(Debug, Default)]
pub struct Process {
    /// Calls of `aclInit` that `aclFinalize` has not undone.
    pub initialized: Mutex<u64>,
    /// Seconds that a task may wait for an event; 0 is for ever.
    pub op_wait_timeout_s: AtomicU32,
    /// What `aclrtSetDeviceSatMode` set.
    pub saturation: AtomicU32,
    /// What `aclrtSetSysParamOpt` set.
    pub system_options: SystemOptions,
}

/// An emulated device.
#[derive(Debug)]
pub struct Device {
    /// Number among the visible devices: the one that clients use.
    pub logical: u32,
    /// Number among all devices of the host.
    pub physical: u32,
    /// Its memory.
    pub memory: Memory,
    primary: Mutex<Primary>,
    lost: OnceLock<RuntimeError>,
    peers: Mutex<HashSet<u32>>,
    streams_made: AtomicU32,
}

#[derive(Debug, Default)]
struct Primary {
    /// Calls of `aclrtSetDevice` that `aclrtResetDevice` has not undone.
    count: u64,
    context: Option<Arc<Context>>,
}

/// A context of a device.
#[derive(Debug)]
pub struct Context {
    /// What the client holds.
    pub handle: u64,
    /// The device.
    pub device: Arc<Device>,
    /// Whether it is the one that `aclrtSetDevice` makes current.
    pub is_primary: bool,
    /// What `aclrtCtxSetSysParamOpt` set.
    pub system_options: SystemOptions,
    default_stream: OnceLock<Arc<Stream>>,
    ended: AtomicBool,
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<Context>>> = const { RefCell::new(None) };
}

/// The calling thread's context.
///
/// # Errors
/// `RT_CONTEXT_NULL` if the thread never set a device or context, or it has ended since.
pub fn current() -> Result<Arc<Context>, RuntimeError> {
    let current = CURRENT.try_with(|current| current.borrow().clone());
    let current = current.ok().flatten().ok_or_else(|| {
        RuntimeError::new(
            AclError::RT_CONTEXT_NULL,
            "the calling thread has no current device or context",
        )
    })?;
    if current.has_ended() {
        return Err(RuntimeError::new(
            AclError::RT_CONTEXT_NULL,
            format!(
                "the context of device {} that was current in the calling thread has ended",
                current.device.logical
            ),
        ));
    }
    Ok(current)
}

/// Makes `context` the calling thread's current one.
pub fn set_current(context: Option<Arc<Context>>) {
    // A thread that is ending needs none.
    let _ = CURRENT.try_with(|current| *current.borrow_mut() = context);
}

impl Context {
    fn new(device: &Arc<Device>, is_primary: bool) -> Arc<Self> {
        state().contexts.insert(|handle| {
            Arc::new(Self {
                handle,
                device: Arc::clone(device),
                system_options: SystemOptions::default(),
                is_primary,
                default_stream: OnceLock::new(),
                ended: AtomicBool::new(false),
            })
        })
    }

    /// Makes a context of `device`.
    #[must_use]
    pub fn create(device: &Arc<Device>) -> Arc<Self> {
        Self::new(device, false)
    }

    /// The live context that `handle` stands for.
    ///
    /// # Errors
    /// If there is none.
    pub fn find(handle: *const std::ffi::c_void) -> Result<Arc<Self>, RuntimeError> {
        let text = match state().contexts.find(handle) {
            Found::Live(context) => return Ok(context),
            Found::Gone => "the context was destroyed",
            Found::Alien => "this is no context",
        };
        Err(RuntimeError::new(
            AclError::RT_CONTEXT_NULL,
            format!("{text}: {handle:p}"),
        ))
    }

    /// The stream that tasks without one go to.
    pub fn default_stream(self: &Arc<Self>) -> Arc<Stream> {
        Arc::clone(self.default_stream.get_or_init(|| self.create_stream(0, 0)))
    }

    /// Makes a stream of this context.
    pub fn create_stream(self: &Arc<Self>, priority: u32, flags: u32) -> Arc<Stream> {
        state()
            .streams
            .insert(|handle| Arc::new(Stream::new(handle, self, priority, flags)))
    }

    /// Whether `stream` is the default one of this context.
    #[must_use]
    pub fn is_default(&self, stream: &Stream) -> bool {
        self.default_stream
            .get()
            .is_some_and(|own| own.handle == stream.handle)
    }

    /// Whether the context was destroyed or its device reset.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        // SYNC: pairs with the store in `end`; what ended before is seen as ended.
        self.ended.load(Ordering::Acquire)
    }

    /// Ends the context and its streams; with `force` without waiting for their tasks.
    pub fn end(&self, force: bool) {
        // SYNC: pairs with the load in `has_ended`.
        self.ended.store(true, Ordering::Release);
        let state = state();
        let streams = state
            .streams
            .filter(|stream| stream.context.as_ptr() == std::ptr::from_ref(self));
        // One grace for all of them: many streams that hang take no longer than one.
        let deadline = Deadline::after(if force { Duration::ZERO } else { RESET_GRACE });
        for stream in streams {
            let in_order = stream.settle(Some(deadline.left()));
            if !in_order {
                stream.abort(&RuntimeError::new(
                    AclError::RT_DEVICE_TASK_ABORT,
                    format!("device {} was reset", self.device.logical),
                ));
            }
            stream.end();
            state.streams.remove(stream.handle);
        }
        state.contexts.remove(self.handle);
    }
}

impl Device {
    /// A device; its address space is taken when it is first set.
    #[must_use]
    pub fn new(logical: u32, physical: u32, memory: Memory) -> Self {
        Self {
            logical,
            physical,
            memory,
            primary: Mutex::default(),
            lost: OnceLock::new(),
            peers: Mutex::default(),
            streams_made: AtomicU32::new(0),
        }
    }

    /// Counts one more user and makes the primary context current in the calling thread.
    ///
    /// # Errors
    /// If the device is lost or its memory cannot be reserved.
    pub fn set(self: &Arc<Self>) -> Result<(), RuntimeError> {
        self.check_alive()?;
        self.memory.open()?;
        let context = {
            let mut primary = self.primary();
            primary.count += 1;
            let make = || Context::new(self, true);
            Arc::clone(primary.context.get_or_insert_with(make))
        };
        set_current(Some(context));
        Ok(())
    }

    /// Counts one user less; the last one ends the primary context and frees all memory.
    ///
    /// # Errors
    /// If nobody has set the device.
    pub fn reset(&self, force: bool) -> Result<(), RuntimeError> {
        let ended = {
            let mut primary = self.primary();
            if primary.context.is_none() {
                return Err(RuntimeError::new(
                    AclError::RT_CONTEXT_NULL,
                    format!("device {} is reset and was never set", self.logical),
                ));
            }
            primary.count = if force {
                0
            } else {
                primary.count.saturating_sub(1)
            };
            if primary.count > 0 {
                return Ok(());
            }
            primary.context.take()
        };
        if let Some(context) = ended {
            context.end(force);
        }
        self.memory.free_all("aclrtResetDevice");
        Ok(())
    }

    /// The primary context and how often the device is set.
    #[must_use]
    pub fn primary_context(&self) -> Option<Arc<Context>> {
        self.primary().context.clone()
    }

    /// Everything that runs on the device is told to end, and waits return `error`.
    ///
    /// Whether all running tasks ended within `limit`.
    #[must_use]
    pub fn abort_tasks(&self, error: &RuntimeError, limit: Option<Duration>) -> bool {
        let streams = state()
            .streams
            .filter(|stream| stream.device.logical == self.logical);
        for stream in &streams {
            stream.abort(error);
        }
        let deadline = limit.map(Deadline::after);
        streams
            .iter()
            .all(|stream| stream.settle(deadline.map(|deadline| deadline.left())))
    }

    /// The device fails for good: every task ends, every later call gets `error`.
    pub fn lose(&self, error: RuntimeError) {
        let error = self.lost.get_or_init(|| error).clone();
        // Whether the tasks noticed in time changes nothing any more.
        let _ = self.abort_tasks(&error, Some(Duration::ZERO));
    }

    /// # Errors
    /// If the device was lost.
    pub fn check_alive(&self) -> Result<(), RuntimeError> {
        match self.lost.get() {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Lets this device reach the memory of `peer`, or no longer.
    pub fn set_peer_access(&self, peer: u32, allowed: bool) {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        if allowed {
            peers.insert(peer);
        } else {
            peers.remove(&peer);
        }
    }

    /// Whether this device may reach the memory of `peer`.
    #[must_use]
    pub fn reaches(&self, peer: u32) -> bool {
        let peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        peer == self.logical || peers.contains(&peer)
    }

    pub(super) fn next_stream_id(&self) -> i32 {
        // Relaxed: the number only has to be unique.
        let made = self.streams_made.fetch_add(1, Ordering::Relaxed);
        i32::try_from(made).unwrap_or(i32::MAX)
    }

    fn primary(&self) -> MutexGuard<'_, Primary> {
        self.primary.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The physical numbers of the visible devices, by `ASCEND_RT_VISIBLE_DEVICES` as the vendor reads
/// it: at the first item that is no number, out of range or repeated it silently stops.
#[must_use]
pub fn visible(list: Option<&str>, count: u32) -> Vec<u32> {
    let Some(list) = list else {
        return (0..count).collect();
    };
    let mut found = Vec::new();
    for item in list.split(',') {
        let digits = !item.is_empty() && item.bytes().all(|byte| byte.is_ascii_digit());
        match item.parse().ok().filter(|_| digits) {
            Some(device) if device < count && !found.contains(&device) => found.push(device),
            _ => break,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::visible;

    #[test]
    fn a_list_of_devices_ends_silently_at_its_first_bad_item() {
        assert_eq!(visible(None, 3), [0, 1, 2]);
        assert_eq!(visible(Some("2,0"), 3), [2, 0]);
        for (list, kept) in [
            ("1,2,9,0", &[1, 2][..]),
            ("0, 1", &[0]),
            ("0,0,1", &[0]),
            ("0-2", &[]),
            ("-1", &[]),
            ("0,1,", &[0, 1]),
        ] {
            assert_eq!(visible(Some(list), 3), kept, "{list:?}");
        }
    }
}
