//! Waiting for descriptors of streams, whichever they run over.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::sync::Deadline;

/// A descriptor and what it is waited for.
#[derive(Clone, Copy, Debug)]
pub struct Interest<'a> {
    /// Of a stream: [`Stream::descriptor`](super::Stream::descriptor).
    pub descriptor: BorrowedFd<'a>,
    /// Whether writing is waited for; otherwise reading.
    pub write: bool,
}

/// Waits until one of the descriptors is ready or has failed, or the deadline has passed; returns
/// whether one is. Signals may make it return early.
///
/// # Errors
/// Whatever the system says to `poll`.
pub fn wait_until_ready<'a>(
    interests: impl Iterator<Item = Interest<'a>>,
    deadline: Deadline,
) -> io::Result<bool> {
    let mut fds: Vec<PollFd<'_>> = interests
        .map(|interest| {
            let flags = if interest.write {
                PollFlags::OUT
            } else {
                PollFlags::IN
            };
            PollFd::from_borrowed_fd(interest.descriptor, flags)
        })
        .collect();
    poll_by(&mut fds, deadline)
}

/// `poll` until `deadline`; an interruption counts as "nothing yet".
pub(super) fn poll_by(fds: &mut [PollFd<'_>], deadline: Deadline) -> io::Result<bool> {
    let left = Timespec::try_from(deadline.left()).unwrap_or(Timespec {
        tv_sec: 3600,
        tv_nsec: 0,
    });
    match rustix::event::poll(fds, Some(&left)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
