//! From the boards of a job to one verdict.
//!
//! - TAP-1: a call is certainly open where the vendor's library has not returned from it, where an event behind it or before
//!   it on its stream has not come, or where a member has not made it. Of all others nothing is said.
//! - TAP-2: what a rank's device has not come to yet, the rank has not entered: what it waits for is the first open call of the
//!   stream, or, where the device has not begun that either, a call on another stream.
//! - TAP-3: a rank that has not made a call and has another one open may wait for that one on its host. A circle that needs
//!   this is likely, not certain.
//! - TAP-4: where not all is known that a verdict needs, there is none.

use std::collections::{BTreeMap, HashMap};

use super::devices::Devices;
use super::ends::End;
use super::snapshot::{Call, Group, Process};
use super::view::{View, site};
use crate::error::verdict::{CallId, Class, Confidence, Verdict, ranks};
use crate::watch::judge::{Finding, Member, Question, Scene, judge};
use crate::watch::process::Sight;
use crate::watch::report::{Destroyed, GroupState, InFlight, Report, Wait};
use crate::watch::suspect::Suspects;

/// Ranks of a job that are judged.
const WORLD_MAX: usize = 65_536;
/// How long a process that was stopped counts as that.
const STOPPED_MS: u64 = 1000;

/// A process, its board, and what the kernel says of it.
#[derive(Clone, Debug)]
pub struct Watched {
    /// What its board says.
    pub process: Process,
    /// What a look at it showed.
    pub sight: Sight,
    /// Whether it removed its board, as a process does that exits by itself.
    pub has_exited: bool,
    /// Its end, where that was seen.
    pub end: Option<End>,
}

/// What is remembered of the processes of a job between two looks.
#[derive(Debug, Default)]
pub struct Jobs {
    host: String,
    /// When each call was first seen to hold up its stream, by rank.
    heads: HashMap<(u32, CallId), Head>,
    /// When the process of each rank was first found stopped.
    stopped: BTreeMap<u32, u64>,
    /// The order in which ranks ended.
    ended: Vec<u32>,
    before: BTreeMap<u32, Report>,
    suspects: Suspects,
    /// A line on who is waited for, before there is a verdict.
    suspected: Option<String>,
}

#[derive(Clone, Copy, Debug)]
struct Head {
    since_ns: u64,
    looks: u64,
}

/// Which world rank each member of a communicator has.
pub(super) type Members = HashMap<u64, Vec<Option<u32>>>;

/// A call that holds up its stream, or its program.
pub(super) struct Open {
    pub(super) rank: u32,
    pub(super) call: CallId,
    age_ms: u64,
}

/// What the processes of a job show at one moment.
pub(super) struct Made {
    pub(super) scene: Scene,
    /// The world rank of each process.
    pub(super) numbers: Vec<u32>,
    pub(super) members: Members,
    pub(super) open: Vec<Open>,
    /// Whether a wait of a program on its host was assumed.
    assumed: bool,
    /// By rank, the first call that its device has not begun.
    pub(super) behind: BTreeMap<u32, Call>,
}

impl Made {
    pub(super) fn devices<'a>(
        &'a self,
        seen: &'a [Watched],
        now_ns: u64,
        wall_ms: u64,
    ) -> Devices<'a> {
        Devices {
            scene: &self.scene,
            seen,
            numbers: &self.numbers,
            members: &self.members,
            now_ns,
            wall_ms,
        }
    }
}

impl Jobs {
    /// For processes of this host.
    #[must_use]
    pub fn on(host: &str) -> Self {
        Self {
            host: host.to_owned(),
            ..Self::default()
        }
    }

    /// Judges the processes of a job at this moment: `now_ns` by the monotonic clock, `wall_ms` since 1970. A call that does not
    /// end within `limit_ms` gets a verdict; calls that contradict each other get one at once.
    pub fn judge(
        &mut self,
        seen: &[Watched],
        now_ns: u64,
        wall_ms: u64,
        limit_ms: u64,
    ) -> Option<Verdict> {
        let made = self.scene(seen, now_ns, wall_ms)?;
        let scene = &made.scene;
        let devices = made.devices(seen, now_ns, wall_ms);
        let verdict = devices
            .differing()
            .or_else(|| devices.broken(STOPPED_MS))
            .or_else(|| stuck(scene, &made.open, limit_ms));
        let verdict = verdict.map(|verdict| worded(scene, verdict, made.assumed, &made.behind));
        self.suspects.least_ms = limit_ms / 2;
        let remark = self.suspects.look(scene, now_ns / 1_000_000);
        self.suspected = remark
            .filter(|_| verdict.is_none())
            .map(|remark| as_on_devices(&remark.line));
        for (rank, member) in (0..).zip(made.scene.members) {
            if let Some(report) = member.report {
                self.before.insert(rank, report);
            }
        }
        verdict
    }

    /// A line on who is waited for, where the last look found one who was not told of.
    pub fn suspected(&mut self) -> Option<String> {
        self.suspected.take()
    }

    /// What the ranks showed last, for dumps.
    pub fn reports(&self) -> impl Iterator<Item = &Report> {
        self.before.values()
    }

