//! What ranks say about a call that did not end, told to all others over the control plane.
//!
//! A rank that gives up on a call testifies; that asks every other member to do the same. A member
//! that sits in no call is spoken for by its [`Witness`], on a thread of its own, so that a rank
//! which never came can be named with the last thing that it did. Bytes travel; what they mean is
//! the business of who asked.
//!
//! - `STALL-REPORT-1`: the first stall report of a rank about a case stays.
//! - `STALL-REPORT-2`: nothing here waits, and a witness is called without any lock held.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use serde::{Deserialize, Serialize};

use crate::sync::lock;

/// What one rank says about one case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StallReport {
    /// The case: key of the group that it is about.
    pub(crate) case: u64,
    /// The rank that speaks, by its number in the world.
    pub(crate) rank: u32,
    /// What it says.
    pub(crate) words: Vec<u8>,
}

/// Who can speak for this rank.
pub(crate) trait Witness: Send + Sync {
    /// Somebody asks. Called on the thread of the control plane: it must not wait.
    fn summon(self: Arc<Self>);
}

/// Most stall reports that are kept: a bound on what a faulty peer can make this rank remember.
const TESTIMONIES_MAX: usize = 65_536;
/// Longest stall report that is kept, in bytes.
pub(crate) const WORDS_BYTES_MAX: usize = 64 << 10;

/// What was said so far, and who speaks for this rank.
#[derive(Default)]
pub(crate) struct Court {
    said: Mutex<HashMap<u64, Vec<StallReport>>>,
    witnesses: Mutex<HashMap<u64, Weak<dyn Witness>>>,
}

impl std::fmt::Debug for Court {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let cases = lock(&self.said).len();
        f.debug_struct("Court").field("cases", &cases).finish()
    }
}

impl Court {
    /// Takes a stall report in and summons this rank's own witness. Says whether it was new.
    pub(crate) fn hear(&self, stall_report: StallReport) -> bool {
        if stall_report.words.len() > WORDS_BYTES_MAX {
            return false;
        }
        let case = stall_report.case;
        {
            let mut said = lock(&self.said);
            let total: usize = said.values().map(Vec::len).sum();
            let all = said.entry(case).or_default();
            let known = all.iter().any(|other| other.rank == stall_report.rank);
            if known || total >= TESTIMONIES_MAX {
                return false;
            }
            all.push(stall_report);
        }
        let witness = lock(&self.witnesses).get(&case).and_then(Weak::upgrade);
        if let Some(witness) = witness {
            witness.summon();
        }
        true
    }

    /// What was said about a case so far.
    pub(crate) fn said(&self, case: u64) -> Vec<StallReport> {
        lock(&self.said).get(&case).cloned().unwrap_or_default()
    }

    /// Names who speaks for this rank in a case; the witness of a group that is gone goes with it.
    pub(crate) fn call(&self, case: u64, witness: Weak<dyn Witness>) {
        let mut witnesses = lock(&self.witnesses);
        witnesses.retain(|_, witness| witness.strong_count() > 0);
        witnesses.insert(case, witness);
    }

    /// Forgets a case: its group was destroyed here.
    pub(crate) fn close(&self, case: u64) {
        lock(&self.witnesses).remove(&case);
        lock(&self.said).remove(&case);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::{AtomicUsize, Ordering};

    #[derive(Default)]
    struct Counting(AtomicUsize);

    impl Witness for Counting {
        fn summon(self: Arc<Self>) {
            // Relaxed: read on the same thread.
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn stall_report(rank: u32, words: &[u8]) -> StallReport {
        StallReport {
            case: 7,
            rank,
            words: words.to_vec(),
        }
    }

    #[test]
    fn the_first_testimony_of_a_rank_stays_and_summons_the_witness() {
        let court = Court::default();
        let witness = Arc::new(Counting::default());
        let weak: Weak<dyn Witness> = Arc::downgrade(&witness) as _;
        court.call(7, weak);
        assert!(court.hear(stall_report(1, b"a")));
        assert!(!court.hear(stall_report(1, b"b")));
        assert!(court.hear(stall_report(2, b"c")));
        let said: Vec<_> = court.said(7).into_iter().map(|one| one.words).collect();
        assert_eq!(said, [b"a".to_vec(), b"c".to_vec()]);
        // Relaxed: as above.
        assert_eq!(witness.0.load(Ordering::Relaxed), 2);
        court.close(7);
        assert!(court.said(7).is_empty());
    }

    #[test]
    fn what_is_too_long_is_not_kept() {
        let court = Court::default();
        assert!(!court.hear(stall_report(1, &vec![0; WORDS_BYTES_MAX + 1])));
        assert!(court.said(7).is_empty());
    }
}
