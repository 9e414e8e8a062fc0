//! The way of one call on a device: entered, enqueued, waited for, or judged.

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use super::inquest::Lost;
use super::{DeviceCommunicator, Inner};
use crate::backend::wait_context::{Limit, WaitContext};
use crate::collective::Call;
use crate::device::error::DeviceError;
use crate::device::memory::Storage;
use crate::device::stream::{Event, Stream};
use crate::device::vendor_call::VendorCall;
use crate::error::{CommError, ErrorKind};
use crate::sync::{Deadline, lock};
use crate::vendor::{self, Fault};
use crate::watch::judge::device::{Ask, Stage, mismatch};
use crate::watch::{Announced, Mark};

/// One look at the device or the vendor_thread: short at first, so that a quick call ends quickly; bounded,
/// so that the fate of peers is noticed.
const LOOK_FIRST: Duration = Duration::from_millis(1);
const LOOK_MAX: Duration = Duration::from_millis(20);
/// Between two questions for an asynchronous error.
const ASYNC_EVERY: Duration = Duration::from_millis(250);
/// Calls that stand on the board together: as many as a program has under way, and no more where it
/// drops its work.
const STANDING_MAX: usize = 64;

/// A call that was checked and lowered.
pub(super) struct Prepared {
    pub(super) call: Call,
    pub(super) ask: Ask,
    pub(super) steps: Vec<VendorCall>,
    /// Memory that the steps use.
    pub(super) storages: Vec<Arc<Storage>>,
    /// Messages among the steps: peer, and whether this rank sends.
    pub(super) messages: Vec<(u32, bool)>,
}

/// A call that the vendor has taken.
pub(super) struct Open {
    pub(super) call: Call,
    pub(super) number: u64,
    pub(super) seq: u64,
    pub(super) event: Option<Event>,
    pub(super) deadline: Deadline,
}

impl Inner {
    /// Gives a call to the device. `event` says whether one is recorded behind it.
    pub(super) fn enqueue(
        self: &Arc<Self>,
        prepared: Prepared,
        stream: &Stream,
        wants_event: bool,
    ) -> Result<Open, CommError> {
        let _turn = lock(&self.turn);
        let deadline = Deadline::after(self.desk.deadline());
        let Prepared {
            call,
            ask,
            steps,
            storages,
            messages,
        } = prepared;
        if let Some(cause) = lock(&self.failed).clone() {
            return Err(cause);
        }
        let next = self.bench.op_log().made() + 1;
        if let Some(kind) = self.wait_context(deadline, next).given_up() {
            return Err(self.fail(call, next, deadline, self.shared(next, kind)));
        }
        self.compare(call, &ask, deadline)?;
        self.follow(stream)
            .map_err(|error| self.error(call, error.into(), 0, deadline, true))?;
        let (number, seq) = self.bench.write(|op_log| {
            let entered = op_log.enter(ask, call.site);
            for (peer, outgoing) in &messages {
                op_log.count_message(*peer, *outgoing);
            }
            entered
        });
        self.stand(number, seq, call, &ask, deadline, wants_event);
        let ticket = self
            .engine
            .enqueue(steps, storages, stream, wants_event)
            .map_err(|error| {
                self.bench.write(|op_log| op_log.retract(number));
                self.conclude(number, false);
                self.error(call, error.into(), seq, deadline, true)
            })?;
        let mut open = Open {
            call,
            number,
            seq,
            event: None,
            deadline,
        };
        let mut look = LOOK_FIRST;
        let taken = loop {
            if let Some(taken) = ticket.wait(look.min(deadline.left())) {
                break taken;
            }
            look = (look * 2).min(LOOK_MAX);
            if let Err(lost) = self.look_around(&open) {
                return Err(self.fail(call, seq, deadline, lost));
            }
        };
        match taken {
            Ok(event) => {
                self.bench
                    .write(|op_log| op_log.note(number, Stage::Enqueued));
                if let Some(event) = &event {
                    self.bench.watch(number, event.clone());
                }
                open.event = event;
                *lock(&self.last) = Some(stream.clone());
                Ok(open)
            }
            Err(error) => Err(self.refused(&open, error)),
        }
    }

    /// Puts a call onto the board.
    fn stand(
        &self,
        number: u64,
        seq: u64,
        call: Call,
        ask: &Ask,
        deadline: Deadline,
        is_async: bool,
    ) {
        let mut standing = lock(&self.standing);
        if standing.len() == STANDING_MAX {
            // Work that nobody waits for: how it ended is not known.
            standing.remove(0);
        }
        let announced = Announced {
            code: ask.code(),
            seq,
            site: call.site,
            started: deadline.started(),
            is_async,
        };
        standing.push((number, self.place.begin(&announced)));
    }

    /// Takes the call of this number off the board, and those before it: a device ends the calls of a
    /// communicator in their order.
    pub(super) fn conclude(&self, number: u64, is_ok: bool) {
        let mut standing = lock(&self.standing);
        while let Some((first, call)) = standing.first().copied()
            && first <= number
        {
            standing.remove(0);
            if standing.is_empty() {
                let made = self.bench.op_log().made();
                self.place.end(call, made, is_ok);
            } else {
                self.place.end_one(call, is_ok);
            }
        }
    }

    /// Waits for the end of a call: by its event, or else by the stream running empty.
    pub(super) fn finish(self: &Arc<Self>, open: &Open, stream: &Stream) -> Result<(), CommError> {
        let mut look = LOOK_FIRST;
        loop {
            match self.has_ended(open, stream, look.min(open.deadline.left())) {
                Ok(true) => {
                    self.bench.write(|op_log| op_log.complete(open.number));
                    self.conclude(open.number, true);
                    return Ok(());
                }
                Ok(false) => {}
                Err(error) => {
                    let lost = self.inquest(open.seq, Some(error.into()));
                    return Err(self.fail(open.call, open.seq, open.deadline, lost));
                }
            }
            look = (look * 2).min(LOOK_MAX);
            if let Err(lost) = self.look_around(open) {
                return Err(self.fail(open.call, open.seq, open.deadline, lost));
            }
        }
    }