    /// What all of them show at this moment.
    pub(super) fn scene(&mut self, seen: &[Watched], now_ns: u64, wall_ms: u64) -> Option<Made> {
        let numbers = ranks_of(seen);
        let members = members(seen, &numbers);
        // Also those who have no board.
        let ranks = members.values().flatten().flatten().chain(&numbers);
        let world = ranks.map(|rank| *rank as usize + 1).max()?;
        if world > WORLD_MAX {
            return None;
        }
        let mut scene = Scene {
            members: vec![Member::default(); world],
        };
        let mut open = Vec::new();
        let mut assumed = false;
        let mut behind = BTreeMap::new();
        for (one, rank) in seen.iter().zip(&numbers) {
            let view = View::of(one, *rank, &members, seen, &numbers);
            assumed |= view.is_assumed;
            behind.extend(view.behind.first().map(|call| (*rank, *call)));
            let report = self.report(&view, now_ns, wall_ms, &mut open);
            self.look(&mut scene, one, *rank, now_ns, report);
        }
        self.heads.retain(|_, head| head.looks > 0);
        Some(Made {
            scene,
            numbers,
            members,
            open,
            assumed,
            behind,
        })
    }

    fn look(&mut self, scene: &mut Scene, one: &Watched, rank: u32, now_ns: u64, report: Report) {
        let Some(member) = scene.members.get_mut(rank as usize) else {
            return;
        };
        member.host.clone_from(&self.host);
        member.pid = one.process.pid;
        member.before = self.before.get(&rank).cloned();
        member.process = Some(one.sight.clone());
        let is_stopped = one
            .sight
            .facts()
            .is_some_and(|facts| facts.stopped().is_some());
        if is_stopped {
            let since = *self.stopped.entry(rank).or_insert(now_ns);
            let stopped_ms = now_ns.saturating_sub(since) / 1_000_000;
            member.stopped_ms = (stopped_ms >= STOPPED_MS).then_some(stopped_ms);
            member.silent_ms = stopped_ms;
        } else {
            self.stopped.remove(&rank);
        }
        if one.sight == Sight::Ended {
            if !self.ended.contains(&rank) {
                self.ended.push(rank);
            }
            let order = self.ended.iter().position(|ended| *ended == rank);
            member.fate = one.fate(order.unwrap_or(0) as u64);
        }
        member.report = Some(report);
    }

    /// What the rank's board says, in the words of muster's own.
    fn report(
        &mut self,
        view: &View<'_>,
        now_ns: u64,
        wall_ms: u64,
        open: &mut Vec<Open>,
    ) -> Report {
        let mut report = Report {
            rank: view.rank,
            pid: view.process.pid,
            wall_ms,
            threads: u32::try_from(view.streams.len()).unwrap_or(0).max(1),
            ..Report::default()
        };
        for group in &view.groups {
            let key = group.key();
            if group.is_gone() {
                report.destroyed.push(Destroyed {
                    key,
                    name: group.name.clone(),
                    entered: group.group.entered,
                    calls: group.group.entered.max(group.group.calls.len() as u64),
                    age_ms: 0,
                });
                continue;
            }
            let mut state = GroupState {
                key,
                name: group.name.clone(),
                members: group.members.clone(),
                size: group.group.size.max(1),
                entered: group.entered,
                thread: group.thread,
                version: group.group.calls.last().map_or(0, |call| call.order),
                ..GroupState::default()
            };
            if let Some((seq, code)) = group.head {
                let call = CallId { key, seq };
                let head = self.heads.entry((view.rank, call)).or_insert(Head {
                    since_ns: now_ns,
                    looks: 0,
                });
                head.looks += 1;
                let age_ms = now_ns.saturating_sub(head.since_ns) / 1_000_000;
                state.call = Some(InFlight {
                    seq,
                    call: code,
                    age_ms,
                    wait: Some(Wait {
                        missing: group.missing.clone(),
                        missing_more: group.missing_more,
                        checks: head.looks,
                        age_ms,
                    }),
                    ..InFlight::default()
                });
                open.push(Open {
                    rank: view.rank,
                    call,
                    age_ms,
                });
            }
            report.groups.push(state);
        }
        report.calls = view.records();
        report
    }
}

/// The world rank of each process: what its launcher says, or else its rank in the largest communicator.
#[must_use]
pub fn ranks_of(seen: &[Watched]) -> Vec<u32> {
    let told: Vec<u32> = seen
        .iter()
        .filter_map(|one| one.process.world_rank)
        .collect();
    let mut distinct = told.clone();
    distinct.sort_unstable();
    distinct.dedup();
    if distinct.len() == seen.len() {
        return told;
    }
    let rank = |at: &usize| {
        let groups = &seen[*at].process.groups;
        let largest = groups.iter().max_by_key(|group| group.size);
        (
            largest.map_or(u32::MAX, |group| group.rank),
            seen[*at].process.pid,
        )
    };
    let mut order: Vec<usize> = (0..seen.len()).collect();
    order.sort_by_key(rank);
    let mut numbers = vec![0; seen.len()];
    for (number, at) in (0..).zip(order) {
        numbers[at] = number;
    }
    numbers
}

