//! What one rank does: its communicators, as the judge wants them.

use std::collections::HashMap;

use super::board::Mark;
use super::scene::{Members, Watched};
use super::snapshot::{Call, Group, Process};
use crate::types::Collective;
use crate::watch::process::Sight;
use crate::watch::report::{CallCode, CallOutcome, CallRecord};

/// The thread that stands for a program that creates a communicator; streams are numbered from 1.
const CREATING: u32 = u32::MAX;

/// A rank's communicators, as the judge wants them.
pub(super) struct View<'a> {
    pub(super) rank: u32,
    pub(super) process: &'a Process,
    pub(super) groups: Vec<GroupView<'a>>,
    pub(super) streams: Vec<u64>,
    /// Whether a wait of the program on its host was assumed.
    pub(super) is_assumed: bool,
    /// Calls that its device has not begun, for which it waits in no other call.
    pub(super) behind: Vec<Call>,
}

pub(super) struct GroupView<'a> {
    pub(super) group: &'a Group,
    pub(super) name: String,
    pub(super) members: Vec<u32>,
    pub(super) entered: u64,
    pub(super) thread: u32,
    pub(super) head: Option<(u64, CallCode)>,
    pub(super) missing: Vec<u32>,
    pub(super) missing_more: u32,
}

impl GroupView<'_> {
    /// The creation of a communicator is a call on one of its own.
    pub(super) fn key(&self) -> u64 {
        if self.group.is_creating {
            self.group.key ^ u64::MAX
        } else {
            self.group.key
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        self.group.is_gone
    }
}

/// Whether a call is certainly open on this rank, whatever the other members do.
fn is_open(call: &Call, floor: &HashMap<u64, Floor>) -> bool {
    if is_over(call, floor) {
        return false;
    }
    let floor = floor.get(&call.stream).copied().unwrap_or_default();
    call.returned_ns.is_none() || floor.pending.is_some_and(|pending| pending <= call.order)
}

/// Whether a call is known to be over, or was never carried out.
fn is_over(call: &Call, floor: &HashMap<u64, Floor>) -> bool {
    let floor = floor.get(&call.stream).copied().unwrap_or_default();
    let has_failed = call.returned_ns.is_some() && call.result != 0;
    call.is_complete || call.is_captured || has_failed || call.order <= floor.complete
}

/// How far a stream has come.
#[derive(Clone, Copy, Debug, Default)]
struct Floor {
    /// The last call that is known to be complete.
    complete: u64,
    /// The first call behind which an event has not come.
    pending: Option<u64>,
}

fn floors(process: &Process) -> HashMap<u64, Floor> {
    let mut floors: HashMap<u64, Floor> = HashMap::new();
    for call in process.groups.iter().flat_map(|group| &group.calls) {
        let floor = floors.entry(call.stream).or_default();
        if call.is_complete {
            floor.complete = floor.complete.max(call.order);
        } else if call.mark != Mark::None {
            let first = floor
                .pending
                .map_or(call.order, |pending| pending.min(call.order));
            floor.pending = Some(first);
        }
    }
    floors
}

/// How many collectives of a communicator a process has made.
fn entered(seen: &Watched, key: u64) -> Option<u64> {
    let group = seen
        .process
        .groups
        .iter()
        .find(|group| group.key == key && !group.is_creating)?;
    Some(group.entered)
}

impl<'a> View<'a> {
    pub(super) fn of(
        one: &'a Watched,
        rank: u32,
        members: &Members,
        seen: &[Watched],
        numbers: &[u32],
    ) -> Self {
        let process = &one.process;
        let floors = floors(process);
        let mut view = Self {
            rank,
            process,
            groups: Vec::new(),
            streams: Vec::new(),
            is_assumed: false,
            behind: Vec::new(),
        };
        for group in &process.groups {
            let known = members.get(&group.key).cloned().unwrap_or_default();
            let all_known: Vec<u32> = known.iter().copied().flatten().collect();
            view.groups.push(GroupView {
                group,
                name: name(group),
                members: if all_known.len() == known.len() {
                    all_known
                } else {
                    Vec::new()
                },
                entered: group.entered,
                thread: 0,
                head: None,
                missing: Vec::new(),
                missing_more: 0,
            });
        }
        // Who has made each call is what the others' boards say.
        let behind = |group: &Group, call: &Call| -> bool {
            !call.is_message()
                && seen.iter().any(|other| {
                    entered(other, group.key).is_some_and(|entered| entered < call.seq)
                })
        };
        let mut heads: Vec<(u64, usize, Call)> = Vec::new();
        for (at, view) in view.groups.iter().enumerate() {
            for call in &view.group.calls {
                let is_candidate =
                    !is_over(call, &floors) && (is_open(call, &floors) || behind(view.group, call));
                if is_candidate {
                    heads.push((call.order, at, *call));
                }
            }
        }
        heads.sort_by_key(|(order, _, _)| *order);
        view.set_heads(&heads);
        view.set_missing(members, seen, numbers);
        view
    }

