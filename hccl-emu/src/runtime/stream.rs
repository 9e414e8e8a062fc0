//! Streams: ordered queues of tasks, each with a worker thread that starts with the first task.
//!
//! - STREAM-ORDER: tasks of a stream run one after the other, in the order in which they were
//!   given; giving one never waits for another.
//! - STREAM-END: a running task is told to end ([`TaskContext::aborted`], [`TaskContext::on_abort`])
//!   when its stream is aborted or destroyed by force, or its device is reset by force or lost. What
//!   it returns then counts for nothing.
//! - STREAM-ERROR: the first error of a task waits for the next synchronisation. On a stream that
//!   stops on failure it also drops the tasks behind it and stays until the stream is aborted.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use muster_comm::sync::Deadline;

use super::device::{self, Context, Device};
use super::errors::{AclError, RuntimeError};
use super::handles::Found;
use super::state::state;
pub use super::task::{Hook, HookGuard, Pause, TaskContext, Work};

/// Most tasks in a queue: far above what a client ever has in flight.
const TASKS_MAX: usize = 1 << 20;

struct Task {
    number: u64,
    name: &'static str,
    work: Work,
}

/// A stream of a context.
#[derive(Debug)]
pub struct Stream {
    /// What the client holds.
    pub handle: u64,
    /// Number of the stream in its process, as `aclrtStreamGetId` gives it.
    pub id: i32,
    /// The context that it belongs to.
    pub context: Weak<Context>,
    /// The device that it runs on.
    pub device: Arc<Device>,
    /// As it was created with; 0 is the highest.
    pub priority: u32,
    /// As it was created with.
    pub flags: u32,
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    queue: Mutex<Queue>,
    /// A task came, or the stream ended: the worker listens.
    work: Condvar,
    /// A task ended, or the stream: who synchronises listens.
    done: Condvar,
    pause: Arc<Pause>,
}

#[derive(Default)]
struct Queue {
    tasks: VecDeque<Task>,
    running: Option<Running>,
    /// Number of the last task that was given; the first is 1.
    issued: u64,
    /// Number up to which all tasks have ended or were dropped.
    done: u64,
    /// First error that no synchronisation has returned yet.
    error: Option<RuntimeError>,
    /// The error that stopped a stream which stops on failure.
    stopped: Option<RuntimeError>,
    stops_on_failure: bool,
    /// How often the stream was aborted, and what the waits of that time return.
    aborts: u64,
    abort_error: Option<RuntimeError>,
    worker: bool,
    ended: bool,
}

/// The task that a stream is at.
#[derive(Clone, Debug)]
pub struct Running {
    /// Its number on the stream, from 1.
    pub number: u64,
    /// What it is, such as `aclrtMemcpyAsync`.
    pub name: &'static str,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("waiting", &self.tasks.len())
            .field("running", &self.running)
            .field("issued", &self.issued)
            .field("done", &self.done)
            .finish_non_exhaustive()
    }
}

impl Stream {
    /// A stream without tasks; its thread starts with the first one.
    #[must_use]
    pub fn new(handle: u64, context: &Arc<Context>, priority: u32, flags: u32) -> Self {
        Self {
            handle,
            id: context.device.next_stream_id(),
            context: Arc::downgrade(context),
            device: Arc::clone(&context.device),
            priority,
            flags,
            inner: Arc::new(Inner {
                queue: Mutex::default(),
                work: Condvar::new(),
                done: Condvar::new(),
                pause: Arc::default(),
            }),
        }
    }

    /// The live stream that `handle` stands for, if it belongs to the thread's current context.
    ///
    /// Null is not the default stream here: callers for which it is ask the context.
    ///
    /// # Errors
    /// `RT_CONTEXT_NULL` without a current context, `RT_INVALID_HANDLE` if the handle is none or was
    /// destroyed, `RT_STREAM_CONTEXT` if the stream belongs to another context.
    pub fn find(handle: *const c_void) -> Result<Arc<Self>, RuntimeError> {
        let context = device::current()?;
        let text = match state().streams.find(handle) {
            Found::Live(stream) if stream.context.as_ptr() == Arc::as_ptr(&context) => {
                return Ok(stream);
            }
            Found::Live(stream) => {
                return Err(RuntimeError::new(
                    AclError::RT_STREAM_CONTEXT,
                    format!(
                        "stream {} belongs to another context (of device {}) than the current one (of device {})",
                        stream.id, stream.device.logical, context.device.logical
                    ),
                ));
            }
            Found::Gone => "the stream was destroyed",
            Found::Alien => "this is no stream",
        };
        Err(RuntimeError::new(
            AclError::RT_INVALID_HANDLE,
            format!("{text}: {handle:p}"),
        ))
    }

