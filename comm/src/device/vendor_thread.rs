//! A thread for the vendor's calls of one communicator.
//!
//! The vendor wants one thread at a time, with the right device current in it, and some of its
//! calls block for minutes: the first use of an operator makes links, and joining waits for all
//! ranks. A thread of its own gives all three, and lets the caller give up waiting at its deadline
//! while the vendor's call goes on.

use std::fmt;
use std::thread;
use std::time::Duration;

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};

use super::error::DeviceError;
use super::library::Device;

type Job = Box<dyn FnOnce() + Send>;

/// The thread. It ends after the call that it is in when the vendor thread is dropped.
pub(crate) struct VendorThread {
    jobs: Sender<Job>,
}

impl fmt::Debug for VendorThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VendorThread")
            .field("waiting", &self.jobs.len())
            .finish()
    }
}

/// A call under way on the vendor thread.
pub(crate) struct Ticket<R> {
    answer: Receiver<R>,
}

impl VendorThread {
    /// Starts the thread, with the device current in it.
    pub(crate) fn start(device: &Device) -> Result<Self, DeviceError> {
        let (jobs, inbox) = unbounded::<Job>();
        let device = device.clone();
        let body = move || {
            // What is entered stays current: nobody else uses this thread. If it cannot be
            // entered the first call says so.
            let _here = device.enter();
            for job in inbox {
                job();
            }
        };
        let spawned = thread::Builder::new()
            .name("muster-lane".to_owned())
            .spawn(body);
        match spawned {
            Ok(_) => Ok(Self { jobs }),
            Err(error) => Err(DeviceError::Unavailable {
                why: format!("a thread for the vendor's calls cannot be started: {error}"),
                looked_for: Vec::new(),
            }),
        }
    }

    /// Gives the thread a call, behind those before it.
    pub(crate) fn submit<R: Send + 'static>(
        &self,
        call: impl FnOnce() -> R + Send + 'static,
    ) -> Ticket<R> {
        let (give, answer) = bounded(1);
        let job: Job = Box::new(move || {
            // Nobody may wait for the answer any more.
            let _ = give.send(call());
        });
        // The thread lives as long as this sender.
        let _ = self.jobs.send(job);
        Ticket { answer }
    }
}

impl<R> Ticket<R> {
    /// Waits at most this long for the answer; `None` where it is not there yet.
    ///
    /// A call that panicked never answers: the caller's deadline ends the wait.
    pub(crate) fn wait(&self, time: Duration) -> Option<R> {
        match self.answer.recv_timeout(time) {
            Ok(answer) => Some(answer),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                // So that a loop around this does not spin.
                crate::sync::Clock::pause(time.min(Duration::from_millis(10)));
                None
            }
        }
    }
}
