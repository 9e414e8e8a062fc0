//! Who is waited for, said once before anything has failed. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use super::judge::{Scene, kept_waiting_by};
use super::report::{GroupState, InFlight};
use crate::error::verdict::{CallId, ranks, seconds};

/// Shortest wait that is worth a line in programs of ours.
const LEAST_MS: u64 = 1000;
/// How much longer than usual a wait must be.
const TIMES: u64 = 10;

/// How long it is not said again that ranks are starved, by one arbiter or by the owner of several worlds.
pub const STARVED_EVERY: Duration = Duration::from_secs(3600);

/// What was told so far.
#[derive(Debug)]
pub(super) struct Suspects {
    /// Shortest wait that is worth a line, in milliseconds.
    pub(super) least_ms: u64,
    /// Of each group. Calls that were told of and then ended well say that the group is slow by right: each line doubles the
    /// wait from which the group gets the next one.
    told: BTreeMap<u64, Told>,
    /// When it was said that ranks are starved.
    starved_ms: Option<u64>,
}

impl Default for Suspects {
    fn default() -> Self {
        Self {
            least_ms: LEAST_MS,
            told: BTreeMap::new(),
            starved_ms: None,
        }
    }
}

#[derive(Debug)]
struct Told {
    /// The last call.
    seq: u64,
    lines: u32,
}

/// A line to print before anything has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Remark {
    /// Who prints it: the rank that waits.
    pub(super) told_to: u32,
    /// Who is waited for, where one of them is to blame.
    pub(super) suspects: Vec<u32>,
    pub(super) line: String,
}

/// A wait that is worth a line.
struct Found<'a> {
    rank: u32,
    id: CallId,
    group: &'a GroupState,
    call: &'a InFlight,
    whom: Vec<u32>,
}

/// Groups that are remembered; beyond that no more lines are printed.
const GROUPS_MAX: usize = 4096;
/// Doublings of the wait that is worth a line; by then it is hours.
const DOUBLINGS_MAX: u32 = 12;

impl Suspects {
    /// What is to be said of the longest wait that is much longer than usual and was not told of.
    pub(super) fn look(&mut self, scene: &Scene, now_ms: u64) -> Option<Remark> {
        let found = self.longest(scene)?;
        let told = self.told.entry(found.id.key);
        let told = told.or_insert(Told { seq: 0, lines: 0 });
        told.seq = found.id.seq;
        told.lines = told.lines.saturating_add(1);
        if let Some(line) = scene.describe_starvation() {
            // Who gets no processor is late by right, and so is everybody who waits for it.
            let is_due = |told_ms: u64| now_ms >= told_ms + STARVED_EVERY.as_secs() * 1000;
            if !self.starved_ms.is_none_or(is_due) {
                return None;
            }
            self.starved_ms = Some(now_ms);
            return Some(Remark {
                told_to: found.rank,
                suspects: Vec::new(),
                line,
            });
        }
        let Found {
            rank,
            group,
            call,
            whom,
            ..
        } = found;
        let site = match call.site.as_str() {
            "" => String::new(),
            site => format!(" ({site})"),
        };
        let line = format!(
            "SUSPECT {}: waited for by rank {rank} in {} #{} on {}{}{site} for {}; not failed so far",
            ranks(&whom),
            call.call.name(),
            call.seq,
            group.name,
            call.call.details(),
            seconds(call.age_ms)
        );
        Some(Remark {
            told_to: rank,
            suspects: whom,
            line,
        })
    }

    fn longest<'a>(&self, scene: &'a Scene) -> Option<Found<'a>> {
        let mut found: Option<Found<'a>> = None;
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
                let oldest_ms = found.as_ref().map_or(0, |found| found.call.age_ms);
                if call.age_ms <= oldest_ms || !self.is_worth_a_line(id, group, call) {
                    continue;
                }
                let ends = kept_waiting_by(scene, rank, id);
                found = Some(Found {
                    rank,
                    id,
                    group,
                    call,
                    whom: if ends.is_empty() {
                        wait.missing.clone()
                    } else {
                        ends
                    },
                });
            }
        }
        found
    }

    fn is_worth_a_line(&self, id: CallId, group: &GroupState, call: &InFlight) -> bool {
        let told = self.told.get(&id.key);
        let is_new = match told {
            Some(told) => told.seq != id.seq,
            None => self.told.len() < GROUPS_MAX,
        };
        let lines = told.map_or(0, |told| told.lines);
        let threshold = group.p99_ms.saturating_mul(TIMES).max(self.least_ms);
        is_new && call.age_ms >= threshold.saturating_mul(1 << lines.min(DOUBLINGS_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Collective;
    use crate::watch::judge::{Member, Starvation};
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
        let remark = Suspects::default().look(&scene, 0).unwrap();
        assert_eq!((remark.told_to, remark.suspects), (0, vec![2]));
        let line = remark.line;
        assert!(
            line.starts_with("SUSPECT rank 2: waited for by rank 0"),
            "{line}"
        );
    }

    #[test]
    fn a_wait_is_told_of_once_and_the_next_one_must_last_twice_as_long() {
        let mut suspects = Suspects::default();
        let mut look = |scene: &Scene| suspects.look(scene, 0);
        assert_eq!(look(&scene(1, 999)), None);
        let remark = look(&scene(1, 1000)).unwrap();
        assert_eq!((remark.told_to, remark.suspects), (0, vec![1]));
        let line = remark.line;
        assert!(line.starts_with("SUSPECT rank 1: waited for by rank 0 in barrier #1 on g"));
        assert_eq!(look(&scene(1, 60_000)), None);
        assert_eq!(look(&scene(2, 1999)), None);
        assert!(look(&scene(2, 2000)).is_some());
        assert_eq!(look(&scene(3, 3999)), None);
        assert!(look(&scene(3, 4000)).is_some());
    }

    #[test]
    fn a_starved_host_is_told_once_instead_of_its_ranks() {
        let mut suspects = Suspects::default();
        let starved = |seq, age_ms| {
            let mut scene = scene(seq, age_ms);
            scene.members[1].starvation = Some(Starvation {
                window_ms: 10_000,
                ran_ms: 40,
                delayed_ms: 9000,
                ..Starvation::default()
            });
            scene
        };
        let remark = suspects.look(&starved(1, 1000), 5000).unwrap();
        assert!(remark.suspects.is_empty());
        assert!(remark.line.starts_with("STARVED rank 1"), "{}", remark.line);
        assert_eq!(suspects.look(&starved(2, 9000), 9000), None);
        assert!(
            suspects
                .look(&starved(3, 9000), 5000 + (STARVED_EVERY.as_secs() * 1000))
                .is_some()
        );
    }
}
