//! The control plane, as a communicator sees it.
//!
//! Two implementations, both of `world`: one for ranks that are processes, one for ranks that are threads of one process.

use std::fmt::Debug;

use super::stall_report::StallReport;
use super::status::Notice;
use crate::watch::wire::FromRank;

/// What a communicator asks of the control plane. None of these calls waits for another rank.
pub(crate) trait Control: Debug + Send + Sync {
    /// Tells every other rank that a group was given up.
    fn give_up(&self, notice: &Notice);
    /// Says something to the arbiter. What it finds comes to `Status`; `false` where there is none.
    fn complain(&self, complaint: &FromRank) -> bool;
    /// Tells every other rank what this one has to say about a call that did not end.
    fn testify(&self, stall_report: &StallReport);
    /// Hands bytes to whoever runs the job.
    fn report(&self, bytes: &[u8]) -> Result<(), String>;
    /// Says goodbye. Returns whether the other ranks know of it.
    fn leave(&self) -> bool;
}
