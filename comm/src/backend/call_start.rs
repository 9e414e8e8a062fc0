//! How a call begins: no sooner than it must.
//!
//! A call first tells its peers what it is, and looks for what they tell. Only when they have not come
//! after the first polls does it read the clock for its deadline and announce itself on the board: a call
//! whose peers are in step ends before that, and is noted when it ends.

use std::cell::OnceCell;
use std::panic::Location;
use std::time::Duration;

use crate::sync::Deadline;
use crate::watch::report::CallCode;
use crate::watch::{Announced, Place, Standing, is_on_behalf};

/// The beginning of a call: when its time began to run, and its announcement. Both are made when they are
/// first needed, at latest before the call waits (BOARD-2).
#[derive(Debug)]
pub(crate) struct CallStart<'a> {
    place: &'a Place,
    code: CallCode,
    seq: u64,
    site: &'static Location<'static>,
    budget: Duration,
    deadline: OnceCell<Deadline>,
    standing: OnceCell<Standing>,
}

impl<'a> CallStart<'a> {
    /// A call that has not begun. `waited` is when its time began, where it has waited for its turn.
    #[inline]
    pub(crate) fn new(
        place: &'a Place,
        code: CallCode,
        seq: u64,
        site: &'static Location<'static>,
        budget: Duration,
        waited: Option<Deadline>,
    ) -> Self {
        let call_start = Self {
            place,
            code,
            seq,
            site,
            budget,
            deadline: waited.map_or_else(OnceCell::new, OnceCell::from),
            standing: OnceCell::new(),
        };
        if is_on_behalf() {
            // How long it was queued counts from here.
            call_start.begin();
        }
        call_start
    }

    pub(crate) fn deadline(&self) -> Deadline {
        *self.deadline.get_or_init(|| Deadline::after(self.budget))
    }

    /// Announces the call, if it is not announced.
    pub(crate) fn begin(&self) {
        self.standing.get_or_init(|| {
            self.place.begin(&Announced {
                code: self.code,
                seq: self.seq,
                site: self.site,
                started: self.deadline().started(),
                is_async: false,
            })
        });
    }

    /// The call has ended. `entered` is the number of the last collective that was entered.
    #[inline]
    pub(crate) fn end(&self, entered: u64, is_ok: bool) {
        if !is_ok {
            self.begin();
        }
        match self.standing.get() {
            Some(standing) => self.place.end(*standing, entered, is_ok),
            None => self.place.pass(self.code, self.seq, self.site, entered),
        }
    }
}
