//! Events: marks in streams, for other streams and for the host.
//!
//! An event may be recorded again and again. Each record has a number; a wait is for the record
//! that was asked for last when the wait was asked for.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use muster_comm::sync::{Clock, Deadline};

use super::errors::{AclError, RuntimeError};
use super::stream::{Pause, Stream, TaskContext};

/// Flag of an event that takes times.
pub const TIME_LINE: u32 = 8;

/// Which rules an event follows before it was recorded for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// `aclrtCreateEventExWithFlag`: it counts as recorded, and a wait for it waits for nothing.
    Extended,
    /// The other two: it counts as not recorded, and a stream cannot wait for it.
    Plain,
}

/// An event.
#[derive(Debug)]
pub struct Event {
    /// What the client holds.
    pub handle: u64,
    /// Flags that it was created with; `None` for `aclrtCreateEvent`, which can do everything.
    pub flags: Option<u32>,
    /// How it was made.
    pub mode: Mode,
    marks: Mutex<Marks>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Marks {
    /// Number of the last record that was asked for; 0 if none was.
    asked: u64,
    /// Number of the last record that a stream came to.
    reached: u64,
    /// Last record that will never be reached, because its stream was aborted.
    dropped: u64,
    /// When the last record was reached.
    at: Option<Instant>,
    /// A reset was asked for after the last record.
    reset_asked: bool,
    /// A stream came to that reset.
    reset: bool,
    /// Stream waits that have not ended.
    waits: u64,
    listeners: Vec<Arc<Pause>>,
}

/// Marks a record as dropped unless it was reached.
struct Record {
    event: Arc<Event>,
    number: u64,
    reached: bool,
}

impl Drop for Record {
    fn drop(&mut self) {
        if !self.reached {
            let mut marks = self.event.marks();
            marks.dropped = marks.dropped.max(self.number);
            self.event.tell(marks);
        }
    }
}

/// Counts a stream wait until it ends, also if it is dropped.
struct Wait {
    event: Arc<Event>,
}

impl Drop for Wait {
    fn drop(&mut self) {
        let mut marks = self.event.marks();
        marks.waits = marks.waits.saturating_sub(1);
        self.event.tell(marks);
    }
}

impl Event {
    /// An event that was never recorded.
    #[must_use]
    pub fn new(handle: u64, mode: Mode, flags: Option<u32>) -> Self {
        Self {
            handle,
            flags,
            mode,
            marks: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Puts a record into `stream`.
    ///
    /// # Errors
    /// If the stream takes no tasks.
    pub fn record(self: &Arc<Self>, stream: &Stream) -> Result<(), RuntimeError> {
        let number = {
            let mut marks = self.marks();
            marks.asked += 1;
            marks.reset_asked = false;
            marks.asked
        };
        let mut record = Record {
            event: Arc::clone(self),
            number,
            reached: false,
        };
        let work = move |_: &TaskContext| {
            record.reached = true;
            let mut marks = record.event.marks();
            if marks.reached < record.number {
                marks.reached = record.number;
                marks.reset = false;
                marks.at = Some(Clock::now());
            }
            record.event.tell(marks);
            Ok(())
        };
        stream.enqueue("aclrtRecordEvent", Box::new(work)).map(drop)
    }

    /// Puts a reset into `stream`: the event counts as not recorded until it is recorded again.
    ///
    /// # Errors
    /// If the stream takes no tasks.
    pub fn reset(self: &Arc<Self>, stream: &Stream) -> Result<(), RuntimeError> {
        let event = Arc::clone(self);
        let asked = {
            let mut marks = self.marks();
            marks.reset_asked = true;
            marks.asked
        };
        let work = move |_: &TaskContext| {
            let mut marks = event.marks();
            marks.reset = marks.asked == asked;
            event.tell(marks);
            Ok(())
        };
        stream.enqueue("aclrtResetEvent", Box::new(work)).map(drop)
    }

    /// Lets `stream` wait for the last record, at most for `limit`.
    ///
    /// # Errors
    /// If the event was never recorded, or the stream takes no tasks.
    pub fn wait_on(
        self: &Arc<Self>,
        stream: &Stream,
        limit: Option<Duration>,
    ) -> Result<(), RuntimeError> {
        let target = {
            let mut marks = self.marks();
            if marks.asked == 0 {
                return match self.mode {
                    Mode::Extended => Ok(()),
                    Mode::Plain => Err(RuntimeError::argument(
                        "the event was never recorded: a stream would wait for nothing",
                    )),
                };
            }
            marks.waits += 1;
            marks.target()
        };
        let wait = Wait {
            event: Arc::clone(self),
        };
        let work = move |context: &TaskContext| wait.event.await_task(target, limit, context);
        stream
            .enqueue("aclrtStreamWaitEvent", Box::new(work))
            .map(drop)
    }

    fn await_task(
        &self,
        target: u64,
        limit: Option<Duration>,
        context: &TaskContext,
    ) -> Result<(), RuntimeError> {
        let deadline = limit.map(Deadline::after);
        self.marks().listeners.push(Arc::clone(context.pause()));
        let outcome = loop {
            if let Some(error) = context.aborted() {
                break Err(error);
            }
            match self.marks().fate(target) {
                Some(true) => break Ok(()),
                Some(false) => break Err(dropped()),
                None => {}
            }
            if deadline.is_some_and(|deadline| deadline.passed()) {
                break Err(RuntimeError::new(
                    AclError::RT_TASK_TIMEOUT,
                    format!(
                        "stream {} waited {:?} for an event that was not recorded",
                        context.stream,
                        limit.unwrap_or_default()
                    ),
                ));
            }
            context
                .pause()
                .wait(deadline.map(|deadline| deadline.left()));
        };
        self.marks()
            .listeners
            .retain(|listener| !Arc::ptr_eq(listener, context.pause()));
        outcome
    }

    /// Waits until the last record is reached, at most for `limit`; at once if there is none.
    ///
    /// # Errors
    /// `RT_EVENT_SYNC_TIMEOUT` at the limit, `RT_STREAM_ABORT` if the record was dropped.
    pub fn synchronize(&self, limit: Option<Duration>) -> Result<(), RuntimeError> {
        let deadline = limit.map(Deadline::after);
        let mut marks = self.marks();
        let target = marks.asked;
        loop {
            match marks.fate(target) {
                Some(true) => return Ok(()),
                Some(false) => return Err(dropped()),
                None => {}
            }
            let left = deadline.map(|deadline| deadline.left());
            if left.is_some_and(|left| left.is_zero()) {
                return Err(RuntimeError::new(
                    AclError::RT_EVENT_SYNC_TIMEOUT,
                    format!(
                        "the event was not reached after {:?}",
                        limit.unwrap_or_default()
                    ),
                ));
            }
            marks = match left {
                None => self
                    .changed
                    .wait(marks)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(left) => {
                    self.changed
                        .wait_timeout(marks, left)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
            };
        }
    }

    /// Whether the last record was reached, and not reset since.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        let marks = self.marks();
        if marks.asked == 0 {
            return self.mode == Mode::Extended;
        }
        marks.reached >= marks.asked && !marks.reset
    }

    /// Whether a record was asked for that was not reached yet.
    #[must_use]
    pub fn is_under_way(&self) -> bool {
        let marks = self.marks();
        marks.reached < marks.asked
    }

    /// Whether no stream waits for the event.
    #[must_use]
    pub fn is_waited_out(&self) -> bool {
        self.marks().waits == 0
    }

    /// When the last record was reached.
    ///
    /// # Errors
    /// If it takes no times or was not reached.
    pub fn time(&self) -> Result<Instant, RuntimeError> {
        let untimed = |text: &str| RuntimeError::new(AclError::RT_EVENT_TIMESTAMP_INVALID, text);
        if self.flags.is_some_and(|flags| flags & TIME_LINE == 0) {
            return Err(untimed("the event was created without ACL_EVENT_TIME_LINE"));
        }
        let marks = self.marks();
        if marks.asked == 0 {
            return Err(RuntimeError::argument("the event was never recorded"));
        }
        marks
            .at
            .filter(|_| marks.reached >= marks.asked)
            .ok_or_else(|| untimed("the event has not been recorded yet"))
    }

    fn marks(&self) -> MutexGuard<'_, Marks> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets everybody look who waits, and gives the lock back.
    fn tell(&self, marks: MutexGuard<'_, Marks>) {
        let listeners = marks.listeners.clone();
        drop(marks);
        self.changed.notify_all();
        for listener in listeners {
            listener.wake();
        }
    }
}

impl Marks {
    /// The record that a wait which is asked for now waits for.
    fn target(&self) -> u64 {
        if self.reset_asked {
            self.asked + 1
        } else {
            self.asked
        }
    }

    /// Whether record `number` was reached or dropped; `None` while that is open.
    fn fate(&self, number: u64) -> Option<bool> {
        if self.reached >= number {
            Some(true)
        } else if self.dropped >= number {
            Some(false)
        } else {
            None
        }
    }
}

fn dropped() -> RuntimeError {
    RuntimeError::new(
        AclError::RT_STREAM_ABORT,
        "the stream that should have recorded the event was aborted before it did",
    )
}