    /// Puts a task at the end of the queue and returns at once; gives its number on the stream.
    ///
    /// # Errors
    /// If the stream has ended or was stopped by a failure, its device is lost, or it is full.
    pub fn enqueue(&self, name: &'static str, work: Work) -> Result<u64, RuntimeError> {
        self.device.check_alive()?;
        let mut queue = self.queue();
        if queue.ended {
            return Err(self.destroyed());
        }
        if let Some(error) = &queue.stopped {
            return Err(error.clone());
        }
        if queue.tasks.len() >= TASKS_MAX {
            return Err(RuntimeError::new(
                AclError::RT_STREAM_TASK_FULL,
                format!("stream {} already holds {TASKS_MAX} tasks", self.id),
            ));
        }
        if !queue.worker {
            self.start()?;
            queue.worker = true;
        }
        queue.issued += 1;
        let number = queue.issued;
        queue.tasks.push_back(Task { number, name, work });
        drop(queue);
        self.inner.work.notify_one();
        Ok(number)
    }

    /// Waits until all tasks given so far have ended; `None` waits without limit.
    ///
    /// # Errors
    /// The first error of a task since the last synchronisation, the reason if the stream was
    /// aborted or destroyed meanwhile, `RT_STREAM_SYNC_TIMEOUT` at the limit: the tasks go on.
    pub fn synchronize(&self, limit: Option<Duration>) -> Result<(), RuntimeError> {
        let deadline = limit.map(Deadline::after);
        let mut queue = self.queue();
        let (target, aborts) = (queue.issued, queue.aborts);
        while queue.done < target {
            if queue.aborts != aborts {
                return Err(queue
                    .abort_error
                    .clone()
                    .unwrap_or_else(|| self.destroyed()));
            }
            let left = deadline.map(|deadline| deadline.left());
            if left.is_some_and(|left| left.is_zero()) {
                return Err(self.late(&queue, limit.unwrap_or_default()));
            }
            queue = self.wait_done(queue, left);
        }
        if queue.aborts != aborts {
            return Err(queue
                .abort_error
                .clone()
                .unwrap_or_else(|| self.destroyed()));
        }
        if let Some(error) = &queue.stopped {
            return Err(error.clone());
        }
        queue.error.take().map_or(Ok(()), Err)?;
        drop(queue);
        self.device.check_alive()
    }

    /// Waits until task `number` has ended, however it ended.
    ///
    /// # Errors
    /// The reason, if the stream was aborted meanwhile.
    pub fn await_task(&self, number: u64) -> Result<(), RuntimeError> {
        let mut queue = self.queue();
        let aborts = queue.aborts;
        while queue.done < number {
            if queue.aborts != aborts {
                let error = queue.abort_error.clone();
                return Err(error.unwrap_or_else(|| self.destroyed()));
            }
            queue = self.wait_done(queue, None);
        }
        Ok(())
    }

