//! Functions of the host that streams call: who runs them, and when.
//!
//! With `aclrtLaunchCallback` they run in a thread of the client that was named before and asks
//! for them; a stream hands them over and waits for the end only if it was told to.

use std::collections::{HashMap, VecDeque};
use std::ffi::c_void;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_comm::sync::{AtomicBool, Deadline, Ordering};

use super::errors::{AclError, RuntimeError};
use super::state::state;
use super::stream::{Pause, Stream, TaskContext};

/// A function of the client.
pub type Callback = extern "C" fn(*mut c_void);

/// A function with its argument.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    function: Callback,
    data: *mut c_void,
}

// SAFETY: the emulator never follows `data`; it gives it back to the client's function, in the
// thread that the interface says, which is what the client passed it for.
unsafe impl Send for Call {}

impl Call {
    /// A call that is to be made later.
    #[must_use]
    pub fn new(function: Callback, data: *mut c_void) -> Self {
        Self { function, data }
    }

    /// Makes it.
    pub fn run(&self) {
        (self.function)(self.data);
    }
}

/// A call that a stream handed over.
struct Handed {
    call: Call,
    done: Arc<AtomicBool>,
    pause: Arc<Pause>,
}

/// What a thread of the client is to run.
#[derive(Default)]
pub struct Reporter {
    calls: Mutex<VecDeque<Handed>>,
    came: Condvar,
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reporter").finish_non_exhaustive()
    }
}

/// Who reports for whom.
#[derive(Debug, Default)]
pub struct Reporters {
    by_thread: Mutex<HashMap<u64, Arc<Reporter>>>,
    /// Thread by handle of the stream.
    by_stream: Mutex<HashMap<u64, u64>>,
}

impl Reporters {
    fn threads(&self) -> MutexGuard<'_, HashMap<u64, Arc<Reporter>>> {
        self.by_thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn streams(&self) -> MutexGuard<'_, HashMap<u64, u64>> {
        self.by_stream
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reporter {
    /// Lets `thread` run the functions of `stream`.
    ///
    /// # Errors
    /// If the stream already has a thread.
    pub fn subscribe(thread: u64, stream: &Stream) -> Result<(), RuntimeError> {
        let reporters = &state().reporters;
        let mut streams = reporters.streams();
        if streams.contains_key(&stream.handle) {
            return Err(RuntimeError::new(
                AclError::RT_STREAM_SUBSCRIBE,
                format!("stream {} already reports to a thread", stream.id),
            ));
        }
        streams.insert(stream.handle, thread);
        reporters.threads().entry(thread).or_default();
        Ok(())
    }

    /// Ends that.
    ///
    /// # Errors
    /// If `stream` does not report to `thread`.
    pub fn unsubscribe(thread: u64, stream: &Stream) -> Result<(), RuntimeError> {
        let reporters = &state().reporters;
        let mut streams = reporters.streams();
        if streams.get(&stream.handle) != Some(&thread) {
            return Err(RuntimeError::new(
                AclError::RT_THREAD_SUBSCRIBE,
                format!("stream {} does not report to thread {thread}", stream.id),
            ));
        }
        streams.remove(&stream.handle);
        if !streams.values().any(|other| *other == thread) {
            reporters.threads().remove(&thread);
        }
        Ok(())
    }

    /// Who runs the functions of `stream`.
    #[must_use]
    pub fn of(stream: &Stream) -> Option<Arc<Self>> {
        let reporters = &state().reporters;
        let thread = reporters.streams().get(&stream.handle).copied()?;
        reporters.threads().get(&thread).cloned()
    }

    /// Runs the next function for the calling thread.
    ///
    /// # Errors
    /// `RT_THREAD_SUBSCRIBE` if no stream reports to it, `RT_REPORT_TIMEOUT` if nothing came.
    pub fn process(limit: Option<Duration>) -> Result<(), RuntimeError> {
        // SAFETY: it takes nothing and always succeeds.
        let thread = unsafe { libc::pthread_self() };
        let reporter = state().reporters.threads().get(&thread).cloned();
        let reporter = reporter.ok_or_else(|| {
            RuntimeError::new(
                AclError::RT_THREAD_SUBSCRIBE,
                "no stream reports to the calling thread",
            )
        })?;
        let deadline = limit.map(Deadline::after);
        let mut calls = reporter.calls();
        let handed = loop {
            if let Some(handed) = calls.pop_front() {
                break handed;
            }
            let left = deadline.map(|deadline| deadline.left());
            if left.is_some_and(|left| left.is_zero()) {
                return Err(RuntimeError::new(
                    AclError::RT_REPORT_TIMEOUT,
                    "no stream called in time",
                ));
            }
            calls = match left {
                None => reporter
                    .came
                    .wait(calls)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(left) => {
                    reporter
                        .came
                        .wait_timeout(calls, left)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
            };
        };
        drop(calls);
        handed.call.run();
        // SYNC: pairs with the load in `hand_over`; what the function did happened before.
        handed.done.store(true, Ordering::Release);
        handed.pause.wake();
        Ok(())
    }

    /// Gives `call` to the thread; with `wait` the task ends when it has run.
    ///
    /// # Errors
    /// The reason, if the stream is aborted meanwhile.
    pub fn hand_over(
        &self,
        call: Call,
        wait: bool,
        context: &TaskContext,
    ) -> Result<(), RuntimeError> {
        let done = Arc::new(AtomicBool::new(false));
        self.calls().push_back(Handed {
            call,
            done: Arc::clone(&done),
            pause: Arc::clone(context.pause()),
        });
        self.came.notify_one();
        // SYNC: pairs with the store in `process`.
        while wait && !done.load(Ordering::Acquire) {
            if let Some(error) = context.aborted() {
                return Err(error);
            }
            context.pause().wait(None);
        }
        Ok(())
    }

    fn calls(&self) -> MutexGuard<'_, VecDeque<Handed>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
