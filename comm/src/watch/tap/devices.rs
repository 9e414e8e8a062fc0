//! Verdicts on calls that contradict each other, and on errors that devices report.
//!
//! - TAP-8: an error of a device is told as what it is, unless a process of the job had ended before: that may be why.

use std::collections::BTreeMap;

use super::scene::{Members, Watched};
use super::snapshot::{Call, DeviceError, Group};
use super::view::{name, site};
use crate::error::ErrorKind;
use crate::error::verdict::Verdict;
use crate::types::Rank;
use crate::vendor;
use crate::watch::judge::Scene;
use crate::watch::judge::device::{Ask, Case, Deed, Stage, Words, is_grave, mismatch};

/// The calls of a job on devices at one moment.
pub(super) struct Devices<'a> {
    pub(super) scene: &'a Scene,
    pub(super) seen: &'a [Watched],
    /// The world rank of each of these processes.
    pub(super) numbers: &'a [u32],
    pub(super) members: &'a Members,
    pub(super) now_ns: u64,
    pub(super) wall_ms: u64,
}

impl Devices<'_> {
    /// The verdict on calls of one number that contradict each other.
    pub(super) fn differing(&self) -> Option<Verdict> {
        for (key, all) in self.members {
            let groups = self.groups(*key, all);
            let mut of_seq: BTreeMap<u64, Vec<(usize, &Call)>> = BTreeMap::new();
            for (at, group) in groups.iter().enumerate() {
                let group = group.iter().filter(|group| !group.is_gone);
                let calls = group.flat_map(|group| &group.calls);
                for call in calls.filter(|call| !call.is_message() && call.result == 0) {
                    of_seq.entry(call.seq).or_default().push((at, call));
                }
            }
            for calls in of_seq.into_values() {
                if calls.iter().any(|(_, call)| call.is_complete) {
                    continue;
                }
                let asks: Vec<(Rank, Ask)> = calls
                    .iter()
                    .filter_map(|(at, call)| Some((Rank(all[*at]?), ask(call)?)))
                    .collect();
                let asks: Vec<(Rank, &Ask)> = asks.iter().map(|(rank, ask)| (*rank, ask)).collect();
                if mismatch(&asks).is_none() {
                    continue;
                }
                let said: Vec<Option<Words>> = (0..all.len())
                    .map(|at| {
                        let call = calls
                            .iter()
                            .find(|(of, _)| *of == at)
                            .map(|(_, call)| *call);
                        Some(self.words(call?))
                    })
                    .collect();
                return self.case(*key, all, &groups, &said);
            }
        }
        None
    }

    /// The verdict on errors that devices reported at least so many milliseconds ago: by then the others have reported theirs.
    pub(super) fn broken(&self, after_ms: u64) -> Option<Verdict> {
        let errors = self.seen.iter().map(|one| self.error_of(one));
        let errors: Vec<Option<(&DeviceError, ErrorKind)>> = errors.collect();
        let first = (0..)
            .zip(&errors)
            .filter_map(|(at, error)| Some((at, error.as_ref()?.0)));
        let (at, error) = first.min_by_key(|(_, error)| error.seen_ns)?;
        if self.now_ns.saturating_sub(error.seen_ns) / 1_000_000 < after_ms {
            return None;
        }
        let groups = &self.seen[at].process.groups;
        // The device does not say in which call; those after it have failed too.
        let last_call = |group: &&Group| group.calls.last().map(|call| call.order);
        let latest = || groups.iter().max_by_key(last_call).map(|group| group.key);
        let key = error.key.or_else(latest)?;
        let all = self.members.get(&key)?;
        let groups = self.groups(key, all);
        let said = all.iter().zip(&groups).map(|(member, group)| {
            let at = self
                .numbers
                .iter()
                .position(|number| Some(*number) == *member)?;
            let call =
                group.and_then(|group| group.calls.iter().rev().find(|call| !call.is_message()));
            let fault = errors[at].as_ref().map(|(error, kind)| {
                let age_ms = self.now_ns.saturating_sub(error.seen_ns) / 1_000_000;
                (kind.clone(), age_ms)
            });
            let words = call.map_or_else(Words::default, |call| self.words(call));
            Some(Words { fault, ..words })
        });
        let said: Vec<Option<Words>> = said.collect();
        self.case(key, all, &groups, &said)
    }

    /// The error of a process's device that may be a cause.
    fn error_of<'a>(&self, one: &'a Watched) -> Option<(&'a DeviceError, ErrorKind)> {
        let error = one.process.error.as_ref()?;
        let had_ended = |other: &Watched| {
            !other.is_done()
                && other
                    .end
                    .as_ref()
                    .is_some_and(|end| end.seen_ns < error.seen_ns)
        };
        let call = match error.key {
            Some(_) => "the communicator",
            None => "a call on the device",
        };
        let kind = ErrorKind::Vendor {
            call: call.to_owned(),
            code: error.code,
            name: vendor::name_of(error.code).to_owned(),
            detail: String::new(),
        };
        (is_grave(&kind) && !self.seen.iter().any(had_ended)).then_some((error, kind))
    }

    /// The group of each member, where it is known.
    fn groups(&self, key: u64, all: &[Option<u32>]) -> Vec<Option<&Group>> {
        let group_of = |member: &Option<u32>| {
            let at = self
                .numbers
                .iter()
                .position(|number| Some(*number) == *member)?;
            let mut groups = self.seen[at].process.groups.iter();
            groups.find(|group| group.key == key)
        };
        all.iter().map(group_of).collect()
    }

    /// `None` where a member is not known.
    fn case(
        &self,
        key: u64,
        all: &[Option<u32>],
        groups: &[Option<&Group>],
        said: &[Option<Words>],
    ) -> Option<Verdict> {
        let ranks: Option<Vec<Rank>> = all.iter().map(|member| member.map(Rank)).collect();
        let first = groups.iter().flatten().next();
        let name = first.map_or_else(String::new, |group| name(group));
        let case = Case {
            scene: self.scene,
            group: &name,
            on_device: &name,
            key,
            members: &ranks?,
            said,
        };
        Some(case.judge())
    }

    fn words(&self, call: &Call) -> Words {
        let age_ms = self.now_ns.saturating_sub(call.entered_ns) / 1_000_000;
        let deed = ask(call).map(|ask| Deed {
            seq: call.seq,
            ask,
            site: site(call),
            age_ms,
            stage: Stage::Enqueued,
        });
        Words {
            wall_ms: self.wall_ms,
            made: call.seq,
            deeds: deed.into_iter().collect(),
            ..Words::default()
        }
    }
}

fn ask(call: &Call) -> Option<Ask> {
    Some(Ask {
        collective: call.code.collective()?,
        dtype: call.code.dtype(),
        count: call.code.count,
        op: call.code.op(),
        root: call.root,
    })
}