    /// The first open call of each stream is in its call; of those behind it nothing has begun.
    fn set_heads(&mut self, heads: &[(u64, usize, Call)]) {
        let mut held: Vec<u64> = Vec::new();
        for (_, at, call) in heads {
            let group = &mut self.groups[*at];
            // What its stream waits for is on another one.
            if call.mark == Mark::Behind && !held.contains(&call.stream) {
                held.push(call.stream);
                group.entered = group.entered.min(call.seq.saturating_sub(1));
                self.behind.push(*call);
                continue;
            }
            if held.contains(&call.stream) {
                if !call.is_message() && group.head.is_none_or(|(seq, _)| seq != call.seq) {
                    group.entered = group.entered.min(call.seq - 1);
                }
                if group.thread == 0 {
                    group.thread = thread_of(&mut self.streams, call.stream);
                }
                continue;
            }
            held.push(call.stream);
            group.head.get_or_insert((call.seq, call.code));
            group.thread = thread_of(&mut self.streams, call.stream);
        }
        if held.len() > self.behind.len() {
            self.behind.clear();
        }
        let creating = self
            .groups
            .iter_mut()
            .filter(|group| group.group.is_creating);
        let mut is_creating = false;
        for group in creating {
            // It is a call that nobody leaves before all have come.
            let word = Collective::Barrier as u64;
            group.head = Some((1, CallCode { word, count: 0 }));
            group.entered = 1;
            group.thread = CREATING;
            is_creating = true;
        }
        let oldest = heads.first().map(|(_, at, _)| self.groups[*at].thread);
        for group in &mut self.groups {
            if group.head.is_some() || group.thread != 0 {
                continue;
            }
            if is_creating {
                group.thread = CREATING;
            } else if let Some(thread) = oldest {
                group.thread = thread;
                self.is_assumed = true;
            }
        }
    }

    fn set_missing(&mut self, members: &Members, seen: &[Watched], numbers: &[u32]) {
        let rank = self.rank;
        for group in &mut self.groups {
            let Some((seq, code)) = group.head else {
                continue;
            };
            let all = members.get(&group.group.key).map_or(&[][..], Vec::as_slice);
            if code.is_point_to_point() {
                let call = group
                    .group
                    .calls
                    .iter()
                    .find(|call| call.seq == seq && call.code == code);
                let peer = call.and_then(|call| call.root);
                let peer = peer.and_then(|peer| all.get(peer as usize).copied().flatten());
                group.missing = peer.into_iter().collect();
                group.missing_more = u32::from(peer.is_none());
                continue;
            }
            // What a rank gave its device before it exited is done, as far as it waited for that.
            let has_gone = |member: u32| {
                let one = numbers.iter().position(|number| *number == member);
                one.map(|at| &seen[at]).is_some_and(|one| {
                    one.has_exited
                        && one.sight == Sight::Ended
                        && entered(one, group.group.key).is_some_and(|entered| entered >= seq)
                })
            };
            let has_come = |member: u32| {
                let one = numbers.iter().position(|number| *number == member);
                let group_of = |one: &&Group| one.key == group.group.key;
                let one = one.and_then(|at| seen[at].process.groups.iter().find(group_of));
                one.is_some_and(|one| {
                    if group.group.is_creating {
                        true
                    } else {
                        let floors = &HashMap::new();
                        let is_over = |call: &Call| {
                            call.seq == seq && !call.is_message() && is_over(call, floors)
                        };
                        one.calls.iter().any(is_over)
                    }
                })
            };
            for member in all {
                match member {
                    Some(member) if *member == rank || has_come(*member) || has_gone(*member) => {}
                    Some(member) => group.missing.push(*member),
                    None => group.missing_more += 1,
                }
            }
            if all.is_empty() {
                group.missing_more = group.group.size.saturating_sub(1);
            }
        }
    }

    /// The last calls, for what verdicts say of a rank: those that are certainly open, and those that may be over.
    pub(super) fn records(&self) -> Vec<CallRecord> {
        let floors = floors(self.process);
        let mut records = Vec::new();
        for group in &self.groups {
            for call in &group.group.calls {
                let is_over = !is_open(call, &floors);
                let outcome = match (is_over, call.result) {
                    (true, 0) => CallOutcome::Completed,
                    (true, _) => CallOutcome::Failed,
                    (false, _) => CallOutcome::Open,
                };
                records.push(CallRecord {
                    id: call.order,
                    key: group.group.key,
                    group: group.name.clone(),
                    seq: call.seq,
                    call: call.code,
                    site: site(call),
                    thread: 1,
                    enqueued_ns: call.entered_ns,
                    started_ns: call.entered_ns,
                    completed_ns: is_over.then_some(call.returned_ns.unwrap_or(call.entered_ns)),
                    outcome,
                    // The device makes it.
                    is_async: true,
                });
            }
        }
        records.sort_by_key(|record| record.id);
        records
    }
}

fn thread_of(streams: &mut Vec<u64>, stream: u64) -> u32 {
    let at = streams
        .iter()
        .position(|one| *one == stream)
        .unwrap_or_else(|| {
            streams.push(stream);
            streams.len() - 1
        });
    u32::try_from(at + 1).unwrap_or(0)
}

pub(super) fn site(call: &Call) -> String {
    format!("stream {:#x}", call.stream)
}

/// What a communicator is called in verdicts.
pub(super) fn name(group: &Group) -> String {
    if group.is_creating {
        return format!("the creation of a communicator of {} ranks", group.size);
    }
    if group.name.is_empty() {
        format!("communicator {:08x}", group.key & 0xffff_ffff)
    } else {
        group.name.clone()
    }
}
