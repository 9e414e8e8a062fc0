//! What a communicator writes onto the board of its rank: its calls, and for whom they wait.

use std::panic::Location;
use std::sync::Arc;
use std::time::Instant;

use super::board::{Berth, Entered, Opening, Title};
use super::record::{Maker, Recorder};
use super::report::{CallCode, InFlight};
use super::site::{self, blamed};
use super::{ROW_MAX, Watch};
use crate::sabotage::{self, Sabotage};

/// A communicator's place on the board of its rank.
#[derive(Debug)]
pub(crate) struct Place {
    pub(super) watch: Arc<Watch>,
    /// The group.
    pub(super) key: u64,
    pub(super) berth: Option<Berth>,
}

/// A call as it is announced on the board.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Announced {
    pub(crate) code: CallCode,
    pub(crate) seq: u64,
    pub(crate) site: &'static Location<'static>,
    pub(crate) started: Instant,
    /// The program does not wait for it.
    pub(crate) is_async: bool,
}

/// A call that stands on the board until it ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing(Option<Entered>);

impl Place {
    /// Where its calls are recorded, if anywhere, and who makes the one that begins now.
    #[inline]
    pub(crate) fn recorder(&self, seq: u64) -> Option<(&Recorder, Maker)> {
        let recorder = self.watch.recorder.as_ref()?;
        let start = site::started();
        let own = || {
            self.watch
                .board
                .as_ref()
                .map_or(1, |board| self.watch.thread(board))
        };
        let maker = Maker {
            key: self.key,
            seq,
            thread: start.map_or_else(own, |start| start.thread),
            is_async: start.is_some(),
        };
        Some((recorder, maker))
    }

    /// The call of this thread has ended.
    #[inline]
    pub(crate) fn recorded(&self) {
        if self.watch.recorder.is_some() {
            Recorder::ended();
        }
    }

    /// Announces a call, before it can wait.
    pub(crate) fn begin(&self, call: &Announced) -> Standing {
        let (Some(board), Some(berth)) = (&self.watch.board, self.berth) else {
            return Standing(None);
        };
        let start = site::started();
        // Calls of a worker count for the thread that started them: that is who makes them or not.
        let thread = start.map_or_else(|| self.watch.thread(board), |start| start.thread);
        let queued_ms = start.map_or(0, |start| {
            let queued = call.started.saturating_duration_since(start.at).as_millis();
            u64::try_from(queued).unwrap_or(u64::MAX)
        });
        let title = Title {
            call: call.code,
            seq: call.seq,
            site: blamed(call.site),
            thread,
            is_async: call.is_async || start.is_some(),
        };
        let opening = Opening {
            title,
            started: call.started,
            queued_ms,
            is_collective: !call.code.is_point_to_point(),
        };
        Standing(Some(board.begin(berth, &opening)))
    }

    /// Notes a call that has ended well and has not been announced, since it did not have to wait.
    /// `entered` as in [`Place::end`].
    #[inline]
    pub(crate) fn pass(
        &self,
        code: CallCode,
        seq: u64,
        site: &'static Location<'static>,
        entered: u64,
    ) {
        let (Some(board), Some(berth)) = (&self.watch.board, self.berth) else {
            return;
        };
        let title = Title {
            call: code,
            seq,
            site,
            thread: self.watch.thread(board),
            is_async: false,
        };
        board.pass(berth, &title, entered);
    }

    /// Ends a call; `entered` is the number of the last collective that was entered.
    pub(crate) fn end(&self, call: Standing, entered: u64, is_ok: bool) {
        if let (Some(board), Standing(Some(call))) = (&self.watch.board, call) {
            board.end(call, entered, is_ok);
        }
    }

    /// Ends one of several calls that are under way together; the line goes on showing the last.
    pub(crate) fn end_one(&self, call: Standing, is_ok: bool) {
        if let (Some(board), Standing(Some(call))) = (&self.watch.board, call) {
            board.end_record(call, is_ok);
        }
    }

    /// The call under way, where there is one.
    pub(crate) fn under_way(&self) -> Option<InFlight> {
        let (board, berth) = (self.watch.board.as_ref()?, self.berth?);
        board.report(0).group(board.key(berth))?.call.clone()
    }

    /// The calling thread waits for asynchronous calls of this communicator, until it drops this.
    pub(crate) fn awaits(&self) -> Awaiting<'_> {
        if let (Some(board), Some(berth)) = (&self.watch.board, self.berth) {
            board.set_awaited(berth, self.watch.thread(board));
        }
        Awaiting(self)
    }

    /// An asynchronous call was started: a worker will make it.
    pub(crate) fn add_pending(&self) {
        if let (Some(board), Some(berth)) = (&self.watch.board, self.berth) {
            board.add_pending(berth);
        }
    }

    /// An asynchronous call has ended.
    pub(crate) fn remove_pending(&self) {
        if let (Some(board), Some(berth)) = (&self.watch.board, self.berth) {
            board.remove_pending(berth);
        }
    }

    /// The counts of call `seq`, which ranks must agree on and no message tells in full.
    pub(crate) fn set_row(&self, seq: u64, row: impl Iterator<Item = usize>) {
        if let (Some(board), Some(berth)) = (&self.watch.board, self.berth) {
            let row = row.take(ROW_MAX).map(|count| count as u64).collect();
            self.watch.rows().insert(board.key(berth), (seq, row));
        }
    }

    /// The program has cancelled the calls of this communicator.
    pub(crate) fn cancel(&self, why: &str) {
        if let (Some(board), Some(berth)) = (&self.watch.board, self.berth) {
            let key = board.key(berth);
            self.watch.cancels().insert(key, why.to_owned());
        }
    }

    /// The waiting thread has looked in vain.
    pub(crate) fn waits(&self, since: Instant, missing: &[usize], is_first: bool) {
        if let (Some(board), Some(berth)) = (&self.watch.board, self.berth) {
            let missing = if sabotage::is(Sabotage::Missing) {
                &[]
            } else {
                missing
            };
            board.waits(berth, since, missing, is_first);
        }
    }

    /// The call waits for nobody any more, for now.
    pub(crate) fn goes_on(&self) {
        if let (Some(board), Some(berth)) = (&self.watch.board, self.berth) {
            board.goes_on(berth);
        }
    }
}

/// A thread waits for asynchronous calls.
#[derive(Debug)]
pub(crate) struct Awaiting<'a>(&'a Place);

impl Drop for Awaiting<'_> {
    fn drop(&mut self) {
        if let (Some(board), Some(berth)) = (&self.0.watch.board, self.0.berth) {
            board.set_awaited(berth, 0);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(recorder) = &self.watch.recorder {
            recorder.destroyed(self.key);
        }
        if let (Some(board), Some(berth)) = (&self.watch.board, self.berth) {
            self.watch.rows().remove(&board.key(berth));
            self.watch.cancels().remove(&board.key(berth));
            board.release(berth);
        }
    }
}
