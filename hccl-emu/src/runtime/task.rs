//! What a task of a stream is, what it knows of its stream, and how it waits.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_comm::sync::Deadline;

use super::errors::RuntimeError;

/// What a task does: on the stream's worker thread, never under a lock of the emulator.
///
/// It must end soon after [`TaskContext::aborted`] becomes true.
pub type Work = Box<dyn FnOnce(&TaskContext) -> Result<(), RuntimeError> + Send>;

/// How a task that waits is woken: by what it waits for, and by the abort of its stream.
#[derive(Default)]
pub struct Pause {
    state: Mutex<PauseState>,
    changed: Condvar,
}

#[derive(Default)]
struct PauseState {
    aborted: Option<RuntimeError>,
    woken: bool,
    hooks: Vec<(u64, Hook)>,
    hooks_made: u64,
}

/// Called once when a task is told to end, on the thread that says so.
pub type Hook = Arc<dyn Fn() + Send + Sync>;

impl fmt::Debug for Pause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pause").finish_non_exhaustive()
    }
}

impl Pause {
    /// Ends the current or next [`Self::wait`].
    pub fn wake(&self) {
        lock(&self.state).woken = true;
        self.changed.notify_all();
    }

    /// Waits until [`Self::wake`] or an abort, at most for `limit`. May end without either.
    pub fn wait(&self, limit: Option<Duration>) {
        let state = lock(&self.state);
        let idle = |state: &mut PauseState| !state.woken && state.aborted.is_none();
        let mut state = match limit {
            None => self
                .changed
                .wait_while(state, idle)
                .unwrap_or_else(PoisonError::into_inner),
            Some(limit) => {
                self.changed
                    .wait_timeout_while(state, limit, idle)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            }
        };
        state.woken = false;
    }

    /// Tells the waiting task to end; gives back what is to be called without locks.
    pub(super) fn raise(&self, error: &RuntimeError) -> Vec<Hook> {
        let mut state = lock(&self.state);
        if state.aborted.is_some() {
            return Vec::new();
        }
        state.aborted = Some(error.clone());
        self.changed.notify_all();
        state.hooks.drain(..).map(|(_, hook)| hook).collect()
    }

    pub(super) fn clear(&self) {
        let mut state = lock(&self.state);
        state.aborted = None;
        state.woken = false;
        state.hooks.clear();
    }
}

/// What a running task knows of its stream.
#[derive(Debug)]
pub struct TaskContext {
    /// Number of the task on its stream, from 1.
    pub number: u64,
    /// Number of the stream, as `aclrtStreamGetId` gives it.
    pub stream: i32,
    pub(super) pause: Arc<Pause>,
}

impl TaskContext {
    /// Why the task has to end, if it has to.
    #[must_use]
    pub fn aborted(&self) -> Option<RuntimeError> {
        lock(&self.pause.state).aborted.clone()
    }

    /// What the task waits on; an abort wakes it.
    #[must_use]
    pub fn pause(&self) -> &Arc<Pause> {
        &self.pause
    }

    /// Waits for the abort of the stream, at most for `limit`; gives the reason if it came.
    #[must_use]
    pub fn wait_aborted(&self, limit: Option<Duration>) -> Option<RuntimeError> {
        let deadline = limit.map(Deadline::after);
        loop {
            if let Some(error) = self.aborted() {
                return Some(error);
            }
            if deadline.is_some_and(|deadline| deadline.passed()) {
                return None;
            }
            self.pause.wait(deadline.map(|deadline| deadline.left()));
        }
    }

    /// Calls `hook` if the task is told to end while the guard lives; at once if it already was.
    #[must_use]
    pub fn on_abort(&self, hook: Hook) -> HookGuard<'_> {
        let mut state = lock(&self.pause.state);
        state.hooks_made += 1;
        let number = state.hooks_made;
        if state.aborted.is_some() {
            drop(state);
            hook();
        } else {
            state.hooks.push((number, hook));
        }
        HookGuard {
            pause: &self.pause,
            number,
        }
    }
}

/// Takes the hook back when dropped.
#[derive(Debug)]
pub struct HookGuard<'a> {
    pause: &'a Pause,
    number: u64,
}

impl Drop for HookGuard<'_> {
    fn drop(&mut self) {
        lock(&self.pause.state)
            .hooks
            .retain(|(number, _)| *number != self.number);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic under one of these locks leaves a state that is still consistent.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
