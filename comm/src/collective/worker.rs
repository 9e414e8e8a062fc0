//! The thread of a communicator that runs its asynchronous calls, in the order in which they were made.

use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread;

use crossbeam::channel::{Sender, unbounded};

use crate::sync::{Deadline, lock};
use crate::watch::{Awaiting, Place};

type Job = Box<dyn FnOnce() + Send>;

/// The worker of a communicator, and the calls that it has still to do.
#[derive(Debug, Default)]
pub(super) struct Worker {
    queue: OnceLock<Queue>,
}

#[derive(Debug)]
struct Queue {
    jobs: Sender<Job>,
    pending: Arc<Pending>,
    thread: thread::ThreadId,
}

#[derive(Debug, Default)]
struct Pending {
    count: Mutex<usize>,
    empty: Condvar,
}

impl Worker {
    /// Whether an asynchronous call was ever made.
    pub(super) fn is_in_use(&self) -> bool {
        self.queue.get().is_some()
    }

    /// Whether asynchronous calls wait to be made, or are under way.
    pub(super) fn is_busy(&self) -> bool {
        let is_me = |queue: &&Queue| thread::current().id() == queue.thread;
        let queue = self.queue.get().filter(|queue| !is_me(queue));
        queue.is_some_and(|queue| *lock(&queue.pending.count) > 0)
    }

    /// Waits until the asynchronous calls made before are done. Where the deadline passes first, the board goes on
    /// saying that this thread waits for them, until what is returned is dropped. The worker itself never waits.
    pub(super) fn wait_turn<'a>(
        &self,
        deadline: Deadline,
        place: &'a Place,
    ) -> Result<(), Awaiting<'a>> {
        let Some(queue) = self.queue.get() else {
            return Ok(());
        };
        if thread::current().id() == queue.thread {
            return Ok(());
        }
        let count = lock(&queue.pending.count);
        if *count == 0 {
            return Ok(());
        }
        let awaiting = place.awaits();
        let busy = |count: &mut usize| *count > 0;
        let (_count, timeout) = queue
            .pending
            .empty
            .wait_timeout_while(count, deadline.left(), busy)
            .unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() {
            return Err(awaiting);
        }
        Ok(())
    }

    pub(super) fn submit(&self, job: Job) {
        let queue = self.queue.get_or_init(start);
        *lock(&queue.pending.count) += 1;
        let pending = Arc::clone(&queue.pending);
        let job: Job = Box::new(move || {
            // Jobs catch their own panics, see `start`.
            job();
            let mut count = lock(&pending.count);
            *count -= 1;
            if *count == 0 {
                pending.empty.notify_all();
            }
        });
        // The worker lives as long as this sender, so the job is taken.
        let _ = queue.jobs.send(job);
    }
}

fn start() -> Queue {
    let (jobs, inbox) = unbounded::<Job>();
    let body = move || inbox.iter().for_each(|job| job());
    // Detached: it ends when the communicator, and with it the sender, is dropped.
    let thread = thread::spawn(body).thread().id();
    Queue {
        jobs,
        pending: Arc::default(),
        thread,
    }
}