    fn has_ended(&self, open: &Open, stream: &Stream, look: Duration) -> Result<bool, DeviceError> {
        if let Some(event) = &open.event
            && event.has_come()?
        {
            return Ok(true);
        }
        // Errors of the work come out of the stream, and its end is waited for without spinning.
        let is_empty = stream.look(look)?;
        Ok(is_empty && open.event.is_none())
    }

    /// What happens elsewhere while a call is under way, and ends it.
    fn look_around(self: &Arc<Self>, open: &Open) -> Result<(), Lost> {
        if let Some(fault) = self.async_error() {
            return Err(self.inquest(open.seq, Some(fault)));
        }
        if open.deadline.passed() {
            return Err(self.inquest(open.seq, None));
        }
        let wait_context = self.wait_context(open.deadline, open.seq);
        if let Some(kind) = wait_context.given_up() {
            return Err(self.shared(open.seq, kind));
        }
        if self.desk.context().status.epoch() > 0 {
            let everyone: Vec<usize> = (0..self.desk.size()).collect();
            match wait_context.look(&everyone) {
                // Who left in good order had done its part; its device may be ahead of ours.
                Ok(()) | Err(ErrorKind::PeerClosed { orderly: true, .. }) => {}
                Err(kind) => return Err(self.shared(open.seq, kind)),
            }
        }
        let members = self.desk.members();
        if self.bench.is_in_session() && self.bench.missing(members).is_empty() {
            return Err(self.judge(&self.bench.said(members)));
        }
        Ok(())
    }

    /// The vendor did not take a call. What it refuses for its arguments leaves all ranks in step;
    /// anything else is a fault of the device or of a peer.
    fn refused(self: &Arc<Self>, open: &Open, error: DeviceError) -> CommError {
        let kind = ErrorKind::from(error);
        let fault = if let ErrorKind::Vendor { code, detail, .. } = &kind {
            Some(vendor::fault_of(*code, detail))
        } else {
            None
        };
        let is_harmless = match fault {
            Some(fault) => matches!(fault, Fault::Argument | Fault::Unsupported),
            None => kind.is_recoverable(),
        };
        if is_harmless {
            self.bench.write(|op_log| op_log.retract(open.number));
            self.conclude(open.number, false);
            return self.error(open.call, kind, open.seq, open.deadline, true);
        }
        self.bench
            .write(|op_log| op_log.note(open.number, Stage::Failed));
        let lost = if matches!(fault, Some(Fault::Memory)) {
            // No peer is the cause, so none is asked; those that have enough memory are in the call and
            // would wait for this rank.
            self.judge(&self.alone(&kind))
        } else {
            self.inquest(open.seq, Some(kind))
        };
        self.fail(open.call, open.seq, open.deadline, lost)
    }

    /// The communicator's asynchronous error, asked for now and then and never waited for.
    fn async_error(&self) -> Option<ErrorKind> {
        let mut question = lock(&self.async_question);
        let (asked, ticket) = &mut *question;
        if let Some(pending) = ticket {
            let answer = pending.wait(Duration::ZERO)?;
            *ticket = None;
            return answer.err().map(ErrorKind::from);
        }
        if asked.is_none_or(|asked: Deadline| asked.passed()) {
            *asked = Some(Deadline::after(ASYNC_EVERY));
            *ticket = Some(self.engine.async_error());
        }
        None
    }

    /// Lets calls on another stream than the last one wait for it: the vendor wants all calls of a
    /// communicator in one order.
    fn follow(&self, stream: &Stream) -> Result<(), DeviceError> {
        let last = lock(&self.last).clone();
        match last {
            Some(last) if !last.is(stream) => stream.wait_for(&last.record()?),
            Some(_) | None => Ok(()),
        }
    }

    /// In checked mode: whether all ranks make the same call, before any gives it to its device.
    fn compare(&self, call: Call, ask: &Ask, deadline: Deadline) -> Result<(), CommError> {
        if !self.checked || ask.collective.is_of_messages() {
            return Ok(());
        }
        let all = self.desk.all_gather_object(ask)?;
        let made = self.desk.members().iter().copied().zip(&all);
        match mismatch(&made.collect::<Vec<_>>()) {
            Some((kind, _)) => Err(self.error(call, kind, 0, deadline, true)),
            None => Ok(()),
        }
    }

    pub(super) fn wait_context(&self, deadline: Deadline, seq: u64) -> WaitContext<'_> {
        WaitContext {
            context: self.desk.context(),
            group: self.desk.identity(),
            limit: Limit::At(deadline),
            seq,
            mark: Mark::default(),
            place: self.desk.place(),
            lost: self.desk.context().watch.lost(),
        }
    }

    pub(super) fn error(
        &self,
        call: Call,
        kind: ErrorKind,
        seq: u64,
        deadline: Deadline,
        usable: bool,
    ) -> CommError {
        self.desk.error(call, kind, seq, None, deadline, usable)
    }
}

impl DeviceCommunicator {
    /// Makes a call and waits for its end. It is on the board as one of the program's line, not of the one
    /// here that prepared it.
    #[track_caller]
    pub(super) fn block(&self, mut prepared: Prepared) -> Result<(), CommError> {
        prepared.call.site = Location::caller();
        let stream = &self.inner.stream;
        let open = self.inner.enqueue(prepared, stream, false)?;
        self.inner.finish(&open, stream)
    }
}