    /// Whether all tasks given so far have ended.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let queue = self.queue();
        queue.done >= queue.issued
    }

    /// The task that runs now, if one does.
    #[must_use]
    pub fn running(&self) -> Option<Running> {
        self.queue().running.clone()
    }

    /// Whether a failing task stops the stream; otherwise the next tasks run all the same.
    pub fn set_stops_on_failure(&self, stops: bool) {
        self.queue().stops_on_failure = stops;
    }

    /// Drops the tasks that wait, tells the running one to end, and makes waits return `error`.
    ///
    /// Returns at once; [`Self::settle`] waits for the running task. The stream can be used on.
    pub fn abort(&self, error: &RuntimeError) {
        let (dropped, hooks) = {
            let mut queue = self.queue();
            queue.aborts += 1;
            queue.abort_error = Some(error.clone());
            queue.error = None;
            queue.stopped = None;
            let hooks = if queue.running.is_some() {
                self.inner.pause.raise(error)
            } else {
                queue.done = queue.issued;
                Vec::new()
            };
            (std::mem::take(&mut queue.tasks), hooks)
        };
        self.inner.done.notify_all();
        // What tasks own is dropped without the lock, and hooks run without it: both may be anything.
        drop(dropped);
        for hook in hooks {
            hook();
        }
    }

    /// Waits until no task runs, at most for `limit`; whether that is so.
    #[must_use]
    pub fn settle(&self, limit: Option<Duration>) -> bool {
        let deadline = limit.map(Deadline::after);
        let mut queue = self.queue();
        while queue.done < queue.issued {
            let left = deadline.map(|deadline| deadline.left());
            if left.is_some_and(|left| left.is_zero()) {
                return false;
            }
            queue = self.wait_done(queue, left);
        }
        true
    }

    /// Ends the stream: nothing can be given to it any more, and its thread ends with its tasks.
    pub fn end(&self) {
        self.queue().ended = true;
        self.inner.work.notify_all();
        self.inner.done.notify_all();
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.inner.queue)
    }

    fn wait_done<'a>(
        &self,
        queue: MutexGuard<'a, Queue>,
        left: Option<Duration>,
    ) -> MutexGuard<'a, Queue> {
        let done = &self.inner.done;
        match left {
            None => done.wait(queue).unwrap_or_else(PoisonError::into_inner),
            Some(left) => {
                done.wait_timeout(queue, left)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            }
        }
    }

    fn start(&self) -> Result<(), RuntimeError> {
        let inner = Arc::clone(&self.inner);
        let id = self.id;
        let name = format!("emu-stream-{id}");
        let started = std::thread::Builder::new()
            .name(name)
            .spawn(move || inner.serve(id));
        // The thread is never joined: it ends with the stream, or with the process.
        started.map(drop).map_err(|error| {
            RuntimeError::new(
                AclError::RT_NO_STREAM_RESOURCE,
                format!("no thread for stream {id}: {error}"),
            )
        })
    }

    fn destroyed(&self) -> RuntimeError {
        RuntimeError::new(
            AclError::RT_INVALID_HANDLE,
            format!("stream {} was destroyed", self.id),
        )
    }

    fn late(&self, queue: &Queue, limit: Duration) -> RuntimeError {
        let at = match &queue.running {
            Some(running) => format!(
                "{} (task {} of {})",
                running.name, running.number, queue.issued
            ),
            None => format!("task {} of {}", queue.done + 1, queue.issued),
        };
        RuntimeError::new(
            AclError::RT_STREAM_SYNC_TIMEOUT,
            format!("stream {} was still at {at} after {limit:?}", self.id),
        )
    }
}

impl Inner {
    /// The worker: takes tasks one by one until the stream has ended.
    fn serve(&self, stream: i32) {
        let mut queue = lock(&self.queue);
        loop {
            let Some(task) = queue.tasks.pop_front() else {
                if queue.ended {
                    return;
                }
                queue = self
                    .work
                    .wait(queue)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            queue.running = Some(Running {
                number: task.number,
                name: task.name,
            });
            let aborts = queue.aborts;
            drop(queue);
            let context = TaskContext {
                number: task.number,
                stream,
                pause: Arc::clone(&self.pause),
            };
            let outcome = run(task, &context);
            queue = lock(&self.queue);
            queue.running = None;
            if queue.aborts == aborts {
                queue.done = context.number;
                if let Err(error) = outcome {
                    let dropped = queue.fail(error);
                    drop(queue);
                    drop(dropped);
                    queue = lock(&self.queue);
                }
            } else {
                // Tasks given after the abort are still in the queue.
                queue.done = queue.issued - queue.tasks.len() as u64;
                self.pause.clear();
            }
            self.done.notify_all();
        }
    }
}

impl Queue {
    /// Notes the error of a task; gives back the tasks that are dropped because of it.
    fn fail(&mut self, error: RuntimeError) -> VecDeque<Task> {
        if self.stops_on_failure {
            self.stopped = Some(error);
            self.done = self.issued;
            return std::mem::take(&mut self.tasks);
        }
        self.error.get_or_insert(error);
        VecDeque::new()
    }
}

fn run(task: Task, context: &TaskContext) -> Result<(), RuntimeError> {
    let name = task.name;
    let work = task.work;
    catch_unwind(AssertUnwindSafe(|| work(context))).unwrap_or_else(|_| {
        Err(RuntimeError::new(
            AclError::RT_INTERNAL_ERROR,
            format!("the emulation of {name} panicked"),
        ))
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic under one of these locks leaves numbers that are still consistent.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
