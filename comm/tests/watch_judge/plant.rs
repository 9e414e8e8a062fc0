//! Scenes to plant.

use muster_comm::error::verdict::{CallId, Class, Confidence, Verdict};
use muster_comm::watch::judge::{EndCause, Fate, Finding, Member, Question, Scene, judge};
use muster_comm::watch::report::{CallCode, GroupState, InFlight, Report, Wait};

const ALL_REDUCE: u64 = 4;
pub(crate) const RECV: u64 = 13;
pub(crate) const SEND: u64 = 20;
pub(crate) const RECV_ANY: u64 = 25;

/// A world of ranks that run code of their own, with groups as they are added.
pub(crate) struct Plant {
    pub(crate) scene: Scene,
}

impl Plant {
    pub(crate) fn new(ranks: u32) -> Self {
        let member = |rank| Member {
            host: "n1".to_owned(),
            pid: 1000 + rank,
            report: Some(Report {
                rank,
                world_size: ranks,
                threads: 1,
                wall_ms: 100_000,
                ..Report::default()
            }),
            ..Member::default()
        };
        Self {
            scene: Scene {
                members: (0..ranks).map(member).collect(),
            },
        }
    }

    pub(crate) fn report(&mut self, rank: u32) -> &mut Report {
        let member = &mut self.scene.members[rank as usize];
        member.report.as_mut().expect("planted")
    }

    /// All members have the group and have entered this many calls.
    pub(crate) fn group(&mut self, key: u64, name: &str, members: &[u32], entered: u64) {
        for rank in members {
            self.report(*rank).groups.push(GroupState {
                key,
                name: name.to_owned(),
                members: members.to_vec(),
                size: u32::try_from(members.len()).expect("small"),
                entered,
                thread: 1,
                version: 2,
                ..GroupState::default()
            });
        }
    }

    pub(crate) fn call(&mut self, rank: u32, key: u64, collective: u64, missing: &[u32]) {
        let groups = &mut self.report(rank).groups;
        let group = groups
            .iter_mut()
            .find(|group| group.key == key)
            .expect("planted");
        let is_collective = collective == ALL_REDUCE;
        let seq = group.entered + 1;
        if is_collective {
            group.entered = seq;
        }
        group.version += 2;
        group.call = Some(InFlight {
            seq,
            call: CallCode {
                word: collective,
                count: 8,
            },
            site: format!("train.rs:{key}"),
            age_ms: 2000,
            wait: Some(Wait {
                missing: missing.to_vec(),
                checks: 5,
                age_ms: 1990,
                ..Wait::default()
            }),
            ..InFlight::default()
        });
    }

    pub(crate) fn waits(&mut self, rank: u32, key: u64, missing: &[u32]) {
        self.call(rank, key, ALL_REDUCE, missing);
    }

    /// The scene before this one showed the same, with threads that looked less often.
    pub(crate) fn confirm(&mut self) {
        for member in &mut self.scene.members {
            let mut before = member.report.clone();
            for group in before.iter_mut().flat_map(|report| &mut report.groups) {
                if let Some(wait) = group.call.as_mut().and_then(|call| call.wait.as_mut()) {
                    wait.checks -= 1;
                }
            }
            member.before = before;
        }
    }

    pub(crate) fn fate(&mut self, rank: u32, how: &str, orderly: bool, order: u64) {
        self.scene.members[rank as usize].fate = Some(Fate {
            how: how.to_owned(),
            orderly,
            class: if orderly {
                Class::NotJoined
            } else {
                Class::PeerDead
            },
            confidence: Confidence::Certain,
            evidence: "its process ended".to_owned(),
            cause: if how.contains("killed") {
                EndCause::Unprovoked
            } else {
                EndCause::MayFollow
            },
            order,
            hint: "read its output".to_owned(),
        });
    }

    pub(crate) fn overdue(&self, rank: u32, key: u64) -> Verdict {
        let report = self.scene.members[rank as usize]
            .report
            .as_ref()
            .expect("planted");
        let call = report
            .group(key)
            .and_then(|group| group.call.as_ref())
            .expect("it waits");
        let call = CallId { key, seq: call.seq };
        verdict(judge(&self.scene, Question::Overdue { rank, call }))
    }
}

#[track_caller]
pub(crate) fn verdict(finding: Finding) -> Verdict {
    let Finding::Verdict(verdict) = finding else {
        unreachable!("no verdict: {finding:?}");
    };
    *verdict
}
