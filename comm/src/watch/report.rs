//! What a rank says of itself: plain data, for the judge, for dumps and for the wire.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use super::process::ProcessFacts;
use crate::error::verdict::CallId;
use crate::types::{Collective, DType, ReduceOp};

/// Version of this document; a field that changes its meaning moves it.
pub const REPORT_VERSION: u32 = 2;

/// By how much the end of a call may be told too early or too late against those of others: the ticks of the
/// coarse clock, 10 ms at most.
const COARSE_NS: u64 = 10_000_000;

/// Destroyed groups that a report tells of.
pub(super) const DESTROYED_MAX: usize = 32;
/// Calls of each group that a report has, where it is to have the last calls of a rank: another group may have had many since.
const OF_GROUP_MAX: usize = 8;

/// Chooses the calls of a report, which are offered from the newest on: the last `most` of the rank, and the last of each group.
#[derive(Debug)]
pub(super) struct LastCalls {
    most: usize,
    offered: usize,
    of_group: HashMap<u64, usize>,
}

impl LastCalls {
    pub(super) fn of(most: usize) -> Self {
        Self {
            most,
            offered: 0,
            of_group: HashMap::new(),
        }
    }

    /// Whether the next older call, which is one of this group, belongs into the report.
    pub(super) fn takes(&mut self, key: u64) -> bool {
        self.offered += 1;
        let of_group = self.of_group.entry(key).or_default();
        *of_group += 1;
        self.offered <= self.most || self.most > 0 && *of_group <= OF_GROUP_MAX
    }
}

/// One rank at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// [`REPORT_VERSION`].
    pub version: u32,
    /// World rank.
    pub rank: u32,
    /// Ranks of its world.
    pub world_size: u32,
    /// Process id, as its host numbers it.
    pub pid: u32,
    /// Wall clock when this was taken, in milliseconds since 1970.
    pub wall_ms: u64,
    /// Threads of the rank that have made calls.
    pub threads: u32,
    /// Communicators beyond the board's capacity: nothing is known of them.
    pub unwatched: u64,
    /// Its communicators.
    pub groups: Vec<GroupState>,
    /// Communicators that it has destroyed, as far back as its board remembers.
    #[serde(default)]
    pub destroyed: Vec<Destroyed>,
    /// Its last calls, oldest first.
    pub calls: Vec<CallRecord>,
    /// Its process, where somebody has looked at it from outside.
    #[serde(default)]
    pub process: Option<ProcessFacts>,
    /// Where the thread was that others waited for, where it was asked: functions, the innermost first.
    #[serde(default)]
    pub stack: Vec<String>,
    /// Variables that its process was started with, where this was written into a dump. As every field it is never
    /// skipped: on the wire fields have no names.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
}

/// A communicator that a rank has destroyed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Destroyed {
    /// Key of the group.
    pub key: u64,
    /// Name of the group.
    pub name: String,
    /// Number of the last collective that the rank entered on it; 0 where there is none.
    pub entered: u64,
    /// How many calls of it have ended on the rank, messages among them.
    #[serde(default)]
    pub calls: u64,
    /// How long ago it was destroyed, in milliseconds.
    pub age_ms: u64,
}

/// One communicator of a rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupState {
    /// The same for all members of one group in one life, different for every other group.
    pub key: u64,
    /// Name of the group.
    pub name: String,
    /// World ranks in order; shorter than `size` where not all are known (see [`GroupState::names_all`]).
    #[serde(with = "super::runs")]
    pub members: Vec<u32>,
    /// Number of members.
    pub size: u32,
    /// Number of the last collective that the rank has entered; 0 where there is none.
    pub entered: u64,
    /// The thread that used the communicator last (a number within the rank, from 1), or made it.
    pub thread: u32,
    /// The thread that waits for the asynchronous calls of the communicator; 0 where none does.
    #[serde(default)]
    pub awaited_by: u32,
    /// Asynchronous calls that were started and have not ended, the one under way included.
    #[serde(default)]
    pub pending: u32,
    /// Moves with every change, so that two equal ones say that nothing happened between them.
    pub version: u64,
    /// Below which time 99 of 100 calls stayed, in milliseconds, as a coarse bound from above; 0 while
    /// there were too few.
    pub p99_ms: u64,
    /// Why the program has cancelled its calls here, where it has. Not where the board was read from outside.
    #[serde(default)]
    pub cancelled: Option<String>,
    /// The call under way, if there is one.
    pub call: Option<InFlight>,
}

