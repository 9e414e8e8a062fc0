//! Point-to-point messages: each is a message plan of one step, and those of one batch progress
//! together.
//!
//! - POINT-1: messages from one rank to another arrive in the order of the calls. Of a batch, only
//!   the first unfinished message of each peer and direction is polled.
//! - POINT-2: a look for a message that has not come takes no number, and nothing from its stream but goodbyes.
#![expect(unsafe_code, reason = "message runs work on erased buffers")]

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use super::{
    Awaited, Links, Plane, by_blame, explain, linger, rest_on, sleep_by, translate, way_to_rest,
};
use crate::algo::{self, Plan, Round, Space, Span, Step};
use crate::backend::Failure;
use crate::backend::message::{
    Buffers, Direction, MessageCall, MessageError, MessageRun, Progress, Workspace,
};
use crate::backend::wait_context::WaitContext;
use crate::error::ErrorKind;
use crate::kernel;
use crate::transport::shm::wait::Rest;
use crate::transport::{CallTag, Stream};
use crate::types::{Collective, DType};

/// One message of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    pub(crate) direction: Direction,
    /// Index of the other rank in the group; may be this rank.
    pub(crate) peer: usize,
    pub(crate) dtype: DType,
    pub(crate) count: usize,
    /// The buffer: read for `Send`, written for `Recv`.
    pub(crate) buffer: *mut u8,
}

/// How many messages went each way between this rank and each peer.
#[derive(Debug, Default)]
pub(crate) struct Counters(HashMap<(Direction, usize), u64>);

impl Counters {
    /// How many messages went this way so far.
    pub(super) fn count(&self, direction: Direction, peer: usize) -> u64 {
        self.0.get(&(direction, peer)).copied().unwrap_or(0)
    }

    fn next(&mut self, direction: Direction, peer: usize) -> u64 {
        let count = self.0.entry((direction, peer)).or_insert(0);
        *count += 1;
        *count
    }
}

/// Messages under way, and the streams that are not here yet.
pub(crate) struct Begun {
    running: Vec<Running>,
    awaited: Awaited,
}

/// A message under way.
struct Running {
    message: Message,
    run: MessageRun,
    done: bool,
}

impl Links {
    /// Carries out a batch: returns when all its messages are through. Messages of a rank to
    /// itself are matched within the batch, in order (checked by the collective layer).
    pub(crate) fn exchange(
        &mut self,
        wait_context: &WaitContext<'_>,
        messages: &[Message],
    ) -> Result<(), Failure> {
        let me = wait_context.group.me;
        copy_to_self(messages, me);
        let others = messages.iter().filter(|message| message.peer != me);
        let peers = others.clone().map(|message| message.peer);
        let awaited = self.open(wait_context, Plane::PointToPoint, peers)?;
        let mut running = Vec::new();
        for message in others {
            let seq = self.counters.next(message.direction, message.peer);
            let run = start(wait_context, message, seq)
                .map_err(|error| translate(wait_context, &error))?;
            running.push(Running {
                message: *message,
                run,
                done: false,
            });
        }
        self.finish(wait_context, Begun { running, awaited })
    }

    /// A message that has begun to come; `None` where it has not.
    pub(crate) fn begun(
        &mut self,
        wait_context: &WaitContext<'_>,
        message: &Message,
    ) -> Result<Option<Begun>, Failure> {
        let peers = [message.peer].into_iter();
        let mut awaited = match self.open(wait_context, Plane::PointToPoint, peers) {
            // It left before there was a link, so nothing that it sent is under way.
            Err(ErrorKind::PeerClosed { orderly: true, .. }) => return Ok(None),
            opened => opened?,
        };
        let streams = self.plane(Plane::PointToPoint);
        awaited.hold(streams);
        let attached = awaited.attach(wait_context, streams);
        let seq = self.counters.count(Direction::Recv, message.peer) + 1;
        let mut run =
            start(wait_context, message, seq).map_err(|error| translate(wait_context, &error))?;
        let streams = self.plane(Plane::PointToPoint);
        let first = loop {
            match run.poll(streams) {
                // The peer has said that it ends the group, which begins no message.
                Ok(Progress::Moved) if run.has_nothing() => {}
                looked => break looked,
            }
        };
        awaited.release(streams);
        attached?;
        // Where the link has ended nothing more comes; whether that ends the call is for its wait to say.
        if matches!(
            first,
            Ok(Progress::Blocked) | Err(MessageError::Link { .. })
        ) {
            return Ok(None);
        }
        self.counters.next(Direction::Recv, message.peer);
        // A run that has failed says so once more when it is polled.
        let running = vec![Running {
            message: *message,
            run,
            done: false,
        }];
        Ok(Some(Begun { running, awaited }))
    }

