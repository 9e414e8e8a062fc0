//! How a run over messages waits: how it sleeps, whom it blames, and when what a rank sent before it left may
//! still come.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::super::message::Direction;
use super::super::wait_context::{NEWS_TIMEOUT, WaitContext};
use crate::context::Island;
use crate::error::ErrorKind;
use crate::sync::{Clock, Deadline};
use crate::transport::Stream;
use crate::transport::poll::{Interest, wait_until_ready};
use crate::transport::shm::wait::{Rest, SleepOnDescriptors};
use crate::transport::shm::wakers::Sleeper;

/// How long to sleep where no descriptor tells when a stream is ready.
const BLIND_PAUSE: Duration = Duration::from_millis(1);
/// What a pause counts for at most where its length matters: a longer one means that the process, or the machine, did
/// not run.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// How to rest while these streams are polled: the peers of a `sleeper` wake it.
pub(super) fn way_to_rest<'a>(
    streams: &[Option<Box<dyn Stream>>],
    sleeper: Option<&Sleeper>,
    sleep: &'a SleepOnDescriptors<'a>,
) -> Rest<'a> {
    let mut open = streams.iter().flatten();
    if sleeper.is_some() || open.any(|stream| stream.descriptor(false).is_some()) {
        Rest::Descriptors(sleep)
    } else {
        Rest::Pause
    }
}

/// Whether a wait that ended because a rank left in good order may go on: over a network, the news of
/// its leaving can overtake what it sent before. It may where that comes within a moment, or, where the wait
/// is for others, something that they pass on.
pub(super) fn linger(
    wait_context: &WaitContext<'_>,
    ended: &ErrorKind,
    mut ready: impl FnMut() -> bool,
    missing: impl Fn() -> Vec<usize>,
) -> bool {
    let ErrorKind::PeerClosed {
        peer,
        orderly: true,
        ..
    } = ended
    else {
        return false;
    };
    let shares_memory = |island: &Island| island.locals[peer.index()].is_some();
    let has_left = wait_context.context.status.gone(*peer).is_some();
    if !has_left
        || wait_context
            .context
            .island
            .as_ref()
            .is_some_and(shares_memory)
    {
        return false;
    }
    let moment = NEWS_TIMEOUT.min(wait_context.left());
    let members = &wait_context.group.members;
    let is_waited_for = || missing().iter().any(|index| members[*index] == *peer);
    let was_waited_for = is_waited_for();
    let mut waited = Duration::ZERO;
    while waited < moment {
        if ready() || was_waited_for && !is_waited_for() {
            return true;
        }
        let since = Clock::now();
        Clock::pause(BLIND_PAUSE);
        waited += since.elapsed().min(LONGEST_PAUSE);
    }
    false
}

/// Sleeps by `rest` and asks then whether the wait is over; before that too where peers wake the `sleeper`, whose bell `rest` gets.
pub(super) fn sleep_by(
    sleeper: Option<&Sleeper>,
    look: &mut dyn FnMut() -> bool,
    rest: impl FnOnce(Option<BorrowedFd<'_>>),
) {
    if let Some(sleeper) = sleeper {
        sleeper.sleep(look, |bell| rest(Some(bell)));
    } else {
        rest(None);
        look();
    }
}

/// Sleeps until one of the streams that are waited for is ready, or the bell rings, at most for `timeout`; a moment where there is
/// no bell and one of them has no descriptor to wait for.
pub(super) fn rest_on(
    streams: &[Option<Box<dyn Stream>>],
    waits: impl Iterator<Item = (Direction, usize)>,
    bell: Option<BorrowedFd<'_>>,
    timeout: Duration,
) {
    let by_bell = bell.map(|descriptor| Interest {
        descriptor,
        write: false,
    });
    let interest = |(direction, peer): (Direction, usize)| {
        let write = direction == Direction::Send;
        let descriptor = streams.get(peer)?.as_ref()?.descriptor(write)?;
        Some(Interest { descriptor, write })
    };
    // The bell rings for streams without a descriptor.
    let interests: Option<Vec<Interest<'_>>> = waits
        .map(interest)
        .filter(|interest| interest.is_some() || by_bell.is_none())
        .collect();
    let deadline = Deadline::after(timeout);
    let slept =
        interests.map(|interests| wait_until_ready(interests.into_iter().chain(by_bell), deadline));
    if !matches!(slept, Some(Ok(_))) {
        Clock::pause(timeout.min(BLIND_PAUSE));
    }
}

/// The peers that are waited for, those first from whom something is to come: who does not send is
/// the likelier culprit.
pub(super) fn by_blame(waits: impl Iterator<Item = (Direction, usize)>) -> Vec<usize> {
    let waits: Vec<(Direction, usize)> = waits.collect();
    let mut peers: Vec<usize> = Vec::new();
    for wanted in [Direction::Recv, Direction::Send] {
        for (direction, peer) in &waits {
            if *direction == wanted && !peers.contains(peer) {
                peers.push(*peer);
            }
        }
    }
    peers
}
