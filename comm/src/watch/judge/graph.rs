//! Who waits for whom.
//!
//! A node is a call that waits on some rank. From it edges lead to the calls in which the ranks that
//! it waits for are held up themselves; where such a rank waits for nobody, the edge ends in a *leaf*.

mod any;
mod components;
mod destroyed;

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

pub(super) use self::destroyed::has_remade;
use super::{CYCLE_AFTER_MS, FROZEN_AFTER_MS, Member, Scene};
use crate::error::verdict::CallId;
use crate::types::Collective;
use crate::watch::report::{
    CallOutcome, CallRecord, DESTROYED_MAX, Destroyed, GroupState, InFlight, Report, Wait,
};
use crate::watch::{FIRST_LOOK, NEXT_LOOK};

/// Age from which a call that does not say that it waits is one of those that never do.
const CALL_AT_WORK_MS: u64 = 1000;

/// What was sent this long ago has arrived.
const ON_ITS_WAY_MS: u64 = 100;

/// A call that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter<'a> {
    pub(super) rank: u32,
    pub(super) group: &'a GroupState,
    pub(super) call: &'a InFlight,
    pub(super) wait: &'a Wait,
}

impl Waiter<'_> {
    pub(super) fn id(&self) -> CallId {
        CallId {
            key: self.group.key,
            seq: self.call.seq,
        }
    }
}

/// Where a chain of waits ends.
#[derive(Clone, Debug)]
pub(super) struct Leaf<'a> {
    pub(super) rank: u32,
    pub(super) why: Why<'a>,
    /// The waiter that the rank is missed by.
    pub(super) missed_by: usize,
}

/// What a rank does that others wait for and that waits for nobody.
#[derive(Clone, Debug)]
pub(super) enum Why<'a> {
    /// Its thread is in another call that waits for nobody: the call goes on, or is about to end.
    AtWork,
    /// It has destroyed the group, so it never comes.
    Destroyed { group: &'a Destroyed },
    /// It went without a goodbye.
    Down,
    /// Its process does not run.
    Frozen { how: String },
    /// It said goodbye.
    Left,
    /// It has not made the group.
    NotMade,
    /// It has made a group of this name with other members.
    OtherGroup { group: &'a GroupState },
    /// It runs code of its own.
    Running,
    /// It does not answer.
    Silent,
}

/// An edge from one waiter to another.
#[derive(Clone, Copy, Debug)]
struct Edge {
    to: usize,
    /// The rank is held up in another call than the one it is waited for in. Edges within one call
    /// say no more than that the call is under way.
    elsewhere: bool,
}

#[derive(Debug)]
pub(super) struct Graph<'a> {
    scene: &'a Scene,
    /// The time of a call is up, so there must be an answer.
    is_overdue: bool,
    pub(super) waiters: Vec<Waiter<'a>>,
    /// Where each waiter stands, by rank and key of the group.
    places: HashMap<(u32, u64), usize>,
    edges: Vec<Vec<Edge>>,
    leaves: Vec<Leaf<'a>>,
}