    /// Waits until all these messages are through.
    pub(crate) fn finish(
        &mut self,
        wait_context: &WaitContext<'_>,
        begun: Begun,
    ) -> Result<(), Failure> {
        let mut awaited = begun.awaited;
        let running = RefCell::new(begun.running);
        let failed = Cell::new(None);
        let sleeper = self.sleeper(wait_context);
        let sleeper = sleeper.as_deref();
        let streams = self.plane(Plane::PointToPoint);
        awaited.hold(streams);
        let held = RefCell::new(&mut *streams);
        let refused = RefCell::new(None);
        let mut ready = || {
            let mut streams = held.borrow_mut();
            if let Err(kind) = awaited.attach(wait_context, &mut streams) {
                *refused.borrow_mut() = Some(kind);
                return true;
            }
            let mut running = running.borrow_mut();
            pass(&mut running, &mut streams, &failed);
            failed.get().is_some() || running.iter().all(|message| message.done)
        };
        let waits = || -> Vec<(Direction, usize)> {
            let running = running.borrow();
            let open = running.iter().filter(|one| !one.done);
            open.map(|one| (one.message.direction, one.message.peer))
                .collect()
        };
        let missing = || by_blame(waits().into_iter());
        let sleep = |look: &mut dyn FnMut() -> bool, timeout| {
            sleep_by(sleeper, look, |bell| {
                rest_on(&held.borrow(), waits().into_iter(), bell, timeout);
            });
        };
        let rest = way_to_rest(&held.borrow(), sleeper, &sleep);
        let waited = loop {
            match wait_context.wait(&rest, &mut ready, missing) {
                Err(kind) if linger(wait_context, &kind, &mut ready, missing) => {}
                ended => break ended,
            }
        };
        awaited.release(streams);
        let result = match (refused.take(), failed.get()) {
            (Some(kind), _) => Err(kind),
            (None, Some(error)) => Err(explain(wait_context, &error)),
            (None, None) => waited,
        };
        result.map_err(|kind| Failure {
            usable: false,
            ..Failure::from(kind)
        })
    }
}

/// Waits for one of several peers: until `take` has taken something from one of them. One that leaves in good order is not
/// waited for any more, as long as there are others.
pub(crate) fn first(
    wait_context: &WaitContext<'_>,
    peers: Vec<usize>,
    take: impl FnMut(usize) -> bool,
) -> Result<(), Failure> {
    let take = RefCell::new(take);
    let peers = RefCell::new(peers);
    let missing = || peers.borrow().clone();
    let taken = Cell::new(false);
    let mut ready = || {
        let found = peers.borrow().iter().any(|peer| take.borrow_mut()(*peer));
        taken.set(taken.get() || found);
        taken.get()
    };
    loop {
        let kind = match wait_context.wait(&Rest::Pause, &mut ready, missing) {
            Ok(()) => return Ok(()),
            Err(kind) => kind,
        };
        if linger(wait_context, &kind, &mut ready, missing) {
            if taken.get() {
                return Ok(());
            }
            continue;
        }
        let ErrorKind::PeerClosed {
            peer,
            orderly: true,
            ..
        } = kind
        else {
            return Err(kind.into());
        };
        let members = &wait_context.group.members;
        let mut open = peers.borrow_mut();
        if open.len() == 1 {
            return Err(kind.into());
        }
        open.retain(|index| members[*index] != peer);
    }
}

/// Polls every message that is first in its line, until nothing moves.
fn pass(
    running: &mut [Running],
    streams: &mut [Option<Box<dyn Stream>>],
    failed: &Cell<Option<MessageError>>,
) {
    let mut lines: Vec<(Direction, usize)> = Vec::with_capacity(running.len());
    for one in running.iter_mut().filter(|one| !one.done) {
        let line = (one.message.direction, one.message.peer);
        if lines.contains(&line) {
            continue;
        }
        loop {
            match one.run.poll(streams) {
                Ok(Progress::Done) => {
                    one.done = true;
                    break;
                }
                Ok(Progress::Moved) => {}
                Ok(Progress::Blocked) => {
                    lines.push(line);
                    break;
                }
                Err(error) => {
                    failed.set(Some(error));
                    return;
                }
            }
        }
    }
}

fn start(
    wait_context: &WaitContext<'_>,
    message: &Message,
    seq: u64,
) -> Result<MessageRun, MessageError> {
    // A message of no elements still says that it came: one element whose value does not matter.
    let empty = message.count == 0;
    let space = match (empty, message.direction) {
        (true, _) => Space::Scratch,
        (false, Direction::Send) => Space::In,
        (false, Direction::Recv) => Space::Out,
    };
    let span = Span::new(space, 0, message.count.max(1));
    let step = match message.direction {
        Direction::Send => Step::Send {
            to: message.peer,
            src: span,
        },
        Direction::Recv => Step::Recv {
            from: message.peer,
            dst: span,
        },
    };
    let plan = Plan {
        rounds: vec![Round { steps: vec![step] }],
        scratch: usize::from(empty),
        in_place: true,
        links: algo::Links::Message,
        staged: false,
    };
    let call = MessageCall {
        rank: wait_context.group.me,
        ranks: wait_context.group.len(),
        contributors: 1,
        group: wait_context.group.key,
        seq,
        tag: CallTag {
            collective: Collective::SendRecvBatch as u8,
            dtype: message.dtype as u8,
            op: 0,
            algo: 0,
            root: CallTag::NO_ROOT,
            count: message.count as u64,
            count_hash: 0,
        },
        // A message between two ranks is made at one place by one of them and at another by the other.
        mark: 0,
        dtype: message.dtype,
        op: None,
        checksum: wait_context.context.checksum,
    };
    let sends = message.direction == Direction::Send;
    let buffers = Buffers {
        send: message.buffer.cast_const(),
        send_count: if sends { message.count } else { 0 },
        recv: message.buffer,
        recv_count: if sends { 0 } else { message.count },
    };
    // SAFETY: the collective layer holds the borrow of the buffer until the batch returns.
    unsafe { MessageRun::new(Arc::new(plan), call, buffers, Workspace::default()) }
}

fn copy_to_self(messages: &[Message], me: usize) {
    let own = |direction| {
        messages
            .iter()
            .filter(move |one| one.peer == me && one.direction == direction)
    };
    for (send, recv) in own(Direction::Send).zip(own(Direction::Recv)) {
        let bytes = send.count * send.dtype.size();
        // SAFETY: the collective layer checked that both have this many elements of one type and
        // are different buffers.
        unsafe { kernel::copy(recv.buffer, send.buffer.cast_const(), bytes) };
    }
}
