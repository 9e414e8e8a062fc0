//! Asynchronous calls.
//!
//! Each communicator has one worker thread, made with the first asynchronous call. It runs what it
//! is given in order; blocking calls wait for it, so the order of calls on the communicator is the
//! order in which the program made them. Buffers move into the call and come back with its result:
//! nobody can touch them in between.

use std::fmt;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use super::Communicator;
use super::communicator::Inner;
use crate::buffer::Element;
use crate::error::CommError;
use crate::sync::{Clock, lock};
use crate::types::ReduceOp;
use crate::watch::on_behalf;

/// An asynchronous call: a promise of `T`.
///
/// Dropping it does not cancel the call; the call runs to its end, or to its deadline.
pub struct Work<T> {
    state: Arc<State<T>>,
    /// The communicator, as long as the program has it.
    inner: Weak<Inner>,
}

struct State<T> {
    /// `Err` holds the panic of the closure, which is passed on to who waits.
    result: Mutex<Option<thread::Result<Result<T, CommError>>>>,
    done: Condvar,
}

impl<T> fmt::Debug for Work<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work")
            .field("done", &self.is_done())
            .finish()
    }
}

impl<T> Work<T> {
    /// Whether the call has ended, well or not.
    #[must_use]
    pub fn is_done(&self) -> bool {
        lock(&self.state.result).is_some()
    }

    /// Waits for the end of the call, which its own deadline bounds.
    ///
    /// # Errors
    /// The error of the call.
    ///
    /// # Panics
    /// With the panic of the closure that was started.
    pub fn wait(self) -> Result<T, CommError> {
        // For whoever asks what this thread is held up by.
        let inner = self.inner.upgrade();
        let _awaiting = inner.as_ref().map(|inner| inner.place.awaits());
        let mut result = lock(&self.state.result);
        loop {
            if let Some(result) = result.take() {
                return self.given(result);
            }
            result = self
                .state
                .done
                .wait(result)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits at most `timeout`; gives the work back where it is not done by then.
    ///
    /// # Errors
    /// `Err(self)` where the time is up.
    ///
    /// # Panics
    /// As [`Work::wait`].
    pub fn wait_timeout(self, timeout: Duration) -> Result<Result<T, CommError>, Self> {
        let result = lock(&self.state.result);
        let (mut result, _) = self
            .state
            .done
            .wait_timeout_while(result, timeout, |result| result.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        let taken = result.take();
        drop(result);
        match taken {
            Some(result) => Ok(self.given(result)),
            None => Err(self),
        }
    }

    /// The result, as the program gets it.
    fn given(&self, result: thread::Result<Result<T, CommError>>) -> Result<T, CommError> {
        let result = result.unwrap_or_else(|panic| resume_unwind(panic));
        // It may have made other calls since this one ended.
        let verdict = result.as_ref().err().and_then(CommError::verdict);
        if let (Some(verdict), Some(inner)) = (verdict, self.inner.upgrade()) {
            inner.context.note_told(verdict);
        }
        result
    }
}

impl Communicator {
    /// Runs `calls` on this communicator's worker thread, after all calls made before.
    ///
    /// Buffers move into the closure and come back in its result. All ranks start the same calls
    /// in the same order. The closure must not wait for other work of this communicator.
    ///
    /// ```
    /// use muster_comm::{ReduceOp, World};
    ///
    /// World::threads(2, |world| {
    ///     let (tp, dp) = (world.everyone()?, world.everyone()?);
    ///     let tensor = vec![1.0_f32; 1000];
    ///     let sum = tp.start(move |tp| {
    ///         let mut tensor = tensor;
    ///         tp.all_reduce_in_place(&mut tensor, ReduceOp::Sum)?;
    ///         Ok(tensor)
    ///     });
    ///     dp.barrier()?; // meanwhile, on another group
    ///     assert_eq!(sum.wait()?[0], 2.0);
    ///     Ok::<_, muster_comm::CommError>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn start<T: Send + 'static>(
        &self,
        calls: impl FnOnce(&Self) -> Result<T, CommError> + Send + 'static,
    ) -> Work<T> {
        let state = Arc::new(State {
            result: Mutex::new(None),
            done: Condvar::new(),
        });
        let (ours, comm) = (Arc::clone(&state), self.clone());
        let start = self
            .inner
            .context
            .watch
            .start(Location::caller(), Clock::now());
        self.inner.place.add_pending();
        self.inner.worker.submit(Box::new(move || {
            let work = || on_behalf(start, || calls(&comm));
            let result = catch_unwind(AssertUnwindSafe(work));
            comm.inner.place.remove_pending();
            // Before the result is known, so that who has it may destroy the group.
            drop(comm);
            *lock(&ours.result) = Some(result);
            ours.done.notify_all();
        }));
        Work {
            state,
            inner: Arc::downgrade(&self.inner),
        }
    }

    /// [`Communicator::all_reduce_in_place`] without waiting; the buffer comes back with the result.
    #[track_caller]
    pub fn all_reduce_async<T: Element>(&self, buffer: Vec<T>, op: ReduceOp) -> Work<Vec<T>> {
        self.start(move |comm| {
            let mut buffer = buffer;
            comm.all_reduce_in_place(&mut buffer, op).map(|()| buffer)
        })
    }

    /// [`Communicator::all_gather`] without waiting; gives all blocks.
    #[track_caller]
    pub fn all_gather_async<T: Element>(&self, sendbuf: Vec<T>) -> Work<Vec<T>> {
        self.start(move |comm| {
            let mut all = vec![T::zeroed(); sendbuf.len() * comm.size()];
            comm.all_gather(&sendbuf, &mut all).map(|()| all)
        })
    }

    /// [`Communicator::reduce_scatter`] without waiting; gives this rank's block.
    #[track_caller]
    pub fn reduce_scatter_async<T: Element>(&self, sendbuf: Vec<T>, op: ReduceOp) -> Work<Vec<T>> {
        self.start(move |comm| {
            let mut block = vec![T::zeroed(); sendbuf.len() / comm.size()];
            comm.reduce_scatter(&sendbuf, &mut block, op)
                .map(|()| block)
        })
    }

    /// [`Communicator::all_to_all`] without waiting; gives what was received.
    #[track_caller]
    pub fn all_to_all_async<T: Element>(&self, sendbuf: Vec<T>) -> Work<Vec<T>> {
        self.start(move |comm| {
            let mut received = vec![T::zeroed(); sendbuf.len()];
            comm.all_to_all(&sendbuf, &mut received).map(|()| received)
        })
    }

    /// [`Communicator::broadcast`] without waiting; the buffer comes back with the root's data.
    #[track_caller]
    pub fn broadcast_async<T: Element>(&self, buffer: Vec<T>, root: usize) -> Work<Vec<T>> {
        self.start(move |comm| {
            let mut buffer = buffer;
            comm.broadcast(&mut buffer, root).map(|()| buffer)
        })
    }

    /// [`Communicator::barrier`] without waiting.
    #[track_caller]
    pub fn barrier_async(&self) -> Work<()> {
        self.start(Self::barrier)
    }
}
