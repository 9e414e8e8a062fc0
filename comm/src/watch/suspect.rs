//! Who is waited for, said once before anything has failed. Pure.

use std::collections::BTreeMap;

use super::judge::{Scene, kept_waiting_by};
use super::verdict::{CallId, ranks, seconds};

/// Shortest wait that is worth a line.
const LEAST_MS: u64 = 1000;
/// How much longer than usual a wait must be.
const TIMES: u64 = 10;

/// What was told of each group. Calls that were told of and then ended well say that the group is slow by
/// right: each line makes the next wait that is worth one twice as long.
#[derive(Debug, Default)]
pub(super) struct Suspects(BTreeMap<u64, Told>);

#[derive(Debug)]
struct Told {
    /// The last call.
    seq: u64,
    lines: u32,
}

/// Groups that are remembered; beyond that no more lines are printed.
const GROUPS_MAX: usize = 4096;
/// Doublings of the wait that is worth a line; by then it is hours.
const DOUBLINGS_MAX: u32 = 12;

impl Suspects {
    /// The longest wait that is much longer than usual and was not told of: who waits, and prints it; for whom;
    /// and the line.
    pub(super) fn look(&mut self, scene: &Scene) -> Option<(u32, Vec<u32>, String)> {
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
                let told = self.0.get(&id.key);
                let is_new = match told {
                    Some(told) => told.seq != id.seq,
                    None => self.0.len() < GROUPS_MAX,
                };
                let lines = told.map_or(0, |told| told.lines);
                let threshold = group.p99_ms.saturating_mul(TIMES).max(LEAST_MS);
                let threshold = threshold.saturating_mul(1 << lines.min(DOUBLINGS_MAX));
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
                    found = Some((id, rank, whom.clone(), line));
                }
            }
        }
        let (id, rank, whom, line) = found?;
        let told = self.0.entry(id.key).or_insert(Told { seq: 0, lines: 0 });
        told.seq = id.seq;
        told.lines = told.lines.saturating_add(1);
        Some((rank, whom, line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Collective;
    use crate::watch::judge::Member;
    use crate::watch::report::{CallCode, GroupState, InFlight, Report, Wait};

    /// A group of this key in whose call its rank has waited for another one for so long.
    fn waiting(key: u64, seq: u64, missing: u32, age_ms: u64) -> GroupState {
        let call = InFlight {
            seq,
            call: CallCode {
                word: Collective::Barrier as u64,
                count: 0,
            },
            site: "x.rs:8".to_owned(),
            age_ms,
            wait: Some(Wait {
                missing: vec![missing],
                checks: 1,
                age_ms,
                ..Wait::default()
            }),
            ..InFlight::default()
        };
        GroupState {
            key,
            name: "g".to_owned(),
            entered: seq,
            thread: 1,
            call: Some(call),
            ..GroupState::default()
        }
    }

    fn member(groups: Vec<GroupState>) -> Member {
        Member {
            report: Some(Report {
                groups,
                threads: 1,
                ..Report::default()
            }),
            ..Member::default()
        }
    }

    /// Rank 0 has waited for rank 1 in this call for so long.
    fn scene(seq: u64, age_ms: u64) -> Scene {
        Scene {
            members: vec![member(vec![waiting(9, seq, 1, age_ms)]), Member::default()],
        }
    }

    #[test]
    fn whom_all_wait_for_is_named_and_not_who_waits_itself() {
        let idle = GroupState {
            key: 8,
            thread: 1,
            ..GroupState::default()
        };
        let scene = Scene {
            members: vec![
                member(vec![waiting(9, 3, 1, 5000)]),
                member(vec![waiting(8, 5, 2, 4000)]),
                member(vec![idle]),
            ],
        };
        let (by, whom, line) = Suspects::default().look(&scene).unwrap();
        assert_eq!((by, whom), (0, vec![2]));
        assert!(
            line.starts_with("SUSPECT rank 2: waited for by rank 0"),
            "{line}"
        );
    }

    #[test]
    fn a_wait_is_told_of_once_and_the_next_one_must_last_twice_as_long() {
        let mut suspects = Suspects::default();
        assert_eq!(suspects.look(&scene(1, 999)), None);
        let (by, whom, line) = suspects.look(&scene(1, 1000)).unwrap();
        assert_eq!((by, whom), (0, vec![1]));
        assert!(line.starts_with("SUSPECT rank 1: waited for by rank 0 in barrier #1 on g"));
        assert_eq!(suspects.look(&scene(1, 60_000)), None);
        assert_eq!(suspects.look(&scene(2, 1999)), None);
        assert!(suspects.look(&scene(2, 2000)).is_some());
        assert_eq!(suspects.look(&scene(3, 3999)), None);
        assert!(suspects.look(&scene(3, 4000)).is_some());
    }
}