/// A call under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InFlight {
    /// Number of the call on its group.
    pub seq: u64,
    /// What it is.
    pub call: CallCode,
    /// Where the program made it: `file:line`.
    pub site: String,
    /// How long ago it began, in milliseconds.
    pub age_ms: u64,
    /// The counts that it was called with, one a member, those to be sent before those to be received.
    /// Only of calls that travel as messages, and not where the board was read from outside.
    #[serde(default)]
    pub row: Vec<u64>,
    /// A worker makes it, on behalf of a thread that may do other things meanwhile.
    #[serde(default)]
    pub is_async: bool,
    /// Whom it waits for, once it has waited for a while.
    pub wait: Option<Wait>,
}

/// A wait that has lasted for a while.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// World ranks that it is for.
    #[serde(with = "super::runs")]
    pub missing: Vec<u32>,
    /// How many ranks it is for besides, which are not known: who reads this must not take `missing` for all.
    #[serde(default)]
    pub missing_more: u32,
    /// How often the waiting thread has looked, in vain, since it began: it is alive where this
    /// grows.
    pub checks: u64,
    /// How long it has lasted, in milliseconds.
    pub age_ms: u64,
}

/// A call of the past, or one under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallRecord {
    /// Number among all calls of the rank, from 0.
    pub id: u64,
    /// Key of the group.
    pub key: u64,
    /// Name of the group, where it is still known.
    pub group: String,
    /// Number of the call on its group.
    pub seq: u64,
    /// What it is.
    pub call: CallCode,
    /// Where the program made it: `file:line`.
    pub site: String,
    /// The thread that made it, a number within the rank from 1.
    pub thread: u32,
    /// When the program made it, in nanoseconds of the host's monotonic clock.
    pub enqueued_ns: u64,
    /// When it began, the same way.
    pub started_ns: u64,
    /// When it ended, to the 4 ms of the coarse clock.
    pub completed_ns: Option<u64>,
    /// How it ended.
    pub outcome: CallOutcome,
    /// A worker made it.
    #[serde(default)]
    pub is_async: bool,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallOutcome {
    /// It has not.
    #[default]
    Open,
    /// Well.
    Completed,
    /// With an error.
    Failed,
}

/// What a call is, in one word and a count: as it stands on the board.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CallCode {
    /// Collective, element type, reduction and root plus one: bytes 0, 1, 2 and 4 to 7.
    pub word: u64,
    /// Elements, as the collective counts them.
    pub count: u64,
}

impl GroupState {
    /// Whether `members` has all members. A board that was read from outside has no room for a list of
    /// many ranks without order.
    #[must_use]
    pub fn names_all(&self) -> bool {
        crate::types::index(u64::from(self.size)) == self.members.len()
    }

    /// Whether this group plainly has other members.
    pub(super) fn differs(&self, other: &Self) -> bool {
        self.size != other.size
            || (self.names_all() && other.names_all() && self.members != other.members)
    }
}

impl CallCode {
    fn byte(self, at: u32) -> u8 {
        (self.word >> at).to_le_bytes()[0]
    }

    /// The collective.
    #[must_use]
    pub fn collective(self) -> Option<Collective> {
        Collective::from_code(self.byte(0))
    }

    /// Whether nobody ends this call without the part of every other rank, as far as the board shows it.
    pub(super) fn needs_everybody(self) -> bool {
        self.collective()
            .is_some_and(|collective| collective.needs_everybody_with(self.count))
    }

    /// The element type, where the call has one.
    #[must_use]
    pub fn dtype(self) -> Option<DType> {
        DType::from_code(self.byte(8))
    }

    /// The reduction, where the call has one.
    #[must_use]
    pub fn op(self) -> Option<ReduceOp> {
        ReduceOp::from_code(self.byte(16))
    }

    /// Index of the root in the group, where the call has one.
    #[must_use]
    pub fn root(self) -> Option<u64> {
        (self.word >> 32).checked_sub(1)
    }

    /// Whether it goes between two ranks rather than through the whole group.
    #[must_use]
    pub fn is_point_to_point(self) -> bool {
        self.collective().is_some_and(Collective::is_of_messages)
    }

    /// Name of the collective.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.collective().map_or("call", Collective::name)
    }

    /// What follows the group in the verdict's grammar: ` f32[1024] sum root 0`.
    #[must_use]
    pub fn details(self) -> String {
        let mut text = String::new();
        if let Some(dtype) = self.dtype()
            && !self.collective().is_some_and(Collective::is_empty)
        {
            text = format!(" {}[{}]", dtype.name(), self.count);
        }
        if let Some(op) = self.op() {
            text = format!("{text} {}", op.name());
        }
        match self.root() {
            Some(root) => format!("{text} root {root}"),
            None => text,
        }
    }
}

