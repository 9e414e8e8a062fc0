//! When a waiting call looks up: to complain, and to give up.
//!
//! A machine without clock and I/O. `wait_context` drives it with the time of the system, the simulator with virtual time. All
//! times are measured from the beginning of the call.
//!
//! - CALL-WAIT-1: time in which the waiting thread did not run is taken off the call's deadline: it could not look, and no
//!   peer is to blame for that time.

use std::time::Duration;

use crate::watch::{FIRST_LOOK, NEXT_LOOK};

/// By how much a slice may end late, by the length of sleeps.
const SLACK: Duration = Duration::from_millis(10);
/// A slice that ended this much too late did: the thread, or the machine, did not run meanwhile. Shorter delays are those of
/// any busy machine, and too short to count against anybody.
const OVERRUN_MIN: Duration = Duration::from_millis(50);

/// How a call waits: in slices, at whose ends it looks up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallWait {
    slice_end: Duration,
    complaints: u32,
    /// The slice began in this wait.
    is_within: bool,
}

/// What a call does at the end of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It says that it waits, for the n-th time from 0, and waits on.
    Complain(u32),
    /// Its time is up.
    GiveUp,
    /// It waits on.
    Rest,
}

impl CallWait {
    /// A wait of a call that may take `limit`. The first slice is measured from the beginning of the call, so that a short
    /// wait reads no clock for it.
    pub(crate) fn new(limit: Duration) -> Self {
        Self {
            slice_end: FIRST_LOOK.min(limit),
            complaints: 0,
            is_within: false,
        }
    }

    /// When the slice ends.
    pub(crate) fn slice_end(&self) -> Duration {
        self.slice_end
    }

    /// How long the thread did not run, where the slice ended at `now` and the wait had lasted for `waited` then: before the
    /// wait the call was at work.
    pub(crate) fn overrun(&self, now: Duration, waited: Duration) -> Option<Duration> {
        let over = now.saturating_sub(self.slice_end).min(waited);
        (over > OVERRUN_MIN).then_some(over)
    }

    /// The slice has ended; the call may take `limit`, extended by what was lost (CALL-WAIT-1).
    pub(crate) fn turn(&mut self, now: Duration, limit: Duration) -> Turn {
        if now >= limit {
            return Turn::GiveUp;
        }
        // A wait that begins late in its call has only just begun. Later slices began in it, and end late only where the
        // processors are busy.
        let is_due = self.is_within || now < FIRST_LOOK + SLACK;
        self.is_within = true;
        let next = if is_due { NEXT_LOOK } else { FIRST_LOOK };
        self.slice_end = limit.min(now + next);
        if !is_due {
            return Turn::Rest;
        }
        self.complaints = self.complaints.saturating_add(1);
        Turn::Complain(self.complaints - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_call_complains_after_the_first_look_and_then_in_steps_until_its_time_is_up() {
        let limit = ms(600);
        let mut wait = CallWait::new(limit);
        assert_eq!(wait.slice_end(), ms(30));
        assert_eq!(wait.turn(ms(30), limit), Turn::Complain(0));
        assert_eq!(wait.slice_end(), ms(280));
        assert_eq!(wait.turn(ms(281), limit), Turn::Complain(1));
        assert_eq!(wait.turn(ms(531), limit), Turn::Complain(2));
        assert_eq!(wait.slice_end(), limit);
        assert_eq!(wait.turn(limit, ms(700)), Turn::Complain(3));
        assert_eq!(wait.turn(ms(700), ms(700)), Turn::GiveUp);
    }

    #[test]
    fn a_wait_that_begins_late_in_its_call_rests_first() {
        let limit = ms(5000);
        let mut wait = CallWait::new(limit);
        assert_eq!(wait.turn(ms(900), limit), Turn::Rest);
        assert_eq!(wait.slice_end(), ms(930));
        assert_eq!(wait.turn(ms(940), limit), Turn::Complain(0));
    }

    #[test]
    fn time_in_which_a_thread_did_not_run_is_told_from_time_in_which_it_was_at_work() {
        let wait = CallWait {
            slice_end: ms(250),
            complaints: 1,
            is_within: true,
        };
        // As it should be, and on a machine that is a little busy.
        assert_eq!(wait.overrun(ms(250), ms(250)), None);
        assert_eq!(wait.overrun(ms(290), ms(290)), None);
        // Stopped or starved in the first slice of the wait, and in a later one.
        assert_eq!(wait.overrun(ms(3250), ms(3200)), Some(ms(3000)));
        assert_eq!(wait.overrun(ms(400), ms(60_000)), Some(ms(150)));
        // The call copied for three seconds, and then began to wait.
        assert_eq!(wait.overrun(ms(3000), ms(10)), None);
        assert_eq!(wait.overrun(ms(6000), ms(3000)), Some(ms(3000)));
    }
}
