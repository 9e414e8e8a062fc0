//! The control plane of ranks that are threads of one process.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::context::{Control, Gone, Notice, StallReport, Status};
use crate::rendezvous::{Act, Arbiter, Card};
use crate::sync::Clock;
use crate::types::Rank;
use crate::watch::probe::{Probe as _, System};
use crate::watch::wire::{self, FromRank};
use crate::watch::{Mode, Watch, arbiter, process};

/// The control plane of ranks that are threads of one process: direct calls.
#[derive(Debug)]
pub(crate) struct Hub {
    statuses: Vec<Arc<Status>>,
    watches: Vec<Arc<Watch>>,
    /// The arbiter works on the thread that complains.
    arbiter: Mutex<Box<dyn Arbiter>>,
    born: Instant,
}

impl Hub {
    pub(crate) fn new(world_size: usize, mode: Mode) -> Arc<Self> {
        let watch = |rank| Watch::new(Rank::from_index(rank), world_size, 0, mode, (None, None));
        let mut arbiter = arbiter::arbiter();
        let card = Card {
            process: process::own(),
            ..Card::default()
        };
        arbiter.ready(&vec![card; world_size]);
        Arc::new(Self {
            statuses: (0..world_size).map(|_| Arc::default()).collect(),
            watches: (0..world_size).map(watch).collect(),
            arbiter: Mutex::new(arbiter),
            born: Clock::now(),
        })
    }

    pub(crate) fn watch(&self, rank: Rank) -> Arc<Watch> {
        Arc::clone(&self.watches[rank.index()])
    }

    /// Lets the arbiter act, and does what it wants, until it wants nothing more.
    fn arbitrate(&self, work: impl FnOnce(&mut dyn Arbiter, u64) -> Vec<Act>) {
        let mut arbiter = self.arbiter.lock().unwrap_or_else(PoisonError::into_inner);
        let now_ms = || u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut open: VecDeque<Act> = work(&mut **arbiter, now_ms()).into();
        loop {
            let Some(act) = open.pop_front() else {
                open.extend(arbiter.tick(now_ms()));
                if open.is_empty() {
                    return;
                }
                continue;
            };
            match act {
                // A world of threads has no owner beside its ranks, and all of them answer.
                Act::Ended(_) | Act::Look(_) | Act::Post(..) | Act::Report(_) => {}
                Act::Tell(rank, bytes) => {
                    if let Some(answer) = self.hear(rank.index(), &bytes) {
                        open.extend(arbiter.heard(rank, &answer, now_ms()));
                    }
                }
                Act::TellAll(bytes) => {
                    for rank in 0..self.watches.len() {
                        // Only questions are answered, and those are told one by one.
                        let _ = self.hear(rank, &bytes);
                    }
                }
            }
        }
    }

    /// A rank hears what the arbiter says, and answers.
    fn hear(&self, rank: usize, bytes: &[u8]) -> Option<Vec<u8>> {
        let status = &self.statuses[rank];
        self.watches[rank].hear(bytes, |verdict, say| {
            status.set_verdict(verdict, System.now_ms(), say);
        })
    }

    pub(crate) fn status(&self, rank: Rank) -> Arc<Status> {
        Arc::clone(&self.statuses[rank.index()])
    }

    /// Records that a rank is gone, for all others.
    pub(crate) fn set_gone(&self, rank: Rank, gone: &Gone) {
        self.arbitrate(|arbiter, now_ms| {
            match &gone.reason {
                None => arbiter.left(rank),
                Some(reason) => arbiter.down(rank, reason, now_ms),
            }
            Vec::new()
        });
        for (other, status) in self.statuses.iter().enumerate() {
            if other != rank.index() {
                status.set_gone(rank, gone.clone());
            }
        }
    }
}

/// One thread's place at the hub.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) hub: Arc<Hub>,
    pub(crate) rank: Rank,
}

impl Control for Seat {
    fn give_up(&self, notice: &Notice) {
        for (other, status) in self.hub.statuses.iter().enumerate() {
            if other != self.rank.index() {
                status.set_notice(notice.clone());
            }
        }
    }

    fn complain(&self, complaint: &FromRank) -> bool {
        let bytes = wire::encode(complaint);
        self.hub
            .arbitrate(|arbiter, now_ms| arbiter.heard(self.rank, &bytes, now_ms));
        true
    }

    fn testify(&self, stall_report: &StallReport) {
        for (other, status) in self.hub.statuses.iter().enumerate() {
            if other != self.rank.index() {
                status.set_testimony(stall_report.clone());
            }
        }
    }

    fn report(&self, _bytes: &[u8]) -> Result<(), String> {
        Err("ranks that are threads have no launcher to report to".to_owned())
    }

    fn leave(&self) -> bool {
        self.hub.set_gone(self.rank, &Gone::left());
        true
    }
}