impl<'a> Graph<'a> {
    pub(super) fn of(scene: &'a Scene, is_overdue: bool) -> Self {
        let mut waiters = Vec::new();
        for (rank, member) in (0..).zip(&scene.members) {
            for group in member.fresh().iter().flat_map(|report| &report.groups) {
                if let Some(call) = &group.call
                    && let Some(wait) = &call.wait
                {
                    waiters.push(Waiter {
                        rank,
                        group,
                        call,
                        wait,
                    });
                }
            }
        }
        let place = |(at, waiter): (usize, &Waiter<'_>)| ((waiter.rank, waiter.group.key), at);
        let mut graph = Self {
            scene,
            is_overdue,
            edges: vec![Vec::new(); waiters.len()],
            places: waiters.iter().enumerate().map(place).collect(),
            waiters,
            leaves: Vec::new(),
        };
        for from in 0..graph.waiters.len() {
            let missing = &graph.waiters[from].wait.missing;
            for rank in missing {
                graph.follow(from, *rank);
            }
        }
        graph
    }

    /// What holds up `rank`, which the waiter `from` waits for.
    fn follow(&mut self, from: usize, rank: u32) {
        let Some(member) = self.scene.member(rank) else {
            return;
        };
        let waiter = self.waiters[from];
        let report = match state_of(member, self.is_overdue) {
            Ok(report) => report,
            // What it sent before it left is on its way, or others made another call.
            Err(Why::Left) if has_come(member, &waiter) => return,
            Err(why) => return self.leaf(from, rank, why),
        };
        let key = waiter.group.key;
        let same = report.group(key);
        if let Some(group) = same.filter(|group| is_in_the_call(&waiter, group)) {
            // It is there: what it waits for in this call is what matters. Where it waits for nothing it
            // is at work; where it is past the call, what it sent is on its way.
            let call = group.call.as_ref();
            if call.is_some_and(|call| call.seq == waiter.call.seq) {
                self.link(from, rank, key, false);
            }
            return;
        }
        if let Some(group) = same.filter(|group| group.pending > 0) {
            return self.follow_worker(from, rank, group);
        }
        let gone = self.destroyed_in(report, &waiter);
        // A message that was sent before may still come: until the time is up what counts is where the rank is now.
        let is_message = waiter.call.call.is_point_to_point();
        if let Some(group) = gone.filter(|_| !is_message || self.is_overdue) {
            // What it sent before is on its way.
            if is_message || group.entered < waiter.call.seq {
                self.leaf(from, rank, Why::Destroyed { group });
            }
            return;
        }
        let Some(group) = held_up_in(report, same) else {
            let namesake = |group: &&GroupState| {
                group.name == waiter.group.name && self.is_made_instead(&waiter, group)
            };
            let why = match (same, report.groups.iter().find(namesake)) {
                // Nobody else makes the group of a call that waits for one of several ranks.
                _ if waiter.is_any() => Why::Running,
                (Some(group), _) if is_in_a_call(report, group.thread) => Why::AtWork,
                (Some(_), _) => Why::Running,
                (None, Some(group)) => Why::OtherGroup { group },
                (None, None) => Why::NotMade,
            };
            return self.leaf(from, rank, why);
        };
        let Some(call) = &group.call else { return };
        if call.wait.is_some() {
            let key = group.key;
            self.link(from, rank, key, true);
        } else if self.is_overdue || call.age_ms >= CALL_AT_WORK_MS {
            // A call that never says what it waits for: one on a device. However young it is, it is why
            // the rank is not in a call whose time is up.
            self.leaf(from, rank, Why::AtWork);
        }
        // Else it makes another call that goes on: it will come.
    }

    /// What holds up the worker of a group, which makes the asynchronous calls that its rank has started. Whatever the rank's
    /// own thread does, the calls of the worker come.
    fn follow_worker(&mut self, from: usize, rank: u32, group: &'a GroupState) {
        match &group.call {
            None => self.leaf(from, rank, Why::Running),
            Some(call) if call.wait.is_some() => self.link(from, rank, group.key, true),
            // It makes an earlier call that goes on.
            Some(_) => {}
        }
    }

    /// Whether a group of the same name that another rank has is one that it made in place of the waiter's. The waiter may
    /// have had that one too, and have destroyed it: then the other rank is only behind.
    fn is_made_instead(&self, waiter: &Waiter<'_>, group: &GroupState) -> bool {
        let report = self.scene.member(waiter.rank).and_then(Member::fresh);
        let remembers = |report: &Report| {
            report.group(group.key).is_none()
                && report.destroyed(group.key).is_none()
                && report.destroyed.len() < DESTROYED_MAX
        };
        group.members.contains(&waiter.rank) && report.is_some_and(remembers)
    }

    fn leaf(&mut self, from: usize, rank: u32, why: Why<'a>) {
        self.leaves.push(Leaf {
            rank,
            why,
            missed_by: from,
        });
    }

    fn link(&mut self, from: usize, rank: u32, key: u64, elsewhere: bool) {
        if let Some(to) = self.places.get(&(rank, key)) {
            self.edges[from].push(Edge { to: *to, elsewhere });
        }
    }

    /// The waiter that is this call of this rank.
    pub(super) fn position(&self, rank: u32, call: CallId) -> Option<usize> {
        let at = self.places.get(&(rank, call.key)).copied();
        at.filter(|at| self.waiters[*at].id() == call)
    }

    /// All waiters that this one waits for, itself included.
    pub(super) fn reachable(&self, start: usize) -> Vec<usize> {
        components::reachable(&self.successors(), &[start])
    }

    /// The waiters that each one waits for.
    fn successors(&self) -> Vec<Vec<usize>> {
        let ends = |edges: &Vec<Edge>| edges.iter().map(|edge| edge.to).collect();
        self.edges.iter().map(ends).collect()
    }

    /// Where the chains from these waiters end.
    pub(super) fn leaves(&self, from: &[usize]) -> Vec<Leaf<'a>> {
        let from: BTreeSet<usize> = from.iter().copied().collect();
        self.leaves
            .iter()
            .filter(|leaf| from.contains(&leaf.missed_by))
            .cloned()
            .collect()
    }