fn members(seen: &[Watched], numbers: &[u32]) -> Members {
    let mut members: Members = HashMap::new();
    let groups = || {
        let of = |(one, rank): (&'_ Watched, &u32)| -> Vec<(Group, u32)> {
            one.process
                .groups
                .iter()
                .map(|group| (group.clone(), *rank))
                .collect()
        };
        seen.iter().zip(numbers).flat_map(of).collect::<Vec<_>>()
    };
    let world_size = seen.iter().filter_map(|one| one.process.world_size).max();
    for (group, rank) in groups() {
        let size = group.size as usize;
        let all = members.entry(group.key).or_insert_with(|| {
            // The largest communicator has the ranks of the job, in their order.
            let is_world = world_size == Some(group.size) && group.parent.is_none();
            (0..group.size)
                .map(|rank| is_world.then_some(rank))
                .take(size)
                .collect()
        });
        if let Some(place) = all.get_mut(group.rank as usize) {
            *place = Some(rank);
        }
    }
    for (group, _) in groups() {
        let Some(parent) = group
            .parent
            .and_then(|parent| members.get(&parent).cloned())
        else {
            continue;
        };
        let Some(all) = members.get_mut(&group.key) else {
            continue;
        };
        for (place, member) in all.iter_mut().zip(&group.members) {
            *place = place.or_else(|| parent.get(*member as usize).copied().flatten());
        }
    }
    members
}

/// The verdict on the call that has held up its stream for the longest time, where that is too long.
fn stuck(scene: &Scene, open: &[Open], limit_ms: u64) -> Option<Verdict> {
    // A rank that has ended or is stopped needs no limit: it is seen.
    let is_seen = |one: &&Open| {
        let member = scene.member(one.rank)?;
        let group = member.report.as_ref()?.group(one.call.key)?;
        let missing = &group.call.as_ref()?.wait.as_ref()?.missing;
        let has_entered = |member: &Member| {
            let group = member
                .report
                .as_ref()
                .and_then(|report| report.group(one.call.key));
            group.is_some_and(|group| group.entered >= one.call.seq)
        };
        let is_gone = |rank: &u32| {
            scene.member(*rank).is_some_and(|member| {
                let has_ended = member.fate.as_ref().is_some_and(|fate| !fate.orderly);
                (has_ended || member.stopped_ms.is_some()) && !has_entered(member)
            })
        };
        Some(missing.iter().any(is_gone))
    };
    let is_due = |one: &&Open| {
        one.age_ms >= limit_ms || is_seen(one) == Some(true) && one.age_ms >= STOPPED_MS
    };
    let oldest = open.iter().filter(is_due).max_by_key(|one| one.age_ms)?;
    let question = Question::Overdue {
        rank: oldest.rank,
        call: oldest.call,
    };
    match judge(scene, question) {
        Finding::Verdict(verdict) if verdict.class != Class::Internal => Some(*verdict),
        Finding::Verdict(_) | Finding::Again(_) | Finding::Nothing => None,
    }
}

/// A text in words of calls on devices.
fn as_on_devices(text: &str) -> String {
    let text = text.replace("barrier #1 on the creation of", "the creation of");
    // Which calls of a stream are complete is seen now and then only.
    text.replace(", last finished ", ", last made ")
}

/// The verdict in words of calls on devices.
pub(super) fn worded(
    scene: &Scene,
    mut verdict: Verdict,
    is_assumed: bool,
    behind: &BTreeMap<u32, Call>,
) -> Verdict {
    // Nobody asks a process: its board is read.
    verdict
        .evidence
        .retain(|text| !text.ends_with("answered when asked"));
    for text in &mut verdict.evidence {
        *text = text.replace("all of them live and answer", "all of them live");
        *text = text.replace(" has not answered for ", " has been stopped for ");
    }
    if let ([rank], Class::NotJoined) = (&verdict.blamed[..], verdict.class)
        && let Some(call) = behind.get(rank)
    {
        verdict.place = format!(
            "its device has not begun the call: what is ahead of it on {} is not complete",
            site(call)
        );
        verdict.confidence = Confidence::Likely;
    }
    for text in [&mut verdict.what, &mut verdict.others, &mut verdict.place] {
        *text = as_on_devices(text);
    }
    let is_unwatched = |rank: &u32| {
        scene
            .member(*rank)
            .is_none_or(|member| member.report.is_none())
    };
    if !verdict.blamed.is_empty() && verdict.blamed.iter().all(is_unwatched) {
        "has created no communicator so far, or runs without the tap"
            .clone_into(&mut verdict.place);
        verdict.who = ranks(&verdict.blamed);
        verdict.evidence = vec!["there is no board of it on this host".to_owned()];
        "see what that rank is doing, and whether it finds HCCL in the tap's folder"
            .clone_into(&mut verdict.next);
        verdict.confidence = Confidence::Likely;
    }
    if is_assumed && verdict.class == Class::Deadlock {
        verdict.confidence = Confidence::Likely;
        verdict
            .evidence
            .push("whether these programs wait for their devices was not seen".to_owned());
    }
    verdict
}
