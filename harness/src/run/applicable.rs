//! What of a case a device can be asked, and what goes on when it fails.

use std::time::Duration;

use muster_comm::types::{Collective, DType, ReduceOp};

use crate::check::message::Refusal;
use crate::check::subject::Subject;

/// Most elements with which every reduction is tried; above, only the sum is.
const ALL_OPS_COUNT_MAX: usize = 5000;

/// Whether objects still go over the host when a device has failed: they never touch it.
pub(super) fn objects_after(comm: &Subject) -> String {
    /// Ranks learn of the failure within moments of each other, or not at all.
    const PATIENCE: Duration = Duration::from_millis(800);
    let host = comm.host();
    host.set_deadline(PATIENCE);
    match host.all_gather_object(&comm.rank()) {
        Ok(all) => format!(
            "; objects of all {} ranks still went over the host",
            all.len()
        ),
        Err(_) => String::new(),
    }
}

/// The reductions with which a call is checked, and what of it the device does not have.
pub(super) fn applicable(
    comm: &Subject,
    collective: Collective,
    dtype: DType,
    count: usize,
    refused: &mut Vec<Refusal>,
) -> Vec<ReduceOp> {
    let refusal = |op| comm.refusal(collective, dtype, op);
    if !collective.reduces() {
        refused.extend(refusal(None).map(|why| Refusal { op: None, why }));
        return Vec::new();
    }
    let asked: &[ReduceOp] = if count <= ALL_OPS_COUNT_MAX {
        &ReduceOp::OF_NUMBERS
    } else {
        &[ReduceOp::Sum]
    };
    let mut ops = Vec::new();
    for op in asked {
        match refusal(Some(*op)) {
            None => ops.push(*op),
            Some(why) => refused.push(Refusal { op: Some(*op), why }),
        }
    }
    if ops.is_empty() {
        // Nothing of the case is left: one refusal says so.
        refused.truncate(1);
        for refusal in refused.iter_mut() {
            refusal.op = None;
        }
    }
    ops
}
