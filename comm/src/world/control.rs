//! The control plane as a communicator sees it, and its in-process form.
//!
//! Two implementations: `rendezvous::Session` for ranks that are processes (in `join`), and the
//! [`Hub`] here for ranks that are threads of one process.

use std::fmt::Debug;
use std::sync::Arc;

use super::status::{Gone, Notice, Status};
use super::testimony::Testimony;
use crate::types::Rank;

/// What a communicator asks of the control plane. None of these calls waits for another rank.
pub(crate) trait Control: Debug + Send + Sync {
    /// Tells every other rank that a group was given up.
    fn give_up(&self, notice: &Notice);
    /// Tells every other rank what this one has to say about a call that did not end.
    fn testify(&self, testimony: &Testimony);
    /// Hands bytes to whoever runs the job.
    fn report(&self, bytes: &[u8]) -> Result<(), String>;
    /// Says goodbye.
    fn leave(&self);
}

/// The control plane of ranks that are threads of one process: direct calls.
#[derive(Debug)]
pub(crate) struct Hub {
    statuses: Vec<Arc<Status>>,
}

impl Hub {
    pub(crate) fn new(world_size: usize) -> Arc<Self> {
        let statuses = (0..world_size).map(|_| Arc::default()).collect();
        Arc::new(Self { statuses })
    }

    pub(crate) fn status(&self, rank: Rank) -> Arc<Status> {
        Arc::clone(&self.statuses[rank.index()])
    }

    /// Records that a rank is gone, for all others.
    pub(crate) fn set_gone(&self, rank: Rank, gone: &Gone) {
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

    fn testify(&self, testimony: &Testimony) {
        for (other, status) in self.hub.statuses.iter().enumerate() {
            if other != self.rank.index() {
                status.set_testimony(testimony.clone());
            }
        }
    }

    fn report(&self, _bytes: &[u8]) -> Result<(), String> {
        Err("ranks that are threads have no launcher to report to".to_owned())
    }

    fn leave(&self) {
        self.hub.set_gone(
            self.rank,
            &Gone {
                how: "left the world".to_owned(),
                orderly: true,
            },
        );
    }
}
