//! What this rank says when a call of its group did not end, and when it says so.
//!
//! A rank whose device still works on the call waits a little before it speaks: until the vendor's
//! own time limit must have struck on its device too. Otherwise the ranks that only have not heard
//! yet would look like the one whose device hangs.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::op_log::OpLog;
use crate::context::{Context, StallReport, Witness};
use crate::device::stream::Event;
use crate::sync::{AtomicBool, Deadline, Ordering};
use crate::watch::judge::device::Words;

/// Beyond the vendor's time limit, until its error must have come out.
const SLACK: Duration = Duration::from_millis(1500);
/// What a stall report takes on its way, with room.
const TRAVEL: Duration = Duration::from_secs(2);
/// Between two looks at the op log while waiting to speak.
const LOOK: Duration = Duration::from_millis(20);

/// One communicator's op log, and the voice of this rank about it.
pub(super) struct Bench {
    context: Arc<Context>,
    case: u64,
    op_log: Mutex<OpLog>,
    changed: Condvar,
    /// Events behind calls whose end nobody has waited for yet, by key of the call.
    open: Mutex<Vec<(u64, Event)>>,
    exec_timeout: Option<Duration>,
    has_spoken: AtomicBool,
    is_summoned: AtomicBool,
}

impl std::fmt::Debug for Bench {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bench")
            .field("made", &self.op_log().made())
            .finish_non_exhaustive()
    }
}

impl Bench {
    pub(super) fn new(
        context: Arc<Context>,
        case: u64,
        exec_timeout: Option<Duration>,
    ) -> Arc<Self> {
        Arc::new(Self {
            context,
            case,
            op_log: Mutex::new(OpLog::new()),
            changed: Condvar::new(),
            open: Mutex::default(),
            exec_timeout,
            has_spoken: AtomicBool::new(false),
            is_summoned: AtomicBool::new(false),
        })
    }

    /// From now on peers can ask.
    pub(super) fn open(self: &Arc<Self>) {
        let witness = Arc::downgrade(self);
        self.context.status.court.call(self.case, witness);
        if !self.context.status.court.said(self.case).is_empty() {
            Arc::clone(self).summon();
        }
    }

    pub(super) fn close(&self) {
        self.context.status.court.close(self.case);
    }

    pub(super) fn op_log(&self) -> MutexGuard<'_, OpLog> {
        self.op_log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the op log and wakes who waits to speak.
    pub(super) fn write<R>(&self, change: impl FnOnce(&mut OpLog) -> R) -> R {
        let result = change(&mut self.op_log());
        self.changed.notify_all();
        result
    }

    /// A call that nobody waits for yet, and the event behind it.
    pub(super) fn watch(&self, number: u64, event: Event) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.push((number, event));
        self.refresh(&mut open);
    }

    /// Notes what has ended since somebody looked.
    fn refresh(&self, open: &mut Vec<(u64, Event)>) {
        let past = open
            .iter()
            .rposition(|(_, event)| matches!(event.has_come(), Ok(true)));
        if let Some(last) = past {
            let number = open[last].0;
            open.drain(..=last);
            self.write(|op_log| op_log.complete(number));
        }
    }

    /// Longest time that the stall reports of all live members take to arrive.
    pub(super) fn patience(&self) -> Duration {
        self.exec_timeout.unwrap_or_default() + SLACK + TRAVEL
    }

    /// What every member that has spoken says, by index.
    pub(super) fn said(&self, members: &[crate::types::Rank]) -> Vec<Option<Words>> {
        let all = self.context.status.court.said(self.case);
        members
            .iter()
            .map(|rank| {
                let own = all
                    .iter()
                    .find(|stall_report| stall_report.rank == rank.0)?;
                // Who says what cannot be read says nothing.
                postcard::from_bytes(&own.words).ok()
            })
            .collect()
    }

    /// Indices of members that have not spoken.
    pub(super) fn missing(&self, members: &[crate::types::Rank]) -> Vec<usize> {
        let all = self.context.status.court.said(self.case);
        let is_silent =
            |rank: &crate::types::Rank| all.iter().all(|stall_report| stall_report.rank != rank.0);
        (0..members.len())
            .filter(|index| is_silent(&members[*index]))
            .collect()
    }

    /// Whether some member has spoken: a call of the group did not end.
    pub(super) fn is_in_session(&self) -> bool {
        // The epoch is zero as long as nothing ever happened.
        self.context.status.epoch() > 0 && !self.context.status.court.said(self.case).is_empty()
    }

    /// Speaks now, once.
    pub(super) fn speak(&self) {
        // Relaxed: the flag orders nothing, it only lets one thread through.
        if self.has_spoken.swap(true, Ordering::Relaxed) {
            return;
        }
        self.refresh(&mut self.open.lock().unwrap_or_else(PoisonError::into_inner));
        let words = postcard::to_allocvec(&self.op_log().words()).unwrap_or_default();
        let stall_report = StallReport {
            case: self.case,
            rank: self.context.rank.0,
            words,
        };
        self.context.status.set_testimony(stall_report.clone());
        self.context.control.testify(&stall_report);
    }

    /// Speaks as soon as there is no more to be learnt from the device.
    fn speak_in_time(&self) {
        let deadline = Deadline::after(self.exec_timeout.unwrap_or_default() + SLACK);
        let limit_ms = self
            .exec_timeout
            .map(|limit| u64::try_from((limit + SLACK).as_millis()).unwrap_or(u64::MAX));
        loop {
            self.refresh(&mut self.open.lock().unwrap_or_else(PoisonError::into_inner));
            let op_log = self.op_log();
            let waits_longer = match (op_log.open_ms(), limit_ms) {
                (Some(open_ms), Some(limit_ms)) => open_ms < limit_ms && !op_log.has_fault(),
                (None, _) | (_, None) => false,
            };
            if !waits_longer || deadline.passed() {
                drop(op_log);
                return self.speak();
            }
            let waited = self.changed.wait_timeout(op_log, LOOK.min(deadline.left()));
            drop(waited);
        }
    }
}

impl Witness for Bench {
    fn summon(self: Arc<Self>) {
        // Relaxed: as in `speak`.
        if self.is_summoned.swap(true, Ordering::Relaxed) {
            return;
        }
        let bench = Arc::clone(&self);
        let body = move || bench.speak_in_time();
        let thread = thread::Builder::new()
            .name("muster-witness".to_owned())
            .spawn(body);
        if thread.is_err() {
            // Without a thread it is said now, with what is known.
            self.speak();
        }
    }
}