impl Report {
    /// The state of a group, if the rank has it.
    #[must_use]
    pub fn group(&self, key: u64) -> Option<&GroupState> {
        self.groups.iter().find(|group| group.key == key)
    }

    /// A call that is under way on the rank.
    #[must_use]
    pub fn under_way(&self, call: CallId) -> Option<&InFlight> {
        let group = self.group(call.key)?;
        group.call.as_ref().filter(|one| one.seq == call.seq)
    }

    /// Whether the rank is in this call and waits.
    pub(super) fn waits_in(&self, call: CallId) -> bool {
        self.under_way(call).is_some_and(|one| one.wait.is_some())
    }

    /// Takes over from an earlier report the groups of these calls where only that one shows that the rank waits in them: a line
    /// that was just being written hides a call.
    pub(super) fn keep_waits(&mut self, earlier: &Self, calls: impl Iterator<Item = CallId>) {
        for call in calls.filter(|call| earlier.waits_in(*call)) {
            if !self.waits_in(call)
                && let Some(group) = earlier.group(call.key)
            {
                self.groups.retain(|one| one.key != call.key);
                self.groups.push(group.clone());
            }
        }
    }

    /// Leaves only the last calls: `most` of the rank, and some of each group.
    pub(super) fn keep_last_calls(&mut self, most: usize) {
        let mut last = LastCalls::of(most);
        self.calls.reverse();
        self.calls.retain(|call| last.takes(call.key));
        self.calls.reverse();
    }

    /// What is remembered of a group that the rank has destroyed.
    #[must_use]
    pub fn destroyed(&self, key: u64) -> Option<&Destroyed> {
        self.destroyed.iter().find(|group| group.key == key)
    }

    /// The call that was completed last, if any was; of those that the clock cannot tell apart, the one that
    /// began last.
    #[must_use]
    pub fn last_completed(&self) -> Option<&CallRecord> {
        let completed = || {
            let is_completed = |call: &&CallRecord| call.outcome == CallOutcome::Completed;
            self.calls.iter().filter(is_completed)
        };
        let latest_ns = completed().filter_map(|call| call.completed_ns).max()?;
        completed()
            .filter(|call| {
                let ended = call.completed_ns;
                ended.is_some_and(|ended| ended.saturating_add(COARSE_NS) >= latest_ns)
            })
            .max_by_key(|call| call.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_call_with_elements_of_every_rank_needs_everybody() {
        let needs = |collective: Collective, count| {
            let word = collective as u64;
            CallCode { word, count }.needs_everybody()
        };
        assert!(needs(Collective::AllReduce, 8));
        assert!(!needs(Collective::AllReduce, 0));
        assert!(needs(Collective::Barrier, 0));
        assert!(needs(Collective::AllGatherObject, 0));
        assert!(!needs(Collective::AllToAllV, 8));
        assert!(!needs(Collective::Broadcast, 8));
    }

    #[test]
    fn a_code_says_what_the_call_is() {
        let word = Collective::Reduce as u64
            | (DType::F32 as u64) << 8
            | (ReduceOp::Max as u64) << 16
            | 4 << 32;
        let code = CallCode { word, count: 12 };
        assert_eq!(
            (code.name(), code.details().as_str()),
            ("reduce", " f32[12] max root 3")
        );
        let word = Collective::Barrier as u64;
        assert_eq!(CallCode { word, count: 0 }.details(), "");
        assert!(!code.is_point_to_point());
        assert_eq!(
            CallCode {
                word: 250,
                count: 0
            }
            .name(),
            "call"
        );
    }

    #[test]
    fn the_last_call_is_the_one_that_began_last_where_the_coarse_clock_cannot_tell() {
        let report = |ends: &[(u64, u64)]| Report {
            calls: ends
                .iter()
                .map(|(id, completed_ms)| CallRecord {
                    id: *id,
                    completed_ns: Some(completed_ms * 1_000_000),
                    outcome: CallOutcome::Completed,
                    ..CallRecord::default()
                })
                .collect(),
            ..Report::default()
        };
        let last = |ends: &[(u64, u64)]| report(ends).last_completed().map(|call| call.id);
        assert_eq!(last(&[]), None);
        // A call that waited has an end from the fine clock, the next one from the coarse clock.
        assert_eq!(last(&[(1, 500), (2, 507), (3, 504)]), Some(3));
        // An asynchronous call that began first and ended long after.
        assert_eq!(last(&[(1, 900), (2, 507)]), Some(1));
    }
}