    /// The waiters that miss such a leaf themselves.
    pub(super) fn missing_one(&self, is_it: impl Fn(&Leaf<'_>) -> bool) -> Vec<usize> {
        let mut waiters: Vec<usize> = self
            .leaves
            .iter()
            .filter(|leaf| is_it(leaf))
            .map(|leaf| leaf.missed_by)
            .collect();
        waiters.sort_unstable();
        waiters.dedup();
        waiters
    }

    /// All waiters whose chains come to one of `targets`.
    pub(super) fn held_up_by(&self, targets: &[usize]) -> Vec<usize> {
        let mut predecessors = vec![Vec::new(); self.waiters.len()];
        for (from, edges) in self.edges.iter().enumerate() {
            for edge in edges {
                predecessors[edge.to].push(from);
            }
        }
        components::reachable(&predecessors, targets)
    }

    /// Sets of waiters that wait for each other in a circle which no single call explains: the strongly connected
    /// components with an edge to another call.
    pub(super) fn cycles(&self) -> Vec<Vec<usize>> {
        let components = components::strongly_connected(&self.stuck_successors());
        let mut component_of = vec![0; self.waiters.len()];
        for (number, component) in components.iter().enumerate() {
            for at in component {
                component_of[*at] = number;
            }
        }
        let leads_elsewhere = |at: &usize| {
            let mut edges = self.edges[*at].iter();
            edges.any(|edge| edge.elsewhere && component_of[edge.to] == component_of[*at])
        };
        components
            .into_iter()
            .filter(|component| component.iter().any(leads_elsewhere))
            .collect()
    }

    /// The ranks of a circle that are held up in another call than the one that they are waited for in: who is in the call that
    /// it is waited for in does its part of it as soon as the others do theirs.
    pub(super) fn held_elsewhere(&self, cycle: &[usize]) -> Vec<u32> {
        let within: BTreeSet<usize> = cycle.iter().copied().collect();
        let edges = cycle.iter().flat_map(|at| &self.edges[*at]);
        let ends = edges.filter(|edge| edge.elsewhere && within.contains(&edge.to));
        let mut ranks: Vec<u32> = ends.map(|edge| self.waiters[edge.to].rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }

    /// How many milliseconds a cycle lacks to the age from which it counts.
    pub(super) fn youth_ms(&self, cycle: &[usize]) -> u64 {
        let youngest = cycle.iter().map(|at| self.waiters[*at].call.age_ms).min();
        CYCLE_AFTER_MS.saturating_sub(youngest.unwrap_or(0))
    }

    /// Whether this waiter waits for somebody, and all ranks are known that it and the calls ahead of it wait
    /// for.
    pub(super) fn knows_all_missing(&self, start: usize) -> bool {
        let ahead = self.reachable(start);
        let is_known = |at: &usize| self.waiters[*at].wait.missing_more == 0;
        !self.waiters[start].wait.missing.is_empty() && ahead.iter().all(is_known)
    }

    /// Whether a rank that this waiter misses is held up in another call.
    pub(super) fn is_held_up_elsewhere(&self, start: usize) -> bool {
        self.edges[start].iter().any(|edge| edge.elsewhere)
    }

    /// A waiter at the end of the chains from this one where nothing has moved for so long: all that it waits
    /// for have come to its call.
    pub(super) fn standstill(&self, start: usize, least_ms: u64) -> Option<usize> {
        let is_end = |at: &usize| {
            let ahead = self.reachable(*at);
            let only_there = |one: &usize| !self.is_held_up_elsewhere(*one);
            ahead.iter().all(only_there) && self.waiters[*at].wait.age_ms >= least_ms
        };
        let ends = self.reachable(start).into_iter().filter(is_end);
        ends.max_by_key(|at| self.waiters[*at].wait.age_ms)
    }

    /// Whether each wait of a cycle was seen before, unchanged (JUDGE-2).
    pub(super) fn is_confirmed(&self, cycle: &[usize]) -> bool {
        let ages = cycle.iter().map(|at| self.waiters[*at].wait.age_ms);
        let youngest = ages.min().unwrap_or(0);
        cycle.iter().all(|at| {
            let waiter = &self.waiters[*at];
            let before = self
                .scene
                .member(waiter.rank)
                .and_then(|member| member.before.as_ref()?.group(waiter.group.key));
            before.is_some_and(|before| {
                let checks = |group: &GroupState| {
                    group
                        .call
                        .as_ref()
                        .and_then(|call| call.wait.as_ref())
                        .map_or(0, |wait| wait.checks)
                };
                // A message may be on its way: the waiting thread must have looked since.
                let has_looked = !waiter.call.call.is_point_to_point()
                    || checks(waiter.group) > checks(before)
                    || looked_ms(waiter.wait) + ON_ITS_WAY_MS <= youngest;
                before.version == waiter.group.version && checks(before) > 0 && has_looked
            })
        })
    }
}

/// How long ago a waiting thread has looked last, at most: it takes its time between two looks.
fn looked_ms(wait: &Wait) -> u64 {
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let between = ms(NEXT_LOOK).saturating_mul(wait.checks.saturating_sub(1));
    wait.age_ms
        .saturating_sub(ms(FIRST_LOOK).saturating_add(between))
}

/// The fresh report of a rank, or why there is none.
fn state_of(member: &Member, is_overdue: bool) -> Result<&Report, Why<'static>> {
    if let Some(fate) = &member.fate {
        return Err(if fate.orderly { Why::Left } else { Why::Down });
    }
    if let Some(report) = member.fresh() {
        return Ok(report);
    }
    let after_ms = if is_overdue { 0 } else { FROZEN_AFTER_MS };
    Err(match member.frozen(after_ms) {
        Some(how) => Why::Frozen { how },
        None => Why::Silent,
    })
}

/// Whether a rank is known to have come to a collective call that others wait for it in, however long ago.
fn has_come(member: &Member, waiter: &Waiter<'_>) -> bool {
    let key = waiter.group.key;
    let entered = member.report.as_ref().and_then(|report| {
        let lives = report.group(key).map(|group| group.entered);
        lives.or_else(|| report.destroyed(key).map(|group| group.entered))
    });
    !waiter.call.call.is_point_to_point()
        && entered.is_some_and(|entered| entered >= waiter.call.seq)
}

/// Whether a rank with this line of the group has come to the call that the waiter is in.
fn is_in_the_call(waiter: &Waiter<'_>, theirs: &GroupState) -> bool {
    if !waiter.call.call.is_point_to_point() {
        return theirs.entered >= waiter.call.seq;
    }
    let Some(call) = &theirs.call else {
        return false;
    };
    // Two blocking calls of the same direction that are for each other never meet; those of opposite
    // directions do, and of batches it cannot be told from here.
    let one_way = |call: &InFlight| {
        matches!(
            call.call.collective(),
            Some(Collective::Send | Collective::Recv)
        )
    };
    let is_for_us = call
        .wait
        .as_ref()
        .is_none_or(|wait| wait.missing.contains(&waiter.rank));
    call.call.is_point_to_point()
        && is_for_us
        && !(one_way(call)
            && one_way(waiter.call)
            && call.call.collective() == waiter.call.call.collective())
}

/// Whether a thread of the rank has begun a call that has not ended, or waits for asynchronous ones, whatever the lines of its
/// groups say: a call that fails waits for nobody while it asks why.
fn is_in_a_call(report: &Report, thread: u32) -> bool {
    let is_open = |call: &CallRecord| {
        call.outcome == CallOutcome::Open && call.thread == thread && !call.is_async
    };
    let is_awaited = |group: &GroupState| group.awaited_by == thread;
    report.calls.iter().any(is_open) || report.groups.iter().any(is_awaited)
}

/// The group in whose call the thread is that would have to come, if it is in one.
fn held_up_in<'a>(report: &'a Report, wanted: Option<&GroupState>) -> Option<&'a GroupState> {
    // Which thread that is: the one that used the group last, or the only one there is.
    let thread = match wanted {
        Some(group) => group.thread,
        None if report.threads == 1 => 1,
        None => return None,
    };
    // What a worker does holds up only who waits for it.
    report.groups.iter().find(|group| {
        group.call.as_ref().is_some_and(|call| {
            if call.is_async {
                group.awaited_by == thread
            } else {
                group.thread == thread
            }
        })
    })
}
