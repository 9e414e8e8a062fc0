//! What this process knows of the fate of the others: who is gone, and which groups were given up.
//!
//! Written by the control plane (a thread of its own), read by waiting ranks. A waiter polls one
//! word, the epoch; only when that changes does it take the lock and look.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::testimony::{Court, Testimony};
use crate::error::ErrorKind;
use crate::sync::{AtomicU64, Ordering};
use crate::types::Rank;

/// How a rank went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gone {
    /// In words that follow "rank 3": `was killed by signal 9`.
    pub(crate) how: String,
    /// Whether it said goodbye.
    pub(crate) orderly: bool,
}

/// The control plane is lost: no news of other ranks will come any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CutOff {
    /// The rank that served it, where a rank did.
    pub(crate) served_by: Option<Rank>,
    /// What was seen.
    pub(crate) why: String,
}

/// A group was given up by one of its members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Notice {
    /// Key of the group.
    pub(crate) key: u64,
    /// The call in which it failed.
    pub(crate) seq: u64,
    /// The rank that failed.
    pub(crate) origin: u32,
    /// Its error.
    pub(crate) kind: ErrorKind,
}

/// Most groups whose failure is remembered. A process that has this many failed groups has long
/// given up; the bound keeps a faulty peer from filling memory.
const NOTICES_MAX: usize = 65_536;

#[derive(Debug, Default)]
pub(crate) struct Status {
    epoch: AtomicU64,
    /// What ranks said about calls that did not end.
    pub(crate) court: Court,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    gone: HashMap<Rank, Gone>,
    /// The first notice of each group.
    notices: HashMap<u64, Notice>,
    /// Set when the control plane itself is lost.
    cut_off: Option<CutOff>,
}

impl Status {
    /// The word that waiters watch.
    pub(crate) fn epoch_word(&self) -> &AtomicU64 {
        &self.epoch
    }

    /// The epoch now.
    pub(crate) fn epoch(&self) -> u64 {
        // SYNC: pairs with the Release in `disturb`.
        self.epoch.load(Ordering::Acquire)
    }

    /// A rank is gone. Its first fate stays.
    pub(crate) fn set_gone(&self, rank: Rank, gone: Gone) {
        self.known().gone.entry(rank).or_insert(gone);
        self.disturb();
    }

    /// A group was given up. Of several notices that of the earliest call stays: it is the cause.
    pub(crate) fn set_notice(&self, notice: Notice) {
        {
            let mut known = self.known();
            if known.notices.len() < NOTICES_MAX {
                let first = known
                    .notices
                    .entry(notice.key)
                    .or_insert_with(|| notice.clone());
                if notice.seq < first.seq {
                    *first = notice;
                }
            }
        }
        self.disturb();
    }

    /// A rank testified.
    pub(crate) fn set_testimony(&self, testimony: Testimony) {
        if self.court.hear(testimony) {
            self.disturb();
        }
    }

    /// The control plane is lost.
    pub(crate) fn set_cut_off(&self, cut_off: CutOff) {
        self.known().cut_off.get_or_insert(cut_off);
        self.disturb();
    }

    pub(crate) fn gone(&self, rank: Rank) -> Option<Gone> {
        self.known().gone.get(&rank).cloned()
    }

    /// Whether any rank has left in good order.
    pub(crate) fn is_any_orderly(&self) -> bool {
        self.known().gone.values().any(|gone| gone.orderly)
    }

    pub(crate) fn notice(&self, key: u64) -> Option<Notice> {
        self.known().notices.get(&key).cloned()
    }

    pub(crate) fn cut_off(&self) -> Option<CutOff> {
        self.known().cut_off.clone()
    }

    fn disturb(&self) {
        // SYNC: pairs with the Acquire in `epoch` and in the waiters: who sees the new epoch finds
        // what was recorded before it.
        self.epoch.fetch_add(1, Ordering::Release);
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_cause_stays_and_every_event_moves_the_epoch() {
        let status = Status::default();
        let gone = |how: &str| Gone {
            how: how.to_owned(),
            orderly: false,
        };
        status.set_gone(Rank(2), gone("was killed by signal 9"));
        status.set_gone(Rank(2), gone("left the world"));
        assert_eq!(status.gone(Rank(2)), Some(gone("was killed by signal 9")));
        assert_eq!(status.gone(Rank(1)), None);
        assert_eq!(status.epoch(), 2);
        let kind = ErrorKind::Stalled {
            waiting_for: vec![Rank(2)],
            waited_ms: 5,
        };
        let notice = Notice {
            key: 9,
            seq: 4,
            origin: 1,
            kind,
        };
        status.set_notice(notice.clone());
        status.set_notice(Notice {
            origin: 7,
            ..notice.clone()
        });
        assert_eq!(status.notice(9), Some(notice.clone()));
        assert_eq!(status.epoch(), 4);
        status.set_notice(Notice {
            seq: 3,
            ..notice.clone()
        });
        status.set_notice(Notice {
            seq: 5,
            ..notice.clone()
        });
        assert_eq!(status.notice(9), Some(Notice { seq: 3, ..notice }));
    }
}
