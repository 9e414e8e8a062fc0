//! Who is waited for, said once before anything has failed. Pure.

use std::collections::BTreeSet;

use super::judge::{Scene, kept_waiting_by};
use super::verdict::{CallId, ranks, seconds};

/// Shortest wait that is worth a line.
const LEAST_MS: u64 = 1000;
/// How much longer than usual a wait must be.
const TIMES: u64 = 10;

/// Which waits were told of.
#[derive(Debug, Default)]
pub(super) struct Suspects(BTreeSet<CallId>);

/// Waits that are remembered; beyond that no more lines are printed.
const TOLD_MAX: usize = 4096;

impl Suspects {
    /// The longest wait that is much longer than usual and was not told of, and who prints it.
    pub(super) fn look(&mut self, scene: &Scene) -> Option<(u32, String)> {
        let (mut found, mut oldest) = (None, 0);
        for (rank, member) in (0_u32..).zip(&scene.members) {
            let report = member
                .report
                .as_ref()
                .filter(|_| member.silent_ms == 0 && member.fate.is_none());
            for group in report.iter().flat_map(|report| &report.groups) {
                let Some(call) = &group.call else { continue };
                let Some(wait) = call.wait.as_ref().filter(|wait| !wait.missing.is_empty()) else {
                    continue;
                };
                let id = CallId {
                    key: group.key,
                    seq: call.seq,
                };
                let is_new = !self.0.contains(&id) && self.0.len() < TOLD_MAX;
                let threshold = group.p99_ms.saturating_mul(TIMES).max(LEAST_MS);
                if is_new && call.age_ms >= threshold && call.age_ms > oldest {
                    oldest = call.age_ms;
                    let ends = kept_waiting_by(scene, rank, id);
                    let whom = if ends.is_empty() {
                        &wait.missing
                    } else {
                        &ends
                    };
                    let line = format!(
                        "SUSPECT {}: waited for by rank {rank} in {} #{} on {}{} ({}) for {}; not failed so far",
                        ranks(whom),
                        call.call.name(),
                        call.seq,
                        group.name,
                        call.call.details(),
                        call.site,
                        seconds(call.age_ms)
                    );
                    found = Some((id, rank, line));
                }
            }
        }
        let (id, rank, line) = found?;
        self.0.insert(id);
        Some((rank, line))
    }
}
